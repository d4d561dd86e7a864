"""Samples: what happened between two readings; and the ring that keeps the last minutes of them.

An idle ratio is one minus the busy time of an interval over the interval, per worker, and a pool's is the mean over
its workers; always within 0 and 1. A worker that began during the interval is judged by its own life only. Nothing is
averaged over longer than the interval, so that what a change did is seen in the next sample.

``Sampler`` takes a reading every second, on the dot: when the loop was too busy to be on time, the interval is longer
and the rates are still right, since they are divided by the time that really passed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import attrs
import trio

from trio_broker.metrics.reading import Reading, WorkerReading

SAMPLE_INTERVAL_SECONDS = 1.0
"""Quick enough that a change is seen within two seconds, slow enough to cost nothing."""

HISTORY_SAMPLES = 300
"""Five minutes, which is what the page draws; some 200 KB."""

MIN_INTERVAL_SECONDS = 1e-3
"""Two readings closer than this are not divided by their distance: the clocks' own grain would be the result."""


@attrs.frozen
class WorkerSample:
    """How idle one worker was over the interval, from 0 to 1."""

    name: str
    idle_ratio: float


@attrs.frozen(kw_only=True)
class Sample:
    """One interval of the broker's life: rates over it, levels at its end."""

    taken_at_ms: int
    interval_seconds: float
    bytes_in_per_second: float
    bytes_out_per_second: float
    records_in_per_second: float
    requests_per_second: float
    network_workers: tuple[WorkerSample, ...]
    io_workers: tuple[WorkerSample, ...]
    network_idle_ratio: float
    io_idle_ratio: float
    queue_depth: int
    queue_capacity: int
    parked_requests: int
    connections: int
    event_loop_busy_ratio: float


def sample_between(earlier: Reading, later: Reading) -> Sample:
    """What happened from ``earlier`` to ``later``."""
    seconds = max(later.taken_at - earlier.taken_at, MIN_INTERVAL_SECONDS)
    network_workers = worker_samples(earlier.network_workers, later.network_workers, earlier.taken_at, later.taken_at)
    io_workers = worker_samples(earlier.io_workers, later.io_workers, earlier.taken_at, later.taken_at)
    return Sample(
        taken_at_ms=later.taken_at_ms,
        interval_seconds=seconds,
        bytes_in_per_second=rate(earlier.bytes_in, later.bytes_in, seconds),
        bytes_out_per_second=rate(earlier.bytes_out, later.bytes_out, seconds),
        records_in_per_second=rate(earlier.records_in, later.records_in, seconds),
        requests_per_second=rate(earlier.requests, later.requests, seconds),
        network_workers=network_workers,
        io_workers=io_workers,
        network_idle_ratio=mean_idle_ratio(network_workers),
        io_idle_ratio=mean_idle_ratio(io_workers),
        queue_depth=later.queue_depth,
        queue_capacity=later.queue_capacity,
        parked_requests=later.parked_requests,
        connections=later.connections,
        event_loop_busy_ratio=ratio((later.event_loop_busy_seconds - earlier.event_loop_busy_seconds) / seconds),
    )


def rate(earlier: float, later: float, seconds: float) -> float:
    """How fast a total grew, per second; a total that was reset did not shrink, so never below zero."""
    return max(0.0, (later - earlier) / seconds)


def ratio(value: float) -> float:
    """``value`` held within 0 and 1: clocks of different grain may put a hair on either end."""
    return min(1.0, max(0.0, value))


def worker_samples(
    earlier: Sequence[WorkerReading], later: Sequence[WorkerReading], from_time: float, to_time: float
) -> tuple[WorkerSample, ...]:
    """The workers of the ``later`` reading; those that ended in between are gone."""
    before = {(worker.name, worker.started_at): worker.busy_seconds for worker in earlier}
    samples = []
    for worker in later:
        busy_before = before.get((worker.name, worker.started_at), 0.0)
        # A count that went down is another worker's: one that took over the name and told no start.
        busy = worker.busy_seconds - (busy_before if busy_before <= worker.busy_seconds else 0.0)
        samples.append(WorkerSample(worker.name, idle_ratio(busy, to_time - max(from_time, worker.started_at))))
    return tuple(samples)


def idle_ratio(busy_seconds: float, seconds: float) -> float:
    """The idle share of an interval; a worker that has only just begun has been idle."""
    return 1.0 if seconds < MIN_INTERVAL_SECONDS else ratio(1 - busy_seconds / seconds)


def mean_idle_ratio(workers: Sequence[WorkerSample]) -> float:
    """A pool's idle ratio; a pool of none is not short of anything."""
    return sum(worker.idle_ratio for worker in workers) / len(workers) if workers else 1.0


class History:
    """The last minutes of samples, and who wants to hear of new ones."""

    def __init__(self, first: Reading, *, capacity: int = HISTORY_SAMPLES) -> None:
        self.latest_reading = first
        self.latest_sample = sample_between(first, first)
        self._samples: deque[Sample] = deque(maxlen=capacity)
        self._listeners: list[Callable[[Sample], None]] = []

    @property
    def samples(self) -> Sequence[Sample]:
        """The samples kept, oldest first; a copy."""
        return tuple(self._samples)

    def add(self, reading: Reading) -> Sample:
        """Make a sample of what happened since the last reading, keep it, and tell the listeners."""
        sample = sample_between(self.latest_reading, reading)
        self.latest_reading, self.latest_sample = reading, sample
        self._samples.append(sample)
        for listener in tuple(self._listeners):
            listener(sample)
        return sample

    def subscribe(self, listener: Callable[[Sample], None]) -> Callable[[], None]:
        """Call ``listener`` with every new sample; returns what ends that. Listeners do not raise."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)


@attrs.define
class Sampler:
    """The task that reads the broker once a second."""

    history: History
    read: Callable[[], Reading]
    interval_seconds: float = SAMPLE_INTERVAL_SECONDS

    async def run(self) -> None:
        """Add a reading to the history every interval, until cancelled."""
        due = trio.current_time() + self.interval_seconds
        while True:
            await trio.sleep_until(due)
            self.history.add(self.read())
            # Beats that were missed are skipped rather than made up for: they would be samples of nothing.
            due = max(due + self.interval_seconds, trio.current_time())
