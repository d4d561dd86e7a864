"""All groups with their lag, for lists and metrics.

There may be thousands of groups with many partitions each, so the walk over them yields every few milliseconds, and
looks at what is in memory. Memory does not have the times of records that were appended before this process began: a
few of those are looked up in the log by each collection, and kept for as long as they are wanted, since a group that
makes no progress is the one that matters.

The groups of a report are therefore not of one instant; each group by itself is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import trio

from trio_broker.clock import Clock
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.coordinator.offsets.committed_offsets import OffsetAndMetadata
from trio_broker.coordinator.reporting.lag import UnconsumedRecord, batch_timestamps, consumer_lag, hosted_partition
from trio_broker.coordinator.reporting.lag_history import GroupReading, LagHistory
from trio_broker.coordinator.reporting.snapshot import (
    ConsumerLag,
    GroupLag,
    GroupLagReport,
    GroupPartitionLag,
    GroupSnapshot,
)
from trio_broker.coordinator.reporting.statistics import ReportedGroup, ReportedShard
from trio_broker.replication.replica_manager import ReplicaManager
from trio_broker.topic_partition import TopicPartition
from trio_broker.yield_budget import YieldBudget

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


@attrs.define(kw_only=True)
class _GroupTally:
    """The lag of one group while it is being collected; see ``GroupLag``."""

    group: GroupSnapshot
    last_rebalance_at_ms: int | None
    partition_count: int = 0
    partitions_without_lag: int = 0
    lag_records: int | None = None
    lag_seconds: float | None = None
    committed: int = 0
    ends: int = 0

    def add(self, lag: ConsumerLag) -> None:
        """Count ``lag``, one of its partitions."""
        self.partition_count += 1
        if lag.lag_records is None:
            self.partitions_without_lag += 1
        else:
            self.lag_records = (self.lag_records or 0) + lag.lag_records
            self.committed += lag.committed_offset or 0
            self.ends += lag.log_end_offset or 0
        self.add_seconds(lag.lag_seconds)

    def add_seconds(self, seconds: float | None) -> None:
        if seconds is not None:
            self.lag_seconds = max(self.lag_seconds or 0.0, seconds)

    def reading(self, now_ms: int) -> GroupReading:
        """The sums for the history."""
        known = self.partition_count - self.partitions_without_lag
        return GroupReading(now_ms, self.lag_records, self.lag_seconds, self.committed, self.ends, known)


@attrs.define
class TimestampLookup:
    """A record whose time is not known, and the groups whose lag it is."""

    record: UnconsumedRecord
    groups: list[_GroupTally]


@attrs.define
class LagCollector:
    """Makes reports, one at a time, and readings for ``history``.

    ``_times_ms`` are the times that the last report looked up or used.
    """

    replicas: ReplicaManager
    clock: Clock
    image: MetadataImage
    history: LagHistory = attrs.field(factory=LagHistory, init=False)
    _times_ms: dict[RecordPosition, int | None] = attrs.field(factory=dict, init=False)

    async def sample(self, shards: Iterable[ReportedShard]) -> None:
        """Add a reading of each group to the history; it reads no disk."""
        collection = await self._visit(list(shards), with_partitions=False)
        tallies = {tally.group.group_id: tally for tally in collection.groups}
        budget = YieldBudget(COLLECTION_YIELD_SECONDS)
        for group_id in self.history.keep({group_id: tally.lag_records for group_id, tally in tallies.items()}):
            self.history.add(group_id, tallies[group_id].reading(collection.now_ms))
            await budget.maybe_yield()

    async def _visit(self, shards: Sequence[ReportedShard], *, with_partitions: bool) -> _Collection:
        """Visit every group of those ``shards`` that are active."""
        collection = _Collection(self.replicas, self.image, self.clock.now_ms(), self._times_ms, with_partitions)
        for shard in shards:
            for group_id in list(shard.groups) if shard.is_active else ():
                await collection.visit(shard, group_id)
        return collection

    async def collect(self, shards: Iterable[ReportedShard], *, with_partitions: bool = False) -> GroupLagReport:
        """Report on every group of those ``shards`` that are active."""
        shards = list(shards)
        collection = await self._visit(shards, with_partitions=with_partitions)
        await collection.look_up()
        self._times_ms = collection.wanted_times_ms
        await trio.lowlevel.checkpoint()
        return GroupLagReport(
            collected_at_ms=collection.now_ms,
            is_complete=all(shard.is_active for shard in shards),
            groups=await trio.to_thread.run_sync(_finished, collection.groups, self.history),
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

    async def visit(self, shard: ReportedShard, group_id: str) -> None:
        """Add one group with its lag, unless it was deleted during a yield."""
        reported = shard.groups.get(group_id)
        if reported is None:
            return
        group = _GroupTally(
            group=shard.snapshot(group_id, with_members=False),
            last_rebalance_at_ms=shard.last_rebalance_at_ms(group_id),
        )
        self.groups.append(group)
        for topic in shard.offsets.topics_of(group_id):
            for partition in shard.offsets.partitions_of(group_id, topic):
                await self.budget.maybe_yield()
                commit = shard.offsets.get(group_id, topic, partition)
                if commit is not None:
                    self._add(group, TopicPartition(topic, partition), commit)
        await self._count_uncommitted(shard, reported, group)

    async def _count_uncommitted(self, shard: ReportedShard, reported: ReportedGroup, group: _GroupTally) -> None:
        """Count the partitions that are owned and not committed. Without them, a group that starts would look as if it
        were hardly behind.
        """
        uncommitted: set[TopicPartition] = set()
        for place in reported.owned_partitions(self.image):
            await self.budget.maybe_yield()
            if shard.offsets.get(reported.group_id, place.topic, place.partition) is None:
                uncommitted.add(place)
        if self.with_partitions:
            self.partitions += [
                GroupPartitionLag(
                    reported.group_id, consumer_lag(place, hosted_partition(self.replicas, place), None, None)
                )
                for place in uncommitted
            ]
        group.partition_count += len(uncommitted)
        group.partitions_without_lag += len(uncommitted)

    def _add(self, group: _GroupTally, place: TopicPartition, commit: OffsetAndMetadata) -> None:
        partition = hosted_partition(self.replicas, place)
        seconds = None
        if partition is not None and partition.high_watermark > commit.offset:
            seconds = self._seconds_since(group, UnconsumedRecord.after(partition, commit.offset))
        lag = consumer_lag(place, partition, commit, seconds)
        group.add(lag)
        if self.with_partitions:
            self.partitions.append(GroupPartitionLag(group.group.group_id, lag))

    def _seconds_since(self, group: _GroupTally, record: UnconsumedRecord) -> float | None:
        """How long ago ``record`` was appended; None where it has to be looked up, which is noted for ``group``."""
        appended_ms = record.partition.append_times.appended_at(record.offset)
        if appended_ms is None:
            old = RecordPosition(record.partition.topic_id, record.partition.topic_partition.partition, record.offset)
            if old in self.known_times_ms:
                appended_ms = self.wanted_times_ms[old] = self.known_times_ms[old]
            elif old in self.lookups:
                self.lookups[old].groups.append(group)
            elif len(self.lookups) < MAX_TIMESTAMP_LOOKUPS:
                self.lookups[old] = TimestampLookup(record, [group])
        return None if appended_ms is None else max(self.now_ms - appended_ms, 0) / 1000

    async def look_up(self) -> None:
        """Read the times that were noted from the log, and add them to their groups."""
        if not self.lookups:
            return
        records = [lookup.record for lookup in self.lookups.values()]
        times = await trio.to_thread.run_sync(batch_timestamps, records, limiter=self.replicas.io_limiter)
        for (old, lookup), appended_ms in zip(self.lookups.items(), times, strict=True):
            self.wanted_times_ms[old] = appended_ms
            for group in lookup.groups:
                group.add_seconds(None if appended_ms is None else max(self.now_ms - appended_ms, 0) / 1000)


def _finished(tallies: Iterable[_GroupTally], history: LagHistory) -> tuple[GroupLag, ...]:
    """The groups by id; there may be thousands of them, so this runs in a worker thread."""
    lags = [
        GroupLag(
            group=tally.group,
            last_rebalance_at_ms=tally.last_rebalance_at_ms,
            partition_count=tally.partition_count,
            partitions_without_lag=tally.partitions_without_lag,
            lag_records=tally.lag_records,
            lag_seconds=tally.lag_seconds,
            rates=history.rates(tally.group.group_id),
        )
        for tally in tallies
    ]
    return tuple(sorted(lags, key=lambda lag: lag.group.group_id))
