"""A Delta table in a directory, written by deltalake; no jar is needed.

A batch is one Delta transaction, with the job's id and the batch's number as its "application transaction". So the
table itself records which batches it has.

Source: the Delta protocol, "Transaction Identifiers" and "Add File".
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from trio_broker.spark.tables.local_files import LocalFiles
from trio_broker.spark.tables.parquet_directory import DELTA_LOG, make_directory, staged_files
from trio_broker.spark.tables.table import DATE, TOPIC, DataFile, Partitioning, TableError, TableFiles, TableShape

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable as DeltaLakeTable
    from deltalake.transaction import AddAction


@attrs.define
class DeltaTable:
    """Implements ``Table``."""

    directory: Path
    shape: TableShape
    _files: LocalFiles | None = None

    def open(self, job_id: str, run_id: str) -> None:
        import deltalake
        from deltalake.exceptions import DeltaError

        self._files = make_directory(self.directory, job_id, run_id)
        try:
            if not (self.directory / DELTA_LOG).exists():
                self._refuse_other_files()
                deltalake.DeltaTable.create(self._uri(), self._schema(), partition_by=self._partition_columns())
            self._check(self._table())
        except DeltaError as error:
            raise TableError(f"{self.directory}: {error}") from error

    def files(self, batch: int) -> TableFiles:
        assert self._files is not None
        return staged_files(self._files, self.shape, batch)

    def commit(self, batch: int, files: Sequence[DataFile]) -> None:
        from deltalake.exceptions import DeltaError
        from deltalake.transaction import CommitProperties, Transaction

        assert self._files is not None
        job_id = self._files.job_id
        try:
            table = self._table()
            done = table.transaction_version(job_id)
            if not files or (done is not None and done >= batch):
                return
            # The files first: the log must name no file that is not there. Until it names them, no reader sees them.
            self._files.place(files)
            table.create_write_transaction(
                [_add_action(file) for file in files],
                mode="append",
                schema=self._schema(),
                partition_by=self._partition_columns(),
                commit_properties=CommitProperties(app_transactions=[Transaction(job_id, batch)]),
            )
        except DeltaError as error:
            raise TableError(f"{self.directory}: batch {batch}: {error}") from error

    def clean(self, first_batch: int) -> None:
        assert self._files is not None
        self._files.clean()

    def _uri(self) -> str:
        return str(self.directory.absolute())

    def _table(self) -> DeltaLakeTable:
        import deltalake

        return deltalake.DeltaTable(self._uri())

    def _schema(self) -> pa.Schema:
        """Return the table's columns: those of the rows, and the date where it is partitioned by it."""
        import pyarrow as pa

        if self.shape.partitioning is Partitioning.NONE:
            return self.shape.schema
        return self.shape.schema.append(pa.field(DATE, pa.date32()))

    def _partition_columns(self) -> list[str]:
        return [] if self.shape.partitioning is Partitioning.NONE else [TOPIC, DATE]

    def _refuse_other_files(self) -> None:
        if found := next(
            (each.name for each in self.directory.iterdir() if not each.name.startswith(("_", "."))), None
        ):
            raise TableError(f"{self.directory} holds {found} and no {DELTA_LOG}: it is no Delta table")

    def _check(self, table: DeltaLakeTable) -> None:
        from deltalake import Schema

        found = {(field.name, str(field.type)) for field in table.schema().fields}
        wanted = {(field.name, str(field.type)) for field in Schema.from_arrow(self._schema()).fields}
        if differing := sorted(name for name, _ in found ^ wanted):
            raise TableError(f"{self.directory} has other columns: {', '.join(dict.fromkeys(differing))} differ")
        if (columns := table.metadata().partition_columns) != self._partition_columns():
            raise TableError(f"{self.directory} is partitioned by {columns}, not by {self._partition_columns()}")


def _add_action(file: DataFile) -> AddAction:
    from deltalake.transaction import AddAction

    partitioned = file.topic is not None
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values={TOPIC: file.topic, DATE: file.date} if partitioned else {},
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=json.dumps({"numRecords": file.rows}),
    )
