"""Record batches of the most elements for their bytes, each right as far as the event loop looks at it.

Elements of a batch are its records, the headers of a record, and the blocks of the codec's own format, which may be
empty. What is behind the blocks need not be records: that is found where they are inflated.

Source: DefaultRecord for records; snappy-java's framing; the frame formats of lz4 and zstd (RFC 8878).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import attrs

from kafka_wire.records.batch import ATTRIBUTES_POSITION, BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES, build_batch
from kafka_wire.records.compression import LZ4_WRITTEN_HEADER, XERIAL_HEADER, ZSTD_MAGIC, Codec, compress
from kafka_wire.records.crc import crc32c
from kafka_wire.records.record import MIN_HEADER_BYTES, MIN_RECORD_BYTES, Header, NewRecord

TIMESTAMP_MS: Final = 1_700_000_000_000

LEAST_HEADER: Final[Header] = ("", b"")
"""Of two bytes."""

MAX_WALKED_RECORDS: Final = 16
"""With more a plain batch is not walked over."""

SNAPPY_EMPTY_BLOCK: Final = b"\0\0\0\1\0"
LZ4_SMALLEST_BLOCK: Final = b"\1\0\0\0\0"
ZSTD_EMPTY_BLOCK: Final = b"\0\0\0"
ZSTD_LAST_BLOCK: Final = b"\1\0\0"


@attrs.frozen
class DenseBatch:
    """A batch that repeats one construct; ``construct`` says which, ``elements`` how many of it there are."""

    construct: str
    data: bytes
    elements: int


def dense_batches(max_bytes: int) -> Iterator[DenseBatch]:
    """Yield a batch of about ``max_bytes`` for each construct in it, of which the batch has as many as fit."""
    records = max_bytes // MIN_RECORD_BYTES
    yield DenseBatch("records", build_batch([NewRecord(TIMESTAMP_MS)] * records), records)
    per_record = max_bytes // MIN_HEADER_BYTES // MAX_WALKED_RECORDS
    with_headers = [NewRecord(TIMESTAMP_MS, headers=[LEAST_HEADER] * per_record)] * MAX_WALKED_RECORDS
    yield DenseBatch("headers", build_batch(with_headers), MAX_WALKED_RECORDS * per_record)
    for name, codec, head, block, tail in (
        ("snappy blocks", Codec.SNAPPY, XERIAL_HEADER, SNAPPY_EMPTY_BLOCK, b""),
        ("snappy streams", Codec.SNAPPY, b"", XERIAL_HEADER, b""),
        ("lz4 blocks", Codec.LZ4, LZ4_WRITTEN_HEADER, LZ4_SMALLEST_BLOCK, bytes(4)),
        ("zstd blocks", Codec.ZSTD, struct.pack("<IBB", ZSTD_MAGIC, 0, 0), ZSTD_EMPTY_BLOCK, ZSTD_LAST_BLOCK),
        ("gzip members", Codec.GZIP, b"", compress(Codec.GZIP, b""), b""),
    ):
        blocks = max_bytes // len(block)
        yield DenseBatch(name, batch_of_block(codec, head + block * blocks + tail), blocks)


def batch_of_block(codec: Codec, block: bytes) -> bytes:
    """Return a batch that says it has one record in ``block``, with a right checksum."""
    batch = bytearray(build_batch([NewRecord(TIMESTAMP_MS)]))
    batch[BATCH_HEADER_BYTES:] = block
    struct.pack_into(">i", batch, 8, len(batch) - LOG_OVERHEAD_BYTES)
    struct.pack_into(">h", batch, ATTRIBUTES_POSITION, codec)
    struct.pack_into(">I", batch, ATTRIBUTES_POSITION - 4, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
    return bytes(batch)
