"""The simulation finds brokers, and disks, that do not keep their promises."""

from __future__ import annotations

import random
from collections.abc import Callable

import attrs
import pytest

from tests.checking.commits import COMMITS_STAY
from tests.simulation import waiting_bugs
from tests.simulation.simulated_waits import NOBODY_WAITS_IN_VAIN
from tests.simulation.simulation import EACH_VALUE_ONCE, Plan, run_simulation, simulate
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets
from trio_broker.runtime.inode import Inode
from trio_broker.storage.producer_state import ProducerStates

SEEDS = range(6, 36)
"""Far more than it takes; the first that shows the bug is the last that runs."""

CHOSEN = {("a_fetch_registers_when_it_waits", "page-cache"): 7}
NO_SYNC, NO_COMMITS = 7, 8
"""Seeds that showed bugs which the first seeds do not show, when this was written. If they do no more, others do."""


def is_found(promise: Callable[[str], bool], chosen: int = SEEDS.start) -> bool:
    return any(promise(violation.promise) for seed in (chosen, *SEEDS) for violation in simulate(seed).violations)


def test_a_disk_that_does_not_sync_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Inode, "sync", lambda self: None)
    assert is_found(lambda promise: True, NO_SYNC)


@pytest.mark.soak
def test_a_broker_that_forgets_what_an_idempotent_producer_sent_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ProducerStates, "duplicate_of", lambda self, header: None)
    monkeypatch.setattr(ProducerStates, "check_sequence", lambda self, header: None)
    assert is_found(EACH_VALUE_ONCE.__eq__)


def test_a_group_that_forgets_commits_is_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(CommittedOffsets, "put", lambda self, key, value: None)
    assert is_found(COMMITS_STAY.__eq__, NO_COMMITS)


@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
@pytest.mark.parametrize("bug", ["a_fetch_registers_when_it_waits", "the_end_of_a_transaction_wakes_no_fetch"])
def test_a_fetch_that_waits_in_vain_is_found(bug: str, durability: str, monkeypatch: pytest.MonkeyPatch):
    def draw_plan(chance: random.Random) -> Plan:
        return attrs.evolve(Plan.of_waits(chance), durability=durability)

    getattr(waiting_bugs, bug)(monkeypatch)
    assert any(
        violation.promise == NOBODY_WAITS_IN_VAIN
        for seed in (CHOSEN.get((bug, durability), SEEDS.start), *SEEDS)
        for violation in run_simulation(seed, draw_plan).violations
    )
