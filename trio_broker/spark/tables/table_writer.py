"""Writes the rows of one task as Parquet files.

Rows are collected until they fill a row group, a file is closed when it has reached its target size, and rows of
another day go to another file. Only the topic has a dictionary: keys and values repeat too little, and writing without
dictionaries is twice as fast.

Every attempt of a task draws random names, so that two attempts never write the same file.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import attrs

from trio_broker.spark.tables.table import (
    DATE,
    NULL_PARTITION,
    TOPIC,
    DataFile,
    Partitioning,
    TableFiles,
    WritableFile,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

DEFAULT_TARGET_BYTES: Final = 128 * 1024 * 1024
"""Of a file. Fewer and larger files are read faster; Spark's default for what one task reads."""

ROW_GROUP_BYTES: Final = 32 * 1024 * 1024
"""Rows in memory of one row group. Readers skip whole row groups, and a task holds one for every open file."""

ROW_GROUP_ROWS: Final = 1_000_000
"""The most rows of a row group; some readers plan for about this many."""

MAX_OPEN_FILES: Final = 64
"""Of one task. The records of a partition usually lie in few days; with timestamps in disorder files get smaller."""

MAX_HELD_BYTES: Final = 256 * 1024 * 1024
"""Rows in memory of all open files of a task; beyond it the fullest file writes its row group early."""

MICROSECONDS_PER_DAY: Final = 86_400_000_000
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
FIRST_DAY: Final = date.min.toordinal() - EPOCH_DAY
LAST_DAY: Final = date.max.toordinal() - EPOCH_DAY


class ParquetCodec(Enum):
    """How the pages of a file are compressed."""

    SNAPPY = "snappy"
    ZSTD = "zstd"
    NONE = "none"


@attrs.frozen
class FileSettings:
    """How files are written; a file of about ``target_bytes`` is closed."""

    codec: ParquetCodec = ParquetCodec.SNAPPY
    target_bytes: int = DEFAULT_TARGET_BYTES


@attrs.define
class OpenFile:
    """A file that is being written, and the rows that wait for its next row group."""

    file: DataFile
    sink: WritableFile
    writer: pq.ParquetWriter
    waiting: list[pa.RecordBatch] = attrs.field(factory=list)
    waiting_bytes: int = 0
    waiting_rows: int = 0
    rows: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, and write a row group once they are enough for one."""
        self.waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        self.waiting_rows += batch.num_rows
        if self.waiting_bytes >= ROW_GROUP_BYTES or self.waiting_rows >= ROW_GROUP_ROWS:
            self.write_row_group()

    def write_row_group(self) -> None:
        """Write the rows that wait."""
        import pyarrow as pa

        if self.waiting:
            self.writer.write_table(pa.Table.from_batches(self.waiting), row_group_size=self.waiting_rows)
        self.rows += self.waiting_rows
        self.waiting, self.waiting_bytes, self.waiting_rows = [], 0, 0

    def close(self) -> None:
        """Write the footer; the rows that wait are not written.

        A writer that could not write it keeps its sink open: it tries again when it is dropped, and on a closed one
        that is an error which nobody can catch.
        """
        self.writer.close()
        self.sink.close()


@attrs.define
class TableWriter:
    """Writes the rows of task ``task`` for one table. A context manager: an error removes its files.

    ``topic`` is that of all rows, and needed where the table is partitioned by it.
    """

    files: TableFiles
    settings: FileSettings
    task: int
    topic: str | None = None
    attempt: str = attrs.field(factory=lambda: secrets.token_hex(6))
    finished: list[DataFile] = attrs.field(factory=list)
    _open: dict[str | None, OpenFile] = attrs.field(factory=dict)
    _file_count: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.abort()

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, which have the columns of the files, and ``timestamp`` if the table is partitioned by day."""
        if batch.num_rows == 0:
            return
        if self.files.shape.partitioning is Partitioning.NONE:
            self._write(None, batch)
            return
        for day, rows in split_by_day(batch):
            self._write(day, rows)

    def finish(self) -> list[DataFile]:
        """Close and return all files."""
        for key in list(self._open):
            self._close(key)
        return self.finished

    def abort(self) -> None:
        """Close and remove all files; no result will name them."""
        with ExitStack() as stack:
            # Each of them whatever the others raise: a full disk, for one, lets no footer be written.
            for file in [*self.finished, *(each.file for each in self._open.values())]:
                stack.callback(self.files.store.remove, file)
            for each in self._open.values():
                # A footer costs little; a writer that is only dropped keeps its buffers.
                stack.callback(each.close)
            self._open.clear()
            self.finished.clear()

    def _write(self, day: str | None, batch: pa.RecordBatch) -> None:
        target = self._open.pop(day, None) or self._create(day)
        # Taken out and put back, the file is the last one in the dictionary: its first one is the least recently used.
        self._open[day] = target
        target.add(batch.select(self.files.columns))
        # The size counts only between row groups, so that none is cut short for it.
        if target.waiting_bytes == 0 and target.sink.tell() >= self.settings.target_bytes:
            self._close(day)
        elif len(self._open) > 1:
            self._keep_bounds()

    def _keep_bounds(self) -> None:
        if len(self._open) > MAX_OPEN_FILES:
            self._close(next(iter(self._open)))
        if sum(each.waiting_bytes for each in self._open.values()) > MAX_HELD_BYTES:
            max(self._open.values(), key=lambda each: each.waiting_bytes).write_row_group()

    def _create(self, day: str | None) -> OpenFile:
        import pyarrow as pa
        import pyarrow.parquet as pq

        file = self._new_file(day)
        schema = pa.schema([self.files.shape.schema.field(name) for name in self.files.columns])
        sink = self.files.store.create(file)
        writer = pq.ParquetWriter(
            sink,
            schema,
            compression=self.settings.codec.value,
            use_dictionary=[TOPIC] if TOPIC in schema.names else False,
            write_statistics=self._columns_with_statistics(schema),
        )
        return OpenFile(file, sink, writer)

    def _columns_with_statistics(self, schema: pa.Schema) -> bool | list[str]:
        """Return pyarrow's ``write_statistics``. A list of names would leave out columns within lists and structs."""
        opaque = self.files.shape.opaque
        return [name for name in schema.names if name not in opaque] if opaque else True

    def _new_file(self, day: str | None) -> DataFile:
        """Return a file with a name of its own."""
        files = self.files
        number = f"{self.task:05}-{self.attempt}-{self._file_count:03}"
        name = f"{files.job_id}-{files.batch:08}-{files.run_id}-{number}.parquet"
        self._file_count += 1
        staged = f"{files.run_id}/{name}"
        if files.shape.partitioning is Partitioning.NONE:
            return DataFile(name, staged, 0, 0)
        assert self.topic is not None
        path = f"{TOPIC}={self.topic}/{DATE}={day or NULL_PARTITION}/{name}"
        return DataFile(path, staged, 0, 0, topic=self.topic, date=day)

    def _close(self, key: str | None) -> None:
        each = self._open[key]
        each.write_row_group()
        each.close()
        size_bytes = self.files.store.seal(each.file)
        del self._open[key]
        self.finished.append(attrs.evolve(each.file, rows=each.rows, size_bytes=size_bytes))


def split_by_day(batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """Yield the rows of each day (ISO, UTC) of ``timestamp``, in their order; None for rows without such a day."""
    import pyarrow as pa
    import pyarrow.compute as pc

    microseconds = batch.column("timestamp").cast(pa.int64())
    bounds = pc.min_max(microseconds)
    first, last = bounds["min"].as_py(), bounds["max"].as_py()
    if microseconds.null_count == 0 and first // MICROSECONDS_PER_DAY == last // MICROSECONDS_PER_DAY:
        # Nearly always: a batch of one day is not copied.
        yield day_name(first // MICROSECONDS_PER_DAY), batch
        return
    by_name: dict[str | None, list[int]] = {}
    for row, value in enumerate(microseconds.to_pylist()):
        name = None if value is None else day_name(value // MICROSECONDS_PER_DAY)
        by_name.setdefault(name, []).append(row)
    for name, rows in by_name.items():
        yield name, batch.take(pa.array(rows, pa.int64()))


def day_name(day: int) -> str | None:
    """Return the date ``day`` days after 1970-01-01; None for a year that has not four digits."""
    if not FIRST_DAY <= day <= LAST_DAY:
        return None
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day)).date().isoformat()
