"""Holds a stream of records to a rate.

A bucket fills at ``rate`` per second; taking more than is in it waits until that has come. It begins empty and holds
little, so that over any time no more passes than the rate times it, and a quarter of a second's worth: many buckets
that share a rate among tasks keep to it together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    import pyarrow as pa

STEP_SECONDS: Final = 0.25
"""So much of a second is let through at once. Shorter steps cost more than they smooth."""


@attrs.define
class TokenBucket:
    """``rate`` is per second and above zero. ``now`` and ``sleep`` are in seconds, and replaced by tests."""

    rate: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _tokens: float = 0.0
    _filled_at: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        assert self.rate > 0, f"{self.rate}"
        self._filled_at = self.now()

    def take(self, count: float) -> None:
        """Take so many, and return when they had come."""
        now = self.now()
        capacity = self.rate * STEP_SECONDS
        self._tokens = min(capacity, self._tokens + (now - self._filled_at) * self.rate) - count
        self._filled_at = now
        if self._tokens < 0:
            self.sleep(-self._tokens / self.rate)


@attrs.frozen
class RateLimit:
    """How much may pass in a second, together; None for any amount.

    Bytes are those in Arrow, which are a few more for each record than its key, value and headers have.
    """

    records: float | None = None
    bytes: float | None = None

    def share(self, part: int, whole: int) -> RateLimit:
        """Return what a task may pass that does ``part`` of what all tasks which run at once do."""
        share = part / whole if whole else 1.0

        def of(rate: float | None) -> float | None:
            return None if rate is None else rate * share

        return RateLimit(of(self.records), of(self.bytes))

    def seconds_for(self, records: int, size_bytes: int | None) -> float | None:
        """Return how long it takes at least to pass so much; None where that is not limited, or not known."""
        times = []
        if self.records is not None:
            times.append(records / self.records)
        if self.bytes is not None and size_bytes is not None:
            times.append(size_bytes / self.bytes)
        return max(times, default=None)


@attrs.define
class Throttle:
    """Lets Arrow batches through at the pace of a limit, cut into pieces small enough for that to be even."""

    limit: RateLimit
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _records: TokenBucket | None = None
    _bytes: TokenBucket | None = None

    def __attrs_post_init__(self) -> None:
        if self.limit.records is not None:
            self._records = TokenBucket(self.limit.records, self.now, self.sleep)
        if self.limit.bytes is not None:
            self._bytes = TokenBucket(self.limit.bytes, self.now, self.sleep)

    def pieces(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``batch`` in their order, each piece when it may pass."""
        rows, start = self._rows_at_once(batch), 0
        while start < batch.num_rows:
            piece = batch.slice(start, rows)
            if self._records is not None:
                self._records.take(piece.num_rows)
            if self._bytes is not None:
                self._bytes.take(piece.nbytes)
            yield piece
            start += rows

    def _rows_at_once(self, batch: pa.RecordBatch) -> int:
        rows: float = batch.num_rows
        if self.limit.records is not None:
            rows = min(rows, self.limit.records * STEP_SECONDS)
        if self.limit.bytes is not None and batch.nbytes:
            rows = min(rows, self.limit.bytes * STEP_SECONDS * batch.num_rows / batch.nbytes)
        return max(1, int(rows))
