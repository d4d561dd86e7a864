"""How long requests took, by API and phase, and what they failed with.

The times of an answered request are noted after its answer was sent, and counted in a histogram per phase together with
those of ``BATCH`` others: with all that counting needs in the processor's caches it takes half a microsecond for each,
and twice that where one is counted at a time. A second's counts are kept apart until ``roll`` moves them to the totals.
Those of the last minute are kept, so that a reader sees the last second, the last minute, or all since the start.

Source: Kafka's RequestChannelMetrics and RequestMetrics.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias

import attrs

from trio_broker.common.histogram import (
    BUCKET_TABLE,
    NOTHING_COUNTED,
    SUM,
    UNIT_SHIFT,
    Histogram,
    HistogramSnapshot,
    bucket_of,
)
from trio_broker.common.request_phase import RequestPhase
from trio_broker.network.recent_errors import RecentErrors
from trio_broker.runtime.measurement import perf_counter_ns

RECENT_INTERVALS = 60
"""Seconds that are kept: what Kafka's one-minute rates cover."""


BATCH = 64
"""Requests that are counted together: what they note fits beside everything else into a processor's caches."""


@attrs.define
class RequestWaits:
    """What a request waited without a handler slot: ``phase`` is the present or last wait, begun at ``began_ns``."""

    phase: RequestPhase
    began_ns: int
    disk_ns: int = 0
    purgatory_ns: int = 0

    def next_phase(self, phase: RequestPhase, now_ns: int) -> None:
        """Another wait begins."""
        self.end(now_ns)
        self.phase, self.began_ns = phase, now_ns

    def end(self, now_ns: int) -> None:
        """The present wait ends, and what the handler did after it."""
        if self.phase is RequestPhase.DISK:
            self.disk_ns += now_ns - self.began_ns
        else:
            self.purgatory_ns += now_ns - self.began_ns


class TimedRequest(Protocol):
    """The times that a QueuedRequest carries."""

    queued_ns: int
    began_ns: int
    answered_ns: int
    waits: RequestWaits | None


NotedTimes: TypeAlias = tuple[int, int, int, int, int, RequestWaits | None]
"""When a request was queued, begun, answered, when its connection took the answer and had sent it; its waits."""


@attrs.frozen
class RequestTimes:
    """The answered requests of one API in some stretch of time.

    ``phases`` counts in DISK and PURGATORY only the requests that waited there. ``active`` is the whole time but for
    that in purgatory, which the broker has no part in. ``errors`` counts error codes; an answer may hold many.
    """

    phases: Mapping[RequestPhase, HistogramSnapshot] = attrs.field(factory=dict)
    total: HistogramSnapshot = NOTHING_COUNTED
    active: HistogramSnapshot = NOTHING_COUNTED
    errors: Mapping[int, int] = attrs.field(factory=dict)

    @property
    def count(self) -> int:
        return self.total.count

    def phase(self, phase: RequestPhase) -> HistogramSnapshot:
        """The times in ``phase`` of all requests: those that were never in it count as 0."""
        times = self.phases.get(phase, NOTHING_COUNTED)
        missing = self.count - times.count
        return times.plus(HistogramSnapshot({0: missing})) if missing > 0 else times

    def plus(self, other: RequestTimes) -> RequestTimes:
        """The requests of both."""
        return RequestTimes(
            {
                phase: self.phases.get(phase, NOTHING_COUNTED).plus(other.phases.get(phase, NOTHING_COUNTED))
                for phase in (*self.phases, *other.phases)
            },
            self.total.plus(other.total),
            self.active.plus(other.active),
            Counter(self.errors) + Counter(other.errors),
        )


NO_REQUESTS = RequestTimes()


class RequestMetrics:
    """The answered requests of one API."""

    __slots__ = (
        "before",
        "disk",
        "errors",
        "local",
        "noted",
        "polled",
        "polled_active",
        "purgatory",
        "queue",
        "recent",
        "response_queue",
        "send",
        "total",
    )

    def __init__(self) -> None:
        self.queue = Histogram()
        self.local = Histogram()
        self.disk = Histogram()
        self.purgatory = Histogram()
        self.response_queue = Histogram()
        self.send = Histogram()
        # The whole time of requests that were never in purgatory, and of the others, with that time and without.
        self.total = Histogram()
        self.polled = Histogram()
        self.polled_active = Histogram()
        self.noted: list[NotedTimes] = []
        self.errors: Counter[int] = Counter()
        self.before = NO_REQUESTS
        """Up to the last ``roll``."""
        self.recent: deque[RequestTimes] = deque(maxlen=RECENT_INTERVALS)

    def record(self, request: TimedRequest, sending_ns: int, sent_ns: int) -> None:
        """Note ``request``, whose connection took the answer at ``sending_ns`` and had sent it at ``sent_ns``."""
        noted = self.noted
        noted.append((request.queued_ns, request.began_ns, request.answered_ns, sending_ns, sent_ns, request.waits))
        if len(noted) >= BATCH:
            self._count_noted()

    def _count_noted(self) -> None:
        """Count what was noted."""
        queue, local = self.queue.counts, self.local.counts
        response_queue, send = self.response_queue.counts, self.send.counts
        for queued_ns, began_ns, answered_ns, sending_ns, sent_ns, waits in self.noted:
            total = self.total.counts
            local_ns = answered_ns - began_ns
            if waits is not None:
                local_ns -= waits.disk_ns + waits.purgatory_ns
                if waits.disk_ns:
                    self.disk.record(waits.disk_ns)
                if waits.purgatory_ns:
                    self.purgatory.record(waits.purgatory_ns)
                    self.polled_active.record(sent_ns - queued_ns - waits.purgatory_ns)
                    total = self.polled.counts
            # ``Histogram.record`` written out: five calls a request would cost as much again.
            try:
                queue_bucket = BUCKET_TABLE[(began_ns - queued_ns) >> UNIT_SHIFT]
                local_bucket = BUCKET_TABLE[local_ns >> UNIT_SHIFT]
                response_queue_bucket = BUCKET_TABLE[(sending_ns - answered_ns) >> UNIT_SHIFT]
                send_bucket = BUCKET_TABLE[(sent_ns - sending_ns) >> UNIT_SHIFT]
                total_bucket = BUCKET_TABLE[(sent_ns - queued_ns) >> UNIT_SHIFT]
            except IndexError:
                # One of them is longer than the table: the total at least.
                queue_bucket = bucket_of(began_ns - queued_ns)
                local_bucket = bucket_of(local_ns)
                response_queue_bucket = bucket_of(sending_ns - answered_ns)
                send_bucket = bucket_of(sent_ns - sending_ns)
                total_bucket = bucket_of(sent_ns - queued_ns)
            queue[queue_bucket] += 1
            queue[SUM] += began_ns - queued_ns
            local[local_bucket] += 1
            local[SUM] += local_ns
            response_queue[response_queue_bucket] += 1
            response_queue[SUM] += sending_ns - answered_ns
            send[send_bucket] += 1
            send[SUM] += sent_ns - sending_ns
            # Its sum is that of the phases.
            total[total_bucket] += 1
        self.noted.clear()

    def roll(self) -> None:
        """Close an interval."""
        interval = self._take()
        self.before = self.before.plus(interval) if interval.count or interval.errors else self.before
        self.recent.append(interval)

    def _take(self) -> RequestTimes:
        """The counts since the last call."""
        errors, self.errors = self.errors, Counter()
        times = self._times(Histogram.take, errors)
        return times if times.count or errors else NO_REQUESTS

    def since_start(self) -> RequestTimes:
        """Everything that was counted."""
        return self.before.plus(self._times(Histogram.snapshot, self.errors))

    def _times(self, read: Callable[[Histogram], HistogramSnapshot], errors: Mapping[int, int]) -> RequestTimes:
        """The present interval, each histogram read by ``read``."""
        self._count_noted()
        phases = {
            RequestPhase.QUEUE: read(self.queue),
            RequestPhase.LOCAL: read(self.local),
            RequestPhase.DISK: read(self.disk),
            RequestPhase.PURGATORY: read(self.purgatory),
            RequestPhase.RESPONSE_QUEUE: read(self.response_queue),
            RequestPhase.SEND: read(self.send),
        }
        total, polled, polled_active = read(self.total), read(self.polled), read(self.polled_active)
        sum_ns = sum(times.sum_ns for times in phases.values())
        active_ns = sum_ns - phases[RequestPhase.PURGATORY].sum_ns
        return RequestTimes(
            phases,
            attrs.evolve(total.plus(polled), sum_ns=sum_ns),
            attrs.evolve(total.plus(polled_active), sum_ns=active_ns),
            errors,
        )

    def last_interval(self) -> RequestTimes:
        """The interval that the last ``roll`` closed."""
        return self.recent[-1] if self.recent else NO_REQUESTS

    def last_minute(self) -> RequestTimes:
        """The intervals that are kept, together."""
        times = NO_REQUESTS
        for interval in self.recent:
            if interval is not NO_REQUESTS:
                times = times.plus(interval)
        return times


class RequestChannelMetrics:
    """The requests of all APIs, ``by_api`` key; an API is added with its first request. Errors also by client."""

    def __init__(self) -> None:
        self.by_api: defaultdict[int, RequestMetrics] = defaultdict(RequestMetrics)
        self.recent_errors = RecentErrors()
        # When the intervals that are kept began and ended.
        self._rolled_ns: deque[int] = deque([perf_counter_ns()], maxlen=RECENT_INTERVALS + 1)

    def update_error_metrics(self, api_key: int, codes: Mapping[int, int]) -> None:
        """Count the error codes of one answer."""
        self.by_api[api_key].errors.update(codes)

    def roll(self, now_ns: int) -> None:
        """Close an interval of all APIs; called about once a second."""
        self._rolled_ns.append(now_ns)
        for metrics in self.by_api.values():
            metrics.roll()

    @property
    def recent_seconds(self) -> float:
        """How long the intervals that are kept took."""
        return (self._rolled_ns[-1] - self._rolled_ns[0]) / 1e9
