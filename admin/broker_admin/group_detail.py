"""What the page of one group shows: its parts put together, and cut to what a page can hold.

Pure functions over values of the view. A group may have thousands of members on thousands of partitions; the page shows
those that are most likely to be looked for, and the HTTP API has the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs

from broker_admin.group_list import descending
from broker_admin.timeline_chart import RebalanceEntry, TimelineChart, rebalance_entry, timeline_chart
from trio_broker.coordinator.reporting.snapshot import (
    ConsumerLag,
    GroupOffsets,
    GroupSnapshot,
    MemberSnapshot,
    Rebalance,
    max_known,
    sum_known,
)

SHOWN_MEMBERS = 250
"""Rows of the table of members."""

SHOWN_PARTITIONS = 500
"""Rows of the table of partitions."""

SHOWN_TOPICS = 10
"""Topics named for one member."""


SHOWN_REBALANCES = 25
"""Entries of the timeline, with up to four names for each kind of cause."""


@attrs.frozen
class MemberRow:
    """A member with what it owns and how far behind it is there."""

    member: MemberSnapshot
    assigned: tuple[tuple[str, tuple[int, ...]], ...]
    further_topics: int
    lag_records: int | None
    lag_seconds: float | None


@attrs.frozen
class PartitionRow:
    """A partition, and the member that reads it."""

    partition: ConsumerLag
    owner: MemberSnapshot | None


@attrs.frozen
class GroupDetail:
    """Everything the page of one group shows; ``unknown`` names partitions without a known lag, by topic."""

    group: GroupSnapshot
    offsets: GroupOffsets
    members: tuple[MemberRow, ...]
    partitions: tuple[PartitionRow, ...]
    unknown: tuple[tuple[str, tuple[int, ...]], ...]
    entries: tuple[RebalanceEntry, ...]
    chart: TimelineChart | None


def group_detail(
    group: GroupSnapshot, offsets: GroupOffsets, rebalances: Sequence[Rebalance], now_ms: int
) -> GroupDetail:
    """The page's parts; ``entries`` are newest first."""
    owned: dict[str | None, list[ConsumerLag]] = {}
    for partition in offsets.partitions:
        owned.setdefault(partition.member_id, []).append(partition)
    entries = [rebalance_entry(rebalance) for rebalance in rebalances[-SHOWN_REBALANCES:]]
    return GroupDetail(
        group=group,
        offsets=offsets,
        members=tuple(member_row(member, owned.get(member.member_id, ())) for member in group.members[:SHOWN_MEMBERS]),
        partitions=partition_rows(offsets.partitions, {member.member_id: member for member in group.members}),
        unknown=partitions_without_lag(offsets.partitions),
        entries=tuple(reversed(entries)),
        chart=timeline_chart(entries, now_ms),
    )


def member_row(member: MemberSnapshot, partitions: Sequence[ConsumerLag]) -> MemberRow:
    assigned = sorted((member.assignment or {}).items())
    return MemberRow(
        member=member,
        assigned=tuple(assigned[:SHOWN_TOPICS]),
        further_topics=max(0, len(assigned) - SHOWN_TOPICS),
        lag_records=sum_known(partition.lag_records for partition in partitions),
        lag_seconds=max_known(partition.lag_seconds for partition in partitions),
    )


def partition_rows(
    partitions: Sequence[ConsumerLag], members: Mapping[str, MemberSnapshot]
) -> tuple[PartitionRow, ...]:
    """The partitions by topic and number; where they are too many, those that are furthest behind."""
    shown = partitions
    if len(partitions) > SHOWN_PARTITIONS:
        shown = sorted(partitions, key=lambda each: (descending(each.lag_seconds), descending(each.lag_records)))
        shown = sorted(shown[:SHOWN_PARTITIONS], key=lambda each: (each.topic, each.partition))
    return tuple(PartitionRow(each, members.get(each.member_id or "")) for each in shown)


def partitions_without_lag(partitions: Iterable[ConsumerLag]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The partitions whose lag is not known, of the first topics that have any."""
    unknown: dict[str, list[int]] = {}
    for each in partitions:
        if each.lag_records is None:
            unknown.setdefault(each.topic, []).append(each.partition)
    return tuple((topic, tuple(unknown[topic])) for topic in sorted(unknown)[:SHOWN_TOPICS])
