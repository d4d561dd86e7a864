"""Opening a log: after a clean stop in a few reads, after a crash by checking what was not known to be durable.

After a crash every segment from the recovery point on is read whole (``segment_recovery``). Each file is judged by what
the others prove, and what they contradict is damage: it is logged at level ERROR, kept, and not believed. What counts
as a proof is what no kill and no power cut makes wrong (docs/decisions/0049):

* Records below the recovery point in its checkpoint have been on the disk: it is lowered there before a log is cut.
* The log starts no later than the leader epochs in their file do, which is written before the checkpoint of the start.
* A leader epoch is in its file before a batch has it, and in the metadata before that.
* After a clean stop the log ends at its recovery point.

A log that ends before its start begins anew there, as in Kafka, and its segments are put aside.

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

from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.disk import Disk
from trio_broker.storage import (
    checkpoints,
    file_names,
    interrupted_swaps,
    partition_metadata,
    producer_replay,
    producer_snapshot,
    transaction_checks,
)
from trio_broker.storage.durable_log import LoadedLog
from trio_broker.storage.epoch_checks import EpochRange
from trio_broker.storage.errors import CorruptCheckpoint, CorruptIndex
from trio_broker.storage.leader_epochs import LeaderEpochs
from trio_broker.storage.log import Log
from trio_broker.storage.producer_state import ProducerStates
from trio_broker.storage.recovery_report import RecoveryReport
from trio_broker.storage.segment import Segment
from trio_broker.storage.segment_recovery import ProvenFacts, SegmentRecovery, put_aside, remove


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
    compacted_before: int | None = None,
    gaps_end: int | None = None,
    note_recovered: Callable[[int], None] | None = None,
) -> OpenedLog:
    """Open the log in ``directory``, creating it when it is not there.

    ``recovery_point`` is the checkpointed offset below which everything is known to be on the disk,
    ``log_start_offset`` the checkpointed start, None where the checkpoint is lost, ``high_watermark`` the checkpointed
    one, None where there is none; ``clean`` says whether the data directory had a clean-shutdown marker. ``topic_id``
    None takes the one in the directory. ``leader_epoch`` is the metadata's for the partition, beyond which no epoch in
    the log can be; None where nothing says so. With ``start_is_certain`` the start is not from a checkpoint.
    ``compacted_before`` is how far compaction has come at the most, None for ``recovery_point``. ``gaps_end`` is where
    the last gap may end that compaction has left, None where that is unknown. ``note_recovered`` gets the size of each
    segment that was read whole.

    Raises:
        OSError: the disk refused.
        CorruptCheckpoint: no topic id is to be had.
    """
    if not disk.is_directory(directory.parent):
        # Made anew it would be empty, and on another disk where one is no longer mounted.
        raise FileNotFoundError(errno.ENOENT, "no such directory", str(directory.parent))
    disk.make_directory(directory)
    opening = _Opening(disk, directory, topic_partition, config, clean, now_ms, leader_epoch)
    opening.note_recovered = note_recovered
    opening.compacted_before = recovery_point if compacted_before is None else compacted_before
    opening.gaps_end = gaps_end
    # Before the listing: a swap under way may still give segments other names.
    opening.orphans = interrupted_swaps.finish(disk, directory)
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
        log_start_offset = opening.log_start_offset
    else:
        log_start_offset = opening.begin_without_segments(recovery_point, high_watermark, epochs)
        segments = [Segment.create(disk, directory, log_start_offset, config, now_ms)]
        producers = producer_replay.load_producer_states(disk, directory, segments, log_start_offset, log_start_offset)
    if segments[-1].next_offset < log_start_offset:
        opening.put_aside_before_start(segments)
        segments = [Segment.create(disk, directory, log_start_offset, config, now_ms)]
        producers = ProducerStates()
        producers.end_offset = log_start_offset
    start_offset = max(log_start_offset, segments[0].base_offset)
    opening.finish(segments, epochs, producers, start_offset)
    loaded = LoadedLog(
        disk=disk,
        directory=directory,
        topic_partition=topic_partition,
        topic_id=topic_id,
        config=config,
        segments=segments,
        log_start_offset=start_offset,
        recovery_point=segments[-1].next_offset if opening.is_durable else max(recovery_point, start_offset),
        epochs=epochs,
        producers=producers,
        unsynced_segments=opening.recovered_segments,
        # What was preallocated has to be cut.
        is_settled=(is_new and not config.preallocate) or (opening.is_durable and opening.has_snapshot_at_end),
    )
    return OpenedLog(Log(loaded), opening.report)


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
        self.note_recovered: Callable[[int], None] | None = None
        self.report = RecoveryReport(topic_partition, clean)
        # Set when the epoch checkpoint is unusable: then the recovery point saves no reading.
        self.everything = False
        self.recovery_point = 0
        self.compacted_before = 0
        self.gaps_end: int | None = None
        # The log has reached so far: two files of it say so.
        self.proven_end = 0
        # Segments before it are deleted, or on their way out, perhaps in another order than from the oldest on.
        self.retained_from = 0
        # Base offsets of segments of which there were only indexes.
        self.orphans: set[int] = set()
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

    def load_epochs(self) -> LeaderEpochs:
        try:
            epochs = LeaderEpochs.load(self.disk, self.directory)
            if self._is_impossible(epochs.latest_epoch):
                raise CorruptCheckpoint(
                    f"{self.directory}: epoch {epochs.latest_epoch}, the metadata has {self.leader_epoch}"
                )
            return epochs
        except CorruptCheckpoint as error:
            self._keep_damaged(self.directory / file_names.LEADER_EPOCH_CHECKPOINT)
            self.report.note(f"{error}; every segment is read to make it anew", logging.ERROR)
            self.clean = False
            self.everything = True
            return LeaderEpochs(self.disk, self.directory)

    def _keep_damaged(self, path: PurePath) -> None:
        if self.disk.exists(path):
            self.report.kept_aside.append(checkpoints.keep_damaged(self.disk, path))

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
            self._keep_damaged(self.directory.parent / file_names.LOG_START_OFFSET_CHECKPOINT)
            self.report.note(
                f"the log start {start} in {file_names.LOG_START_OFFSET_CHECKPOINT} is not believed: by the leader"
                f" epochs it is {by_epochs}",
                logging.ERROR,
            )
            start = by_epochs
        self.log_start_offset = self.retained_from = start
        return start

    def begin_without_segments(self, recovery_point: int, high_watermark: int | None, epochs: LeaderEpochs) -> int:
        """Return where a log begins that has no segment: at its start, or behind all that it is said to have had.

        One file is enough to say so: what says too much leaves offsets out, and there are no records to miss.
        """
        start = self.log_start_offset
        checkpointed = max(recovery_point, high_watermark or 0)
        if not checkpointed and not epochs.entries:
            return start
        end = max(start, recovery_point, *self._witnesses(high_watermark, epochs))
        if end > start:
            # A power cut may leave epochs alone, before there was a record.
            level = logging.ERROR if checkpointed else logging.WARNING
            self.report.note(
                f"no file of its records is there: those up to {end} are lost, the log goes on at {end}", level
            )
        return end

    def judge_log_end(
        self, recovery_point: int, high_watermark: int | None, segments: Sequence[Segment], epochs: LeaderEpochs
    ) -> None:
        """Settle what the log has reached for certain: the recovery point, as far as another file says so as well."""
        self.recovery_point = recovery_point
        self.proven_end = min(recovery_point, max(segments[-1].base_offset, *self._witnesses(high_watermark, epochs)))

    def _witnesses(self, high_watermark: int | None, epochs: LeaderEpochs) -> list[int]:
        """Up to where the log has reached at least, by each file that says so beside the recovery point."""
        snapshots = producer_snapshot.offsets(self.disk, self.directory)
        return [high_watermark or 0, *(each.start_offset for each in epochs.entries[-1:]), *snapshots[-1:]]

    def _is_impossible(self, epoch: int | None) -> bool:
        return epoch is not None and self.leader_epoch is not None and epoch > self.leader_epoch

    def put_aside_before_start(self, segments: Sequence[Segment]) -> None:
        """Empty the directory of a log that ends before its checkpointed start, and keep what has records."""
        end_offset = segments[-1].next_offset
        for segment in segments:
            segment.evict()
            if segment.size:
                put_aside(self.disk, segment.file.path, self.report, self.now_ms)
            remove(segment)
        aside = ", ".join(path.name for path in self.report.kept_aside) or "nothing"
        self.report.note(
            f"the log ends at {end_offset}, before its start at {self.log_start_offset} in"
            f" {file_names.LOG_START_OFFSET_CHECKPOINT}: begun anew there, what was there is kept as {aside}",
            logging.ERROR,
        )

    def recover(self, segments: list[Segment], epochs: LeaderEpochs, recovery_point: int) -> ProducerStates:
        """Check what needs checking; drop from ``segments`` what cannot stay. Returns the producers at the log end."""
        if epochs.entries:
            # Written before the files of a deletion are renamed.
            self.retained_from = max(self.retained_from, epochs.entries[0].start_offset)
        self._note_lost_segments(segments)
        believed = len(segments) if self.clean else _first_to_recover(segments, recovery_point)
        for segment in segments[:believed]:
            try:
                transaction_checks.check(segment, segments)
            except CorruptIndex as error:
                self.report.note(f"{error}; read anew from its segment on")
                recovery_point, self.clean = min(recovery_point, segment.base_offset), False
                break
        if self.clean:
            problem = self._problem_with_end(segments[-1])
            if problem is None:
                self._check_epochs(segments, epochs, segments[-1].next_offset)
                return self._load_producers(segments, segments[-1].next_offset)
            self.report.note(f"{problem} in spite of a clean stop")
            segments[-1].next_offset = segments[-1].base_offset
            recovery_point = min(recovery_point, segments[-1].base_offset)
        recovery_point = 0 if self.everything else recovery_point
        first = _first_to_recover(segments, recovery_point)
        self._check_epochs(segments[:first], epochs, segments[first].base_offset)
        facts = ProvenFacts(
            recovery_point=self.recovery_point,
            proven_end=self.proven_end,
            retained_from=self.retained_from,
            leader_epoch=self.leader_epoch,
            epochs=LeaderEpochs(self.disk, self.directory, epochs.entries),
            may_have_gaps=self.config.cleanup_policy.compact,
            compacted_before=self.compacted_before,
            gaps_end=self.gaps_end,
        )
        # Noted again as their batches are read.
        epochs.truncate_from_end(segments[first].base_offset)
        epoch_before = epochs.epoch_for_offset(segments[first].base_offset - 1)
        last_epoch = -1 if epoch_before is None else epoch_before
        producers = self._load_producers(segments[:first], segments[first].base_offset)
        reading = SegmentRecovery(
            self.disk, facts, self.report, epochs, producers, last_epoch=last_epoch, now_ms=self.now_ms
        )
        for index in range(first, len(segments)):
            self.report.recovered_segments += 1
            self.recovered_segments.append(segments[index])
            size_bytes = segments[index].size
            is_whole = reading.recover(segments, index)
            if self.note_recovered is not None:
                self.note_recovered(size_bytes)
            if not is_whole:
                del segments[index + 1 :]
                break
        self._reach_proven_end(segments, producers)
        # The file of leader epochs, which says that the hole is a deletion's, is made anew from where the log begins.
        self.log_start_offset = max(self.log_start_offset, reading.deleted_before)
        return producers

    def _check_epochs(self, segments: Sequence[Segment], epochs: LeaderEpochs, end_offset: int) -> None:
        """Compare where leader epochs begin with the batches there; where that is wrong, make them anew from those."""
        batches = EpochRange(segments, self.log_start_offset, end_offset, self.leader_epoch)
        try:
            problem = batches.problem_with(epochs.entries)
        except CorruptRecordBatch:
            # What damages the log proves nothing against its epochs.
            return
        if problem is not None:
            # The file follows the log start before the checkpoint does, and a power cut may come in between.
            is_ahead = epochs.entries and epochs.entries[0].start_offset > self.log_start_offset
            if not is_ahead:
                self._keep_damaged(self.directory / file_names.LEADER_EPOCH_CHECKPOINT)
            level = logging.WARNING if is_ahead else logging.ERROR
            self.report.note(f"{problem}: the leader epochs are made anew from the log", level)
            found = batches.entries()
            latest = found[-1].epoch if found else -1
            later = [each for each in epochs.entries if each.start_offset >= end_offset and each.epoch > latest]
            epochs.replace([*found, *later])

    def _problem_with_end(self, segment: Segment) -> str | None:
        """Find out where the log ends after a clean stop, which left the recovery point there."""
        if not segment.load_tail(self.recovery_point or None):
            return "does not end with a whole batch"
        if self.recovery_point not in (0, segment.next_offset):
            return f"ends at {segment.next_offset}, with the recovery point at {self.recovery_point},"
        return None

    def _reach_proven_end(self, segments: list[Segment], producers: ProducerStates) -> None:
        """Let no offset be given twice: where records at the end are lost, the log goes on behind them."""
        end_offset, last = self.proven_end, segments[-1]
        if last.next_offset >= end_offset:
            return
        self.report.note(
            f"records from {last.next_offset} up to {end_offset} are lost: the log goes on at {end_offset}",
            logging.ERROR,
        )
        last.next_offset = producers.end_offset = end_offset
        segments.append(Segment.create(self.disk, self.directory, end_offset, self.config, self.now_ms))
        self.recovered_segments.append(segments[-1])

    def _note_lost_segments(self, segments: Sequence[Segment]) -> None:
        """Tell of segments that were durable and of which only the indexes are left, or an empty file: a hole.

        Only compaction leaves such ones; and a deletion, before the log start.
        """
        empty = {segment.base_offset for segment in segments[:-1] if not segment.size}
        durable_end = segments[-1].base_offset if self.clean else min(self.recovery_point, segments[-1].base_offset)
        for offset in sorted(self.orphans | empty):
            if self.retained_from <= offset < durable_end and not self.config.cleanup_policy.compact:
                self.report.note(f"the file with the records from {offset} on is lost", logging.ERROR)

    def _load_producers(self, segments: Sequence[Segment], end_offset: int) -> ProducerStates:
        expiration = producer_replay.Expiration(self.now_ms, self.config.producer_id_expiration_ms)
        return producer_replay.load_producer_states(
            self.disk, self.directory, segments, end_offset, self.log_start_offset, expiration
        )

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
        """Keep the snapshots at segment bases, and the highest one if it lies behind the last base.

        Of segments that were read whole only the first keeps its own: another may know batches that a power cut took,
        for in a compacted log nothing tells such a hole from what compaction leaves.
        """
        kept = {segment.base_offset for segment in segments}
        offsets = producer_snapshot.offsets(self.disk, self.directory)
        self.has_snapshot_at_end = end_offset in offsets
        if self.recovered_segments:
            kept = {offset for offset in kept if offset <= self.recovered_segments[0].base_offset}
        else:
            kept.add(max((offset for offset in offsets if offset <= end_offset), default=-1))
        for offset in offsets:
            if offset not in kept:
                self.disk.unlink(file_names.segment_path(self.directory, offset, file_names.SNAPSHOT_SUFFIX))
