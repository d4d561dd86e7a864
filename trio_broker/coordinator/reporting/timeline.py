"""Why each group rebalanced: its events, folded into rebalances.

The events between the start and the end of a rebalance, and those just before it, are its causes. Kept in memory only,
the latest rebalances of each group, for the admin app.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import attrs

from trio_broker.coordinator.group_event import GroupEvent, GroupEventKind
from trio_broker.coordinator.reporting.snapshot import Rebalance

MAX_REBALANCES = 50
"""Rebalances kept for each group: those of a bad night."""

MAX_CAUSES = 100
"""Events kept for one rebalance. A group of a thousand members that all join at once needs no longer list."""

MAX_TEXT_CHARACTERS = 255
"""Kept of a name or reason. Clients may choose names of 32 KB, and thousands of events are kept. Reasons end here in
clients, too (KIP-800)."""


@attrs.define
class _Causes:
    """The events since the last rebalance ended, or the most important of them."""

    events: list[GroupEvent] = attrs.Factory(list)
    further: int = 0

    def add(self, event: GroupEvent) -> None:
        if len(self.events) >= MAX_CAUSES:
            self.further += 1
            if not self._make_room_for(event):
                return
        self.events.append(shortened(event))

    def _make_room_for(self, event: GroupEvent) -> bool:
        """Drop an event that says little: every rebalance has many members that join again."""
        if event.kind is GroupEventKind.MEMBER_REJOINED:
            return False
        for index, each in enumerate(self.events):
            if each.kind is GroupEventKind.MEMBER_REJOINED:
                del self.events[index]
                return True
        return False


def shortened(event: GroupEvent) -> GroupEvent:
    """The event with names and reason cut to ``MAX_TEXT_CHARACTERS``."""
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
        """Fold in ``events``, after which there are ``members``. Returns how many rebalances have ended."""
        ended = 0
        for event in events:
            self._latest_generation = event.generation
            if event.kind is GroupEventKind.REBALANCE_STARTED:
                self._started = self._started or event
            elif event.kind is GroupEventKind.REBALANCE_COMPLETED:
                self._ended.append(self._rebalance(self._started or event, event, members))
                self._started, self._causes = None, _Causes()
                ended += 1
            else:
                self._causes.add(event)
        return ended

    def _rebalance(self, started: GroupEvent, ended: GroupEvent | None, members: int) -> Rebalance:
        return Rebalance(
            started_at_ms=started.at_ms,
            ended_at_ms=None if ended is None else ended.at_ms,
            # The wall clock may have been set back meanwhile.
            duration_ms=None if ended is None else max(0, ended.at_ms - started.at_ms),
            generation=self._latest_generation,
            member_count=members,
            causes=tuple(self._causes.events),
            further_causes=self._causes.further,
        )

    def rebalances(self, members: int) -> Sequence[Rebalance]:
        """The rebalances kept, oldest first; the last one may be under way, with ``members`` so far."""
        if self._started is None:
            return list(self._ended)
        return [*self._ended, self._rebalance(self._started, None, members)]

    @property
    def latest_started_at_ms(self) -> int | None:
        """When the latest rebalance began, None if there was none."""
        if self._started is not None:
            return self._started.at_ms
        return self._ended[-1].started_at_ms if self._ended else None
