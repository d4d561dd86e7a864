"""All groups at one glance, for lists and metrics: what each is, and how far behind.

There may be thousands of groups with many partitions each, so the walk over them gives the event loop back every few
milliseconds, and looks at what is in memory. What memory does not tell is when records were appended that are older
than this process: a few of those are looked up in the log at each survey, and remembered for as long as they are
wanted, since a group that does not move is the one that people look for.

A survey is therefore not of one moment; each group in it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import attrs
import trio

from kafka_wire.errors import KafkaError
from trio_broker.clock import Clock
from trio_broker.coordinator.classic_group import ClassicGroup
from trio_broker.coordinator.description import GroupType
from trio_broker.coordinator.group_shard import Group, GroupShard
from trio_broker.coordinator.lag import PartitionLag, Unconsumed, batch_timestamps, hosted_partition
from trio_broker.coordinator.target_assignment import preferred_assignor
from trio_broker.replication.replica_manager import ReplicaManager
from trio_broker.topic_partition import TopicPartition

TURN_SECONDS = 0.002
"""How long a survey holds the event loop before others come."""

LOOK_UPS = 200
"""Batches whose time is looked up in one survey: some milliseconds of a worker thread while they are in memory, and a
second or two of a slow disk when they are not."""


@attrs.frozen
class OldRecord:
    """A record that was appended before this process began. It never changes, so neither does its time."""

    topic_id: bytes
    partition: int
    offset: int


@attrs.define(kw_only=True)
class GroupOutline:
    """One group as a list shows it.

    ``lag_records`` is the sum over the partitions that the group has committed, None without any; ``lag_seconds`` the
    maximum, as far as it is known. ``generation`` and ``protocol`` are those of ``GroupDescription``.
    """

    group_id: str
    type: GroupType
    state: str
    protocol_type: str
    protocol: str
    generation: int
    member_count: int
    last_rebalance_at_ms: int | None
    partition_count: int = 0
    lag_records: int | None = None
    lag_seconds: float | None = None

    def add(self, lag: PartitionLag) -> None:
        """Count ``lag``, one of its partitions."""
        self.partition_count += 1
        if lag.lag_records is not None:
            self.lag_records = (self.lag_records or 0) + lag.lag_records
        self.add_seconds(lag.lag_seconds)

    def add_seconds(self, seconds: float | None) -> None:
        if seconds is not None:
            self.lag_seconds = max(self.lag_seconds or 0.0, seconds)


@attrs.frozen
class GroupPartitionLag:
    """The lag of one group in one partition; nobody is asked whose the partition is."""

    group_id: str
    lag: PartitionLag


@attrs.frozen(kw_only=True)
class GroupsSurvey:
    """All groups by id. ``partitions`` is empty unless it was asked for; ``is_complete`` is false while shards load."""

    surveyed_at_ms: int
    is_complete: bool
    groups: tuple[GroupOutline, ...]
    partitions: tuple[GroupPartitionLag, ...] = ()


@attrs.define
class LookUp:
    """A record whose time is not known, and the groups that wait to read it."""

    record: Unconsumed
    groups: list[GroupOutline]


@attrs.define
class Surveyor:
    """Walks over the groups. One survey at a time."""

    replicas: ReplicaManager
    clock: Clock
    _times_ms: dict[OldRecord, int | None] = attrs.field(factory=dict, init=False)

    async def survey(self, shards: Iterable[GroupShard], *, with_partitions: bool = False) -> GroupsSurvey:
        """Look at every group of those ``shards`` that are active."""
        shards = list(shards)
        walk = Walk(self.replicas, self.clock.now_ms(), self._times_ms, with_partitions)
        for shard in shards:
            for group in list(shard.groups.values()) if shard.is_active else ():
                await walk.visit(shard, group)
        await walk.look_up()
        self._times_ms = walk.wanted_times_ms
        await trio.lowlevel.checkpoint()
        return GroupsSurvey(
            surveyed_at_ms=walk.now_ms,
            is_complete=all(shard.is_active for shard in shards),
            groups=tuple(sorted(walk.groups, key=lambda group: group.group_id)),
            partitions=tuple(walk.partitions),
        )


@attrs.define
class Walk:
    """One survey under way. ``known_times_ms`` are those looked up before, ``wanted_times_ms`` those still of use."""

    replicas: ReplicaManager
    now_ms: int
    known_times_ms: dict[OldRecord, int | None]
    with_partitions: bool
    wanted_times_ms: dict[OldRecord, int | None] = attrs.field(factory=dict)
    groups: list[GroupOutline] = attrs.field(factory=list)
    partitions: list[GroupPartitionLag] = attrs.field(factory=list)
    look_ups: dict[OldRecord, LookUp] = attrs.field(factory=dict)
    turn_began: float = attrs.field(factory=time.perf_counter)

    async def visit(self, shard: GroupShard, group: Group) -> None:
        """Add ``group`` with its lag."""
        outline = outline_of(shard, group)
        if outline is None:
            return
        self.groups.append(outline)
        for place in committed_places(shard, group.group_id):
            if time.perf_counter() - self.turn_began > TURN_SECONDS:
                await trio.lowlevel.checkpoint()
                self.turn_began = time.perf_counter()
            commit = shard.offsets.get(group.group_id, place.topic, place.partition)
            if commit is not None:  # else it was deleted meanwhile
                lag = self.lag_of(outline, place, commit.offset)
                outline.add(lag)
                if self.with_partitions:
                    self.partitions.append(GroupPartitionLag(group.group_id, lag))

    def lag_of(self, outline: GroupOutline, place: TopicPartition, committed_offset: int) -> PartitionLag:
        """The lag in one partition, as far as memory tells."""
        partition = hosted_partition(self.replicas, place)
        lag_records = lag_seconds = None
        if partition is not None:
            lag_records = max(partition.high_watermark - committed_offset, 0)
            record = Unconsumed(partition, max(committed_offset, partition.log_start_offset))
            lag_seconds = self.seconds_since(outline, record) if lag_records else 0.0
        return PartitionLag(
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
            old = OldRecord(record.partition.topic_id, record.partition.topic_partition.partition, record.offset)
            if old in self.known_times_ms:
                appended_ms = self.wanted_times_ms[old] = self.known_times_ms[old]
            elif old in self.look_ups:
                self.look_ups[old].groups.append(outline)
            elif len(self.look_ups) < LOOK_UPS:
                self.look_ups[old] = LookUp(record, [outline])
        return None if appended_ms is None else max(self.now_ms - appended_ms, 0) / 1000

    async def look_up(self) -> None:
        """Ask the log for the times that were noted, and tell the groups that waited for them."""
        if not self.look_ups:
            return
        records = [look_up.record for look_up in self.look_ups.values()]
        times = await trio.to_thread.run_sync(batch_timestamps, records, limiter=self.replicas.io_limiter)
        for (old, look_up), appended_ms in zip(self.look_ups.items(), times, strict=True):
            self.wanted_times_ms[old] = appended_ms
            for outline in look_up.groups:
                outline.add_seconds(None if appended_ms is None else max(self.now_ms - appended_ms, 0) / 1000)


def outline_of(shard: GroupShard, group: Group) -> GroupOutline | None:
    """``group`` without its lag; None if it was deleted meanwhile."""
    try:
        rebalances = shard.timeline(group.group_id)
    except KafkaError:
        return None
    if isinstance(group, ClassicGroup):
        group_type, generation = GroupType.CLASSIC, group.generation_id
        protocol_type, protocol = group.protocol_type or "", group.protocol_name or ""
    else:
        group_type, generation = GroupType.CONSUMER, group.group_epoch
        protocol_type = "consumer"
        protocol = preferred_assignor(group.stored.assignor_votes, group.settings.consumer_assignors)
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
