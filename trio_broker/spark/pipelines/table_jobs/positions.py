"""The position of a job, and what it reads next: the micro-batches of a job that goes on where it ended.

A job begins at the offsets of its options and commits them as its first batch. From then on only its own commits count:
options about the beginning apply to a first start. Partitions that are created later are read from their first record,
and records that were not read before they were deleted are a loss, by the rules of the data source's streams.

The functions are pure except for their calls of the ``OffsetSource``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.options.offset_specs import Earliest, Latest, OffsetSource
from trio_broker.spark.options.read_options import ReadOptions
from trio_broker.spark.options.selection import Assign, Selection, Subscribe, SubscribePattern
from trio_broker.spark.planning.offset_planning import plan_batch, plan_stream
from trio_broker.spark.ranges import OffsetRange

Offsets = dict[TopicPartition, int]


@attrs.frozen
class ReadTarget:
    """What to read now: the ranges that are left, sorted, and the end of every selected partition."""

    ranges: tuple[OffsetRange, ...]
    ends: Mapping[TopicPartition, int]

    @property
    def offset_count(self) -> int:
        """How many offsets the ranges have; there may be fewer records."""
        return sum(each.offset_count for each in self.ranges)


def find_target(options: ReadOptions, source: OffsetSource, position: Mapping[TopicPartition, int]) -> ReadTarget:
    """Return the ranges from ``position`` up to the ends that the options name, as of now.

    Raises:
        DataLoss: under ``failOnDataLoss``, records behind ``position`` are gone.
        SparkJobError: as ``plan_batch``.
    """
    partitions = source.partitions(options.selection)
    earliest = source.earliest(partitions)
    if isinstance(options.ending, Latest):
        ends = source.latest(partitions)
    else:
        ends = _asked_ends(options, source, earliest, position)
    start = {each: offset for each, offset in position.items() if is_selected(options.selection, each)}
    ranges = plan_stream(start, ends, earliest=earliest, fail_on_data_loss=options.fail_on_data_loss)
    return ReadTarget(tuple(ranges), ends)


def _asked_ends(
    options: ReadOptions,
    source: OffsetSource,
    earliest: Mapping[TopicPartition, int],
    position: Mapping[TopicPartition, int],
) -> Offsets:
    """Return the ends that the options name, or the position where an earlier run has read beyond them."""
    ranges = plan_batch(attrs.evolve(options, starting=Earliest()), source)
    ends = {each.partition: each.end_offset for each in ranges}
    return {each: max(ends.get(each, first), position.get(each, 0)) for each, first in earliest.items()}


def is_selected(selection: Selection, partition: TopicPartition) -> bool:
    """Whether ``selection`` includes the partition; it need not exist."""
    match selection:
        case Assign(partitions=partitions):
            return partition in partitions
        case Subscribe(topics=topics):
            return partition.topic in topics
        case SubscribePattern():
            return selection.matches(partition.topic)


def next_batch(ranges: Iterable[OffsetRange], max_offsets: int) -> list[OffsetRange]:
    """Return the first part of ``ranges``: all of them, cut into equal batches of about ``max_offsets`` at most.

    Each partition contributes its share, rounded up, so that a small one does not wait for a large one, and no small
    rest is left for a last batch. A batch may be larger by one offset for each partition.
    """
    ranges = list(ranges)
    batches = max(1, -(-sum(each.offset_count for each in ranges) // max_offsets))
    return [attrs.evolve(each, end_offset=each.start_offset - (-each.offset_count // batches)) for each in ranges]


def remaining_ranges(ranges: Iterable[OffsetRange], read: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return ``ranges`` without ``read``, which are their beginnings."""
    ends = {each.partition: each.end_offset for each in read}
    remaining = [attrs.evolve(each, start_offset=ends.get(each.partition, each.start_offset)) for each in ranges]
    return [each for each in remaining if each.offset_count]
