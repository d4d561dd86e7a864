"""Connections that are not read for a time, since their clients are above a quota.

Source: Kafka's ThrottledChannel and ClientQuotaManager.ThrottledChannelReaper.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

import trio
from trio.lowlevel import ParkingLot

from trio_broker.network.connection import Connection, ConnectionState


class ThrottledConnections:
    """Those of one Processor. ``is_here`` says whether a connection is still one of it, ``go_on`` serves it again."""

    def __init__(self, is_here: Callable[[Connection], bool], go_on: Callable[[Connection], None]) -> None:
        self._is_here = is_here
        self._go_on = go_on
        self._due: list[tuple[float, int, Connection]] = []
        self._order = itertools.count()
        self._earlier = ParkingLot()

    def add(self, connection: Connection) -> None:
        """Have ``connection`` go on at its ``throttled_until``, in the time of the event loop."""
        heapq.heappush(self._due, (connection.throttled_until, next(self._order), connection))
        self._earlier.unpark()

    async def run(self) -> None:
        """Let connections go on, each at its time, until cancelled."""
        while True:
            until = self._due[0][0] if self._due else float("inf")
            with trio.move_on_at(until):
                await self._earlier.park()
            now = trio.current_time()
            while self._due and self._due[0][0] <= now:
                until, _, connection = heapq.heappop(self._due)
                # Else it has been closed, or moved away.
                is_due = connection.state is ConnectionState.THROTTLED and connection.throttled_until == until
                if is_due and self._is_here(connection):
                    self._go_on(connection)
