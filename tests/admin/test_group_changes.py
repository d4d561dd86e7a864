"""Claims about what changes a group over HTTP: resets of offsets, deletions, members that are removed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.live_admin import LiveAdmin
from tests.coordinator.coordinator_harness import CoordinatorHarness

RESET = "/api/v1/groups/g:reset-offsets"
YOUNG = "2023-11-14T22:13:20"
"""When ``Connection.produce`` says that its records were made."""


@pytest.fixture
async def members(live: LiveAdmin) -> CoordinatorHarness:
    """The broker's groups, of which ``g`` has committed offset 2 of the five records in ``t-0``."""
    await live.kafka.create_topic("t", 2)
    await live.kafka.produce("t", *(b"%d" % number for number in range(5)))
    clock: Any = live.broker.clock  # the harness lets no time pass here
    harness = CoordinatorHarness(live.broker.services, clock)
    await harness.groups.find("g")
    assert await harness.commit("g", 2) == 0
    return harness


async def reset(live: LiveAdmin, address: str = RESET, *, dry_run: bool = False, **body: Any) -> Any:
    answer = await live.http.post(address, params={"dry_run": "true"} if dry_run else None, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def refusal(live: LiveAdmin, method: str, address: str, status: int, **sent: Any) -> Any:
    answer = await live.http.request(method, address, **sent)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.json()


# --- resetting ---


async def test_a_dry_run_shows_old_and_new_offsets_and_changes_nothing(live: LiveAdmin, members: CoordinatorHarness):
    body = await reset(live, dry_run=True, target="earliest")
    assert body == {
        "dry_run": True,
        "group_id": "g",
        "creates_group": False,
        "skipped_records": 0,
        "repeated_records": 2,
        "partitions": [
            {
                "topic": "t",
                "partition": 0,
                "current_offset": 2,
                "new_offset": 0,
                "skipped_records": 0,
                "repeated_records": 2,
                "log_start_offset": 0,
                "log_end_offset": 5,
                "remark": None,
                "error": None,
            }
        ],
    }
    assert await members.committed("g") == {"t": {0: 2}}


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        ({"target": "earliest"}, {0: 0}),
        ({"target": "latest"}, {0: 5}),
        ({"target": "current"}, {0: 2}),
        ({"target": "offset", "offset": 3}, {0: 3}),
        ({"target": "offset", "offset": 0}, {0: 0}),
        ({"target": "offset", "offset": 2**63 - 1}, {0: 5}),
        ({"target": "shift_by", "shift_by": -1}, {0: 1}),
        ({"target": "time", "time": YOUNG}, {0: 0}),
        ({"target": "time", "time": "2200-01-01"}, {0: 5}),
        ({"target": "duration", "duration": "PT1S"}, {0: 5}),
        ({"target": "duration", "duration": "P40000D"}, {0: 0}),
        ({"target": "file", "file": "t,1,0\ng,t,0,4\nother,t,0,1\n"}, {0: 4, 1: 0}),
        ({"target": "group", "group": "other"}, {0: 1}),
        ({"target": "latest", "topics": [{"topic": "t"}]}, {0: 5, 1: 0}),
        ({"target": "latest", "topics": [{"topic": "t", "partitions": [1]}]}, {0: 2, 1: 0}),
    ],
)
async def test_every_target_sets_its_offset(
    live: LiveAdmin, members: CoordinatorHarness, body: dict[str, Any], offsets: dict[int, int]
):
    await members.commit("other", 1)
    planned = await reset(live, dry_run=True, **body)
    done = await reset(live, **body)
    assert {**done, "dry_run": True} == planned
    assert await members.committed("g") == {"t": offsets}


async def test_an_offset_outside_of_the_log_is_moved_into_it_with_a_remark(
    live: LiveAdmin, members: CoordinatorHarness
):
    [only] = (await reset(live, dry_run=True, target="shift_by", shift_by=1000))["partitions"]
    assert (only["new_offset"], only["skipped_records"], only["remark"]) == (5, 3, "1002 is after the log ends")


async def test_a_group_that_does_not_exist_is_created(live: LiveAdmin, members: CoordinatorHarness):
    address = "/api/v1/groups/-:reset-offsets?id=a/new.."
    body = await reset(live, address, target="latest", topics=[{"topic": "t"}])
    assert body["creates_group"]
    assert await members.committed("a/new..") == {"t": {0: 5, 1: 0}}


async def test_the_first_group_of_a_broker_may_be_made_by_a_reset(live: LiveAdmin):
    await live.kafka.create_topic("t")
    assert (await reset(live, dry_run=True, target="latest", topics=[{"topic": "t"}]))["creates_group"]
    await reset(live, target="latest", topics=[{"topic": "t"}])
    assert (await live.get("/api/v1/groups/g/offsets"))["partitions"][0]["committed_offset"] == 0


@pytest.mark.parametrize("dry_run", ["true", "false"])
async def test_a_group_with_members_is_left_alone(live: LiveAdmin, members: CoordinatorHarness, dry_run: str):
    await members.settle("g")
    problem = await refusal(live, "POST", RESET, 409, json={"target": "latest"}, params={"dry_run": dry_run})
    assert "has 1 member and is Stable: stop its consumers" in problem["detail"]
    assert await members.committed("g") == {"t": {0: 2}}


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "/target"),
        ({"target": "sideways"}, "/target"),
        ({"target": "offset"}, "/offset"),
        ({"target": "offset", "offset": -1}, "/offset"),
        ({"target": "offset", "offset": 2**63}, "/offset"),
        ({"target": "latest", "offset": 1}, "/offset"),
        ({"target": "shift_by", "shift_by": 1.5}, "/shift_by"),
        ({"target": "time", "time": "yesterday"}, "/time"),
        ({"target": "duration", "duration": "1h"}, "/duration"),
        ({"target": "group", "group": "nobody"}, "/group"),
        ({"target": "file", "file": "t,0"}, "/file"),
        ({"target": "file", "file": ""}, "/file"),
        ({"target": "file", "file": "t,0,1", "topics": [{"topic": "t"}]}, "/topics"),
        ({"target": "latest", "topics": [{"topic": "nowhere"}]}, "/topics/0/topic"),
        ({"target": "latest", "topics": [{"topic": "t", "partitions": [0, 7]}]}, "/topics/0/partitions/1"),
        ({"target": "latest", "topics": [{"topic": "t", "partitions": []}]}, "/topics/0/partitions"),
        ({"target": "latest", "topic": "t"}, "/topic"),
    ],
)
async def test_a_wrong_value_is_pointed_at(
    live: LiveAdmin, members: CoordinatorHarness, body: dict[str, Any], pointer: str
):
    problem = await refusal(live, "POST", RESET, 422, json=body)
    assert [error["pointer"] for error in problem["errors"]] == [pointer]
    assert await members.committed("g") == {"t": {0: 2}}


async def test_a_time_that_is_none_is_refused_with_how_one_is_written(live: LiveAdmin, members: CoordinatorHarness):
    problem = await refusal(live, "POST", RESET, 422, json={"target": "time", "time": "yesterday"})
    assert "'yesterday' is not a time; one is written 2026-01-31T12:00:00" in problem["errors"][0]["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {"target": "shift_by", "shift_by": 1, "topics": [{"topic": "t"}]},
        {"target": "group", "group": "other", "topics": [{"topic": "t"}]},
        {"target": "file", "file": "nowhere,0,1"},
    ],
)
async def test_a_partition_for_which_there_is_no_plan_is_named(
    live: LiveAdmin, members: CoordinatorHarness, body: dict[str, Any]
):
    await members.commit("other", 1)
    problem = await refusal(live, "POST", RESET, 422, json=body)
    assert "t-1" in problem["detail"] or "nowhere-0" in problem["detail"]
    assert await members.committed("g") == {"t": {0: 2}}


async def test_a_change_needs_its_headers(live: LiveAdmin, members: CoordinatorHarness):
    for method, address in [
        ("POST", RESET),
        ("DELETE", "/api/v1/groups/g"),
        ("DELETE", "/api/v1/groups/g/offsets"),
        ("DELETE", "/api/v1/groups/g/members/one"),
    ]:
        await refusal(live, method, address, 403, headers={"x-requested-with": ""}, params={"dry_run": "true"})
    assert await members.committed("g") == {"t": {0: 2}}


# --- deleting ---


async def test_a_group_is_deleted_with_its_offsets(live: LiveAdmin, members: CoordinatorHarness):
    expected = {"group_id": "g", "committed_offsets": 1}
    dry = await live.http.delete("/api/v1/groups/g?dry_run=true")
    assert dry.json() == {"dry_run": True, **expected}
    assert await members.committed("g") == {"t": {0: 2}}
    assert (await live.http.delete("/api/v1/groups/g")).json() == {"dry_run": False, **expected}
    assert live.view.cluster.groups.get("g") is None
    await refusal(live, "DELETE", "/api/v1/groups/g", 404)


async def test_a_group_with_members_is_not_deleted(live: LiveAdmin, members: CoordinatorHarness):
    await members.settle("g")
    for query in ("", "?dry_run=true"):
        problem = await refusal(live, "DELETE", f"/api/v1/groups/g{query}", 409)
        assert "stop its consumers" in problem["detail"]
    assert live.view.cluster.groups.get("g") is not None


async def test_offsets_are_deleted_by_topic_and_partition(live: LiveAdmin, members: CoordinatorHarness):
    await live.kafka.create_topic("u")
    await members.commit("g", 0, topic="u")
    await reset(live, target="latest", topics=[{"topic": "t"}])
    row = {"topic": "t", "partition": 0, "committed_offset": 5, "error": None}
    for query in ("topic=t&partition=0&dry_run=true", "topic=t&partition=0"):
        answer = await live.http.delete(f"/api/v1/groups/g/offsets?{query}")
        assert answer.json() == {"dry_run": "dry_run" in query, "group_id": "g", "partitions": [row]}
    assert await members.committed("g") == {"t": {1: 0}, "u": {0: 0}}
    await live.http.delete("/api/v1/groups/g/offsets")
    assert await members.committed("g") == {}


@pytest.mark.parametrize("dry_run", ["true", "false"])
async def test_offsets_that_a_member_is_subscribed_to_are_kept(
    live: LiveAdmin, members: CoordinatorHarness, dry_run: str
):
    await members.settle("g")
    [row] = (await live.http.delete(f"/api/v1/groups/g/offsets?dry_run={dry_run}")).json()["partitions"]
    assert row["error"] == "GROUP_SUBSCRIBED_TO_TOPIC"
    assert await members.committed("g") == {"t": {0: 2}}


async def test_offsets_that_were_never_committed_cannot_be_deleted(live: LiveAdmin, members: CoordinatorHarness):
    await refusal(live, "DELETE", "/api/v1/groups/g/offsets?topic=nowhere", 422)
    await refusal(live, "DELETE", "/api/v1/groups/nobody/offsets", 404)
    problem = await refusal(live, "DELETE", "/api/v1/groups/g/offsets?partition=0", 400)
    assert [error["pointer"] for error in problem["errors"]] == ["?partition"]


# --- members ---


async def test_a_static_member_is_removed_by_its_instance_id(live: LiveAdmin, members: CoordinatorHarness):
    await members.join("g", group_instance_id="one/..")
    address = "/api/v1/groups/g/members/-?group_instance_id=one/.."
    for dry_run in ("true", "false"):
        body = (await live.http.delete(f"{address}&dry_run={dry_run}")).json()
        assert (body["group_instance_id"], body["client_id"], body["client_host"]) == ("one/..", "client", "/127.0.0.1")
    group, timeline = live.view.cluster.groups.get("g"), live.view.cluster.groups.timeline("g")
    assert group is not None
    assert timeline is not None
    assert (group.state, group.member_count) == ("Empty", 0)
    assert timeline[-1].causes[-1].reason == "removed by http (pytest) from 127.0.0.1"


async def test_only_a_static_member_can_be_removed(live: LiveAdmin, members: CoordinatorHarness):
    joined = await members.settle("g")
    problem = await refusal(live, "DELETE", f"/api/v1/groups/g/members/{joined.member_id}", 404)
    assert "group instance id" in problem["detail"]
    await refusal(live, "DELETE", "/api/v1/groups/nobody/members/one", 404)


async def test_an_address_says_which_methods_it_takes(live: LiveAdmin):
    answer = await live.http.put("/api/v1/groups/g")
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD", "DELETE"}


# --- why it lags ---


async def test_lag_over_time_and_its_reason_are_served(live: LiveAdmin, members: CoordinatorHarness):
    await members.groups.sample_lag()
    history = await live.get("/api/v1/groups/g/history")
    assert (history["interval_ms"], history["rates"]) == (5000, None)
    assert [sample["lag_records"] for sample in history["samples"]] == [3]
    finding, expiry = (await live.get("/api/v1/groups/-/diagnosis", id="g"))["findings"]
    assert expiry["cause"] == "offsets expire"
    assert finding["cause"] in ("no members", "keeps up")
    for what in ("history", "diagnosis"):
        await refusal(live, "GET", f"/api/v1/groups/nobody/{what}", 404)


# --- recorded ---


async def test_what_is_done_to_a_group_is_recorded_with_its_offsets(live: LiveAdmin, members: CoordinatorHarness):
    await reset(live, dry_run=True, target="earliest")
    await reset(live, target="earliest")
    answer = await live.http.delete("/api/v1/groups/g/offsets", params={"topic": "t"})
    assert answer.status_code == 200, answer.text
    assert await members.commit("g", 1) == 0
    await live.http.delete("/api/v1/groups/g")
    changes = [each for each in (await live.get("/api/v1/changes"))["items"] if each["resource_type"] == "group"]
    assert [(each["action"], each["values"]) for each in reversed(changes)] == [
        ("offsets-reset", [{"name": "t-0", "old": "2", "new": "0"}]),
        ("offsets-deleted", [{"name": "t-0", "old": "0", "new": None}]),
        ("offsets-reset", [{"name": "t-0", "old": None, "new": "1"}]),
        ("deleted", [{"name": "t-0", "old": "1", "new": None}]),
    ]
