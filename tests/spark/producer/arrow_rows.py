"""Rows for writing, made by Hypothesis, and the same as records."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pyarrow as pa
from hypothesis import strategies as st

from kafka_wire.records.record import NewRecord

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

keys_and_values = st.one_of(st.none(), st.binary(max_size=20), st.integers(100, 300).map(bytes))
timestamps_ms = st.one_of(st.integers(1_700_000_000_000, 1_700_000_100_000), st.integers(-1, 2**52))
headers = st.one_of(
    st.none(), st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=70))), max_size=4)
)


@attrs.frozen
class Row:
    key: bytes | None = None
    value: bytes | None = b"value"
    timestamp_ms: int | None = 1_700_000_000_000
    headers: list[tuple[str, bytes | None]] | None = None

    def record(self, now_ms: int = 0) -> NewRecord:
        timestamp = now_ms if self.timestamp_ms is None else self.timestamp_ms
        return NewRecord(timestamp, self.key, self.value, tuple(self.headers or ()))


rows = st.lists(
    st.builds(Row, key=keys_and_values, value=keys_and_values, timestamp_ms=timestamps_ms, headers=headers), min_size=1
)


def arrow_batch(rows: Sequence[Row], **more: pa.Array) -> pa.RecordBatch:
    """The rows as Spark gives them to a writer."""
    header_lists = [
        None if row.headers is None else [{"key": key, "value": value} for key, value in row.headers] for row in rows
    ]
    return pa.record_batch(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "timestamp": pa.array(
                [None if row.timestamp_ms is None else row.timestamp_ms * 1000 for row in rows], pa.int64()
            ).cast(pa.timestamp("us", "UTC")),
            "headers": pa.array(header_lists, HEADERS_TYPE),
            **more,
        }
    )
