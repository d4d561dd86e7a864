"""Cuts ranges of partitions into the slices of rounds: pure decisions.

Records of a partition must be written in their order, so two slices of one partition never run at once. A round has one
slice of each of several partitions, as many as run at once; the next begins when all are done. The partitions with most
left come first, so that no large one is left alone at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.pipelines.token_bucket import RateLimit
from trio_broker.spark.ranges import OffsetRange

DEFAULT_SLICE_RECORDS: Final = 1_000_000
"""Offsets of one slice: some seconds of work, which a crash may cause to be written twice."""

SECONDS_PER_ROUND: Final = 30.0
"""The duration of a round; a job with a low rate has smaller slices for it."""

SMALL_RECORD_BYTES: Final = 100
"""The assumed size of a record where bytes are limited; rounds of larger records take longer."""

Offsets = Mapping[TopicPartition, int]


def next_slices(position: Offsets, ends: Offsets, *, most_slices: int, slice_records: int) -> tuple[OffsetRange, ...]:
    """Return the slices of the next round, by partition; none when everything is done."""
    left = [OffsetRange(partition, position[partition], ends[partition]) for partition in sorted(ends)]
    open_ranges = sorted((each for each in left if each.offset_count), key=lambda each: -each.offset_count)
    chosen = sorted(open_ranges[:most_slices])
    return tuple(
        OffsetRange(each.partition, each.start_offset, min(each.end_offset, each.start_offset + slice_records))
        for each in chosen
    )


def slice_records_at(limit: RateLimit, most_slices: int) -> int:
    """Return the number of records of a slice for a rate limit."""
    rates = [DEFAULT_SLICE_RECORDS / SECONDS_PER_ROUND]
    if limit.records is not None:
        rates.append(limit.records / most_slices)
    if limit.bytes is not None:
        rates.append(limit.bytes / SMALL_RECORD_BYTES / most_slices)
    return max(1, int(min(rates) * SECONDS_PER_ROUND))
