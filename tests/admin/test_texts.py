"""Times as the pages show them."""

from __future__ import annotations

import pytest

from broker_admin.texts import clock_text, export_name, iso_time, time_text


@pytest.mark.parametrize("at_ms", [1_795_881_988_890_243, 2**63 - 1, -(2**63)])
def test_a_time_beyond_the_calendar_is_shown_as_its_number(at_ms: int) -> None:
    assert {time_text(at_ms), iso_time(at_ms), clock_text(at_ms)} == {str(at_ms)}
    assert time_text(0) == "1970-01-01 00:00:00 UTC"


def test_an_export_is_named_after_what_is_in_it_and_its_time() -> None:
    assert export_name("orders", 1_700_000_000_000, "csv") == "orders-2023-11-14T221320Z.csv"
