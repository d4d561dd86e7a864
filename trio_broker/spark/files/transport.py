"""Reads a range of a partition from the files of its segments, beside a running broker or without one.

The plan, a ``PartitionLog``, says which segments are read, and how many bytes of each. Bytes behind that are never
read, so that a log that grows, or a batch that is half written, does not matter. A range is read in stretches of
segments whose files are all opened first. Where files are not as planned, or hold batches that do not belong there, the
broker is asked for a new plan, and reading goes on at the next batch:

* deleted by retention: the new plan begins later, which is ``DataLoss``, or is skipped without ``failOnDataLoss``;
* compacted: the new plan has the new files. They hold the same offsets except those that compaction removed, so the
  rows are those that a consumer would get now;
* cut, or created again: the new plan ends before the range does, or has another topic id. That is ``DataLoss``, too. So
  is a batch of a later leader epoch than the plan's, for it was written where another one had been;
* the same as before: batches that do not belong there are ``CorruptData``. Files with other inodes are read by their
  sizes, since a network file system may have numbers of its own.

None of this affects a stretch that is open: an open file stays what it was.

An aborted transaction is reported with its first batch, and not before. Compaction removes the marker of a transaction
without any batch left, and a reader that waits for that marker would drop what its producer committed later.

Source: docs/formats/segment-manifest.md; docs/decisions/0027-a-segment-manifest-over-http.md.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Never

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.chunk import AbortedTransactionStart, Chunk
from trio_broker.spark.errors import CorruptData, DataLoss, SourceUnavailable
from trio_broker.spark.files.manifest import (
    UNKNOWN_EPOCH,
    AbortedRange,
    ManifestSource,
    NoSuchTopic,
    PartitionLog,
)
from trio_broker.spark.files.segment_files import (
    MAX_OPEN_SEGMENTS,
    FilesChanged,
    OpenSegment,
    data_directories,
    opened,
    partition_directory,
    start_position,
)
from trio_broker.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from trio_broker.spark.batch_table import BatchTable

log = logging.getLogger(__name__)

READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes of one read. Smaller reads make smaller columns, which cost more each; larger ones do not stay in the
caches."""

MAX_PLANS: Final = 5
"""Plans for one stretch. Files change a few times an hour; if every plan is wrong, it is for other files."""

_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


@attrs.frozen
class FileTransport:
    """The files of ``log``, as a ``Transport``.

    They are in the log's own directory, or, where ``paths`` are given, in the first of these that has a directory of
    that name. ``manifests`` returns a new plan when files have changed; None where they never do.
    """

    log: PartitionLog
    paths: tuple[str, ...] = ()
    manifests: ManifestSource | None = None
    fail_on_data_loss: bool = True
    read_bytes: int = READ_BYTES

    def chunks(self, offsets: OffsetRange) -> Generator[Chunk, None, None]:
        """Yield the batches of ``offsets``; see ``Transport``.

        Raises:
            DataLoss: part of the range is gone. Without ``fail_on_data_loss`` it is skipped with a warning; but what
            was
                written in its place is never returned for it.
            SourceUnavailable: a directory does not exist, or there is no new plan.
            CorruptData: a file holds something other than batches, and is the one that the broker means.
        """
        plan, plans = self.log, 1
        rest = self._available(plan, offsets)
        is_resumed = rest.start_offset > offsets.start_offset
        while rest.offset_count:
            segments = plan.segments_between(rest.start_offset, rest.end_offset)[:MAX_OPEN_SEGMENTS]
            assert segments, f"{rest} is not within the segments of the plan"
            aborted = UpcomingAborts(plan.aborted_between(rest.start_offset, rest.end_offset))
            resumes_at = rest.start_offset if is_resumed else None
            try:
                with opened(plan, self._directory(plan), segments) as files:
                    for file in files:
                        known = plan.positions_of(file.segment)
                        reader = SegmentReader(file, plan.partition, plan.leader_epoch, self.read_bytes)
                        for chunk in reader.chunks(rest, start_position(file, rest.start_offset, known)):
                            yield attrs.evolve(chunk, aborted=aborted.begun_in(chunk.table), resumes_at=resumes_at)
                            rest, resumes_at = remaining_from(rest, int(chunk.table.last_offsets[-1]) + 1), None
                        # Behind the last batch there may be offsets that compaction has left empty.
                        rest = remaining_from(rest, file.segment.next_offset)
                plans = 1
            except (FilesChanged, CorruptData) as problem:
                if plans == MAX_PLANS:
                    self._give_up(problem, rest)
                plans += 1
                try:
                    plan = self._replan(plan, problem, rest)
                except DataLoss as loss:
                    self._raise_or_log(loss)
                    return
                rest = self._available(plan, rest)
            # The marker of a reported transaction may have been in the files before, and be in none of the next ones.
            is_resumed = True

    def _available(self, plan: PartitionLog, rest: OffsetRange) -> OffsetRange:
        """Return the part of ``rest`` that ``plan`` contains.

        Raises:
            DataLoss: some of it is lost, under ``fail_on_data_loss``.
        """
        start, end = rest.start_offset, rest.end_offset
        if plan.high_watermark < end:
            reason = f"the log ends at offset {plan.high_watermark}, before {end} that was its end: it was cut"
            self._raise_or_log(DataLoss(plan.partition, start, reason))
            end = max(plan.high_watermark, start)
        if plan.log_start_offset > start:
            reason = f"the log begins at offset {plan.log_start_offset} by now; what was before that has been deleted"
            self._raise_or_log(DataLoss(plan.partition, start, reason))
            start = min(plan.log_start_offset, end)
        return OffsetRange(rest.partition, start, end)

    def _raise_or_log(self, loss: DataLoss) -> None:
        """Raise ``loss`` under ``fail_on_data_loss``, else log it."""
        if self.fail_on_data_loss:
            raise loss
        log.warning("data may be lost: %s", loss)

    def _directory(self, plan: PartitionLog) -> Path:
        """Return the directory of the partition's files. That it does not exist shows when files are opened.

        Raises:
            SourceUnavailable: the data directory itself does not exist.
        """
        roots = data_directories(plan, self.paths)
        if not roots:
            names = ", ".join(self.paths or (plan.log_directory,))
            broker = "" if plan.node_id is None else f" of broker {plan.node_id}"
            raise SourceUnavailable(
                f"{plan.partition}: no directory {names}{broker} where this task runs{self._hint()}"
            )
        return partition_directory(plan, roots)

    def _hint(self) -> str:
        if self.paths:
            return "; is option 'path' the broker's data directory?"
        return "; option 'path' says where the broker's data directories are visible"

    def _give_up(self, problem: FilesChanged | CorruptData, rest: OffsetRange) -> Never:
        if isinstance(problem, CorruptData):
            raise problem
        raise SourceUnavailable(f"{rest}: {problem}{self._hint()}") from None

    def _replan(self, old: PartitionLog, problem: FilesChanged | CorruptData, rest: OffsetRange) -> PartitionLog:
        """Return what the broker plans now, where reading by the ``old`` plan met ``problem``."""
        if self.manifests is None:
            if isinstance(problem, CorruptData):
                raise problem
            reason = f"{problem}; its records cannot be found without a broker"
            raise DataLoss(rest.partition, rest.start_offset, reason)
        log.info("%s: %s; asking for a new plan", rest, problem)
        plan = self._new_plan(self.manifests, rest)
        if not old.has_same_files(plan, rest.start_offset, rest.end_offset):
            return plan
        if isinstance(problem, CorruptData):
            raise problem
        return plan.without_inodes()

    def _new_plan(self, manifests: ManifestSource, rest: OffsetRange) -> PartitionLog:
        partition, position = rest.partition, rest.start_offset
        try:
            manifest = manifests.topic_manifest(partition.topic, {partition.partition: rest.end_offset})
            plan = manifest.log(partition.partition)
        except NoSuchTopic as error:
            raise DataLoss(partition, position, f"the topic was deleted: {error}") from None
        if plan.topic_id != self.log.topic_id:
            raise DataLoss(partition, position, f"the topic was deleted and created again: its id is {plan.topic_id}")
        return plan


def remaining_from(rest: OffsetRange, offset: int) -> OffsetRange:
    """Return the part of ``rest`` at ``offset`` or behind it."""
    start = max(rest.start_offset, min(offset, rest.end_offset))
    return OffsetRange(rest.partition, start, rest.end_offset)


@attrs.define
class SegmentReader:
    """The batches of one open segment, some megabytes at a time.

    ``leader_epoch`` is the newest that a batch may have, -1 for any. ``position`` and ``next_offset`` are the end of
    the batches that were read; while the caller has a chunk they still are its beginning.
    """

    file: OpenSegment
    partition: TopicPartition
    leader_epoch: int = UNKNOWN_EPOCH
    read_bytes: int = READ_BYTES
    position: int = 0
    next_offset: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.next_offset = self.file.segment.base_offset

    def chunks(self, offsets: OffsetRange, start_position: int = 0) -> Generator[Chunk, None, None]:
        """Yield the batches from ``start_position`` on, where one begins, that hold any of ``offsets``.

        Raises:
            FilesChanged: the file is not as planned any more.
            CorruptData: it holds something other than batches, or batches that cannot belong to the segment. It may be
                another file, which compaction has put under the name.
            DataLoss: it holds batches that were written after the plan was made.
        """
        from trio_broker.spark.batch_table import scan_batches

        file, size = self.file, self.file.segment.size_bytes
        self.position = start_position
        buffer = bytearray(min(self.read_bytes, size - self.position))
        while self.position < size and self.next_offset < offsets.end_offset:
            view = self._read(buffer)
            # The next chunk is read from the disk while the caller decodes this one.
            file.prefetch(self.position + len(view), min(self.read_bytes, size - self.position - len(view)))
            table = scan_batches(view)
            if not len(table):
                buffer = self._larger_buffer(table)
                continue
            self._check(table, offsets.end_offset)
            first = int(table.last_offsets.searchsorted(offsets.start_offset))
            last = int(table.base_offsets.searchsorted(offsets.end_offset)) - 1
            if first <= last:
                start = int(table.positions[first])
                view = view[start : int(table.positions[last] + table.sizes[last])]
                # The next read begins at the damage behind them, and its error names the exact place in the file.
                is_whole = last - first + 1 == len(table) and table.damage is None
                origin = f"{file.path}@{self.position + start}"
                yield Chunk(view, table if is_whole else scan_batches(view), origin)
            self.position += table.consumed_bytes
            self.next_offset = int(table.last_offsets[-1]) + 1

    def _read(self, buffer: bytearray) -> memoryview:
        wanted = min(len(buffer), self.file.segment.size_bytes - self.position)
        view = memoryview(buffer)[:wanted]
        count = self.file.read_into(view, self.position)
        if count < wanted:
            raise FilesChanged(f"{self.file.path} ends at byte {self.position + count}: it was cut while it was read")
        return view

    def _larger_buffer(self, table: BatchTable) -> bytearray:
        """Return a buffer for the next batch, which did not fit into the last one; raise if there is no whole batch."""
        left = self.file.segment.size_bytes - self.position
        if table.damage is not None:
            raise self._corrupt(table.damage)
        if not table.needed_bytes or table.needed_bytes > left:
            raise self._corrupt(f"the segment ends with {left} bytes that are no whole batch")
        return bytearray(table.needed_bytes)

    def _check(self, table: BatchTable, end_offset: int) -> None:
        """Refuse batches that cannot belong to this segment, or were not there before ``end_offset`` at planning."""
        first = int(table.base_offsets[0])
        if first < self.next_offset:
            raise self._corrupt(f"a batch at offset {first}, where {self.next_offset} is the least possible")
        last, end = int(table.last_offsets[-1]), self.file.segment.next_offset
        if last >= end and not self.file.segment.is_active:
            raise self._corrupt(f"batches up to offset {last}, though the next segment begins at {end}")
        # What is behind the range may have been written since.
        newest = int(table.leader_epochs[table.base_offsets < end_offset].max(initial=UNKNOWN_EPOCH))
        if 0 <= self.leader_epoch < newest:
            reason = f"a batch of leader epoch {newest}, later than {self.leader_epoch}: the log was cut before it"
            raise DataLoss(self.partition, first, reason)

    def _corrupt(self, reason: str) -> CorruptData:
        return CorruptData(self.partition, self.next_offset, f"{reason} ({self.file.path}@{self.position})")


@attrs.define
class UpcomingAborts:
    """Aborted transactions that have not been reported yet."""

    ahead: Sequence[AbortedRange]

    def begun_in(self, table: BatchTable) -> tuple[AbortedTransactionStart, ...]:
        """Return those with a batch of records in ``table``, and drop them and those that are over."""
        if not self.ahead or self.ahead[0].first_offset > int(table.last_offsets[-1]):
            return ()
        is_transactional = table.attributes & (_TRANSACTIONAL | _CONTROL) == _TRANSACTIONAL
        base_offsets, producer_ids = table.base_offsets[is_transactional], table.producer_ids[is_transactional]
        offsets_of = {
            producer_id: base_offsets[producer_ids == producer_id] for producer_id in set(producer_ids.tolist())
        }
        end, met, ahead = int(table.last_offsets[-1]), [], []
        for each in self.ahead:
            offsets = offsets_of.get(each.producer_id)
            # The first batch of a producer that does not end before the transaction begins.
            index = -1 if offsets is None else int(offsets.searchsorted(each.first_offset))
            if offsets is not None and index < len(offsets) and offsets[index] <= each.last_offset:
                met.append(AbortedTransactionStart(each.producer_id, each.first_offset))
            elif each.last_offset > end:
                ahead.append(each)
        self.ahead = ahead
        return tuple(met)
