"""How ranges of partitions are worked off in rounds: pure decisions.

Records of a partition must be written in their order, so two slices of one partition never run at once. A round has one
slice of each of several partitions, as many as run at once; the next begins when all are done. Those that have most
left come first, so that no partition is left over at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from trio_broker.spark.pipelines.token_bucket import RateLimit
from trio_broker.spark.ranges import OffsetRange
from trio_broker.topic_partition import TopicPartition

DEFAULT_SLICE_RECORDS: Final = 1_000_000
"""Offsets of one slice: some seconds of work, which is what is written twice after a crash."""

SECONDS_PER_ROUND: Final = 30.0
"""A slower job makes smaller slices, so that its rounds take about so long."""

SMALL_RECORD_BYTES: Final = 100
"""What a record is taken to have where bytes are limited; rounds of larger ones take longer."""

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
    """Return how large slices are to be where records may pass at a limited rate."""
    rates = [DEFAULT_SLICE_RECORDS / SECONDS_PER_ROUND]
    if limit.records is not None:
        rates.append(limit.records / most_slices)
    if limit.bytes is not None:
        rates.append(limit.bytes / SMALL_RECORD_BYTES / most_slices)
    return max(1, int(min(rates) * SECONDS_PER_ROUND))
