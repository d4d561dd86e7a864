"""Groups of every client live through kills of members and of the broker, and the checker finds nothing wrong.

``CHAOS_SEED=…`` repeats a run: the same events at the same times, though not the same schedule of its processes.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

import pytest

from tests.checking.chaos_plan import plan
from tests.checking.chaos_run import run_steps
from tests.checking.watched_members import KINDS

pytestmark = pytest.mark.compat

SEED = "CHAOS_SEED"


def live_through(directory: Path, seed: int, events: int, **planned: Any) -> None:
    print(f"\n{SEED}={seed}", flush=True)
    report = run_steps(directory, plan(seed, events, [kind.name for kind in KINDS], **planned), KINDS)
    print(report)
    if report.violations:
        violations = "\n".join(str(violation) for violation in report.violations)
        pytest.fail(f"{SEED}={seed}, history in {directory}:\n{violations}", pytrace=False)


def test_groups_keep_their_promises_through_ten_random_events(tmp_path: Path) -> None:
    live_through(tmp_path, 301, 10, members=1, pace=0.5)


@pytest.mark.slow
def test_groups_keep_their_promises_through_two_hundred_random_events(tmp_path: Path) -> None:
    live_through(tmp_path, int(os.environ.get(SEED) or secrets.randbelow(1_000_000)), 200)
