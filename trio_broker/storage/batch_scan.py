"""Walking over the batches in a log file, reading no more of it than each purpose needs.

* ``spans`` reads just enough of each header to know offsets and size; readers use it between two index entries.
* ``headers`` gives whole headers and skips the records; producer state and dumps are rebuilt with it.
* ``whole_batches`` gives every byte; recovery checks checksums with it.

All stop where the file, or the given end, cuts a batch short; what is no batch at all raises ``CorruptRecordBatch``.
Sizes on disk are bounded by the given end before anything is read or allocated.

Source: docs/formats/record-batch.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import attrs

from kafka_wire.records.batch import BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader, read_batch_header
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.storage.log_file import LogFile

SCAN_BYTES = 4096
"""Read at a time when headers are near each other: one page, about the distance of two index entries."""

RECOVERY_CHUNK_BYTES = 1 << 20
"""Read at a time when every byte is wanted."""

# base offset, batch length, (epoch,) magic, (crc, attributes,) last offset delta
SPAN = struct.Struct(">qi4xb6xi")
SPAN_BYTES = SPAN.size


@attrs.define
class BatchSpan:
    """Where one batch lies, in the file and in the log."""

    position: int
    size: int
    base_offset: int
    last_offset: int

    @property
    def end(self) -> int:
        """Position behind the batch."""
        return self.position + self.size


@attrs.define
class LocatedHeader:
    """A batch header and the position of its batch."""

    position: int
    header: BatchHeader


@attrs.define
class LocatedBatch:
    """A header, its position, and all bytes of the batch; the bytes are valid until the next one is asked for."""

    position: int
    header: BatchHeader
    buffer: memoryview


def spans(file: LogFile, position: int, end: int, *, nowait: bool = False) -> Iterator[BatchSpan]:
    """Walk from the batch at ``position`` up to ``end``; a batch that crosses ``end`` is not given.

    Raises:
        CorruptRecordBatch: the bytes at a batch's place are no batch.
        BlockingIOError: ``nowait`` and a header is not in the page cache.
    """
    chunk: bytes | bytearray = b""
    chunk_start = position
    want = SCAN_BYTES
    while position + BATCH_HEADER_BYTES <= end:
        at = position - chunk_start
        if at + SPAN_BYTES > len(chunk):
            chunk = file.read(min(want, end - position), position, nowait=nowait)
            chunk_start, at = position, 0
            if len(chunk) < SPAN_BYTES:
                return
        base_offset, length, magic, last_delta = SPAN.unpack_from(chunk, at)
        size = length + LOG_OVERHEAD_BYTES
        if magic != MAGIC or size < BATCH_HEADER_BYTES or last_delta < 0:
            raise CorruptRecordBatch(f"{file.path}: no batch at position {position}")
        if position + size > end:
            return
        yield BatchSpan(position, size, base_offset, base_offset + last_delta)
        position += size
        # Behind a batch larger than a page the next header is alone on its page: more would not be looked at.
        want = SCAN_BYTES if size < SCAN_BYTES else BATCH_HEADER_BYTES


def has_header(file: LogFile, position: int, end: int) -> bool:
    """Whether what stands at ``position`` reads as the header of a batch, whole or not."""
    data = file.read(min(SPAN_BYTES, end - position), position)
    return len(data) == SPAN_BYTES and SPAN.unpack(data)[2] == MAGIC


# The three walks repeat the reading of the next chunk: a shared generator would cost each batch another resumption, and
# the walks differ in what they need of a batch and in how far they read ahead.


def headers(file: LogFile, position: int, end: int) -> Iterator[LocatedHeader]:
    """Walk over whole headers from ``position`` up to ``end``, skipping the records.

    Raises:
        CorruptRecordBatch: the bytes at a batch's place are no batch.
    """
    chunk: bytes | bytearray = b""
    chunk_start = position
    want = SCAN_BYTES
    while position + BATCH_HEADER_BYTES <= end:
        at = position - chunk_start
        if at + BATCH_HEADER_BYTES > len(chunk):
            chunk = file.read(min(want, end - position), position)
            chunk_start, at = position, 0
            if len(chunk) < BATCH_HEADER_BYTES:
                return
        header = read_batch_header(chunk, at)
        size = header.size_bytes
        if position + size > end:
            return
        yield LocatedHeader(position, header)
        position += size
        want = SCAN_BYTES if size < SCAN_BYTES else BATCH_HEADER_BYTES


def whole_batches(
    file: LogFile, position: int, end: int, *, chunk_bytes: int = RECOVERY_CHUNK_BYTES
) -> Iterator[LocatedBatch]:
    """Walk over whole batches from ``position`` up to ``end``. Checksums are the caller's to verify.

    ``chunk_bytes`` are read at a time, more where a batch is larger.

    Raises:
        CorruptRecordBatch: the bytes at a batch's place are no batch.
    """
    chunk = memoryview(b"")
    chunk_start = position
    while position + BATCH_HEADER_BYTES <= end:
        at = position - chunk_start
        if at + BATCH_HEADER_BYTES > len(chunk):
            chunk = memoryview(file.read(min(chunk_bytes, end - position), position))
            chunk_start, at = position, 0
            if len(chunk) < BATCH_HEADER_BYTES:
                return
        header = read_batch_header(chunk, at)
        size = header.size_bytes
        if position + size > end:
            return
        if at + size > len(chunk):
            chunk = memoryview(file.read(max(size, min(chunk_bytes, end - position)), position))
            chunk_start, at = position, 0
            if len(chunk) < size:
                return
        yield LocatedBatch(position, header, chunk[at : at + size])
        position += size
