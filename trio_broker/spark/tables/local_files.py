"""Files of a table that is a directory: staged below ``_trio_broker``, where no reader looks, and moved by renaming.

    <table>/_trio_broker/staging/<job>/<run>/<name>.parquet    before its batch is committed
    <table>/topic=orders/date=2026-01-31/<name>.parquet        after that

Readers of Parquet directories skip what begins with an underscore, and a rename within one file system shows a file as
a whole or not at all. The directory must be visible to driver and workers under the same path.

Spark ends a job with its first failed task while other tasks may still be writing. So the driver creates the directory
of its run and tasks do not: once a later run has removed it, a late task of the earlier run cannot create a file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs
import pyarrow as pa

from trio_broker.runtime.real_disk import RealDisk
from trio_broker.spark.tables.table import DataFile, TableError, WritableFile

HIDDEN: Final = "_trio_broker"
"""The directory of a pipeline's own files in a table's directory."""


@attrs.frozen
class LocalFiles:
    """The staged and placed files of one run of a job in a table's directory."""

    directory: str
    job_id: str
    run_id: str

    @property
    def staging(self) -> Path:
        """The directory of the job's files that are not committed, with a directory for each run."""
        return Path(self.directory) / HIDDEN / "staging" / self.job_id

    def staged(self, file: DataFile) -> Path:
        """Return the path of ``file`` before its batch is committed."""
        return self.staging / file.name

    def placed(self, file: DataFile) -> Path:
        """Return the path of ``file`` after that."""
        return Path(self.directory, *file.path.split("/"))

    def make_staging(self) -> None:
        """Create the run's directory, which tasks write to.

        Raises:
            TableError: it cannot be created.
        """
        directory = self.staging / self.run_id
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # A commit may name a file in here as soon as the file is sealed: its directories must survive a power cut.
            for each in (directory, *directory.parents):
                if each.is_relative_to(self.directory):
                    RealDisk().sync_directory(each)
        except OSError as error:
            raise TableError(f"{directory}: {error.strerror}") from error

    def create(self, file: DataFile) -> WritableFile:
        """Open a new file for writing.

        Raises:
            TableError: the run's directory is not there.
        """
        try:
            sink: WritableFile = pa.OSFile(str(self.staged(file)), "wb")
        except FileNotFoundError:
            raise TableError(
                f"{self.staging / self.run_id}, which the driver created, is not there for this task: driver and"
                f" executors must see {self.directory} under this path, on one file system"
            ) from None
        return sink

    def seal(self, file: DataFile) -> int:
        descriptor = os.open(self.staged(file), os.O_RDONLY)
        try:
            os.fsync(descriptor)
            size_bytes = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        RealDisk().sync_directory(self.staged(file).parent)
        return size_bytes

    def remove(self, file: DataFile) -> None:
        self.staged(file).unlink(missing_ok=True)

    def place(self, files: Iterable[DataFile]) -> None:
        """Move ``files`` to their places in the table; files that an earlier call has moved stay there.

        Raises:
            TableError: a file is at neither place, or cannot be moved.
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
                    raise TableError(f"{placed} is gone: it was committed, and removed later") from None
            except OSError as error:
                raise TableError(f"{placed}: {error.strerror}") from error
            directories.update(each for each in placed.parents if each.is_relative_to(root))
        # Also directories that existed before: a run that was killed may have created them and not synced them.
        for directory in directories:
            RealDisk().sync_directory(directory)

    def clean(self) -> None:
        """Remove all staged files of the job, and with them the directories of its runs.

        Errors are ignored: a task of an earlier run may create a file while its directory is removed. The end of this
        run, or the next run, tries again.
        """
        shutil.rmtree(self.staging, ignore_errors=True)
