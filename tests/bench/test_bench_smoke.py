"""One benchmark from front to back with next to no load: what keeps the others from rotting unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import groups, small
from bench.outcome import Options


def test_a_benchmark_measures_floor_and_broker_and_relates_them(tmp_path: Path):
    outcome = small.produce(Options(tmp_path, repeats=1, scale=0.001))
    table, phases = outcome.tables
    assert [row[:2] for row in table.rows] == [
        (server, connections) for connections in small.CONNECTIONS for server in ("bare echo", "broker")
    ]
    [row] = phases.rows
    assert row[1] == "produce"
    *means, total = [cell for cell in row[3:10] if isinstance(cell, float)]
    assert sum(means) == pytest.approx(total)
    assert outcome.measures["produce"] > 0


@pytest.mark.soak
def test_commits_are_measured_beside_the_same_floor(tmp_path: Path):
    outcome = groups.commits(Options(tmp_path, repeats=1, scale=0.001))
    (table,) = outcome.tables
    assert [row[0] for row in table.rows] == ["bare echo", "broker"]
    assert outcome.measures["commits"] > 0
