"""What limits a broker, by its readings: each verdict, and each boundary between two."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.metrics.statistics_fixtures import broker_readings, client_backlog
from trio_broker.changes.change import ReadingUnit
from trio_broker.metrics.bottleneck import (
    READINGS_SECONDS,
    Bottleneck,
    BottleneckReadings,
    Limit,
    SuggestedSetting,
    bottleneck,
    readings_of,
)
from trio_broker.metrics.history import FollowerLag, sample_between

LOADED = BottleneckReadings(requests_per_second=1000, connections=24, event_loop_busy_ratio=0.4)
SYNCS_QUEUE = {"io_threads": 1, "sync_busy_ratio": 0.97, "sync_threads_busy_ratio": 0.97, "syncs_waiting": 15.0}
COLD = {"cold_send_busy_ratio": 0.9, "cold_sends_per_second": 300.0, "network_threads": 3}
SLOTS_TAKEN = {"io_busy_ratio": 0.95, "queue_depth": 20.0, "io_threads": 4}
COMPACTING = {"compaction_busy_ratio": 0.8, "compaction_bytes_per_second": 50e6}
BACKLOG: dict[str, Any] = {
    "backlog": client_backlog(),
    "unread_bytes": 1_500_000.0,
    "unread_wait_ms": 60_000.0,
}


STARVED = {
    "event_loop_busy_ratio": 0.96,
    "event_loop_cpu_ratio": 0.2,
    "process_cpu_ratio": 0.3,
    "cpu_pressure_ratio": 0.9,
}


def verdict_of(**readings: Any) -> Bottleneck:
    """The verdict on a loaded broker with these readings; its event loop has a CPU whenever it is busy, unless they say
    otherwise."""
    busy = readings.get("event_loop_busy_ratio", LOADED.event_loop_busy_ratio)
    return bottleneck(attrs.evolve(LOADED, **{"event_loop_cpu_ratio": busy, "process_cpu_ratio": busy} | readings))


@pytest.mark.parametrize(
    ("readings", "limit", "setting"),
    [
        ({"requests_per_second": 0.5}, Limit.NOTHING, None),
        ({}, Limit.CLIENTS, None),
        ({"event_loop_busy_ratio": 0.95}, Limit.EVENT_LOOP, None),
        (SYNCS_QUEUE, Limit.DISK_SYNCS, SuggestedSetting("num.io.threads", "8")),
        ({"disk_wait_ratio": 0.9}, Limit.DISK_SYNCS, None),
        (COLD, Limit.COLD_SENDS, SuggestedSetting("num.network.threads", "6")),
        (SLOTS_TAKEN, Limit.REQUEST_QUEUE, SuggestedSetting("num.io.threads", "8")),
        (BACKLOG, Limit.CLIENT_BACKLOG, None),
        (STARVED, Limit.OTHER_PROCESSES, None),
        (STARVED | {"cpu_pressure_ratio": None}, Limit.OTHER_PROCESSES, None),
        (
            {"event_loop_busy_ratio": 0.95, **COMPACTING},
            Limit.COMPACTION,
            SuggestedSetting("log.cleaner.io.max.bytes.per.second", "25000000"),
        ),
    ],
    ids=str,
)
def test_each_verdict_and_the_setting_that_helps(readings, limit, setting):
    verdict = verdict_of(**readings)
    assert (verdict.limit, verdict.setting) == (limit, setting)
    assert verdict.reason
    assert verdict.summary


@pytest.mark.parametrize(
    ("base", "at", "below", "limit", "limit_below"),
    [
        ({}, {"requests_per_second": 1.0}, {"requests_per_second": 0.99}, Limit.CLIENTS, Limit.NOTHING),
        ({}, {"event_loop_busy_ratio": 0.85}, {"event_loop_busy_ratio": 0.849}, Limit.EVENT_LOOP, Limit.CLIENTS),
        (SYNCS_QUEUE, {"sync_busy_ratio": 0.5}, {"sync_busy_ratio": 0.49}, Limit.DISK_SYNCS, Limit.CLIENTS),
        (SYNCS_QUEUE, {"syncs_waiting": 1.0}, {"syncs_waiting": 0.99}, Limit.DISK_SYNCS, Limit.CLIENTS),
        ({}, {"disk_wait_ratio": 0.5}, {"disk_wait_ratio": 0.49}, Limit.DISK_SYNCS, Limit.CLIENTS),
        (COLD, {"cold_send_busy_ratio": 0.7}, {"cold_send_busy_ratio": 0.69}, Limit.COLD_SENDS, Limit.CLIENTS),
        (SLOTS_TAKEN, {"io_busy_ratio": 0.8}, {"io_busy_ratio": 0.79}, Limit.REQUEST_QUEUE, Limit.CLIENTS),
        (SLOTS_TAKEN, {"queue_depth": 1.0}, {"queue_depth": 0.9}, Limit.REQUEST_QUEUE, Limit.CLIENTS),
        (
            {"event_loop_busy_ratio": 0.9, **COMPACTING},
            {"compaction_busy_ratio": 0.5},
            {"compaction_busy_ratio": 0.49},
            Limit.COMPACTION,
            Limit.EVENT_LOOP,
        ),
        (
            STARVED,
            {"event_loop_busy_ratio": 0.85},
            {"event_loop_busy_ratio": 0.849},
            Limit.OTHER_PROCESSES,
            Limit.CLIENTS,
        ),
        (
            STARVED,
            {"event_loop_cpu_ratio": 0.57},
            {"event_loop_cpu_ratio": 0.58},
            Limit.OTHER_PROCESSES,
            Limit.EVENT_LOOP,
        ),
        (STARVED, {"cpu_pressure_ratio": 0.5}, {"cpu_pressure_ratio": 0.49}, Limit.OTHER_PROCESSES, Limit.EVENT_LOOP),
        (STARVED, {"process_cpu_ratio": 0.95}, {"process_cpu_ratio": 0.97}, Limit.OTHER_PROCESSES, Limit.EVENT_LOOP),
        (COMPACTING, {"event_loop_busy_ratio": 0.85}, {"event_loop_busy_ratio": 0.84}, Limit.COMPACTION, Limit.CLIENTS),
    ],
    ids=str,
)
def test_each_boundary(base, at, below, limit, limit_below):
    assert verdict_of(**base | at).limit is limit
    assert verdict_of(**base | below).limit is limit_below


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [
        ({"event_loop_busy_ratio": 0.9}, SYNCS_QUEUE),
        ({"event_loop_busy_ratio": 0.9}, SLOTS_TAKEN),
        (SYNCS_QUEUE, COLD),
        (SYNCS_QUEUE, {"disk_wait_ratio": 0.9}),
        (COLD, {"io_busy_ratio": 0.95, "queue_depth": 20.0}),
        (SLOTS_TAKEN, {"disk_wait_ratio": 0.9}),
        (STARVED, COMPACTING),
        (STARVED, BACKLOG),
        (SYNCS_QUEUE, BACKLOG),
        (BACKLOG, {"disk_wait_ratio": 0.9}),
        (BACKLOG, {"requests_per_second": 0.1}),
    ],
    ids=str,
)
def test_what_stops_everything_else_comes_first(stronger, weaker):
    verdict = verdict_of(**weaker | stronger)
    assert (verdict.limit, verdict.setting) == (verdict_of(**stronger).limit, verdict_of(**stronger).setting)


@pytest.mark.parametrize(
    ("threads", "busy_ratio", "waiting", "suggested"),
    [
        (1, 1.0, 15.0, "8"),
        (1, 1.0, 2.0, "3"),
        (2, 0.5, 1.0, "3"),
        (8, 1.0, 56.0, "16"),
        (8, 1.0, 3.2, "12"),
        (16, 0.9, 1.0, "17"),
    ],
)
def test_as_many_threads_are_suggested_as_syncs_would_use_but_not_all_at_once(threads, busy_ratio, waiting, suggested):
    verdict = verdict_of(
        io_threads=threads, sync_busy_ratio=0.9, sync_threads_busy_ratio=busy_ratio, syncs_waiting=waiting
    )
    assert verdict.setting == SuggestedSetting("num.io.threads", suggested)


@pytest.mark.parametrize(("connections", "setting"), [(3, None), (4, "4"), (6, "6"), (100, "6")])
def test_no_more_network_threads_are_suggested_than_there_are_connections(connections, setting):
    verdict = verdict_of(**COLD, connections=connections)
    assert verdict.limit is Limit.COLD_SENDS
    assert (verdict.setting and verdict.setting.value) == setting


def test_the_evidence_names_readings_of_the_history_with_their_values():
    verdict = verdict_of(**SYNCS_QUEUE, sync_p99_ms=9.0)
    evidence = {each.name: (each.value, each.unit) for each in verdict.evidence}
    assert evidence["sync_busy_ratio"] == (0.97, ReadingUnit.RATIO)
    assert evidence["syncs_waiting"] == (15.0, ReadingUnit.COUNT)
    assert evidence["sync_p99_ms"] == (9.0, ReadingUnit.MILLISECONDS)
    assert evidence["event_loop_busy_ratio"] == (0.4, ReadingUnit.RATIO)


@pytest.mark.parametrize(
    ("readings", "summary"),
    [
        ({"disk_wait_ratio": 0.9}, "payments sends faster than its requests are synced."),
        ({}, "payments sends faster than its requests are served."),
    ],
    ids=str,
)
def test_a_client_with_a_backlog_is_named_with_what_it_waits_for_and_what_it_can_do(readings, summary):
    verdict = verdict_of(**BACKLOG, **readings)
    assert (verdict.summary, verdict.client_id) == (summary, "payments")
    assert "linger.ms" in verdict.reason
    evidence = {each.name: (each.value, each.unit) for each in verdict.evidence}
    assert evidence["unread_bytes"] == (1_500_000, ReadingUnit.BYTES)
    assert evidence["unread_wait_ms"] == (60_000, ReadingUnit.MILLISECONDS)


@pytest.mark.parametrize("readings", [{"event_loop_busy_ratio": 0.9}, SYNCS_QUEUE, COLD, SLOTS_TAKEN, COMPACTING])
def test_whatever_limits_a_backlog_is_among_the_evidence(readings):
    verdict = verdict_of(**BACKLOG, **readings)
    evidence = {each.name: each.meaning for each in verdict.evidence}
    assert "unread_bytes" in evidence
    assert evidence["unread_wait_ms"] == "the next request of payments waits to be read, at least"
    assert verdict.limit is not Limit.CLIENTS


def test_how_long_a_backlog_waits_is_no_evidence_while_nothing_of_it_is_read():
    verdict = verdict_of(**BACKLOG | {"unread_wait_ms": None})
    assert "unread_wait_ms" not in {each.name for each in verdict.evidence}


@pytest.mark.parametrize("pressure", [0.9, None])
def test_other_processes_are_the_verdict_with_what_the_loop_had_of_a_cpu(pressure):
    verdict = verdict_of(**STARVED | {"cpu_pressure_ratio": pressure})
    assert "Other processes have the CPUs" in verdict.summary
    evidence = {each.name: each.value for each in verdict.evidence}
    assert (evidence["event_loop_busy_ratio"], evidence["event_loop_cpu_ratio"]) == (0.96, 0.2)
    assert evidence.get("cpu_pressure_ratio") == pressure


@pytest.mark.parametrize("readings", [SYNCS_QUEUE, {"disk_wait_ratio": 0.9}, COLD, SLOTS_TAKEN, BACKLOG, {}])
def test_a_verdict_that_a_lack_of_cpus_may_be_behind_says_so(readings):
    short = verdict_of(**readings, cpu_pressure_ratio=0.97)
    assert short.limit is verdict_of(**readings).limit
    assert [each.value for each in short.evidence if each.name == "cpu_pressure_ratio"] == [0.97]
    assert "CPUs of this machine are short" in short.reason


@pytest.mark.parametrize("pressure", [0.49, None])
def test_without_a_lack_of_cpus_a_verdict_says_nothing_of_one(pressure):
    verdict = verdict_of(**BACKLOG, cpu_pressure_ratio=pressure)
    assert "CPUs" not in verdict.reason
    assert "cpu_pressure_ratio" not in [each.name for each in verdict.evidence]


def test_the_clients_limit_beside_what_the_machine_has_of_cpus():
    evidence = {each.name: each.value for each in verdict_of(cpu_pressure_ratio=0.97).evidence}
    assert evidence["cpu_pressure_ratio"] == 0.97


def test_the_cpu_pressure_is_the_mean_of_what_is_known_of_it():
    known = sample_between(broker_readings(0.0), broker_readings(1.0), 0)
    assert readings_of([known]).cpu_pressure_ratio is None
    assert readings_of([known, attrs.evolve(known, cpu_pressure_ratio=0.5)]).cpu_pressure_ratio == 0.5


def test_a_long_client_id_is_cut_in_the_sentence_only():
    backlog = attrs.evolve(BACKLOG["backlog"], client_id="x" * 30_000)
    verdict = verdict_of(backlog=backlog)
    assert verdict.client_id == backlog.client_id
    assert len(verdict.summary) < 200
    nameless = verdict_of(backlog=client_backlog(client_id=""))
    assert nameless.summary.startswith("a client without a client id sends faster")


def test_a_broker_without_samples_is_limited_by_nothing():
    assert bottleneck(readings_of(())).limit is Limit.NOTHING


def test_readings_are_means_over_the_last_seconds():
    old = sample_between(broker_readings(0.0), broker_readings(1.0, requests=10_000), 0)
    samples = [
        sample_between(broker_readings(0.0), broker_readings(1.0, requests=100 * number, loop_busy_ratio=0.5), 0)
        for number in range(READINGS_SECONDS)
    ]
    readings = readings_of([old, *samples])
    assert (readings.requests_per_second, readings.event_loop_busy_ratio) == (450, 0.5)
    assert (readings.io_threads, readings.io_busy_ratio) == (8, 0)


def test_what_was_read_with_other_threads_does_not_count():
    sample = sample_between(broker_readings(0.0), broker_readings(1.0), 0)
    before = attrs.evolve(sample, sync_threads=1, sync_busy_ratio=1.0, syncs_waiting=15.0)
    fewer = attrs.evolve(sample, network_idle_ratios=(0.0,), cold_send_busy_ratio=1.0)
    after = attrs.evolve(sample, sync_threads=8, sync_busy_ratio=0.25)
    readings = readings_of([before, fewer, after, after])
    assert (readings.io_threads, readings.sync_busy_ratio, readings.syncs_waiting) == (8, 0.25, 0)
    assert readings.cold_send_busy_ratio == 0


def test_a_second_without_syncs_says_nothing_of_how_long_they_take():
    idle = sample_between(broker_readings(0.0), broker_readings(1.0), 0)
    syncing = attrs.evolve(idle, syncs_per_second=10.0, sync_p50_ms=2.0, sync_p99_ms=8.0)
    readings = readings_of([idle, syncing, idle])
    assert (readings.sync_p50_ms, readings.sync_p99_ms) == (2.0, 8.0)


def test_a_slow_follower_limits_and_is_named():
    waits: dict[str, Any] = {"requests_per_second": 100.0, "replication_wait_ratio": 0.9, "disk_wait_ratio": 0.7}
    lags = {2: FollowerLag(9, 5000), 3: FollowerLag(1, 10)}
    slow = bottleneck(BottleneckReadings(**waits, awaited_followers=lags, backlog=client_backlog()))
    assert (slow.limit, slow.broker_id) == (Limit.REPLICATION, 2)
    assert slow.summary == "Producers with acks=all wait for broker 2, the slowest of the followers."
    equal = bottleneck(BottleneckReadings(**waits, awaited_followers={2: FollowerLag(5, 10), 3: FollowerLag(5, 10)}))
    assert (equal.limit, equal.broker_id) == (Limit.REPLICATION, None)


def test_followers_that_answer_quickly_limit_nothing():
    quick = BottleneckReadings(
        requests_per_second=100.0, replication_wait_ratio=0.3, awaited_followers={2: FollowerLag(9, 5)}
    )
    assert bottleneck(quick).limit is Limit.CLIENTS
