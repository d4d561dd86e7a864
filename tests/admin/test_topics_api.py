"""``/api/v1/topics`` over a running broker: what it shows, what it changes, and what it refuses."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker_admin.views.cluster.messages import NewMessage
from tests.admin.lagging_group import make_group, make_lag
from tests.admin.live_admin import LiveAdmin, commit, open_live_admin, pointers
from tests.running_broker import fetch_request
from trio_broker.runtime.clock import ManualClock
from trio_broker.storage.log import Log

TOPICS = "/api/v1/topics"
TOPICS_OF_BROKER = "/api/v1/brokers/1/topics"


async def summary_of(live: LiveAdmin, name: str) -> Any:
    page = await live.get(TOPICS)
    return next(item for item in page["items"] if item["name"] == name)


# --- what there is ---


async def test_the_list_shows_what_a_topic_has_and_carries(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders", 2)
    await live.kafka.produce("orders", b"one", b"two")
    await live.kafka.ask(fetch_request("orders"), 12)
    topic = await summary_of(live, "orders")
    assert (topic["partition_count"], topic["record_count"], topic["unavailable_partition_count"]) == (2, 2, 0)
    assert topic["size_bytes"] > 0
    assert topic["records_in_per_second"] > 0
    assert topic["bytes_out_per_second"] > 0
    assert (topic["cleanup_policy"], topic["retention_ms"], topic["retention_bytes"]) == ("delete", 604_800_000, -1)
    assert topic["last_append_at_ms"] == pytest.approx(live.broker.clock.now_ms(), abs=20_000)


async def test_a_topic_that_nothing_was_written_to_has_no_last_write(live: LiveAdmin) -> None:
    await live.kafka.create_topic("idle")
    topic = await summary_of(live, "idle")
    assert (topic["last_append_at_ms"], topic["lag_seconds"], topic["most_behind_group"]) == (None, None, None)


async def test_the_last_write_is_known_after_a_restart(tmp_path: Any) -> None:
    async with open_live_admin(tmp_path) as live:
        await live.kafka.create_topic("orders")
        await live.kafka.produce("orders", b"one")
    async with open_live_admin(tmp_path) as live:
        topic = await summary_of(live, "orders")
        assert topic["last_append_at_ms"] == pytest.approx(live.broker.clock.now_ms(), abs=20_000)


async def test_the_broker_s_own_topics_are_shown_on_demand(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await commit(live, "g", "orders", 0)
    assert [item["name"] for item in (await live.get(TOPICS))["items"]] == ["orders"]
    everything = await live.get(TOPICS, internal="true")
    assert [(item["name"], item["internal"]) for item in everything["items"]] == [
        ("__consumer_offsets", True),
        ("orders", False),
    ]


async def test_the_list_is_searched_ordered_and_paged(live: LiveAdmin) -> None:
    for name, partitions in (("a", 3), ("b", 1), ("c", 2), ("other-x", 9)):
        await live.kafka.create_topic(name, partitions)
    page = await live.get(TOPICS, order="-partitions", limit=2)
    assert [item["name"] for item in page["items"]] == ["other-x", "a"]
    assert (page["total"], page["matching"]) == (4, 4)
    rest = await live.get(TOPICS, order="-partitions", limit=2, cursor=page["next_cursor"])
    assert [item["name"] for item in rest["items"]] == ["c", "b"]
    assert rest["next_cursor"] is None
    found = await live.get(TOPICS, search="OTHER")
    assert [item["name"] for item in found["items"]] == ["other-x"]


async def test_the_list_shows_a_change_of_topics_at_once(live: LiveAdmin) -> None:
    for expected in (["a"], ["a", "b"]):
        await live.kafka.create_topic(expected[-1])
        assert [item["name"] for item in (await live.get(TOPICS))["items"]] == expected
    await live.http.delete(f"{TOPICS}/a")
    assert [item["name"] for item in (await live.get(TOPICS))["items"]] == ["b"]


async def test_a_query_that_is_wrong_is_pointed_at(live: LiveAdmin) -> None:
    answer = await live.http.get(TOPICS, params={"order": "beauty", "limit": "0"})
    assert sorted(pointers(answer, 400)) == ["?limit", "?order"]


async def test_one_topic_shows_the_settings_of_its_own(live: LiveAdmin) -> None:
    await live.http.post(TOPICS, json={"name": "orders", "configs": {"retention.ms": 1000}})
    topic = await live.get(f"{TOPICS}/orders")
    assert topic["configs"] == {"retention.ms": "1000"}
    assert (topic["summary"]["retention_ms"], topic["replication_factor"]) == (1000, 1)


@pytest.mark.parametrize("address", ["", "/rates", "/groups", "/config", "/partitions"])
async def test_what_is_not_there_is_404(live: LiveAdmin, address: str) -> None:
    assert pointers(await live.http.get(f"{TOPICS}/missing{address}"), 404) == []


async def test_files_of_what_is_not_there_are_404(live: LiveAdmin) -> None:
    assert pointers(await live.http.get(f"{TOPICS_OF_BROKER}/missing/partitions/0/segments"), 404) == []


@pytest.mark.parametrize("partition", ["7", "x", "-1", "9" * 5000])
async def test_a_partition_that_is_not_there_is_404(live: LiveAdmin, partition: str) -> None:
    await live.kafka.create_topic("orders")
    assert pointers(await live.http.get(f"{TOPICS_OF_BROKER}/orders/partitions/{partition}/segments"), 404) == []


async def test_partitions_show_their_offsets_and_their_shares(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders", 2)
    await live.kafka.produce("orders", b"one", b"two")
    [first, second] = (await live.get(f"{TOPICS}/orders/partitions"))["items"]
    assert (first["log_start_offset"], first["high_watermark"], first["log_end_offset"]) == (0, 2, 2)
    assert (first["in_sync_replicas"], first["leader"], first["segment_count"]) == ([1], 1, 1)
    assert first["oldest_record_at_ms"] == 1_700_000_000_000
    assert (first["size_share"], first["bytes_in_share"]) == (1, 1)
    assert (second["size_share"], second["oldest_record_at_ms"]) == (0, None)


async def test_partitions_are_ordered_by_size(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders", 11)
    await live.kafka.produce("orders", b"one")
    page = await live.get(f"{TOPICS}/orders/partitions", order="-size", limit=3)
    assert [item["partition"] for item in page["items"]] == [0, 1, 2]
    found = await live.get(f"{TOPICS}/orders/partitions", search="10")
    assert [item["partition"] for item in found["items"]] == [10]


async def test_segments_show_what_retention_takes_next_and_when(live: LiveAdmin) -> None:
    await live.http.post(TOPICS, json={"name": "orders", "configs": {"segment.bytes": 1048576}})
    for _ in range(3):
        await live.kafka.produce("orders", b"x" * 600_000)
    segments = await live.get(f"{TOPICS_OF_BROKER}/orders/partitions/0/segments")
    first, *_, last = segments["segments"]["items"]
    assert (first["base_offset"], first["next_offset"], first["is_active"], first["is_compacted"]) == (
        0,
        1,
        False,
        False,
    )
    assert first["newest_record_at_ms"] == 1_700_000_000_000
    assert first["retention_due_at_ms"] == 1_700_000_000_000 + 604_800_000
    assert first["retention_reason"] == "retention.ms"
    assert (last["base_offset"], last["is_active"]) == (2, True)
    assert segments["retention_check_interval_ms"] == 300_000
    assert segments["compacted_up_to"] is None


async def test_segments_of_a_compacted_topic_show_how_far_compaction_came(live: LiveAdmin) -> None:
    await live.http.post(TOPICS, json={"name": "table", "configs": {"cleanup.policy": "compact"}})
    segments = await live.get(f"{TOPICS_OF_BROKER}/table/partitions/0/segments")
    assert (segments["compacted_up_to"], segments["dirty_ratio"]) == (0, 0)


async def test_the_groups_of_a_topic_are_shown_with_their_lag(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await live.kafka.produce("orders", b"1", b"2", b"3")
    await commit(live, "slow", "orders", 1)
    await commit(live, "done", "orders", 3)
    groups = (await live.get(f"{TOPICS}/orders/groups"))["items"]
    assert [(group["group_id"], group["lag_records"]) for group in groups] == [("slow", 2), ("done", 0)]
    assert groups[0]["rates"] is None
    topic = await summary_of(live, "orders")
    assert (topic["group_count"], topic["most_behind_group"]) == (2, "slow")
    assert topic["lag_seconds"] >= 0


async def test_a_topic_shows_at_once_how_the_lag_of_its_groups_develops(tmp_path: Path) -> None:
    clock = ManualClock()
    settings = {"offsets_topic_num_partitions": "1", "group_consumer_assignment_interval_ms": "0"}
    async with open_live_admin(tmp_path, clock=clock, **settings) as live:
        await make_lag(live, clock, await make_group(live))
        [group] = (await live.get(f"{TOPICS}/orders/groups"))["items"]
        [listed] = (await live.get("/api/v1/groups"))["items"]
        assert group["rates"] == listed["rates"]
        assert group["rates"]["trend"] == "growing"
        page = await live.http.get("/topics/orders/consumers", headers={"accept": "text/html"})
        assert "never at this rate" in page.text


async def test_rates_of_the_last_hour_are_points_for_a_chart(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await live.kafka.produce("orders", b"1")
    replicas = live.broker.services.replicas
    await replicas.topic_stats.take_snapshot(replicas.topics.values())
    rates = await live.get(f"{TOPICS}/orders/rates")
    assert rates["interval_ms"] == 10_000
    assert [point["records_in_per_second"] > 0 for point in rates["points"]] == [True]


# --- creating ---


async def test_a_topic_is_created_with_the_broker_s_defaults(live: LiveAdmin) -> None:
    answer = await live.http.post(TOPICS, json={"name": "orders"})
    assert answer.status_code == 201
    created = answer.json()
    assert (created["name"], created["partitions"], created["replication_factor"]) == ("orders", 1, 1)
    assert created["topic_id"] == (await summary_of(live, "orders"))["topic_id"]


async def test_a_dry_run_says_what_would_be_created_and_creates_nothing(live: LiveAdmin) -> None:
    answer = await live.http.post(TOPICS, params={"dry_run": "true"}, json={"name": "orders", "partitions": 6})
    assert answer.status_code == 200
    assert (answer.json()["dry_run"], answer.json()["partitions"], answer.json()["topic_id"]) == (True, 6, None)
    assert (await live.get(TOPICS))["total"] == 0


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"name": "a b"}, 422, "/name"),
        ({"name": ".."}, 422, "/name"),
        ({"name": "there"}, 409, "/name"),
        ({"name": "x", "partitions": 0}, 422, "/partitions"),
        ({"name": "x", "partitions": 10_001}, 422, "/partitions"),
        ({"name": "x", "replication_factor": 3}, 422, "/replication_factor"),
        ({"name": "x", "configs": {"retention.ms": "soon"}}, 422, "/configs/retention.ms"),
        ({"name": "x", "configs": {"retention": 5}}, 422, "/configs/retention"),
        ({"name": "x", "configs": {"retention.ms": None}}, 422, "/configs/retention.ms"),
        ({"name": 5}, 422, "/name"),
        ({"name": "x", "color": "red"}, 422, "/color"),
        ({}, 422, "/name"),
    ],
)
@pytest.mark.parametrize("dry_run", ["true", "false"])
async def test_what_is_wrong_with_a_new_topic_is_pointed_at(
    live: LiveAdmin, body: Any, status: int, pointer: str, dry_run: str
) -> None:
    await live.kafka.create_topic("there")
    answer = await live.http.post(TOPICS, params={"dry_run": dry_run}, json=body)
    assert pointers(answer, status) == [pointer]
    assert (await live.get(TOPICS))["total"] == 1


@pytest.mark.parametrize("address", [TOPICS, f"{TOPICS}/orders:purge", f"{TOPICS}/orders:add-partitions"])
async def test_a_change_needs_the_header_that_no_other_page_can_send(live: LiveAdmin, address: str) -> None:
    answer = await live.http.post(address, json={}, headers={"x-requested-with": ""})
    assert answer.status_code == 403


# --- deleting ---


async def test_a_dry_run_of_a_deletion_says_what_would_be_lost(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders", 2)
    await live.kafka.produce("orders", b"1", b"2")
    await commit(live, "g", "orders", 1)
    answer = await live.http.delete(f"{TOPICS}/orders", params={"dry_run": "true"})
    lost = answer.json()
    assert (lost["dry_run"], lost["partitions"], lost["record_count"], lost["groups"]) == (True, 2, 2, ["g"])
    assert (await live.get(f"{TOPICS}/orders"))["summary"]["record_count"] == 2


async def test_a_topic_is_deleted(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    answer = await live.http.delete(f"{TOPICS}/orders")
    assert (answer.status_code, answer.json()["dry_run"]) == (200, False)
    assert (await live.http.get(f"{TOPICS}/orders")).status_code == 404
    assert pointers(await live.http.delete(f"{TOPICS}/orders"), 404) == []


async def test_a_deletion_without_the_header_is_refused(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    answer = await live.http.delete(f"{TOPICS}/orders", headers={"x-requested-with": ""})
    assert answer.status_code == 403
    await live.get(f"{TOPICS}/orders")


async def test_where_topics_may_not_be_deleted_that_is_said(tmp_path: Any) -> None:
    async with open_live_admin(tmp_path, delete_topic_enable="false") as live:
        await live.kafka.create_topic("orders")
        assert pointers(await live.http.delete(f"{TOPICS}/orders"), 409) == []


# --- adding partitions ---


@pytest.mark.parametrize(("before", "after", "stay"), [(3, 6, 0.5), (3, 4, 0.25), (1, 2, 0.5), (4, 6, 1 / 3)])
async def test_partitions_are_added_and_it_is_said_what_happens_to_keys(
    live: LiveAdmin, before: int, after: int, stay: float
) -> None:
    await live.kafka.create_topic("orders", before)
    address = f"{TOPICS}/orders:add-partitions"
    tried = (await live.http.post(address, params={"dry_run": "true"}, json={"partitions": after})).json()
    assert (tried["dry_run"], tried["partitions_before"], tried["partitions"]) == (True, before, after)
    assert tried["keys_that_stay_ratio"] == pytest.approx(stay)
    assert sum(key % before == key % after for key in range(12)) / 12 == pytest.approx(stay)
    assert (await live.get(f"{TOPICS}/orders"))["summary"]["partition_count"] == before
    assert (await live.http.post(address, json={"partitions": after})).status_code == 200
    assert (await live.get(f"{TOPICS}/orders"))["summary"]["partition_count"] == after


async def test_fewer_partitions_or_too_many_are_refused(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders", 3)
    for count in (2, 3, 20_000):
        answer = await live.http.post(f"{TOPICS}/orders:add-partitions", json={"partitions": count})
        assert pointers(answer, 422) == ["/partitions"]
    assert pointers(await live.http.post(f"{TOPICS}/no:add-partitions", json={"partitions": 2}), 404) == []


# --- purging ---


async def purge(live: LiveAdmin, topic: str = "orders", *, dry_run: bool = False, **body: Any) -> httpx.Response:
    return await live.http.post(f"{TOPICS}/{topic}:purge", params={"dry_run": str(dry_run).lower()}, json=body)


async def start_of(live: LiveAdmin) -> int:
    [partition] = (await live.get(f"{TOPICS}/orders/partitions", limit=1))["items"]
    start: int = partition["log_start_offset"]
    return start


@pytest.mark.parametrize(
    ("body", "start"),
    [
        ({"to_end": True}, 3),
        ({"to_offset": 2}, 2),
        ({"to_offset": 2, "partitions": [0]}, 2),
        ({"to_timestamp_ms": 1_700_000_000_000}, 0),
        ({"to_timestamp_ms": 1_700_000_000_001}, 3),
    ],
)
async def test_records_are_purged_up_to_an_end_an_offset_or_a_time(live: LiveAdmin, body: Any, start: int) -> None:
    await live.kafka.create_topic("orders")
    await live.kafka.produce("orders", b"1", b"2", b"3")
    tried = (await purge(live, dry_run=True, **body)).json()
    assert (tried["dry_run"], tried["record_count"]) == (True, start)
    assert await start_of(live) == 0
    assert (await purge(live, **body)).json()["partitions"] == [
        {
            "partition": 0,
            "log_start_offset_before": 0,
            "log_start_offset": start,
            "record_count": start,
            "error": None,
        }
    ]
    assert await start_of(live) == start


async def test_a_partition_whose_disk_refuses_a_purge_has_its_own_error(
    live: LiveAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are purged, and the answer says which."""
    await live.kafka.create_topic("orders", 2)
    for partition in (0, 1):
        await live.kafka.produce("orders", b"1", b"2", partition=partition)
    advance = Log.advance_log_start

    def fail_in_the_second(log: Log, offset: int) -> bool:
        if log.directory.name == "orders-1":
            raise OSError(errno.EACCES, "not here")
        return advance(log, offset)

    monkeypatch.setattr(Log, "advance_log_start", fail_in_the_second)
    response = await purge(live, to_end=True)
    assert response.status_code == 200
    first, second = response.json()["partitions"]
    assert (first["record_count"], first["error"]) == (2, None)
    assert (second["record_count"], second["log_start_offset"]) == (0, 0)
    assert "not here" in second["error"]


async def test_one_partition_that_cannot_be_purged_so_far_keeps_all_of_them(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders", 2)
    await live.kafka.produce("orders", b"1", b"2")
    assert pointers(await purge(live, to_offset=2), 422) == ["/to_offset"]
    assert await start_of(live) == 0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({}, ["/to_end"]),
        ({"to_end": True, "to_offset": 1}, ["/to_end", "/to_offset"]),
        ({"to_offset": -1}, ["/to_offset"]),
        ({"to_end": True, "partitions": ["x"]}, ["/partitions/0"]),
    ],
)
async def test_a_purge_says_one_target(live: LiveAdmin, body: Any, expected: list[str]) -> None:
    await live.kafka.create_topic("orders")
    assert pointers(await purge(live, **body), 422) == expected


async def test_what_may_not_be_purged_is_not(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    await commit(live, "g", "orders", 0)
    assert pointers(await purge(live, "__consumer_offsets", to_end=True), 422) == ["/partitions"]
    assert pointers(await purge(live, "missing", to_end=True), 404) == []
    assert pointers(await purge(live, to_end=True, partitions=[9]), 404) == ["/partitions"]
    await live.http.post(TOPICS, json={"name": "table", "configs": {"cleanup.policy": "compact"}})
    assert pointers(await purge(live, "table", to_end=True), 422) == ["/partitions"]


async def test_a_selection_is_deleted_with_an_outcome_for_each(live: LiveAdmin) -> None:
    for name in ("a", "b", "c"):
        await live.kafka.create_topic(name, 2)
    await live.kafka.produce("a", b"1", b"2")
    body = {"topics": ["a", "missing", "b", "a"]}
    tried = (await live.http.post("/api/v1/topics:delete?dry_run=true", json=body)).json()
    assert set(live.view.cluster.topics.names()) == {"a", "b", "c"}
    done = (await live.http.post("/api/v1/topics:delete", json=body)).json()
    assert done == tried | {"dry_run": False}
    assert [(each["topic"], each["partition_count"], each["record_count"]) for each in done["topics"]] == [
        ("a", 2, 2), ("missing", 0, 0), ("b", 2, 0),
    ]  # fmt: skip
    assert [bool(each["error"]) for each in done["topics"]] == [False, True, False]
    assert set(live.view.cluster.topics.names()) == {"c"}


async def test_a_selection_is_purged_to_its_end_or_to_a_time(live: LiveAdmin) -> None:
    for name in ("orders", "other"):
        await live.kafka.create_topic(name, 1)
        await live.view.cluster.messages.append(
            name, [NewMessage(None, b"", timestamp_ms=time) for time in (1000, 2000)]
        )
    body: Any = {"topics": ["orders", "other"], "to_timestamp_ms": 2000}
    done = (await live.http.post("/api/v1/topics:purge", json=body)).json()
    assert [(each["record_count"], each["partition_count"]) for each in done["topics"]] == [(1, 1), (1, 1)]
    done = (await live.http.post("/api/v1/topics:purge", json={"topics": ["orders"], "to_end": True})).json()
    assert [each["record_count"] for each in done["topics"]] == [1]
    assert await start_of(live) == 2


@pytest.mark.parametrize(
    ("action", "body", "expected"),
    [
        ("delete", {"topics": []}, ["/topics"]),
        ("delete", {"topics": ["t"] * 501}, ["/topics"]),
        ("purge", {"topics": ["orders"]}, ["/to_end"]),
        ("purge", {"topics": ["orders"], "to_end": True, "to_timestamp_ms": 1}, ["/to_end", "/to_timestamp_ms"]),
    ],
)
async def test_a_selection_that_says_too_little_or_too_much_is_refused(
    live: LiveAdmin, action: str, body: Any, expected: list[str]
) -> None:
    assert pointers(await live.http.post(f"/api/v1/topics:{action}", json=body), 422) == expected


# --- settings ---


async def test_settings_show_each_key_with_the_chain_of_its_sources(live: LiveAdmin) -> None:
    await live.http.post(TOPICS, json={"name": "orders", "configs": {"retention.ms": 1000}})
    entry = (await live.get(f"{TOPICS}/orders/config"))["configs"]["retention.ms"]
    assert (entry["value"], entry["source"], entry["default"]) == ("1000", "DYNAMIC_TOPIC_CONFIG", "604800000")
    assert [(each["name"], each["source"]) for each in entry["synonyms"]][:1] == [
        ("retention.ms", "DYNAMIC_TOPIC_CONFIG")
    ]


async def test_settings_are_set_and_reset(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    address = f"{TOPICS}/orders/config"
    tried = await live.http.patch(address, params={"dry_run": "true"}, json={"retention.ms": 5000})
    assert tried.json()["changes"] == [{"key": "retention.ms", "old": None, "new": "5000"}]
    assert tried.json()["configs"]["retention.ms"]["value"] == "5000"
    assert (await live.get(f"{TOPICS}/orders"))["configs"] == {}
    changed = await live.http.patch(address, json={"retention.ms": 5000, "cleanup.policy": "compact"})
    assert [each["key"] for each in changed.json()["changes"]] == ["retention.ms", "cleanup.policy"]
    assert (await live.get(f"{TOPICS}/orders"))["configs"] == {"retention.ms": "5000", "cleanup.policy": "compact"}
    reset = await live.http.patch(address, json={"retention.ms": None})
    assert reset.json()["configs"]["retention.ms"]["value"] == "604800000"
    assert (await live.get(f"{TOPICS}/orders"))["configs"] == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("leader.replication.throttled.replicas", ",".join(["0:1"] * 15_000)),
        ("retention.ms", "9" * 60_000),
        ("x" * 60_000, "1"),
    ],
    ids=["a list", "a number", "a name"],
)
async def test_settings_of_sixty_thousand_characters_are_refused(live: LiveAdmin, key: str, value: str) -> None:
    await live.kafka.create_topic("orders")
    assert (await live.http.patch(f"{TOPICS}/orders/config", json={key: value})).status_code == 422
    assert (await live.http.post(TOPICS, json={"name": "more", "configs": {key: value}})).status_code == 422
    assert (await live.get(f"{TOPICS}/orders"))["configs"] == {}


async def test_sizes_and_durations_of_settings_may_have_a_suffix(live: LiveAdmin) -> None:
    await live.http.post(TOPICS, json={"name": "orders", "configs": {"segment.bytes": "64 MiB"}})
    await live.http.patch(f"{TOPICS}/orders/config", json={"retention.ms": "7 d"})
    configs = (await live.get(f"{TOPICS}/orders"))["configs"]
    assert configs == {"segment.bytes": str(64 << 20), "retention.ms": str(7 * 86_400_000)}
    answer = await live.http.patch(f"{TOPICS}/orders/config", json={"retention.ms": "7 parsecs"})
    assert pointers(answer, 422) == ["/retention.ms"]
    assert "parsecs" in answer.json()["detail"]


async def test_one_refused_setting_refuses_all(live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    answer = await live.http.patch(f"{TOPICS}/orders/config", json={"retention.ms": 5, "segment.bytes": "wide"})
    assert pointers(answer, 422) == ["/segment.bytes"]
    assert (await live.get(f"{TOPICS}/orders"))["configs"] == {}


async def test_each_change_is_recorded_with_the_client_that_asked_for_it(live: LiveAdmin) -> None:
    await live.http.post(TOPICS, params={"dry_run": "true"}, json={"name": "never"})
    await live.http.post(TOPICS, json={"name": "orders"})
    await live.kafka.produce("orders", b"1")
    await live.http.patch(f"{TOPICS}/orders/config", json={"retention.ms": 5000})
    await live.http.post(f"{TOPICS}/orders:add-partitions", json={"partitions": 2})
    await purge(live, to_end=True)
    await live.http.delete(f"{TOPICS}/orders")
    changes = live.broker.services.changes.changes
    made = [(each.action.value, each.origin.client) for each in changes if each.resource == "orders"]
    assert made == [
        (action, "pytest") for action in ("created", "config", "partitions-added", "records-deleted", "deleted")
    ]
