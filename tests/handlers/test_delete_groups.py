"""DeleteGroups."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest
from tests.handlers.admin_client import make_admin_client
from tests.handlers.scripted_groups import ScriptedGroups
from trio_broker.handlers.delete_groups import delete_groups, error_response

VERSIONS = range(4)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_group_that_is_named_twice_is_deleted_once(version):
    client = await make_admin_client()
    client.groups = ScriptedGroups(lambda names: [DeletableGroupResult(group_id=name) for name in names])
    response = await client.ask(delete_groups, DeleteGroupsRequest(groups_names=["a", "b", "a"]), version)
    assert [(result.group_id, result.error_code) for result in response.results] == [("a", 0), ("b", 0)]
    assert client.groups.asked == [(["a", "b"],)]


def test_a_refusal_is_reported_for_every_group():
    error = KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR)
    results = error_response(DeleteGroupsRequest(groups_names=["a", "b", "a"]), error).results
    assert [(result.group_id, result.error_code, result.error_message) for result in results] == [
        ("a", -1, "no"),
        ("b", -1, "no"),
    ]


async def test_a_group_that_is_not_there_is_refused_with_a_reason_from_version_3_on(groups):
    for version in VERSIONS:
        [result] = (await groups.wire.ask(DeleteGroupsRequest(groups_names=["g"]), version)).results
        reason = "Group g not found." if version >= 3 else None
        assert (result.error_code, result.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, reason)


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_deleted_group_takes_its_offsets_with_it(groups, version):
    await groups.commit(9)
    response = await groups.wire.ask(DeleteGroupsRequest(groups_names=["g", "g"]), version)
    assert [(result.group_id, result.error_code) for result in response.results] == [("g", 0)]
    assert await groups.fetch(9) == [(0, -1)]
    [described] = (await groups.state())[0].groups
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
