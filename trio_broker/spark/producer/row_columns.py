"""The rows of an Arrow batch as parts of records: numbers in numpy arrays, and bytes where Arrow has them.

Only lengths and numbers are copied. The columns are found by name and checked once for each batch; columns that are not
among ``COLUMNS`` are ignored, as by Spark's own Kafka sink. Names are case-sensitive; of two equal ones the first
counts.

==========  ==================================  ======================================================================
column      type                                without it, or null
==========  ==================================  ======================================================================
value       string or binary                    required; null is a tombstone
key         string or binary                    no key
topic       string                              the topic that the job names, which beats the column; null is an error
partition   int                                 chosen by the key, or spread
timestamp   timestamp, or double (seconds)      the time at which the batch is written; -1 ms is a record without one
headers     array of struct key, value          none
==========  ==================================  ======================================================================

Source: KafkaWriter and KafkaRowWriter of Spark's connector.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafka_wire.records.batch import NO_TIMESTAMP
from trio_broker.spark.producer.errors import UnwritableRow
from trio_broker.spark.producer.row_ids import HEADER, ROW_ID_BYTES

Int64Array = npt.NDArray[np.int64]

COLUMNS: Final = ("key", "value", "topic", "partition", "timestamp", "headers")

NO_PARTITION: Final = -1
"""For a row whose partition is to be chosen."""

NULL_LENGTH: Final = -1
"""The length of null, here and in a record."""

ROW_ID_KEY: Final = HEADER.encode()

ROW_ID_HEADER_BYTES: Final = 1 + len(ROW_ID_KEY) + 1 + ROW_ID_BYTES
"""A header's key and value, each after its length in one byte."""

_VARINT_STEPS: Final = (1 << 7, 1 << 14, 1 << 21, 1 << 28)
"""The values from which on an unsigned variable-length integer takes one byte more."""


@attrs.frozen(eq=False, repr=False)
class BytesColumn:
    """Byte strings: where each starts in ``data``, and its length, -1 for null. ``address`` is that of ``data``.

    Addresses are valid as long as this object lives.
    """

    data: memoryview
    address: int
    starts: Int64Array
    lengths: Int64Array

    def __getitem__(self, index: int) -> bytes | None:
        length = int(self.lengths[index])
        if length < 0:
            return None
        start = int(self.starts[index])
        return bytes(self.data[start : start + length])


@attrs.frozen(eq=False, repr=False)
class HeadersColumn:
    """Headers of rows: the first of each row among ``keys`` and ``values``, and how many it has."""

    starts: Int64Array
    counts: Int64Array
    keys: BytesColumn
    values: BytesColumn


@attrs.frozen(eq=False, repr=False)
class RowColumns:
    """Rows of one Arrow batch.

    ``topic_names`` are few and ``topics`` index them. ``timestamps`` are milliseconds, from ``oldest`` to ``newest``.
    ``record_bytes`` is the size of each record without its own length, its timestamp and its offset, which depend on
    its batch.
    """

    topic_names: list[str]
    topics: Int64Array
    partitions: Int64Array
    timestamps: Int64Array
    oldest: int
    newest: int
    key: BytesColumn
    value: BytesColumn
    headers: HeadersColumn | None
    record_bytes: Int64Array

    def __len__(self) -> int:
        return len(self.timestamps)


def read_columns(
    batch: pa.RecordBatch,
    *,
    topic: str | None,
    now_ms: int,
    first_row: int = 0,
    include_headers: bool = True,
    include_timestamp: bool = True,
    with_row_ids: bool = False,
) -> RowColumns:
    """Return the rows of ``batch``. ``topic``, where it is given, is that of all of them. ``first_row`` is for errors.

    Raises:
        UnwritableRow: a column is missing, has a wrong type, or holds an impossible value.
    """
    found = _find(batch)
    if "value" not in found:
        raise UnwritableRow("there is no column 'value', which becomes the records' value")
    rows = batch.num_rows
    key, value = _bytes(found.get("key"), "key", rows), _bytes(found["value"], "value", rows)
    headers = _headers(found["headers"], first_row) if include_headers and "headers" in found else None
    topic_names, topics = _topics(topic, found.get("topic"), rows, first_row)
    timestamps = _timestamps(found.get("timestamp") if include_timestamp else None, rows, now_ms, first_row)
    return RowColumns(
        topic_names=topic_names,
        topics=topics,
        partitions=_partitions(found.get("partition"), rows, first_row),
        timestamps=timestamps,
        oldest=int(timestamps.min()) if rows else now_ms,
        newest=int(timestamps.max()) if rows else now_ms,
        key=key,
        value=value,
        headers=headers,
        record_bytes=_record_bytes(key, value, headers, with_row_ids),
    )


def _find(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    found: dict[str, pa.Array] = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in COLUMNS:
            found.setdefault(name, column)
    return found


def wrong_type(name: str, found: object, expected: str) -> UnwritableRow:
    """Return the error of a column that cannot become part of a record."""
    return UnwritableRow(f"column {name!r} is of type {found}; it must be {expected}")


# --- Bytes ---


def _bytes(column: pa.Array | None, name: str, rows: int) -> BytesColumn:
    if column is None:
        return BytesColumn(memoryview(b""), 0, np.zeros(rows, np.int64), np.full(rows, NULL_LENGTH, np.int64))
    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not (is_bytes or is_text or pa.types.is_fixed_size_binary(kind)):
        raise wrong_type(name, column.type, "string or binary")
    if column.type not in (pa.binary(), pa.large_binary()):
        column = column.cast(pa.large_binary() if pa.types.is_large_string(kind) else pa.binary())
    return _variable_bytes(column)


def _variable_bytes(column: pa.Array) -> BytesColumn:
    _, offsets_buffer, data = column.buffers()
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    if offsets_buffer is None or not len(column):
        offsets = np.zeros(len(column) + 1, np.int64)
    else:
        end = column.offset + len(column) + 1
        offsets = np.frombuffer(offsets_buffer, width, end)[column.offset :].astype(np.int64)
    lengths = np.diff(offsets)
    if column.null_count:
        lengths[_nulls(column)] = NULL_LENGTH
    # The view keeps the buffer alive, and with it the address.
    view = memoryview(b"") if data is None else memoryview(data)
    return BytesColumn(view, 0 if data is None else data.address, offsets[:-1], lengths)


def _nulls(column: pa.Array) -> npt.NDArray[np.bool_]:
    nulls: npt.NDArray[np.bool_] = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _headers(column: pa.Array, first_row: int) -> HeadersColumn:
    kind = column.type
    expected = "array<struct<key:string,value:binary>>"
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_struct(kind.value_type):
        raise wrong_type("headers", kind, expected)
    if [field.name.lower() for field in kind.value_type] != ["key", "value"]:
        raise wrong_type("headers", kind, expected)
    offsets = np.asarray(column.offsets).astype(np.int64) if len(column) else np.zeros(1, np.int64)
    counts = np.diff(offsets)
    if column.null_count:
        counts[_nulls(column)] = 0
    structs = column.values
    keys, values = _bytes(structs.field(0), "headers.key", 0), _bytes(structs.field(1), "headers.value", 0)
    missing = keys.lengths < 0
    if structs.null_count:
        missing = missing | _nulls(structs)
    if missing.any():
        _require_no_row(_touches(missing, offsets[:-1], counts), first_row, "headers", "has a header without a key")
    return HeadersColumn(offsets[:-1], counts, keys, values)


def _touches(marked: npt.NDArray[np.bool_], starts: Int64Array, counts: Int64Array) -> npt.NDArray[np.bool_]:
    """Return which rows have a marked item."""
    before = np.concatenate(([0], np.cumsum(marked)))
    touched: npt.NDArray[np.bool_] = before[starts + counts] > before[starts]
    return touched


# --- Numbers ---


def _topics(topic: str | None, column: pa.Array | None, rows: int, first_row: int) -> tuple[list[str], Int64Array]:
    if topic is not None:
        return [topic], np.zeros(rows, np.int64)
    if column is None:
        raise UnwritableRow("no topic is named: there is neither an option 'topic' nor a column 'topic'")
    if not pa.types.is_dictionary(column.type):
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise wrong_type("topic", column.type, "string")
        column = column.dictionary_encode()
    if column.null_count:
        _require_no_row(_nulls(column), first_row, "topic", "is null; the option 'topic' would name one for all rows")
    return column.dictionary.to_pylist(), column.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _partitions(column: pa.Array | None, rows: int, first_row: int) -> Int64Array:
    if column is None:
        return np.full(rows, NO_PARTITION, np.int64)
    if not pa.types.is_int32(column.type):
        raise wrong_type("partition", column.type, "int")
    given = (
        column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) if len(column) else np.empty(0, np.int64)
    )
    _require_no_row(given < 0, first_row, "partition", "is negative", given)
    if column.null_count:
        given[_nulls(column)] = NO_PARTITION
    return given


def _timestamps(column: pa.Array | None, rows: int, now_ms: int, first_row: int) -> Int64Array:
    if column is None:
        return np.full(rows, now_ms, np.int64)
    if pa.types.is_timestamp(column.type):
        column = _milliseconds(column)
    elif pa.types.is_float64(column.type):
        # As Spark casts seconds to a timestamp; what is no number becomes null.
        column = pc.if_else(pc.is_finite(column), pc.floor(pc.multiply(column, 1000.0)), None).cast(pa.int64())
    else:
        raise wrong_type("timestamp", column.type, "timestamp or double")
    given: Int64Array = column.fill_null(now_ms).to_numpy(zero_copy_only=False).astype(np.int64)
    _require_no_row(given < NO_TIMESTAMP, first_row, "timestamp", "is before 1970", given)
    return given


def _milliseconds(column: pa.Array) -> pa.Array:
    """Return a timestamp's milliseconds as int64; finer parts are cut off, downwards."""
    numbers = column.cast(pa.int64())
    match column.type.unit:
        case "s":
            return pc.multiply(numbers, 1000)
        case "ms":
            return numbers
        case "us":
            factor = 1000
        case _:
            factor = 1_000_000
    # Arrow divides towards zero.
    floored = np.floor_divide(numbers.fill_null(0).to_numpy(zero_copy_only=False), factor)
    return pa.array(floored, pa.int64(), mask=_nulls(column))


def _require_no_row(
    bad: npt.NDArray[np.bool_], first_row: int, name: str, reason: str, values: npt.NDArray[Any] | None = None
) -> None:
    if bad.any():
        index = int(bad.argmax())
        value = "" if values is None else f" ({values[index]})"
        raise UnwritableRow(f"column {name!r} of row {first_row + index} of the task {reason}{value}")


# --- Sizes ---


def varint_bytes(lengths: Int64Array) -> Int64Array:
    """Return the size of each length as a variable-length integer; that of -1 is one byte."""
    doubled = np.where(lengths < 0, 1, lengths << 1)
    taken = np.ones(len(lengths), np.int64)
    for step in _VARINT_STEPS:
        if not (longer := doubled >= step).any():
            break
        taken += longer
    return taken


def _with_length(column: BytesColumn) -> Int64Array:
    return varint_bytes(column.lengths) + np.maximum(column.lengths, 0)


def _record_bytes(
    key: BytesColumn, value: BytesColumn, headers: HeadersColumn | None, with_row_ids: bool
) -> Int64Array:
    sizes = 1 + _with_length(key) + _with_length(value)  # one for the attributes
    if headers is None:
        return sizes + (1 + ROW_ID_HEADER_BYTES if with_row_ids else 1)
    counts = headers.counts
    before = np.concatenate(([0], np.cumsum(_with_length(headers.keys) + _with_length(headers.values))))
    sizes += before[headers.starts + counts] - before[headers.starts]
    if with_row_ids:
        return sizes + ROW_ID_HEADER_BYTES + varint_bytes(counts + 1)
    return sizes + varint_bytes(counts)
