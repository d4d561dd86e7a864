"""Whether the leader epochs of a log are those of its batches: a digit of their file may be another one.

An epoch begins with the first batch that has it. The batch before is of an older one.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_wire.records.batch import BatchHeader
from trio_broker.storage.leader_epochs import EpochEntry
from trio_broker.storage.log_reader import segments_from
from trio_broker.storage.segment import Segment


def problem_with(
    segments: Sequence[Segment], entries: Sequence[EpochEntry], start_offset: int, end_offset: int
) -> str | None:
    """Return which entry contradicts the batches from ``start_offset`` up to ``end_offset``, None when none does.

    Reads two headers for each entry.

    Raises:
        CorruptRecordBatch: a batch that would tell is damaged.
    """
    beginning = header_at(segments, start_offset)
    if beginning is not None and beginning.partition_leader_epoch >= 0 and beginning.base_offset < end_offset:
        first_offset = max(start_offset, beginning.base_offset)
        if not entries or first_offset < entries[0].start_offset:
            return f"leader epoch {beginning.partition_leader_epoch} begins at {first_offset}, which its file lacks"
    for index, entry in enumerate(entries):
        first = max(entry.start_offset, start_offset)
        next_start = entries[index + 1].start_offset if index + 1 < len(entries) else end_offset
        if entry.start_offset >= end_offset:
            break
        header = header_at(segments, first)
        # Compaction may have taken all batches of an epoch.
        if header is not None and header.base_offset < next_start and header.partition_leader_epoch != entry.epoch:
            return f"leader epoch {entry.epoch} at {first}, where a batch has {header.partition_leader_epoch}"
        if entry.start_offset > start_offset:
            before = header_at(segments, entry.start_offset - 1)
            is_before = before is not None and before.last_offset < entry.start_offset
            if before is not None and is_before and before.partition_leader_epoch >= entry.epoch:
                return f"leader epoch {entry.epoch} at {entry.start_offset}, which begins before"
    return None


def epochs_of(segments: Sequence[Segment], start_offset: int, end_offset: int) -> list[EpochEntry]:
    """Return the leader epochs of the batches, by their headers."""
    entries: list[EpochEntry] = []
    for segment in segments:
        for located in segment.headers():
            header = located.header
            if header.last_offset < start_offset or header.base_offset >= end_offset:
                continue
            if header.partition_leader_epoch > (entries[-1].epoch if entries else -1):
                entries.append(EpochEntry(header.partition_leader_epoch, max(header.base_offset, start_offset)))
    return entries


def header_at(segments: Sequence[Segment], offset: int) -> BatchHeader | None:
    """Return the header of the batch that holds ``offset``, or of the next one behind it; None behind the last.

    Raises:
        CorruptRecordBatch: that batch is damaged.
    """
    if not segments:
        return None
    for segment in segments_from(segments, offset):
        if segment.size and (span := segment.find(offset)) is not None:
            located = next(segment.headers(span.position), None)
            return None if located is None else located.header
    return None
