"""Durations counted in buckets, cheaply enough to count every request.

The buckets are log-linear: four to each doubling, from 1 µs (2^10 ns) to 137 s (2^37 ns), and one for all that is
shorter. So a bucket is at most a quarter as wide as where it begins, and a quantile that is interpolated within it is
wrong by about a tenth at most: less than two runs under the same load differ by. Two to a doubling would give 1.0 ms
and 1.4 ms the same figure; eight would double the memory for what nobody can act on.

The bounds never change, so snapshots can be added and subtracted.

Source: the bucket scheme of HdrHistogram.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

UNIT_SHIFT = 8
"""Durations are looked up in units of 256 ns: four to the first doubling."""

BUCKETS = 110

SUM = BUCKETS
"""Where a histogram's counts keep the sum of the durations."""

TABLE_UNITS = 1 << 18
"""Durations up to 67 ms are looked up, at half the cost of computing; of the table's 256 KiB little is touched."""


def bucket_of(duration_ns: int) -> int:
    """The bucket of a duration; the last one takes all that is longer."""
    units = duration_ns >> UNIT_SHIFT
    if units < 4:
        return 0
    octave = units.bit_length() - 3
    return min(4 * octave + (units >> octave) - 3, BUCKETS - 1)


def upper_bound_ns(bucket: int) -> int:
    """Where ``bucket`` ends, exclusive, and the next one begins."""
    octave, quarter = divmod(bucket, 4)
    return (quarter + 4) << (octave + UNIT_SHIFT)


def _table() -> bytes:
    """The bucket of each duration, by ``duration_ns >> UNIT_SHIFT``."""
    runs = []
    begin = 0
    while begin < TABLE_UNITS:
        bucket = bucket_of(begin << UNIT_SHIFT)
        end = upper_bound_ns(bucket) >> UNIT_SHIFT
        runs.append(bytes([bucket]) * (end - begin))
        begin = end
    return b"".join(runs)


BUCKET_TABLE = _table()


@attrs.frozen
class HistogramSnapshot:
    """How many durations fell into each bucket, without the empty ones, and their exact sum."""

    counts: Mapping[int, int] = attrs.field(factory=dict)
    sum_ns: int = 0

    @property
    def count(self) -> int:
        return sum(self.counts.values())

    @property
    def max_ms(self) -> float:
        """The end of the longest one's bucket; 0 without any."""
        return upper_bound_ns(max(self.counts)) / 1e6 if self.counts else 0.0

    def quantile_ms(self, quantile: float) -> float:
        """The duration in milliseconds below which the share ``quantile`` of all lies; 0 without any.

        Within a bucket durations are taken to be spread evenly.
        """
        rank = quantile * self.count
        below = 0
        for bucket, count in sorted(self.counts.items()):
            if below + count >= rank:
                begin_ns = upper_bound_ns(bucket - 1) if bucket else 0
                return (begin_ns + (upper_bound_ns(bucket) - begin_ns) * (rank - below) / count) / 1e6
            below += count
        return 0.0

    def plus(self, other: HistogramSnapshot) -> HistogramSnapshot:
        """The durations of both."""
        counts = dict(self.counts)
        for bucket, count in other.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
        return HistogramSnapshot(counts, self.sum_ns + other.sum_ns)

    def minus(self, earlier: HistogramSnapshot) -> HistogramSnapshot:
        """What was added since ``earlier``, a snapshot of the same histogram."""
        counts = {
            bucket: added
            for bucket, count in self.counts.items()
            if (added := count - earlier.counts.get(bucket, 0)) > 0
        }
        return HistogramSnapshot(counts, self.sum_ns - earlier.sum_ns)


NOTHING_COUNTED = HistogramSnapshot()


class Histogram:
    """Counts durations.

    ``counts`` has a count for each bucket and, at ``SUM``, their sum in nanoseconds. It is public, and one list for the
    histogram's life, for code that counts so often that a method call is too much.
    """

    __slots__ = ("counts",)

    def __init__(self) -> None:
        self.counts = [0] * (BUCKETS + 1)

    def record(self, duration_ns: int) -> None:
        self.counts[bucket_of(duration_ns)] += 1
        self.counts[SUM] += duration_ns

    def snapshot(self) -> HistogramSnapshot:
        return HistogramSnapshot(
            {bucket: count for bucket, count in enumerate(self.counts[:SUM]) if count}, self.counts[SUM]
        )

    def take(self) -> HistogramSnapshot:
        """What was counted since the last call."""
        taken = self.snapshot()
        for bucket in (*taken.counts, SUM):
            self.counts[bucket] = 0
        return taken
