"""Whether timestamps grow with the offsets, computed from slices of a log that are scanned separately.

A batch is *late* when its timestamp is below that of any batch before it; its lag is the difference to the highest of
them. Both depend on all earlier batches, which the scan of a slice has not seen. So a slice keeps its *ladder*: the
timestamps of the batches that are not late within it, equal ones counted together. They only grow. Where an earlier
slice has reached a higher timestamp, the rungs below that timestamp are late batches after all, and the others stay.
That makes the merge exact wherever a log is cut, at the cost of one or two numbers for each batch in time.

Late batches cause surprises in lookups by time, retention by time and windows of stream jobs.
"""

from __future__ import annotations

from typing import Final

import attrs
import numpy as np

from kafka_wire.primitives import NO_OFFSET
from trio_broker.spark.batch_table import Int64Array

_SAME_ITEMS: Final = attrs.cmp_using(eq=np.array_equal)


def _nothing() -> Int64Array:
    return np.empty(0, np.int64)


@attrs.frozen
class TimestampOrder:
    """The order of the timestamps in a slice. Timestamps are milliseconds since 1970.

    ``batch_count`` is the number of batches with a timestamp, ``late_count`` of the late ones among them.
    ``worst_lag_ms`` is the greatest lag and ``worst_offset`` the base offset of the first batch that has it. ``lowest``
    and ``highest`` are valid only where ``batch_count`` is not 0.
    """

    batch_count: int = 0
    late_count: int = 0
    worst_lag_ms: int = 0
    worst_offset: int = NO_OFFSET
    lowest: int = 0
    lowest_offset: int = NO_OFFSET
    highest: int = 0
    ladder: Int64Array = attrs.field(factory=_nothing, eq=_SAME_ITEMS, repr=False)
    ladder_counts: Int64Array = attrs.field(factory=_nothing, eq=_SAME_ITEMS, repr=False)

    def then(self, later: TimestampOrder) -> TimestampOrder:
        """Return the order in this slice and the one that follows it."""
        if not later.batch_count:
            return self
        if not self.batch_count:
            return later
        # The rungs of the later slice below this one's highest timestamp are late; an equal rung is not.
        below = int(np.searchsorted(later.ladder, self.highest))
        ladder, counts = later.ladder[below:], later.ladder_counts[below:].copy()
        kept = len(self.ladder)
        if len(ladder) and ladder[0] == self.highest:
            counts[0] += self.ladder_counts[-1]
            kept -= 1
        # The worst lag is within one of the slices, or that of the later slice's lowest batch behind this one's
        # highest. The earlier slice wins a tie: its batch comes first.
        worst_lag_ms, worst_offset = min(
            (lag for lag in (self._worst, later._worst, self._lag_of_lowest(later)) if lag[0]),
            key=lambda lag: (-lag[0], lag[1]),
            default=(0, NO_OFFSET),
        )
        lowest, lowest_offset = min((self.lowest, self.lowest_offset), (later.lowest, later.lowest_offset))
        return TimestampOrder(
            batch_count=self.batch_count + later.batch_count,
            late_count=self.late_count + later.late_count + int(later.ladder_counts[:below].sum()),
            worst_lag_ms=worst_lag_ms,
            worst_offset=worst_offset,
            lowest=lowest,
            lowest_offset=lowest_offset,
            highest=max(self.highest, later.highest),
            ladder=np.concatenate([self.ladder[:kept], ladder]),
            ladder_counts=np.concatenate([self.ladder_counts[:kept], counts]),
        )

    @property
    def _worst(self) -> tuple[int, int]:
        return self.worst_lag_ms, self.worst_offset

    def _lag_of_lowest(self, later: TimestampOrder) -> tuple[int, int]:
        """Return how far a later slice's lowest timestamp is below this one's highest, and its offset."""
        return max(0, self.highest - later.lowest), later.lowest_offset


def order_of(timestamps: Int64Array, base_offsets: Int64Array) -> TimestampOrder:
    """Return the order of batches that all have a timestamp, given in the order of their offsets."""
    if not len(timestamps):
        return TimestampOrder()
    assert timestamps.min() >= 0, f"{timestamps.min()}"  # so that no difference overflows
    highest = np.maximum.accumulate(timestamps)
    lags = highest - timestamps
    ladder, counts = np.unique(timestamps[lags == 0], return_counts=True)
    worst, lowest = int(lags.argmax()), int(timestamps.argmin())
    return TimestampOrder(
        batch_count=len(timestamps),
        late_count=int(np.count_nonzero(lags)),
        worst_lag_ms=int(lags[worst]),
        worst_offset=int(base_offsets[worst]) if lags[worst] else NO_OFFSET,
        lowest=int(timestamps[lowest]),
        lowest_offset=int(base_offsets[lowest]),
        highest=int(highest[-1]),
        ladder=ladder,
        ladder_counts=counts.astype(np.int64),
    )
