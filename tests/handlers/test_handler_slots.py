"""Handlers that wait, in a HandlerPool of one slot: the slot is others' meanwhile."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio

from kafka_wire.codec import encode_bytes
from kafka_wire.headers import RequestHeader
from kafka_wire.messages.api_versions import ApiVersionsRequest
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.handlers.handler_client import CONNECTION
from trio_broker.network.handler_pool import HandlerPool
from trio_broker.network.request_channel import QueuedRequest, Reply, RequestChannel
from trio_broker.request_phase import RequestPhase


@attrs.define(eq=False)
class Mailbox:
    """Takes the reply of one request."""

    is_closed: bool = False
    has_come: trio.Event = attrs.field(factory=trio.Event)

    def respond(self, reply: Reply) -> None:
        self.has_come.set()


def produce(value: bytes) -> tuple[Any, int]:
    records = memoryview(bytearray(build_batch([NewRecord(1, None, value)])))
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(acks=1, timeout_ms=5000, topic_data=[data]), 12


def list_offsets() -> tuple[Any, int]:
    partition = ListOffsetsPartition(partition_index=0, timestamp=1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[partition])]), 7


def fetch() -> tuple[Any, int]:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic="t", partitions=[partition])]
    return FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1000, topics=topics, forgotten_topics_data=[]), 12


WAITING = {
    "a lookup by time, in a thread": (list_offsets(), RequestPhase.DISK),
    "the first batch of a leader epoch, for its entry": (produce(b"first"), RequestPhase.DISK),
    "a long poll": (fetch(), RequestPhase.PURGATORY),
}


def submit(pool: HandlerPool, request: Any, version: int) -> QueuedRequest:
    header = RequestHeader(request.API_KEY, version, 1, "test")
    body = memoryview(bytearray(encode_bytes(request, version)))
    queued = QueuedRequest(header, body, CONNECTION, reply_target=Mailbox())
    pool.submit(queued)
    return queued


async def wait_until_answered(request: QueuedRequest) -> None:
    assert isinstance(request.reply_target, Mailbox)
    await request.reply_target.has_come.wait()


def is_answered(request: QueuedRequest) -> bool:
    mailbox = request.reply_target
    assert isinstance(mailbox, Mailbox)
    return mailbox.has_come.is_set()


@pytest.mark.parametrize("waiting", WAITING)
async def test_a_request_that_waits_leaves_the_only_slot_to_others(nursery, wire, waiting):
    (request, version), phase = WAITING[waiting]
    await wire.create_topic("t")
    pool = HandlerPool(RequestChannel(10), wire.dispatcher.answer, 1)
    await nursery.start(pool.run)
    waiter = submit(pool, request, version)
    assert not is_answered(waiter)
    assert waiter.waits is not None
    assert waiter.waits.phase is phase
    # In the same turn, so what the first waits for cannot have come.
    other = submit(pool, ApiVersionsRequest(), 3)
    statistics = pool.statistics()
    assert is_answered(other)
    assert (statistics.idle, statistics.parked, statistics.in_flight) == (1, 1, 1)
    await wait_until_answered(waiter)
    statistics = pool.statistics()
    assert (statistics.idle, statistics.parked, statistics.in_flight) == (1, 0, 0)
    nursery.cancel_scope.cancel()
