"""The frequent requests that need not wait are answered at once: a task would cost as much as most of them do."""

from __future__ import annotations

import math
from types import CoroutineType

import pytest

from kafka_wire.codec import encode
from kafka_wire.headers import RequestHeader
from kafka_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafka_wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.handlers.handler_client import CONNECTION, joined
from trio_broker.concurrency import yield_budget
from trio_broker.network.request_channel import QueuedRequest

LATEST, EARLIEST, A_TIME = -1, -2, 1_700_000_000_000
TOPIC = 2


@pytest.fixture(autouse=True)
def unlimited_turns(monkeypatch):
    """A slow machine must not turn an answer into one that takes turns."""
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", math.inf)


def answer(groups, request, version):
    """What the Dispatcher gives for ``request`` without anybody waiting for it."""
    header = RequestHeader(request.API_KEY, version, 7, "test")
    body = memoryview(bytearray(joined(encode(request, version))))
    return groups.wire.dispatcher.answer(QueuedRequest(header, body, CONNECTION))


def list_offsets(timestamp):
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    topic = ListOffsetsTopic(name="t", partitions=[wanted])
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])


def fetch(min_bytes):
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=1000, min_bytes=min_bytes, topics=[FetchTopic(topic="t", partitions=[wanted])])


def metadata(*names):
    topics = [MetadataRequestTopic(name=name) for name in names] if names else None
    return MetadataRequest(topics=topics, allow_auto_topic_creation=True)


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (metadata("t"), 12),
        (metadata(), 12),
        (FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"]), 4),
        (FindCoordinatorRequest(key_type=0, key="g"), 3),
        (list_offsets(LATEST), 7),
        (list_offsets(EARLIEST), 7),
        (
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(
                        group_id="g", topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
                    )
                ]
            ),
            8,
        ),
        (OffsetFetchRequest(group_id="g", topics=None), 5),
        (
            OffsetForLeaderEpochRequest(
                topics=[
                    OffsetForLeaderTopic(
                        topic="t",
                        partitions=[OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=0)],
                    )
                ]
            ),
            4,
        ),
        (
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=TOPIC, resource_name="t", configuration_keys=["retention.ms"])
                ]
            ),
            4,
        ),
        (fetch(min_bytes=0), 12),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, int) else f"v{value}",
)
async def test_what_need_not_wait_is_answered_in_turn(groups, request_, version):
    assert isinstance(answer(groups, request_, version), list)


@pytest.mark.parametrize(
    ("request_", "version"),
    [(metadata("new"), 12), (list_offsets(A_TIME), 7), (fetch(min_bytes=1), 12)],
    ids=["a topic to be created", "a look into the log", "a long poll"],
)
async def test_what_must_wait_is_left_to_a_task(groups, request_, version):
    pending = answer(groups, request_, version)
    assert isinstance(pending, CoroutineType)
    pending.close()
