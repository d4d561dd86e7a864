"""Which groups a list shows, and by what it can be ordered.

Pure functions over a report, which may hold thousands of groups; their callers run them in a worker thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from broker_admin.listing import ListQuery, SortValue, ordered_by, take_page
from broker_admin.problems import FieldError, Problem, query_pointer
from trio_broker.coordinator.reporting.snapshot import GroupLag, GroupLagReport, GroupType

GROUP_COLUMNS: Mapping[str, Callable[[GroupLag], SortValue]] = {
    "group_id": lambda lag: lag.group.group_id,
    "lag_seconds": lambda lag: lag.lag_seconds,
    "lag_records": lambda lag: lag.lag_records,
    "consumed": lambda lag: None if lag.rates is None else lag.rates.consumed_per_second,
    "lag_change": lambda lag: None if lag.rates is None else lag.rates.lag_change_per_second,
    "catches_up": lambda lag: None if lag.rates is None else lag.rates.catches_up_in_seconds,
    "state": lambda lag: lag.group.state,
    "members": lambda lag: lag.group.member_count,
    "partitions": lambda lag: lag.partition_count,
    "unknown": lambda lag: lag.partitions_without_lag,
    "last_rebalance": lambda lag: lag.last_rebalance_at_ms,
}


@attrs.frozen(kw_only=True)
class GroupsQuery(ListQuery):
    """Which groups are wanted; no states or types mean all, and their case does not count."""

    order: str = ordered_by("group_id", GROUP_COLUMNS)
    state: tuple[str, ...] = ()
    type: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class GroupList:
    """A part of the list of groups: ``items`` of the ``matching`` ones of all ``total``.

    ``next_cursor`` leads to the next part. ``is_complete`` is false while the broker still loads some groups. Lag is as
    of ``surveyed_at_ms``.
    """

    items: tuple[GroupLag, ...]
    total: int
    matching: int
    next_cursor: str | None
    surveyed_at_ms: int
    is_complete: bool


def group_id_of_lag(lag: GroupLag) -> str:
    return lag.group.group_id


def select_groups(report: GroupLagReport, query: GroupsQuery) -> GroupList:
    """The part of ``report`` that ``query`` asks for.

    Raises:
        Problem: a parameter has no such value.
    """
    states, types = folded(query.state), folded(query.type)
    if unknown := types - {each.value for each in GroupType}:
        reason = f"type is classic or consumer, not {min(unknown)[:40]!r}"
        raise Problem(400, reason, [FieldError(query_pointer("type"), reason)])
    wanted = [
        lag
        for lag in report.groups
        if (not states or lag.group.state.casefold() in states) and (not types or lag.group.type.value in types)
    ]
    page = take_page(wanted, query, id_of=group_id_of_lag, columns=GROUP_COLUMNS)
    return GroupList(
        items=page.items,
        total=len(report.groups),
        matching=page.matching,
        next_cursor=page.next_cursor,
        surveyed_at_ms=report.collected_at_ms,
        is_complete=report.is_complete,
    )


def folded(words: tuple[str, ...]) -> frozenset[str]:
    return frozenset(word.casefold() for word in words if word)


def descending(value: float | None) -> float:
    """The sort key that puts large numbers first and absent ones last."""
    return 1.0 if value is None else -float(value)
