"""From ranges of offsets to tasks that read files: one for each range, or more on request.

Ranges are cut by bytes rather than by offsets, since the time of a task depends on its bytes: a compacted log has few
records on its first million offsets. Where the index of a segment is visible a cut lies at the beginning of a batch;
elsewhere in proportion to the offsets. A cut in the middle of a batch only makes two tasks read that batch.

Source: Spark's KafkaOffsetRangeCalculator for the number of tasks.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from pathlib import Path

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import DataLoss
from trio_broker.spark.files.manifest import IndexEntry, LogSegment, ManifestSource, NoSuchTopic, PartitionLog
from trio_broker.spark.files.segment_files import data_directories, index_entries, partition_directory
from trio_broker.spark.files.transport import FileTransport
from trio_broker.spark.planning.offset_planning import split
from trio_broker.spark.ranges import OffsetRange
from trio_broker.storage import file_names

log = logging.getLogger(__name__)


@attrs.frozen
class FileTask:
    """A range and the files that it is read from."""

    offsets: OffsetRange
    transport: FileTransport


def plan_files(
    ranges: Iterable[OffsetRange],
    manifests: ManifestSource,
    *,
    paths: Sequence[str] = (),
    min_partitions: int | None = None,
    max_records: int | None = None,
    topic_ids: Mapping[str, str] | None = None,
    fail_on_data_loss: bool = True,
) -> list[FileTask]:
    """Return the tasks that read ``ranges`` from files, in the order of the ranges; empty ranges have none.

    ``paths`` are the directories where the workers see the data directories, if not where the broker has them.
    ``topic_ids`` are those that the ranges were planned with; a topic with another id was deleted and created again.

    Raises:
        DataLoss: a topic was deleted, or deleted and created again.
        SourceUnavailable: there is no manifest, or a partition cannot be read.
    """
    parts = split(ranges, max_records=max_records)
    logs: dict[TopicPartition, PartitionLog] = {}
    for topic, ends in _ends_by_topic(parts).items():
        try:
            logs |= _logs(topic, ends, manifests, (topic_ids or {}).get(topic, ""))
        except DataLoss as loss:
            if fail_on_data_loss:
                raise
            log.warning("data may be lost: %s", loss)
    parts = [part for part in parts if part.partition in logs]
    if min_partitions is not None and len(parts) < min_partitions:
        maps = {partition: ByteMap.of(found, paths) for partition, found in logs.items()}
        parts = cut_by_bytes(parts, maps, min_partitions)
    asked_later = manifests.for_workers()
    return [
        FileTask(
            part,
            FileTransport(
                log=logs[part.partition].between(part.start_offset, part.end_offset),
                paths=tuple(paths),
                manifests=asked_later,
                fail_on_data_loss=fail_on_data_loss,
            ),
        )
        for part in parts
    ]


def _ends_by_topic(parts: Iterable[OffsetRange]) -> dict[str, dict[int, int]]:
    by_topic: dict[str, dict[int, int]] = defaultdict(dict)
    for each in sorted(parts):
        by_topic[each.partition.topic][each.partition.partition] = each.end_offset
    return by_topic


def _logs(
    topic: str, ends: Mapping[int, int], manifests: ManifestSource, planned_id: str
) -> dict[TopicPartition, PartitionLog]:
    first = TopicPartition(topic, min(ends))
    try:
        manifest = manifests.topic_manifest(topic, ends)
    except NoSuchTopic as error:
        raise DataLoss(first, 0, f"the topic was deleted: {error}") from None
    if planned_id and manifest.topic_id and planned_id != manifest.topic_id:
        reason = f"the topic was deleted and created again: its id is {manifest.topic_id}, it was {planned_id}"
        raise DataLoss(first, 0, reason)
    return {TopicPartition(topic, number): manifest.log(number) for number in ends}


def cut_by_bytes(
    parts: Sequence[OffsetRange], maps: Mapping[TopicPartition, ByteMap], min_partitions: int
) -> list[OffsetRange]:
    """Cut ``parts`` into about ``min_partitions`` of similar size; those that are smaller anyway stay whole."""
    sizes = [maps[part.partition].bytes_of(part) for part in parts]
    total = sum(sizes)
    large = [size * min_partitions > total for size in sizes]
    for_large = max(min_partitions - large.count(False), 1)
    total_large = sum(size for size, is_large in zip(sizes, large, strict=True) if is_large)
    pieces: list[OffsetRange] = []
    for part, size, is_large in zip(parts, sizes, large, strict=True):
        count = max(1, round(size * for_large / total_large)) if is_large else 1
        pieces += maps[part.partition].cut(part, count)
    return pieces


@attrs.define
class ByteMap:
    """The approximate positions of offsets in the files of a log, found without reading the log."""

    log: PartitionLog
    directory: Path | None
    starts: Sequence[int]
    _entries: dict[int, Sequence[IndexEntry]] = attrs.field(factory=dict)

    @classmethod
    def of(cls, log: PartitionLog, paths: Sequence[str]) -> ByteMap:
        """Return the map of ``log``, with the index files that are visible here."""
        roots = data_directories(log, paths)
        starts = list(accumulate((segment.size_bytes for segment in log.segments), initial=0))[:-1]
        return cls(log, partition_directory(log, roots) if roots else None, starts)

    def bytes_of(self, part: OffsetRange) -> int:
        """Return the approximate size of the batches of ``part`` in bytes."""
        return self._byte_at(part.end_offset) - self._byte_at(part.start_offset)

    def cut(self, part: OffsetRange, count: int) -> list[OffsetRange]:
        """Return ``part`` in up to ``count`` pieces of similar size."""
        first, last = self._byte_at(part.start_offset), self._byte_at(part.end_offset)
        cuts = {self._offset_at(first + (last - first) * number // count) for number in range(1, count)}
        inner = sorted(offset for offset in cuts if part.start_offset < offset < part.end_offset)
        bounds = [part.start_offset, *inner, part.end_offset]
        return [OffsetRange(part.partition, start, end) for start, end in pairwise(bounds)]

    def _byte_at(self, offset: int) -> int:
        """Return the approximate position of ``offset``, counted from the beginning of the first segment."""
        index = max(bisect_right(self.log.segments, offset, key=lambda each: each.base_offset) - 1, 0)
        segment = self.log.segments[index]
        if offset >= segment.next_offset:
            return self.starts[index] + segment.size_bytes
        before, after = self._around(segment, offset, lambda each: each.offset)
        share = (offset - before.offset) / max(after.offset - before.offset, 1)
        return self.starts[index] + before.position + int(share * (after.position - before.position))

    def _offset_at(self, byte: int) -> int:
        """Return an offset near ``byte``: the last one of a batch, where there is an index."""
        index = max(bisect_right(self.starts, byte) - 1, 0)
        segment = self.log.segments[index]
        position = byte - self.starts[index]
        before, after = self._around(segment, position, lambda each: each.position)
        if self._known(segment):
            return before.offset
        share = (position - before.position) / max(after.position - before.position, 1)
        return before.offset + int(share * (after.offset - before.offset))

    def _around(
        self, segment: LogSegment, value: int, key: Callable[[IndexEntry], int]
    ) -> tuple[IndexEntry, IndexEntry]:
        """Return the last known place at ``value`` or before it and the first one behind it, by offset or position."""
        known = self._known(segment)
        index = bisect_right(known, value, key=key)
        before = known[index - 1] if index else IndexEntry(segment.base_offset, 0)
        after = known[index] if index < len(known) else IndexEntry(segment.next_offset, segment.size_bytes)
        return before, after

    def _known(self, segment: LogSegment) -> Sequence[IndexEntry]:
        """Return entries of the segment's index; none where it is not visible. A wrong entry only makes a cut
        uneven."""
        found = self._entries.get(segment.base_offset)
        if found is None:
            found = self.log.positions_of(segment)
            if self.directory is not None and not found:
                name = file_names.segment_path(self.directory, segment.base_offset, file_names.LOG_SUFFIX)
                found = index_entries(name, segment)
            self._entries[segment.base_offset] = found
        return found
