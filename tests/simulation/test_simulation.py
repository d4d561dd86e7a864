"""A whole broker in virtual time keeps its promises, whatever a seed does to it.

A few seeds run here; ``python -m tests.simulation [--transactions | --lost | --waits] FIRST END`` runs as many as there
is time for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache

import pytest

from tests.simulation.simulation import (
    Result,
    simulate,
    simulate_lost_transactions,
    simulate_transactions,
    simulate_waits,
)

SEEDS = (0, 2, 8)
"""The first in page-cache mode, the others in fsync mode; some seconds together."""

SEED_OF_TWO_RUNS = 2
"""One that the other tests run as well."""

SEEDS_OF_TRANSACTIONS = range(10)
"""A second or two."""

SEEDS_OF_LOST_TRANSACTIONS = range(6)
"""Half a second."""

SEEDS_OF_WAITS = range(4)
"""Two seconds."""


@cache
def run(simulation: Callable[[int], Result], seed: int) -> Result:
    return simulation(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_is_broken(seed: int):
    result = run(simulate, seed)
    assert not result.violations, "\n".join(map(str, (result.plan, *result.violations)))
    assert result.counts["requests"] > 50, "somebody used the broker"


def test_no_promise_to_transactions_is_broken():
    results = [run(simulate_transactions, seed) for seed in SEEDS_OF_TRANSACTIONS]
    assert not (broken := broken_promises(results)), broken
    counts = sum((result.counts for result in results), Counter[str]())
    assert counts["transaction ok"] > 50, "somebody used transactions"


def test_transactions_whose_records_a_power_cut_takes_end_and_show_nothing_aborted():
    results = [simulate_lost_transactions(seed) for seed in SEEDS_OF_LOST_TRANSACTIONS]
    assert not (broken := broken_promises(results)), broken


def test_no_fetch_waits_for_what_is_there():
    results = [run(simulate_waits, seed) for seed in SEEDS_OF_WAITS]
    assert not (broken := broken_promises(results)), broken
    assert {result.plan.durability for result in results} == {"fsync", "page-cache"}
    counts = sum((result.counts for result in results), Counter[str]())
    assert counts["answered_waits"] > 100, "somebody waited"


def broken_promises(results: Sequence[Result]) -> str:
    return "\n".join(str(text) for result in results for text in (result.seed, *result.violations) if result.violations)


def test_one_seed_is_one_run():
    """In two processes, since ids of objects and hashes of strings differ between them."""
    names = [each.__name__ for each in (simulate, simulate_transactions, simulate_waits)]
    program = (
        f"from tests.simulation.simulation import {', '.join(names)}\n"
        f"print(*(each({SEED_OF_TWO_RUNS}).trace for each in ({', '.join(names)})))"
    )
    other = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    own = [run(each, SEED_OF_TWO_RUNS).trace for each in (simulate, simulate_transactions, simulate_waits)]
    assert [int(word) for word in other.stdout.split()] == own
