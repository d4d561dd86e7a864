"""A request that waits for a disk holds no handler slot, in a broker that has only one, whose disk hangs."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio

from kafka_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafka_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafka_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafka_wire.messages.elect_leaders import ElectLeadersRequest
from kafka_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafka_wire.messages.init_producer_id import InitProducerIdRequest
from kafka_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_wire.primitives import NO_UUID
from tests.running_broker import connected, fetch_request, produce_request, running, until
from trio_broker.partition.directory_threads import DirectoryThreads
from trio_broker.storage.log_reader import ReadableLog


@pytest.fixture
async def broker(memory_path):
    async with running(memory_path, num_io_threads="1") as broker:
        yield broker


@pytest.fixture
def hanging_disk(monkeypatch):
    """Makes the threads of all directories wait for the event, and every read find its place on the disk."""
    healed = trio.Event()
    do, read = DirectoryThreads.do, ReadableLog.read

    async def hang(self, work, owner=None):
        await healed.wait()
        return await do(self, work, owner)

    def cold(self, offset, max_bytes, *, end_offset, minimum_one=True, nowait=False):
        if nowait:
            raise BlockingIOError(errno.EAGAIN, "not in the cache")
        return read(self, offset, max_bytes, end_offset=end_offset, minimum_one=minimum_one)

    def begin() -> trio.Event:
        monkeypatch.setattr(DirectoryThreads, "do", hang)
        monkeypatch.setattr(ReadableLog, "read", cold)
        return healed

    yield begin
    healed.set()  # or a test that fails would wait for the broker's stop


def lookup_by_time() -> ListOffsetsRequest:
    partition = ListOffsetsPartition(partition_index=0, timestamp=5)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="written", partitions=[partition])])


def delete_everything() -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=-1)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="written", partitions=[partition])], timeout_ms=0)


WAITING: dict[str, tuple[Any, int]] = {
    "a cold Fetch": (fetch_request("written"), 12),
    "a lookup by time": (lookup_by_time(), 7),
    "DeleteRecords": (delete_everything(), 2),
    "the first batch of a leader epoch": (produce_request("new", b"value", acks=1), 9),
}


@pytest.mark.parametrize("name", WAITING)
async def test_a_request_that_waits_for_a_disk_leaves_the_only_slot_to_others(broker, hanging_disk, name):
    request, version = WAITING[name]
    async with connected(broker) as waiting, connected(broker) as other:
        for topic in ("written", "new"):
            await other.create_topic(topic)
        assert await other.produce("written", b"value") == 0
        healed = hanging_disk()
        await waiting.send(request, version)
        await until(lambda: broker.server.statistics().handlers.delayed)
        assert broker.server.statistics().handlers.idle == 1
        await other.ask(MetadataRequest(topics=[]), 9)
        assert waiting.answered < waiting.sent
        healed.set()
        await waiting.receive(request, version)


WAITING_FOR_METADATA: dict[str, tuple[Any, int]] = {
    "CreateTopics": (
        CreateTopicsRequest(
            topics=[CreatableTopic(name="more", num_partitions=1, replication_factor=1, assignments=[], configs=[])]
        ),
        7,
    ),
    "CreatePartitions": (
        CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="written", count=2, assignments=None)], timeout_ms=0, validate_only=False
        ),
        3,
    ),
    "DeleteTopics": (DeleteTopicsRequest(topics=[DeleteTopicState(name="new", topic_id=NO_UUID)], timeout_ms=0), 6),
    "IncrementalAlterConfigs": (
        IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=2,
                    resource_name="written",
                    configs=[AlterableConfig(name="retention.ms", config_operation=0, value="1000000")],
                )
            ],
            validate_only=False,
        ),
        1,
    ),
    "ElectLeaders": (ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=0), 2),
    "the first InitProducerId": (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4),
    "Metadata that creates a topic": (MetadataRequest(topics=[MetadataRequestTopic(name="made")]), 9),
}


@pytest.mark.parametrize("name", WAITING_FOR_METADATA)
async def test_a_request_that_waits_for_the_metadata_log_leaves_the_only_slot_to_others(broker, name):
    request, version = WAITING_FOR_METADATA[name]
    async with connected(broker) as waiting, connected(broker) as other:
        for topic in ("written", "new"):
            await other.create_topic(topic)
        async with broker.services.controller.operations.lock:
            await waiting.send(request, version)
            await until(lambda: broker.server.statistics().handlers.delayed)
            assert broker.server.statistics().handlers.idle == 1
            await other.ask(MetadataRequest(topics=[]), 9)
            assert waiting.answered < waiting.sent
        await waiting.receive(request, version)
