"""Numbers, sizes and durations as the pages show them."""

from __future__ import annotations

import pytest

from broker_admin.texts import bytes_text, clock_text, duration_text, export_name, iso_time, number_text, time_text


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


@pytest.mark.parametrize("at_ms", [1_795_881_988_890_243, 2**63 - 1, -(2**63)])
def test_a_time_beyond_the_calendar_is_shown_as_its_number(at_ms: int) -> None:
    assert {time_text(at_ms), iso_time(at_ms), clock_text(at_ms)} == {str(at_ms)}
    assert time_text(0) == "1970-01-01 00:00:00 UTC"


def test_an_export_is_named_after_what_is_in_it_and_its_time() -> None:
    assert export_name("orders", 1_700_000_000_000, "csv") == "orders-2023-11-14T221320Z.csv"
