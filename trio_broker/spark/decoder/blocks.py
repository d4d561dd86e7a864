"""Blocks of records: the bytes behind the headers of batches, checked and inflated, for an engine.

Engines take many blocks at once, since the cost of a call is more than that of a small batch. Uncompressed blocks are
not copied. Compressed ones are inflated (``inflation``), back to back, into memory that the next group uses again. The
engine decides how large a group is: one wants it to stay in the processor's cache, the other wants few calls.

An error of a batch is raised only after the blocks before it have been yielded, so that the rows of a damaged log
depend neither on the groups nor on the engine.

Source: docs/formats/record-batch.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import attrs
import numpy as np

from kafka_wire.limits import INT64_MAX
from kafka_wire.records.batch import ATTRIBUTES_POSITION, BATCH_HEADER_BYTES, CODEC_MASK, TIMESTAMP_TYPE_BIT
from kafka_wire.records.compression import Codec
from trio_broker.spark.batch_table import ByteArray, Int64Array
from trio_broker.spark.chunk import Decoding
from trio_broker.spark.decoder.corruption import PartitionChunk
from trio_broker.spark.decoder.inflation import Inflater, InflationBuffer

MAX_BYTES: Final = 64 * 1024 * 1024
"""The largest Arrow batch, or group, whatever ``batch_bytes`` says. More makes nothing faster; and with one more
block, or one record alone, of up to two gibibytes, it stays within the int32 that Arrow counts bytes with."""

NULL: Final = -1
"""The length of a key or value that is null."""

MAX_MILLISECONDS: Final = INT64_MAX // 1000
"""Beyond it, as before its negative, a timestamp in microseconds has more than 64 bits."""

BLOCK_COLUMNS: Final = 9
(START, END, BASE_OFFSET, LAST_OFFSET_DELTA, BASE_TIMESTAMP, APPEND_TIMESTAMP, IS_APPEND_TIME, RECORD_COUNT, CRC) = (
    range(9)
)
"""The columns of ``RecordBlocks.table``."""

NO_CRC: Final = -1
"""In the column ``CRC``: already compared, or not to be compared."""


@attrs.frozen(eq=False)
class RecordBlocks:
    """The records of some batches: block ``i`` is ``data[table[i, START]:table[i, END]]``.

    With ``IS_APPEND_TIME`` all records of a block have ``APPEND_TIMESTAMP``, else their own, relative to
    ``BASE_TIMESTAMP``. If ``CRC`` is not ``NO_CRC``, the engine compares it; the batch's header is in front of the
    block then. ``batches`` are the rows in the chunk's table.
    """

    data: ByteArray
    table: Int64Array
    batches: Int64Array

    def __len__(self) -> int:
        return len(self.table)


class Grouping(Protocol):
    """The blocks that an engine wants in one call."""

    @property
    def compares_crcs(self) -> bool:
        """Whether it compares checksums itself, of blocks that are not compressed, any number of them in one call."""
        ...

    @property
    def group_rows(self) -> int:
        """The number of records in a group, as far as batches can be divided."""
        ...

    @property
    def packed_bytes(self) -> int:
        """The number of compressed bytes in a group."""
        ...

    @property
    def inflated_bytes(self) -> int:
        """The number of inflated bytes that end a group."""
        ...

    def first_bad_crc(self, data: ByteArray, starts: Int64Array, ends: Int64Array, expected: Int64Array) -> int | None:
        """Return the index of the first piece of ``data`` whose CRC-32C is not the expected one; None if all are
        right."""
        ...


def record_blocks(
    source: PartitionChunk, chosen: Int64Array, decoding: Decoding, buffer: InflationBuffer, grouping: Grouping
) -> Iterator[RecordBlocks]:
    """Yield the blocks of the ``chosen`` batches (rows of the chunk's table) in groups; each is valid until the next.

    Raises:
        CorruptData: a checksum differs, or a block cannot be inflated within ``decoding.max_inflated_bytes``.
    """
    if not len(chosen):
        return
    table = source.chunk.table
    codecs = np.where(table.sizes[chosen] > BATCH_HEADER_BYTES, table.attributes[chosen] & CODEC_MASK, Codec.NONE)
    # Neighbours of one codec form a run, so that a log of one codec is a single run.
    cuts = np.flatnonzero(np.diff(codecs)) + 1
    for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(chosen)], strict=True):
        run = _blocks_of(source, chosen[start:end], decoding)
        if codecs[start] != Codec.NONE:
            inflater = Inflater(
                int(codecs[start]), source.chunk.data, buffer, decoding.max_inflated_bytes, grouping.inflated_bytes
            )
            yield from _inflated(source, run, inflater, grouping)
        elif grouping.compares_crcs:
            yield run
        else:
            for group in _groups(run, grouping):
                yield from _verified(source, group, grouping)


def _blocks_of(source: PartitionChunk, rows: Int64Array, decoding: Decoding) -> RecordBlocks:
    """Return the blocks of some batches without copying them, with their checksums if those are to be compared."""
    table = source.chunk.table
    blocks = np.empty((len(rows), BLOCK_COLUMNS), np.int64)
    blocks[:, START] = table.positions[rows] + BATCH_HEADER_BYTES
    blocks[:, END] = table.positions[rows] + table.sizes[rows]
    blocks[:, BASE_OFFSET] = table.base_offsets[rows]
    blocks[:, LAST_OFFSET_DELTA] = table.last_offsets[rows] - table.base_offsets[rows]
    blocks[:, BASE_TIMESTAMP] = table.base_timestamps[rows]
    blocks[:, APPEND_TIMESTAMP] = table.max_timestamps[rows]
    blocks[:, IS_APPEND_TIME] = table.attributes[rows] & TIMESTAMP_TYPE_BIT != 0
    blocks[:, RECORD_COUNT] = table.record_counts[rows]
    blocks[:, CRC] = table.crcs[rows] if decoding.verify_crc else NO_CRC
    return RecordBlocks(np.frombuffer(source.chunk.data, np.uint8), blocks, rows)


def _part(blocks: RecordBlocks, start: int, end: int) -> RecordBlocks:
    return RecordBlocks(blocks.data, blocks.table[start:end], blocks.batches[start:end])


def _groups(blocks: RecordBlocks, grouping: Grouping) -> Iterator[RecordBlocks]:
    """Cut ``blocks`` into groups of the wanted size; each has at least one."""
    records = np.cumsum(blocks.table[:, RECORD_COUNT])
    size = np.cumsum(blocks.table[:, END] - blocks.table[:, START])
    start = 0
    while start < len(blocks):
        records_before, size_before = (int(records[start - 1]), int(size[start - 1])) if start else (0, 0)
        by_records = int(np.searchsorted(records, records_before + grouping.group_rows, "right"))
        by_size = int(np.searchsorted(size, size_before + grouping.packed_bytes, "right"))
        end = max(start + 1, min(by_records, by_size))
        yield _part(blocks, start, end)
        start = end


def _verified(source: PartitionChunk, blocks: RecordBlocks, grouping: Grouping) -> Iterator[RecordBlocks]:
    """Yield ``blocks`` if their checksums are right, else those before the first wrong one, and raise for that one."""
    table = blocks.table
    bad = None
    if table[0, CRC] != NO_CRC:
        starts = table[:, START] - (BATCH_HEADER_BYTES - ATTRIBUTES_POSITION)
        bad = grouping.first_bad_crc(blocks.data, starts, table[:, END].copy(), table[:, CRC].copy())
    table[:, CRC] = NO_CRC
    if bad is None:
        yield blocks
        return
    if bad:
        yield _part(blocks, 0, bad)
    raise source.corrupt_crc(int(blocks.batches[bad]))


def _inflated(
    source: PartitionChunk, blocks: RecordBlocks, inflater: Inflater, grouping: Grouping
) -> Iterator[RecordBlocks]:
    """Inflate compressed blocks group by group."""
    for packed_group in _groups(blocks, grouping):
        for group in _verified(source, packed_group, grouping):
            packed = list(zip(group.table[:, START].tolist(), group.table[:, END].tolist(), strict=True))
            done = 0
            while done < len(packed):
                spans, error = inflater.inflate(packed[done:])
                if spans:
                    table = group.table[done : done + len(spans)]
                    table[:, START], table[:, END] = zip(*spans, strict=True)
                    yield RecordBlocks(inflater.buffer.data, table, group.batches[done : done + len(spans)])
                done += len(spans)
                if error is not None:
                    raise source.corrupt(int(group.batches[done]), error)
