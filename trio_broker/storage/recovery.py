"""Opening a log: after a clean stop in a few reads, after a crash by checking what was not known to be durable.

After a crash every segment from the recovery point on is read whole: checksums, magic, lengths within bounds, offsets
that grow, epochs that do not fall. Indexes, leader epochs and producer state are made anew on the way. At the first
batch that is no good there are two cases:

* Nothing that could be a batch follows: a torn tail, as a kill or a power cut leaves it. It is cut, exactly.
* A good batch follows, in this segment or in a later one: that is damage, not a torn tail. Kafka drops everything
  from there on without a word. Here the files are put aside first, under names that no loader looks at
  (``<offset>.log.corrupt-<time>``), and the report says so; then the log is cut in the same way, for a log with a
  hole cannot be served.

Two facts come from elsewhere and may be wrong, or contradict what lies here. A log that ends before its checkpointed
start begins anew there, as in Kafka, and its segments are put aside: perhaps a digit of the checkpoint is wrong. And
the leader epoch of a batch lies before its CRC: one that the metadata has not reached is damage, and is put right,
since a log that took it for the latest epoch would refuse every leader from then on.

Before that, what a compaction or a deletion had under way is completed or undone, by the suffixes of the files.

Source: Kafka's LogLoader and LogSegment.recover; docs/formats/segment.md.
"""

from __future__ import annotations

import errno
import itertools
import logging
from collections.abc import Sequence
from pathlib import PurePath

import attrs

from kafka_wire.records.batch import BATCH_HEADER_BYTES, BatchHeader, RecordBatch, read_batch_header
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.disk import Disk, names_in, sync_file
from trio_broker.storage import (
    batch_checks,
    batch_repair,
    batch_scan,
    epoch_checks,
    file_names,
    interrupted_swaps,
    partition_metadata,
    producer_replay,
    producer_snapshot,
    transaction_checks,
)
from trio_broker.storage.batch_checks import BatchPlace
from trio_broker.storage.batch_repair import DAMAGED_MAGIC, MAGIC_POSITION
from trio_broker.storage.batch_scan import LocatedBatch
from trio_broker.storage.errors import CorruptCheckpoint, CorruptIndex
from trio_broker.storage.leader_epochs import LeaderEpochs
from trio_broker.storage.log import Log
from trio_broker.storage.offset_index import OffsetPosition
from trio_broker.storage.producer_state import ProducerStates
from trio_broker.storage.segment import Segment
from trio_broker.topic_partition import TopicPartition

logger = logging.getLogger(__name__)


@attrs.define
class RecoveryReport:
    """What opening a log found and did. All zero and empty after a clean stop."""

    topic_partition: TopicPartition
    was_clean: bool
    recovered_segments: int = 0
    cut_bytes: int = 0
    kept_aside: list[PurePath] = attrs.field(factory=list)
    problems: list[str] = attrs.field(factory=list)


@attrs.frozen
class Following:
    """What comes behind a batch: the offset and the leader epoch of the next one, as far as they are known."""

    base_offset: int | None
    epoch: int = -1
    is_damaged: bool = False


@attrs.frozen
class OpenedLog:
    """A log ready for use, and how it was found."""

    log: Log
    report: RecoveryReport


def open_log(
    disk: Disk,
    directory: PurePath,
    topic_partition: TopicPartition,
    topic_id: bytes | None,
    config: LogConfig,
    *,
    recovery_point: int,
    log_start_offset: int | None,
    clean: bool,
    now_ms: int,
    leader_epoch: int | None = None,
    high_watermark: int | None = None,
    start_is_certain: bool = False,
) -> OpenedLog:
    """Open the log in ``directory``, creating it when it is not there.

    ``recovery_point`` is the checkpointed offset below which everything is known to be on the disk,
    ``log_start_offset`` the checkpointed start, None where the checkpoint is lost, ``high_watermark`` the checkpointed
    one, None where there is none; ``clean`` says whether the data directory had a clean-shutdown marker. ``topic_id``
    None takes the one in the directory. ``leader_epoch`` is the metadata's for the partition, beyond which no epoch in
    the log can be; None where nothing says so. With ``start_is_certain`` the start is not from a checkpoint.

    Raises:
        OSError: the disk refused.
        CorruptCheckpoint: no topic id is to be had.
    """
    if not disk.is_directory(directory.parent):
        # Made anew it would be empty, and on another disk where one is no longer mounted.
        raise FileNotFoundError(errno.ENOENT, "no such directory", str(directory.parent))
    disk.make_directory(directory)
    opening = _Opening(disk, directory, topic_partition, config, clean, now_ms, leader_epoch)
    # Before the listing: a swap under way may still give segments other names.
    interrupted_swaps.finish(disk, directory)
    topic_id = _resolve_topic_id(disk, directory, topic_id)
    segments = _list_segments(disk, directory, config, now_ms)
    epochs = opening.load_epochs()
    log_start_offset = opening.judge_log_start(log_start_offset, segments, epochs, is_certain=start_is_certain)
    is_new = not segments or (recovery_point == log_start_offset == 0 and opening.is_unused(segments, epochs))
    if segments and is_new:
        segments[0].clear_indexes()
        if not clean:
            # Over whatever a crash left of its indexes.
            segments[0].seal()
        producers = ProducerStates()
    elif segments:
        opening.judge_log_end(recovery_point, high_watermark, segments, epochs)
        producers = opening.recover(segments, epochs, recovery_point)
    else:
        segments = [Segment.create(disk, directory, log_start_offset, config, now_ms)]
        producers = producer_replay.load_producer_states(disk, directory, segments, log_start_offset, log_start_offset)
    if segments[-1].next_offset < log_start_offset:
        opening.put_aside_before_start(segments)
        segments = [Segment.create(disk, directory, log_start_offset, config, now_ms)]
        producers = ProducerStates()
        producers.end_offset = log_start_offset
    start_offset = max(log_start_offset, segments[0].base_offset)
    opening.finish(segments, epochs, producers, start_offset)
    log = Log(
        disk,
        directory,
        topic_partition,
        topic_id,
        config,
        segments,
        log_start_offset=start_offset,
        recovery_point=segments[-1].next_offset if opening.is_durable else max(recovery_point, start_offset),
        epochs=epochs,
        producers=producers,
        unsynced_segments=opening.recovered_segments,
        # What was preallocated has to be cut.
        is_settled=(is_new and not config.preallocate) or (opening.is_durable and opening.has_snapshot_at_end),
    )
    return OpenedLog(log, opening.report)


def _resolve_topic_id(disk: Disk, directory: PurePath, topic_id: bytes | None) -> bytes:
    """Return the topic's id and see to it that the directory says it, durably from the first record on.

    A power cut before that may leave anything in the file, or nothing; there is no record then.
    """
    try:
        stored = partition_metadata.read(disk, directory)
    except CorruptCheckpoint:
        if topic_id is None or not partition_metadata.is_unused(disk, directory):
            raise
        stored = None
    if topic_id is None:
        if stored is None:
            raise CorruptCheckpoint(f"{directory} has no {file_names.PARTITION_METADATA}")
        return stored
    if stored is None:
        partition_metadata.write(disk, directory, topic_id)
    elif stored != topic_id:
        raise CorruptCheckpoint(f"{directory} belongs to another topic of the same name")
    return topic_id


def _list_segments(disk: Disk, directory: PurePath, config: LogConfig, now_ms: int) -> list[Segment]:
    """Return the segments whose ``.log`` is there, oldest first; each ends where the next begins, as far as known."""
    sizes: dict[int, int] = {}
    for entry in disk.list_directory(directory):
        offset = file_names.offset_of(entry.name, file_names.LOG_SUFFIX)
        if offset is not None:
            sizes[offset] = disk.status(directory / entry.name).size_bytes
    segments = [
        Segment(disk, directory, offset, config, size=size, created_ms=now_ms) for offset, size in sorted(sizes.items())
    ]
    for segment, following in itertools.pairwise(segments):
        segment.next_offset = following.base_offset
    return segments


def _first_to_recover(segments: Sequence[Segment], recovery_point: int) -> int:
    """Return the number of the first segment that a start after a crash reads.

    That is the one that ends at the recovery point or holds it, and it is read whole: indexes can only be made anew
    from its beginning. One that ends there may have been sealed since, and its indexes are synced only after that.
    """
    return max((i for i, segment in enumerate(segments) if segment.base_offset < recovery_point), default=0)


def _remove(segment: Segment) -> None:
    for suffix in file_names.SEGMENT_SUFFIXES:
        segment.disk.unlink(segment.path(suffix), missing_ok=True)


class _Opening:
    """The work of opening one log, with its report."""

    def __init__(
        self,
        disk: Disk,
        directory: PurePath,
        topic_partition: TopicPartition,
        config: LogConfig,
        clean: bool,
        now_ms: int,
        leader_epoch: int | None,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.log_start_offset = 0
        self.clean = clean
        self.now_ms = now_ms
        self.leader_epoch = leader_epoch
        self.report = RecoveryReport(topic_partition, clean)
        # The newest epoch read so far; a batch of an older one behind it is damage.
        self.last_epoch = -1
        # Set when the epoch checkpoint is unusable: then the recovery point saves no reading.
        self.everything = False
        # As their file says, to judge batches by.
        self.epochs_on_file = LeaderEpochs(disk, directory)
        self.recovery_point = 0
        # The log has reached so far: two files of it say so.
        self.proven_end = 0
        # Segments before it are deleted, or on their way out, perhaps in another order than from the oldest on.
        self.retained_from = 0
        # Where a header was put right last.
        self.put_right_at: OffsetPosition | None = None
        self.recovered_segments: list[Segment] = []
        self.has_snapshot_at_end = False

    @property
    def is_durable(self) -> bool:
        """Whether all of the log is known to be on the disk: it was closed properly and found so."""
        return self.clean and not self.report.recovered_segments

    def is_unused(self, segments: Sequence[Segment], epochs: LeaderEpochs) -> bool:
        """Whether there has never been a record: an epoch is written down before the first one."""
        is_empty = len(segments) == 1 and not segments[0].base_offset and not segments[0].size
        return is_empty and not epochs.entries and not self.everything

    def note(self, problem: str, level: int = logging.WARNING) -> None:
        logger.log(level, "%s: %s", self.report.topic_partition, problem)
        self.report.problems.append(problem)

    def load_epochs(self) -> LeaderEpochs:
        try:
            epochs = LeaderEpochs.load(self.disk, self.directory)
            if self._is_impossible(epochs.latest_epoch):
                raise CorruptCheckpoint(
                    f"{self.directory}: epoch {epochs.latest_epoch}, the metadata has {self.leader_epoch}"
                )
            return epochs
        except CorruptCheckpoint as error:
            self.note(f"{error}; every segment is read to make it anew")
            self.clean = False
            self.everything = True
            return LeaderEpochs(self.disk, self.directory)

    def judge_log_start(
        self, checkpointed: int | None, segments: Sequence[Segment], epochs: LeaderEpochs, *, is_certain: bool
    ) -> int:
        """Settle where the log starts.

        The file of leader epochs follows each move of the start before the checkpoint does. A checkpoint beyond its
        first epoch is damaged: believed, it would have records deleted.
        """
        first = segments[0].base_offset if segments else 0
        by_epochs = max(first, epochs.entries[0].start_offset) if epochs.entries else first
        start = by_epochs if checkpointed is None else checkpointed
        if segments and epochs.entries and start > by_epochs and not is_certain:
            self.note(
                f"the log start {start} in {file_names.LOG_START_OFFSET_CHECKPOINT} is not believed: by the leader"
                f" epochs it is {by_epochs}",
                logging.ERROR,
            )
            start = by_epochs
        self.log_start_offset = self.retained_from = start
        return start

    def judge_log_end(
        self, recovery_point: int, high_watermark: int | None, segments: Sequence[Segment], epochs: LeaderEpochs
    ) -> None:
        """Settle what the log has reached for certain: the recovery point, as far as another file says so as well."""
        witnesses = [segments[-1].base_offset, high_watermark or 0]
        witnesses += [entry.start_offset for entry in epochs.entries[-1:]]
        witnesses += producer_snapshot.offsets(self.disk, self.directory)[-1:]
        self.recovery_point = recovery_point
        self.proven_end = min(recovery_point, max(witnesses))

    def _is_impossible(self, epoch: int | None) -> bool:
        return epoch is not None and self.leader_epoch is not None and epoch > self.leader_epoch

    def put_aside_before_start(self, segments: Sequence[Segment]) -> None:
        """Empty the directory of a log that ends before its checkpointed start, and keep what has records."""
        end_offset = segments[-1].next_offset
        for segment in segments:
            segment.evict()
            if segment.size:
                self._quarantine(segment.file.path, copy=False)
            _remove(segment)
        aside = ", ".join(path.name for path in self.report.kept_aside) or "nothing"
        self.note(
            f"the log ends at {end_offset}, before its start at {self.log_start_offset} in"
            f" {file_names.LOG_START_OFFSET_CHECKPOINT}: begun anew there, what was there is kept as {aside}",
            logging.ERROR,
        )

    def recover(self, segments: list[Segment], epochs: LeaderEpochs, recovery_point: int) -> ProducerStates:
        """Check what needs checking; drop from ``segments`` what cannot stay. Returns the producers at the log end."""
        self._note_lost_segments(segments)
        believed = len(segments) if self.clean else _first_to_recover(segments, recovery_point)
        for segment in segments[:believed]:
            try:
                transaction_checks.check(segment, segments)
            except CorruptIndex as error:
                self.note(f"{error}; read anew from its segment on")
                recovery_point, self.clean = min(recovery_point, segment.base_offset), False
                break
        if self.clean:
            problem = self._problem_with_end(segments[-1])
            if problem is None:
                self._check_epochs(segments, epochs, segments[-1].next_offset)
                return self._load_producers(segments, segments[-1].next_offset)
            self.note(f"{problem} in spite of a clean stop")
            segments[-1].next_offset = segments[-1].base_offset
            recovery_point = min(recovery_point, segments[-1].base_offset)
        recovery_point = 0 if self.everything else recovery_point
        if epochs.entries:
            # Written before the files of a deletion are renamed.
            self.retained_from = max(self.retained_from, epochs.entries[0].start_offset)
        first = _first_to_recover(segments, recovery_point)
        self._check_epochs(segments[:first], epochs, segments[first].base_offset)
        self.epochs_on_file = LeaderEpochs(self.disk, self.directory, epochs.entries)
        # Noted again as their batches are read.
        epochs.truncate_from_end(segments[first].base_offset)
        epoch_before = epochs.epoch_for_offset(segments[first].base_offset - 1)
        self.last_epoch = -1 if epoch_before is None else epoch_before
        producers = self._load_producers(segments[:first], segments[first].base_offset)
        for index in range(first, len(segments)):
            self.report.recovered_segments += 1
            self.recovered_segments.append(segments[index])
            if not self._recover_segment(segments, index, epochs, producers):
                del segments[index + 1 :]
                break
        self._reach_proven_end(segments, producers)
        return producers

    def _check_epochs(self, segments: Sequence[Segment], epochs: LeaderEpochs, end_offset: int) -> None:
        """Compare where leader epochs begin with the batches there; where that is wrong, make them anew from those."""
        try:
            problem = epoch_checks.problem_with(segments, epochs.entries, self.log_start_offset, end_offset)
        except CorruptRecordBatch:
            # What damages the log proves nothing against its epochs.
            return
        if problem is not None:
            self.note(f"{problem}: the leader epochs are made anew from the log")
            found = epoch_checks.epochs_of(segments, self.log_start_offset, end_offset)
            latest = found[-1].epoch if found else -1
            later = [each for each in epochs.entries if each.start_offset >= end_offset and each.epoch > latest]
            epochs.replace([*found, *later])

    def _problem_with_end(self, segment: Segment) -> str | None:
        """Find out where the log ends after a clean stop, which left the recovery point there."""
        if not segment.load_tail():
            return "does not end with a whole batch"
        if self.recovery_point not in (0, segment.next_offset):
            return f"ends at {segment.next_offset}, with the recovery point at {self.recovery_point},"
        return None

    def _reach_proven_end(self, segments: list[Segment], producers: ProducerStates) -> None:
        """Let no offset be given twice: where records at the end are lost, the log goes on behind them."""
        end_offset, last = self.proven_end, segments[-1]
        if last.next_offset >= end_offset:
            return
        self.note(
            f"records from {last.next_offset} up to {end_offset} are lost: the log goes on at {end_offset}",
            logging.ERROR,
        )
        last.next_offset = producers.end_offset = end_offset
        segments.append(Segment.create(self.disk, self.directory, end_offset, self.config, self.now_ms))
        self.recovered_segments.append(segments[-1])

    def _note_lost_segments(self, segments: Sequence[Segment]) -> None:
        """Tell of segments whose indexes are there and whose records are not: the log has a hole."""
        logs = {segment.base_offset for segment in segments}
        names = names_in(self.disk.list_directory(self.directory))
        indexes = (file_names.offset_of(name, file_names.INDEX_SUFFIX) for name in names)
        for offset in sorted(offset for offset in indexes if offset is not None):
            if offset not in logs and segments[0].base_offset < offset < segments[-1].base_offset:
                self.note(f"the file with the records from {offset} on is lost", logging.ERROR)
        for segment in segments[:-1]:
            if not segment.size and not self.config.cleanup_policy.compact:
                self.note(f"{segment.file.path.name} has lost its records", logging.ERROR)

    def _load_producers(self, segments: Sequence[Segment], end_offset: int) -> ProducerStates:
        expiration = producer_replay.Expiration(self.now_ms, self.config.producer_id_expiration_ms)
        return producer_replay.load_producer_states(
            self.disk, self.directory, segments, end_offset, self.log_start_offset, expiration
        )

    def _recover_segment(
        self, segments: Sequence[Segment], index: int, epochs: LeaderEpochs, producers: ProducerStates
    ) -> bool:
        """Read one segment whole and make its indexes anew. Returns whether it was good to its end."""
        segment = segments[index]
        file_size, is_last = segment.size, index == len(segments) - 1
        limit = None if is_last else segments[index + 1].base_offset
        segment.clear_indexes()
        segment.next_offset = segment.base_offset
        segment.size = 0
        while (problem := self._read_good_batches(segment, file_size, limit, epochs, producers)) is not None:
            if not self._may_go_on(segment, file_size, limit, problem):
                break
        producers.end_offset = segment.next_offset
        is_whole = segment.size == file_size
        if is_whole and limit is not None and self._has_lost_batches(segment, limit):
            is_whole, problem = False, f"no batch up to {limit}, where the next segment begins"
        if not is_whole:
            self._cut(segment, file_size, segments[index + 1 :], problem or "the last batch is cut short")
        elif limit is not None:
            if segment.next_offset < limit and not self.config.cleanup_policy.compact and limit > self.retained_from:
                self.note(f"no records from {segment.next_offset} up to {limit}", logging.ERROR)
            segment.next_offset = limit
        segment.seal()
        return is_whole

    def _has_lost_batches(self, segment: Segment, limit: int) -> bool:
        """Whether batches are missing between the last one of ``segment`` and ``limit``, where the next one begins.

        A roll does not wait for the disk: a power cut may take the end of the old segment and leave the new one. Only
        compaction leaves such gaps too, and never behind the recovery point.
        """
        gap = segment.next_offset
        never_synced = self.recovery_point <= gap < limit and limit > self.retained_from
        return never_synced and not self.config.cleanup_policy.compact

    def _read_good_batches(
        self, segment: Segment, file_size: int, limit: int | None, epochs: LeaderEpochs, producers: ProducerStates
    ) -> str | None:
        """Index batches from ``segment.size`` on, up to the first bad one, which ends it. Returns what is wrong there,
        None at the end of the file."""
        try:
            for located in batch_scan.whole_batches(segment.file, segment.size, file_size):
                header = located.header
                following = self._following(segment, located, file_size, limit)
                epoch = self._epoch_of(header, following)
                has_wrong_epoch = epoch != header.partition_leader_epoch
                # Corrected in memory for the checks; written to the file only once the batch has passed them.
                header.partition_leader_epoch = epoch
                problem = self._problem_with(located, segment, limit)
                if problem is None and self._has_wrong_offset(segment, header, following):
                    problem = f"batch at {header.base_offset} behind {segment.next_offset}"
                if problem:
                    return problem
                if has_wrong_epoch:
                    self._restamp_epoch(segment, located)
                self._take(located, segment, epochs, producers)
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
            return Following(None, is_damaged=True)
        return Following(header.base_offset, header.partition_leader_epoch)

    def _has_wrong_offset(self, segment: Segment, header: BatchHeader, following: Following) -> bool:
        """Whether a base offset that grows is wrong: by what follows, or since only compaction leaves gaps."""
        expected = segment.next_offset
        if header.base_offset == expected:
            return False
        if following.base_offset is not None:
            return following.base_offset == expected + header.last_offset_delta + 1
        return not following.is_damaged and not self.config.cleanup_policy.compact

    def _epoch_of(self, header: BatchHeader, following: Following) -> int:
        """Return the leader epoch of a batch: its own, unless what is around it, or the metadata, contradicts it."""
        epoch, in_force = header.partition_leader_epoch, self._epoch_in_force(header.base_offset)
        if self._is_impossible(epoch) or epoch > following.epoch >= self.last_epoch >= 0:
            return in_force
        # Older than the one before it, between newer ones.
        if 0 <= epoch < self.last_epoch <= following.epoch:
            return in_force
        # The file is written before the first batch of an epoch.
        is_last = following.base_offset is None and not following.is_damaged
        on_file = {entry.epoch for entry in self.epochs_on_file.entries}
        return in_force if is_last and epoch > in_force >= 0 and on_file and epoch not in on_file else epoch

    def _may_go_on(self, segment: Segment, file_size: int, limit: int | None, problem: str) -> bool:
        """Decide what becomes of a bad batch at the end of ``segment``: put right, left where it is, or a torn tail.

        What was durable is no torn tail. It stays, reads of it are refused, and the log goes on behind it.
        """
        position, first_offset = segment.size, segment.next_offset
        place = self._place(segment, limit)
        behind = batch_checks.good_batch_behind(segment.file, position, file_size, place)
        end, next_offset = file_size, limit
        if behind is not None:
            end = behind
            next_offset = read_batch_header(segment.file.read(BATCH_HEADER_BYTES, behind)).base_offset
        if self._put_right(segment, end, next_offset):
            return True
        if first_offset >= (self.proven_end if next_offset is None else self.recovery_point):
            return False
        # Otherwise a reader that does not look at checksums would take it for a good one.
        if batch_scan.has_header(segment.file, position, end):
            segment.file.overwrite(DAMAGED_MAGIC, position + MAGIC_POSITION)
            segment.file.sync()
        segment.note_damage(position, first_offset)
        segment.size = end
        if behind is not None and next_offset is not None:
            segment.next_offset = next_offset
        until = self.proven_end if next_offset is None else next_offset
        self.note(
            f"damage in {segment.file.path.name} at position {position} ({problem}): the bytes up to {end} stay, and"
            f" reads from {first_offset} up to {until} are refused",
            logging.ERROR,
        )
        return True

    def _put_right(self, segment: Segment, end: int, next_offset: int | None) -> bool:
        """Put the header of a bad batch right, if its checksum and its neighbours prove how; at most once."""
        at = OffsetPosition(segment.next_offset, segment.size)
        if at == self.put_right_at or (next_offset is None and self.config.cleanup_policy.compact):
            return False
        self.put_right_at = at
        data = segment.file.read(end - at.position, at.position)
        prefix = batch_repair.put_right(data, at.offset, next_offset, self._epoch_in_force(at.offset))
        if prefix is None or data.startswith(prefix):
            return False
        segment.file.overwrite(prefix, at.position)
        segment.file.sync()
        self.note(
            f"the header of the batch at {at.offset} in {segment.file.path.name} was damaged and is put right",
            logging.ERROR,
        )
        return True

    def _problem_with(self, located: LocatedBatch, segment: Segment, limit: int | None) -> str | None:
        return batch_checks.problem_with(located.header, located.buffer, self._place(segment, limit))

    def _place(self, segment: Segment, limit: int | None = None) -> BatchPlace:
        return BatchPlace(segment.base_offset, segment.next_offset, limit, self.last_epoch)

    def _epoch_in_force(self, offset: int) -> int:
        """Return the epoch that a batch at this offset must be of, as far as the others tell; -1 if they do not."""
        known = self.epochs_on_file.epoch_for_offset(offset)
        return self.last_epoch if known is None else max(known, self.last_epoch)

    def _restamp_epoch(self, segment: Segment, located: LocatedBatch) -> None:
        """Write the epoch of the header over the one in the file; the batch is good otherwise."""
        header = located.header
        data = bytearray(located.buffer[:BATCH_HEADER_BYTES])
        RecordBatch(header, memoryview(data)).stamp(
            base_offset=header.base_offset, partition_leader_epoch=header.partition_leader_epoch
        )
        segment.file.overwrite(data, located.position)
        segment.file.sync()
        self.note(
            f"the batch at {header.base_offset} had a leader epoch that the metadata or its neighbours rule out: put"
            f" right as {header.partition_leader_epoch}",
            logging.ERROR,
        )

    def _take(self, located: LocatedBatch, segment: Segment, epochs: LeaderEpochs, producers: ProducerStates) -> None:
        header = located.header
        epoch = header.partition_leader_epoch
        if epoch >= 0:
            self.last_epoch = epoch
            latest = epochs.latest_epoch
            if latest is None or epoch > latest:
                epochs.note(epoch, header.base_offset)
        segment.note_batch(header, located.position)
        segment.next_offset = header.next_offset
        segment.size = located.position + header.size_bytes
        if header.producer_id < 0:
            return
        if aborted := producer_replay.apply(producers, RecordBatch(header, located.buffer)):
            segment.transaction_index.append(aborted)

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
            self.note(f"cut {cut_bytes} bytes from the end of {segment.file.path.name}: {problem}")
        else:
            where = f"position {behind}" if behind is not None else later_with_records[0].file.path.name
            # A copy, since the good part stays in use under this name; later segments are only renamed.
            self._quarantine(segment.file.path, copy=True)
            for other in later_with_records:
                self._quarantine(other.file.path, copy=False)
            aside = ", ".join(path.name for path in self.report.kept_aside)
            self.note(
                f"damage in {segment.file.path.name} at position {segment.size} ({problem}), with good batches"
                f" from {where} on; the log now ends at {segment.next_offset}, what was there is kept as {aside}",
                logging.ERROR,
            )
        self.report.cut_bytes += cut_bytes + sum(other.size for other in later)
        for other in later:
            _remove(other)
        segment.file.truncate(segment.size)

    def _quarantine(self, path: PurePath, *, copy: bool) -> None:
        target = path.with_name(f"{path.name}.corrupt-{self.now_ms}")
        if copy:
            self.disk.copy(path, target)
            # The original is truncated next: until this is on the disk it is the only copy.
            sync_file(self.disk, target)
        else:
            self.disk.rename(path, target)
        self.report.kept_aside.append(target)

    def finish(
        self, segments: Sequence[Segment], epochs: LeaderEpochs, producers: ProducerStates, start_offset: int
    ) -> None:
        """Bring epochs, snapshots and producers in line with the log's two ends."""
        end_offset = segments[-1].next_offset
        changed = epochs.truncate_from_end(end_offset)
        changed |= epochs.truncate_from_start(start_offset)
        if changed or self.report.recovered_segments or not epochs.is_written:
            epochs.write()
        self._remove_stray_snapshots(segments, end_offset)
        if self.report.recovered_segments:
            producer_snapshot.write(self.disk, self.directory, end_offset, producers.producers.values(), sync=True)
            self.disk.sync_directory(self.directory)

    def _remove_stray_snapshots(self, segments: Sequence[Segment], end_offset: int) -> None:
        """Keep the snapshots at segment bases, and the highest one if it lies behind the last base."""
        bases = {segment.base_offset for segment in segments}
        offsets = producer_snapshot.offsets(self.disk, self.directory)
        self.has_snapshot_at_end = end_offset in offsets
        highest = max((offset for offset in offsets if offset <= end_offset), default=-1)
        for offset in offsets:
            if offset > end_offset or (offset not in bases and offset != highest):
                self.disk.unlink(file_names.segment_path(self.directory, offset, file_names.SNAPSHOT_SUFFIX))
