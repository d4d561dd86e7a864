"""Claims about the Prometheus text."""

from __future__ import annotations

import attrs
from prometheus_client.parser import text_string_to_metric_families

from trio_broker.metrics.history import History
from trio_broker.metrics.prometheus import MetricsSnapshot, render
from trio_broker.metrics.reading import (
    CompactionReading,
    GroupCount,
    GroupLagReading,
    GroupReading,
    PartitionReading,
    Reading,
    WorkerReading,
)

NO_GROUPS = GroupReading()


def reading(at: float, *, bytes_in: int, busy_seconds: float) -> Reading:
    return Reading(
        taken_at=at,
        taken_at_ms=int(at * 1000),
        bytes_in=bytes_in,
        bytes_out=2,
        records_in=3,
        requests=6,
        requests_by_api={"Produce": 4, "Fetch": 2},
        connections=5,
        connections_accepted=6,
        network_workers=(WorkerReading("0", busy_seconds),),
        io_workers=(WorkerReading("0", busy_seconds), WorkerReading("1", 0.0)),
        queue_depth=7,
        queue_capacity=500,
        parked_requests=8,
        event_loop_busy_seconds=busy_seconds,
    )


def snapshot(partitions: tuple[PartitionReading, ...] = (), groups: GroupReading = NO_GROUPS) -> MetricsSnapshot:
    """A broker that was half busy for the last second."""
    history = History(reading(0, bytes_in=0, busy_seconds=0))
    history.add(reading(1, bytes_in=1000, busy_seconds=0.5))
    return MetricsSnapshot(
        version="0.1.0",
        node_id=1,
        cluster_id="abc",
        durability="fsync",
        uptime_seconds=60.0,
        topic_count=1,
        partition_count=2,
        log_size_bytes=4096,
        reading=history.latest_reading,
        sample=history.latest_sample,
        groups=groups,
        partitions=partitions,
    )


def values_of(text: bytes) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every series with its value, by its name and its label values in the order of their labels' names."""
    return {
        (sample.name, tuple(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_compaction_tells_what_it_did_and_what_it_leaves_alone() -> None:
    told = attrs.evolve(snapshot(), compaction=CompactionReading(3, 1000, 100, 0.25, 1))
    values = values_of(render(told))
    assert {name: value for (name, _), value in values.items() if "log_cleaner" in name} == {
        "trio_broker_log_cleaner_rounds_total": 3,
        "trio_broker_log_cleaner_bytes_read_total": 1000,
        "trio_broker_log_cleaner_bytes_written_total": 100,
        "trio_broker_log_cleaner_max_dirty_ratio": 0.25,
        "trio_broker_log_cleaner_uncleanable_partitions": 1,
    }


def test_every_number_of_the_snapshot_is_told() -> None:
    values = values_of(render(snapshot()))
    expected = {
        ("trio_broker_node_info", ("abc", "fsync", "1", "0.1.0")): 1.0,
        ("trio_broker_uptime_seconds", ()): 60.0,
        ("trio_broker_topic_count", ()): 1.0,
        ("trio_broker_partition_count", ()): 2.0,
        ("trio_broker_log_size_bytes", ()): 4096.0,
        ("trio_broker_bytes_in_total", ()): 1000.0,
        ("trio_broker_bytes_out_total", ()): 2.0,
        ("trio_broker_records_in_total", ()): 3.0,
        ("trio_broker_requests_total", ()): 6.0,
        ("trio_broker_api_requests_total", ("Produce",)): 4.0,
        ("trio_broker_api_requests_total", ("Fetch",)): 2.0,
        ("trio_broker_connections", ()): 5.0,
        ("trio_broker_connections_accepted_total", ()): 6.0,
        ("trio_broker_request_queue_size", ()): 7.0,
        ("trio_broker_request_queue_capacity", ()): 500.0,
        ("trio_broker_purgatory_size", ()): 8.0,
        ("trio_broker_network_processor_count", ()): 1.0,
        ("trio_broker_network_processor_avg_idle_ratio", ()): 0.5,
        ("trio_broker_network_processor_idle_ratio", ("0",)): 0.5,
        ("trio_broker_network_processor_busy_seconds_total", ("0",)): 0.5,
        ("trio_broker_request_handler_count", ()): 2.0,
        ("trio_broker_request_handler_avg_idle_ratio", ()): 0.75,
        ("trio_broker_request_handler_idle_ratio", ("0",)): 0.5,
        ("trio_broker_request_handler_idle_ratio", ("1",)): 1.0,
        ("trio_broker_event_loop_busy_ratio", ()): 0.5,
        ("trio_broker_event_loop_busy_seconds_total", ()): 0.5,
    }
    assert {key: values.get(key) for key in expected} == expected


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
    taken = snapshot()
    values = values_of(render(taken))
    assert values[("trio_broker_network_processor_avg_idle_ratio", ())] == taken.sample.network_idle_ratio
    assert values[("trio_broker_event_loop_busy_ratio", ())] == taken.sample.event_loop_busy_ratio


def test_partitions_are_told_only_when_asked_for() -> None:
    assert not [name for name, _ in values_of(render(snapshot())) if "partition_size" in name]
    partitions = (PartitionReading("orders", 3, 10, 20, 30, 4000),)
    values = values_of(render(snapshot(partitions)))
    assert values[("trio_broker_partition_log_start_offset", ("3", "orders"))] == 10
    assert values[("trio_broker_partition_high_watermark", ("3", "orders"))] == 20
    assert values[("trio_broker_partition_log_end_offset", ("3", "orders"))] == 30
    assert values[("trio_broker_partition_size_bytes", ("3", "orders"))] == 4000


def test_two_brokers_in_one_process_do_not_meet() -> None:
    first, second = render(snapshot()), render(snapshot())
    assert values_of(first).keys() == values_of(second).keys()


GROUPS = GroupReading(
    groups=(GroupCount("consumer", "Stable", 3), GroupCount("classic", "Empty", 2)),
    members=7,
    committed_offsets=40,
    loading_partitions=1,
    offset_commits=9000,
    rebalances=12,
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


def test_lag_is_told_by_group_and_partition_as_far_as_it_is_known() -> None:
    lags = (
        GroupLagReading("g", "t", 0, 40, 1.5),
        GroupLagReading("g", "t", 1, 3, None),
        GroupLagReading("g", "t", 2, None, None),
    )
    values = values_of(render(snapshot(groups=attrs.evolve(GROUPS, lags=lags))))
    assert {key: value for key, value in values.items() if "group_lag" in key[0]} == {
        ("trio_broker_group_lag_records", ("g", "0", "t")): 40.0,
        ("trio_broker_group_lag_seconds", ("g", "0", "t")): 1.5,
        ("trio_broker_group_lag_records", ("g", "1", "t")): 3.0,
    }


def test_group_ids_with_quotes_and_line_ends_stay_one_label() -> None:
    hostile = 'a"b\nc\\d} 1 <x> \u202e'
    values = values_of(render(snapshot(groups=GroupReading(lags=(GroupLagReading(hostile, "t", 0, 40, None),)))))
    assert values[("trio_broker_group_lag_records", (hostile, "0", "t"))] == 40.0
