"""Files of a table that is a directory: staged below ``_trio_broker``, where no reader looks, and moved by renaming.

    <table>/_trio_broker/staging/<job>/<name>.parquet         while its batch is not committed
    <table>/topic=orders/date=2026-01-31/<name>.parquet       from then on

Readers of Parquet directories skip what begins with an underscore, and a rename within one file system shows a file as
a whole or not at all. The directory must be visible to driver and workers under the same path.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs
import pyarrow as pa

from trio_broker.spark.tables.table import DataFile, TableError, WritableFile
from trio_broker.storage.checkpoints import sync_directory

HIDDEN: Final = "_trio_broker"
"""Of a table's directory: what is ours and no data."""


@attrs.frozen
class LocalFiles:
    """The staged and placed files of one job in a table's directory."""

    directory: str
    job_id: str

    @property
    def staging(self) -> Path:
        """Where files lie that are not committed."""
        return Path(self.directory) / HIDDEN / "staging" / self.job_id

    def staged(self, file: DataFile) -> Path:
        """Return where ``file`` lies before its batch is committed."""
        return self.staging / file.name

    def placed(self, file: DataFile) -> Path:
        """Return where ``file`` lies after that."""
        return Path(self.directory, *file.path.split("/"))

    def create(self, file: DataFile) -> WritableFile:
        path = self.staged(file)
        path.parent.mkdir(parents=True, exist_ok=True)
        sink: WritableFile = pa.OSFile(str(path), "wb")
        return sink

    def seal(self, file: DataFile) -> int:
        descriptor = os.open(self.staged(file), os.O_RDONLY)
        try:
            os.fsync(descriptor)
            size_bytes = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        sync_directory(self.staging)
        return size_bytes

    def remove(self, file: DataFile) -> None:
        self.staged(file).unlink(missing_ok=True)

    def place(self, files: Iterable[DataFile]) -> None:
        """Move ``files`` where they belong; those that are there already stay.

        Raises:
            TableError: a file is neither here nor there, or cannot be moved.
        """
        root = Path(self.directory)
        directories: set[Path] = set()
        for file in files:
            placed = self.placed(file)
            try:
                placed.parent.mkdir(parents=True, exist_ok=True)
                os.rename(self.staged(file), placed)
            except FileNotFoundError:
                if not placed.exists():
                    raise TableError(f"{placed} is gone: it was committed, and somebody removed it") from None
            except OSError as error:
                raise TableError(f"{placed}: {error.strerror}") from error
            directories.update(each for each in placed.parents if each.is_relative_to(root))
        # Also those that were there already: a run that was cut off may have made them and not come to this.
        for directory in directories:
            sync_directory(directory)

    def clean(self) -> None:
        """Remove what is staged. A task of a driver that was killed may still be writing; then that goes later."""
        shutil.rmtree(self.staging, ignore_errors=True)
