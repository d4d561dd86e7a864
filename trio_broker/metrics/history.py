"""Samples of the broker, one a second, and the ring that keeps the last minutes of them.

A sample is made when the socket server closes an interval of its ratios: levels and ratios are those of its
``statistics()``, rates are the differences of two readings. When the loop was too busy to be on time the interval is
longer, and the rates are still right, since they are divided by the time that really passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

import attrs

from kafka_wire.apis import ApiKey
from trio_broker.common.request_phase import RequestPhase
from trio_broker.network.request_metrics import NO_REQUESTS, RequestTimes
from trio_broker.network.statistics import ClientBacklog, SocketServerStatistics
from trio_broker.partition.flusher import FlusherStatistics
from trio_broker.partition.log_cleaner import LogCleanerStatistics
from trio_broker.runtime.cpu_clock import CpuTimes

HISTORY_SAMPLES = 300
"""Five minutes, which is what the page draws; some 400 KB."""

MIN_INTERVAL_SECONDS = 1e-3
"""Two readings closer than this are not divided by their distance: the clock's own grain would be the result."""

MEDIAN = 0.5
P99 = 0.99


@attrs.frozen
class FollowerLag:
    """How many partitions wait for a follower, the one of theirs in sync that is furthest behind, and by how many
    records at the most."""

    partitions: int = 0
    lag_records: int = 0

    def plus(self, other: FollowerLag) -> FollowerLag:
        """What waits for it in both."""
        return FollowerLag(self.partitions + other.partitions, max(self.lag_records, other.lag_records))


@attrs.frozen(kw_only=True)
class BrokerReadings:
    """What a sample is made of. ``intervals`` are the requests since the reading before, by API key, and
    ``awaited_followers`` the brokers that high watermarks wait for now."""

    server: SocketServerStatistics
    flusher: FlusherStatistics
    cleaner: LogCleanerStatistics
    cpu: CpuTimes
    appended_records: int
    awaited_followers: Mapping[int, FollowerLag] = attrs.field(factory=dict)
    intervals: Mapping[int, RequestTimes] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class HistorySample:
    """One second of the broker's life: rates and times over that second, levels at its end.

    An idle ratio is one minus the busy share of the interval, from 0 to 1; a pool's is the mean over its workers.
    ``queue_depth`` is the deepest that the queue was. ``delayed_requests`` wait for something other than a handler.

    ``sync_busy_ratio`` is the share of the interval in which all sync threads were busy, so that what came next had to
    wait; ``sync_threads_busy_ratio`` is the mean over the threads, and ``syncs_waiting`` how many partitions waited for
    a thread on average. ``cold_send_busy_ratio`` is that of the Processor whose thread waited longest for the disk,
    ``compaction_busy_ratio`` the share in which compaction worked. The times of Produce and Fetch are from the
    request's last byte to its answer's last byte, without what a Fetch waits for records; 0 without any request.
    ``errors_per_second`` counts error codes in answers; ``disk_wait_ratio`` is the share of their time, purgatory left
    out, that the requests of all APIs waited for syncs.

    ``replication_wait_ratio`` is the share of the time of all requests that those with acks=all waited for followers,
    and ``awaited_followers`` are the brokers that are waited for at the end of the second.

    ``event_loop_cpu_ratio`` is the CPU time of the event loop's thread over the interval, ``process_cpu_ratio`` that of
    all threads of the broker, above 1 when they use several CPUs. ``cpu_pressure_ratio`` is the share of the interval
    in which some task of the machine, the broker's included, waited for a CPU; None where the kernel does not count it.

    ``unread_bytes`` were sent by clients and read by nobody. ``backlog`` is the client with the largest that has waited
    for seconds, behind its own requests in flight; the next of them will wait for ``unread_wait_ms`` at least, which is
    0 without a backlog and None while nothing of it is read.
    """

    sampled_at_ms: int
    bytes_in_per_second: float
    bytes_out_per_second: float
    records_in_per_second: float
    requests_per_second: float
    errors_per_second: float
    disk_wait_ratio: float
    replication_wait_ratio: float
    produce_p50_ms: float
    produce_p99_ms: float
    fetch_p50_ms: float
    fetch_p99_ms: float
    network_idle_ratio: float
    network_idle_ratios: tuple[float, ...]
    io_idle_ratio: float
    io_idle_ratios: tuple[float, ...]
    queue_depth: int
    queue_capacity: int
    delayed_requests: int
    connections: int
    event_loop_busy_ratio: float
    sync_threads: int
    sync_busy_ratio: float
    sync_threads_busy_ratio: float
    syncs_per_second: float
    syncs_waiting: float
    sync_p50_ms: float
    sync_p99_ms: float
    sync_wait_p99_ms: float
    cold_send_busy_ratio: float
    cold_sends_per_second: float
    compaction_busy_ratio: float
    compaction_bytes_per_second: float
    event_loop_cpu_ratio: float
    process_cpu_ratio: float
    cpu_pressure_ratio: float | None
    unread_bytes: int
    unread_wait_ms: float | None
    backlog: ClientBacklog | None
    awaited_followers: Mapping[int, FollowerLag] = attrs.field(factory=dict)


SERIES = tuple(
    field.name
    for field in attrs.fields(HistorySample)
    if str(field.type) in ("float", "float | None", "int") and field.name != "sampled_at_ms"
)
"""The numbers of a sample by name, each of them a series over time (``series.py``)."""


def sample_between(earlier: BrokerReadings, later: BrokerReadings, sampled_at_ms: int) -> HistorySample:
    """What happened from ``earlier`` to ``later``."""
    before, server = earlier.server, later.server
    seconds = max((server.measured_ns - before.measured_ns) / 1e9, MIN_INTERVAL_SECONDS)
    occupied, occupied_before = later.flusher.occupancy, earlier.flusher.occupancy
    sync_times = later.flusher.sync_times.minus(earlier.flusher.sync_times)
    wait_times = later.flusher.wait_times.minus(earlier.flusher.wait_times)
    produce = later.intervals.get(ApiKey.PRODUCE, NO_REQUESTS)
    fetch = later.intervals.get(ApiKey.FETCH, NO_REQUESTS)
    cold_send_ns = {each.processor_id: each.cold_send_ns for each in before.processors}
    cold_sends = sum(each.cold_sends for each in server.processors) - sum(each.cold_sends for each in before.processors)
    compacted_bytes = later.cleaner.bytes_read + later.cleaner.bytes_written
    compacted_bytes_before = earlier.cleaner.bytes_read + earlier.cleaner.bytes_written
    pressure_ns = waited_for_cpus(earlier.cpu, later.cpu)

    def share(nanoseconds: int) -> float:
        # The parts are not read at the very same moment as the server, so that a share of all of it may exceed it.
        return min(1.0, nanoseconds / 1e9 / seconds)

    return HistorySample(
        sampled_at_ms=sampled_at_ms,
        bytes_in_per_second=(server.bytes_in - before.bytes_in) / seconds,
        bytes_out_per_second=(server.bytes_out - before.bytes_out) / seconds,
        records_in_per_second=(later.appended_records - earlier.appended_records) / seconds,
        requests_per_second=(server.requests - before.requests) / seconds,
        errors_per_second=sum(sum(times.errors.values()) for times in later.intervals.values()) / seconds,
        disk_wait_ratio=disk_wait_ratio(later.intervals.values()),
        replication_wait_ratio=replication_wait_ratio(later.intervals),
        # Of its whole time: what it waits for in purgatory are other replicas.
        produce_p50_ms=produce.total.quantile_ms(MEDIAN),
        produce_p99_ms=produce.total.quantile_ms(P99),
        fetch_p50_ms=fetch.active.quantile_ms(MEDIAN),
        fetch_p99_ms=fetch.active.quantile_ms(P99),
        network_idle_ratio=server.network_idle_ratio,
        network_idle_ratios=tuple(processor.idle_ratio for processor in server.processors),
        io_idle_ratio=server.handler_idle_ratio,
        io_idle_ratios=tuple(slot.idle_ratio for slot in server.handlers.slots),
        queue_depth=server.channel.recent_peak_depth,
        queue_capacity=server.channel.capacity,
        delayed_requests=server.handlers.delayed,
        connections=server.connections,
        event_loop_busy_ratio=server.loop_busy_ratio,
        sync_threads=later.flusher.threads,
        sync_busy_ratio=share(occupied.all_busy_ns - occupied_before.all_busy_ns),
        sync_threads_busy_ratio=share((occupied.thread_ns - occupied_before.thread_ns) // later.flusher.threads),
        syncs_per_second=sync_times.count / seconds,
        syncs_waiting=(occupied.waiting_ns - occupied_before.waiting_ns) / 1e9 / seconds,
        sync_p50_ms=sync_times.quantile_ms(MEDIAN),
        sync_p99_ms=sync_times.quantile_ms(P99),
        sync_wait_p99_ms=wait_times.quantile_ms(P99),
        cold_send_busy_ratio=max(
            (share(each.cold_send_ns - cold_send_ns.get(each.processor_id, 0)) for each in server.processors),
            default=0.0,
        ),
        cold_sends_per_second=max(0, cold_sends) / seconds,
        compaction_busy_ratio=share(later.cleaner.busy_ns - earlier.cleaner.busy_ns),
        compaction_bytes_per_second=(compacted_bytes - compacted_bytes_before) / seconds,
        event_loop_cpu_ratio=share(later.cpu.loop_ns - earlier.cpu.loop_ns),
        process_cpu_ratio=(later.cpu.process_ns - earlier.cpu.process_ns) / 1e9 / seconds,
        cpu_pressure_ratio=None if pressure_ns is None else share(pressure_ns),
        unread_bytes=server.unread_bytes,
        unread_wait_ms=unread_wait_ms(server.backlog),
        backlog=server.backlog,
        awaited_followers=later.awaited_followers,
    )


def waited_for_cpus(earlier: CpuTimes, later: CpuTimes) -> int | None:
    """The nanoseconds between two readings in which some task waited for a CPU; None where that is not known."""
    if earlier.pressure_ns is None or later.pressure_ns is None:
        return None
    return later.pressure_ns - earlier.pressure_ns


def unread_wait_ms(backlog: ClientBacklog | None) -> float | None:
    if backlog is None:
        return 0.0
    return None if backlog.wait_seconds is None else 1000 * backlog.wait_seconds


def replication_wait_ratio(intervals: Mapping[int, RequestTimes]) -> float:
    """The share of their time that requests waited for other replicas; long polls are no part of it."""
    purgatory = intervals.get(ApiKey.PRODUCE, NO_REQUESTS).phases.get(RequestPhase.PURGATORY)
    waited_ns = 0 if purgatory is None else purgatory.sum_ns
    whole_ns = waited_ns + sum(times.active.sum_ns for times in intervals.values())
    return waited_ns / whole_ns if whole_ns else 0.0


def disk_wait_ratio(requests: Collection[RequestTimes]) -> float:
    """The share of their time that ``requests`` waited for syncs."""
    active_ns = sum(times.active.sum_ns for times in requests)
    waited_ns = sum(times.phases[RequestPhase.DISK].sum_ns for times in requests if RequestPhase.DISK in times.phases)
    return waited_ns / active_ns if active_ns else 0.0


class History:
    """The last minutes of samples, and the listeners to new ones."""

    def __init__(self, first: BrokerReadings, now_ms: Callable[[], int], *, capacity: int = HISTORY_SAMPLES) -> None:
        self._latest = first
        self._now_ms = now_ms
        self._samples: deque[HistorySample] = deque(maxlen=capacity)
        self._listeners: list[Callable[[HistorySample], None]] = []

    @property
    def samples(self) -> Sequence[HistorySample]:
        """The samples kept, oldest first; a copy."""
        return tuple(self._samples)

    def add(self, readings: BrokerReadings) -> None:
        """Keep a sample of what happened since the last one, and pass it to the listeners."""
        sample = sample_between(self._latest, readings, self._now_ms())
        self._latest = readings
        self._samples.append(sample)
        for listener in tuple(self._listeners):
            listener(sample)

    def subscribe(self, listener: Callable[[HistorySample], None]) -> None:
        """Call ``listener`` with every new sample. Listeners do not raise."""
        self._listeners.append(listener)
