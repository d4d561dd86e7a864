"""Requests that wait: a Produce for its records to be safe, a Fetch for enough records to be there.

A parked request registers with each of its partitions, is woken at most once, and then looks at the partitions itself
to see what came true: waking says "look again" and nothing else, so a spurious wake costs one look and can do no
harm. A missing wake would cost the client its whole timeout; so a partition that fails or is deleted wakes everyone
too.

All of this happens on the event loop, between checkpoints, and therefore needs no lock.

Source: the idea is Kafka's DelayedOperationPurgatory, with Trio's timeouts in the place of its timing wheel.
"""

from __future__ import annotations

import trio


class DelayedOperation:
    """One request that waits until it is woken or its time is over."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def wake(self) -> None:
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for ``wake``, at most ``seconds``; tell whether it came."""
        with trio.move_on_after(max(seconds, 0.0)):
            await self._event.wait()
        return self._event.is_set()


class DelayedProduce(DelayedOperation):
    """A Produce that waits for the high watermarks of several partitions: it wakes when the last of them is reached."""

    __slots__ = ("partitions_pending",)

    def __init__(self) -> None:
        super().__init__()
        self.partitions_pending = 0

    def partition_completed(self) -> None:
        """One of the partitions got there, or never will."""
        self.partitions_pending -= 1
        if self.partitions_pending <= 0:
            self.wake()


class DelayedFetch(DelayedOperation):
    """A Fetch that waits for bytes, from whichever of its partitions they come.

    Counting bytes as they become visible is what spares it a full look at all its partitions after every append.
    """

    __slots__ = ("bytes_missing",)

    def __init__(self, bytes_missing: int) -> None:
        super().__init__()
        self.bytes_missing = bytes_missing

    def bytes_arrived(self, size: int) -> None:
        self.bytes_missing -= size
        if self.bytes_missing <= 0:
            self.wake()
