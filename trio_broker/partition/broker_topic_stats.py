"""How much each partition carries per second, and the rates of each topic over the last hour.

A partition counts by itself, for good, with plain additions (``Partition.appended_bytes`` and its neighbours). Here a
snapshot of all counters is taken every ``SNAPSHOT_SECONDS``. The rate of the last minute is the difference between the
counters of now and the oldest snapshot kept, so it is current. Partitions that carried nothing since the broker's start
are in no snapshot.

The rates between two snapshots, by topic, are the points of a chart. They are kept for the topics that carry most.

Source: Kafka's BrokerTopicStats and BrokerTopicMetrics (MessagesInPerSec, BytesInPerSec, BytesOutPerSec), which decay
exponentially and count per topic.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from operator import add, sub
from typing import NamedTuple

import attrs

from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.partition.local_topics import LocalTopic
from trio_broker.partition.partition import Partition
from trio_broker.runtime.clock import Clock

SNAPSHOT_SECONDS = 10.0
"""Between two snapshots, and between two points of a chart. Reading 10,000 partitions takes some 5 ms, and the counters
of each snapshot of the last minute some 2 MB; once a second, both would be ten times as much."""

WINDOW_SNAPSHOTS = 6
"""Snapshots in the window of a rate, which is therefore a minute long."""

HISTORY_POINTS = 360
"""Points kept of one topic: an hour."""

MAX_TOPICS_WITH_HISTORY = 200
"""An hour of one topic takes 14 KiB."""

HISTORY_DECAY = 0.99
"""What counts of a topic's earlier bytes after each point when the topics that carry most are chosen: half of them are
forgotten after 12 minutes."""


class PartitionTraffic(NamedTuple):
    """The counters of one partition since the broker's start, or the difference between two readings of them."""

    appended_records: int
    appended_bytes: int
    fetched_records: int
    fetched_bytes: int

    def since(self, earlier: PartitionTraffic) -> PartitionTraffic:
        return PartitionTraffic(*map(sub, self, earlier))

    def plus(self, other: PartitionTraffic) -> PartitionTraffic:
        return PartitionTraffic(*map(add, self, other))

    def rates(self, seconds: float) -> TrafficRates:
        """The counts of so many seconds, per second; zeros where no time has passed."""
        return TrafficRates(*(each / seconds for each in self)) if seconds > 0 else TrafficRates()


NO_TRAFFIC = PartitionTraffic(0, 0, 0, 0)


@attrs.frozen
class TrafficRates:
    """Records and bytes per second that are written to (in) and read from (out) partitions."""

    records_in: float = 0.0
    bytes_in: float = 0.0
    records_out: float = 0.0
    bytes_out: float = 0.0


@attrs.frozen
class TrafficPoint:
    """A topic's rates over the interval that ended at ``at_ms``."""

    at_ms: int
    rates: TrafficRates


@attrs.frozen
class TrafficSnapshot:
    """The counters of all partitions that have carried something; ``taken_at`` is monotonic, in seconds."""

    taken_at: float
    counters: Mapping[Partition, PartitionTraffic]


FIELDS_PER_POINT = 5


@attrs.define
class TopicHistory:
    """The points of one topic as a flat array. ``weight`` is what it carried, decaying: see ``HISTORY_DECAY``."""

    weight: float = 0.0
    _values: array[float] = attrs.field(factory=lambda: array("d"), init=False)

    def add(self, at_ms: int, rates: TrafficRates) -> None:
        self.weight = self.weight * HISTORY_DECAY + rates.bytes_in + rates.bytes_out
        self._values.extend((at_ms, rates.records_in, rates.bytes_in, rates.records_out, rates.bytes_out))
        if len(self._values) > HISTORY_POINTS * FIELDS_PER_POINT:
            del self._values[:FIELDS_PER_POINT]

    def mean(self, from_ms: int, to_ms: int) -> TrafficRates | None:
        """The mean of the points from ``from_ms`` up to ``to_ms``, which are among the latest; None without any."""
        rows = []
        for start in range(len(self._values) - FIELDS_PER_POINT, -1, -FIELDS_PER_POINT):
            if self._values[start] < from_ms:
                break
            if self._values[start] < to_ms:
                rows.append(self._values[start + 1 : start + FIELDS_PER_POINT])
        return TrafficRates(*(sum(column) / len(rows) for column in zip(*rows, strict=True))) if rows else None

    @property
    def points(self) -> list[TrafficPoint]:
        rows = zip(*[iter(self._values)] * FIELDS_PER_POINT, strict=True)
        return [TrafficPoint(round(at_ms), TrafficRates(*rates)) for at_ms, *rates in rows]


def traffic_of(partition: Partition) -> PartitionTraffic:
    """The counters of ``partition`` as they are now."""
    return PartitionTraffic(
        partition.appended_records, partition.appended_bytes, partition.fetched_records, partition.fetched_bytes
    )


class BrokerTopicStats:
    """The snapshots of the last minute, and the history of the topics that carry most."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._snapshots = deque([TrafficSnapshot(clock.monotonic(), {})], maxlen=WINDOW_SNAPSHOTS + 1)
        # By topic id: a topic that is deleted and created again begins anew.
        self._histories: dict[bytes, TopicHistory] = {}

    def rates(self, partitions: Iterable[Partition]) -> TrafficRates:
        """What ``partitions`` together carried per second in the last minute, or since the broker's start."""
        oldest = self._snapshots[0]
        appended_records = appended_bytes = fetched_records = fetched_bytes = 0
        for partition in partitions:
            # Plain sums: lists of topics ask for ten thousand partitions, most of which never carried anything.
            if partition.appended_bytes or partition.fetched_bytes:
                before = oldest.counters.get(partition, NO_TRAFFIC)
                appended_records += partition.appended_records - before.appended_records
                appended_bytes += partition.appended_bytes - before.appended_bytes
                fetched_records += partition.fetched_records - before.fetched_records
                fetched_bytes += partition.fetched_bytes - before.fetched_bytes
        if not appended_bytes and not fetched_bytes:
            return TrafficRates()
        carried = PartitionTraffic(appended_records, appended_bytes, fetched_records, fetched_bytes)
        return carried.rates(self._clock.monotonic() - oldest.taken_at)

    def history(self, topic_id: bytes) -> Sequence[TrafficPoint]:
        """The points of a topic, oldest first; empty where none are kept."""
        history = self._histories.get(topic_id)
        return history.points if history is not None else ()

    def means(self, from_ms: int, to_ms: int) -> dict[bytes, TrafficRates]:
        """The mean rates from ``from_ms`` up to ``to_ms`` of the topics with a history, by topic id."""
        means = {topic_id: history.mean(from_ms, to_ms) for topic_id, history in self._histories.items()}
        return {topic_id: mean for topic_id, mean in means.items() if mean is not None}

    async def take_snapshot(self, topics: Iterable[LocalTopic]) -> None:
        """Keep the counters of all partitions of ``topics`` as they are now, and a point of each topic."""
        before, taken_at, at_ms = self._snapshots[-1], self._clock.monotonic(), self._clock.now_ms()
        counters: dict[Partition, PartitionTraffic] = {}
        histories: dict[bytes, TopicHistory] = {}
        async for topic in InTurns(list(topics)):
            carried = NO_TRAFFIC
            async for partition in InTurns(list(topic.partitions.values())):
                # Nothing is made for those that never carried anything, of which there may be ten thousand.
                if partition.appended_bytes or partition.fetched_bytes:
                    counters[partition] = now = traffic_of(partition)
                    carried = carried.plus(now.since(before.counters.get(partition, NO_TRAFFIC)))
            history = self._histories.get(topic.topic_id)
            if history is None and any(carried):
                history = TopicHistory()
            if history is not None:
                history.add(at_ms, carried.rates(taken_at - before.taken_at))
                histories[topic.topic_id] = history
        self._snapshots.append(TrafficSnapshot(taken_at, counters))
        kept = nlargest(MAX_TOPICS_WITH_HISTORY, histories, key=lambda topic_id: histories[topic_id].weight)
        self._histories = {topic_id: histories[topic_id] for topic_id in kept}
