"""Cuts ranges of partitions into the slices of rounds: pure decisions.

Records of a partition must be written in their order, so two slices of one partition never run at once. A round has one
slice of each of several partitions, as many as run at once; the next begins when all are done. The partitions with most
remaining records come first, so that no large one is written alone at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.pipelines.rounds.token_bucket import RateLimit
from trio_broker.spark.ranges import OffsetRange

DEFAULT_SLICE_RECORDS: Final = 1_000_000
"""Offsets of one slice: some seconds of work, which a crash may cause to be written twice."""

SECONDS_PER_ROUND: Final = 30.0
"""The duration of a round; a job with a low rate has smaller slices for it."""

SMALL_RECORD_BYTES: Final = 100
"""The assumed size of a record where bytes are limited; rounds of larger records take longer."""

Offsets = Mapping[TopicPartition, int]


def next_slices(
    position: Offsets,
    ends: Offsets,
    *,
    most_slices: int,
    size: Callable[[OffsetRange], float],
    slice_end: Callable[[OffsetRange], int],
) -> tuple[OffsetRange, ...]:
    """Return the slices of the next round, by partition; none when everything is done.

    ``size`` is the number of records of a range, and ``slice_end`` the end of a slice at its beginning.
    """
    remaining = [OffsetRange(each, position[each], end) for each, end in ends.items() if position[each] < end]
    largest = sorted(remaining, key=lambda each: (-size(each), each))[:most_slices]
    return tuple(attrs.evolve(each, end_offset=slice_end(each)) for each in sorted(largest))


def slice_records_at(limit: RateLimit, most_slices: int) -> int:
    """Return the number of records of a slice for a rate limit."""
    rates = [DEFAULT_SLICE_RECORDS / SECONDS_PER_ROUND]
    if limit.records is not None:
        rates.append(limit.records / most_slices)
    if limit.bytes is not None:
        rates.append(limit.bytes / SMALL_RECORD_BYTES / most_slices)
    return max(1, int(min(rates) * SECONDS_PER_ROUND))
