"""Joins small Arrow batches: a chunk or a change of codec may end with few rows, and each batch costs Spark time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from trio_broker.spark.chunk import Decoding
from trio_broker.spark.decoder.blocks import MAX_BYTES


def coalesced(batches: Iterable[pa.RecordBatch], decoding: Decoding) -> Iterator[pa.RecordBatch]:
    """Yield ``batches``, neighbours joined where the result is no larger than ``decoding`` allows."""
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    max_bytes = min(decoding.batch_bytes, MAX_BYTES)
    for batch in batches:
        batch_bytes = batch.nbytes
        if kept and (rows + batch.num_rows > decoding.batch_rows or size + batch_bytes > max_bytes):
            yield _together(kept)
            kept, rows, size = [], 0, 0
        kept.append(batch)
        rows += batch.num_rows
        size += batch_bytes
    if kept:
        yield _together(kept)


def _together(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch
