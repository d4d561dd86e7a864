"""Claims about ``/api/v1/history/series``: which readings it gives, and what it refuses."""

from __future__ import annotations

import pytest

from tests.admin.live_admin import LiveAdmin
from trio_broker.metrics.history import SERIES

ADDRESS = "/api/v1/history/series"


async def sample(live: LiveAdmin) -> None:
    """Have the broker take a sample now rather than within a second."""
    live.view.readings.samples.add(live.view.readings.readings(live.broker.server.statistics()))


async def test_readings_come_as_a_column_per_series(live: LiveAdmin) -> None:
    await sample(live)
    answer = await live.get(ADDRESS, series=["connections", "queue_depth", "connections"])
    assert answer["step_ms"] == 12_000
    assert list(answer["series"]) == ["connections", "queue_depth"]
    assert len(answer["times_ms"]) == len(answer["series"]["connections"]) == 1
    assert answer["series"]["connections"][0] >= 1


async def test_every_series_can_be_asked_for(live: LiveAdmin) -> None:
    await sample(live)
    answer = await live.get(
        ADDRESS, series=list(SERIES), step_ms=1000, from_ms=live.view.node.description().started_at_ms - 1000
    )
    assert set(answer["series"]) == set(SERIES)


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
    answer = await live.http.get(ADDRESS, params=query)
    assert answer.status_code == 400
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
