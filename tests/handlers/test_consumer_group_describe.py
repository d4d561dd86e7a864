"""ConsumerGroupDescribe."""

from __future__ import annotations

import pytest

from kafka_wire.acl import ResourceType
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tests.handlers.admin_client import make_admin_client
from tests.handlers.scripted_groups import ScriptedGroups, consumer_group
from trio_broker.handlers.consumer_group_describe import consumer_group_describe, error_response
from trio_broker.handlers.support.authorized_operations import ALL_OPERATIONS

VERSIONS = range(2)
NOT_ASKED_FOR = -(2**31)


async def describe(version, *group_ids, answer=consumer_group, asked=False):
    client = await make_admin_client()
    client.groups = ScriptedGroups(answer)
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=asked)
    return (await client.ask(consumer_group_describe, request, version)).groups


@pytest.mark.parametrize("version", VERSIONS)
async def test_groups_come_in_the_order_of_the_request_each_once(version):
    names = [f"g-{number}" for number in range(120)]
    described = await describe(version, *names, "g-7")
    assert [(group.group_id, group.group_epoch) for group in described] == [(name, 3) for name in names]


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_is_no_consumer_group_is_error_69_with_a_reason(version):
    error = KafkaError("group g is classic", code=ErrorCode.GROUP_ID_NOT_FOUND)
    [group] = await describe(version, "g", answer=lambda group_id: error, asked=True)
    assert (group.group_id, group.error_code) == ("g", ErrorCode.GROUP_ID_NOT_FOUND)
    assert group.error_message == "group g is classic"
    assert group.authorized_operations == NOT_ASKED_FOR


@pytest.mark.parametrize("version", VERSIONS)
async def test_operations_are_reported_when_asked_for(version):
    [asked] = await describe(version, "g", asked=True)
    [silent] = await describe(version, "g")
    assert (asked.authorized_operations, silent.authorized_operations) == (
        ALL_OPERATIONS[ResourceType.GROUP],
        NOT_ASKED_FOR,
    )


def test_a_refusal_is_reported_for_every_group():
    error = KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR)
    request = ConsumerGroupDescribeRequest(group_ids=["a", "b"], include_authorized_operations=False)
    assert [group.error_code for group in error_response(request, error).groups] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_shows_what_it_has_and_what_it_shall_have(groups, version):
    epoch = (await groups.consume(1, "m", 0, rack_id="r", instance_id="i")).member_epoch
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=False)
    [group] = (await groups.wire.ask(request, version)).groups
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    assert (group.group_epoch, group.assignment_epoch) == (epoch, epoch)
    [member] = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", epoch)
    assert (member.client_id, member.client_host, member.subscribed_topic_names) == ("test", "/127.0.0.1", ["t"])
    assert member.member_type == (1 if version >= 1 else -1)
    for assignment in (member.assignment, member.target_assignment):
        [share] = assignment.topic_partitions
        assert (share.topic_id, share.topic_name, share.partitions) == (groups.topic_id("t"), "t", [0, 1, 2])
