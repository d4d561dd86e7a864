"""The broker's numbers as Prometheus metrics, named in Kafka's spirit under ``trio_broker_``.

A scrape is two steps: a ``MetricsSnapshot`` of the parts' own ``statistics()`` is taken on the event loop, which is
quick, and ``render`` turns it into text in any thread, which is not. Nothing is counted for Prometheus alone: page and
metrics read the same statistics. Totals are counters, of which Prometheus makes rates by itself; ratios are those of
the last second, and the busy seconds give them for any other interval.

Series per partition, and of each group's lag in each, are written only when asked for: a thousand of them are a
thousand lines on every scrape. The same holds for the names of other exporters. Each rendering has its own registry, so
that several brokers may live in one process.

Importing this module imports prometheus_client, which takes longer than a broker's start-up may: import it lazily.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import attrs
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from trio_broker.coordinator.reporting.snapshot import ConsumerLag, GroupPartitionLag
from trio_broker.coordinator.reporting.statistics import GroupStatistics
from trio_broker.coordinator.transactions.transaction_snapshot import TransactionStatistics
from trio_broker.metrics.jmx_exporter_names import jmx_exporter_metrics, jmx_start_metrics
from trio_broker.metrics.kafka_exporter_names import kafka_exporter_metrics
from trio_broker.metrics.prometheus_recovery import recovery_metrics
from trio_broker.metrics.prometheus_times import cold_send_metrics, request_time_metrics, sync_metrics
from trio_broker.metrics.promql import PREFIX
from trio_broker.metrics.snapshot import ClusterReading, DirectorySpace, MetricsSnapshot, PartitionReading
from trio_broker.metrics.streamed_metric import LabelledValue, streamed_metric, values_of_partitions
from trio_broker.network.errors import CloseCause
from trio_broker.network.statistics import HandlerSlotStatistics, ProcessorStatistics, SocketServerStatistics
from trio_broker.partition.log_cleaner import LogCleanerStatistics
from trio_broker.partition.log_scrubber import LogScrubberStatistics
from trio_broker.runtime.cpu_clock import CpuTimes
from trio_broker.storage.recovery_progress import RecoveryProgress

NAMES: Mapping[str, Callable[[MetricsSnapshot], Iterator[Metric]]] = {
    "kafka-exporter": kafka_exporter_metrics,
    "jmx-exporter": jmx_exporter_metrics,
}
"""The values of ``metrics.names``: whose names the numbers get as well."""


def render(snapshot: MetricsSnapshot) -> bytes:
    """``snapshot`` in Prometheus's text format, with the process's own memory, CPU and file descriptors."""
    return text_of(SnapshotCollector(snapshot))


def render_start(progress: RecoveryProgress, names: Sequence[str]) -> bytes:
    """As ``render``, what there is of a broker that starts; ``names`` are those of ``metrics.names``."""
    return text_of(StartCollector(progress, names))


def text_of(collector: Collector) -> bytes:
    registry = CollectorRegistry()
    registry.register(collector)
    # Without a prefix of ours: every Prometheus client calls them process_*, and dashboards look for that.
    ProcessCollector(registry=registry)
    return generate_latest(registry)


@attrs.define(eq=False)  # a registry keeps collectors by identity
class StartCollector(Collector):
    """The start of a broker as prometheus_client reads it."""

    progress: RecoveryProgress
    names: Sequence[str]

    def collect(self) -> Iterator[Metric]:
        """All metric families."""
        yield from recovery_metrics(PREFIX, self.progress)
        if "jmx-exporter" in self.names:
            yield from jmx_start_metrics(self.progress)


@attrs.define(eq=False)
class SnapshotCollector(Collector):
    """A snapshot as prometheus_client reads it."""

    snapshot: MetricsSnapshot

    def collect(self) -> Iterator[Metric]:
        """All metric families."""
        snapshot = self.snapshot
        yield from node_metrics(snapshot)
        yield from cluster_metrics(snapshot.cluster)
        yield from directory_metrics(snapshot.directories)
        yield from traffic_metrics(snapshot)
        yield from access_metrics(snapshot)
        yield from queue_metrics(snapshot.server)
        yield from worker_metrics(
            "network_processor",
            "network thread",
            {f"{each.processor_id}": each for each in snapshot.server.processors},
            snapshot.server.network_idle_ratio,
        )
        yield from worker_metrics(
            "request_handler",
            "handler slot",
            {f"{each.slot}": each for each in snapshot.server.handlers.slots},
            snapshot.server.handler_idle_ratio,
        )
        yield from event_loop_metrics(snapshot.server, snapshot.cpu)
        yield from request_time_metrics(PREFIX, snapshot.requests)
        yield from sync_metrics(PREFIX, snapshot.replicas.flusher)
        yield from cold_send_metrics(PREFIX, snapshot.server.processors)
        yield from group_metrics(snapshot.groups)
        yield from transaction_metrics(snapshot.transactions)
        yield from compaction_metrics(snapshot.cleaner)
        yield from scrubber_metrics(snapshot.scrubber)
        yield from recovery_metrics(PREFIX, snapshot.recovery)
        if snapshot.per_partition:
            yield from partition_metrics(snapshot.partitions)
            yield from group_lag_metrics(snapshot.lags)
        for names in snapshot.names:
            yield from NAMES[names](snapshot)


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
    yield gauge("topics", "Topics of this broker", snapshot.replicas.topics)
    yield gauge("partitions", "Partitions of this broker", snapshot.replicas.partitions)
    yield gauge("partitions_unreadable", "Partitions that cannot be read", snapshot.unreadable_partitions)
    yield gauge("groups_falling_behind", "Groups whose lag grows", snapshot.groups_falling_behind)
    yield gauge("groups_rebalancing_often", "Groups that keep rebalancing", snapshot.restless_groups)
    yield gauge("log_size_bytes", "Bytes of all partitions' logs", snapshot.log_size_bytes)


def cluster_metrics(cluster: ClusterReading) -> Iterator[Metric]:
    """The cluster as this broker knows it, and what it replicates."""
    yield gauge("active_controller", "Whether this broker is the controller", cluster.is_controller)
    yield gauge("controller_known", "Whether some broker is the controller", cluster.has_controller)
    yield gauge("metadata_reached", "Whether the metadata can be changed", cluster.metadata_is_reached)
    yield gauge("brokers_fenced", "Brokers of the cluster that are out of contact", cluster.fenced_brokers)
    yield gauge("partitions_offline", "Partitions of the cluster that nobody leads", cluster.offline_partitions)
    yield gauge("partitions_led", "Partitions that this broker leads", cluster.led_partitions)
    yield gauge("partitions_under_replicated", "Led partitions short of replicas in sync", cluster.under_replicated)
    yield gauge("partitions_under_min_isr", "Led partitions that take no acks=all", cluster.under_min_isr)
    yield counter("isr_shrinks", "Times that led partitions lost replicas in sync", cluster.isr_shrinks)
    yield counter("isr_expands", "Times that led partitions gained replicas in sync", cluster.isr_expands)
    yield counter("leader_elections", "Elections while this broker was the controller", cluster.elections)
    yield counter("unclean_leader_elections", "Those of replicas not in sync", cluster.unclean_elections)
    yield counter("replicated_bytes", "Bytes fetched from leaders", cluster.replicated_bytes)
    yield gauge("replica_fetcher_max_lag", "Most records that a followed partition lacks", cluster.fetcher_max_lag)
    yield gauge(
        "replica_fetcher_failed_partitions",
        "Followed partitions that are fetched no more",
        cluster.fetcher_failed_partitions,
    )


def directory_metrics(directories: Sequence[DirectorySpace]) -> Iterator[Metric]:
    """The data directories and the volumes they are on."""

    def by_directory(name: str, documentation: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"{PREFIX}_data_directory_{name}", documentation, labels=["directory"])

    failed = by_directory("failed", "Whether the directory is out of use")
    total = by_directory("total_bytes", "Size of the directory's volume")
    usable = by_directory("usable_bytes", "Bytes that may still be written to the directory's volume")
    for each in directories:
        failed.add_metric([each.path], each.is_failed)
        for family, size in ((total, each.total_bytes), (usable, each.usable_bytes)):
            if size is not None:
                family.add_metric([each.path], size)
    yield from (failed, total, usable)


def traffic_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """Bytes, records, requests and connections."""
    server = snapshot.server
    yield counter("bytes_in", "Bytes received from clients", server.bytes_in)
    yield counter("bytes_out", "Bytes sent to clients", server.bytes_out)
    yield counter("records_in", "Records appended for producers", snapshot.replicas.appended_records)
    yield counter("requests", "Requests answered", server.requests)
    by_api = CounterMetricFamily(f"{PREFIX}_api_requests", "Requests answered, by API", labels=["api"])
    for api, times in sorted(snapshot.requests.items()):
        by_api.add_metric([api], times.count)
    yield by_api
    yield gauge("connections", "Open connections", server.connections)
    yield counter("connections_accepted", "Connections accepted", server.connections_accepted)


def access_metrics(snapshot: MetricsSnapshot) -> Iterator[Metric]:
    """Who was refused, and who was slowed down."""
    logins, access = snapshot.server.connections_closed.get(CloseCause.AUTHENTICATION.value, 0), snapshot.access
    yield counter("failed_logins", "Connections closed for a failed login, or for none in time", logins)
    yield counter("failed_admin_logins", "Logins at the admin app that were refused", access.failed_admin_logins)
    yield counter("denied_requests", "Requests that lacked a right", access.denied_requests)
    yield counter("throttled_requests", "Requests whose clients had to wait for a quota", access.throttled_requests)
    yield counter("throttled_seconds", "Seconds that clients had to wait for quotas", access.throttled_seconds)


def queue_metrics(server: SocketServerStatistics) -> Iterator[Metric]:
    """What lies between the network threads and the handlers, and what waits beside them."""
    yield gauge("request_queue_size", "Requests waiting for a handler", server.channel.recent_peak_depth)
    yield gauge("request_queue_capacity", "Requests that may wait: queued.max.requests", server.channel.capacity)
    yield gauge("purgatory_size", "Requests that wait without holding a handler", server.handlers.delayed)
    yield gauge("unread_bytes", "Bytes that clients have sent and nobody has read", server.unread_bytes)
    wait = 0.0 if server.backlog is None else server.backlog.wait_seconds
    if wait is not None:
        yield gauge("unread_wait_seconds", "Wait of the next request of the client with the largest backlog", wait)


def worker_metrics(
    name: str, what: str, workers: Mapping[str, ProcessorStatistics | HandlerSlotStatistics], mean_idle_ratio: float
) -> Iterator[Metric]:
    """One pool: its size, its idle ratio, and both readings of each worker."""
    yield gauge(f"{name}s", f"Size of the pool, one per {what}", len(workers))
    yield gauge(f"{name}_avg_idle_ratio", f"Idle share of the last second, mean over every {what}", mean_idle_ratio)
    idle = GaugeMetricFamily(f"{PREFIX}_{name}_idle_ratio", f"Idle share of the last second, per {what}", labels=[name])
    busy = CounterMetricFamily(f"{PREFIX}_{name}_busy_seconds", f"Seconds busy, per {what}", labels=[name])
    for label, worker in workers.items():
        idle.add_metric([label], worker.idle_ratio)
        busy.add_metric([label], worker.busy_ns / 1e9)
    yield from (idle, busy)


def event_loop_metrics(server: SocketServerStatistics, cpu: CpuTimes) -> Iterator[Metric]:
    """The loop that all of them share, and whether it had a CPU."""
    yield gauge("event_loop_busy_ratio", "Busy share of the event loop's last second", server.loop_busy_ratio)
    yield counter("event_loop_busy_seconds", "Seconds the event loop did not wait", server.loop_busy_ns / 1e9)
    yield counter("event_loop_cpu_seconds", "CPU seconds of the event loop's thread", cpu.loop_ns / 1e9)
    if cpu.pressure_ns is not None:
        yield counter(
            "cpu_pressure_seconds", "Seconds some task of the machine waited for a CPU", cpu.pressure_ns / 1e9
        )


def group_metrics(groups: GroupStatistics) -> Iterator[Metric]:
    """The groups that this broker coordinates."""
    by_kind = GaugeMetricFamily(f"{PREFIX}_groups", "Groups, by type and state", labels=["type", "state"])
    for kind, count in sorted(groups.groups.items(), key=lambda item: (item[0].type.value, item[0].state)):
        by_kind.add_metric([kind.type.value, kind.state], count)
    yield by_kind
    yield gauge("group_members", "Members of all groups", groups.members)
    yield gauge("group_committed_offsets", "Committed offsets that are kept", groups.committed_offsets)
    yield gauge("group_loading_partitions", "Partitions of __consumer_offsets that are being loaded", groups.loading)
    yield counter("group_offset_commits", "Offsets committed", groups.commits)
    yield counter("group_rebalances", "Rebalances finished", groups.rebalances)


def transaction_metrics(transactions: TransactionStatistics) -> Iterator[Metric]:
    """The transactions that this broker coordinates, and what they hold back."""
    by_state = GaugeMetricFamily(f"{PREFIX}_transactional_ids", "Transactional ids, by state", labels=["state"])
    for state, count in sorted(transactions.transactions.items()):
        by_state.add_metric([state], count)
    yield by_state
    yield gauge("transaction_oldest_seconds", "Age of the oldest open transaction", transactions.oldest_seconds)
    yield gauge("transactions_overdue", "Transactions that should have been ended by the broker", transactions.overdue)
    yield gauge(
        "transaction_markers_pending",
        "Partitions of decided transactions that have no marker yet",
        transactions.markers_pending,
    )
    yield gauge(
        "transaction_loading_partitions",
        "Partitions of __transaction_state that are being loaded",
        transactions.loading,
    )
    yield counter("transactions_committed", "Transactions committed", transactions.committed)
    yield counter("transactions_aborted", "Transactions aborted, those that timed out too", transactions.aborted)
    yield counter("transactions_timed_out", "Transactions aborted after their timeout", transactions.timed_out)
    yield gauge(
        "partitions_held_back",
        "Partitions whose last stable offset is behind the high watermark",
        transactions.partitions_held_back,
    )
    yield gauge(
        "partitions_with_hanging_transactions",
        "Partitions held back by a transaction that no coordinator will end",
        transactions.hanging_transactions,
    )


def group_lag_metrics(lags: Sequence[GroupPartitionLag]) -> Iterator[Metric]:
    """The lag of each group in each partition, as far as it is known: only when asked for."""
    for name, documentation, read in (
        ("records", "Records not consumed yet", lambda lag: lag.lag_records),
        ("seconds", "Seconds since the first record not consumed yet was appended", lambda lag: lag.lag_seconds),
    ):
        yield streamed_metric(f"{PREFIX}_group_lag_{name}", documentation, partial(known_lags, lags, read))


def known_lags(
    lags: Sequence[GroupPartitionLag], read: Callable[[ConsumerLag], float | None]
) -> Iterator[LabelledValue]:
    for each in lags:
        if (value := read(each.lag)) is not None:
            yield {"group": each.group_id, "topic": each.lag.topic, "partition": str(each.lag.partition)}, value


def compaction_metrics(cleaner: LogCleanerStatistics) -> Iterator[Metric]:
    """What the log cleaner does, and how many partitions it has given up."""
    yield counter("log_cleaner_rounds", "Rounds of compaction, each over one partition", cleaner.rounds)
    yield counter("log_cleaner_bytes_read", "Bytes that compaction has read", cleaner.bytes_read)
    yield counter("log_cleaner_busy_seconds", "Seconds in which compaction worked", cleaner.busy_ns / 1e9)
    yield counter("log_cleaner_bytes_written", "Bytes that compaction has written", cleaner.bytes_written)
    yield gauge("log_cleaner_max_dirty_ratio", "Dirty share of the dirtiest partition", cleaner.max_dirty_ratio)
    yield gauge(
        "log_cleaner_uncleanable_partitions",
        "Partitions that compaction leaves alone because it failed there",
        len(cleaner.uncleanable),
    )


def scrubber_metrics(scrubber: LogScrubberStatistics) -> Iterator[Metric]:
    """How far the scrubber has come, and in how many segments it found damage."""
    yield counter("log_scrubber_passes", "Passes of the scrubber over all logs", scrubber.passes)
    yield counter("log_scrubber_segments", "Segments that the scrubber has read", scrubber.segments)
    yield counter("log_scrubber_bytes_read", "Bytes that the scrubber has read", scrubber.bytes_read)
    yield gauge("log_scrubber_damaged_segments", "Segments in which the scrubber found damage", len(scrubber.damaged))


OF_PARTITIONS: Mapping[str, tuple[str, Callable[[PartitionReading], int]]] = {
    "log_start_offset": ("First offset kept", lambda each: each.log_start_offset),
    "last_stable_offset": ("End of what consumers of committed records may read", lambda each: each.last_stable_offset),
    "high_watermark": ("End of what consumers may read", lambda each: each.high_watermark),
    "log_end_offset": ("Offset of the next record", lambda each: each.log_end_offset),
    "size_bytes": ("Bytes of the partition's log", lambda each: each.size_bytes),
}
"""By the last part of their name: what it is, and its value."""


def partition_metrics(partitions: Sequence[PartitionReading]) -> Iterator[Metric]:
    """The series that are written only when asked for."""
    for name, (documentation, value) in OF_PARTITIONS.items():
        yield streamed_metric(
            f"{PREFIX}_partition_{name}", documentation, partial(values_of_partitions, partitions, value)
        )
