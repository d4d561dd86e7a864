"""A part of the list of groups: which, in which order, from where on.

Pure functions over a report, which may hold thousands of groups; their callers run them in a worker thread.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from trio_broker.coordinator.reporting.snapshot import GroupLag, GroupLagReport, GroupSnapshot

DEFAULT_LIMIT = 100
"""Groups, members or partitions of one answer without a ``limit``."""

MAX_LIMIT = 1000
"""The most of them in one answer: some hundreds of kilobytes, unless ids are long."""


class GroupOrder(enum.Enum):
    """What a list of groups may be ordered by; numbers start with the largest, absent ones come last."""

    GROUP_ID = "group_id"
    LAG_RECORDS = "lag_records"
    LAG_SECONDS = "lag_seconds"
    MEMBER_COUNT = "member_count"
    LAST_REBALANCE = "last_rebalance_at_ms"


@attrs.frozen(kw_only=True)
class GroupQuery:
    """Which groups are wanted. ``search`` is a part of the id, whatever its case; no states or types mean all."""

    search: str = ""
    states: frozenset[str] = frozenset()
    types: frozenset[str] = frozenset()
    order: GroupOrder = GroupOrder.GROUP_ID
    offset: int = 0
    limit: int = DEFAULT_LIMIT


@attrs.frozen(kw_only=True)
class GroupList:
    """The groups that a query selects: ``matching`` of all ``total``, of which ``groups`` are shown from ``offset`` on.

    ``is_complete`` is false while the broker still loads some groups. Lag is as of ``surveyed_at_ms``.
    """

    surveyed_at_ms: int
    is_complete: bool
    total: int
    matching: int
    offset: int
    groups: tuple[GroupLag, ...]


def select_groups(report: GroupLagReport, query: GroupQuery) -> GroupList:
    """The part of ``report`` that ``query`` asks for."""
    matching = [lag for lag in report.groups if is_wanted(lag.group, query)]
    if query.order is not GroupOrder.GROUP_ID:
        matching.sort(key=SORT_KEYS[query.order])  # stable: equal ones stay ordered by id
    return GroupList(
        surveyed_at_ms=report.collected_at_ms,
        is_complete=report.is_complete,
        total=len(report.groups),
        matching=len(matching),
        offset=query.offset,
        groups=tuple(matching[query.offset : query.offset + query.limit]),
    )


def is_wanted(group: GroupSnapshot, query: GroupQuery) -> bool:
    return (
        (not query.states or group.state.lower() in query.states)
        and (not query.types or group.type.value in query.types)
        and (not query.search or query.search.casefold() in group.group_id.casefold())
    )


def descending(value: float | None) -> float:
    """The sort key that puts large numbers first and absent ones last."""
    return 1.0 if value is None else -float(value)


SORT_KEYS: Mapping[GroupOrder, Callable[[GroupLag], Any]] = {
    GroupOrder.LAG_RECORDS: lambda lag: descending(lag.lag_records),
    GroupOrder.LAG_SECONDS: lambda lag: (descending(lag.lag_seconds), descending(lag.lag_records)),
    GroupOrder.MEMBER_COUNT: lambda lag: descending(lag.group.member_count),
    GroupOrder.LAST_REBALANCE: lambda lag: descending(lag.last_rebalance_at_ms),
}
