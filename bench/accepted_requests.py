"""Large requests that the broker accepts, and what they change: what declarations alone cannot say.

They stand in the order in which they are sent: topics are made before they are changed, and deleted in the end.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from bench.largest_requests import BATCH, topic_name
from bench.membership import PROTOCOL, SESSION_TIMEOUT_MS
from bench.wire import MIB, TIMEOUT_MS, bulk_batch, require
from kafka_wire.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from kafka_wire.messages.alter_configs import AlterableConfig as GivenConfig
from kafka_wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kafka_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafka_wire.messages.delete_groups import DeleteGroupsRequest
from kafka_wire.messages.delete_topics import DeleteTopicsRequest
from kafka_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.describe_log_dirs import DescribeLogDirsRequest
from kafka_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    IncrementalAlterConfigsRequest,
)
from kafka_wire.messages.incremental_alter_configs import AlterConfigsResource as ChangedResource
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
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

WIDE_PARTITIONS = 10_000
"""Of the first topic, as many as one request may create; all others have one."""

WRITTEN_PARTITIONS = 2000
"""Of the first topic, by one request."""

COMMITTED_PARTITIONS = 7000
"""By one request: as many as fit into a batch of a megabyte."""

SUBSCRIBED_TOPICS = 20_000
"""By one member of a group: as many as are allowed in the consumer protocol, and read in the classic one."""

SUBSCRIBERS = 3

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
    for what, batch, count in ("1 MiB", large, FRAME_MIB), ("70 bytes", memoryview(BATCH), WRITTEN_PARTITIONS):
        data = [PartitionProduceData(index=index, records=batch) for index in range(count)]
        written = [TopicProduceData(name=names[0], partition_data=data)]
        produce = ProduceRequest(acks=-1, timeout_ms=TIMEOUT_MS, topic_data=written)
        answer = sender.exchange(f"{what} to each of {count:,} partitions", produce, 12)
        require(answer.responses[0].partition_responses[-1].error_code, "producing")
    partitions = [
        FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=MIB) for index in range(WRITTEN_PARTITIONS)
    ]
    read = FetchRequest(
        max_wait_ms=100, min_bytes=1, max_bytes=50 * MIB, topics=[FetchTopic(topic=names[0], partitions=partitions)]
    )
    sender.send(f"{WRITTEN_PARTITIONS:,} partitions with records", read, 12)
    sender.send("all topics", MetadataRequest(topics=None), 12)
    wide = f"a topic of {WIDE_PARTITIONS:,} partitions"
    sender.send(wide, MetadataRequest(topics=[MetadataRequestTopic(name=names[0])]), 12)
    page = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=names[0])], response_partition_limit=WIDE_PARTITIONS
    )
    sender.send(wide, page, 0)
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
    """Live the life of a classic group with a large member, of groups with many offsets, and of large subscriptions."""
    use_large_member(sender)
    use_offsets(sender)
    use_subscriptions(sender)


def use_large_member(sender: Sender) -> None:
    """Let a member with megabytes of metadata join, be assigned megabytes and leave."""
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


def use_offsets(sender: Sender) -> None:
    """Commit offsets of all topics in two groups, read them, delete those of one group, and the other group."""
    for group in "committing", "deleted":
        for start in range(0, WIDE_PARTITIONS, COMMITTED_PARTITIONS):
            indexes = range(start, min(start + COMMITTED_PARTITIONS, WIDE_PARTITIONS))
            topics = [committed(0, indexes)]
            sender.send(f"{len(indexes):,} partitions committed", commit(group, topics), 9)
        topics = [committed(number, range(1)) for number in range(1, COMMITTED_PARTITIONS + 1)]
        sender.send(f"{COMMITTED_PARTITIONS:,} topics committed", commit(group, topics), 9)
    group = "committing"
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    sender.send("all offsets of a group", everything, 9)
    topics = [committed(0, range(WIDE_PARTITIONS)), *topics]
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
    count = WIDE_PARTITIONS + COMMITTED_PARTITIONS
    answer = sender.exchange(f"a group of up to {count:,} offsets", DeleteGroupsRequest(groups_names=["deleted"]), 2)
    require(answer.results[0].error_code, "deleting a group")


def commit(group: str, topics: list[OffsetCommitRequestTopic]) -> OffsetCommitRequest:
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)


def committed(topic: int, partitions: range) -> OffsetCommitRequestTopic:
    positions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata="")
        for index in partitions
    ]
    return OffsetCommitRequestTopic(name=topic_name(topic), partitions=positions)


def use_subscriptions(sender: Sender) -> None:
    """Let members of both protocols subscribe to many topics, be described, and leave."""
    names = [topic_name(number) for number in range(SUBSCRIBED_TOPICS)]
    group, what = "subscribing", f"{SUBSCRIBED_TOPICS:,} topics"
    for number in range(SUBSCRIBERS):
        joined = sender.exchange(f"{what}, subscriber {number + 1}", subscribing(group, number, 0, names), 1)
        require(joined.error_code, "joining")
    others = [*names[:-1], "another"]
    changed = subscribing(group, number, joined.member_epoch, others)
    require(sender.exchange(f"{what}, one of them another", changed, 1).error_code, "subscribing")
    sender.send(
        f"{SUBSCRIBERS} members of {what}",
        ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False),
        1,
    )
    leaving = subscribing(group, number, -1, None)
    require(sender.exchange(f"a subscriber to {what}", leaving, 1).error_code, "leaving")
    group = "subscribing in the classic protocol"
    metadata = encode_subscription(ConsumerProtocolSubscription(topics=names))
    offers = [JoinGroupRequestProtocol(name=PROTOCOL, metadata=metadata)]
    member_id = sender.exchange(f"{what} subscribed", joining(group, "", offers), 7).member_id
    require(sender.exchange(f"{what} subscribed, again", joining(group, member_id, offers), 7).error_code, "joining")
    sender.send(f"a member of {what}", DescribeGroupsRequest(groups=[group]), 5)


def subscribing(group: str, number: int, epoch: int, names: list[str] | None) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=uuid_text(bytes(15) + bytes([number + 1])),
        member_epoch=epoch,
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        subscribed_topic_names=names,
        topic_partitions=[],
    )


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
