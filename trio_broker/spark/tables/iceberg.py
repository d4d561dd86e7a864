"""An Iceberg table in any catalog that pyiceberg knows; no jar is needed.

Tasks write files to their final places, since no reader sees a file of an Iceberg table before a snapshot names it. A
batch is one snapshot, with the job's id and the batch's number among its properties; the same commit sets the number as
a property of the table, which outlives the snapshot. So the table itself records which batches it has.

The table is partitioned by ``topic`` and ``day(timestamp)``; unlike in Hive's layout there is no column ``date``.

Source: the Iceberg specification; pyiceberg's ``Transaction.add_files``.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlparse

import attrs

from trio_broker.spark.tables.table import (
    TOPIC,
    DataFile,
    Partitioning,
    TableError,
    TableFiles,
    TableShape,
    WritableFile,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table as PyIcebergTable

BATCH_PROPERTY: Final = "trio-broker.batch."
"""Prefix of a table's property, followed by the job's id: the newest batch in the table."""

METRICS_PROPERTY: Final = "write.metadata.metrics.column."
"""Prefix of a table's property, followed by a column: which bounds of it are kept."""

COMMIT_ATTEMPTS: Final = 5
"""Attempts against others that commit to the table at the same time; each starts from their snapshot."""

SECONDS_BETWEEN_ATTEMPTS: Final = 0.2
"""Doubled after each attempt."""


@attrs.frozen
class IcebergFiles:
    """The data files of a table, in its catalog's file system. Picklable."""

    location: str
    properties: Mapping[str, str]

    def uri(self, file: DataFile) -> str:
        """Return the URI of ``file``."""
        return f"{self.location.rstrip('/')}/data/{file.path}"

    def create(self, file: DataFile) -> WritableFile:
        from pyiceberg.io import load_file_io

        output = load_file_io(dict(self.properties), self.location).new_output(self.uri(file))
        sink: WritableFile = output.create()
        return sink

    def seal(self, file: DataFile) -> int:
        from pyiceberg.io import load_file_io

        return len(load_file_io(dict(self.properties), self.location).new_input(self.uri(file)))

    def remove(self, file: DataFile) -> None:
        from pyiceberg.io import load_file_io

        try:
            load_file_io(dict(self.properties), self.location).delete(self.uri(file))
        except FileNotFoundError:
            return


@attrs.define
class IcebergTable:
    """Implements ``Table``. ``identifier`` is the name with its namespace; ``properties`` are those of the catalog."""

    catalog: str
    properties: Mapping[str, str]
    identifier: str
    shape: TableShape
    _job_id: str = ""
    _run_id: str = ""
    _table: PyIcebergTable | None = None

    def open(self, job_id: str, run_id: str) -> None:
        self._job_id, self._run_id = job_id, run_id
        try:
            self._table = self._load_or_create()
            self._check(self._table)
        except TableError:
            raise
        except Exception as error:  # a catalog may raise any error of its database or service
            raise TableError(f"{self.identifier}: {_first_line(error)}") from error

    def files(self, batch: int) -> TableFiles:
        assert self._table is not None
        store = IcebergFiles(self._table.location(), dict(self._table.io.properties))
        return TableFiles(store, self.shape, tuple(self.shape.schema.names), self._job_id, self._run_id, batch)

    def commit(self, batch: int, files: Sequence[DataFile]) -> None:
        from pyiceberg.exceptions import CommitFailedException

        pause = SECONDS_BETWEEN_ATTEMPTS
        for attempt in range(COMMIT_ATTEMPTS):
            try:
                self._commit_once(batch, files)
                return
            except CommitFailedException as error:
                if attempt == COMMIT_ATTEMPTS - 1:
                    raise TableError(f"{self.identifier}: batch {batch}: {_first_line(error)}") from error
                time.sleep(pause)
                pause *= 2
            except Exception as error:
                raise TableError(f"{self.identifier}: batch {batch}: {_first_line(error)}") from error

    def clean(self, first_batch: int) -> None:
        """Remove the files if the table is in a directory; elsewhere Iceberg's removal of orphan files does it.

        They are not staged: a file of an uncommitted batch differs from one of the table by its name only, which has
        the job, the batch and the run.
        """
        assert self._table is not None
        location = urlparse(self._table.location())
        if location.scheme not in ("", "file"):
            return
        staged_name = re.compile(rf"{re.escape(self._job_id)}-(\d+)-([^-]+)-.*\.parquet")
        for path in Path(unquote(location.path), "data").rglob(f"{self._job_id}-*.parquet"):
            found = staged_name.fullmatch(path.name)
            if found and int(found[1]) >= first_batch and found[2] != self._run_id:
                path.unlink(missing_ok=True)

    def _commit_once(self, batch: int, files: Sequence[DataFile]) -> None:
        assert self._table is not None
        table = self._table.refresh()
        key = BATCH_PROPERTY + self._job_id
        if not files or int(table.properties.get(key, -1)) >= batch:
            return
        store = IcebergFiles(table.location(), {})
        with table.transaction() as transaction:
            transaction.add_files(
                [store.uri(file) for file in files],
                snapshot_properties={"trio-broker.job": self._job_id, "trio-broker.batch": str(batch)},
                # The search for a file among all earlier ones takes longer the larger the table is, and is not needed:
                # no name is used twice, and the property says whether the batch was added.
                check_duplicate_files=False,
            )
            transaction.set_properties({key: str(batch)})

    def _catalog(self) -> Catalog:
        from pyiceberg.catalog import load_catalog

        return load_catalog(self.catalog, **self.properties)

    def _load_or_create(self) -> PyIcebergTable:
        from pyiceberg.exceptions import NoSuchTableError

        catalog = self._catalog()
        try:
            return catalog.load_table(self.identifier)
        except NoSuchTableError:
            catalog.create_namespace_if_not_exists(self.identifier.rpartition(".")[0])
            schema = self._schema(catalog)
            return catalog.create_table(
                self.identifier,
                schema,
                partition_spec=self._partition_spec(schema),
                properties=dict.fromkeys(self._opaque_columns(schema), "none"),
            )

    def _schema(self, catalog: Catalog) -> Schema:
        """Return the columns with ids; ``create_table`` assigns new ids in the same order."""
        from pyiceberg.catalog import Catalog as PyIcebergCatalog
        from pyiceberg.schema import assign_fresh_schema_ids

        return assign_fresh_schema_ids(PyIcebergCatalog._convert_schema_if_needed(self.shape.schema))

    def _partition_spec(self, schema: Schema) -> PartitionSpec:
        from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
        from pyiceberg.transforms import DayTransform, IdentityTransform

        if self.shape.partitioning is Partitioning.NONE:
            return UNPARTITIONED_PARTITION_SPEC
        topic, timestamp = schema.find_field(TOPIC), schema.find_field("timestamp")
        return PartitionSpec(
            PartitionField(topic.field_id, 1000, IdentityTransform(), TOPIC),
            PartitionField(timestamp.field_id, 1001, DayTransform(), "timestamp_day"),
        )

    def _opaque_columns(self, schema: Schema) -> list[str]:
        """Return the properties that turn off the bounds of opaque columns and of the columns within them."""
        names = (schema.find_column_name(number) for number in sorted(schema.field_ids))
        return [METRICS_PROPERTY + name for name in names if name and name.partition(".")[0] in self.shape.opaque]

    def _check(self, table: PyIcebergTable) -> None:
        found = _columns(table.schema())
        wanted = _columns(self._schema(self._catalog()))
        if differing := sorted(name for name, _ in found ^ wanted):
            names = ", ".join(dict.fromkeys(differing))
            raise TableError(f"{self.identifier} has other columns: {names} differ")


def _columns(schema: Schema) -> set[tuple[str, str]]:
    """Return names and types of the columns, without the ids."""
    return {(field.name, re.sub(r"\b\d+: ", "", str(field.field_type))) for field in schema.fields}


def _first_line(error: Any) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
