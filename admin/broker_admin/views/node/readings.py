"""What the broker measures of itself: threads, history, metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import attrs

from trio_broker.metrics.history import HistorySample


@attrs.frozen
class WorkerStatistics:
    """One network thread or handler slot; ``idle_ratio`` over the last sample's second."""

    name: str
    idle_ratio: float


@attrs.frozen
class PoolStatistics:
    """A pool of workers. ``size`` is what is configured; while a pool shrinks it may still have more workers."""

    size: int
    idle_ratio: float
    workers: tuple[WorkerStatistics, ...]


@attrs.frozen
class QueueStatistics:
    """The request channel between network threads and handlers."""

    depth: int
    capacity: int


@attrs.frozen
class ThreadStatistics:
    """Both pools, what lies between them, and the loop they all share.

    ``delayed_requests`` wait for something other than a slot (long polls, acks=all) and occupy none.
    """

    network: PoolStatistics
    io: PoolStatistics
    queue: QueueStatistics
    delayed_requests: int
    event_loop_busy_ratio: float


@attrs.frozen
class SeriesReport:
    """Readings over time: when each step began, and a value per step in each series.

    ``step_ms`` is what was asked for; steps further back than the seconds in memory are whole minutes. Steps without
    any reading are left out, and null is what was not measured then.
    """

    step_ms: int
    times_ms: tuple[int, ...]
    series: Mapping[str, tuple[float | None, ...]]


class ReadingsView(Protocol):
    """The readings of a broker, as the admin app sees them."""

    def threads(self) -> ThreadStatistics:
        """The pools, the queue and the loop, as of the last sample."""
        ...

    def history(self) -> Sequence[HistorySample]:
        """The samples kept, oldest first, one a second."""
        ...

    async def series(self, names: Sequence[str], from_ms: int, to_ms: int, step_ms: int) -> SeriesReport:
        """The readings of ``names``, of those in ``trio_broker.metrics.history.SERIES``, from ``from_ms`` up to
        ``to_ms``: up to an hour of seconds, and a week of minutes."""
        ...

    async def topic_series(self, name: str, from_ms: int, to_ms: int, step_ms: int) -> SeriesReport | None:
        """What a topic carried, as ``series``: an hour every 10 seconds, and a week of minutes of those that carry
        most. None if there is no such topic."""
        ...

    async def group_series(self, group_id: str, from_ms: int, to_ms: int, step_ms: int) -> SeriesReport | None:
        """A group's lag and what it consumed, as ``series``: an hour every 5 seconds, and a week of minutes of those
        that are furthest behind. None if there is no such group."""
        ...


class MetricsView(Protocol):
    """What Prometheus scrapes."""

    async def prometheus_renderer(self, *, failed_admin_logins: int = 0) -> Callable[[], bytes]:
        """Take the numbers now, of many partitions if need be; what is returned makes Prometheus's text of them.

        It may be called in any thread. ``failed_admin_logins`` is what the app has counted itself.
        """
        ...
