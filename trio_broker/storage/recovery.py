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
from collections.abc import Callable, Sequence
from pathlib import PurePath

import attrs

from kafka_wire.records.batch import BATCH_HEADER_BYTES, BatchHeader, RecordBatch
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.disk import Disk, sync_file
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
from trio_broker.storage.batch_scan import LocatedBatch
from trio_broker.storage.errors import CorruptCheckpoint, CorruptIndex
from trio_broker.storage.leader_epochs import LeaderEpochs
from trio_broker.storage.log import Log
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
    log_start_offset: int,
    clean: bool,
    now_ms: int,
    leader_epoch: int | None = None,
    note_recovered: Callable[[int], None] | None = None,
) -> OpenedLog:
    """Open the log in ``directory``, creating it when it is not there.

    ``recovery_point`` is the checkpointed offset below which everything is known to be on the disk, ``clean`` whether
    the data directory had a clean-shutdown marker. ``topic_id`` None takes the one in the directory. ``leader_epoch``
    is the metadata's for the partition, beyond which no epoch in the log can be; None where nothing says so.
    ``note_recovered`` gets the size of each segment that was read whole.

    Raises:
        OSError: the disk refused.
        CorruptCheckpoint: no topic id is to be had.
    """
    if not disk.is_directory(directory.parent):
        # Made anew it would be empty, and on another disk where one is no longer mounted.
        raise FileNotFoundError(errno.ENOENT, "no such directory", str(directory.parent))
    disk.make_directory(directory)
    opening = _Opening(disk, directory, topic_partition, config, log_start_offset, clean, now_ms, leader_epoch)
    opening.note_recovered = note_recovered
    # Before the listing: a swap under way may still give segments other names.
    interrupted_swaps.finish(disk, directory)
    topic_id = _resolve_topic_id(disk, directory, topic_id)
    segments = _list_segments(disk, directory, config, now_ms)
    epochs = opening.load_epochs()
    is_new = not segments or (recovery_point == log_start_offset == 0 and opening.is_unused(segments, epochs))
    if segments and is_new:
        segments[0].clear_indexes()
        if not clean:
            # Over whatever a crash left of its indexes.
            segments[0].seal()
        producers = ProducerStates()
    elif segments:
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
        log_start_offset: int,
        clean: bool,
        now_ms: int,
        leader_epoch: int | None,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.log_start_offset = log_start_offset
        self.clean = clean
        self.now_ms = now_ms
        self.leader_epoch = leader_epoch
        self.note_recovered: Callable[[int], None] | None = None
        self.report = RecoveryReport(topic_partition, clean)
        # The newest epoch read so far; a batch of an older one behind it is damage.
        self.last_epoch = -1
        # Set when the epoch checkpoint is unusable: then the recovery point saves no reading.
        self.everything = False
        self.recovery_point = 0
        # Segments before it are deleted, or on their way out, perhaps in another order than from the oldest on.
        self.retained_from = log_start_offset
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
        for segment in segments:
            try:
                _ = segment.transaction_index.transactions
            except CorruptIndex as error:
                self.note(f"{error}; read anew from its segment on")
                recovery_point, self.clean = min(recovery_point, segment.base_offset), False
                break
        if self.clean and segments[-1].load_tail():
            end_offset = segments[-1].next_offset
            return self._load_producers(segments, end_offset)
        if self.clean:
            self.note("does not end with a whole batch in spite of a clean stop")
            recovery_point = min(recovery_point, segments[-1].base_offset)
        recovery_point = self.recovery_point = 0 if self.everything else recovery_point
        if epochs.entries:
            # Written before the files of a deletion are renamed.
            self.retained_from = max(self.retained_from, epochs.entries[0].start_offset)
        # The segment that ends at the recovery point or holds it is read whole: indexes can only be made anew from its
        # beginning. One that ends there may have been sealed since, and its indexes are synced only after that.
        first = max((i for i, segment in enumerate(segments) if segment.base_offset < recovery_point), default=0)
        epoch_before = epochs.epoch_for_offset(segments[first].base_offset - 1)
        self.last_epoch = -1 if epoch_before is None else epoch_before
        producers = self._load_producers(segments[:first], segments[first].base_offset)
        for index in range(first, len(segments)):
            self.report.recovered_segments += 1
            self.recovered_segments.append(segments[index])
            size_bytes = segments[index].size
            is_whole = self._recover_segment(segments, index, epochs, producers)
            if self.note_recovered is not None:
                self.note_recovered(size_bytes)
            if not is_whole:
                del segments[index + 1 :]
                break
        return producers

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
        problem = self._read_good_batches(segment, file_size, limit, epochs, producers)
        producers.end_offset = segment.next_offset
        is_whole = segment.size == file_size
        if is_whole and limit is not None and self._has_lost_batches(segment, limit):
            is_whole, problem = False, f"no batch up to {limit}, where the next segment begins"
        if not is_whole:
            self._cut(segment, file_size, segments[index + 1 :], problem)
        elif limit is not None:
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
    ) -> str:
        """Index batches up to the first bad one, which ends ``segment.size``. Returns what is wrong with that one."""
        segment.size = 0
        try:
            for located in batch_scan.whole_batches(segment.file, 0, file_size):
                has_wrong_epoch = self._is_impossible(located.header.partition_leader_epoch)
                # Corrected in memory for the checks; written to the file only once the batch has passed them.
                if has_wrong_epoch:
                    located.header.partition_leader_epoch = self._epoch_in_force(located.header, epochs)
                problem = self._problem_with(located, segment, limit)
                if problem:
                    return problem
                if has_wrong_epoch:
                    self._restamp_epoch(segment, located)
                self._take(located, segment, epochs, producers)
        except CorruptRecordBatch as error:
            return str(error)
        return "the last batch is cut short"

    def _problem_with(self, located: LocatedBatch, segment: Segment, limit: int | None) -> str | None:
        return batch_checks.problem_with(located.header, located.buffer, self._place(segment, limit))

    def _place(self, segment: Segment, limit: int | None = None) -> BatchPlace:
        return BatchPlace(segment.base_offset, segment.next_offset, limit, self.last_epoch)

    def _epoch_in_force(self, header: BatchHeader, epochs: LeaderEpochs) -> int:
        """Return the epoch that a batch at this offset must be of, as far as the others tell; -1 if they do not."""
        known = epochs.epoch_for_offset(header.base_offset)
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
            f"the batch at {header.base_offset} had a leader epoch beyond {self.leader_epoch}, which the metadata has:"
            f" put right as {header.partition_leader_epoch}",
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
        if changed or self.report.recovered_segments:
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
