"""Rows to record batches: the rows of each partition are gathered until a batch is full.

The finished bytes of the records are gathered, made as the rows come, since Arrow's buffers are gone with the next
rows. Where a batch ends is decided here, from the sizes of the rows alone. One of two engines writes the bytes, numba's
(``jit_encoder``) or, until that is loaded and where it does not run, plain Python's; both write those of
``kafka_wire.records.batch.build_batch``.

Source: docs/formats/record-batch.md.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Final, Protocol

import attrs
import numpy as np

from kafka_wire.primitives import ReadableBuffer
from kafka_wire.records.batch import BATCH_HEADER_BYTES
from kafka_wire.records.compression import Codec, compress
from kafka_wire.records.record import MAX_RECORDS_PER_BATCH, append_record
from trio_broker.client.producer.producer_batch import MOST_RECORDS, UnsequencedBatch
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.background_load import BackgroundLoad
from trio_broker.spark.producer.partitioner import hash_keys
from trio_broker.spark.producer.row_columns import ROW_ID_KEY, BytesColumn, Int64Array, RowColumns
from trio_broker.spark.producer.row_ids import HEADER, ROW_ID_BYTES, RowId, TaskId

log = logging.getLogger(__name__)

MAX_LENGTH_BYTES: Final = 5
"""The most that the length of a record takes."""

MAX_DELTA_BYTES: Final = 3
"""The most that the offset of a record takes: a batch has fewer than 2**20 records."""

assert MAX_RECORDS_PER_BATCH < 1 << 20

LENGTH_AND_OFFSET_BYTES: Final = MAX_LENGTH_BYTES + MAX_DELTA_BYTES


@attrs.frozen
class RowIds:
    """Row ids for the records of one task."""

    task_id: TaskId

    @cached_property
    def header_start(self) -> bytes:
        """The header of a record up to the number of the row."""
        key = bytes((2 * len(ROW_ID_KEY),)) + ROW_ID_KEY
        return key + bytes((2 * ROW_ID_BYTES,)) + self.task_id.prefix


@attrs.frozen
class BatchPart:
    """Rows for one batch, whose records have offsets in the batch from ``first_delta`` on.

    The records take at most ``max_bytes``. With ``row_ids`` each has a header that numbers it, from ``first_row`` on
    with the row 0 of ``columns``.
    """

    columns: RowColumns
    rows: Int64Array
    first_delta: int
    base_timestamp: int
    max_bytes: int
    row_ids: RowIds | None
    first_row: int


class RecordEngine(Protocol):
    """Encodes records; the partitioner needs ``hash_keys``."""

    def hash_keys(self, keys: BytesColumn, rows: Int64Array) -> Int64Array:
        """Return the hash of the key of each of ``rows``, none of which is null."""
        ...

    def records(self, part: BatchPart) -> ReadableBuffer:
        """Return the records of a part of a batch."""
        ...


class PlainEngine:
    """Record by record in Python, by the code that encodes all other records of this project."""

    def hash_keys(self, keys: BytesColumn, rows: Int64Array) -> Int64Array:
        return hash_keys(keys, rows)

    def records(self, part: BatchPart) -> ReadableBuffer:
        out, columns = bytearray(), part.columns
        key, value, timestamps = columns.key, columns.value, columns.timestamps
        for delta, row in enumerate(part.rows.tolist(), part.first_delta):
            headers = _headers(columns, row)
            if part.row_ids is not None:
                headers.append((HEADER, RowId(part.row_ids.task_id, part.first_row + row).to_bytes()))
            append_record(out, int(timestamps[row]) - part.base_timestamp, delta, key[row], value[row], headers)
        return bytes(out)


def _headers(columns: RowColumns, row: int) -> list[tuple[str, bytes | None]]:
    headers = columns.headers
    if headers is None:
        return []
    start = int(headers.starts[row])
    places = range(start, start + int(headers.counts[row]))
    return [((headers.keys[place] or b"").decode(), headers.values[place]) for place in places]


_NOTHING: Final = np.empty(0, np.int64)
_NO_BYTES: Final = BytesColumn(memoryview(b""), 0, _NOTHING, _NOTHING)


class NumbaEngine:
    """All records in one call of machine code.

    Raises:
        ImportError: there is no numba.
    """

    def __init__(self) -> None:
        from trio_broker.spark.producer import jit_encoder

        self._write_records = jit_encoder.write_records
        self._hash_rows = jit_encoder.hash_rows

    def hash_keys(self, keys: BytesColumn, rows: Int64Array) -> Int64Array:
        """Return the hash of the key of each of ``rows``, none of which is null."""
        hashes = np.empty(len(rows), np.int64)
        self._hash_rows(keys.address, keys.starts, keys.lengths, rows, hashes)
        return hashes

    def records(self, part: BatchPart) -> ReadableBuffer:
        out, columns, row_ids = np.empty(part.max_bytes, np.uint8), part.columns, part.row_ids
        header = np.frombuffer(row_ids.header_start if row_ids else b"\0", np.uint8)
        headers = columns.headers
        keys, values = (headers.keys, headers.values) if headers else (_NO_BYTES, _NO_BYTES)
        size = self._write_records(
            *(out.ctypes.data, part.rows, part.first_delta, part.base_timestamp),
            *(columns.timestamps, columns.record_bytes),
            *(*_addressed(columns.key), *_addressed(columns.value)),
            *((headers.starts, headers.counts) if headers else (_NOTHING, _NOTHING)),
            *(*_addressed(keys), *_addressed(values)),
            *(header.ctypes.data, len(header) if row_ids else 0, part.first_row),
        )
        assert size <= part.max_bytes, f"{size} bytes were written to {part.max_bytes}"
        return out.data[:size]


def _addressed(column: BytesColumn) -> tuple[int, Int64Array, Int64Array]:
    return column.address, column.starts, column.lengths


def best_engine() -> RecordEngine:
    """Return numba's engine where numba is installed and works, else the plain one."""
    try:
        return NumbaEngine()
    except ImportError:
        return PlainEngine()
    except Exception as error:  # an unsuitable Python, numpy or processor raises many kinds of errors
        log.warning("numba is there but cannot be used, so records are written several times more slowly: %r", error)
        return PlainEngine()


MIN_ROWS: Final = 20_000
"""So many rows a worker encodes before it loads numba's engine. For them that engine takes 0.1 s of CPU less, and 0.4 s
to load where it is compiled already."""

_loaded_engine: Final = BackgroundLoad(best_engine, min_rows=MIN_ROWS)
_plain_engine: Final = PlainEngine()


class ReadyEngine:
    """With each call the best of the engines that a task need not wait for."""

    def hash_keys(self, keys: BytesColumn, rows: Int64Array) -> Int64Array:
        """Return the hash of the key of each of ``rows``, none of which is null."""
        return self._engine(0).hash_keys(keys, rows)

    def records(self, part: BatchPart) -> ReadableBuffer:
        return self._engine(len(part.rows)).records(part)

    def _engine(self, row_count: int) -> RecordEngine:
        return _loaded_engine.get(row_count) or _plain_engine


# --- Batches ---


@attrs.define
class _OpenBatch:
    base_timestamp: int
    max_timestamp: int
    record_count: int = 0
    size_bytes: int = BATCH_HEADER_BYTES
    pieces: list[ReadableBuffer] = attrs.Factory(list)


@attrs.define(eq=False)
class RecordAccumulator:
    """Open batches by partition. ``open_bytes`` is the size of all of them."""

    engine: RecordEngine
    batch_size: int
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    row_ids: RowIds | None = None
    open_bytes: int = 0
    _open: dict[TopicPartition, _OpenBatch] = attrs.field(factory=dict)

    def add(
        self, partition: TopicPartition, columns: RowColumns, rows: Int64Array, first_row: int
    ) -> list[UnsequencedBatch]:
        """Gather ``rows`` in their order, and return the batches that they have filled."""
        full: list[UnsequencedBatch] = []
        while len(rows):
            batch = self._open.get(partition)
            if batch is None:
                timestamp = int(columns.timestamps[rows[0]])
                batch = self._open[partition] = _OpenBatch(timestamp, timestamp)
            sizes = columns.record_bytes[rows] + (LENGTH_AND_OFFSET_BYTES + _timestamp_bytes(columns, batch))
            count = self._room(batch, sizes)
            if not count:
                full.append(self._close(partition))
                continue
            self._append(batch, columns, rows[:count], int(sizes[:count].sum()), first_row)
            rows = rows[count:]
        return full

    def _room(self, batch: _OpenBatch, sizes: Int64Array) -> int:
        """Return how many rows of these ``sizes`` fit; at least one in an empty batch."""
        room_bytes = self.batch_size - batch.size_bytes
        fitting = len(sizes)
        if int(sizes.sum()) > room_bytes:
            fitting = int(np.searchsorted(np.cumsum(sizes), room_bytes, side="right"))
        fitting = min(fitting, MOST_RECORDS - batch.record_count)
        return fitting if batch.record_count else max(1, fitting)

    def _append(self, batch: _OpenBatch, columns: RowColumns, rows: Int64Array, max_bytes: int, first_row: int) -> None:
        records = self.engine.records(
            BatchPart(
                columns=columns,
                rows=rows,
                first_delta=batch.record_count,
                base_timestamp=batch.base_timestamp,
                max_bytes=max_bytes,
                row_ids=self.row_ids,
                first_row=first_row,
            )
        )
        batch.pieces.append(records)
        batch.record_count += len(rows)
        batch.size_bytes += len(records)
        if columns.newest > batch.max_timestamp:
            batch.max_timestamp = max(batch.max_timestamp, int(columns.timestamps[rows].max()))
        self.open_bytes += len(records)

    def _close(self, partition: TopicPartition) -> UnsequencedBatch:
        batch = self._open.pop(partition)
        self.open_bytes -= batch.size_bytes - BATCH_HEADER_BYTES
        return UnsequencedBatch(
            partition=partition,
            record_count=batch.record_count,
            base_timestamp=batch.base_timestamp,
            max_timestamp=batch.max_timestamp,
            codec=self.codec,
            blocks=self._compressed(batch.pieces),
        )

    def _compressed(self, pieces: list[ReadableBuffer]) -> tuple[ReadableBuffer, ...]:
        if self.codec is Codec.NONE:
            return tuple(pieces)
        payload = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return (compress(self.codec, payload, self.compression_level),)

    def close_all(self) -> list[UnsequencedBatch]:
        """Return all open batches, full or not."""
        return [self._close(partition) for partition in list(self._open)]


def _timestamp_bytes(columns: RowColumns, batch: _OpenBatch) -> int:
    """Return the most that a timestamp of ``columns`` takes as a difference to the batch's base timestamp."""
    farthest = max(columns.newest - batch.base_timestamp, batch.base_timestamp - columns.oldest)
    return (2 * max(0, farthest)).bit_length() // 7 + 1
