"""The times of requests and syncs as Prometheus histograms.

The bounds are powers of two of a nanosecond, from 33 µs to 17 s, so each is a bound of the broker's own, finer buckets
as well, and every series is exact. Finer ones are at ``/latency`` of the admin API: here each bound is a line for each
phase of each API on every scrape. Sums are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from trio_broker.common.histogram import HistogramSnapshot, upper_bound_ns
from trio_broker.metrics.latency import error_name
from trio_broker.network.request_metrics import RequestTimes
from trio_broker.network.statistics import ProcessorStatistics
from trio_broker.partition.flusher import FlusherStatistics

BOUNDS_NS = tuple(1 << power for power in range(15, 35))


def request_time_metrics(prefix: str, requests: Mapping[str, RequestTimes]) -> Iterator[Metric]:
    """The time of the requests of each API, by phase and in total, and the error codes of their answers."""
    seconds = HistogramMetricFamily(
        f"{prefix}_request_seconds",
        "From a request's last byte to its answer's last byte, by phase; active is the total without purgatory",
        labels=["api", "phase"],
    )
    errors = CounterMetricFamily(
        f"{prefix}_request_errors", "Error codes in answers, of which one may hold many", labels=["api", "error"]
    )
    for api, times in sorted(requests.items()):
        if times.count:
            for phase in times.phases:
                # The phases in which no request ever was are left out: each is two dozen lines.
                if times.phases[phase].counts:
                    add_histogram(seconds, [api, phase.value], times.phase(phase))
            add_histogram(seconds, [api, "total"], times.total)
            add_histogram(seconds, [api, "active"], times.active)
        for code, count in sorted(times.errors.items()):
            errors.add_metric([api, error_name(code)], count)
    yield from (seconds, errors)


def sync_metrics(prefix: str, flusher: FlusherStatistics) -> Iterator[Metric]:
    """What makes records durable: the time of syncs, and whether there are threads enough for them."""
    for name, documentation, times in (
        ("sync_seconds", "Syncs of partitions to the disk", flusher.sync_times),
        ("sync_wait_seconds", "From the wish for a sync until a thread begins it", flusher.wait_times),
    ):
        histogram = HistogramMetricFamily(f"{prefix}_{name}", documentation, labels=[])
        add_histogram(histogram, [], times)
        yield histogram
    occupancy = flusher.occupancy
    yield GaugeMetricFamily(f"{prefix}_sync_threads", "Syncs at a time: num.io.threads", flusher.threads)
    yield GaugeMetricFamily(f"{prefix}_syncs_waiting", "Partitions that wait for a sync thread", occupancy.waiting)
    yield CounterMetricFamily(
        f"{prefix}_sync_all_busy_seconds",
        "Seconds in which all sync threads were busy, so that what came next had to wait",
        occupancy.all_busy_ns / 1e9,
    )
    yield CounterMetricFamily(
        f"{prefix}_sync_busy_seconds", "Seconds busy, summed over the sync threads", occupancy.thread_ns / 1e9
    )
    yield CounterMetricFamily(f"{prefix}_sync_failures", "Syncs that failed, each for good", flusher.failures)


def cold_send_metrics(prefix: str, processors: tuple[ProcessorStatistics, ...]) -> Iterator[Metric]:
    """Sends of what is not in the page cache, each by the one thread of its Processor."""
    labels = ["network_processor"]
    sends = CounterMetricFamily(f"{prefix}_cold_sends", "Sends that had to read the disk", labels=labels)
    busy = CounterMetricFamily(f"{prefix}_cold_send_busy_seconds", "Seconds in which any did", labels=labels)
    for processor in processors:
        sends.add_metric([f"{processor.processor_id}"], processor.cold_sends)
        busy.add_metric([f"{processor.processor_id}"], processor.cold_send_ns / 1e9)
    yield from (sends, busy)


def add_histogram(family: HistogramMetricFamily, labels: list[str], times: HistogramSnapshot) -> None:
    """Add ``times`` with the bounds of this module."""
    remaining = sorted(times.counts.items(), reverse=True)
    cumulative = 0
    buckets = []
    for bound_ns in BOUNDS_NS:
        while remaining and upper_bound_ns(remaining[-1][0]) <= bound_ns:
            cumulative += remaining.pop()[1]
        buckets.append((f"{bound_ns / 1e9!r}", cumulative))
    buckets.append(("+Inf", times.count))
    family.add_metric(labels, buckets, times.sum_ns / 1e9)
