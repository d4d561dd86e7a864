"""Claims about ``/history/series`` of a broker: which readings it gives, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.admin.lagging_group import GROUP_ID, TOPIC, make_group, make_lag, produce_to_all
from tests.admin.live_admin import LiveAdmin, open_live_admin, pointers
from tests.admin.page_reading import assert_shows, page_of
from tests.running_broker import until
from trio_broker.metrics.history import SERIES
from trio_broker.metrics.minute_file import MINUTE_MS
from trio_broker.metrics.series import GROUP_SERIES, TOPIC_SERIES
from trio_broker.runtime.clock import ManualClock

ADDRESS = "/api/v1/brokers/1/history/series"

ONE_AT_ONCE = {"offsets_topic_num_partitions": "1", "group_consumer_assignment_interval_ms": "0"}
"""Members divide the partitions in as many heartbeats as the helper sends."""


async def sample(live: LiveAdmin) -> None:
    """Have the broker take a sample now rather than within a second."""
    live.view.node.readings.samples.add(live.view.node.readings.readings(live.broker.server.statistics()))


async def test_readings_come_as_a_column_per_series(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_live_admin(tmp_path, clock=clock) as live:
        clock.time_ms += 3_600_000  # the machine's clock is set; what was measured since is found all the same
        await sample(live)
        answer = await live.get(ADDRESS, series=["connections", "queue_depth", "connections"])
    assert answer["step_ms"] == 12_000
    assert list(answer["series"]) == ["connections", "queue_depth"]
    assert len(answer["times_ms"]) == len(answer["series"]["connections"]) == 1
    assert answer["series"]["connections"][0] >= 1


async def test_every_series_can_be_asked_for(live: LiveAdmin) -> None:
    await sample(live)
    answer = await live.get(
        ADDRESS, series=list(SERIES), step_ms=1000, from_ms=live.view.node.identity.description().started_at_ms - 1000
    )
    assert set(answer["series"]) == set(SERIES)


async def take_readings(live: LiveAdmin) -> None:
    """Have the broker read topics and groups now."""
    await live.broker.services.replicas.topic_stats.take_snapshot(live.broker.services.replicas.topics.values())
    await live.broker.services.groups.sample_lag()


async def end_minute(live: LiveAdmin, clock: ManualClock) -> None:
    """Let the minute end, and have it written."""
    await sample(live)
    clock.advance(60)
    await sample(live)
    await live.view.node.readings.history_writer.flush()


async def test_the_overview_shows_hours_and_days(live: LiveAdmin) -> None:
    page = await page_of(live.http, "/")
    assert_shows(page, "what is kept for a week has a reading each minute")
    assert '<a href="/?range=7d#over-time-title">7 d</a>' in page
    await sample(live)
    page = await page_of(live.http, "/?range=24h")
    assert '<a href="/?range=24h#over-time-title" aria-current="true">24 h</a>' in page
    assert "There is no reading in this time yet" in page  # a line needs two of them
    await page_of(live.http, "/?range=1y", 400)


async def test_a_change_of_a_setting_is_a_mark_on_the_hour_of_the_overview(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_live_admin(tmp_path, clock=clock) as live:
        await sample(live)
        clock.advance(60)
        answer = await live.http.patch("/api/v1/config", json={"num.io.threads": 6})
        assert answer.status_code == 200
        clock.advance(60)
        await sample(live)
        page = await page_of(live.http, "/?range=1h")
        assert "Upright lines are changes of settings." in page
        assert "<title>num.io.threads, " in page
        assert '<path class="line first" d="M' in page


def known(answer: Any, name: str) -> list[float]:
    return [value for value in answer["series"][name] if value is not None]


async def test_the_hour_of_a_topic_and_of_a_group_is_read_from_memory(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_live_admin(tmp_path, clock=clock, **ONE_AT_ONCE) as live:
        members = await make_group(live)
        await make_lag(live, clock, members)
        await take_readings(live)
        group = await live.get("/api/v1/brokers/1/history/groups", group_id=GROUP_ID, step_ms=5000)
        assert tuple(group["series"]) == GROUP_SERIES
        assert len(group["times_ms"]) > 10
        assert max(known(group, "lag_records")) >= 2 * (4 * 200 - 41)
        assert max(known(group, "lag_seconds")) > 60
        assert max(known(group, "consumed_per_second")) > 0
        topic = await live.get("/api/v1/brokers/1/history/topics", topic=TOPIC)
        assert tuple(topic["series"]) == TOPIC_SERIES
        assert known(topic, "records_in_per_second")[-1] > 0


async def test_the_week_of_a_topic_and_of_a_group_outlives_the_broker(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_live_admin(tmp_path, clock=clock, **ONE_AT_ONCE) as live:
        members = await make_group(live)
        await produce_to_all(live)
        await members[0].commit(10)
        clock.advance(10)
        await take_readings(live)
        before = await live.get("/api/v1/brokers/1/history/groups", group_id=GROUP_ID, step_ms=5000)
        await end_minute(live, clock)
    clock.advance(86_400)
    async with open_live_admin(tmp_path, clock=clock, **ONE_AT_ONCE) as live:
        await live.broker.services.groups.find(GROUP_ID)
        await until(lambda: not live.broker.services.groups.statistics().loading)
        from_ms = clock.now_ms() - 2 * 86_400_000
        topic = await live.get("/api/v1/brokers/1/history/topics", topic=TOPIC, from_ms=from_ms, step_ms=MINUTE_MS * 2)
        assert known(topic, "records_in_per_second") == [pytest.approx(80, rel=0.03)]
        assert known(topic, "records_out_per_second") == []
        group = await live.get(
            "/api/v1/brokers/1/history/groups", group_id=GROUP_ID, from_ms=from_ms, step_ms=MINUTE_MS * 2
        )
        assert known(group, "lag_records") == [pytest.approx(max(known(before, "lag_records")), rel=0.03)]
        assert group["times_ms"][0] < clock.now_ms() - 86_400_000
        page = await page_of(live.http, f"/groups/{GROUP_ID}?range=7d")
        assert_shows(page, "There is no reading in this time")  # a line needs two of them


@pytest.mark.parametrize(
    ("address", "query", "status", "pointer"),
    [
        ("topics", {}, 400, "?topic"),
        ("topics", {"topic": "nowhere"}, 404, "?topic"),
        ("groups", {"group_id": "nobody"}, 404, "?group_id"),
        ("groups", {"group_id": "nobody", "from_ms": 7, "to_ms": 7}, 400, "?from_ms"),
    ],
)
async def test_a_topic_or_group_that_is_not_there_is_refused_with_its_parameter(
    live: LiveAdmin, address: str, query: dict[str, Any], status: int, pointer: str
) -> None:
    assert pointers(await live.http.get(f"/api/v1/brokers/1/history/{address}", params=query), status) == [pointer]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({}, "?series"),
        ({"series": "nonsense"}, "?series"),
        ({"series": "connections", "from_ms": 5, "to_ms": 5}, "?from_ms"),
        ({"series": "connections", "step_ms": 999}, "?step_ms"),
        ({"series": "connections", "from_ms": 0, "to_ms": 2_001_000, "step_ms": 1000}, "?step_ms"),
        ({"series": "connections", "from_ms": -1}, "?from_ms"),
    ],
)
async def test_a_question_that_makes_no_sense_is_refused_with_its_parameter(
    live: LiveAdmin, query: dict[str, str | int], pointer: str
) -> None:
    assert pointers(await live.http.get(ADDRESS, params=query), 400) == [pointer]
