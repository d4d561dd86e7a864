"""Numbers, sizes and durations as the pages show them."""

from __future__ import annotations

import pytest

from broker_admin.texts import bytes_text, duration_text, number_text


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
