"""A group's rebalances as the page shows them: a chart over time, and a list of causes.

In the chart each rebalance is a bar: where it stands is when, how high it is is how long it took, its severity is what
made it happen. Places are percentages, so that the browser stretches the chart without a script.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from broker_admin.texts import short_duration_text
from broker_admin.time_axis import TimeAxis
from trio_broker.coordinator.group_event import GroupEvent, GroupEventKind
from trio_broker.coordinator.reporting.snapshot import Rebalance

SHOWN_CAUSES = 4
"""Members named for one kind of cause; the names of two hundred that join say nothing."""

MIN_SPAN_MS = 60_000
"""The chart shows at least a minute, or a single rebalance would be as wide as it is."""

MIN_HEIGHT_PERCENT = 14.0
"""A rebalance of no time can still be seen."""

SEVERITIES = {
    GroupEventKind.ASSIGNMENT_LOST: "bad",
    GroupEventKind.MEMBER_TIMED_OUT: "bad",
    GroupEventKind.MEMBER_FENCED: "bad",
    GroupEventKind.MEMBER_LEFT: "left",
    GroupEventKind.MEMBER_JOINED: "joined",
    GroupEventKind.MEMBER_REPLACED: "joined",
}
"""How a cause looks; the worst first: a rebalance has the severity of the worst of its causes."""

OTHER_SEVERITY = "other"

SEVERITY_ORDER = (*dict.fromkeys(SEVERITIES.values()), OTHER_SEVERITY)


@attrs.frozen
class CauseLine:
    """One kind of cause of a rebalance: how often, and the first of those it concerns."""

    kind: GroupEventKind
    severity: str
    count: int
    shown: tuple[GroupEvent, ...]


@attrs.frozen
class RebalanceEntry:
    """One rebalance in the list under the chart."""

    rebalance: Rebalance
    severity: str
    lines: tuple[CauseLine, ...]


@attrs.frozen
class RebalanceBar:
    """One rebalance in the chart, in percent from the left and from the top."""

    left: float
    top: float
    severity: str
    entry: RebalanceEntry


@attrs.frozen
class TimelineChart:
    """The chart over ``axis``; the highest bar is ``longest`` long, in words."""

    axis: TimeAxis
    longest: str
    bars: tuple[RebalanceBar, ...]


def severity_of(kind: GroupEventKind) -> str:
    return SEVERITIES.get(kind, OTHER_SEVERITY)


def rebalance_entry(rebalance: Rebalance) -> RebalanceEntry:
    """``rebalance`` with its causes by kind, the worst kind first."""
    by_kind: dict[GroupEventKind, list[GroupEvent]] = {}
    for cause in rebalance.causes:
        by_kind.setdefault(cause.kind, []).append(cause)
    lines = [
        CauseLine(kind, severity_of(kind), len(causes), tuple(causes[:SHOWN_CAUSES]))
        for kind, causes in by_kind.items()
    ]
    lines.sort(key=lambda line: SEVERITY_ORDER.index(line.severity))
    return RebalanceEntry(rebalance, lines[0].severity if lines else OTHER_SEVERITY, tuple(lines))


def timeline_chart(entries: Sequence[RebalanceEntry], now_ms: int) -> TimelineChart | None:
    """The chart of ``entries``, oldest first, up to now; None when there are none."""
    if not entries:
        return None
    # Not the times of the first and the last, nor simply now: a wall clock may have been set back in between.
    first_ms = min(entry.rebalance.started_at_ms for entry in entries)
    end_ms = max(now_ms, *(entry.rebalance.ended_at_ms or entry.rebalance.started_at_ms for entry in entries))
    # Four percent of room on the left, or the first bar's circle would be cut at the edge.
    axis = TimeAxis(end_ms - max(MIN_SPAN_MS, (end_ms - first_ms) * 100 // 96), end_ms)
    longest_ms = max(duration_so_far_ms(entry.rebalance, end_ms) for entry in entries)
    bars = tuple(
        RebalanceBar(
            left=round(axis.percent(entry.rebalance.started_at_ms), 2),
            top=round(100 - bar_height(duration_so_far_ms(entry.rebalance, end_ms), longest_ms), 2),
            severity=entry.severity,
            entry=entry,
        )
        for entry in entries
    )
    return TimelineChart(axis, short_duration_text(longest_ms / 1000), bars)


def duration_so_far_ms(rebalance: Rebalance, now_ms: int) -> int:
    """How long it took, or has taken so far."""
    if rebalance.duration_ms is None:
        return max(0, now_ms - rebalance.started_at_ms)
    return max(0, rebalance.duration_ms)


def bar_height(duration_ms: int, longest_ms: int) -> float:
    return MIN_HEIGHT_PERCENT + (100 - MIN_HEIGHT_PERCENT) * duration_ms / max(1, longest_ms)
