"""Up to where a job has read, and what it reads next: the micro-batches of a job that goes on where it ended.

A job begins where its options say and notes that as its first commit. From then on only its own commits decide: options
about the beginning are for a first start. Partitions that come up later are read from their first record, and what was
there to be read and is gone is a loss, by the rules of the data source's streams.

Pure but for the questions to the ``OffsetSource``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from trio_broker.spark.errors import DataLoss
from trio_broker.spark.options.offset_specs import Earliest, Latest, OffsetSource
from trio_broker.spark.options.read_options import ReadOptions
from trio_broker.spark.options.selection import Assign, Selection, Subscribe, SubscribePattern
from trio_broker.spark.planning.offset_planning import plan_batch, plan_stream, raise_or_log_losses
from trio_broker.spark.ranges import OffsetRange
from trio_broker.topic_partition import TopicPartition

Offsets = dict[TopicPartition, int]


@attrs.frozen
class ReadTarget:
    """How far to read for now: the ranges that are left, sorted, and where in every partition there is they end."""

    ranges: tuple[OffsetRange, ...]
    ends: Mapping[TopicPartition, int]

    @property
    def offset_count(self) -> int:
        """How many offsets there are to read; there may be fewer records."""
        return sum(each.offset_count for each in self.ranges)


def find_target(options: ReadOptions, source: OffsetSource, position: Mapping[TopicPartition, int]) -> ReadTarget:
    """Return what is left to be read behind ``position``, up to where the options say, as of now.

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
    """Return the ends that the options name. One that was passed already, by an earlier run, means nothing is left."""
    ranges = plan_batch(attrs.evolve(options, starting=Earliest()), source)
    ends = {each.partition: each.end_offset for each in ranges}
    return {each: max(ends.get(each, first), position.get(each, 0)) for each, first in earliest.items()}


def is_selected(selection: Selection, partition: TopicPartition) -> bool:
    """Whether a job with that selection would read the partition if it were there."""
    match selection:
        case Assign(partitions=partitions):
            return partition in partitions
        case Subscribe(topics=topics):
            return partition.topic in topics
        case SubscribePattern():
            return selection.matches(partition.topic)


def check_topics(
    known_ids: Mapping[str, str],
    ids: Mapping[str, str],
    position: Mapping[TopicPartition, int],
    *,
    fail_on_data_loss: bool,
) -> Offsets:
    """Return the position without the topics that were deleted and made anew, which are read from their beginning.

    Raises:
        DataLoss: under ``fail_on_data_loss``, there is one.
    """
    anew = {topic for topic, known in known_ids.items() if known and ids.get(topic) and ids[topic] != known}
    losses = [
        DataLoss(partition, offset, f"the topic was deleted and made anew: its id was {known_ids[partition.topic]}")
        for partition, offset in position.items()
        if partition.topic in anew
    ]
    raise_or_log_losses(losses, fail_on_data_loss)
    return {each: 0 if each.topic in anew else offset for each, offset in position.items()}


def next_batch(ranges: Iterable[OffsetRange], max_offsets: int) -> list[OffsetRange]:
    """Return the first part of ``ranges``: all of them, cut into equal batches of about ``max_offsets`` at most.

    Each partition gives its share, rounded up, so that a small one does not wait behind a large one, and no handful of
    records is left for a batch of its own. A batch may be larger by one offset for each partition.
    """
    ranges = list(ranges)
    batches = max(1, -(-sum(each.offset_count for each in ranges) // max_offsets))
    return [attrs.evolve(each, end_offset=each.start_offset - (-each.offset_count // batches)) for each in ranges]


def behind(ranges: Iterable[OffsetRange], read: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return what is left of ``ranges`` after ``read``, their beginnings, was read."""
    ends = {each.partition: each.end_offset for each in read}
    left = [attrs.evolve(each, start_offset=ends.get(each.partition, each.start_offset)) for each in ranges]
    return [each for each in left if each.offset_count]
