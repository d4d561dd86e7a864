"""Requests that name thousands of things do not keep the event loop to themselves."""

from __future__ import annotations

import pytest

from kafka_wire.headers import RequestHeader
from kafka_wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResource
from kafka_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafka_wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kafka_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafka_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from kafka_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from kafka_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic, OffsetDeleteResponse
from kafka_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponseGroup, OffsetFetchResponseTopics
from kafka_wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.primitives import NO_UUID
from tests.handlers.admin_client import make_admin_client
from tests.handlers.handler_client import CONNECTION, response_of
from tests.handlers.loop_rounds import counted_rounds
from tests.handlers.scripted_groups import ScriptedGroups, classic_group, consumer_group
from tests.handlers.wire_client import ADVERTISED
from trio_broker.concurrency import yield_budget
from trio_broker.handlers.alter_configs import alter_configs
from trio_broker.handlers.alter_partition_reassignments import alter_partition_reassignments
from trio_broker.handlers.consumer_group_describe import consumer_group_describe
from trio_broker.handlers.create_partitions import create_partitions
from trio_broker.handlers.create_topics import create_topics
from trio_broker.handlers.delete_records import delete_records
from trio_broker.handlers.delete_topics import delete_topics
from trio_broker.handlers.describe_configs import describe_configs
from trio_broker.handlers.describe_groups import describe_groups
from trio_broker.handlers.describe_topic_partitions import describe_topic_partitions
from trio_broker.handlers.elect_leaders import elect_leaders
from trio_broker.handlers.fetch import PARTITIONS_PER_LOOK, fetch
from trio_broker.handlers.find_coordinator import find_coordinator
from trio_broker.handlers.list_offsets import list_offsets
from trio_broker.handlers.metadata import metadata
from trio_broker.handlers.offset_commit import offset_commit
from trio_broker.handlers.offset_delete import offset_delete
from trio_broker.handlers.offset_fetch import offset_fetch
from trio_broker.handlers.offset_for_leader_epoch import offset_for_leader_epoch
from trio_broker.handlers.produce import produce
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.services import NodeInfo
from trio_broker.network.request_channel import QueuedRequest

COUNT = 2000
NAMES = [f"name-{number}" for number in range(COUNT)]

FIND = FindCoordinatorRequest(coordinator_keys=NAMES)
DESCRIBE = DescribeGroupsRequest(groups=NAMES)
DESCRIBE_CONSUMERS = ConsumerGroupDescribeRequest(group_ids=NAMES, include_authorized_operations=False)
COMMIT = OffsetCommitRequest(
    group_id="g", member_id="", topics=[OffsetCommitRequestTopic(name=name, partitions=[]) for name in NAMES]
)
DELETE = OffsetDeleteRequest(
    group_id="g", topics=[OffsetDeleteRequestTopic(name=name, partitions=[]) for name in NAMES]
)
ELECT = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=list(range(COUNT)))])
REASSIGN = AlterPartitionReassignmentsRequest(
    topics=[ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=0)]) for name in NAMES]
)
FETCH = OffsetFetchRequest(group_id="g", topics=None)


def much_committed(request):
    return OffsetFetchResponseGroup(
        group_id="g", topics=[OffsetFetchResponseTopics(name=name, partitions=[]) for name in NAMES]
    )


def nothing_deleted(request, context):
    return OffsetDeleteResponse(topics=[])


@pytest.mark.parametrize(
    ("handler", "request_", "version", "answer"),
    [
        pytest.param(find_coordinator, FIND, 6, None, id="FindCoordinator"),
        pytest.param(describe_groups, DESCRIBE, 6, classic_group, id="DescribeGroups"),
        pytest.param(consumer_group_describe, DESCRIBE_CONSUMERS, 1, consumer_group, id="ConsumerGroupDescribe"),
        pytest.param(offset_commit, COMMIT, 9, None, id="OffsetCommit"),
        pytest.param(offset_delete, DELETE, 0, nothing_deleted, id="OffsetDelete"),
        pytest.param(elect_leaders, ELECT, 2, None, id="ElectLeaders"),
        pytest.param(alter_partition_reassignments, REASSIGN, 1, None, id="AlterPartitionReassignments"),
        pytest.param(offset_fetch, FETCH, 7, much_committed, id="OffsetFetch"),
    ],
)
async def test_others_have_the_loop_now_and_then(monkeypatch, handler, request_, version, answer):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)  # else the machine decides how much a turn is
    client = await make_admin_client()
    client.node = NodeInfo(1, "cluster", None, ADVERTISED)
    client.groups = ScriptedGroups(answer)
    async with counted_rounds() as rounds:
        await client.ask(handler, request_, version)
    assert rounds.count >= COUNT // PARTITIONS_PER_LOOK // 2


MANY_TOPICS = [
    pytest.param(delete_topics, DeleteTopicsRequest(timeout_ms=1, topic_names=NAMES), 5, id="DeleteTopics by name"),
    pytest.param(
        delete_topics,
        DeleteTopicsRequest(timeout_ms=1, topics=[DeleteTopicState(name=name, topic_id=NO_UUID) for name in NAMES]),
        6,
        id="DeleteTopics",
    ),
    pytest.param(
        create_topics,
        CreateTopicsRequest(
            timeout_ms=1,
            topics=[
                CreatableTopic(name=f"{name}!", num_partitions=1, replication_factor=1, assignments=[], configs=[])
                for name in NAMES
            ],
        ),
        7,
        id="CreateTopics",
    ),
    pytest.param(
        create_partitions,
        CreatePartitionsRequest(
            timeout_ms=1,
            validate_only=False,
            topics=[CreatePartitionsTopic(name=name, count=3, assignments=None) for name in NAMES],
        ),
        3,
        id="CreatePartitions",
    ),
    pytest.param(
        delete_records,
        DeleteRecordsRequest(
            timeout_ms=1,
            topics=[
                DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
                for name in NAMES
            ],
        ),
        2,
        id="DeleteRecords",
    ),
    pytest.param(
        list_offsets,
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
                for name in NAMES
            ],
        ),
        9,
        id="ListOffsets",
    ),
    pytest.param(
        offset_for_leader_epoch,
        OffsetForLeaderEpochRequest(
            topics=[
                OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
                for name in NAMES
            ]
        ),
        4,
        id="OffsetForLeaderEpoch",
    ),
    pytest.param(
        metadata,
        MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in NAMES], allow_auto_topic_creation=False),
        12,
        id="Metadata",
    ),
    pytest.param(
        describe_topic_partitions,
        DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in NAMES]),
        0,
        id="DescribeTopicPartitions",
    ),
    pytest.param(
        describe_configs,
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None) for name in NAMES
            ]
        ),
        4,
        id="DescribeConfigs",
    ),
    pytest.param(
        alter_configs,
        AlterConfigsRequest(
            validate_only=True,
            resources=[AlterConfigsResource(resource_type=2, resource_name=name, configs=[]) for name in NAMES],
        ),
        2,
        id="AlterConfigs",
    ),
    pytest.param(
        fetch,
        FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            topics=[
                FetchTopic(topic=name, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)])
                for name in NAMES
            ],
        ),
        11,
        id="Fetch",
    ),
    pytest.param(
        produce,
        ProduceRequest(
            acks=1,
            timeout_ms=1,
            topic_data=[
                TopicProduceData(
                    name=name, partition_data=[PartitionProduceData(index=0, records=memoryview(bytearray(70)))]
                )
                for name in NAMES
            ],
        ),
        9,
        id="Produce",
    ),
]


@pytest.mark.parametrize(("handler", "request_", "version"), MANY_TOPICS)
async def test_thousands_of_topics_are_taken_in_turns(open_wire_client, monkeypatch, handler, request_, version):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    wire = await open_wire_client()
    context = Context(
        QueuedRequest(
            RequestHeader(api_key=0, api_version=version, correlation_id=1, client_id="test"),
            memoryview(b""),
            CONNECTION,
            release_slot=lambda: None,
        ),
        wire.services,
    )
    async with counted_rounds() as rounds:
        await response_of(handler, request_, context)
    assert rounds.count >= COUNT // PARTITIONS_PER_LOOK
