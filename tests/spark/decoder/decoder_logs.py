"""Logs for the decoder's tests, and what it makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import pyarrow as pa

from kafka_wire.records.batch import BATCH_HEADER_BYTES, BatchHeader, assemble_batch, build_batch, read_batch_header
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.record import NewRecord
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.batch_table import scan_batches
from trio_broker.spark.chunk import AbortedTransactionStart, Chunk, Decoding
from trio_broker.spark.decoder import Engine, decode
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.schema import COLUMNS, arrow_schema

PARTITION = TopicPartition("orders", 3)
NOW_MS = 1_700_000_000_000


def numbered(count: int, first: int = 0, **about_batch: Any) -> bytes:
    """Return a batch of ``count`` records at offset ``first``, whose values are their offsets."""
    records = [NewRecord(NOW_MS + offset, b"key", b"%d" % offset) for offset in range(first, first + count)]
    return build_batch(records, base_offset=first, **about_batch)


def with_header(batch: bytes, **changes: int) -> bytes:
    """Return ``batch`` with some fields of its header changed, and the CRC right."""
    header: BatchHeader = attrs.evolve(read_batch_header(batch), **changes)
    return assemble_batch(header, batch[BATCH_HEADER_BYTES:])


def with_block(batch: bytes, block: bytes) -> bytes:
    """Return ``batch`` with other bytes behind its header, and length and CRC right."""
    return assemble_batch(read_batch_header(batch), block)


def transactional(first: int, producer_id: int, count: int = 2) -> bytes:
    """Return a batch of a transaction."""
    return numbered(count, first, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)


def marker(offset: int, producer_id: int, *, committed: bool) -> bytes:
    """Return the end of a transaction."""
    control = EndTransactionMarker(committed, 0)
    return build_control_batch(control, timestamp=1, base_offset=offset, producer_id=producer_id, producer_epoch=0)


TRANSACTIONS = [
    transactional(0, 7),
    transactional(2, 8),
    numbered(1, 4, producer_id=7, producer_epoch=0, base_sequence=0),
    marker(5, 7, committed=False),
    transactional(6, 7),
    marker(8, 8, committed=True),
    marker(9, 7, committed=True),
    transactional(10, 7),
    transactional(12, 8),
]
ABORTED = (AbortedTransactionStart(7, 0), AbortedTransactionStart(8, 12))
COMMITTED = [2, 3, 4, 6, 7, 10, 11]
"""Transactions that overlap: which were aborted, and the offsets of what is left."""


def chunk(*batches: bytes, aborted: Iterable[AbortedTransactionStart] = (), origin: str = "a test") -> Chunk:
    """Return ``batches`` as a transport gives them."""
    data = memoryview(b"".join(batches))
    return Chunk(data, scan_batches(data), origin, tuple(aborted))


def batches_of(
    chunks: Iterable[Chunk],
    engine: Engine | None,
    *,
    start: int = 0,
    end: int = 2**63 - 1,
    columns: Sequence[str] = COLUMNS,
    **decoding: Any,
) -> list[pa.RecordBatch]:
    """Return the Arrow batches of ``chunks``, all of which are sound."""
    offsets = OffsetRange(PARTITION, start, end)
    batches = list(decode(chunks, offsets, Decoding(tuple(columns), **decoding), engine=engine))
    for batch in batches:
        batch.validate(full=True)
    return batches


def table_of(
    chunks: Iterable[Chunk], engine: Engine | None, *, columns: Sequence[str] = COLUMNS, **options: Any
) -> pa.Table:
    """Return the rows of ``chunks`` as one table."""
    return pa.Table.from_batches(batches_of(chunks, engine, columns=columns, **options), arrow_schema(columns))


def offsets_of(chunks: Iterable[Chunk], engine: Engine | None, **options: Any) -> list[int]:
    """Return the offsets of the rows."""
    found: list[int] = table_of(chunks, engine, columns=["offset"], **options)["offset"].to_pylist()
    return found
