"""The bytes of large requests that the broker holds at once: ``queued.max.request.bytes``.

A frame asks before its buffer is made, and gives back when its request is answered; meanwhile its client waits in
TCP. As in Kafka, the limit may be passed by one frame, since otherwise a frame larger than it could never be read.
Small frames are not counted: their number is bounded by the connections, and a crowd of parked polls must not use up
the budget.

Source: Kafka's SimpleMemoryPool, created by SocketServer with strict = false.
"""

from __future__ import annotations

import trio

from trio_broker.config.socket_server_config import SocketServerConfig

SMALL_FRAME_BYTES = 64 * 1024
"""Frames up to here are not counted: what one read from a socket brings."""


class RequestMemoryPool:
    """Counts what is held, and makes those wait who would hold too much. First come, first served."""

    def __init__(self, config: SocketServerConfig) -> None:
        self.config = config
        self.held = 0
        self._waiting = trio.lowlevel.ParkingLot()

    @property
    def is_exhausted(self) -> bool:
        """Whether the next large frame must wait; a limit of 0 or less is none."""
        return 0 < self.config.queued_max_request_bytes <= self.held

    async def acquire(self, count: int) -> int:
        """Wait until ``count`` more bytes may be held, and count them; returns ``count``."""
        if self.is_exhausted or self._waiting:
            await self._waiting.park()
            while self.is_exhausted:
                await self._waiting.park()
        self.held += count
        self.wake()
        return count

    def release(self, count: int) -> None:
        """Give back what ``acquire`` counted."""
        self.held -= count
        assert self.held >= 0, f"{-self.held} bytes more given back than taken"
        self.wake()

    def wake(self) -> None:
        """Let the next in line go on if there is room; also after the limit was changed."""
        if not self.is_exhausted:
            self._waiting.unpark()
