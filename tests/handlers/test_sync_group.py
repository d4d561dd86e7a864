"""SyncGroup."""

from __future__ import annotations

import pytest
from trio.testing import wait_all_tasks_blocked

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.handlers.admin_client import make_admin_client
from tests.handlers.group_client import Member
from tests.handlers.scripted_groups import ScriptedGroups
from trio_broker.handlers.sync_group import error_response, sync_group

VERSIONS = range(6)


def request(**fields):
    return SyncGroupRequest(group_id="g", generation_id=1, member_id="m", assignments=[], **fields)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_gets_the_bytes_of_its_assignment(version):
    client = await make_admin_client()
    client.groups = ScriptedGroups(SyncGroupResponse(assignment=b"mine"))
    wanted = request(protocol_type="consumer", protocol_name="range") if version >= 5 else request()
    response = await client.ask(sync_group, wanted, version)
    assert (response.error_code, bytes(response.assignment)) == (ErrorCode.NONE, b"mine")


@pytest.mark.parametrize("fields", [{}, {"protocol_type": "consumer"}, {"protocol_name": "range"}])
async def test_from_version_5_on_a_member_has_to_say_which_protocol_it_means(fields):
    client = await make_admin_client()
    client.groups = ScriptedGroups()
    with pytest.raises(KafkaError) as raised:
        await client.ask(sync_group, request(**fields), 5)
    assert raised.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert client.groups.asked == []


def test_a_refusal_assigns_nothing():
    response = error_response(request(), KafkaError("no", code=ErrorCode.NOT_COORDINATOR))
    assert (response.error_code, response.assignment) == (ErrorCode.NOT_COORDINATOR, b"")


@pytest.mark.parametrize("version", VERSIONS)
async def test_what_the_leader_brings_is_what_the_others_get(groups, nursery, version):
    first = await groups.enter()
    joined, synced = [], []

    async def enter():
        joined.append(await groups.join(3))
        follower = Member("g", joined[0].member_id, joined[0].generation_id)
        synced.append(await groups.sync(version, follower, assignments=[]))

    nursery.start_soon(enter)
    await wait_all_tasks_blocked()
    leader = await groups.join(3, first.member_id)
    await wait_all_tasks_blocked()
    assert synced == [], "the leader has not brought it yet"
    shares = [
        SyncGroupRequestAssignment(member_id=leader.member_id, assignment=b"one"),
        SyncGroupRequestAssignment(member_id=joined[0].member_id, assignment=b"two"),
    ]
    own = await groups.sync(version, Member("g", leader.member_id, leader.generation_id), assignments=shares)
    await wait_all_tasks_blocked()
    assert (bytes(own.assignment), bytes(synced[0].assignment)) == (b"one", b"two")
    if version >= 5:
        assert (own.protocol_type, own.protocol_name) == ("consumer", "range")
