"""Counts, sizes and durations as text."""

from __future__ import annotations

import pytest

from trio_broker.common.amounts import (
    bytes_text,
    counted,
    duration_text,
    number_text,
    short_duration_text,
    short_number_text,
)


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 << 30, "3.0 GiB"), (5 << 50, "5120.0 TiB")]
)
def test_sizes_are_shown_in_binary_units(count: int, text: str) -> None:
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (61, "1 min 1 s"), (7260, "2 h 1 min"), (90_000.7, "1 d 1 h")]
)
def test_durations_are_shown_by_their_two_largest_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_thousands_are_set_apart() -> None:
    assert number_text(1234567) == "1\u202f234\u202f567"
    assert number_text(1234567, ",") == "1,234,567"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (0.0004, "1 ms"), (0.041, "41 ms"), (4.24, "4.2 s"), (61, "1 min 1 s")]
)
def test_short_durations_keep_their_milliseconds(seconds: float, text: str) -> None:
    assert short_duration_text(seconds) == text


def test_one_thing_is_no_plural() -> None:
    assert [counted(1, "group"), counted(2000, "group"), counted(2, "leaf", "leaves")] == [
        "1 group",
        "2\u202f000 groups",
        "2 leaves",
    ]


def test_large_numbers_are_rounded_to_a_unit() -> None:
    assert [short_number_text(950), short_number_text(1_234_567)] == ["950", "1.2 M"]
