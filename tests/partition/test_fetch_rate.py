"""How often something happens, over about a minute."""

from __future__ import annotations

import pytest

from trio_broker.partition.fetch_rate import FetchRate


def test_it_is_the_rate_of_what_happens_evenly():
    rate = FetchRate(100.0)
    for number in range(600):
        rate.mark(100.0 + number * 0.5)
    assert rate.per_second(400.0) == pytest.approx(2.0)


def test_what_is_long_ago_counts_less_and_less():
    rate = FetchRate(0.0)
    for _ in range(50):
        rate.mark(1.0)
    assert rate.per_second(2.0) == rate.per_second(5.0) == 10.0
    assert rate.per_second(65.0) == pytest.approx(10.0 / 2.718, rel=0.01)
    assert rate.per_second(1000.0) < 0.001
