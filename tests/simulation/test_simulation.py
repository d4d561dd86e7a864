"""A whole broker in virtual time keeps its promises, whatever a seed does to it.

A few seeds run here; ``python -m tests.simulation FIRST END`` runs as many as there is time for.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.simulation import simulate

SEEDS = range(10)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_promise_is_broken(seed: int):
    result = simulate(seed)
    assert not result.violations, "\n".join(map(str, (result.plan, *result.violations)))
    assert result.counts["requests"] > 50, "somebody used the broker"


def test_one_seed_is_one_run():
    """In two processes, since ids of objects and hashes of strings differ between them."""
    program = "from tests.simulation.simulation import simulate; print(simulate(5).trace)"
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
