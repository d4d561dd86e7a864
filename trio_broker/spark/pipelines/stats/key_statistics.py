"""The records that compaction could drop from a partition: those whose key comes again later, or that have no key.

Their number does not depend on the order: it is that of all records but one for each key. Compaction keeps the last
record of each key, a tombstone for a time, so that tombstones are not counted as dead here.

Source: Kafka's LogCleaner; storage.cleaner.
"""

from __future__ import annotations

from contextlib import closing

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import CorruptData
from trio_broker.spark.header_scan import batches_of
from trio_broker.spark.pipelines.stats.batch_statistics import PartitionStatistics
from trio_broker.spark.pipelines.stats.key_set import KEPT_HASHES, KeyCollector, KeySet
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.tasks import ReadTask, read_task


@attrs.frozen
class KeyStatistics:
    """The keys of a slice of a partition. ``problem`` is why some records could not be decoded; these are not
    counted."""

    partition: TopicPartition
    record_count: int = 0
    null_keys: int = 0
    keys: KeySet = attrs.field(factory=KeySet)
    problem: str | None = None

    def then(self, other: KeyStatistics, *, kept: int = KEPT_HASHES) -> KeyStatistics:
        """Return the statistics of this slice and another one of the partition."""
        assert self.partition == other.partition, f"{self.partition}, {other.partition}"
        return KeyStatistics(
            partition=self.partition,
            record_count=self.record_count + other.record_count,
            null_keys=self.null_keys + other.null_keys,
            keys=self.keys.union(other.keys, kept=kept),
            problem=self.problem or other.problem,
        )

    @property
    def dead_records(self) -> int:
        """How many records compaction could drop; an estimate of the keys may exceed the records, hence the maximum."""
        return max(0, self.record_count - self.keys.count)


def count_keys(task: ReadTask, scanned: PartitionStatistics) -> KeyStatistics:
    """Return the keys in the slice of ``task``, which decodes the column ``key`` only.

    The bad batches and unreadable stretches that ``scanned``, the statistics of the slice, lists are left out.

    Raises:
        SparkJobError: the slice does not exist, or cannot be read.
    """
    collector = KeyCollector()
    record_count = null_keys = 0
    problem: str | None = None
    waiting = sound_ranges(task.offsets, scanned)[::-1]
    while waiting:
        part = attrs.evolve(task, offsets=waiting.pop())
        try:
            for batch in read_task(part):
                keys = batch.column(0)
                record_count += len(keys)
                null_keys += keys.null_count
                collector.add(keys)
        except CorruptData as error:
            remaining = remaining_behind_cut_batch(part, error)
            if remaining is None:
                problem = problem or str(error)
            else:
                waiting.append(remaining)
    return KeyStatistics(task.offsets.partition, record_count, null_keys, collector.result(), problem)


def remaining_behind_cut_batch(task: ReadTask, error: CorruptData) -> OffsetRange | None:
    """Return the rest of a slice behind the batch that its start cuts, if ``error`` is about that batch.

    Such a batch belongs to the slice before, which reports it.

    Raises:
        SparkJobError: the slice does not exist, or cannot be read.
    """
    offsets = task.offsets
    if error.offset >= offsets.start_offset:
        return None
    try:
        with closing(batches_of(task, includes_cut_batch=True)) as batches:
            first = next(batches, None)
    except CorruptData:
        return None
    if first is None or first.first_base_offset >= offsets.start_offset:
        return None
    after = int(first.table.last_offsets[first.chosen.start]) + 1
    return OffsetRange(offsets.partition, min(after, offsets.end_offset), offsets.end_offset)


def sound_ranges(offsets: OffsetRange, scanned: PartitionStatistics) -> list[OffsetRange]:
    """Return ``offsets`` without the batches and stretches that are known to be damaged."""
    damaged = sorted(
        [(bad.base_offset, bad.last_offset + 1) for bad in scanned.bad_batches]
        + [(damage.start_offset, damage.end_offset) for damage in scanned.damages]
    )
    sound, start = [], offsets.start_offset
    for damage_start, damage_end in [*damaged, (offsets.end_offset, offsets.end_offset)]:
        end = min(damage_start, offsets.end_offset)
        if start < end:
            sound.append(OffsetRange(offsets.partition, start, end))
        start = max(start, damage_end)
    return sound
