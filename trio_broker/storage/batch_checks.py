"""What must hold for a batch in a log, and where the next good batch lies behind a bad one.

Recovery, the scrubber and ``trio-broker fsck`` judge batches by these functions and by nothing else. They change
nothing. Offsets, length and leader epoch lie before the checksum, so no checksum proves them: they are compared with
what lies around the batch.

Source: Kafka's LogSegment.recover; docs/formats/record-batch.md.
"""

from __future__ import annotations

import struct

import attrs

from kafka_wire.errors import KafkaError
from kafka_wire.limits import MAX_OFFSET_DELTA
from kafka_wire.records.batch import (
    BATCH_HEADER_BYTES,
    MAGIC_POSITION,
    MIN_BATCH_LENGTH,
    BatchHeader,
    RecordBatch,
    read_batch_header,
)
from kafka_wire.records.errors import CorruptRecordBatch, InvalidRecord
from trio_broker.storage.log_file import LogFile

LOOK_AHEAD_BYTES = 1 << 20
"""Read at a time when a good batch is looked for behind a bad one."""

MAX_CANDIDATES = 1000
"""How many checksums are tried behind a bad batch. A client that fills records with batch headers could make recovery
compute for hours; beyond this it is taken for damage, which costs a copy of the segment and nothing else."""

# Base offset, length, leader epoch, magic: the beginning of a batch header.
_CANDIDATE = struct.Struct(">qiib")


@attrs.frozen
class BatchPlace:
    """What lies around a batch: nothing in it may begin before ``next_offset``, nor reach ``limit``, where the next
    segment begins (None behind the last). ``last_epoch`` is the newest leader epoch before it, -1 for none."""

    segment_base_offset: int
    next_offset: int
    limit: int | None = None
    last_epoch: int = -1


def problem_with(header: BatchHeader, buffer: memoryview, place: BatchPlace) -> str | None:
    """Return what is wrong with a whole batch at its place, None when nothing is. Its records are not decoded."""
    try:
        RecordBatch(header, buffer).verify_crc()
    except CorruptRecordBatch as error:
        return str(error)
    # What lies before the CRC is not covered by it: offsets and epoch must make sense by themselves.
    if header.base_offset < place.next_offset or header.last_offset_delta < 0:
        return f"batch at {header.base_offset} behind offset {place.next_offset}"
    if header.last_offset - place.segment_base_offset > MAX_OFFSET_DELTA:
        return f"batch at {header.base_offset} is too far from the segment's base"
    if place.limit is not None and header.last_offset >= place.limit:
        return f"batch ends at {header.last_offset}, the next segment begins at {place.limit}"
    if header.partition_leader_epoch < -1 or 0 <= header.partition_leader_epoch < place.last_epoch:
        return f"batch at {header.base_offset} has epoch {header.partition_leader_epoch} after {place.last_epoch}"
    return None


def no_gap_before(header: BatchHeader, next_offset: int, compacted_before: int) -> bool:
    """Whether the last batch of a compacted log must begin at ``next_offset``, where the one before it ends, whatever
    base offset it says.

    Compaction has come to ``compacted_before`` at the most, a recovery point: no batch reaches across it, and a gap is
    compaction's only if the batch behind it ends there or before. A batch that fits in neither way is believed.
    """
    if header.last_offset < compacted_before:
        return False
    end_offset = next_offset + header.last_offset_delta + 1
    return next_offset >= compacted_before or end_offset == compacted_before


def problem_with_records(batch: RecordBatch) -> str | None:
    """Return why the records of a batch cannot be read, or are not as many as it says; None when they are fine.

    A consumer meets this although the checksum is right: it was computed over bad records.
    """
    header = batch.header
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        return f"batch at {header.base_offset} counts {header.record_count} records in {header.last_offset_delta + 1}"
    try:
        last_offset = header.base_offset - 1
        for record in batch.records():
            if record.offset <= last_offset:
                return f"record at {record.offset} follows {last_offset}"
            last_offset = record.offset
    except KafkaError as error:
        return f"batch at {header.base_offset} cannot be read: {error}"
    return None


def is_good_batch(file: LogFile, position: int, file_size: int) -> bool:
    """Whether a whole batch with a right checksum lies at ``position``."""
    try:
        header = read_batch_header(file.read(BATCH_HEADER_BYTES, position))
        if position + header.size_bytes > file_size:
            return False
        RecordBatch(header, memoryview(file.read(header.size_bytes, position))).verify_crc()
    except (CorruptRecordBatch, InvalidRecord):
        return False
    return True


def good_batch_behind(file: LogFile, bad_position: int, file_size: int, place: BatchPlace) -> int | None:
    """Return the position of a batch behind the bad one at ``bad_position`` that could be the log's, None when there is
    none: then the bad one is a torn tail."""
    position = bad_position + 1
    candidates = 0
    while position + BATCH_HEADER_BYTES <= file_size:
        # Chunks overlap by a header, so that one that crosses their border is not missed.
        chunk = bytes(file.read(LOOK_AHEAD_BYTES + BATCH_HEADER_BYTES, position))
        at = chunk.find(b"\x02", MAGIC_POSITION)
        while at >= 0:
            start = at - MAGIC_POSITION
            # Four fields are compared before a checksum is computed: a byte 2 is frequent in any data.
            if _looks_good(chunk, start, place):
                candidates += 1
                if candidates > MAX_CANDIDATES or is_good_batch(file, position + start, file_size):
                    return position + start
            at = chunk.find(b"\x02", at + 1)
        position += LOOK_AHEAD_BYTES
    return None


def _looks_good(chunk: bytes, start: int, place: BatchPlace) -> bool:
    base_offset, length, epoch, _ = _CANDIDATE.unpack_from(chunk, start)
    end = place.segment_base_offset + MAX_OFFSET_DELTA + 1 if place.limit is None else place.limit
    in_segment: bool = place.next_offset <= base_offset < end
    return in_segment and length >= MIN_BATCH_LENGTH and (epoch < 0 or epoch >= place.last_epoch)
