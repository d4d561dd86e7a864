"""Reading segments whole after a crash: what is good is indexed, what is not is put right, left in place, or cut.

Every batch is checked: checksum, magic, lengths within bounds, offsets that grow, epochs that do not fall. Indexes,
leader epochs and producer state are made anew on the way. At a bad batch there are four cases:

* What its checksum does not cover (base offset, length, leader epoch, magic) has one value by what is around it, and
  the checksum is right with that: it is put right, unless it is another batch that stands in its place.
* It was durable: that is damage. It stays where it is, reads of its offsets are refused, and the log goes on behind it.
* Otherwise, nothing that could be a batch follows: a torn tail, as a kill or a power cut leaves it. It is cut, exactly.
* A good batch follows, in this segment or in a later one: damage, or what a power cut has left of records that were
  never synced. Kafka drops everything from there on without a word. Here the files are put aside first, under names
  that no loader looks at (``<offset>.log.corrupt-<time>``), and the report says so; then the log is cut in the same
  way.

Source: Kafka's LogSegment.recover; docs/decisions/0049 and 0062; docs/formats/segment.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import PurePath

import attrs

from kafka_wire.records.batch import (
    BATCH_HEADER_BYTES,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    RecordBatch,
    read_batch_header,
)
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.runtime.disk import Disk, sync_file
from trio_broker.storage import batch_checks, batch_repair, batch_scan, file_names, producer_replay
from trio_broker.storage.batch_checks import BatchPlace
from trio_broker.storage.batch_headers import header_at
from trio_broker.storage.batch_repair import DAMAGED_MAGIC
from trio_broker.storage.batch_scan import LocatedBatch
from trio_broker.storage.leader_epochs import LeaderEpochs
from trio_broker.storage.producer_state import ProducerStates
from trio_broker.storage.recovery_report import RecoveryReport
from trio_broker.storage.segment import Segment


@attrs.frozen
class ProvenFacts:
    """What the other files prove of the batches of a log.

    Everything before ``recovery_point`` has been on the disk; the log has reached ``proven_end``, by two files.
    Segments before ``retained_from`` are deleted, or on their way out, perhaps not from the oldest on.
    ``leader_epoch`` is the metadata's, None where nothing says so; ``epochs`` are as their file says. ``may_have_gaps``
    where compaction takes whole batches, which it has done before ``compacted_before`` only; ``gaps_end`` is the same
    where that is certain.
    """

    recovery_point: int
    proven_end: int
    retained_from: int
    leader_epoch: int | None
    epochs: LeaderEpochs
    may_have_gaps: bool
    compacted_before: int
    gaps_end: int | None

    def rules_out(self, epoch: int | None) -> bool:
        """Whether the metadata has not reached a leader epoch."""
        return epoch is not None and self.leader_epoch is not None and epoch > self.leader_epoch


@attrs.frozen
class Following:
    """What comes behind a batch: the offset and the leader epoch of the next one, as far as they are known."""

    base_offset: int | None
    epoch: int = -1
    is_damaged: bool = False


class SegmentRecovery:
    """Reads the segments of a log from the oldest to be read on. ``last_epoch`` is that of the batch before, -1 for
    none; ``epochs`` and ``producers`` are as they were there, and follow."""

    def __init__(
        self,
        disk: Disk,
        facts: ProvenFacts,
        report: RecoveryReport,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        *,
        last_epoch: int,
        now_ms: int,
    ) -> None:
        self.disk = disk
        self.facts = facts
        self.report = report
        self.epochs = epochs
        self.producers = producers
        self.last_epoch = last_epoch
        self.now_ms = now_ms
        # Where the last hole ends that a deletion has left: the log can begin no earlier.
        self.deleted_before = 0
        # When the last good batch was begun, as far as its header says.
        self.last_timestamp = NO_TIMESTAMP
        self._segments: Sequence[Segment] = ()

    def recover(self, segments: Sequence[Segment], index: int) -> bool:
        """Read one segment and make its indexes anew. Returns whether the log goes on behind it; else it ends there."""
        segment, self._segments = segments[index], segments[: index + 1]
        file_size, is_last = segment.size, index == len(segments) - 1
        limit = None if is_last else segments[index + 1].base_offset
        segment.clear_indexes()
        segment.next_offset = segment.base_offset
        segment.size = 0
        while (problem := self._read_good_batches(segment, file_size, limit)) is not None:
            if not self._may_go_on(segment, file_size, limit, problem):
                break
        self.producers.end_offset = segment.next_offset
        if problem is None and limit is not None and self._has_lost_batches(segment, limit):
            problem = f"no batch up to {limit}, where the next segment begins"
        if problem is not None:
            self._cut(segment, file_size, segments[index + 1 :], problem)
        elif limit is not None:
            if segment.next_offset < limit and not self.facts.may_have_gaps:
                if limit > self.facts.retained_from:
                    self.report.note(f"no records from {segment.next_offset} up to {limit}", logging.ERROR)
                else:
                    self.deleted_before = limit
            segment.next_offset = limit
        segment.seal()
        return problem is None

    def _has_lost_batches(self, segment: Segment, limit: int) -> bool:
        """Whether batches are missing between the last one of ``segment`` and ``limit``, where the next one begins.

        A roll does not wait for the disk: a power cut may take the end of the old segment and leave the new one. Only
        compaction leaves such gaps too, and never behind the recovery point that it has written down before.
        """
        facts, gap = self.facts, segment.next_offset
        if not gap < limit or limit <= facts.retained_from:
            return False
        if facts.may_have_gaps:
            return facts.gaps_end is not None and facts.gaps_end <= gap
        return facts.recovery_point <= gap

    # --- Good batches ---

    def _read_good_batches(self, segment: Segment, file_size: int, limit: int | None) -> str | None:
        """Index batches from ``segment.size`` on, up to the first bad one, which ends it. Returns what is wrong there,
        None at the end of the file."""
        try:
            for located in batch_scan.whole_batches(segment.file, segment.size, file_size):
                header = located.header
                offset, epoch = header.base_offset, header.partition_leader_epoch
                # Rarely: what follows is one more look into the file.
                if epoch != self.last_epoch or offset != segment.next_offset:
                    following = self._following(segment, located, file_size, limit)
                    # Corrected in memory for the checks; written to the file only once the batch has passed them.
                    header.base_offset = self._base_offset_of(segment, header, following)
                    header.partition_leader_epoch = self._epoch_of(header, following)
                    if self._is_another(segment, located, following):
                        return f"the batch of offset {offset} and leader epoch {epoch} belongs elsewhere"
                if problem := batch_checks.problem_with(header, located.buffer, self._place(segment, limit)):
                    return problem
                if (header.base_offset, header.partition_leader_epoch) != (offset, epoch):
                    self._restamp(segment, located)
                self._take(located, segment)
        except CorruptRecordBatch as error:
            return str(error)
        return "the last batch is cut short" if segment.size < file_size else None

    def _following(self, segment: Segment, located: LocatedBatch, file_size: int, limit: int | None) -> Following:
        """Return what comes behind a batch, which tells whether its offset and its epoch can be right."""
        position = located.position + located.header.size_bytes
        if position >= file_size:
            return Following(limit)
        try:
            header = read_batch_header(segment.file.read(BATCH_HEADER_BYTES, position))
        except CorruptRecordBatch:
            place = self._place(segment, limit)
            # Zeros that were preallocated, or a torn tail, are no batch.
            is_end = limit is None and batch_checks.good_batch_behind(segment.file, position, file_size, place) is None
            return Following(None, is_damaged=not is_end)
        return Following(header.base_offset, header.partition_leader_epoch)

    def _base_offset_of(self, segment: Segment, header: BatchHeader, following: Following) -> int:
        """Return the base offset of a batch: its own, unless what is around it proves that it begins where the one
        before it ends."""
        expected = segment.next_offset
        if following.base_offset is not None:
            is_proven = following.base_offset == expected + header.last_offset_delta + 1
        elif following.is_damaged:
            is_proven = False
        else:
            is_proven = not self.facts.may_have_gaps or batch_checks.no_gap_before(
                header, expected, self.facts.compacted_before
            )
        return expected if is_proven else header.base_offset

    def _epoch_of(self, header: BatchHeader, following: Following) -> int:
        """Return the leader epoch of a batch: its own, unless what is around it, or the metadata, contradicts it."""
        epoch, in_force = header.partition_leader_epoch, self._epoch_in_force(header.base_offset)
        if self.facts.rules_out(epoch) or epoch > following.epoch >= self.last_epoch >= 0:
            return in_force
        # There is none before the first one only.
        if epoch < 0 <= in_force:
            return in_force
        # Older than the one before it, between newer ones.
        if 0 <= epoch < self.last_epoch <= following.epoch:
            return in_force
        # The last batch: the file is written before the first one of an epoch. It says nothing of what is before its
        # first one, where the log started when it was written.
        is_last = following.base_offset is None and not following.is_damaged
        on_file = self.facts.epochs
        is_recorded = on_file.epoch_for_offset(header.base_offset) is not None
        is_known = epoch == self.facts.leader_epoch or not is_recorded or on_file.has(epoch)
        return in_force if is_last and epoch > in_force >= 0 and not is_known else epoch

    def _epoch_in_force(self, offset: int) -> int:
        """Return the epoch that a batch at this offset must be of, as far as the others tell; -1 if they do not."""
        known = self.facts.epochs.epoch_for_offset(offset)
        return self.last_epoch if known is None else max(known, self.last_epoch)

    def _is_another(self, segment: Segment, located: LocatedBatch, following: Following) -> bool:
        """Whether a batch, with what is around it in its header, is not the next one of the log.

        It is none either if it begins behind a gap into which the batch behind it belongs.
        """
        header, expected, behind = located.header, segment.next_offset, following.base_offset
        if header.base_offset > expected and behind is not None and expected <= behind < header.next_offset:
            return True
        return not self._is_damaged(located.buffer, header)

    def _is_damaged(self, found: bytes | bytearray | memoryview, header: BatchHeader) -> bool:
        """Whether ``found`` can be the batch of ``header`` with damage before what its checksum covers, if with any."""
        bits = batch_repair.damaged_bits(found, header)
        if not bits:
            return True
        producer = self.producers.producers.get(header.producer_id)
        return (
            bits <= batch_repair.most_damaged_bits(header, producer, may_have_gaps=self.facts.may_have_gaps)
            and not 0 <= header.max_timestamp < self.last_timestamp
            and not self._is_copy(int.from_bytes(found[:8], "big", signed=True), header.crc)
        )

    def _is_copy(self, base_offset: int, crc: int) -> bool:
        """Whether the log has a batch with this checksum before, at ``base_offset``."""
        if base_offset < self._segments[0].base_offset:
            return False
        try:
            original = header_at(self._segments, base_offset)
        except CorruptRecordBatch:
            return False
        return original is not None and original.crc == crc

    def _place(self, segment: Segment, limit: int | None = None) -> BatchPlace:
        return BatchPlace(segment.base_offset, segment.next_offset, limit, self.last_epoch)

    def _restamp(self, segment: Segment, located: LocatedBatch) -> None:
        """Write the offset and the epoch of the header over those in the file; the batch is good otherwise."""
        header = located.header
        data = bytearray(located.buffer[:BATCH_HEADER_BYTES])
        RecordBatch(header, memoryview(data)).stamp(
            base_offset=header.base_offset, partition_leader_epoch=header.partition_leader_epoch
        )
        segment.file.overwrite(data, located.position)
        segment.file.sync()
        self._note_put_right(header.base_offset, "header", segment)

    def _take(self, located: LocatedBatch, segment: Segment) -> None:
        header = located.header
        epoch = header.partition_leader_epoch
        if epoch >= 0:
            self.last_epoch = epoch
            latest = self.epochs.latest_epoch
            if latest is None or epoch > latest:
                self.epochs.note(epoch, header.base_offset)
        self.last_timestamp = batch_repair.first_timestamp(header)
        segment.note_batch(header, located.position)
        segment.next_offset = header.next_offset
        segment.size = located.position + header.size_bytes
        if header.producer_id < 0:
            return
        if aborted := producer_replay.apply(self.producers, RecordBatch(header, located.buffer)):
            segment.transaction_index.append(aborted)

    # --- Bad ones ---

    def _may_go_on(self, segment: Segment, file_size: int, limit: int | None, problem: str) -> bool:
        """Put a bad batch at the end of ``segment`` right, or leave it where it is, if it was durable.

        Returns whether that was done, and there is more to read; else the log is to be cut here.
        """
        facts, position, first_offset = self.facts, segment.size, segment.next_offset
        end, next_offset = file_size, limit
        behind = batch_checks.good_batch_behind(segment.file, position, file_size, self._place(segment, limit))
        # The search may have given up.
        if behind is not None and batch_checks.is_good_batch(segment.file, behind, file_size):
            end = behind
            next_offset = read_batch_header(segment.file.read(BATCH_HEADER_BYTES, behind)).base_offset
        if self._put_right(segment, end, next_offset):
            return True
        if first_offset >= (facts.proven_end if next_offset is None else facts.recovery_point):
            return False
        # Otherwise a reader that does not look at checksums would take it for a good one.
        if batch_scan.has_header(segment.file, position, end):
            segment.file.overwrite(DAMAGED_MAGIC, position + MAGIC_POSITION)
            segment.file.sync()
        segment.note_damage(position, first_offset)
        segment.size = end
        if end < file_size and next_offset is not None:
            segment.next_offset = next_offset
        until = facts.proven_end if next_offset is None else next_offset
        self.report.note(
            f"damage in {segment.file.path.name} at position {position} ({problem}): the bytes up to {end} stay, and"
            f" reads from {first_offset} up to {until} are refused",
            logging.ERROR,
        )
        return True

    def _put_right(self, segment: Segment, end: int, next_offset: int | None) -> bool:
        """Put the header of a bad batch right, if its checksum and its neighbours prove how."""
        facts, position, offset = self.facts, segment.size, segment.next_offset
        if next_offset is None and facts.may_have_gaps and offset < facts.compacted_before:
            # Otherwise there may be a gap before it: see ``no_gap_before``.
            next_offset = facts.compacted_before
        data = segment.file.read(end - position, position)
        prefix = batch_repair.put_right(data, offset, next_offset, self._epoch_in_force(offset))
        if prefix is None or data.startswith(prefix):
            return False
        header = read_batch_header(prefix + data[len(prefix) : BATCH_HEADER_BYTES])
        if not self._is_damaged(data, header):
            return False
        segment.file.overwrite(prefix, position)
        segment.file.sync()
        self._note_put_right(offset, "header", segment)
        return True

    def _note_put_right(self, offset: int, what: str, segment: Segment) -> None:
        was_durable = offset < self.facts.recovery_point
        # What was not synced, a power cut may tear within a header.
        how, level = ("damaged", logging.ERROR) if was_durable else ("torn", logging.WARNING)
        where = f"of the batch at {offset} in {segment.file.path.name}"
        self.report.note(f"the {what} {where} was {how} and is put right", level)

    def _cut(self, segment: Segment, file_size: int, later: Sequence[Segment], problem: str) -> None:
        """End the log with the good part of ``segment``; put aside what may still be of worth."""
        cut_bytes = file_size - segment.size
        # A batch with a good checksum that does not fit the log is no torn tail either: it is worth a look.
        is_whole = batch_checks.is_good_batch(segment.file, segment.size, file_size)
        behind = (
            segment.size
            if is_whole
            else batch_checks.good_batch_behind(segment.file, segment.size, file_size, self._place(segment))
        )
        later_with_records = [other for other in later if other.size]
        if behind is None and not later_with_records:
            self.report.note(f"cut {cut_bytes} bytes from the end of {segment.file.path.name}: {problem}")
        else:
            where = f"position {behind}" if behind is not None else later_with_records[0].file.path.name
            # A copy, since the good part stays in use under this name; later segments are only renamed.
            put_aside(self.disk, segment.file.path, self.report, self.now_ms, copy=True)
            for other in later_with_records:
                put_aside(self.disk, other.file.path, self.report, self.now_ms)
            aside = ", ".join(path.name for path in self.report.kept_aside)
            self.report.note(
                f"damage in {segment.file.path.name} at position {segment.size} ({problem}), with good batches"
                f" from {where} on; the log now ends at {segment.next_offset}, what was there is kept as {aside}",
                logging.ERROR,
            )
        self.report.cut_bytes += cut_bytes + sum(other.size for other in later)
        for other in later:
            remove(other)
        segment.file.truncate(segment.size)


def put_aside(disk: Disk, path: PurePath, report: RecoveryReport, now_ms: int, *, copy: bool = False) -> None:
    """Give a file of a log a name that no loader looks at, or with ``copy`` keep what it holds under one."""
    target = path.with_name(f"{path.name}.corrupt-{now_ms}")
    if copy:
        disk.copy(path, target)
        # The original is truncated next: until this is on the disk it is the only copy.
        sync_file(disk, target)
    else:
        disk.rename(path, target)
    report.kept_aside.append(target)


def remove(segment: Segment) -> None:
    """Remove all files of a segment that are there."""
    for suffix in file_names.SEGMENT_SUFFIXES:
        segment.disk.unlink(segment.path(suffix), missing_ok=True)
