"""How many groups, members, offsets and rebalances there are, for metrics.

Levels are those of this moment, counters only grow from the start of the broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.reporting.description import GroupProtocol
from trio_broker.coordinator.runtime.shard import Group, GroupShard


@attrs.frozen
class GroupKind:
    """The type of a group, and the state it is in."""

    type: GroupProtocol
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


def statistics_of(shards: Iterable[GroupShard]) -> GroupStatistics:
    """Count over ``shards``."""
    shards = list(shards)
    groups = [group for shard in shards for group in shard.groups.values()]
    return GroupStatistics(
        groups=kinds_of(groups),
        members=sum(len(group.members) for group in groups),
        committed_offsets=sum(shard.offsets.count for shard in shards),
        loading=sum(not shard.is_active and not shard.is_closed for shard in shards),
        commits=sum(shard.commits for shard in shards),
        rebalances=sum(shard.rebalances for shard in shards),
    )


def kinds_of(groups: Iterable[Group]) -> Mapping[GroupKind, int]:
    """How many groups there are of each kind."""
    # Counted by what is there already: a value made for each of thousands of groups would hold the loop too long.
    counts = Counter((isinstance(group, ClassicGroup), group.state.value) for group in groups)
    return {
        GroupKind(GroupProtocol.CLASSIC if is_classic else GroupProtocol.CONSUMER, state): count
        for (is_classic, state), count in counts.items()
    }
