"""A run finds bugs that were put into the broker, each by the promise that it breaks."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.checking.chaos_plan import Step
from tests.checking.chaos_run import run_steps
from tests.checking.commits import COMMITS_STAY
from tests.checking.history import Op
from tests.checking.ownership import ONE_OWNER_AT_A_TIME, ONE_OWNER_PER_GENERATION
from tests.checking.recorded_members import ConfluentConsumer, ConfluentRange
from tests.checking.resize_run import ANSWERS_IN_TURN, NO_CONNECTION_IS_DROPPED, run_resizes
from tests.checking.seeded_bugs import BuggyBroker

pytestmark = [pytest.mark.compat, pytest.mark.soak]

KINDS = (ConfluentRange, ConfluentConsumer)

BROKEN = {
    "commits_are_not_written": COMMITS_STAY,
    "old_commits_come_back": COMMITS_STAY,
    "offsets_are_one_too_high": COMMITS_STAY,
    "everybody_gets_the_assignment_of_the_leader": ONE_OWNER_PER_GENERATION,
    "generations_stay_the_same": ONE_OWNER_PER_GENERATION,
    "revocations_are_not_waited_for": ONE_OWNER_AT_A_TIME,
}

STEPS = [
    *(Step(0, Op.JOIN, kind.name, f"{kind.name}-1") for kind in KINDS),
    *(Step(1.5, Op.JOIN, kind.name, f"{kind.name}-2") for kind in KINDS),
    Step(1.5, Op.KILL_BROKER),
    *(Step(1.0, Op.JOIN, kind.name, f"{kind.name}-3") for kind in KINDS),
    Step(2.0, Op.GROW),
]
"""Enough for each of the bugs: rebalances of those who commit, and a broker that remembers."""

CATCH_UP_SECONDS = 3.0
"""What bugs leave of a group may never catch up."""

RESIZE_SECONDS = 30.0
"""At most: a run ends with the first pipeline that fails."""


@pytest.mark.parametrize("bug", BROKEN)
def test_a_run_finds(bug: str, tmp_path: Path) -> None:
    broker = partial(BuggyBroker, bug=bug)
    report = run_steps(tmp_path, STEPS, KINDS, broker=broker, catch_up_seconds=CATCH_UP_SECONDS)
    assert BROKEN[bug] in {violation.promise for violation in report.violations}, report


def test_a_run_finds_nothing_where_there_is_no_bug(tmp_path: Path) -> None:
    assert run_steps(tmp_path, STEPS, KINDS).violations == []


def test_a_run_of_resizes_finds_connections_that_are_closed(tmp_path: Path) -> None:
    broker = partial(BuggyBroker, bug="connections_are_closed_when_they_move")
    report = run_resizes(tmp_path, 1, RESIZE_SECONDS, broker=broker)
    assert {violation.promise for violation in report.violations} >= {NO_CONNECTION_IS_DROPPED, ANSWERS_IN_TURN}, report
