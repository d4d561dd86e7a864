"""Heartbeat."""

from __future__ import annotations

import pytest
from trio.testing import wait_all_tasks_blocked

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.handlers.admin_client import make_admin_client
from tests.handlers.scripted_groups import ScriptedGroups
from trio_broker.coordinator.runtime.result import RequestContext
from trio_broker.handlers.heartbeat import error_response, heartbeat

VERSIONS = range(5)


def request(version=4, **fields):
    if version >= 3:
        fields.setdefault("group_instance_id", "i")
    return HeartbeatRequest(group_id="g", generation_id=3, member_id="m", **fields)


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_coordinator_hears_who_asks_and_from_where(version):
    client = await make_admin_client()
    client.groups = ScriptedGroups(HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    response = await client.ask(heartbeat, request(version), version)
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert client.groups.asked == [(request(version), RequestContext("test", "/127.0.0.1", version))]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_GROUP_ID),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE),
    ],
)
def test_a_member_whose_group_is_being_loaded_hears_nothing_of_it(code, expected):
    assert error_response(request(), KafkaError("no", code=code)).error_code == expected


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_member_is_asked_to_join_again_when_another_comes(groups, nursery, version):
    member = await groups.enter()
    assert await groups.heartbeat(version, member) == ErrorCode.NONE
    nursery.start_soon(groups.join, 3)
    await wait_all_tasks_blocked()
    assert await groups.heartbeat(version, member) == ErrorCode.REBALANCE_IN_PROGRESS
