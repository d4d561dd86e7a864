"""The interface of all tables to a pipeline.

Source: Hive's layout for the names of directories, ``column=value``, which every reader of Parquet knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Protocol

import attrs

from trio_broker.spark.errors import SparkJobError

if TYPE_CHECKING:
    import pyarrow as pa

TOPIC: Final = "topic"
DATE: Final = "date"

NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"
"""The value in a directory's name for rows without a date."""


class TableError(SparkJobError):
    """A table cannot be written: it is no table, has other columns, or its directory or catalog refuses."""


class Partitioning(Enum):
    """Which rows are stored together."""

    NONE = "none"
    TOPIC_AND_DATE = "topic and date"
    """By topic, and by the day of the record's timestamp in UTC."""


@attrs.frozen
class TableShape:
    """The rows of a table: their Arrow types, and which of them are stored together.

    ``opaque`` are columns without a useful order, whose values may be long; files keep no bounds of them.
    With ``Partitioning.TOPIC_AND_DATE`` the schema has the columns ``topic`` and ``timestamp``.
    """

    schema: pa.Schema
    partitioning: Partitioning = Partitioning.NONE
    opaque: frozenset[str] = frozenset()

    def __attrs_post_init__(self) -> None:
        if self.partitioning is Partitioning.TOPIC_AND_DATE:
            assert {TOPIC, "timestamp"} <= set(self.schema.names), self.schema.names


@attrs.frozen
class DataFile:
    """One Parquet file that a task wrote.

    ``path`` is its place in the table, relative to the table's directory, with ``/``. ``name`` is its place before the
    commit, relative to the job's staging directory: the run's directory and the file's name. ``topic`` and ``date``
    (ISO) are those of all its rows, where the table is partitioned by them.
    """

    path: str
    name: str
    rows: int
    size_bytes: int
    topic: str | None = None
    date: str | None = None

    def document(self) -> dict[str, Any]:
        """Return it as it is stored in commits."""
        return attrs.asdict(self)


class WritableFile(Protocol):
    """The used part of a pyarrow ``NativeFile``."""

    def tell(self) -> int: ...

    def close(self) -> None: ...


class FileStore(Protocol):
    """Creates and removes the files of tasks. Picklable: it is sent to the workers."""

    def create(self, file: DataFile) -> WritableFile:
        """Open a new file for writing; its sizes are not known yet."""
        ...

    def seal(self, file: DataFile) -> int:
        """Make a closed file durable, also against a power cut; return its size in bytes."""
        ...

    def remove(self, file: DataFile) -> None:
        """Remove a file that will not be committed, if it exists."""
        ...


@attrs.frozen
class TableFiles:
    """Everything that a task needs to write files for a table. Picklable.

    ``columns`` are those of a file; a value in a directory's name may be left out. File names begin with ``job_id``,
    ``batch`` and ``run_id``, so that the files of a batch that was never committed can be found, also those that a task
    of an earlier run writes late.
    """

    store: FileStore
    shape: TableShape
    columns: tuple[str, ...]
    job_id: str
    run_id: str
    batch: int


class Table(Protocol):
    """A table as the driver of a pipeline uses it.

    The calls of a run: ``open``, ``commit`` of an earlier run's last batch, ``clean``; then for each batch ``files``
    and, once the commit log has the batch, ``commit``; at the end ``clean`` once more.
    """

    def open(self, job_id: str, run_id: str) -> None:
        """Create the table if it does not exist, and check its columns. Files are written for this run of this job.

        Raises:
            TableError: it cannot be created, or has other columns.
        """
        ...

    def files(self, batch: int) -> TableFiles:
        """Return what tasks need to write the files of a batch."""
        ...

    def commit(self, batch: int, files: Sequence[DataFile]) -> None:
        """Add ``files``, which are the whole batch, to the table; do nothing if it has them already.

        Raises:
            TableError: that is not possible; it may be tried again.
        """
        ...

    def clean(self, first_batch: int) -> None:
        """Remove the files that other runs of the job wrote for ``first_batch`` and later batches.

        ``first_batch`` is the first batch of this run, so that no commit of another run names these files.
        """
        ...
