"""LeaveGroup."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from tests.handlers.admin_client import make_admin_client
from tests.handlers.scripted_groups import ScriptedGroups
from trio_broker.handlers.leave_group import error_response, leave_group

SINGLE = range(3)
MANY = range(3, 6)


def left(member_id, code=ErrorCode.NONE):
    return MemberResponse(member_id=member_id, group_instance_id=None, error_code=code)


async def leave(version, request, answer):
    client = await make_admin_client()
    client.groups = ScriptedGroups(answer)
    return await client.ask(leave_group, request, version), client.groups


@pytest.mark.parametrize("version", SINGLE)
@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_up_to_version_2_the_members_error_is_the_responses(version, code):
    request = LeaveGroupRequest(group_id="g", member_id="m")
    response, groups = await leave(version, request, LeaveGroupResponse(members=[left("m", code)]))
    assert (response.error_code, response.members) == (code, [])
    [(asked, _)] = groups.asked
    assert [member.member_id for member in asked.members] == ["m"]


@pytest.mark.parametrize("version", SINGLE)
async def test_an_error_of_the_group_comes_before_the_members(version):
    answer = LeaveGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)
    response, _ = await leave(version, LeaveGroupRequest(group_id="g", member_id="m"), answer)
    assert response.error_code == ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("version", MANY)
async def test_from_version_3_on_each_member_has_its_own(version):
    answer = LeaveGroupResponse(members=[left("a"), left("b", ErrorCode.UNKNOWN_MEMBER_ID)])
    members = [MemberIdentity(member_id="a"), MemberIdentity(member_id="b", group_instance_id="i")]
    response, groups = await leave(version, LeaveGroupRequest(group_id="g", members=members), answer)
    assert response.error_code == ErrorCode.NONE
    assert [(member.member_id, member.error_code) for member in response.members] == [("a", 0), ("b", 25)]
    [(asked, _)] = groups.asked
    assert [member.group_instance_id for member in asked.members] == [None, "i"]


def test_a_refusal_is_the_responses():
    response = error_response(LeaveGroupRequest(group_id="g"), KafkaError("no", code=ErrorCode.NOT_COORDINATOR))
    assert (response.error_code, response.members) == (ErrorCode.NOT_COORDINATOR, [])


@pytest.mark.parametrize("version", range(6))
async def test_a_group_whose_last_member_leaves_is_empty(groups, version):
    member = await groups.enter()
    assert await groups.leave(version, member) == ErrorCode.NONE
    [described] = (await groups.state())[0].groups
    assert (described.group_state, described.members) == ("Empty", [])


@pytest.mark.parametrize("version", MANY)
async def test_a_static_member_is_removed_by_its_instance_id(groups, version):
    await groups.enter(5, group_instance_id="i")
    members = [
        MemberIdentity(member_id="", group_instance_id="i"),
        MemberIdentity(member_id="", group_instance_id="nobody"),
    ]
    response = await groups.wire.ask(LeaveGroupRequest(group_id="g", members=members), version)
    assert [(member.group_instance_id, member.error_code) for member in response.members] == [("i", 0), ("nobody", 25)]
