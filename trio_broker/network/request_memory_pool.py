"""The bytes of large requests that the broker holds at once: ``queued.max.request.bytes``.

A connection acquires the size of a large frame before it allocates the buffer, and releases it when the request is
answered; while it waits it does not read, and TCP slows the client down. As in Kafka, one frame may exceed the limit,
since a frame larger than the limit could otherwise never be read. Small frames are not counted: their number is
bounded by the connections, and thousands of long polls must not use up the limit.

Source: Kafka's SimpleMemoryPool, created by SocketServer with strict = false.
"""

from __future__ import annotations

import trio

from trio_broker.config.socket_server_config import SocketServerConfig

SMALL_FRAME_BYTES = 64 * 1024
"""Frames up to here are not counted: what one read from a socket brings."""


class RequestMemoryPool:
    """Counts the bytes held; ``acquire`` waits while they exceed the limit. First come, first served."""

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
        # Waits behind others even when there is room, or a large frame could be overtaken for ever. Who was woken does
        # not queue again behind the others unless the pool filled up meanwhile.
        if self.is_exhausted or self._waiting:
            await self._waiting.park()
            while self.is_exhausted:
                await self._waiting.park()
        self.held += count
        # Each wakes only the next, so that the limit is checked again before one more frame is counted.
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
