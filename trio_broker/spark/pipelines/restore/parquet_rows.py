"""The rows of a slice of a group of Parquet row groups, in their order.

It reads the row groups by their first offset and holds back only rows that a later row group may have lower offsets
than, so that files that overlap, as those of two days with late records do, need no sort and little memory. The rows
and their order depend on the files and the slice only: a repeated slice must give each row the same row id.

Source: Parquet's row groups; parquet_parts for what a position is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from trio_broker.spark.pipelines.restore.parquet_parts import OFFSET, PARTITION, TOPIC, RestoreError, RowGroupPart

WRITTEN: Final = ("key", "value", "headers", "timestamp")
"""The columns of a record, besides its partition."""

MAX_HELD_BYTES: Final = 1024 * 1024 * 1024
"""The most bytes of rows that a task holds back: thirty row groups of an export. Files that overlap more than that must
be sorted with the help of a disk."""


def rows_in_order(
    group: Sequence[RowGroupPart],
    start: int | None = None,
    end: int | None = None,
    *,
    max_held_bytes: int = MAX_HELD_BYTES,
) -> Iterator[pa.Table]:
    """Yield the rows of a group by offset; rows with equal offsets, or none, in the order of the files.

    ``start`` and ``end``, which is exclusive, restrict the positions.

    Raises:
        RestoreError: files overlap so much that too many rows would have to be held.
    """
    held: pa.Table | None = None
    for part in group:
        if (end is not None and part.first >= end) or (start is not None and part.end <= start):
            continue
        rows = between(part, read_part(part), start, end)
        if part.first_offset is None:
            yield rows
            continue
        if held is not None:
            # No later row group begins below this one, so that the rows below its first offset are complete.
            ready = int(pc.sum(pc.less(held.column(OFFSET), part.first_offset)).as_py() or 0)
            yield held.slice(0, ready)
            held = held.slice(ready)
            if held.nbytes > max_held_bytes:
                raise RestoreError(
                    f"{part.path}: too many rows of {part.origin} overlap in their offsets; sort the files by offset"
                )
            rows = pa.concat_tables([held, rows], promote_options="permissive") if held.num_rows else rows
        held = sorted_rows(rows)
    if held is not None:
        yield held


def between(part: RowGroupPart, rows: pa.Table, start: int | None, end: int | None) -> pa.Table:
    """Return the rows of a part at positions from ``start`` to ``end``, exclusive."""
    lowest = part.first if start is None else max(start, part.first)
    behind = part.end if end is None else min(end, part.end)
    if (lowest, behind) == (part.first, part.end):
        return rows
    if part.first_offset is None:
        return rows.slice(lowest - part.first, behind - lowest)
    offsets = rows.column(OFFSET)
    return rows.filter(pc.and_(pc.greater_equal(offsets, lowest), pc.less(offsets, behind)))


def sorted_rows(rows: pa.Table) -> pa.Table:
    """Return rows by offset; rows that are in that order are not copied."""
    offsets = rows.column(OFFSET).combine_chunks()
    if pc.all(pc.less_equal(offsets[:-1], offsets[1:])).as_py() is not False:
        return rows
    # Arrow's sort is stable: rows with the same offset keep their order.
    return rows.take(pc.sort_indices(rows, sort_keys=[(OFFSET, "ascending")]))


def read_part(part: RowGroupPart) -> pa.Table:
    """Return the rows of a part, with the columns of a record and their offsets.

    Raises:
        RestoreError: the file has changed since the job was planned.
    """
    try:
        with pq.ParquetFile(part.path) as file:
            names = [name for name in (*WRITTEN, TOPIC, PARTITION, OFFSET) if name in file.schema_arrow.names]
            rows = file.read_row_group(part.row_group, columns=names)
    except (pa.ArrowException, OSError) as error:
        raise RestoreError(f"{part.path}: {error}") from error
    places = {TOPIC: part.origin.topic, PARTITION: part.origin.partition}
    for name in places.keys() & set(names):
        column = rows.column(name)
        wanted = pa.scalar(places[name], column.type.value_type if pa.types.is_dictionary(column.type) else column.type)
        rows = rows.filter(pc.equal(column.cast(wanted.type), wanted))
    if rows.num_rows != part.rows:
        raise RestoreError(f"{part.path}: it has changed since the job was planned")
    return rows


def written_columns(rows: pa.Table, keeps_partitions: bool) -> pa.Table:
    """Return the columns for the writer."""
    names = [name for name in WRITTEN if name in rows.schema.names]
    chosen = rows.select(names)
    if keeps_partitions and PARTITION in rows.schema.names:
        chosen = chosen.append_column(PARTITION, rows.column(PARTITION).cast(pa.int32()))
    return chosen
