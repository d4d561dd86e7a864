"""Claims about the Prometheus text."""

from __future__ import annotations

from typing import Any

import attrs
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.parser import text_string_to_metric_families

from kafka_wire.error_codes import ErrorCode
from tests.metrics.statistics_fixtures import (
    broker_readings,
    channel_statistics,
    cleaner_statistics,
    client_backlog,
    flusher_statistics,
    handler_statistics,
    processor_statistics,
    server_statistics,
    slot_statistics,
)
from tests.network.test_request_metrics import MS, Timed
from trio_broker.common.histogram import Histogram
from trio_broker.common.request_phase import RequestPhase
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.coordinator.reporting.snapshot import ConsumerLag, GroupPartitionLag, GroupType
from trio_broker.coordinator.reporting.statistics import GroupKind, GroupStatistics
from trio_broker.coordinator.transactions.transaction_snapshot import TransactionStatistics
from trio_broker.metrics.history import sample_between
from trio_broker.metrics.prometheus import render
from trio_broker.metrics.prometheus_times import BOUNDS_NS, add_histogram
from trio_broker.metrics.snapshot import AccessReading, DirectorySpace, MetricsSnapshot, PartitionReading
from trio_broker.network.request_metrics import RequestMetrics, RequestTimes, RequestWaits
from trio_broker.partition.log_cleaner import UncleanablePartition
from trio_broker.partition.replica_manager import ReplicaManagerStatistics
from trio_broker.partition.thread_occupancy import ThreadOccupancyStatistics
from trio_broker.runtime.cpu_clock import CpuTimes
from trio_broker.storage.recovery_progress import DirectoryRecovery, RecoveryProgress

SERVER = server_statistics(
    1.0,
    bytes_in=1000,
    bytes_out=2,
    requests=6,
    connections=5,
    connections_accepted=6,
    processors=(processor_statistics(0, 0.5, busy_seconds=0.5),),
    handlers=handler_statistics(slot_statistics(0, 0.5, busy_seconds=0.5), slot_statistics(1, 1.0), delayed=8),
    channel=channel_statistics(recent_peak_depth=7),
    loop_busy_ratio=0.5,
    loop_busy_ns=500_000_000,
    unread_bytes=1_500_000,
    backlog=client_backlog(wait_seconds=60.0),
)


TRANSACTIONS = TransactionStatistics(
    transactions={"Ongoing": 2, "CompleteCommit": 5},
    oldest_seconds=12.5,
    markers_pending=3,
    overdue=1,
    partitions_held_back=4,
    hanging_transactions=1,
    late_transactions=1,
    committed=50,
    aborted=6,
    timed_out=2,
    loading=7,
)

RECOVERED = RecoveryProgress((DirectoryRecovery("/data", False, 3, 3, 5, 5, 700, 700),), 1.5, is_over=True)


def snapshot(**changes: Any) -> MetricsSnapshot:
    """A broker that was half busy for the last second, but for ``changes``."""
    values: dict[str, Any] = {
        "version": "0.1.0",
        "node_id": 1,
        "cluster_id": "abc",
        "durability": "fsync",
        "uptime_seconds": 60.0,
        "log_size_bytes": 4096,
        "server": SERVER,
        "requests": {"produce": request_times(4), "fetch": request_times(2)},
        "replicas": ReplicaManagerStatistics(1, 2, 0, 0, 0, 2, 3, 1000, 0, flusher_statistics()),
        "cleaner": cleaner_statistics(),
        "cpu": CpuTimes(loop_ns=400_000_000, process_ns=900_000_000, pressure_ns=30_000_000_000),
        "recovery": RECOVERED,
        "groups": GroupStatistics(groups={}, members=0, committed_offsets=0, loading=0, commits=0, rebalances=0),
    }
    return MetricsSnapshot(**(values | changes))


def request_times(count: int) -> RequestTimes:
    """So many requests of 6 ms that waited for the disk, with an error each."""
    metrics = RequestMetrics()
    for _ in range(count):
        metrics.record(Timed(waits=RequestWaits(RequestPhase.DISK, 0, disk_ns=MS)), 4 * MS, 6 * MS)
        metrics.errors[ErrorCode.NOT_LEADER_OR_FOLLOWER] += 1
    return metrics.since_start()


def partition_reading(**changes: Any) -> PartitionReading:
    """A partition of one replica, but for ``changes``."""
    values: dict[str, Any] = {
        "topic": "orders",
        "partition": 3,
        "leader": 1,
        "is_led": True,
        "preferred_leader": 1,
        "replica_count": 1,
        "in_sync_replica_count": 1,
        "min_in_sync_replicas": 1,
        "log_start_offset": 10,
        "last_stable_offset": 15,
        "high_watermark": 20,
        "log_end_offset": 30,
        "size_bytes": 4000,
        "segment_count": 2,
        "producer_ids": 6,
        "appended_records": 5,
        "appended_bytes": 500,
        "fetched_bytes": 50,
    }
    return PartitionReading(**(values | changes))


def per_partition(*lags: GroupPartitionLag) -> MetricsSnapshot:
    """A snapshot for all metrics of ours: with groups, a partition and ``lags``."""
    return snapshot(
        groups=GROUPS,
        transactions=TRANSACTIONS,
        per_partition=True,
        directories=[DirectorySpace("/data", False, 1000, 600)],
        partitions=[partition_reading()],
        lags=lags or [lag(0, 5, 0.5)],
    )


def values_of(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every series with its value, by its name and its label values in the order of their labels' names."""
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_who_was_refused_and_who_was_slowed_down_is_counted():
    server = attrs.evolve(SERVER, connections_closed={"authentication": 2, "peer": 9})
    access = AccessReading(failed_admin_logins=1, denied_requests=3, throttled_requests=4, throttled_seconds=5.5)
    values = values_of(render(snapshot(server=server, access=access)))
    assert [
        values[f"trio_broker_{name}_total", ()]
        for name in (
            *("failed_logins", "failed_admin_logins", "denied_requests", "throttled_requests", "throttled_seconds"),
        )
    ] == [2, 1, 3, 4, 5.5]


def test_compaction_shows_what_it_did_and_what_it_leaves_alone() -> None:
    left_alone = UncleanablePartition(TopicPartition("t", 0), "damaged")
    cleaner = cleaner_statistics(
        rounds=3, bytes_read=1000, bytes_written=100, uncleanable=(left_alone,), max_dirty_ratio=0.25
    )
    values = values_of(render(snapshot(cleaner=cleaner)))
    assert {name: value for (name, _), value in values.items() if "log_cleaner" in name} == {
        "trio_broker_log_cleaner_rounds_total": 3,
        "trio_broker_log_cleaner_busy_seconds_total": 0,
        "trio_broker_log_cleaner_bytes_read_total": 1000,
        "trio_broker_log_cleaner_bytes_written_total": 100,
        "trio_broker_log_cleaner_max_dirty_ratio": 0.25,
        "trio_broker_log_cleaner_uncleanable_partitions": 1,
    }


def test_every_number_of_the_snapshot_is_shown() -> None:
    values = values_of(render(snapshot()))
    expected = {
        ("trio_broker_node_info", ("abc", "fsync", "1", "0.1.0")): 1.0,
        ("trio_broker_uptime_seconds", ()): 60.0,
        ("trio_broker_topics", ()): 1.0,
        ("trio_broker_partitions", ()): 2.0,
        ("trio_broker_log_size_bytes", ()): 4096.0,
        ("trio_broker_bytes_in_total", ()): 1000.0,
        ("trio_broker_bytes_out_total", ()): 2.0,
        ("trio_broker_records_in_total", ()): 3.0,
        ("trio_broker_requests_total", ()): 6.0,
        ("trio_broker_api_requests_total", ("produce",)): 4.0,
        ("trio_broker_api_requests_total", ("fetch",)): 2.0,
        ("trio_broker_connections", ()): 5.0,
        ("trio_broker_connections_accepted_total", ()): 6.0,
        ("trio_broker_request_queue_size", ()): 7.0,
        ("trio_broker_request_queue_capacity", ()): 500.0,
        ("trio_broker_purgatory_size", ()): 8.0,
        ("trio_broker_network_processors", ()): 1.0,
        ("trio_broker_network_processor_avg_idle_ratio", ()): 0.5,
        ("trio_broker_network_processor_idle_ratio", ("0",)): 0.5,
        ("trio_broker_network_processor_busy_seconds_total", ("0",)): 0.5,
        ("trio_broker_request_handlers", ()): 2.0,
        ("trio_broker_request_handler_avg_idle_ratio", ()): 0.75,
        ("trio_broker_request_handler_idle_ratio", ("0",)): 0.5,
        ("trio_broker_request_handler_idle_ratio", ("1",)): 1.0,
        ("trio_broker_event_loop_busy_ratio", ()): 0.5,
        ("trio_broker_event_loop_busy_seconds_total", ()): 0.5,
        ("trio_broker_event_loop_cpu_seconds_total", ()): 0.4,
        ("trio_broker_cpu_pressure_seconds_total", ()): 30.0,
        ("trio_broker_unread_bytes", ()): 1_500_000.0,
        ("trio_broker_unread_wait_seconds", ()): 60.0,
    }
    assert {key: values.get(key) for key in expected} == expected


def test_what_is_not_known_is_left_out() -> None:
    server = attrs.evolve(SERVER, backlog=client_backlog(wait_seconds=None))
    text = render(snapshot(server=server, cpu=CpuTimes())).decode()
    assert "unread_wait_seconds" not in text
    assert "cpu_pressure_seconds" not in text


def test_times_of_requests_are_histograms_by_api_and_phase() -> None:
    values = values_of(render(snapshot()))
    name = "trio_broker_request_seconds"
    assert values[(f"{name}_count", ("produce", "disk"))] == 4
    assert values[(f"{name}_sum", ("produce", "disk"))] == 0.004
    assert values[(f"{name}_sum", ("produce", "local"))] == 0.004
    assert values[(f"{name}_sum", ("produce", "total"))] == 0.024
    buckets = {
        labels[1]: value
        for (each, labels), value in values.items()
        if each == f"{name}_bucket" and labels[::2] == ("produce", "total")
    }
    assert buckets["0.004194304"] == 0
    assert buckets["0.008388608"] == buckets["+Inf"] == 4
    assert (f"{name}_count", ("produce", "purgatory")) not in values
    assert values[("trio_broker_request_errors_total", ("produce", "NOT_LEADER_OR_FOLLOWER"))] == 4


def test_the_bounds_of_a_histogram_are_bounds_of_our_own_buckets() -> None:
    histogram = Histogram()
    for bound_ns in BOUNDS_NS:
        histogram.record(bound_ns - 1)
        histogram.record(bound_ns)
    family = HistogramMetricFamily("seconds", "", labels=[])
    add_histogram(family, [], histogram.snapshot())
    counts = [sample.value for sample in family.samples if "le" in sample.labels]
    assert counts == [*range(1, 2 * len(BOUNDS_NS), 2), 2 * len(BOUNDS_NS)]


def test_syncs_show_whether_there_are_threads_enough() -> None:
    times = Histogram()
    times.record(2 * MS)
    flusher = flusher_statistics(4, ThreadOccupancyStatistics(4, 9, {4: 2 * 10**9}, 2 * 10**9, 0), times.snapshot())
    values = values_of(render(snapshot(replicas=ReplicaManagerStatistics(1, 2, 0, 0, 0, 2, 3, 1000, 0, flusher))))
    assert {name: value for (name, labels), value in values.items() if "_sync" in name and not labels} == {
        "trio_broker_sync_seconds_count": 1,
        "trio_broker_sync_seconds_sum": 0.002,
        "trio_broker_sync_wait_seconds_count": 0,
        "trio_broker_sync_wait_seconds_sum": 0,
        "trio_broker_sync_threads": 4,
        "trio_broker_syncs_waiting": 9,
        "trio_broker_sync_all_busy_seconds_total": 2,
        "trio_broker_sync_busy_seconds_total": 8,
        "trio_broker_sync_failures_total": 0,
    }


def test_names_carry_our_prefix_except_those_of_the_process_which_every_dashboard_knows() -> None:
    names = {name for name, _ in values_of(render(snapshot()))}
    assert {name for name in names if not name.startswith("trio_broker_")} == {
        "process_cpu_seconds_total",
        "process_max_fds",
        "process_open_fds",
        "process_resident_memory_bytes",
        "process_start_time_seconds",
        "process_virtual_memory_bytes",
    }


def test_the_page_and_prometheus_read_the_same_numbers() -> None:
    sample = sample_between(broker_readings(), broker_readings(server=SERVER), 0)
    values = values_of(render(snapshot()))
    assert values[("trio_broker_network_processor_avg_idle_ratio", ())] == sample.network_idle_ratio
    assert values[("trio_broker_request_handler_avg_idle_ratio", ())] == sample.io_idle_ratio
    assert values[("trio_broker_event_loop_busy_ratio", ())] == sample.event_loop_busy_ratio
    assert values[("trio_broker_request_queue_size", ())] == sample.queue_depth


def test_partitions_are_shown_only_when_asked_for() -> None:
    assert not [name for name, _ in values_of(render(snapshot())) if "partition_size" in name]
    values = values_of(render(per_partition()))
    assert values[("trio_broker_partition_log_start_offset", ("3", "orders"))] == 10
    assert values[("trio_broker_partition_high_watermark", ("3", "orders"))] == 20
    assert values[("trio_broker_partition_log_end_offset", ("3", "orders"))] == 30
    assert values[("trio_broker_partition_size_bytes", ("3", "orders"))] == 4000


def test_two_brokers_in_one_process_do_not_meet() -> None:
    first, second = render(snapshot()), render(snapshot())
    assert values_of(first).keys() == values_of(second).keys()


GROUPS = GroupStatistics(
    groups={GroupKind(GroupType.CONSUMER, "Stable"): 3, GroupKind(GroupType.CLASSIC, "Empty"): 2},
    members=7,
    committed_offsets=40,
    loading=1,
    commits=9000,
    rebalances=12,
)


def lag(partition: int, records: int | None, seconds: float | None, group_id: str = "g") -> GroupPartitionLag:
    return GroupPartitionLag(
        group_id,
        ConsumerLag(
            topic="t",
            partition=partition,
            committed_offset=None,
            log_end_offset=None,
            lag_records=records,
            lag_seconds=seconds,
            member_id=None,
        ),
    )


def test_groups_are_counted_by_type_and_state() -> None:
    values = values_of(render(snapshot(groups=GROUPS)))
    expected = {
        ("trio_broker_groups", ("Stable", "consumer")): 3.0,
        ("trio_broker_groups", ("Empty", "classic")): 2.0,
        ("trio_broker_group_members", ()): 7.0,
        ("trio_broker_group_committed_offsets", ()): 40.0,
        ("trio_broker_group_loading_partitions", ()): 1.0,
        ("trio_broker_group_offset_commits_total", ()): 9000.0,
        ("trio_broker_group_rebalances_total", ()): 12.0,
    }
    assert {key: values.get(key) for key in expected} == expected
    assert not [name for name, _ in values if "group_lag" in name]


def test_lag_is_shown_by_group_and_partition_as_far_as_it_is_known() -> None:
    lags = (lag(0, 40, 1.5), lag(1, 3, None), lag(2, None, None))
    values = values_of(render(per_partition(*lags)))
    assert {key: value for key, value in values.items() if "group_lag" in key[0]} == {
        ("trio_broker_group_lag_records", ("g", "0", "t")): 40.0,
        ("trio_broker_group_lag_seconds", ("g", "0", "t")): 1.5,
        ("trio_broker_group_lag_records", ("g", "1", "t")): 3.0,
    }


def test_group_ids_with_quotes_and_line_ends_stay_one_label() -> None:
    hostile = 'a"b\nc\\d} 1 <x> \u202e'
    values = values_of(render(per_partition(lag(0, 40, None, hostile))))
    assert values[("trio_broker_group_lag_records", (hostile, "0", "t"))] == 40.0


def test_transactions_are_shown_by_state_with_what_they_hold_back() -> None:
    values = values_of(render(snapshot(transactions=TRANSACTIONS)))
    found = {key: value for key, value in values.items() if "transaction" in key[0] or "held_back" in key[0]}
    assert found == {
        ("trio_broker_transactional_ids", ("Ongoing",)): 2,
        ("trio_broker_transactional_ids", ("CompleteCommit",)): 5,
        ("trio_broker_transaction_oldest_seconds", ()): 12.5,
        ("trio_broker_transaction_markers_pending", ()): 3,
        ("trio_broker_transactions_overdue", ()): 1,
        ("trio_broker_transaction_loading_partitions", ()): 7,
        ("trio_broker_transactions_committed_total", ()): 50,
        ("trio_broker_transactions_aborted_total", ()): 6,
        ("trio_broker_transactions_timed_out_total", ()): 2,
        ("trio_broker_partitions_held_back", ()): 4,
        ("trio_broker_partitions_with_hanging_transactions", ()): 1,
    }
