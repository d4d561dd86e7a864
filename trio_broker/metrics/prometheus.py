"""The broker's numbers as Prometheus metrics, named in Kafka's spirit under ``trio_broker_``.

A scrape is two steps: a ``MetricsSnapshot`` is taken on the event loop, which is quick, and ``render`` turns it into
text in any thread, which is not. Nothing is counted twice for Prometheus's sake: the collector reads the same totals
and the same sample that the admin page shows. Totals are counters (Prometheus makes rates of them itself); ratios are
those of the last second, and the busy seconds are there for whoever wants another interval.

Series per partition, and of each group's lag in each, are written only when the snapshot holds them: a thousand of them
are a thousand lines on every scrape. Each rendering has its own registry, so that several brokers may live in one
process.

Importing this module imports prometheus_client, which takes longer than a broker's start-up may: import it lazily.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from trio_broker.metrics.history import Sample, WorkerSample
from trio_broker.metrics.reading import (
    CompactionReading,
    GroupLagReading,
    GroupReading,
    PartitionReading,
    Reading,
    WorkerReading,
)

PREFIX = "trio_broker"


@attrs.frozen(kw_only=True)
class MetricsSnapshot:
    """Everything a scrape tells, taken at one moment."""

    version: str
    node_id: int
    cluster_id: str
    durability: str
    uptime_seconds: float
    topic_count: int
    partition_count: int
    log_size_bytes: int
    reading: Reading
    sample: Sample
    groups: GroupReading
    partitions: tuple[PartitionReading, ...] = ()
    compaction: CompactionReading | None = None


def render(snapshot: MetricsSnapshot) -> bytes:
    """``snapshot`` in Prometheus's text format, with the process's own memory, CPU and file descriptors."""
    registry = CollectorRegistry()
    registry.register(SnapshotCollector(snapshot))
    # Without a prefix of ours: every Prometheus client calls them process_*, and dashboards look for that.
    ProcessCollector(registry=registry)
    return generate_latest(registry)


@attrs.define(eq=False)  # a registry keeps collectors by identity
class SnapshotCollector(Collector):
    """Tells prometheus_client what a snapshot says."""

    snapshot: MetricsSnapshot

    def collect(self) -> Iterator[Metric]:
        """All metric families."""
        yield from node_metrics(self.snapshot)
        yield from traffic_metrics(self.snapshot.reading)
        yield from queue_metrics(self.snapshot.reading)
        yield from worker_metrics(
            "network_processor", "network thread", self.snapshot.reading.network_workers,
            self.snapshot.sample.network_workers, self.snapshot.sample.network_idle_ratio,
        )  # fmt: skip
        yield from worker_metrics(
            "request_handler", "handler slot", self.snapshot.reading.io_workers,
            self.snapshot.sample.io_workers, self.snapshot.sample.io_idle_ratio,
        )  # fmt: skip
        yield from event_loop_metrics(self.snapshot.reading, self.snapshot.sample)
        yield from group_metrics(self.snapshot.groups)
        if self.snapshot.compaction is not None:
            yield from compaction_metrics(self.snapshot.compaction)
        if self.snapshot.partitions:
            yield from partition_metrics(self.snapshot.partitions)
        if self.snapshot.groups.lags:
            yield from group_lag_metrics(self.snapshot.groups.lags)


def gauge(name: str, documentation: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", documentation, value=value)


def counter(name: str, documentation: str, value: float) -> Metric:
    """A counter; Prometheus's text adds ``_total`` to the name."""
    return CounterMetricFamily(f"{PREFIX}_{name}", documentation, value=value)


def node_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """Who the broker is, and how much it holds."""
    labels = {
        "version": snapshot.version,
        "node_id": str(snapshot.node_id),
        "cluster_id": snapshot.cluster_id,
        "durability": snapshot.durability,
    }
    yield InfoMetricFamily(f"{PREFIX}_node", "Who the broker is", value=labels)
    yield gauge("uptime_seconds", "Seconds since the broker started", snapshot.uptime_seconds)
    yield gauge("topic_count", "Topics of this broker", snapshot.topic_count)
    yield gauge("partition_count", "Partitions of this broker", snapshot.partition_count)
    yield gauge("log_size_bytes", "Bytes of all partitions' logs", snapshot.log_size_bytes)


def traffic_metrics(reading: Reading) -> Iterator[Metric]:
    """Bytes, records, requests and connections."""
    yield counter("bytes_in", "Bytes received from clients", reading.bytes_in)
    yield counter("bytes_out", "Bytes sent to clients", reading.bytes_out)
    yield counter("records_in", "Records appended for producers", reading.records_in)
    yield counter("requests", "Requests answered", reading.requests)
    by_api = CounterMetricFamily(f"{PREFIX}_api_requests", "Requests answered, by API", labels=["api"])
    for api, count in sorted(reading.requests_by_api.items()):
        by_api.add_metric([api], count)
    yield by_api
    yield gauge("connections", "Open connections", reading.connections)
    yield counter("connections_accepted", "Connections accepted", reading.connections_accepted)


def queue_metrics(reading: Reading) -> Iterator[Metric]:
    """What lies between the network threads and the handlers, and what waits beside them."""
    yield gauge("request_queue_size", "Requests waiting for a handler", reading.queue_depth)
    yield gauge("request_queue_capacity", "Requests that may wait: queued.max.requests", reading.queue_capacity)
    yield gauge("purgatory_size", "Requests that wait without holding a handler", reading.parked_requests)


def worker_metrics(
    name: str, what: str, readings: Sequence[WorkerReading], samples: Sequence[WorkerSample], mean_idle_ratio: float
) -> Iterator[Metric]:
    """One pool: its size, its idle ratio, and both readings of each worker."""
    yield gauge(f"{name}_count", f"Size of the pool, one per {what}", len(readings))
    yield gauge(f"{name}_avg_idle_ratio", f"Idle share of the last second, mean over every {what}", mean_idle_ratio)
    idle = GaugeMetricFamily(f"{PREFIX}_{name}_idle_ratio", f"Idle share of the last second, per {what}", labels=[name])
    for sample in samples:
        idle.add_metric([sample.name], sample.idle_ratio)
    yield idle
    busy = CounterMetricFamily(f"{PREFIX}_{name}_busy_seconds", f"Seconds busy, per {what}", labels=[name])
    for reading in readings:
        busy.add_metric([reading.name], reading.busy_seconds)
    yield busy


def event_loop_metrics(reading: Reading, sample: Sample) -> Iterator[Metric]:
    """The loop that all of them share."""
    yield gauge("event_loop_busy_ratio", "Busy share of the event loop's last second", sample.event_loop_busy_ratio)
    yield counter("event_loop_busy_seconds", "Seconds the event loop did not wait", reading.event_loop_busy_seconds)


def group_metrics(groups: GroupReading) -> Iterator[Metric]:
    """The groups that this broker coordinates."""
    by_kind = GaugeMetricFamily(f"{PREFIX}_groups", "Groups, by type and state", labels=["type", "state"])
    for count in sorted(groups.groups, key=lambda count: (count.type, count.state)):
        by_kind.add_metric([count.type, count.state], count.count)
    yield by_kind
    yield gauge("group_members", "Members of all groups", groups.members)
    yield gauge("group_committed_offsets", "Committed offsets that are kept", groups.committed_offsets)
    yield gauge(
        "group_loading_partitions", "Partitions of __consumer_offsets that are being loaded", groups.loading_partitions
    )
    yield counter("group_offset_commits", "Offsets committed", groups.offset_commits)
    yield counter("group_rebalances", "Rebalances finished", groups.rebalances)


def group_lag_metrics(lags: Sequence[GroupLagReading]) -> Iterator[Metric]:
    """The lag of each group in each partition: only when asked for."""
    labels = ["group", "topic", "partition"]
    records = GaugeMetricFamily(f"{PREFIX}_group_lag_records", "Records not consumed yet", labels=labels)
    seconds = GaugeMetricFamily(
        f"{PREFIX}_group_lag_seconds", "Seconds since the first record not consumed yet was appended", labels=labels
    )
    for lag in lags:
        values = [lag.group_id, lag.topic, str(lag.partition)]
        if lag.lag_records is not None:
            records.add_metric(values, lag.lag_records)
        if lag.lag_seconds is not None:
            seconds.add_metric(values, lag.lag_seconds)
    yield from (records, seconds)


def compaction_metrics(compaction: CompactionReading) -> Iterator[Metric]:
    """What the log cleaner does, and how many partitions want a human's look."""
    yield counter("log_cleaner_rounds", "Rounds of compaction, each over one partition", compaction.rounds)
    yield counter("log_cleaner_bytes_read", "Bytes that compaction has read", compaction.bytes_read)
    yield counter("log_cleaner_bytes_written", "Bytes that compaction has written", compaction.bytes_written)
    yield gauge("log_cleaner_max_dirty_ratio", "Dirty share of the dirtiest partition", compaction.max_dirty_ratio)
    yield gauge(
        "log_cleaner_uncleanable_partitions",
        "Partitions that compaction leaves alone because it failed there",
        compaction.uncleanable_partitions,
    )


def partition_metrics(partitions: Sequence[PartitionReading]) -> Iterator[Metric]:
    """The series that are written only when asked for."""
    labels = ["topic", "partition"]
    start = GaugeMetricFamily(f"{PREFIX}_partition_log_start_offset", "First offset kept", labels=labels)
    watermark = GaugeMetricFamily(f"{PREFIX}_partition_high_watermark", "End of what consumers may read", labels=labels)
    end = GaugeMetricFamily(f"{PREFIX}_partition_log_end_offset", "Offset of the next record", labels=labels)
    size = GaugeMetricFamily(f"{PREFIX}_partition_size_bytes", "Bytes of the partition's log", labels=labels)
    for partition in partitions:
        values = [partition.topic, str(partition.partition)]
        start.add_metric(values, partition.log_start_offset)
        watermark.add_metric(values, partition.high_watermark)
        end.add_metric(values, partition.log_end_offset)
        size.add_metric(values, partition.size_bytes)
    yield from (start, watermark, end, size)
