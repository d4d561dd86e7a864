"""All groups at one glance, for lists and metrics: what each is, and how far behind.

There may be thousands of groups with many partitions each, so the walk over them gives the event loop back every few
milliseconds, and looks at what is in memory. What memory does not tell is when records were appended that are older
than this process: a few of those are looked up in the log at each survey, and remembered for as long as they are
wanted, since a group that does not move is the one that people look for.

A survey is therefore not of one moment; each group in it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs
import trio

from kafka_wire.errors import KafkaError
from trio_broker.clock import Clock
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE, assigned_partitions
from trio_broker.coordinator.consumer.group import ConsumerGroup
from trio_broker.coordinator.consumer.target_assignment import preferred_assignor
from trio_broker.coordinator.reporting.description import GroupProtocol
from trio_broker.coordinator.reporting.lag import ConsumerLag, Unconsumed, batch_timestamps, hosted_partition
from trio_broker.coordinator.runtime.shard import Group, GroupShard
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
class GroupOutline:
    """One group as a list shows it.

    ``partition_count`` counts the partitions that the group has committed or that its members own. No lag is known in
    ``partitions_without_lag`` of them: nothing is committed there, or the partition is gone. ``lag_records`` is the sum
    over the others, None without any; ``lag_seconds`` the maximum, as far as it is known. ``generation`` and
    ``protocol`` are those of ``GroupSnapshot``.
    """

    group_id: str
    type: GroupProtocol
    state: str
    protocol_type: str
    protocol: str
    generation: int
    member_count: int
    last_rebalance_at_ms: int | None
    partition_count: int = 0
    partitions_without_lag: int = 0
    lag_records: int | None = None
    lag_seconds: float | None = None

    def add(self, lag: ConsumerLag) -> None:
        """Count ``lag``, one of its partitions."""
        self.partition_count += 1
        if lag.lag_records is None:
            self.partitions_without_lag += 1
        else:
            self.lag_records = (self.lag_records or 0) + lag.lag_records
        self.add_seconds(lag.lag_seconds)

    def add_seconds(self, seconds: float | None) -> None:
        if seconds is not None:
            self.lag_seconds = max(self.lag_seconds or 0.0, seconds)


@attrs.frozen
class GroupPartitionLag:
    """The lag of one group in one partition; nobody is asked whose the partition is."""

    group_id: str
    lag: ConsumerLag


@attrs.frozen(kw_only=True)
class GroupLagReport:
    """All groups by id. ``partitions`` is empty unless it was asked for; ``is_complete`` is false while shards load."""

    collected_at_ms: int
    is_complete: bool
    groups: tuple[GroupOutline, ...]
    partitions: tuple[GroupPartitionLag, ...] = ()


@attrs.define
class TimestampLookup:
    """A record whose time is not known, and the groups that wait to read it."""

    record: Unconsumed
    groups: list[GroupOutline]


@attrs.define
class LagCollector:
    """Walks over the groups. One collection at a time."""

    replicas: ReplicaManager
    clock: Clock
    image: MetadataImage
    _times_ms: dict[RecordPosition, int | None] = attrs.field(factory=dict, init=False)

    async def collect(self, shards: Iterable[GroupShard], *, with_partitions: bool = False) -> GroupLagReport:
        """Look at every group of those ``shards`` that are active."""
        shards = list(shards)
        collection = _Collection(self.replicas, self.image, self.clock.now_ms(), self._times_ms, with_partitions)
        for shard in shards:
            for group in list(shard.groups.values()) if shard.is_active else ():
                await collection.visit(shard, group)
        await collection.look_up()
        self._times_ms = collection.wanted_times_ms
        await trio.lowlevel.checkpoint()
        return GroupLagReport(
            collected_at_ms=collection.now_ms,
            is_complete=all(shard.is_active for shard in shards),
            groups=tuple(sorted(collection.groups, key=lambda group: group.group_id)),
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
    groups: list[GroupOutline] = attrs.field(factory=list)
    partitions: list[GroupPartitionLag] = attrs.field(factory=list)
    lookups: dict[RecordPosition, TimestampLookup] = attrs.field(factory=dict)
    budget: YieldBudget = attrs.field(factory=lambda: YieldBudget(COLLECTION_YIELD_SECONDS))

    async def visit(self, shard: GroupShard, group: Group) -> None:
        """Add ``group`` with its lag."""
        outline = outline_of(shard, group)
        if outline is None:
            return
        self.groups.append(outline)
        for place in committed_places(shard, group.group_id):
            await self.budget.maybe_yield()
            commit = shard.offsets.get(group.group_id, place.topic, place.partition)
            if commit is not None:  # else it was deleted meanwhile
                lag = self.lag_of(outline, place, commit.offset)
                outline.add(lag)
                if self.with_partitions:
                    self.partitions.append(GroupPartitionLag(group.group_id, lag))
        await self._count_uncommitted(shard, group, outline)

    async def _count_uncommitted(self, shard: GroupShard, group: Group, outline: GroupOutline) -> None:
        """Add the partitions that are assigned and not committed. Without them, a group that starts would look as if it
        were hardly behind."""
        uncommitted: set[TopicPartition] = set()
        for place in assigned_places(group, self.image):
            await self.budget.maybe_yield()
            if shard.offsets.get(group.group_id, place.topic, place.partition) is None:
                uncommitted.add(place)
        outline.partition_count += len(uncommitted)
        outline.partitions_without_lag += len(uncommitted)

    def lag_of(self, outline: GroupOutline, place: TopicPartition, committed_offset: int) -> ConsumerLag:
        """The lag in one partition, as far as memory tells."""
        partition = hosted_partition(self.replicas, place)
        lag_records = lag_seconds = None
        if partition is not None:
            lag_records = max(partition.high_watermark - committed_offset, 0)
            record = Unconsumed(partition, max(committed_offset, partition.log_start_offset))
            lag_seconds = self.seconds_since(outline, record) if lag_records else 0.0
        return ConsumerLag(
            topic=place.topic,
            partition=place.partition,
            committed_offset=committed_offset,
            log_end_offset=None if partition is None else partition.high_watermark,
            lag_records=lag_records,
            lag_seconds=lag_seconds,
            member_id=None,
        )

    def seconds_since(self, outline: GroupOutline, record: Unconsumed) -> float | None:
        """How long ago ``record`` was appended; None where it has to be looked up, which is noted for ``outline``."""
        appended_ms = record.partition.append_times.appended_at(record.offset)
        if appended_ms is None:
            old = RecordPosition(record.partition.topic_id, record.partition.topic_partition.partition, record.offset)
            if old in self.known_times_ms:
                appended_ms = self.wanted_times_ms[old] = self.known_times_ms[old]
            elif old in self.lookups:
                self.lookups[old].groups.append(outline)
            elif len(self.lookups) < MAX_TIMESTAMP_LOOKUPS:
                self.lookups[old] = TimestampLookup(record, [outline])
        return None if appended_ms is None else max(self.now_ms - appended_ms, 0) / 1000

    async def look_up(self) -> None:
        """Ask the log for the times that were noted, and tell the groups that waited for them."""
        if not self.lookups:
            return
        records = [lookup.record for lookup in self.lookups.values()]
        times = await trio.to_thread.run_sync(batch_timestamps, records, limiter=self.replicas.io_limiter)
        for (old, lookup), appended_ms in zip(self.lookups.items(), times, strict=True):
            self.wanted_times_ms[old] = appended_ms
            for outline in lookup.groups:
                outline.add_seconds(None if appended_ms is None else max(self.now_ms - appended_ms, 0) / 1000)


def outline_of(shard: GroupShard, group: Group) -> GroupOutline | None:
    """``group`` without its lag; None if it was deleted meanwhile."""
    try:
        rebalances = shard.timeline(group.group_id)
    except KafkaError:
        return None
    if isinstance(group, ClassicGroup):
        group_type, generation = GroupProtocol.CLASSIC, group.generation_id
        protocol_type, protocol = group.protocol_type or "", group.protocol_name or ""
    else:
        group_type, generation = GroupProtocol.CONSUMER, group.group_epoch
        protocol_type = "consumer"
        protocol = preferred_assignor(group.stored.assignor_votes, group.settings.group_consumer_assignors)
    return GroupOutline(
        group_id=group.group_id,
        type=group_type,
        state=group.state.value,
        protocol_type=protocol_type,
        protocol=protocol,
        generation=generation,
        member_count=len(group.members),
        last_rebalance_at_ms=rebalances[-1].started_at_ms if rebalances else None,
    )


def committed_places(shard: GroupShard, group_id: str) -> Iterator[TopicPartition]:
    """Where the group has committed something. Commits may go on meanwhile."""
    for topic in shard.offsets.topics_of(group_id):
        for partition in shard.offsets.partitions_of(group_id, topic):
            yield TopicPartition(topic, partition)


def assigned_places(group: Group, image: MetadataImage) -> Iterator[TopicPartition]:
    """The partitions that the members of ``group`` own, as far as their assignments can be read; a partition that moves
    from one to another may come twice. Members may come and go meanwhile."""
    if isinstance(group, ConsumerGroup):
        for consumer in list(group.members.values()):
            for owned in (consumer.assigned, consumer.pending_revocation):
                for topic_id, indexes in owned.items():
                    if topic_id in image.topics_by_id:
                        yield from (TopicPartition(image.topics_by_id[topic_id].name, index) for index in indexes)
    elif group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        for member in list(group.members.values()):
            for topic, partitions in (assigned_partitions(member.assignment) or {}).items():
                yield from (TopicPartition(topic, index) for index in partitions)
