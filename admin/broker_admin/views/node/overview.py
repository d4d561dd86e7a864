"""The readings that the overview is made of and no other area has: a few of everything, from memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs

from broker_admin.views.cluster.replication import ClusterReport
from broker_admin.views.node.storage import DirectoryReport, TopicSize
from trio_broker.coordinator.reporting.snapshot import GroupRates, Rebalance
from trio_broker.network.statistics import RecentError

LISTED = 5
"""Lines of each list of the overview: what can be taken in at a glance. The pages of the lists have the others."""


@attrs.frozen(kw_only=True)
class LaggingGroup:
    """A group as of the last reading of its lag.

    ``falls_behind`` says that its lag grows and is older than a few commits. ``is_abandoned`` that it has no members,
    and nothing is committed for it though records wait: then it does not fall behind.
    """

    group_id: str
    state: str
    member_count: int
    lag_records: int | None
    lag_seconds: float | None
    rates: GroupRates | None
    falls_behind: bool
    is_abandoned: bool = False


@attrs.frozen
class RestlessGroup:
    """A group that keeps rebalancing, and its latest rebalances, oldest first."""

    group_id: str
    rebalances: Sequence[Rebalance]


@attrs.frozen(kw_only=True)
class OverviewReadings:
    """A few of everything, at ``read_at_ms``.

    ``has_records`` is false until a client has written a record to a topic that is there. ``unreadable_partitions`` are
    those whose disk or log failed, ``uncleanable_partitions`` those that compaction gave up, ``damaged_segments`` those
    in which the scrubber found damage. The times are of requests in the last minute, a Fetch without what it waits for
    records, and None without any.

    The groups that fall behind fastest come first, after them the others by lag; ``groups_falling_behind`` are the ids
    of all of the former. Those that are abandoned are apart, ``groups_abandoned`` of them, the largest lag first.
    Internal topics are not among the ``largest_topics`` and ``busiest_topics``, of which each carries
    something. ``errors`` are all that are kept, the newest first.

    ``overdue_transactions`` should have been ended by the broker, and were not; ``hanging_transactions`` counts
    partitions in which no coordinator will end one.
    """

    read_at_ms: int
    has_records: bool
    topics: int
    partitions: int
    unreadable_partitions: int
    uncleanable_partitions: int
    groups: int
    groups_falling_behind: tuple[str, ...]
    produce_p99_ms: float | None
    fetch_p99_ms: float | None
    directories: tuple[DirectoryReport, ...]
    lagging_groups: tuple[LaggingGroup, ...]
    groups_abandoned: int
    abandoned_groups: tuple[LaggingGroup, ...]
    restless_groups: tuple[RestlessGroup, ...]
    largest_topics: tuple[TopicSize, ...]
    busiest_topics: tuple[TopicSize, ...]
    errors: tuple[RecentError, ...]
    cluster: ClusterReport
    damaged_segments: int = 0
    overdue_transactions: int = 0
    hanging_transactions: int = 0


class OverviewView(Protocol):
    """A few of everything, as the overview shows it."""

    async def readings(self) -> OverviewReadings:
        """The readings, some of which may be some seconds old."""
        ...
