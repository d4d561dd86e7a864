"""Plans of chaos runs: the same for the same seed, and never impossible."""

from __future__ import annotations

import pytest

from tests.checking.chaos_plan import FIRST_PARTITIONS, MOST_MEMBERS, MOST_PARTITIONS, WEIGHTS, plan
from tests.checking.history import Op

GROUPS = ("one", "two", "three")


def test_a_seed_gives_the_same_plan_every_time_and_another_seed_another() -> None:
    assert plan(7, 50, GROUPS) == plan(7, 50, GROUPS)
    assert plan(7, 50, GROUPS) != plan(8, 50, GROUPS)


def test_a_long_plan_has_every_kind_of_event_and_as_many_as_wanted() -> None:
    counted = [step.op for step in plan(1, 200, GROUPS) if step.counts]
    assert len(counted) == 200
    assert set(counted) == set(WEIGHTS)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_happens_to_those_who_are_not_there(seed: int) -> None:
    there: set[str] = set()
    asleep: set[str] = set()
    for step in plan(seed, 200, GROUPS):
        assert step.after >= 0
        if step.op is Op.JOIN:
            assert step.process not in there
            there.add(step.process)
        elif step.op in (Op.LEAVE, Op.KILL):
            there.remove(step.process)
            assert step.op is Op.KILL or step.process not in asleep
            asleep.discard(step.process)
        elif step.op is Op.PAUSE:
            assert step.process in there - asleep
            asleep.add(step.process)
        elif step.op is Op.RESUME:
            asleep.remove(step.process)
        assert all(sum(name.startswith(group) for name in there) <= MOST_MEMBERS for group in GROUPS)
    assert not asleep
    assert {process.rpartition("-")[0] for process in there} == set(GROUPS)


def test_a_topic_grows_no_further_than_it_may() -> None:
    grown = sum(step.op is Op.GROW for step in plan(2, 2000, GROUPS))
    assert FIRST_PARTITIONS + grown == MOST_PARTITIONS
