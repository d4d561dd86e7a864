"""Groups and transactions of a broker that asks for rights."""

from __future__ import annotations

import pytest

from kafka_wire.acl import CLUSTER_NAME, AclOperation, PatternType, ResourceType
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.list_groups import ListGroupsRequest
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafka_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.handlers.acls import ADMIN, SECURE, allow, entry
from tests.handlers.group_client import GroupClient

READ, DESCRIBE, DELETE = AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
GROUP_DENIED, DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
async def everybody(open_group_client):
    """Groups of a broker on which a client without a login may do everything."""
    groups = await open_group_client(**SECURE | {"super_users": f"User:{ADMIN};User:ANONYMOUS"})
    await groups.wire.create_topic("secrets")
    return groups


@pytest.fixture
def broker(everybody):
    return everybody.wire


@pytest.fixture
def alice(broker):
    """Groups as they are for a client that has only the rights of entries."""
    return GroupClient(broker.as_user("alice"))


async def test_offsets_are_those_of_topics_that_the_client_may_see(everybody, broker, alice):
    for topic in ("t", "secrets"):
        assert await everybody.commit(9, topic=topic) == [0]
    assert await alice.fetch(9) == [(GROUP_DENIED, -1)]
    await allow(broker, entry("g", DESCRIBE, type_=GROUP), entry("t"))
    assert await alice.fetch(9) == [(0, 7)]
    for version in (7, 9, 10):
        assert await alice.fetch(version, topic="secrets") == [(DENIED, -1)]
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    [group] = (await alice.wire.ask(everything, 9)).groups
    assert [topic.name for topic in group.topics] == ["t"]


async def test_offsets_are_committed_and_deleted_of_topics_that_the_client_may_read(everybody, broker, alice):
    assert await alice.commit(9) == [GROUP_DENIED]
    await allow(broker, entry("g", READ, type_=GROUP), entry("t"))
    assert [await alice.commit(version, topic=topic) for version in (9, 10) for topic in ("t", "secrets")] == [
        *([0], [DENIED]),
        *([0], [DENIED]),
    ]
    await everybody.commit(9, topic="secrets")
    await allow(broker, entry("g", DELETE, type_=GROUP))
    topics = [
        OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
        for name in ("t", "secrets", "nothing")
    ]
    response = await alice.wire.ask(OffsetDeleteRequest(group_id="g", topics=topics), 0)
    codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert codes == {"t": 0, "secrets": DENIED, "nothing": DENIED}
    assert await everybody.fetch(9, topic="secrets") == [(0, 7)]


async def test_groups_are_listed_and_described_as_far_as_the_client_may_see_them(everybody, broker, alice):
    for group_id in ("g", "h"):
        await everybody.commit(9, group_id=group_id)
    listed = ListGroupsRequest()
    assert (await alice.wire.ask(listed, 5)).groups == []
    await allow(broker, entry("g", READ, type_=GROUP))
    assert [group.group_id for group in (await alice.wire.ask(listed, 5)).groups] == ["g"]
    described = DescribeGroupsRequest(groups=["g", "h", "nothing"], include_authorized_operations=True)
    groups = {group.group_id: group for group in (await alice.wire.ask(described, 5)).groups}
    assert {name: group.error_code for name, group in groups.items()} == {
        "g": 0,
        "h": GROUP_DENIED,
        "nothing": GROUP_DENIED,
    }
    assert groups["g"].authorized_operations == 1 << READ | 1 << DESCRIBE
    await allow(broker, entry(CLUSTER_NAME, DESCRIBE, type_=ResourceType.CLUSTER))
    assert len((await alice.wire.ask(listed, 5)).groups) == 2


@pytest.mark.parametrize("version", [5, 9])
async def test_a_group_is_joined_with_the_right_to_read(broker, alice, version):
    joined = await alice.join(version)
    assert (joined.error_code, joined.protocol_name) == (GROUP_DENIED, None if version >= 7 else "")
    await allow(broker, entry("g", READ, type_=GROUP))
    assert await alice.enter(version)


async def test_a_consumer_group_has_the_topics_that_its_members_may_see(everybody, broker, alice):
    await allow(broker, entry("g", READ, type_=GROUP), entry("t", DESCRIBE))
    assert (await alice.consume(1, "m", 0, subscribed_topic_names=["t", "secrets"])).error_code == DENIED
    assert (await alice.consume(1, "m", 0)).error_code == 0
    assert (await everybody.consume(1, "n", 0, group_id="h", subscribed_topic_names=["secrets"])).error_code == 0
    await allow(broker, entry("h", DESCRIBE, type_=GROUP))
    described = ConsumerGroupDescribeRequest(group_ids=["g", "h"], include_authorized_operations=False)
    groups = (await alice.wire.ask(described, 1)).groups
    assert [(group.error_code, len(group.members)) for group in groups] == [(0, 1), (DENIED, 0)]


async def test_a_transaction_takes_the_topics_that_may_be_written_or_none(broker, alice):
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("t", "secrets", "nothing")]

    async def added(transactional_id="x"):
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        )
        response = await alice.wire.ask(request, 3)
        return {
            topic.name: topic.results_by_partition[0].partition_error_code
            for topic in response.results_by_topic_v3_and_below
        }

    assert set((await added()).values()) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    kind, prefixed = ResourceType.TRANSACTIONAL_ID, PatternType.PREFIXED
    own = entry("x", AclOperation.WRITE, type_=kind, resource_pattern_type=prefixed)
    await allow(broker, own, entry("t", AclOperation.WRITE))
    assert await added("x-1") == {"t": ErrorCode.OPERATION_NOT_ATTEMPTED, "secrets": DENIED, "nothing": DENIED}
