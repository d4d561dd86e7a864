"""The groups of a broker, their lag and their rebalances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from trio_broker.coordinator.reporting.snapshot import (
    GroupLag,
    GroupLagHistory,
    GroupLagReport,
    GroupOffsets,
    GroupSnapshot,
    Rebalance,
)


@attrs.frozen(kw_only=True)
class CoordinatedTopicLag:
    """As ``GroupTopicLag``, of the group of this id."""

    group_id: str
    topic: str
    partition_count: int
    partitions_without_lag: int
    lag_records: int | None
    lag_seconds: float | None


@attrs.frozen(kw_only=True)
class CoordinatedGroups:
    """The groups that one broker coordinates: as ``GroupLagReport``, in which each topic has its group by id."""

    collected_at_ms: int
    is_complete: bool
    groups: tuple[GroupLag, ...]
    topics: tuple[CoordinatedTopicLag, ...]


@attrs.frozen
class GroupsRebalanced:
    """Which groups have finished a rebalance since the last such event, at most one event a second.

    ``further_groups`` counts those beyond the ids that fit.
    """

    at_ms: int
    group_ids: tuple[str, ...]
    further_groups: int = 0


class GroupsView(Protocol):
    """The groups of a broker, as the admin app sees them."""

    async def report(self) -> GroupLagReport:
        """All groups by id, with their lag from memory: it reads no disk, and may be some seconds old."""
        ...

    async def coordinated(self) -> CoordinatedGroups:
        """Those that this broker coordinates, as ``report`` has them."""
        ...

    def coordinator(self, group_id: str) -> int | None:
        """The broker that coordinates a group, which alone knows what is asked below; None if nobody does yet."""
        ...

    async def find_coordinator(self, group_id: str) -> int | None:
        """As ``coordinator``, where the first group needs one; None if there is none now."""
        ...

    def get(self, group_id: str) -> GroupSnapshot | None:
        """One group with its members, as it is now; None if there is none."""
        ...

    async def offsets(self, group_id: str) -> GroupOffsets | None:
        """Its committed offsets and lag, by topic and partition; None if there is no such group."""
        ...

    def lag_history(self, group_id: str) -> GroupLagHistory | None:
        """Its lag in the last hour, and how fast it reads; None if there is no such group."""
        ...

    def timeline(self, group_id: str) -> Sequence[Rebalance] | None:
        """Its recent rebalances, oldest first, bounded; the last may be under way. None if there is no such group."""
        ...
