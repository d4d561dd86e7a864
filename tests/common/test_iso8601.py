"""Moments and durations as people write them."""

from __future__ import annotations

import pytest

from trio_broker.common.iso8601 import parse_duration, parse_moment

NOON = 1_769_860_800_000
"""2026-01-31 12:00 UTC."""


@pytest.mark.parametrize(
    ("text", "timestamp_ms"),
    [
        ("2026-01-31T12:00:00", NOON),
        ("2026-01-31T12:00:00.000", NOON),
        ("2026-01-31T12:00:00.250Z", NOON + 250),
        ("2026-01-31T13:00+01:00", NOON),
        ("2026-01-31 12:00", NOON),
        ("2026-01-31", NOON - 12 * 3_600_000),
        ("1969-12-31T23:59:59.999", -1),
    ],
)
def test_a_moment_is_read_in_utc_unless_it_has_a_zone(text: str, timestamp_ms: int):
    assert parse_moment(text) == timestamp_ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-02-30", "12:00", "1769860800000"])
def test_what_is_no_moment_is_refused(text: str):
    with pytest.raises(ValueError, match=r"."):
        parse_moment(text)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("PT90M", 5_400_000),
        ("P7D", 604_800_000),
        ("P1DT12H", 129_600_000),
        ("PT0.5S", 500),
        ("PT1,25S", 1250),
        ("PT0.001S", 1),
        ("pt1h", 3_600_000),
        ("P1DT-1H", 82_800_000),
        ("-PT1S", -1000),
        ("+PT0S", 0),
    ],
)
def test_a_duration_is_read_as_java_reads_it(text: str, duration_ms: int):
    assert parse_duration(text) == duration_ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1h", "P1M", "P1Y", "PT1", "PT.5S", "PT1S1H", "P 1D", "P٣D"])
def test_what_is_no_duration_is_refused(text: str):
    with pytest.raises(ValueError, match="not a duration"):
        parse_duration(text)
