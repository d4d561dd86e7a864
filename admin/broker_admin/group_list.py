"""A part of the list of groups: which, in which order, from where on.

Pure functions over a survey, which may hold thousands of groups; their callers run them in a worker thread.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from broker_admin.view import GroupSummary, GroupSurvey

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
    groups: tuple[GroupSummary, ...]


def select_groups(survey: GroupSurvey, query: GroupQuery) -> GroupList:
    """The part of ``survey`` that ``query`` asks for."""
    matching = [group for group in survey.groups if is_wanted(group, query)]
    if query.order is not GroupOrder.GROUP_ID:
        matching.sort(key=SORT_KEYS[query.order])  # stable: equal ones stay ordered by id
    return GroupList(
        surveyed_at_ms=survey.surveyed_at_ms,
        is_complete=survey.is_complete,
        total=len(survey.groups),
        matching=len(matching),
        offset=query.offset,
        groups=tuple(matching[query.offset : query.offset + query.limit]),
    )


def is_wanted(group: GroupSummary, query: GroupQuery) -> bool:
    return (
        (not query.states or group.state.lower() in query.states)
        and (not query.types or group.type.value in query.types)
        and (not query.search or query.search.casefold() in group.group_id.casefold())
    )


def descending(value: float | None) -> float:
    """The sort key that puts large numbers first and absent ones last."""
    return 1.0 if value is None else -float(value)


SORT_KEYS: Mapping[GroupOrder, Callable[[GroupSummary], Any]] = {
    GroupOrder.LAG_RECORDS: lambda group: descending(group.lag_records),
    GroupOrder.LAG_SECONDS: lambda group: (descending(group.lag_seconds), descending(group.lag_records)),
    GroupOrder.MEMBER_COUNT: lambda group: descending(group.member_count),
    GroupOrder.LAST_REBALANCE: lambda group: descending(group.last_rebalance_at_ms),
}
