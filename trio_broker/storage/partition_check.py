"""The check of all files of one partition, without changing any: every batch, and all that is derived from batches.

What a kill or a power cut may leave is no damage: bytes behind the last whole batch that were never known to be
durable, indexes and snapshots of segments that the next start reads anyway, files of a compaction or a deletion under
way. After a clean stop, and below the recovery point, nothing of that is excused.

A bad batch does not end the check. It goes on at the next good one, so that one report has all damage of a log.

Source: Kafka's LogLoader and DumpLogSegments; docs/formats/segment.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import TypeVar

import attrs

from kafka_wire.errors import KafkaError, WireError
from kafka_wire.records.batch import BatchHeader, RecordBatch
from kafka_wire.records.errors import CorruptRecordBatch
from kafka_wire.stored.metadata import decode_metadata_record
from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.disk import SECTOR_BYTES, Disk, names_in
from trio_broker.storage import (
    batch_checks,
    batch_scan,
    file_names,
    interrupted_swaps,
    partition_metadata,
    producer_replay,
    producer_snapshot,
)
from trio_broker.storage.batch_checks import BatchPlace
from trio_broker.storage.errors import CorruptCheckpoint, CorruptIndex, CorruptSnapshot
from trio_broker.storage.findings import FindingKind, StorageFinding
from trio_broker.storage.index_checks import OffsetIndexCheck, TimeIndexCheck, TransactionIndexCheck
from trio_broker.storage.index_file import MAX_INDEX_BYTES
from trio_broker.storage.leader_epochs import LeaderEpochs
from trio_broker.storage.log_file import LogFile
from trio_broker.storage.offset_index import OffsetIndex
from trio_broker.storage.own_records import OWN_TOPICS, own_text
from trio_broker.storage.producer_snapshot_checks import ProducerSnapshotCheck
from trio_broker.storage.producer_state import ProducerStates
from trio_broker.storage.time_index import TimeIndex
from trio_broker.storage.transaction_index import TransactionIndex

_T = TypeVar("_T")

MAX_FINDINGS_PER_SEGMENT = 100
"""A segment that is garbage from front to back need not fill the report."""


@attrs.frozen
class PartitionBounds:
    """What the data directory says of a partition, None where it says nothing.

    ``may_have_gaps`` where compaction may have taken whole batches. After a clean stop (``was_clean``) everything is
    durable, otherwise what lies below ``recovery_point``.
    """

    was_clean: bool
    may_have_gaps: bool
    recovery_point: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    topic_id: bytes | None = None


@attrs.define
class PartitionReport:
    """What the check of one partition found. ``torn_bytes`` at the end of the log are no damage: the next start cuts
    them. ``kept_aside`` are files that an earlier recovery put aside."""

    topic_partition: TopicPartition
    directory: PurePath
    segments: int = 0
    batches: int = 0
    records: int = 0
    checked_bytes: int = 0
    torn_bytes: int = 0
    log_end_offset: int = 0
    kept_aside: list[str] = attrs.field(factory=list)
    findings: list[StorageFinding] = attrs.field(factory=list)


def check_partition(
    disk: Disk, directory: PurePath, topic_partition: TopicPartition, bounds: PartitionBounds
) -> PartitionReport:
    """Check the files in a partition's directory. Blocks.

    Raises:
        OSError: the disk refused.
    """
    check = _PartitionCheck(disk, directory, topic_partition, bounds)
    check.run()
    return check.report


@attrs.frozen
class _SegmentFile:
    """A ``.log`` and where its indexes are: with a ``suffix`` while a compaction is being put in its place."""

    base_offset: int
    suffix: str
    size: int

    def path(self, directory: PurePath, kind: str) -> PurePath:
        return file_names.segment_path(directory, self.base_offset, kind + self.suffix)


@attrs.define
class _IndexChecks:
    """The checks of a segment's indexes; None for one that is excused, or cannot be read and was reported."""

    offsets: OffsetIndexCheck | None = None
    times: TimeIndexCheck | None = None
    transactions: TransactionIndexCheck | None = None


def _end_offset(disk: Disk, directory: PurePath, segment: _SegmentFile) -> int:
    path = segment.path(directory, file_names.LOG_SUFFIX)
    end_offset = segment.base_offset
    try:
        for span in batch_scan.spans(LogFile(disk, path, read_only=True), 0, segment.size):
            end_offset = span.last_offset + 1
    except CorruptRecordBatch:
        pass
    return end_offset


class _PartitionCheck:
    def __init__(
        self, disk: Disk, directory: PurePath, topic_partition: TopicPartition, bounds: PartitionBounds
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.bounds = bounds
        self.report = PartitionReport(topic_partition, directory)
        self.names = sorted(names_in(disk.list_directory(directory)))
        self.producers = ProducerStates()
        self.snapshots = ProducerSnapshotCheck(disk, directory, ())
        self.epochs: LeaderEpochs | None = None
        self.next_offset = 0
        self.last_epoch = -1
        self.recovery_point = bounds.recovery_point or 0
        # Set while a damaged part of the current segment is passed over: what is derived of it cannot be judged.
        self.is_damaged = False

    def run(self) -> None:
        self.report.kept_aside = [name for name in self.names if ".corrupt-" in name]
        self._check_identity()
        self.epochs = self._load_epochs()
        segments = self._segments()
        self.report.segments = len(segments)
        if segments:
            self.next_offset = segments[0].base_offset
            self._load_first_producers(segments[0].base_offset)
        # As recovery has it: the segment that holds the recovery point, or ends at it, is read again.
        first_read = max((i for i, each in enumerate(segments) if each.base_offset < self.recovery_point), default=0)
        for index, segment in enumerate(segments):
            limit = segments[index + 1].base_offset if index + 1 < len(segments) else None
            self._check_segment(segment, limit, self.bounds.was_clean or index < first_read)
        self.report.log_end_offset = self.next_offset
        self._compare_snapshots(self.next_offset)
        self._check_ends(segments)
        self._check_snapshots()
        self._check_orphans(segments)
        for name in self.names:
            if (
                name.endswith(file_names.METADATA_SNAPSHOT_SUFFIX)
                and self.report.topic_partition.topic == CLUSTER_METADATA_TOPIC
            ):
                self.report.findings += check_metadata_snapshot(self.disk, self.directory / name)

    def _find(
        self,
        kind: FindingKind,
        path: PurePath,
        detail: str,
        *,
        position: int | None = None,
        offset: int | None = None,
    ) -> None:
        if kind is FindingKind.BATCH:
            self.snapshots.give_up()
        here = sum(1 for each in self.report.findings if each.path == path)
        if here < MAX_FINDINGS_PER_SEGMENT:
            self.report.findings.append(
                StorageFinding(kind, path, detail, self.report.topic_partition, position=position, offset=offset)
            )

    # --- What is there ---

    def _segments(self) -> list[_SegmentFile]:
        """The segments that the next start would find, oldest first."""
        found = {base: _SegmentFile(base, "", self._size(name)) for name, base in self._logs("")}
        committed = interrupted_swaps.committed_swaps(self.names)
        swaps = [
            _SegmentFile(base, file_names.SWAP_SUFFIX, self._size(name))
            for name, base in self._logs(file_names.SWAP_SUFFIX)
            if name in committed
        ]
        if swaps:
            first = min(each.base_offset for each in swaps)
            end = max(_end_offset(self.disk, self.directory, each) for each in swaps)
            found = {base: each for base, each in found.items() if not first <= base < end}
            found.update((each.base_offset, each) for each in swaps)
        return [found[base] for base in sorted(found)]

    def _logs(self, suffix: str) -> Iterator[tuple[str, int]]:
        for name in self.names:
            offset = file_names.offset_of(name, file_names.LOG_SUFFIX + suffix)
            if offset is not None:
                yield name, offset

    def _size(self, name: str) -> int:
        return self.disk.status(self.directory / name).size_bytes

    def _check_identity(self) -> None:
        path = self.directory / file_names.PARTITION_METADATA
        try:
            topic_id = partition_metadata.read(self.disk, self.directory)
        except CorruptCheckpoint as error:
            # A new partition's is not waited for; the next start makes one without records anew.
            if not partition_metadata.is_unused(self.disk, self.directory):
                self._find(FindingKind.IDENTITY, path, str(error))
            return
        if topic_id is not None and self.bounds.topic_id is not None and topic_id != self.bounds.topic_id:
            self._find(FindingKind.IDENTITY, path, "its topic id is not the one that the metadata log has for the name")
        if file_names.QUORUM_STATE in self.names:
            path = self.directory / file_names.QUORUM_STATE
            try:
                state = json.loads(self.disk.read_file(path))
                if not isinstance(state, dict) or not isinstance(state.get("leaderEpoch"), int):
                    raise ValueError("it has no leaderEpoch")
            except ValueError as error:
                self._find(FindingKind.IDENTITY, path, f"unreadable: {error}")

    def _load_epochs(self) -> LeaderEpochs | None:
        try:
            return LeaderEpochs.load(self.disk, self.directory)
        except CorruptCheckpoint as error:
            path = self.directory / file_names.LEADER_EPOCH_CHECKPOINT
            self._find(FindingKind.LEADER_EPOCHS, path, str(error))
            return None

    def _load_first_producers(self, base_offset: int) -> None:
        """Begin with the transactions that were open where the first segment begins: retention took their batches."""
        path = file_names.segment_path(self.directory, base_offset, file_names.SNAPSHOT_SUFFIX)
        try:
            self.producers.restore(producer_snapshot.decode(self.disk.read_file(path), str(path)), base_offset)
        except (FileNotFoundError, CorruptSnapshot):
            # A damaged one is reported with the others.
            if base_offset:
                return
        # A power cut brings back snapshots of batches that were cut, compaction takes batches that snapshots speak of,
        # and a start may have read the log from its start offset on.
        starts_here = (self.bounds.log_start_offset or 0) <= base_offset
        if self.bounds.was_clean and starts_here and not self.bounds.may_have_gaps:
            later = (each for each in producer_snapshot.offsets(self.disk, self.directory) if each > base_offset)
            self.snapshots = ProducerSnapshotCheck(self.disk, self.directory, later)

    def _compare_snapshots(self, offset: int) -> None:
        for path, problem in self.snapshots.problems_up_to(offset, self.producers.producers):
            self._find(FindingKind.SNAPSHOT, path, problem)

    # --- Segments ---

    def _check_segment(self, segment: _SegmentFile, limit: int | None, is_proven: bool) -> None:
        path = segment.path(self.directory, file_names.LOG_SUFFIX)
        if self.next_offset != segment.base_offset:
            self._check_gap(path, 0, segment.base_offset)
        self.next_offset = segment.base_offset
        self.is_damaged = False
        checks = self._index_checks(segment, is_active=limit is None) if is_proven else _IndexChecks()
        end = self._check_batches(LogFile(self.disk, path, read_only=True), segment, limit, checks)
        self.report.checked_bytes += segment.size
        if limit is not None and end == segment.size and self.next_offset < limit:
            self._check_gap(path, segment.size, limit)
        if self.is_damaged:
            return
        for kind, suffix, check in (
            (FindingKind.OFFSET_INDEX, file_names.INDEX_SUFFIX, checks.offsets),
            (FindingKind.TIME_INDEX, file_names.TIME_INDEX_SUFFIX, checks.times),
            (FindingKind.TRANSACTION_INDEX, file_names.TRANSACTION_INDEX_SUFFIX, checks.transactions),
        ):
            if check is not None and (problem := check.problem()):
                self._find(kind, segment.path(self.directory, suffix), problem)

    def _check_gap(self, path: PurePath, position: int, offset: int, *, is_compaction: bool = True) -> None:
        """Report that no batch has the offsets up to ``offset``, unless that may be.

        ``is_compaction`` says that compaction may have left it, if it was there.
        """
        if self.next_offset < offset:
            self.snapshots.give_up()
        start = max(self.bounds.log_start_offset or 0, self._first_epoch_offset())
        is_compacted = self.bounds.may_have_gaps and is_compaction
        may_be = is_compacted or self.is_damaged or not self._is_durable(self.next_offset)
        if self.next_offset < offset and start < offset and not may_be:
            detail = f"no batch has the offsets {self.next_offset} to {offset - 1}"
            self._find(FindingKind.LOST_BATCHES, path, detail, position=position, offset=self.next_offset)
        self.next_offset = offset

    def _first_epoch_offset(self) -> int:
        """Where the log is known to begin: written before the files of a deletion are renamed."""
        return self.epochs.entries[0].start_offset if self.epochs is not None and self.epochs.entries else 0

    def _index_checks(self, segment: _SegmentFile, *, is_active: bool) -> _IndexChecks:
        disk, base = self.disk, segment.base_offset
        offsets = segment.path(self.directory, file_names.INDEX_SUFFIX)
        times = segment.path(self.directory, file_names.TIME_INDEX_SUFFIX)
        aborted = segment.path(self.directory, file_names.TRANSACTION_INDEX_SUFFIX)

        def offset_check() -> OffsetIndexCheck:
            # Kafka 4.4 leaves those of its metadata log's last segment as they are, zeros included, at a clean stop.
            index = OffsetIndex.load(disk, offsets, base, MAX_INDEX_BYTES, segment.size, is_active=is_active)
            return OffsetIndexCheck(index.entries)

        def time_check() -> TimeIndexCheck:
            index = TimeIndex.load(disk, times, base, MAX_INDEX_BYTES, is_active=is_active)
            has_zeros = disk.status(times).size_bytes > len(index.entries) * TimeIndex.ENTRY.size
            is_sealed = not is_active or (self.bounds.was_clean and not has_zeros)
            return TimeIndexCheck(index.entries, is_sealed=is_sealed)

        def transaction_check() -> TransactionIndexCheck:
            log_start_offset = self.bounds.log_start_offset or 0
            return TransactionIndexCheck(TransactionIndex(disk, aborted).transactions, log_start_offset)

        return _IndexChecks(
            self._loaded(FindingKind.OFFSET_INDEX, offsets, offset_check),
            self._loaded(FindingKind.TIME_INDEX, times, time_check),
            self._loaded(FindingKind.TRANSACTION_INDEX, aborted, transaction_check),
        )

    def _loaded(self, kind: FindingKind, path: PurePath, load: Callable[[], _T]) -> _T | None:
        try:
            return load()
        except CorruptIndex as error:
            # Names that a deletion or a compaction has changed reach the disk in any order.
            if self.bounds.was_clean or path.name in self.names:
                self._find(kind, path, str(error))
            return None

    def _check_batches(self, file: LogFile, segment: _SegmentFile, limit: int | None, checks: _IndexChecks) -> int:
        """Check one batch after the other; return where the last one ends that could be read."""
        position, problem = 0, ""
        while position < segment.size:
            problem = "the last batch is cut short"
            try:
                for located in batch_scan.whole_batches(file, position, segment.size):
                    header = located.header
                    place = BatchPlace(segment.base_offset, self.next_offset, limit, self.last_epoch)
                    bad = batch_checks.problem_with(header, located.buffer, place)
                    if bad and self._is_torn(file, segment, located.position, place):
                        return self._end_torn(segment, located.position)
                    if bad:
                        self._note_bad_batch(file.path, located.position, header, bad)
                    else:
                        if header.base_offset > self.next_offset:
                            is_last = limit is None and located.position + header.size_bytes == segment.size
                            is_none = batch_checks.no_gap_before(header, self.next_offset, self.recovery_point)
                            self._check_gap(
                                file.path, located.position, header.base_offset, is_compaction=not (is_last and is_none)
                            )
                        self._take(file.path, RecordBatch(header, located.buffer), located.position, checks)
                    position = located.position + header.size_bytes
            except CorruptRecordBatch as error:
                problem = str(error)
            if position == segment.size:
                break
            place = BatchPlace(segment.base_offset, self.next_offset, limit, self.last_epoch)
            if self._is_torn(file, segment, position, place):
                return self._end_torn(segment, position)
            self.is_damaged = True
            self._find(FindingKind.BATCH, file.path, problem, position=position, offset=self.next_offset)
            behind = batch_checks.good_batch_behind(file, position, segment.size, place)
            if behind is None:
                return position
            position = behind
        return position

    def _is_torn(self, file: LogFile, segment: _SegmentFile, position: int, place: BatchPlace) -> bool:
        """Whether what begins at ``position`` is what a kill or a power cut leaves at the end of a segment.

        A roll does not wait for the disk: a power cut may take the end of the old segment and leave the new one.
        """
        if self._is_durable(self.next_offset):
            return False
        behind = batch_checks.good_batch_behind(file, position, segment.size, place)
        if behind is None and not batch_checks.is_good_batch(file, position, segment.size):
            return True
        # Pages reach the disk in any order, so good batches may lie behind one that did not.
        end = segment.size if behind is None else behind
        return _has_unwritten_sector(bytes(file.read(end - position, position)), position)

    def _is_durable(self, offset: int) -> bool:
        """Whether what lies at ``offset`` is known to have been on the disk."""
        return self.bounds.was_clean or offset < self.recovery_point

    def _end_torn(self, segment: _SegmentFile, position: int) -> int:
        self.report.torn_bytes = segment.size - position
        return position

    def _note_bad_batch(self, path: PurePath, position: int, header: BatchHeader, problem: str) -> None:
        self.is_damaged = True
        self._find(FindingKind.BATCH, path, problem, position=position, offset=self.next_offset)
        # The next batch tells where the log goes on; what this one says of itself proves nothing.
        if header.last_offset_delta >= 0:
            self.next_offset = max(self.next_offset, min(header.next_offset, self.next_offset + header.record_count))

    def _take(self, path: PurePath, batch: RecordBatch, position: int, checks: _IndexChecks) -> None:
        header = batch.header
        self._compare_snapshots(header.base_offset)
        self.report.batches += 1
        self.report.records += header.record_count
        self.next_offset = header.next_offset
        self.last_epoch = max(self.last_epoch, header.partition_leader_epoch)
        self._check_epoch(path, header, position)
        if problem := batch_checks.problem_with_records(batch):
            self._find(FindingKind.BATCH, path, problem, position=position, offset=header.base_offset)
            self.is_damaged = True
            return
        self._check_own_records(path, batch, position)
        if checks.offsets is not None:
            checks.offsets.note_batch(position, header)
        if checks.times is not None:
            checks.times.note_batch(header)
        if header.producer_id >= 0:
            self._note_producer(batch, checks.transactions)

    def _check_epoch(self, path: PurePath, header: BatchHeader, position: int) -> None:
        epoch = header.partition_leader_epoch
        if (
            self.epochs is None
            or epoch < 0
            or (not self.bounds.was_clean and header.base_offset >= self.recovery_point)
        ):
            return
        known = self.epochs.epoch_for_offset(header.base_offset)
        if known is not None and known != epoch:
            detail = f"says epoch {known} for offset {header.base_offset}; the batch there has {epoch}"
            checkpoint = self.directory / file_names.LEADER_EPOCH_CHECKPOINT
            self._find(FindingKind.LEADER_EPOCHS, checkpoint, detail, offset=header.base_offset)
            self.epochs = None  # one finding tells it

    def _note_producer(self, batch: RecordBatch, check: TransactionIndexCheck | None) -> None:
        if not batch.header.is_control:
            self.producers.update(batch.header)
            return
        marker = producer_replay.read_transaction_marker(batch) if batch.header.record_count else None
        if marker is not None:
            aborted = self.producers.complete(marker)
            if marker.aborted and check is not None:
                check.note_abort_marker(marker.producer_id, marker.offset, aborted)

    def _check_own_records(self, path: PurePath, batch: RecordBatch, position: int) -> None:
        topic = self.report.topic_partition.topic
        if topic not in OWN_TOPICS or batch.header.is_control:
            return
        for record in batch.records():
            try:
                own_text(topic, record.key, record.value)
            except WireError as error:
                self._find(FindingKind.RECORD, path, str(error), position=position, offset=record.offset)

    # --- What lies beside the segments ---

    def _check_ends(self, segments: list[_SegmentFile]) -> None:
        """Compare the end of the log with what is known to be durable."""
        log_end, bounds = self.next_offset, self.bounds
        path = segments[-1].path(self.directory, file_names.LOG_SUFFIX) if segments else self.directory
        if log_end < self.recovery_point and not self.is_damaged:
            detail = f"the log ends at {log_end}; up to {self.recovery_point} it was durable"
            self._find(FindingKind.LOST_BATCHES, path, detail, offset=log_end)
        data_directory = self.directory.parent
        if bounds.log_start_offset is not None and bounds.log_start_offset > log_end:
            path = data_directory / file_names.LOG_START_OFFSET_CHECKPOINT
            detail = f"{self.report.topic_partition} begins at {bounds.log_start_offset}, and its log ends at {log_end}"
            self._find(FindingKind.LOG_START_CHECKPOINT, path, detail)
        if bounds.was_clean and bounds.high_watermark is not None and bounds.high_watermark > log_end:
            path = data_directory / file_names.HIGH_WATERMARK_CHECKPOINT
            detail = f"{self.report.topic_partition} is at {bounds.high_watermark}, and its log ends at {log_end}"
            self._find(FindingKind.CHECKPOINT, path, detail)
        if bounds.was_clean and self.epochs is not None and self.epochs.entries and not self.is_damaged:
            latest = self.epochs.entries[-1]
            if latest.start_offset > log_end:
                path = self.directory / file_names.LEADER_EPOCH_CHECKPOINT
                detail = f"epoch {latest.epoch} begins at {latest.start_offset}, and the log ends at {log_end}"
                self._find(FindingKind.LEADER_EPOCHS, path, detail)

    def _check_snapshots(self) -> None:
        offsets = producer_snapshot.offsets(self.disk, self.directory)
        for offset in offsets:
            if offset > self.next_offset or (not self.bounds.was_clean and offset > self.recovery_point):
                continue  # of a log that is cut at the next start, which takes an older one
            path = file_names.segment_path(self.directory, offset, file_names.SNAPSHOT_SUFFIX)
            content = self.disk.read_file(path)
            is_last_of_clean_stop = self.bounds.was_clean and offset == offsets[-1]
            try:
                entries = producer_snapshot.decode(content, str(path))
            except CorruptSnapshot as error:
                # A roll does not sync its snapshot.
                if is_last_of_clean_stop or not _is_unwritten(content):
                    self._find(FindingKind.SNAPSHOT, path, str(error))
                continue
            for entry in entries:
                last = entry.batches[-1].last_offset if entry.batches else -1
                if max(last, entry.transaction_first_offset or -1) >= offset:
                    detail = f"producer {entry.producer_id} is at {last}, which is not before {offset}"
                    self._find(FindingKind.SNAPSHOT, path, detail)

    def _check_orphans(self, segments: list[_SegmentFile]) -> None:
        if not self.bounds.was_clean:
            return  # a deletion or a start under way
        bases = {each.base_offset for each in segments}
        kinds = (FindingKind.OFFSET_INDEX, FindingKind.TIME_INDEX, FindingKind.TRANSACTION_INDEX)
        for kind, suffix in zip(kinds, file_names.SEGMENT_SUFFIXES[1:], strict=True):
            for name in self.names:
                offset = file_names.offset_of(name, suffix)
                if offset is not None and offset not in bases:
                    self._find(kind, self.directory / name, "there is no log to this index")


def _is_unwritten(content: bytes) -> bool:
    """Whether a power cut may have left the file so: cut short, or without a sector of it."""
    return not producer_snapshot.is_whole(content) or _has_unwritten_sector(content)


def _has_unwritten_sector(content: bytes, position: int = 0) -> bool:
    """Whether what lies from ``position`` on in a file is zero throughout one of its sectors."""
    first = SECTOR_BYTES - position % SECTOR_BYTES
    sectors = [content[:first], *(content[at : at + SECTOR_BYTES] for at in range(first, len(content), SECTOR_BYTES))]
    return not all(map(any, sectors))


def check_metadata_snapshot(disk: Disk, path: PurePath) -> list[StorageFinding]:
    """Check a snapshot of the metadata log, or the ``bootstrap.checkpoint`` that Kafka formats a directory with."""
    size, position = disk.status(path).size_bytes, 0
    findings: list[StorageFinding] = []

    def find(kind: FindingKind, detail: str) -> None:
        findings.append(StorageFinding(kind, path, detail, position=position))

    is_control: list[bool] = []
    try:
        for located in batch_scan.whole_batches(LogFile(disk, path, read_only=True), 0, size):
            batch = RecordBatch(located.header, located.buffer)
            batch.verify_crc()
            is_control.append(batch.header.is_control)
            if not batch.header.is_control:
                for record in batch.records():
                    decode_metadata_record(record.value or b"")
            position = located.position + located.header.size_bytes
    except KafkaError as error:
        find(FindingKind.BATCH, str(error))
    except WireError as error:
        find(FindingKind.RECORD, str(error))
    else:
        if position < size or not is_control or not (is_control[0] and is_control[-1]):
            find(FindingKind.BATCH, "it does not end with a whole footer")
    return findings
