"""A whole broker in virtual time keeps its promises, whatever a seed does to it.

A few seeds run here; ``python -m tests.simulation [--transactions | --lost | --waits] FIRST END`` runs as many as there
is time for.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import pytest

from tests.simulation.simulation import (
    Result,
    simulate,
    simulate_lost_transactions,
    simulate_transactions,
    simulate_waits,
)

SEEDS = (0, 2, 5)
"""The first in page-cache mode, the others in fsync mode; some seconds together."""

SEEDS_OF_TRANSACTIONS = range(10)
"""A second or two."""

SEEDS_OF_LOST_TRANSACTIONS = range(6)
"""Half a second."""

SEEDS_OF_WAITS = range(4)
"""Two seconds."""


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_is_broken(seed: int):
    result = simulate(seed)
    assert not result.violations, "\n".join(map(str, (result.plan, *result.violations)))
    assert result.counts["requests"] > 50, "somebody used the broker"


def test_no_promise_to_transactions_is_broken():
    results = [simulate_transactions(seed) for seed in SEEDS_OF_TRANSACTIONS]
    assert not (broken := broken_promises(results)), broken
    counts = sum((result.counts for result in results), Counter[str]())
    assert counts["transaction ok"] > 50, "somebody used transactions"


def test_transactions_whose_records_a_power_cut_takes_end_and_show_nothing_aborted():
    results = [simulate_lost_transactions(seed) for seed in SEEDS_OF_LOST_TRANSACTIONS]
    assert not (broken := broken_promises(results)), broken


def test_no_fetch_waits_for_what_is_there():
    results = [simulate_waits(seed) for seed in SEEDS_OF_WAITS]
    assert not (broken := broken_promises(results)), broken
    assert {result.plan.durability for result in results} == {"fsync", "page-cache"}
    counts = sum((result.counts for result in results), Counter[str]())
    assert counts["answered_waits"] > 100, "somebody waited"


def broken_promises(results: Sequence[Result]) -> str:
    return "\n".join(str(text) for result in results for text in (result.seed, *result.violations) if result.violations)


def test_one_seed_is_one_run():
    """In two processes, since ids of objects and hashes of strings differ between them."""
    names = "simulate, simulate_transactions, simulate_waits"
    program = f"from tests.simulation.simulation import {names}; print(*(each(5).trace for each in ({names})))"
    traces = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert traces[0] == traces[1] != ""
