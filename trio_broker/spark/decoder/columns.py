"""Arrow batches of decoded rows, with the columns that need no decoding, in the types that PySpark requires."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.chunk import Decoding
from trio_broker.spark.schema import arrow_schema

Flags = npt.NDArray[np.uint8]
"""A byte for each row: 0 for null."""


@attrs.frozen(eq=False)
class Rows:
    """Decoded records; None for a column that is not wanted."""

    count: int
    offsets: pa.Array | None = None
    timestamps: pa.Array | None = None
    timestamp_types: pa.Array | None = None
    keys: pa.Array | None = None
    values: pa.Array | None = None
    headers: pa.Array | None = None


class BatchAssembler:
    """Makes Arrow batches of rows. Columns with the same value in all rows are made once and sliced."""

    def __init__(self, partition: TopicPartition, decoding: Decoding) -> None:
        self._schema = arrow_schema(decoding.columns)
        self._partition = partition
        self._constants: dict[str | int, pa.Array] = {}

    def batch(self, rows: Rows) -> pa.RecordBatch:
        """Return ``rows`` with the wanted columns, in their order."""
        return pa.RecordBatch.from_arrays(
            [self._column(name, rows) for name in self._schema.names], schema=self._schema
        )

    def _column(self, name: str, rows: Rows) -> pa.Array:
        match name:
            case "key":
                return rows.keys
            case "value":
                return rows.values
            case "topic":
                return self._constant(self._partition.topic, rows.count)
            case "partition":
                return self._constant(self._partition.partition, rows.count)
            case "offset":
                return rows.offsets
            case "timestamp":
                return rows.timestamps
            case "timestampType":
                return rows.timestamp_types
            case _:
                return rows.headers

    def _constant(self, value: str | int, count: int) -> pa.Array:
        column = self._constants.get(value)
        if column is None or len(column) < count:
            scalar = pa.scalar(value, pa.string() if isinstance(value, str) else pa.int32())
            self._constants[value] = column = pa.repeat(scalar, count)
        return column.slice(0, count)


def numbers(kind: pa.DataType, values: pa.Buffer, count: int) -> pa.Array:
    """Return a column of ``count`` numbers."""
    return pa.Array.from_buffers(kind, count, [None, values], 0)


def binary(count: int, ends: pa.Buffer, data: pa.Buffer, valid: Flags) -> pa.Array:
    """Return a binary column of ``count`` values, of which those that are not ``valid`` are null."""
    return pa.Array.from_buffers(pa.binary(), count, [_bitmap(valid), ends, data], _nulls(valid))


def header_lists(ends: pa.Buffer, valid: Flags, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Return a column of header lists out of the keys and values of all headers, one behind the other."""
    kind = arrow_schema(["headers"]).field(0).type
    headers = pa.Array.from_buffers(kind.value_type, len(keys), [None], 0, children=[_texts(keys), values])
    return pa.Array.from_buffers(kind, len(valid), [_bitmap(valid), ends], _nulls(valid), children=[headers])


def _texts(keys: pa.Array) -> pa.Array:
    """Return binary ``keys`` as strings; what is not UTF-8 in them is replaced by U+FFFD, as Java does."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())


def _bitmap(valid: Flags) -> pa.Buffer | None:
    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _nulls(valid: Flags) -> int:
    return len(valid) - int(np.count_nonzero(valid))
