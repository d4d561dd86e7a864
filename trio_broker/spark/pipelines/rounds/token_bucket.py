"""Limits the rate of a stream of records.

A bucket fills at ``rate`` per second; taking more than it holds waits until it has filled. It begins empty and holds
little, so that no more passes in any time than the rate allows in that time and a quarter of a second: the buckets of
many tasks that share a rate keep to it together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    import pyarrow as pa

STEP_SECONDS: Final = 0.25
"""The part of a second whose records pass at once. Shorter steps cost more time than they smooth."""


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
        """Take ``count`` tokens, and return when the bucket has had them.

        The debt stays in the bucket while the caller sleeps, so that a sleep that lasts too long is made up for.
        """
        now = self.now()
        capacity = self.rate * STEP_SECONDS
        self._tokens = min(capacity, self._tokens + (now - self._filled_at) * self.rate) - count
        self._filled_at = now
        if self._tokens < 0:
            self.sleep(-self._tokens / self.rate)


@attrs.frozen
class RateLimit:
    """How much may pass in a second in all; None for any amount.

    Bytes are counted as in Arrow, which has a few more for each record than its key, value and headers.
    """

    records: float | None = None
    bytes: float | None = None

    def share(self, part: int, total: int) -> RateLimit:
        """Return the limit of a task that does ``part`` of the ``total`` work of the tasks that run at once."""
        share = part / total if total else 1.0

        def of(rate: float | None) -> float | None:
            return None if rate is None else rate * share

        return RateLimit(of(self.records), of(self.bytes))

    def seconds_for(self, records: int, size_bytes: int | None) -> float | None:
        """Return the least time that so much takes to pass; None where it is not limited, or not known."""
        times = []
        if self.records is not None:
            times.append(records / self.records)
        if self.bytes is not None and size_bytes is not None:
            times.append(size_bytes / self.bytes)
        return max(times, default=None)


@attrs.define
class Throttle:
    """Passes Arrow batches on at the rate of a limit, in pieces that are small enough for an even flow."""

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
