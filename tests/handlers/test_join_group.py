"""JoinGroup."""

from __future__ import annotations

import re

import pytest
from trio.testing import wait_all_tasks_blocked

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tests.cases import each
from tests.handlers.admin_client import make_admin_client
from tests.handlers.group_client import SUBSCRIPTION
from tests.handlers.scripted_groups import ScriptedGroups
from trio_broker.handlers.join_group import error_response, join_group

VERSIONS = range(10)


def request(member_id="", **fields):
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"s")]
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=protocols,
        **fields,
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("raised", [True, False])
async def test_beside_an_error_the_protocol_is_null_from_version_7_on_and_empty_before(version, raised):
    client = await make_admin_client()
    code = ErrorCode.UNKNOWN_MEMBER_ID
    answer = JoinGroupResponse(error_code=code, protocol_name=None, leader="", member_id="m", members=[])
    client.groups = ScriptedGroups(KafkaError("no", code=code) if raised else answer)
    response = await client.ask(join_group, request("m"), version)
    assert response.protocol_name == (None if version >= 7 else "")
    member_id = "" if raised else "m"
    assert (response.error_code, response.generation_id, response.member_id) == (code, -1, member_id)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_refusal_of_none_but_the_group_has_no_member_id(version):
    """As in Kafka: the group's own refusals name the member."""
    response = error_response(request("m"), KafkaError("no", code=ErrorCode.NOT_COORDINATOR))
    assert (response.error_code, response.member_id, response.members) == (ErrorCode.NOT_COORDINATOR, "", [])


@pytest.mark.parametrize("version", range(4))
async def test_up_to_version_3_a_member_is_let_in_at_once(groups, version):
    response = await groups.join(version)
    assert (response.error_code, response.generation_id, response.leader) == (0, 1, response.member_id)
    assert [(member.member_id, bytes(member.metadata)) for member in response.members] == [
        (response.member_id, SUBSCRIPTION)
    ]


@pytest.mark.parametrize("version", range(4, 10))
async def test_from_version_4_on_a_member_first_gets_its_id(groups, version):
    refusal = await groups.join(version)
    assert (refusal.error_code, refusal.generation_id) == (ErrorCode.MEMBER_ID_REQUIRED, -1)
    response = await groups.join(version, refusal.member_id)
    assert (response.error_code, response.generation_id, response.member_id) == (0, 1, refusal.member_id)
    assert response.protocol_name == "range"
    assert response.protocol_type == ("consumer" if version >= 7 else None)


@each("version", VERSIONS)
async def test_a_member_id_is_the_client_id_and_a_uuid(groups, version):
    member_id = (await groups.join(version)).member_id
    assert re.fullmatch(r"test-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", member_id)


@each("version", range(5, 10))
async def test_a_static_member_is_let_in_at_once_and_keeps_its_place(groups, version):
    first = await groups.enter(version, group_instance_id="i")
    again = await groups.join(version, group_instance_id="i")
    assert (again.error_code, again.generation_id) == (0, first.generation_id)
    assert again.member_id != first.member_id
    assert again.skip_assignment == (version >= 9)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_join_waits_for_the_others_and_gives_its_slot_back(groups, nursery, version):
    member = await groups.enter()
    delayed_before = groups.wire.delayed
    answers = []

    async def join():
        member_id = (await groups.join(version)).member_id if version >= 4 else ""
        answers.append(await groups.join(version, member_id))

    nursery.start_soon(join)
    await wait_all_tasks_blocked()
    assert answers == []
    assert groups.wire.delayed == delayed_before + 1
    leader = await groups.join(3, member.member_id)
    await wait_all_tasks_blocked()
    [follower] = answers
    assert (leader.generation_id, follower.generation_id) == (2, 2)
    assert [len(leader.members), len(follower.members)] == [2, 0], "the leader alone receives the members"
