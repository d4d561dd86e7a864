"""Which rows are where in Parquet files, as far as ``restore`` needs it to write them in their order.

Files of any writer will do: only the names of their columns count. The topic may also be in the name of a directory,
``topic=orders/``, the layout of exports and of Hive. The unit is a row group. The footer usually has the bounds of its
topics, partitions and offsets; where it does not, or a row group has several topics or partitions, those three columns
are read.

Source: Hive's layout; the statistics of Parquet's column chunks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow as pa
import pyarrow.parquet as pq

from trio_broker.spark.errors import SparkJobError

SUFFIX: Final = ".parquet"
HIDDEN_PREFIXES: Final = ("_", ".")
"""Prefixes of names that are no data: commit logs, unfinished files."""

TOPIC: Final = "topic"
PARTITION: Final = "partition"
OFFSET: Final = "offset"
PLACE_COLUMNS: Final = (TOPIC, PARTITION, OFFSET)
VALUE: Final = "value"


class RestoreError(SparkJobError):
    """Files cannot be restored: they are not Parquet, or have not the columns of records."""


@attrs.frozen(order=True)
class Origin:
    """The topic and partition that rows were in; unknown ones are empty, or -1."""

    topic: str = ""
    partition: int = -1

    def __str__(self) -> str:
        return f"{self.topic or 'rows'}-{self.partition}" if self.partition >= 0 else self.topic or "rows"


@attrs.frozen
class RowGroupPart:
    """The rows of one origin in one row group, with the offsets they had; None where there are no offsets.

    ``first_row`` is the number of rows before it in its group, the position of its first row without offsets.
    """

    origin: Origin
    path: str
    row_group: int
    rows: int
    first_offset: int | None = None
    last_offset: int | None = None
    first_row: int = 0

    @property
    def first(self) -> int:
        """The lowest position of its rows, by which a group is cut: an offset, or else the number of a row."""
        return self.first_row if self.first_offset is None else self.first_offset

    @property
    def end(self) -> int:
        """The position behind its rows."""
        return self.first_row + self.rows if self.last_offset is None else self.last_offset + 1


def find_files(paths: Sequence[Path]) -> list[Path]:
    """Return the Parquet files in and below the directories of ``paths``, and its files; sorted by their full paths.

    Raises:
        RestoreError: a path does not exist, or there is no file.
    """
    found: list[Path] = []
    for path in map(Path, map(os.path.abspath, paths)):
        if path.is_file():
            found.append(path)
        elif path.is_dir():
            found += _files_below(path)
        else:
            raise RestoreError(f"{path} does not exist")
    if not found:
        raise RestoreError(f"there are no Parquet files in {', '.join(map(str, paths))}")
    return sorted(set(found))


def _files_below(directory: Path) -> Iterator[Path]:
    for root, directories, names in os.walk(directory):
        directories[:] = [name for name in directories if not name.startswith(HIDDEN_PREFIXES)]
        for name in names:
            if name.endswith(SUFFIX) and not name.startswith(HIDDEN_PREFIXES):
                yield Path(root, name)


def parts_of(path: Path) -> list[RowGroupPart]:
    """Return the parts of a file's row groups, in their order.

    Raises:
        RestoreError: it is no Parquet file, or has no column ``value``.
    """
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            if VALUE not in names:
                raise RestoreError(f"{path} has no column {VALUE!r}; it has {', '.join(names)}")
            _check_types(path, file.schema_arrow)
            return [
                part
                for number in range(file.num_row_groups)
                for part in _parts_of_group(file, path, number)
                if part.rows
            ]
    except (pa.ArrowException, OSError) as error:
        raise RestoreError(f"{path}: {error}") from error


def _check_types(path: Path, schema: pa.Schema) -> None:
    for name in (PARTITION, OFFSET):
        if name in schema.names and not pa.types.is_integer(schema.field(name).type):
            raise RestoreError(f"{path}: column {name!r} is of type {schema.field(name).type}; it must be an integer")


def _parts_of_group(file: pq.ParquetFile, path: Path, number: int) -> list[RowGroupPart]:
    bounds = _bounds(file.metadata.row_group(number))
    named = [name for name in PLACE_COLUMNS if name in file.schema_arrow.names]
    rows = file.metadata.row_group(number).num_rows
    directory_topic = topic_of(path)
    is_one_place = all(name in bounds for name in named) and all(
        bounds[name][0] == bounds[name][1] for name in named if name != OFFSET
    )
    if is_one_place:
        origin = Origin(
            bounds[TOPIC][0] if TOPIC in named else directory_topic, bounds[PARTITION][0] if PARTITION in named else -1
        )
        first, last = bounds.get(OFFSET, (None, None))
        return [RowGroupPart(origin, str(path), number, rows, first, last)]
    return _read_parts(file, path, number, named)


def _bounds(group: Any) -> dict[str, tuple[Any, Any]]:
    """Return the bounds of the columns in ``PLACE_COLUMNS``, as far as the footer has them."""
    bounds = {}
    for index in range(group.num_columns):
        column = group.column(index)
        statistics = column.statistics
        if column.path_in_schema not in PLACE_COLUMNS or statistics is None:
            continue
        # Writers may shorten long bounds; then the two differ, and the column is read.
        if statistics.has_min_max and statistics.null_count == 0:
            bounds[column.path_in_schema] = (statistics.min, statistics.max)
    return bounds


def _read_parts(file: pq.ParquetFile, path: Path, number: int, named: Sequence[str]) -> list[RowGroupPart]:
    table = file.read_row_group(number, columns=list(named))
    keys = [name for name in named if name != OFFSET]
    if table.num_rows and any(table.column(name).null_count for name in named):
        raise RestoreError(f"{path}: {', '.join(named)} must not be null; row group {number} has rows without")
    wanted = [(OFFSET, "min"), (OFFSET, "max")] if OFFSET in named else []
    counted = table.group_by(keys, use_threads=False).aggregate([*wanted, ([], "count_all")])
    return [
        RowGroupPart(
            Origin(row.get(TOPIC, topic_of(path)), row.get(PARTITION, -1)),
            str(path),
            number,
            row["count_all"],
            row.get(f"{OFFSET}_min"),
            row.get(f"{OFFSET}_max"),
        )
        for row in counted.to_pylist()
    ]


def topic_of(path: Path) -> str:
    """Return the topic in the name of a directory above a file, or ``""``."""
    for name in reversed(path.parts[:-1]):
        key, separator, value = name.partition("=")
        if separator and key == TOPIC:
            return value
    return ""


def group_parts(parts: Iterable[RowGroupPart]) -> list[tuple[RowGroupPart, ...]]:
    """Return the groups of parts that one task must write, each in its order; sorted by origin.

    The rows of one origin with offsets are a group. Without offsets the rows of a file are one.
    """
    groups: dict[tuple[Origin, str], list[RowGroupPart]] = {}
    for part in parts:
        groups.setdefault((part.origin, "" if part.first_offset is not None else part.path), []).append(part)
    return [tuple(_with_row_numbers(sorted(groups[key], key=_by_offset))) for key in sorted(groups)]


def _with_row_numbers(parts: Iterable[RowGroupPart]) -> Iterator[RowGroupPart]:
    first_row = 0
    for part in parts:
        yield attrs.evolve(part, first_row=first_row)
        first_row += part.rows


def _by_offset(part: RowGroupPart) -> tuple[int, int, str, int]:
    return (part.first_offset or 0, part.last_offset or 0, part.path, part.row_group)
