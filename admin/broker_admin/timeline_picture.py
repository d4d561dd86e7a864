"""A group's rebalances as the page shows them: a picture over time, and a list of causes.

In the picture each rebalance is a stem: where it stands is when, how high it is is how long it took, its tone is what
made it happen. Places are percentages, so that the browser stretches the picture without a script.
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
"""The picture shows at least a minute, or a single rebalance would be as wide as it is."""

MIN_HEIGHT_PERCENT = 14.0
"""A rebalance of no time can still be seen."""

TONES = {
    GroupEventKind.ASSIGNMENT_LOST: "bad",
    GroupEventKind.MEMBER_TIMED_OUT: "bad",
    GroupEventKind.MEMBER_FENCED: "bad",
    GroupEventKind.MEMBER_LEFT: "left",
    GroupEventKind.MEMBER_JOINED: "joined",
    GroupEventKind.MEMBER_REPLACED: "joined",
}
"""How a cause looks; the worst first: a rebalance has the tone of the worst of its causes."""

OTHER_TONE = "other"

TONE_ORDER = (*dict.fromkeys(TONES.values()), OTHER_TONE)


@attrs.frozen
class CauseLine:
    """One kind of cause of a rebalance: how often, and the first of those it concerns."""

    kind: GroupEventKind
    tone: str
    count: int
    shown: tuple[GroupEvent, ...]


@attrs.frozen
class RebalanceEntry:
    """One rebalance in the list under the picture."""

    rebalance: Rebalance
    tone: str
    lines: tuple[CauseLine, ...]


@attrs.frozen
class Stem:
    """One rebalance in the picture, in percent from the left and from the top."""

    left: float
    top: float
    tone: str
    entry: RebalanceEntry


@attrs.frozen
class TimelinePicture:
    """The picture over ``axis``; the highest stem is ``longest`` long, in words."""

    axis: TimeAxis
    longest: str
    stems: tuple[Stem, ...]


def tone_of(kind: GroupEventKind) -> str:
    return TONES.get(kind, OTHER_TONE)


def rebalance_entry(rebalance: Rebalance) -> RebalanceEntry:
    """``rebalance`` with its causes by kind, the worst kind first."""
    by_kind: dict[GroupEventKind, list[GroupEvent]] = {}
    for cause in rebalance.causes:
        by_kind.setdefault(cause.kind, []).append(cause)
    lines = [
        CauseLine(kind, tone_of(kind), len(causes), tuple(causes[:SHOWN_CAUSES])) for kind, causes in by_kind.items()
    ]
    lines.sort(key=lambda line: TONE_ORDER.index(line.tone))
    return RebalanceEntry(rebalance, lines[0].tone if lines else OTHER_TONE, tuple(lines))


def timeline_picture(entries: Sequence[RebalanceEntry], now_ms: int) -> TimelinePicture | None:
    """The picture of ``entries``, oldest first, up to now; None when there are none."""
    if not entries:
        return None
    # Not the times of the first and the last, nor simply now: a wall clock may have been set back in between.
    first_ms = min(entry.rebalance.started_at_ms for entry in entries)
    end_ms = max(now_ms, *(entry.rebalance.ended_at_ms or entry.rebalance.started_at_ms for entry in entries))
    # Four percent of room on the left, or the first stem's circle would be cut at the edge.
    axis = TimeAxis(end_ms - max(MIN_SPAN_MS, (end_ms - first_ms) * 100 // 96), end_ms)
    longest_ms = max(duration_so_far_ms(entry.rebalance, end_ms) for entry in entries)
    stems = tuple(
        Stem(
            left=round(axis.percent(entry.rebalance.started_at_ms), 2),
            top=round(100 - stem_height(duration_so_far_ms(entry.rebalance, end_ms), longest_ms), 2),
            tone=entry.tone,
            entry=entry,
        )
        for entry in entries
    )
    return TimelinePicture(axis, short_duration_text(longest_ms / 1000), stems)


def duration_so_far_ms(rebalance: Rebalance, now_ms: int) -> int:
    """How long it took, or has taken so far."""
    if rebalance.duration_ms is None:
        return max(0, now_ms - rebalance.started_at_ms)
    return max(0, rebalance.duration_ms)


def stem_height(duration_ms: int, longest_ms: int) -> float:
    return MIN_HEIGHT_PERCENT + (100 - MIN_HEIGHT_PERCENT) * duration_ms / max(1, longest_ms)
