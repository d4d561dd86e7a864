"""The simulation of transactions finds each bug that was put into the broker, by a promise that it breaks."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable

import attrs
import pytest
import trio

from tests.checking.transactions import (
    ABORTS_ARE_NOT_SEEN,
    ALL_OR_NOTHING,
    COMMITS_ARE_SEEN,
    FENCED_PRODUCERS_ARE_REFUSED,
    NOTHING_UNDECIDED,
    OFFSETS_WITH_RECORDS,
)
from tests.simulation import simulated_transactions, simulated_world, simulation, transaction_bugs
from tests.simulation.simulation import EVERYBODY_FINISHES, TRANSACTIONS_END, Plan, Simulation, run_simulation

Fault = Callable[[Simulation, trio.Nursery], Awaitable[None]]

BUGS: dict[str, tuple[str, tuple[Fault, ...]]] = {
    "markers_are_lost": (TRANSACTIONS_END, ()),
    "markers_have_the_epoch_before": (EVERYBODY_FINISHES, ()),
    "the_last_stable_offset_is_the_high_watermark": (NOTHING_UNDECIDED, ()),
    "aborted_transactions_are_not_indexed": (ABORTS_ARE_NOT_SEEN, ()),
    "a_restart_forgets_aborted_transactions": (ABORTS_ARE_NOT_SEEN, (Simulation.stop_cleanly,)),
    "zombies_are_let_in": (FENCED_PRODUCERS_ARE_REFUSED, (Simulation.replace_producer,)),
    "offsets_count_although_the_transaction_is_aborted": (OFFSETS_WITH_RECORDS, ()),
    "offsets_count_before_the_transaction_has_ended": (OFFSETS_WITH_RECORDS, ()),
    "the_second_protocol_keeps_its_epoch": (COMMITS_ARE_SEEN, ()),
}
"""The promise that each bug breaks, and the faults that show it."""

SEEDS = range(300)
"""Far more than it takes; the first that shows the bug is the last that runs."""

HEAL_SECONDS = 60.0
"""Virtual time after which what does not end counts as never ending: some bugs hold everything up. Longer than the
session of a member that is gone, for which its group waits."""


def is_broken(promise: str, seeds: Iterable[int], draw_plan: Callable[[random.Random], Plan]) -> bool:
    return any(
        violation.promise == promise for seed in seeds for violation in run_simulation(seed, draw_plan).violations
    )


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "HEAL_SECONDS", HEAL_SECONDS)
    monkeypatch.setattr(simulation, "LIMIT_SECONDS", 3 * HEAL_SECONDS)


def of_transactions(chance: random.Random) -> Plan:
    return attrs.evolve(
        Plan.of_transactions(chance),
        durability="fsync",
        load_seconds=3.0,
        transactional_producers=2,
        classic_movers=0,
        consumer_movers=0,
        plain_producers=0,
        faults=2.0,
        slow_syncs=0.0,
    )


def of_offsets(chance: random.Random) -> Plan:
    return attrs.evolve(of_transactions(chance), transactional_producers=0, consumer_movers=1, plain_producers=1)


@pytest.mark.parametrize("bug", BUGS)
def test_it_finds(bug: str, monkeypatch: pytest.MonkeyPatch):
    promise, faults = BUGS[bug]
    draw_plan = of_offsets if promise == OFFSETS_WITH_RECORDS else of_transactions
    monkeypatch.setattr(simulation, "FAULTS", faults or (Simulation.slow_disk,))
    getattr(transaction_bugs, bug)(monkeypatch)
    assert is_broken(promise, SEEDS, draw_plan)


def test_it_finds_late_batches_that_are_not_checked_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(simulation, "FAULTS", (Simulation.slow_disk,))
    monkeypatch.setattr(simulated_world, "LATE_SHARE", 0.3)
    transaction_bugs.late_batches_are_not_checked_again(monkeypatch)
    assert is_broken(TRANSACTIONS_END, SEEDS, of_transactions)


def of_power_cuts(chance: random.Random) -> Plan:
    """Slow syncs and power cuts, at which producers die: what shows whether one thing waits for another."""
    return attrs.evolve(
        Plan.of_transactions(chance),
        durability="fsync",
        load_seconds=8.0,
        partitions=4,
        transactional_producers=4,
        plain_producers=0,
        classic_movers=0,
        consumer_movers=0,
        faults=1.0,
        slow_syncs=0.3,
    )


@pytest.mark.soak
def test_it_finds_markers_that_do_not_wait_for_the_decision(monkeypatch: pytest.MonkeyPatch):
    """Such a marker must be durable before the decision is, and before the others, when the power fails: one of some
    hundred seeds shows it, another one after each change of the broker."""
    transaction_bugs.markers_do_not_wait_for_the_decision(monkeypatch)
    monkeypatch.setattr(simulation, "FAULTS", (Simulation.cut_power,))
    monkeypatch.setattr(simulated_transactions, "KILLED_AT_THE_END", 1.0)
    assert is_broken(ALL_OR_NOTHING, SEEDS, of_power_cuts)


def test_it_finds_nothing_where_there_is_no_bug(monkeypatch: pytest.MonkeyPatch):
    assert not [seed for seed in range(5) if run_simulation(seed, of_transactions).violations]
    assert not [seed for seed in range(5) if run_simulation(seed, of_offsets).violations]
    monkeypatch.setattr(simulation, "FAULTS", (Simulation.cut_power,))
    assert not [seed for seed in range(3) if run_simulation(seed, of_power_cuts).violations]
