"""DescribeGroups."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from tests.cases import each
from tests.handlers.admin_client import make_admin_client
from tests.handlers.group_client import ASSIGNMENT, SUBSCRIPTION
from tests.handlers.scripted_groups import ScriptedGroups, classic_group
from trio_broker.handlers.describe_groups import describe_groups, error_response

VERSIONS = range(7)
NOT_ASKED_FOR = -(2**31)
READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 6, 8, 10, 11


async def describe(version, *group_ids, answer=classic_group, asked=False):
    client = await make_admin_client()
    client.groups = ScriptedGroups(answer)
    request = DescribeGroupsRequest(groups=list(group_ids), include_authorized_operations=asked)
    return (await client.ask(describe_groups, request, version)).groups


def refusal(code):
    return lambda group_id: KafkaError("the reason", code=code)


@pytest.mark.parametrize("version", VERSIONS)
async def test_groups_come_in_the_order_of_the_request_each_once(version):
    described = await describe(version, "b", "a", "b")
    assert [group.group_id for group in described] == ["b", "a"]
    assert [group.members[0].member_id for group in described] == ["m", "m"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_missing_group_is_dead_and_from_version_6_on_an_error(version):
    [group] = await describe(version, "g", answer=refusal(ErrorCode.GROUP_ID_NOT_FOUND))
    assert (group.group_id, group.group_state, group.members) == ("g", "Dead", [])
    if version >= 6:
        assert (group.error_code, group.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "the reason")
    else:
        assert (group.error_code, group.error_message) == (ErrorCode.NONE, None)


@pytest.mark.parametrize("version", VERSIONS)
async def test_another_error_is_the_groups_in_every_version(version):
    [group] = await describe(version, "g", answer=refusal(ErrorCode.NOT_COORDINATOR))
    assert (group.error_code, group.group_state) == (ErrorCode.NOT_COORDINATOR, "")
    assert group.error_message == ("the reason" if version >= 6 else None)


@pytest.mark.parametrize("version", range(3, 7))
async def test_operations_are_reported_when_asked_for(version):
    [group] = await describe(version, "g", asked=True)
    bits = (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
    assert group.authorized_operations == sum(1 << bit for bit in bits)
    [group] = await describe(version, "g")
    assert group.authorized_operations == NOT_ASKED_FOR


@pytest.mark.parametrize(("version", "reported"), [(5, True), (6, False)])
async def test_a_missing_group_has_operations_where_it_is_no_error(version, reported):
    [group] = await describe(version, "g", answer=refusal(ErrorCode.GROUP_ID_NOT_FOUND), asked=True)
    assert (group.authorized_operations != NOT_ASKED_FOR) == reported


async def test_hundreds_of_groups_are_described():
    names = [f"g-{number}" for number in range(120)]
    assert [group.group_id for group in await describe(6, *names)] == names


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_refusal_is_reported_for_every_group(version):
    error = KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR)
    response = error_response(DescribeGroupsRequest(groups=["a", "b"]), error)
    assert [group.error_code for group in response.groups] == [ErrorCode.UNKNOWN_SERVER_ERROR] * 2


@each("version", VERSIONS)
async def test_a_stable_group_shows_its_members_and_their_bytes(groups, version):
    entered = await groups.enter(5, group_instance_id="i")
    [group] = (await groups.wire.ask(DescribeGroupsRequest(groups=["g"]), version)).groups
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    [member] = group.members
    assert (member.member_id, member.client_id, member.client_host) == (entered.member_id, "test", "/127.0.0.1")
    assert member.group_instance_id == ("i" if version >= 4 else None)
    assert (bytes(member.member_metadata), bytes(member.member_assignment)) == (SUBSCRIPTION, ASSIGNMENT)


@each("version", VERSIONS)
async def test_a_group_of_the_consumer_protocol_is_none_to_describe_here(groups, version):
    await groups.consume(1, "m", 0)
    [group] = (await groups.wire.ask(DescribeGroupsRequest(groups=["g"]), version)).groups
    assert group.group_state == "Dead"
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)


@each("version", VERSIONS)
async def test_the_group_without_a_name_is_missing_like_any_other(groups, version):
    [group] = (await groups.wire.ask(DescribeGroupsRequest(groups=[""]), version)).groups
    assert group.group_state == "Dead"
    assert group.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)


@each("version", VERSIONS)
@each("group_id", ["g", ""])
async def test_a_group_that_only_commits_is_empty(groups, version, group_id):
    await groups.commit(9, group_id=group_id)
    [group] = (await groups.wire.ask(DescribeGroupsRequest(groups=[group_id]), version)).groups
    assert (group.error_code, group.group_state, group.members) == (0, "Empty", [])
