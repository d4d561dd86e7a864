"""Real clients notice nothing while the broker's threads and its queue are resized under their load.

``RESIZE_SEED=…`` repeats the sizes of a run, though not the schedule of its processes; ``RESIZE_SECONDS=…`` is for how
long the long run resizes.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.checking.resize_run import run_resizes
from tests.checking.verdict import drawn_seed, judge

pytestmark = pytest.mark.compat

SEED, SECONDS = "RESIZE_SEED", "RESIZE_SECONDS"

SLICE_SECONDS = 2
LONG_SECONDS = 600


def live_through(directory: Path, seed: int, seconds: float) -> None:
    report = run_resizes(directory, seed, seconds)
    judge(report, seed, directory, SEED)
    assert report.changes.total() > 0


def test_clients_notice_nothing_of_seconds_of_resizes(tmp_path: Path) -> None:
    live_through(tmp_path, 11, SLICE_SECONDS)


@pytest.mark.soak
def test_clients_notice_nothing_of_ten_minutes_of_resizes(tmp_path: Path) -> None:
    live_through(tmp_path, drawn_seed(SEED), float(os.environ.get(SECONDS) or LONG_SECONDS))
