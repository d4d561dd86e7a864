"""A table that is a directory of Parquet files, in Hive's layout where it is partitioned.

``spark.read.parquet(directory)`` and ``pyarrow.dataset.dataset(directory, partitioning="hive")`` read it. There is no
log of the files of the table, so a reader may see some files of a batch before the others, but each as a whole. A file
that was listed once stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs

from trio_broker.spark.tables.local_files import HIDDEN, LocalFiles
from trio_broker.spark.tables.table import DATE, TOPIC, DataFile, Partitioning, TableError, TableFiles, TableShape

DELTA_LOG = "_delta_log"


@attrs.define
class ParquetDirectory:
    """Implements ``Table``. Placing a file again changes nothing, so that a batch can be committed twice."""

    directory: Path
    shape: TableShape
    _files: LocalFiles | None = None

    def open(self, job_id: str, run_id: str) -> None:
        self._files = make_directory(self.directory, job_id, run_id)
        if (self.directory / DELTA_LOG).exists():
            raise TableError(f"{self.directory} is a Delta table; files put beside its log would belong to nothing")

    def files(self, batch: int) -> TableFiles:
        assert self._files is not None
        return staged_files(self._files, self.shape, batch)

    def commit(self, batch: int, files: Sequence[DataFile]) -> None:
        assert self._files is not None
        self._files.place(files)

    def clean(self, first_batch: int) -> None:
        assert self._files is not None
        self._files.clean()


def make_directory(directory: Path, job_id: str, run_id: str) -> LocalFiles:
    """Create a table's directory if it does not exist, and return its files.

    Raises:
        TableError: it cannot be created or written to.
    """
    try:
        (directory / HIDDEN).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TableError(f"{directory}: {error.strerror}") from error
    return LocalFiles(str(directory.absolute()), job_id, run_id)


def staged_files(files: LocalFiles, shape: TableShape, batch: int) -> TableFiles:
    """Return what tasks need to write the files of a batch, and create the directory that they write to.

    Raises:
        TableError: it cannot be created.
    """
    files.make_staging()
    return TableFiles(files, shape, stored_columns(shape), files.job_id, files.run_id, batch)


def stored_columns(shape: TableShape) -> tuple[str, ...]:
    """Return the columns of a file: all but those in the names of directories."""
    if shape.partitioning is Partitioning.NONE:
        return tuple(shape.schema.names)
    return tuple(name for name in shape.schema.names if name not in (TOPIC, DATE))
