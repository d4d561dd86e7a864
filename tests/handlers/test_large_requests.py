"""Requests that name thousands of things do not keep the event loop to themselves."""

from __future__ import annotations

import pytest

from kafka_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from kafka_wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic, OffsetDeleteResponse
from kafka_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponseGroup, OffsetFetchResponseTopics
from tests.handlers.admin_client import make_admin_client
from tests.handlers.loop_rounds import counted_rounds
from tests.handlers.scripted_groups import ScriptedGroups, classic_group, consumer_group
from tests.handlers.wire_client import ADVERTISED
from trio_broker import yield_budget
from trio_broker.handlers.alter_partition_reassignments import alter_partition_reassignments
from trio_broker.handlers.consumer_group_describe import consumer_group_describe
from trio_broker.handlers.describe_groups import describe_groups
from trio_broker.handlers.elect_leaders import elect_leaders
from trio_broker.handlers.find_coordinator import find_coordinator
from trio_broker.handlers.offset_commit import offset_commit
from trio_broker.handlers.offset_delete import offset_delete
from trio_broker.handlers.offset_fetch import offset_fetch
from trio_broker.handlers.support.services import NodeInfo
from trio_broker.handlers.support.turns import ITEMS_PER_TURN

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
    assert rounds.count >= COUNT // ITEMS_PER_TURN // 2
