"""What happens in a running broker, for the admin app's event streams."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import trio

from broker_admin.views.node.events import BrokerEvent, EventsForgotten

KEPT_EVENTS: Final = 30
"""Half a minute of samples: more than a hiccup of the network, little enough to forget about."""


class LiveEventsView:
    """The part of the admin app's view that has the newest events.

    They are kept once, however many streams read them, each at its own pace. Numbers begin at the time of the start in
    milliseconds: no event takes less, so a number of an earlier life is too old here.
    """

    def __init__(self, started_ms: int) -> None:
        self._events: deque[BrokerEvent] = deque(maxlen=KEPT_EVENTS)
        self._newest = started_ms
        self._published = trio.Event()

    @property
    def newest(self) -> int:
        return self._newest

    def after(self, number: int) -> Sequence[BrokerEvent]:
        missed = self._newest - number
        if not 0 <= missed <= len(self._events):
            raise EventsForgotten
        return list(self._events)[len(self._events) - missed :]

    async def wait(self) -> None:
        await self._published.wait()

    def publish(self, event: BrokerEvent) -> None:
        """Append ``event``."""
        self._events.append(event)
        self._newest += 1
        self._published.set()
        self._published = trio.Event()
