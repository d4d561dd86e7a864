"""Whatever a power cut, a kill or a stop does to the logs of a broker, the next start finds what was promised.

``InterruptedLogs`` says what is done and what is compared. ``POWER_CUT_SEEDS`` names other seeds for the long run,
``20000:40000`` for instance; a failure tells the seed and what the logs did.
"""

from __future__ import annotations

import os

import pytest

from tests.storage.interrupted_logs import InterruptedLogs

SEEDS_PER_TEST = 10
FIRST_SEED, END_SEED = (int(seed) for seed in os.environ.get("POWER_CUT_SEEDS", "100000:102000").split(":"))


def run(seed: int, *, cut_before: int | None = None, lives: int = 3) -> InterruptedLogs:
    """Live through some lives; tell the story of those in which something is lost."""
    logs = InterruptedLogs(seed, cut_before=cut_before)
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


def test_the_power_may_go_before_any_operation():
    changes = run(1, cut_before=10**9, lives=1).changes
    assert changes > 100
    for number in range(changes):
        run(1, cut_before=number, lives=1)


def test_the_same_seed_does_the_same():
    digests = [run(seed).disk.trace.digest() for seed in (2, 3, 2, 3)]
    assert digests[:2] == digests[2:]
    assert digests[0] != digests[1]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(FIRST_SEED, END_SEED, 100))
def test_many_more_seeds(seed: int):
    for each in range(seed, min(seed + 100, END_SEED)):
        run(each)
