"""Groups of every client live through kills of members and of the broker, and the checker finds nothing wrong.

``CHAOS_SEED=…`` repeats a run: the same events at the same times, though not the same schedule of its processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.checking.chaos_plan import plan
from tests.checking.chaos_run import run_steps
from tests.checking.recorded_members import DEPENDABLE_KINDS, KINDS, RecordedMember
from tests.checking.verdict import drawn_seed, judge

pytestmark = pytest.mark.compat


def live_through(
    directory: Path, seed: int, events: int, kinds: Sequence[type[RecordedMember]], **planned: Any
) -> None:
    report = run_steps(directory, plan(seed, events, [kind.name for kind in kinds], **planned), kinds)
    judge(report, seed, directory)


def test_groups_keep_their_promises_through_six_random_events(tmp_path: Path) -> None:
    live_through(tmp_path, 301, 6, DEPENDABLE_KINDS, members=1, pace=0.5)


@pytest.mark.soak
def test_groups_keep_their_promises_through_two_hundred_random_events(tmp_path: Path) -> None:
    live_through(tmp_path, drawn_seed(), 200, KINDS)
