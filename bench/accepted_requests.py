"""Large requests that the broker accepts, and what they change: what declarations alone cannot say.

They stand in the order in which they are sent: topics are made before they are changed, and deleted in the end.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from bench.largest_requests import BATCH, topic_name
from bench.membership import PROTOCOL, SESSION_TIMEOUT_MS
from bench.wire import MIB, TIMEOUT_MS, bulk_batch, require
from kafka_wire.messages.alter_configs import AlterableConfig as GivenConfig
from kafka_wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafka_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafka_wire.messages.delete_topics import DeleteTopicsRequest
from kafka_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.describe_log_dirs import DescribeLogDirsRequest
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
)
from kafka_wire.messages.incremental_alter_configs import AlterConfigsResource as ChangedResource
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafka_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafka_wire.primitives import uuid_text
from kafka_wire.schema import Request

T = TypeVar("T")

WIDE_PARTITIONS = 2000
"""Of the first topic; all others have one."""

COMMITTED_PARTITIONS = 7000
"""By one request: as many as fit into a batch of a megabyte."""

GROWN_TOPICS = 500

FRAME_MIB = 90

TOPIC_RESOURCE = 2

CREATION_VERSION = 4
"""The last one whose answer has not all settings of each topic."""


class Sender(Protocol):
    """Sends requests, each of which is measured; ``what`` tells what is large in it."""

    def exchange(self, what: str, request: Request[T], version: int) -> T:
        """Send a request and return the answer."""
        ...

    def send(self, what: str, request: Request[Any], version: int) -> object:
        """Send a request whose answer may be more than our own reader takes."""
        ...


def make_topics(sender: Sender, topics: int) -> None:
    """Create ``topics`` topics of one partition, and one more of many."""
    wide = [new_topic(topic_name(0), WIDE_PARTITIONS)]
    created = sender.exchange(f"one topic of {WIDE_PARTITIONS:,} partitions", creation(wide), CREATION_VERSION)
    require(created.topics[0].error_code, "creating a topic")
    narrow = [new_topic(topic_name(number), 1) for number in range(1, topics + 1)]
    created = sender.exchange(f"{topics:,} topics", creation(narrow), CREATION_VERSION)
    require(created.topics[-1].error_code, "creating topics")


def new_topic(name: str, partitions: int) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])


def creation(topics: list[CreatableTopic]) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def use_topics(sender: Sender, topics: int) -> None:
    """Write, read, describe and change the topics."""
    names = [topic_name(number) for number in range(topics + 1)]
    large = memoryview(bulk_batch(MIB - 1024).data)
    for what, batch, count in ("1 MiB", large, FRAME_MIB), ("70 bytes", memoryview(BATCH), WIDE_PARTITIONS):
        data = [PartitionProduceData(index=index, records=batch) for index in range(count)]
        written = [TopicProduceData(name=names[0], partition_data=data)]
        produce = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=written)
        answer = sender.exchange(f"{what} to each of {count:,} partitions", produce, 12)
        require(answer.responses[0].partition_responses[-1].error_code, "producing")
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=MIB) for index in range(WIDE_PARTITIONS)
    ]
    read = FetchRequest(
        max_wait_ms=100, min_bytes=1, max_bytes=50 * MIB, topics=[FetchTopic(topic=names[0], partitions=partitions)]
    )
    sender.send(f"{WIDE_PARTITIONS:,} partitions with records", read, 12)
    sender.send("all topics", MetadataRequest(topics=None), 12)
    sender.send("all topics", DescribeLogDirsRequest(topics=None), 4)
    resources = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
        for name in names
    ]
    described = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    sender.send("all topics, synonyms and documentation", described, 4)
    changed = [
        ChangedResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=name,
            configs=[AlterableConfig(name="retention.ms", config_operation=0, value="86400000")],
        )
        for name in names
    ]
    sender.send("a setting of all topics", IncrementalAlterConfigsRequest(resources=changed, validate_only=False), 1)
    given = [
        AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=name,
            configs=[GivenConfig(name="retention.ms", value="1000000")],
        )
        for name in names
    ]
    sender.send("a setting of all topics", AlterConfigsRequest(resources=given, validate_only=False), 2)


def use_groups(sender: Sender) -> None:
    """Let a classic group with a large member live its life, let another commit, and one of KIP-848 subscribe."""
    group = "large"
    offers = [JoinGroupRequestProtocol(name=PROTOCOL, metadata=bytes(FRAME_MIB * MIB))]
    sender.send(f"metadata of {FRAME_MIB} MiB", joining(group, "", offers), 7)
    offers = [JoinGroupRequestProtocol(name=f"{PROTOCOL}-{number}", metadata=bytes(9000)) for number in range(100)]
    member_id = sender.exchange("100 protocols of 9 KB", joining(group, "", offers), 7).member_id
    joined = sender.exchange("100 protocols of 9 KB, again", joining(group, member_id, offers), 7)
    require(joined.error_code, "joining")
    for what, size in (f"{FRAME_MIB} MiB", FRAME_MIB * MIB), ("900 KB", 900_000):
        assigned = SyncGroupRequestAssignment(member_id=member_id, assignment=bytes(size))
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name=joined.protocol_name,
            assignments=[assigned],
        )
        synced = sender.exchange(f"an assignment of {what}", sync, 5)
        if synced.error_code:
            joined = sender.exchange("the same, after a refused assignment", joining(group, member_id, offers), 7)
            require(joined.error_code, "joining again")
    sender.send("a group of a large member", DescribeGroupsRequest(groups=[group]), 5)
    sender.send("a large member", LeaveGroupRequest(group_id=group, members=[MemberIdentity(member_id=member_id)]), 5)
    group = "committing"
    positions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in range(WIDE_PARTITIONS)
    ]
    single = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    topics = [OffsetCommitRequestTopic(name=topic_name(0), partitions=positions)]
    topics += [
        OffsetCommitRequestTopic(name=topic_name(number), partitions=single)
        for number in range(1, COMMITTED_PARTITIONS - WIDE_PARTITIONS + 1)
    ]
    commit = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
    sender.send(f"{COMMITTED_PARTITIONS:,} partitions committed", commit, 9)
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    sender.send("all offsets of a group", everything, 9)
    deleted = [
        OffsetDeleteRequestTopic(
            name=each.name,
            partitions=[
                OffsetDeleteRequestPartition(partition_index=partition.partition_index) for partition in each.partitions
            ],
        )
        for each in topics
    ]
    sender.send("all offsets of a group", OffsetDeleteRequest(group_id=group, topics=deleted), 0)
    names = [topic_name(number) for number in range(20_000)]
    subscribing = ConsumerGroupHeartbeatRequest(
        group_id="subscribing",
        member_id=uuid_text(bytes(15) + b"\1"),
        member_epoch=0,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        subscribed_topic_names=names,
        topic_partitions=[],
    )
    sender.send(f"{len(names):,} topics subscribed", subscribing, 1)


def joining(group: str, member_id: str, offers: list[JoinGroupRequestProtocol]) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=SESSION_TIMEOUT_MS,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=offers,
    )


def delete_topics(sender: Sender, topics: int) -> None:
    """Let some topics grow by a partition, then delete all of them at once."""
    grown = [
        CreatePartitionsTopic(name=topic_name(number), count=2, assignments=None)
        for number in range(1, min(topics, GROWN_TOPICS) + 1)
    ]
    growth = CreatePartitionsRequest(topics=grown, timeout_ms=TIMEOUT_MS, validate_only=False)
    sender.send(f"a partition for each of {len(grown):,} topics", growth, 3)
    names = [topic_name(number) for number in range(topics + 1)]
    sender.send(f"all {topics + 1:,} topics", DeleteTopicsRequest(topic_names=names, timeout_ms=TIMEOUT_MS), 5)
