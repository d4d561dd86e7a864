"""One benchmark from front to back with next to no load: what keeps the others from rotting unseen."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from bench import admin_load, admin_pages, disk, groups, kafka, latency, node, small
from bench.__main__ import BENCHMARKS
from bench.closed_loop import small_load
from bench.clusters import why_no_cluster
from bench.floors import floor
from bench.outcome import GOALS, Options
from bench.populated import Population
from bench.wire import BenchError
from tests.java_programs import Java
from tests.oracles import absent


def test_a_benchmark_measures_floor_and_broker_and_relates_them(tmp_path: Path):
    outcome = small.produce(Options(tmp_path, repeats=1, scale=0.001))
    table, phases = outcome.tables
    assert [row[:2] for row in table.rows] == [
        (server, connections) for connections in small.CONNECTIONS for server in ("bare echo", "broker")
    ]
    [row] = phases.rows
    assert row[1] == "Produce"
    *means, total = [cell for cell in row[3:10] if isinstance(cell, float)]
    assert sum(means) == pytest.approx(total)
    assert outcome.measures["produce"] > 0


def test_the_compiled_client_sends_what_it_is_given_and_looks_at_every_answer(tmp_path: Path):
    frames = small.frames_for(3)
    with floor("echo", 100) as server, small_load(tmp_path) as (client, _):
        figures = client(server.port, frames, 300, 100)
        assert len(figures.latencies_ns) == figures.requests == 300
        assert all(0 < each < figures.wall_seconds * 1e9 for each in figures.latencies_ns)
        with pytest.raises(BenchError, match="of 100 bytes, not 99"):
            client(server.port, frames, 300, 99)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "goals"),
    [
        ("kafka", "kafka-(produce|fetch|api)"),
        ("kafka-bulk", "kafka-bulk"),
        ("kafka-compressed", "kafka-compressed"),
        ("kafka-paced", "kafka-paced"),
        ("latency", "latency"),
        ("tls-bulk", "tls-bulk"),
    ],
)
def test_the_broker_is_measured_beside_kafka(java: Java, tmp_path: Path, name: str, goals: str):
    measures = BENCHMARKS[name](Options(tmp_path, repeats=1, scale=0.001)).measures
    assert {goal for goal in GOALS if re.match(goals, goal)} <= set(measures)
    assert all(value > 0 for value in measures.values())


@pytest.mark.soak
@pytest.mark.parametrize("name", ["replication", "failover"])
def test_several_brokers_are_measured_beside_kafkas(java: Java, tmp_path: Path, name: str):
    if missing := why_no_cluster():
        absent("etcd", missing)
    measures = BENCHMARKS[name](Options(tmp_path, repeats=1, scale=0.01)).measures
    assert {goal for goal in GOALS if goal.startswith(name)} == set(measures)


@pytest.mark.soak
def test_transactions_are_measured_beside_kafka(java: Java, tmp_path: Path):
    outcome = BENCHMARKS["transactions"](Options(tmp_path, repeats=1, scale=0.001))
    for table in outcome.tables:
        assert [row[:2] for row in table.rows] == [("second", 1), ("second", 16), ("first", 1), ("first", 16)]
    assert {goal for goal in GOALS if goal.startswith("transactions-1")} <= set(outcome.measures)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["tls-produce", "tls-handshakes", "greedy-client"])
def test_what_safety_costs_is_measured(tmp_path: Path, name: str):
    measures = BENCHMARKS[name](Options(tmp_path, repeats=1, scale=0.01)).measures
    assert {goal for goal in GOALS if goal.startswith(name)} == set(measures)
    assert all(value > 0 for value in measures.values())


@pytest.mark.soak
@pytest.mark.spark
def test_the_first_scan_is_measured_beside_a_source_that_does_nothing(tmp_path: Path):
    outcome = BENCHMARKS["spark-first-scan"](Options(tmp_path, repeats=1))
    [table] = outcome.tables
    assert [row[0] for row in table.rows] == [
        "a source that does nothing",
        "trio_broker",
        "trio_broker, nothing compiled",
    ]
    assert outcome.measures["spark-first-scan"] > 0


@pytest.mark.soak
@pytest.mark.spark
def test_runs_with_nothing_new_are_measured_beside_sparks_own_source(tmp_path: Path):
    outcome = BENCHMARKS["spark-empty-runs"](Options(tmp_path, repeats=1))
    [table] = outcome.tables
    assert table.rows[0][0] == "trio_broker"
    assert outcome.measures["spark-empty-run-cpu"] > 0


@pytest.mark.parametrize("name", ["kafka", "kafka-bulk", "kafka-compressed", "kafka-paced", "peers", "transactions"])
def test_what_needs_kafka_is_one_line_where_there_is_no_java(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = BENCHMARKS[name](Options(tmp_path))
    assert (outcome.tables, outcome.remarks) == ([], [f"{name} skipped: there is no JDK"])


def test_what_needs_kafka_is_one_line_where_its_jars_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kafka, "JARS", tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name: name)
    assert kafka.kafka(Options(tmp_path)).remarks == [
        "kafka skipped: Kafka's jars were not fetched (tests/compat/README.md)"
    ]


@pytest.mark.soak
def test_deliveries_to_each_consumer_are_measured_also_without_kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = latency.latency(Options(tmp_path, repeats=1, scale=0.005))
    assert outcome.remarks == ["without Kafka: there is no JDK"]
    table, _ = outcome.tables
    servers = (latency.PAGES, latency.FSYNC)
    assert [row[:2] for row in table.rows] == [(load.name, server) for load in latency.LOADS for server in servers]
    assert [row[3] for row in table.rows] == [10, 10, 20, 20, 10, 10]


@pytest.mark.soak
def test_both_durability_modes_are_asked_the_same(tmp_path: Path):
    outcome = disk.fsync_cost(Options(tmp_path, repeats=1, scale=0.001))
    (table,) = outcome.tables
    assert [row[:2] for row in table.rows] == [(1, 1), (64, 1), (64, 16)]
    assert {goal for goal in GOALS if goal.startswith("fsync-cost")} == set(outcome.measures)


@pytest.mark.soak
@pytest.mark.parametrize("name", ["read-committed", "transactions-start"])
def test_transactions_are_read_and_loaded(tmp_path: Path, name: str):
    measures = BENCHMARKS[name](Options(tmp_path, repeats=1, scale=0.005)).measures
    assert {goal for goal in GOALS if goal.startswith(name)} <= set(measures)
    assert all(value > 0 for value in measures.values())


def test_an_idle_broker_is_measured_with_its_partitions(tmp_path: Path):
    outcome = node.idle(Options(tmp_path, repeats=1, scale=0.002))
    (table,) = outcome.tables
    assert table.rows[0][0] == 2
    assert outcome.measures["idle"] >= 0


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


def test_the_scrubber_and_fsck_are_measured(tmp_path: Path):
    measures = BENCHMARKS["log-checks"](Options(tmp_path, repeats=1, scale=0.05)).measures
    assert len(measures) == 6
    assert all(value > 0 for value in measures.values())


def test_a_changed_isr_is_measured_by_the_partitions_of_its_topic(tmp_path: Path):
    measures = BENCHMARKS["metadata-changes"](Options(tmp_path, repeats=1, scale=0.001)).measures
    assert len(measures) == 3
    assert all(value > 0 for value in measures.values())
