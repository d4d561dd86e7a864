"""One benchmark from front to back with next to no load: what keeps the others from rotting unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import admin_load, admin_pages, groups, small
from bench.outcome import Options
from bench.populated import Population


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


def test_the_metering_is_measured_beside_a_call_that_does_nothing(tmp_path: Path):
    outcome = admin_load.metering(Options(tmp_path, repeats=1, scale=0.001))
    (table,) = outcome.tables
    assert [row[0] for row in table.rows] == ["a call that does nothing", "noted and counted"]


def test_pages_are_read_from_a_broker_with_topics_and_groups(tmp_path: Path):
    with admin_pages.populated_broker(Options(tmp_path), Population(2, 3, 2)) as process:
        readings = [admin_pages.read_page(process, address, 0.0) for address in ("/groups", "/topics")]
    assert all(reading.cpu_ms > 0 and reading.size_bytes > 1000 for reading in readings)


@pytest.mark.soak
def test_the_load_of_the_admin_app_is_measured_beside_the_same_broker_without(tmp_path: Path):
    options = Options(tmp_path, repeats=1, scale=0.001)
    assert admin_load.cost(options).measures["admin-cost"] > 0
    assert admin_load.search(options).measures["admin-search"] > 0
