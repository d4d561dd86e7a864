"""The bytes of large requests that the broker holds at once: ``queued.max.request.bytes``.

A connection acquires the size of a large frame before it allocates the buffer, and releases it when the request is
answered; while it waits it does not read, and TCP slows the client down. As in Kafka, one frame may exceed the limit,
since a frame larger than the limit could otherwise never be read. Small frames are not counted: their number is
bounded by the connections, and thousands of long polls must not use up the limit.

Source: Kafka's SimpleMemoryPool, created by SocketServer with strict = false.
"""

from __future__ import annotations

from typing import Protocol

from trio_broker.config.socket_server_config import SocketServerConfig

SMALL_FRAME_BYTES = 64 * 1024
"""Frames up to here are not counted: what one read from a socket brings."""


class MemoryWaiter(Protocol):
    """What waits for memory."""

    def memory_acquired(self, count: int) -> None:
        """``count`` bytes are the waiter's from now on."""
        ...


class RequestMemoryPool:
    """Counts the bytes held; who asks while they exceed the limit waits. First come, first served."""

    def __init__(self, config: SocketServerConfig) -> None:
        self.config = config
        self.held = 0
        self._waiting: dict[MemoryWaiter, int] = {}

    @property
    def is_exhausted(self) -> bool:
        """Whether the next large frame must wait; a limit of 0 or less is none."""
        return 0 < self.config.queued_max_request_bytes <= self.held

    def acquire(self, waiter: MemoryWaiter, count: int) -> bool:
        """Count ``count`` bytes, or let ``waiter`` wait for them; whether they are its already."""
        # Waits behind others even when there is room, or a large frame could be overtaken for ever.
        if self.is_exhausted or self._waiting:
            self._waiting[waiter] = count
            return False
        self.held += count
        return True

    def withdraw(self, waiter: MemoryWaiter) -> None:
        """``waiter`` waits no longer."""
        self._waiting.pop(waiter, None)

    def release(self, count: int) -> None:
        """Give back what was acquired."""
        self.held -= count
        assert self.held >= 0, f"{-self.held} bytes more given back than taken"
        self.wake()

    def wake(self) -> None:
        """Let those who wait have what there is room for; also after the limit was changed."""
        while self._waiting and not self.is_exhausted:
            waiter = next(iter(self._waiting))
            count = self._waiting.pop(waiter)
            self.held += count
            waiter.memory_acquired(count)
