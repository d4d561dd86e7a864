"""Why each group rebalanced: what happened to it, folded into rebalances.

A group tells of events; those that come between the start and the end of a rebalance, and those just before it, are
its causes. Kept in memory only, the last few for each group, for people who wonder at night why their consumers stood
still.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import attrs

from trio_broker.coordinator.runtime.result import GroupEvent, GroupEventKind

MAX_REBALANCES = 50
"""Rebalances kept for each group: a bad night's worth."""

MAX_CAUSES = 100
"""Events kept for one rebalance. A group of a thousand members that all join at once needs no longer list."""

MAX_TEXT_CHARACTERS = 256
"""Kept of a name or reason. Clients may choose names of 32 KB, and thousands of events are kept."""


@attrs.frozen(kw_only=True)
class Rebalance:
    """One rebalance: from the moment when members had to stop until all had their new assignment.

    ``ended_at_ms`` is None while it goes on. ``members`` and ``generation`` are those after it. ``causes`` are the
    first events that led to it or came in its course, and ``further_causes`` says how many more there were.
    """

    started_at_ms: int
    ended_at_ms: int | None
    generation: int
    members: int
    causes: tuple[GroupEvent, ...]
    further_causes: int = 0


@attrs.define
class _Causes:
    """What happened since the last rebalance ended, or the most telling part of it."""

    events: list[GroupEvent] = attrs.Factory(list)
    further: int = 0

    def add(self, event: GroupEvent) -> None:
        if len(self.events) >= MAX_CAUSES:
            self.further += 1
            if not self._make_room_for(event):
                return
        self.events.append(shortened(event))

    def _make_room_for(self, event: GroupEvent) -> bool:
        """Let an event go that every rebalance has many of; nobody wonders why members joined again."""
        if event.kind is GroupEventKind.MEMBER_REJOINED:
            return False
        for index, each in enumerate(self.events):
            if each.kind is GroupEventKind.MEMBER_REJOINED:
                del self.events[index]
                return True
        return False


def shortened(event: GroupEvent) -> GroupEvent:
    """The event with names that are no longer than people read."""
    return attrs.evolve(
        event,
        member_id=_short(event.member_id),
        group_instance_id=_short(event.group_instance_id),
        client_id=_short(event.client_id),
        reason=event.reason[:MAX_TEXT_CHARACTERS],
    )


def _short(text: str | None) -> str | None:
    return None if text is None else text[:MAX_TEXT_CHARACTERS]


class Timeline:
    """The recent rebalances of one group."""

    def __init__(self) -> None:
        self._ended: deque[Rebalance] = deque(maxlen=MAX_REBALANCES)
        self._causes = _Causes()
        self._started: GroupEvent | None = None
        self._latest_generation = 0

    def record(self, events: Iterable[GroupEvent], members: int) -> int:
        """Take note of ``events``; ``members`` is how many there are now. Returns how many rebalances have ended."""
        ended = 0
        for event in events:
            self._latest_generation = event.generation
            if event.kind is GroupEventKind.REBALANCE_STARTED:
                self._started = self._started or event
            elif event.kind is GroupEventKind.REBALANCE_COMPLETED:
                self._end(event, members)
                ended += 1
            else:
                self._causes.add(event)
        return ended

    def _end(self, event: GroupEvent, members: int) -> None:
        started, causes = self._started or event, self._causes
        self._started, self._causes = None, _Causes()
        self._ended.append(
            Rebalance(
                started_at_ms=started.at_ms,
                ended_at_ms=event.at_ms,
                generation=event.generation,
                members=members,
                causes=tuple(causes.events),
                further_causes=causes.further,
            )
        )

    def rebalances(self, members: int) -> Sequence[Rebalance]:
        """The rebalances kept, oldest first; the last one may be under way, with ``members`` so far."""
        ended = list(self._ended)
        if self._started is None:
            return ended
        under_way = Rebalance(
            started_at_ms=self._started.at_ms,
            ended_at_ms=None,
            generation=self._latest_generation,
            members=members,
            causes=tuple(self._causes.events),
            further_causes=self._causes.further,
        )
        return [*ended, under_way]
