"""Real clients notice nothing while the broker's threads and its queue are resized under their load.

``RESIZE_SEED=…`` repeats the sizes of a run, though not the schedule of its processes; ``RESIZE_SECONDS=…`` is for how
long the long run resizes.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import pytest

from tests.checking.resize_run import run_resizes

pytestmark = pytest.mark.compat

SEED, SECONDS = "RESIZE_SEED", "RESIZE_SECONDS"

SLICE_SECONDS = 2
LONG_SECONDS = 600


def live_through(directory: Path, seed: int, seconds: float) -> None:
    print(f"\n{SEED}={seed}", flush=True)
    report = run_resizes(directory, seed, seconds)
    print(report)
    assert report.changes.total() > 0
    if report.violations:
        violations = "\n".join(str(violation) for violation in report.violations)
        pytest.fail(f"{SEED}={seed}, history in {directory}:\n{violations}", pytrace=False)


def test_clients_notice_nothing_of_seconds_of_resizes(tmp_path: Path) -> None:
    live_through(tmp_path, 11, SLICE_SECONDS)


@pytest.mark.soak
def test_clients_notice_nothing_of_ten_minutes_of_resizes(tmp_path: Path) -> None:
    seed = int(os.environ.get(SEED) or secrets.randbelow(1_000_000))
    live_through(tmp_path, seed, float(os.environ.get(SECONDS) or LONG_SECONDS))
