"""The bytes of large requests that the broker holds at once: ``queued.max.request.bytes``.

A connection acquires the size of a large frame before it allocates the buffer, and releases it when the request is
answered; while it waits it does not read, and TCP slows the client down. As in Kafka, one frame may exceed the limit,
since a frame larger than the limit could otherwise never be read. Small frames are not counted: their number is
bounded by the connections, and thousands of long polls must not use up the limit.

Large requests that wait for their turn behind others are bounded whatever that setting says (``MAX_BACKLOG_BYTES``):
their connections bound them no longer, because a client may send one and leave, and come again.

Source: Kafka's SimpleMemoryPool, created by SocketServer with strict = false.
"""

from __future__ import annotations

from typing import Protocol

from trio_broker.config.socket_server_config import SocketServerConfig

SMALL_FRAME_BYTES = 64 * 1024
"""Frames up to here are not counted: what one read from a socket brings."""


MAX_BACKLOG_BYTES = 128 * 1024 * 1024
"""No large frame is begun to be read while requests of so many bytes wait for their turn: what is read sooner is
handled no sooner. Room for the largest request, and a few dozen that name all that a node can hold."""

TRIM_AFTER_BYTES = 16 * 1024 * 1024
"""After so many bytes that have waited, what they and their objects leave free among others is worth giving back while
more large messages come."""


class MemoryWaiter(Protocol):
    """What waits for memory."""

    def memory_acquired(self, count: int) -> None:
        """``count`` bytes are the waiter's from now on."""
        ...


class RequestMemoryPool:
    """Counts the bytes held; who asks while they exceed the limit waits. First come, first served.

    ``backlog`` is how many bytes of requests wait for their turn, ``waited`` how many have waited since ``should_trim``
    was last true. ``large_messages`` counts large frames, and requests and responses of many elements.
    """

    def __init__(self, config: SocketServerConfig) -> None:
        self.config = config
        self.held = 0
        self.backlog = 0
        self.waited = 0
        self.large_messages = 0
        self._seen_messages = 0
        self._trimmed_messages = 0
        self._waiting: dict[MemoryWaiter, int] = {}

    @property
    def is_exhausted(self) -> bool:
        """Whether the next large frame must wait; a limit of 0 or less is none."""
        return self.backlog >= MAX_BACKLOG_BYTES or 0 < self.config.queued_max_request_bytes <= self.held

    def acquire(self, waiter: MemoryWaiter, count: int) -> bool:
        """Count ``count`` bytes, or let ``waiter`` wait for them; whether they are its already."""
        self.large_messages += 1
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

    def enter_backlog(self, count: int) -> None:
        """A request of ``count`` bytes begins to wait for its turn."""
        self.backlog += count
        self.waited += count
        self.large_messages += 1

    def leave_backlog(self, count: int) -> None:
        """It has its turn, or waits no longer."""
        self.backlog -= count
        self.wake()

    def should_trim(self) -> bool:
        """Whether free memory is to be given back, asked at intervals; true once for each backlog that has passed, and
        once when there was no large message for an interval.

        The end counts however little has waited: the next large message may come in a day, and until then what the last
        ones have left free would stay with the process.
        """
        is_quiet, self._seen_messages = self.large_messages == self._seen_messages, self.large_messages
        has_ended = is_quiet and self.large_messages != self._trimmed_messages
        if self.backlog or (self.waited < TRIM_AFTER_BYTES and not has_ended):
            return False
        self.waited, self._trimmed_messages = 0, self.large_messages
        return True

    def wake(self) -> None:
        """Let those who wait have what there is room for; also after the limit was changed."""
        while self._waiting and not self.is_exhausted:
            waiter = next(iter(self._waiting))
            count = self._waiting.pop(waiter)
            self.held += count
            waiter.memory_acquired(count)
