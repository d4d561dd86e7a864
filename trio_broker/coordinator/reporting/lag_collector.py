"""All groups with their lag, for lists and metrics.

There may be thousands of groups with many partitions each, so the walk over them yields every few milliseconds, and
looks at what is in memory. Memory does not have the times of records that were appended before this process began: a
few of those are looked up in the log by each collection, and kept for as long as they are wanted, since a group that
makes no progress is the one that matters.

The groups of a report are therefore not of one instant; each group by itself is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

import attrs
import trio

from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import run_steps
from trio_broker.concurrency.yield_budget import YieldBudget, clear_in_turns
from trio_broker.coordinator.offsets.committed_offsets import OffsetAndMetadata
from trio_broker.coordinator.reporting.lag import (
    UnconsumedRecord,
    available_partition,
    batch_timestamps,
    consumer_lag,
    local_partition,
)
from trio_broker.coordinator.reporting.lag_history import GroupReading, LagHistory
from trio_broker.coordinator.reporting.snapshot import (
    GroupLag,
    GroupLagReport,
    GroupPartitionLag,
    GroupSnapshot,
    GroupTopicLag,
    max_known,
    sum_known,
)
from trio_broker.coordinator.reporting.statistics import ReportedGroup, ReportedMachine, ReportedShard
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.runtime.clock import Clock

COLLECTION_YIELD_SECONDS = 0.002
"""How long a collection holds the event loop between two yields."""

MAX_TIMESTAMP_LOOKUPS = 200
"""Batches whose time is looked up in one collection: some milliseconds of a worker thread while they are in memory,
and a second or two of a slow disk when they are not."""


@attrs.frozen
class RecordPosition:
    """A record that was appended before this process began. It never changes, so neither does its time."""

    topic_id: bytes
    partition: int
    offset: int


@attrs.define
class _TopicTally:
    """The lag of one group in one topic while it is being collected; see ``GroupLag``."""

    partition_count: int = 0
    partitions_without_lag: int = 0
    lag_records: int | None = None
    lag_seconds: float | None = None
    committed: int = 0
    ends: int = 0

    def add_without_lag(self) -> None:
        """Count a partition whose lag is not known."""
        self.partition_count += 1
        self.partitions_without_lag += 1

    def add(self, committed: int, end: int) -> None:
        """Count a partition of which the group has consumed ``committed`` of the offsets up to ``end``."""
        self.partition_count += 1
        self.lag_records = (self.lag_records or 0) + max(end - committed, 0)
        self.committed += committed
        self.ends += end

    def add_seconds(self, seconds: float | None) -> None:
        if seconds is not None:
            self.lag_seconds = max(self.lag_seconds or 0.0, seconds)


@attrs.define
class _GroupTally:
    """One group and its lag by topic."""

    group: GroupSnapshot
    last_rebalance_at_ms: int | None
    topics: defaultdict[str, _TopicTally] = attrs.field(factory=lambda: defaultdict(_TopicTally))

    def sum(self) -> _TopicTally:
        """The lag in all topics; not to be changed."""
        topics = self.topics.values()
        if len(topics) == 1:
            return next(iter(topics))
        return _TopicTally(
            sum(each.partition_count for each in topics),
            sum(each.partitions_without_lag for each in topics),
            sum_known(each.lag_records for each in topics),
            max_known(each.lag_seconds for each in topics),
            sum(each.committed for each in topics),
            sum(each.ends for each in topics),
        )


@attrs.define
class TimestampLookup:
    """A record whose time is not known, and the topics of groups whose lag it is."""

    record: UnconsumedRecord
    tallies: list[_TopicTally]


@attrs.define
class LagCollector:
    """Makes reports, one at a time, and readings for ``history``.

    ``_times_ms`` are the times that the last report looked up or used.
    """

    replicas: ReplicaManager
    clock: Clock
    metadata_cache: MetadataCache
    history: LagHistory = attrs.field(factory=LagHistory, init=False)
    _times_ms: dict[RecordPosition, int | None] = attrs.field(factory=dict, init=False)

    async def sample(self, shards: Iterable[ReportedShard]) -> None:
        """Add a reading of each group to the history; it reads no disk."""
        collection = await self._visit(list(shards), with_partitions=False)
        budget = YieldBudget(COLLECTION_YIELD_SECONDS)
        sums: dict[str, _TopicTally] = {}
        for tally in collection.groups:
            sums[tally.group.group_id] = tally.sum()
            await budget.maybe_yield()
        for group_id in self.history.keep({group_id: lag.lag_records for group_id, lag in sums.items()}):
            self.history.add(group_id, _reading(sums[group_id], collection.now_ms))
            await budget.maybe_yield()
        await run_steps(clear_in_turns(collection.groups, sums))

    async def _visit(self, shards: Sequence[ReportedShard], *, with_partitions: bool) -> _Collection:
        """Visit every group of those ``shards`` that are active."""
        image = self.metadata_cache.image
        collection = _Collection(self.replicas, image, self.clock.now_ms(), self._times_ms, with_partitions)
        for shard in shards:
            for group_id in list(shard.machine.groups) if shard.is_active else ():
                await collection.visit(shard.machine, group_id)
        return collection

    async def collect(self, shards: Iterable[ReportedShard], *, with_partitions: bool = False) -> GroupLagReport:
        """Report on every group of those ``shards`` that are active."""
        shards = list(shards)
        collection = await self._visit(shards, with_partitions=with_partitions)
        await collection.look_up()
        self._times_ms = collection.wanted_times_ms
        await trio.lowlevel.checkpoint()
        groups, topics = await self.replicas.workers.run(partial(_finished, collection.groups, self.history))
        return GroupLagReport(
            collected_at_ms=collection.now_ms,
            is_complete=all(shard.is_active for shard in shards),
            groups=groups,
            topics=topics,
            partitions=tuple(collection.partitions),
        )


@attrs.define
class _Collection:
    """One collection. ``known_times_ms`` are those looked up before, ``wanted_times_ms`` those still of use."""

    replicas: ReplicaManager
    image: MetadataImage
    now_ms: int
    known_times_ms: dict[RecordPosition, int | None]
    with_partitions: bool
    wanted_times_ms: dict[RecordPosition, int | None] = attrs.field(factory=dict)
    groups: list[_GroupTally] = attrs.field(factory=list)
    partitions: list[GroupPartitionLag] = attrs.field(factory=list)
    lookups: dict[RecordPosition, TimestampLookup] = attrs.field(factory=dict)
    budget: YieldBudget = attrs.field(factory=lambda: YieldBudget(COLLECTION_YIELD_SECONDS))

    async def visit(self, machine: ReportedMachine, group_id: str) -> None:
        """Add one group with its lag, unless it was deleted during a yield."""
        reported = machine.groups.get(group_id)
        if reported is None:
            return
        group = _GroupTally(machine.snapshot(group_id, with_members=False), machine.last_rebalance_at_ms(group_id))
        self.groups.append(group)
        for topic in machine.offsets.topics_of(group_id):
            local, tally = self.replicas.topics.get(topic), group.topics[topic]
            for index, offset in machine.offsets.offsets_of(group_id, topic):
                # Not maybe_yield: a coroutine for each of ten thousand partitions would take milliseconds.
                if self.budget.is_spent:
                    await self.budget.renewed()
                seconds = self._add(tally, available_partition(local, index), offset)
                commit = machine.offsets.get(group_id, topic, index) if self.with_partitions else None
                if commit is not None:
                    self._add_partition(group_id, TopicPartition(topic, index), commit, seconds)
        await self._count_uncommitted(machine, reported, group)

    async def _count_uncommitted(self, machine: ReportedMachine, reported: ReportedGroup, group: _GroupTally) -> None:
        """Count the partitions that are owned and not committed. Without them, a group that starts would look as if it
        were hardly behind.
        """
        # A dict, since a set would give the partitions in another order each time.
        uncommitted: dict[TopicPartition, None] = {}
        for place in reported.owned_partitions(self.image):
            await self.budget.maybe_yield()
            if not machine.offsets.has_offset(reported.group_id, place.topic, place.partition):
                uncommitted[place] = None
        for place in uncommitted:
            group.topics[place.topic].add_without_lag()
            if self.with_partitions:
                self._add_partition(reported.group_id, place, None, None)

    def _add_partition(
        self, group_id: str, place: TopicPartition, commit: OffsetAndMetadata | None, seconds: float | None
    ) -> None:
        lag = consumer_lag(place, local_partition(self.replicas, place), commit, seconds)
        self.partitions.append(GroupPartitionLag(group_id, lag))

    def _add(self, tally: _TopicTally, partition: Partition | None, offset: int) -> float | None:
        """Count a partition with a commit at ``offset``; returns its lag in seconds, as far as that is known now."""
        if partition is None:
            tally.add_without_lag()
            return None
        end = partition.high_watermark
        tally.add(offset, end)
        # Of what lies before the log start nothing is left to wait for.
        first = max(offset, partition.log_start_offset)
        seconds = 0.0 if end <= first else self._seconds_since(tally, partition, first)
        tally.add_seconds(seconds)
        return seconds

    def _seconds_since(self, tally: _TopicTally, partition: Partition, offset: int) -> float | None:
        """How long ago the record at ``offset`` was appended; None where it has to be looked up, which is noted for
        ``tally``.
        """
        appended_ms = partition.append_times.appended_at(offset)
        if appended_ms is None:
            old = RecordPosition(partition.topic_id, partition.topic_partition.partition, offset)
            if old in self.known_times_ms:
                appended_ms = self.wanted_times_ms[old] = self.known_times_ms[old]
            elif old in self.lookups:
                self.lookups[old].tallies.append(tally)
            elif len(self.lookups) < MAX_TIMESTAMP_LOOKUPS:
                self.lookups[old] = TimestampLookup(UnconsumedRecord(partition, offset), [tally])
        return None if appended_ms is None else max(self.now_ms - appended_ms, 0) / 1000

    async def look_up(self) -> None:
        """Read the times that were noted from the log, and add them to their tallies."""
        if not self.lookups:
            return
        records = [lookup.record for lookup in self.lookups.values()]
        times = await self.replicas.run_in_io_thread(partial(batch_timestamps, records))
        for (old, lookup), appended_ms in zip(self.lookups.items(), times, strict=True):
            self.wanted_times_ms[old] = appended_ms
            for tally in lookup.tallies:
                tally.add_seconds(None if appended_ms is None else max(self.now_ms - appended_ms, 0) / 1000)


def _reading(lag: _TopicTally, now_ms: int) -> GroupReading:
    """The sums of a group for the history."""
    known = lag.partition_count - lag.partitions_without_lag
    return GroupReading(now_ms, lag.lag_records, lag.lag_seconds, lag.committed, lag.ends, known)


def _finished(
    tallies: Iterable[_GroupTally], history: LagHistory
) -> tuple[tuple[GroupLag, ...], tuple[GroupTopicLag, ...]]:
    """The groups by id, and their topics; there may be thousands of them, so this runs in a worker thread."""
    groups: list[GroupLag] = []
    topics: list[GroupTopicLag] = []
    for tally in sorted(tallies, key=lambda each: each.group.group_id):
        lag = tally.sum()
        group = GroupLag(
            group=tally.group,
            last_rebalance_at_ms=tally.last_rebalance_at_ms,
            partition_count=lag.partition_count,
            partitions_without_lag=lag.partitions_without_lag,
            lag_records=lag.lag_records,
            lag_seconds=lag.lag_seconds,
            rates=history.rates(tally.group.group_id),
        )
        groups.append(group)
        topics += [
            GroupTopicLag(
                group=group,
                topic=topic,
                partition_count=each.partition_count,
                partitions_without_lag=each.partitions_without_lag,
                lag_records=each.lag_records,
                lag_seconds=each.lag_seconds,
            )
            for topic, each in tally.topics.items()
        ]
    return tuple(groups), tuple(topics)
