"""How many groups, members, offsets and rebalances there are, for metrics.

Levels are current, counters begin with the start of the broker.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Protocol

import attrs

from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets
from trio_broker.coordinator.reporting.snapshot import GroupSnapshot, GroupType


class ReportedGroup(Protocol):
    """What reports need of a group of either protocol."""

    @property
    def group_id(self) -> str: ...
    @property
    def type(self) -> GroupType: ...
    @property
    def state(self) -> enum.Enum: ...
    @property
    def members(self) -> Sized: ...
    def owned_partitions(self, image: MetadataImage) -> Iterator[TopicPartition]: ...


class ReportedMachine(Protocol):
    """What reports need of the groups of a shard."""

    @property
    def groups(self) -> Mapping[str, ReportedGroup]: ...
    @property
    def offsets(self) -> CommittedOffsets: ...
    @property
    def commits(self) -> int: ...
    @property
    def rebalances(self) -> int: ...
    def snapshot(self, group_id: str, *, with_members: bool = True) -> GroupSnapshot: ...
    def last_rebalance_at_ms(self, group_id: str) -> int | None: ...


class ReportedShard(Protocol):
    """What reports need of a shard."""

    @property
    def is_active(self) -> bool: ...
    @property
    def is_closed(self) -> bool: ...
    @property
    def machine(self) -> ReportedMachine: ...


@attrs.frozen
class GroupKind:
    """The type of a group, and the state it is in."""

    type: GroupType
    state: str


@attrs.frozen(kw_only=True)
class GroupStatistics:
    """All groups coordinated here. ``loading`` counts partitions that cannot answer yet."""

    groups: Mapping[GroupKind, int]
    members: int
    committed_offsets: int
    loading: int
    commits: int
    rebalances: int


def statistics_of(shards: Iterable[ReportedShard]) -> GroupStatistics:
    """Count over ``shards``."""
    shards = list(shards)
    groups = [group for shard in shards for group in shard.machine.groups.values()]
    return GroupStatistics(
        groups=kinds_of(groups),
        members=sum(len(group.members) for group in groups),
        committed_offsets=sum(shard.machine.offsets.count for shard in shards),
        loading=sum(not shard.is_active and not shard.is_closed for shard in shards),
        commits=sum(shard.machine.commits for shard in shards),
        rebalances=sum(shard.machine.rebalances for shard in shards),
    )


def kinds_of(groups: Iterable[ReportedGroup]) -> Mapping[GroupKind, int]:
    """How many groups there are of each kind."""
    # Counted by what is there already: to make a value for each of thousands of groups would hold the loop too long.
    counts = Counter((group.type, group.state) for group in groups)
    return {GroupKind(type_, state.value): count for (type_, state), count in counts.items()}
