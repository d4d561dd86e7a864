"""Loops that read, process and write in transactions move each record once, through kills of them and of the broker.

``CHAOS_SEED=…`` repeats a run: the same events at the same times, though not the same schedule of its processes.
``CHAOS_KILLS=…`` is another number of kills.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.checking.transaction_chaos import run_transactions, transaction_plan
from tests.checking.verdict import drawn_seed, judge

pytestmark = pytest.mark.compat

KILLS = "CHAOS_KILLS"

DURABILITIES = ("fsync", "page-cache")


def live_through(directory: Path, seed: int, kills: int, durability: str) -> None:
    report = run_transactions(directory, transaction_plan(seed, kills), {"log.durability": durability})
    judge(report, seed, directory)
    assert sum(event.is_ok for event in report.history) > kills, "somebody did something"


def test_transactions_keep_their_promises_through_three_kills(tmp_path: Path) -> None:
    live_through(tmp_path, 1, 3, "fsync")


@pytest.mark.soak
@pytest.mark.parametrize("durability", DURABILITIES)
def test_transactions_keep_their_promises_through_a_hundred_and_fifty_kills(durability: str, tmp_path: Path) -> None:
    live_through(tmp_path, drawn_seed(), int(os.environ.get(KILLS, "150")), durability)
