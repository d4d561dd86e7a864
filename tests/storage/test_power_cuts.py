"""Whatever a power cut, a kill or a stop does to the logs of a broker, the next start finds what was promised.

``InterruptedLogs`` says what is done and what is compared. ``POWER_CUT_SEEDS`` names other seeds for the long run,
``20000:40000`` for instance; a failure tells the seed and what the logs did.
"""

from __future__ import annotations

import os
from pathlib import PurePath

import pytest

from tests.storage.interrupted_logs import InterruptedLogs
from trio_broker.runtime.disk import Disk
from trio_broker.storage import interrupted_swaps
from trio_broker.storage.log import Log
from trio_broker.storage.segment import Segment

SEEDS_PER_TEST = 10
FIRST_SEED, END_SEED = (int(seed) for seed in os.environ.get("POWER_CUT_SEEDS", "100000:102000").split(":"))


def run(seed: int, *, cut_before: int | None = None, lives: int = 3, faults: bool = False) -> InterruptedLogs:
    """Live through some lives; tell the story of those in which something is lost."""
    logs = InterruptedLogs(seed, cut_before=cut_before, faults=faults)
    try:
        logs.run(lives)
    except Exception as error:
        error.add_note("\n".join((f"seed {seed}, cut before {cut_before}", *logs.story)))
        raise
    return logs


@pytest.mark.parametrize("seed", range(0, 80, SEEDS_PER_TEST))
def test_nothing_that_was_synced_is_lost_and_nothing_else_appears(seed: int):
    for each in range(seed, seed + SEEDS_PER_TEST):
        run(each)


@pytest.mark.parametrize("seed", range(0, 40, SEEDS_PER_TEST))
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


def forget(segment: Segment) -> None:
    """Sync nothing."""


def sync_without_rewriting(log: Log) -> None:
    """Believe what is read after a crash."""
    log.sync()


def write_no_swap(disk: Disk, directory: PurePath) -> None:
    """Leave a compaction half done."""


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (Segment, "sync", forget),
        (Segment, "sync_indexes", forget),
        (Log, "sync_after_crash", sync_without_rewriting),
        (interrupted_swaps, "finish", write_no_swap),
    ],
)
def test_mistakes_are_found(monkeypatch, owner, name, mistake):
    """A storage that does not do this loses something in some of the first seeds."""
    monkeypatch.setattr(owner, name, mistake)

    def fails(seed: int) -> bool:
        try:
            run(seed, faults=True)
        except Exception:
            return True
        return False

    assert any(fails(seed) for seed in range(100))


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(FIRST_SEED, END_SEED, 100))
def test_many_more_seeds(seed: int):
    for each in range(seed, min(seed + 100, END_SEED)):
        run(each)
        run(each, faults=True)
