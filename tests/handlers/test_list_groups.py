"""ListGroups."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.list_groups import ListedGroup, ListGroupsRequest
from tests.handlers.admin_client import make_admin_client
from tests.handlers.scripted_groups import ScriptedGroups
from trio_broker.handlers.list_groups import error_response, list_groups


@pytest.mark.parametrize("version", range(6))
async def test_a_version_tells_what_it_has_room_for(version):
    client = await make_admin_client()
    listed = ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable", group_type="classic")
    client.groups = ScriptedGroups([listed])
    [group] = (await client.ask(list_groups, ListGroupsRequest(), version)).groups
    assert (group.group_id, group.protocol_type) == ("g", "consumer")
    assert group.group_state == ("Stable" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


async def test_filters_may_be_written_in_any_case():
    client = await make_admin_client()
    client.groups = ScriptedGroups([])
    wanted = ListGroupsRequest(states_filter=["PreparingRebalance", "STABLE", "gone"], types_filter=["Consumer"])
    await client.ask(list_groups, wanted, 5)
    assert client.groups.asked == [({"preparingrebalance", "stable", "gone"}, {"consumer"})]


def test_a_list_that_would_not_be_whole_is_an_error():
    error = KafkaError("loading", code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    response = error_response(ListGroupsRequest(), error)
    assert (response.error_code, response.groups) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])


async def listed(groups, **filters):
    response = await groups.wire.ask(ListGroupsRequest(**filters), 5)
    return sorted((group.group_id, group.group_state, group.group_type) for group in response.groups)


async def test_groups_are_distinguished_by_state_and_by_type(groups):
    await groups.enter(group_id="a")
    await groups.commit(9, group_id="b")
    await groups.consume(1, "m", 0, group_id="c")
    a, b, c = ("a", "Stable", "classic"), ("b", "Empty", "classic"), ("c", "Stable", "consumer")
    assert await listed(groups) == [a, b, c]
    assert await listed(groups, states_filter=["stable"]) == [a, c]
    assert await listed(groups, types_filter=["Classic"]) == [a, b]
    assert await listed(groups, types_filter=["classic"], states_filter=["EMPTY", "Dead"]) == [b]
    assert await listed(groups, types_filter=["whatever"]) == []
    assert await listed(groups, states_filter=["whatever"]) == []
