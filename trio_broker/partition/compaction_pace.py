"""How fast compaction may go: in slices of time, and within so many bytes a second.

Compaction is Python in a worker thread, and only one thread at a time runs Python. So it works in slices that are a
tenth of the five milliseconds after which the interpreter would take turns by itself, and each slice is begun by the
event loop: when that has much to do, the next slice waits.

Source: Kafka's Throttler; ``log.cleaner.io.max.bytes.per.second``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import trio

from trio_broker.runtime.clock import Clock

SLICE_SECONDS = 0.0005
"""A request that comes while compaction computes waits for the end of a slice, or of one batch where that takes longer.
Handing a slice to a thread takes about a sixth of that."""


@attrs.frozen
class Slice:
    """The part of some work that is done: bytes read and written, and whether that was all."""

    size_bytes: int
    is_last: bool


def run_slice(work: Iterator[int], clock: Clock, seconds: float = SLICE_SECONDS) -> Slice:
    """Go on with ``work`` for about ``seconds``. Runs in a worker thread."""
    ends_at = clock.monotonic() + seconds
    size_bytes = 0
    for step_bytes in work:
        size_bytes += step_bytes
        if clock.monotonic() >= ends_at:
            return Slice(size_bytes, is_last=False)
    return Slice(size_bytes, is_last=True)


class BytesPerSecond:
    """Makes those who share it wait so that together they stay below ``rate``, which is asked for each time."""

    def __init__(self, rate: Callable[[], float]) -> None:
        self._rate = rate
        self._free_at = 0.0

    async def pay(self, size_bytes: int) -> None:
        """Wait as long as ``size_bytes`` take, and what others have paid for before."""
        now = trio.current_time()
        self._free_at = max(self._free_at, now) + size_bytes / self._rate()
        if self._free_at > now:
            await trio.sleep_until(self._free_at)
