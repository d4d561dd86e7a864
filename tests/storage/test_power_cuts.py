"""Whatever a power cut, a kill or a stop does to the logs of a broker, the next start finds what was promised.

``InterruptedLogs`` says what is done and what is compared. ``POWER_CUT_SEEDS`` names other seeds for the long run,
``20000:40000`` for instance; a failure tells the seed and what the logs did.
"""

from __future__ import annotations

import os
from pathlib import PurePath

import attrs
import pytest

from tests.storage.interrupted_logs import InterruptedLogs
from trio_broker.runtime.disk import Disk, OpenMode, write_all
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.storage import batch_checks, checkpoints, interrupted_swaps
from trio_broker.storage.leader_epochs import LeaderEpochs
from trio_broker.storage.log import Log
from trio_broker.storage.log_checkpoints import LogCheckpoints
from trio_broker.storage.log_directory import LogDirectory
from trio_broker.storage.open_transactions import OpenTransactions
from trio_broker.storage.producer_state import ProducerEntry, ProducerStates
from trio_broker.storage.segment import Segment
from trio_broker.storage.transaction_index import TransactionIndex
from trio_broker.storage.truncatable_log import LogCut, TruncatableLog, TruncationPlan

SEEDS_PER_TEST = 10
FIRST_SEED, END_SEED = (int(seed) for seed in os.environ.get("POWER_CUT_SEEDS", "100000:102000").split(":"))


def run(
    seed: int,
    *,
    cut_before: int | None = None,
    lives: int = 3,
    steps: int = 25,
    faults: bool = False,
    syncs: bool = True,
) -> InterruptedLogs:
    """Live through some lives; tell the story of those in which something is lost."""
    logs = InterruptedLogs(seed, cut_before=cut_before, faults=faults, syncs=syncs)
    try:
        logs.run(lives, steps)
    except Exception as error:
        error.add_note("\n".join((f"seed {seed}, cut before {cut_before}", *logs.story)))
        raise
    return logs


@pytest.mark.parametrize("seed", range(0, 40, SEEDS_PER_TEST))
def test_nothing_that_was_synced_is_lost_and_nothing_else_appears(seed: int):
    for each in range(seed, seed + SEEDS_PER_TEST):
        run(each)


@pytest.mark.parametrize("seed", range(0, 20, SEEDS_PER_TEST))
def test_a_disk_that_fails_and_fills_up_takes_nothing_that_was_synced(seed: int):
    for each in range(seed, seed + SEEDS_PER_TEST):
        run(each, faults=True)


def test_the_power_may_go_before_any_operation():
    changes = run(1, cut_before=10**9, lives=1).changes
    assert changes > 100
    for number in range(changes):
        run(1, cut_before=number, lives=1)


def test_the_same_seed_does_the_same():
    digests = [run(seed).disk.trace.digest() for seed in (2, 3, 2, 3)]
    assert digests[:2] == digests[2:]
    assert digests[0] != digests[1]


RARE_MISTAKES = {
    "rewrite": 54,
    "sync_after_crash": 54,
    "problem_with": 30,
    "write_atomically": 55,
    "cut": 260,
    "lower_recovery_point": 55,
}
"""The seed to begin with, for mistakes that few seeds find."""


def nothing(*arguments: object, **named: object) -> None:
    """Leave it undone."""


def sync_only(log: Log) -> None:
    """Believe what is read after a crash."""
    log.sync()


def write_in_place(disk: Disk, path: PurePath, content: bytes) -> None:
    """Overwrite a file that should be replaced."""
    file = disk.open(path, OpenMode.REPLACE)
    write_all(file, content, 0)
    file.sync()


def restore_no_transactions(states: ProducerStates, entries: list[ProducerEntry], end_offset: int) -> None:
    """Take the producers from a snapshot, and not what they have begun."""
    states.producers = {entry.producer_id: entry for entry in entries}
    states.transactions = OpenTransactions()
    states.end_offset = end_offset


def keep_producers(log: Log, plan: TruncationPlan) -> LogCut:
    """Go on with what producers have written behind the cut."""
    return TruncatableLog.cut(log, attrs.evolve(plan, producers=log.producers))


def forget_nothing(epochs: LeaderEpochs, end_offset: int) -> bool:
    """Keep the epochs of what was cut off."""
    return False


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (Segment, "sync", nothing),
        (Segment, "sync_indexes", nothing),
        (Segment, "rewrite", nothing),
        (Log, "sync_after_crash", sync_only),
        (Log, "cut", keep_producers),
        (Log, "lower_recovery_point", nothing),
        (LogCheckpoints, "write", nothing),
        (LogDirectory, "forget", nothing),
        (LeaderEpochs, "write_file", nothing),
        (LeaderEpochs, "truncate_from_end", forget_nothing),
        (ProducerStates, "restore", restore_no_transactions),
        (TransactionIndex, "append", nothing),
        (batch_checks, "problem_with", nothing),
        (checkpoints, "write_atomically", write_in_place),
        (interrupted_swaps, "finish", nothing),
        (SimulatedDisk, "sync_directory", nothing),
    ],
)
def test_mistakes_are_found(monkeypatch, owner, name, mistake):
    """A storage that does not do this loses something in some of these seeds."""
    monkeypatch.setattr(owner, name, mistake)

    def fails(seed: int) -> bool:
        try:
            run(seed, faults=seed % 2 == 0)
        except Exception:
            return True
        return False

    first = RARE_MISTAKES.get(name, 0)
    assert any(fails(seed) for seed in range(first, first + 50))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(FIRST_SEED, END_SEED, 100))
def test_many_more_seeds(seed: int):
    for each in range(seed, min(seed + 100, END_SEED)):
        run(each)
        run(each, faults=True)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 2000, 100))
@pytest.mark.parametrize("syncs", [True, False], ids=["fsync", "page-cache"])
def test_the_power_may_go_before_any_operation_of_a_long_life(syncs: bool, first: int):
    for number in range(first, first + 100):
        run(1, cut_before=number, lives=1, steps=300, syncs=syncs)
