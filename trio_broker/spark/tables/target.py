"""The names of tables: ``parquet:DIR``, ``delta:DIR``, ``iceberg:NAMESPACE.TABLE``.

An Iceberg table is found by its catalog: one that pyiceberg is configured for, by name, or a database file in a
warehouse directory, which is created on first use.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import attrs

from trio_broker.spark.errors import OptionError, SparkJobError
from trio_broker.spark.tables.table import Table, TableError, TableShape

DEAD_LETTERS: Final = "_dead_letters"
"""The suffix of the name of a table's dead letters."""

CATALOG_FILE: Final = "catalog.db"
"""The catalog's SQLite database in a warehouse directory."""

LOCAL_CATALOG: Final = "trio_broker"
"""The name of a warehouse directory's catalog; it is stored in the database."""


class Format(Enum):
    """The format of a table."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


EXTRAS: Final = {Format.DELTA: ("deltalake", "delta"), Format.ICEBERG: ("pyiceberg", "iceberg")}
"""The package that a format needs, and the extra that installs it."""


@attrs.frozen
class IcebergCatalog:
    """A catalog by name, with further properties; or a warehouse directory."""

    name: str = LOCAL_CATALOG
    properties: Mapping[str, str] = attrs.field(factory=dict)
    warehouse: Path | None = None

    def all_properties(self) -> dict[str, str]:
        """Return the properties with which pyiceberg finds it."""
        if self.warehouse is None:
            return dict(self.properties)
        directory = self.warehouse.absolute()
        local = {
            "type": "sql",
            "uri": f"sqlite:///{directory / CATALOG_FILE}",
            "warehouse": directory.as_uri(),
        }
        return {**local, **self.properties}

    def make_warehouse(self) -> None:
        """Create the warehouse directory, if there is one: SQLite creates files only.

        Raises:
            TableError: it cannot be created.
        """
        try:
            if self.warehouse is not None:
                self.warehouse.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise TableError(f"{self.warehouse}: {error.strerror}") from error


@attrs.frozen
class Target:
    """A table to write. Its text is that of the command line."""

    format: Format
    name: str
    catalog: IcebergCatalog | None = None

    def __str__(self) -> str:
        return f"{self.format.value}:{self.name}"

    @property
    def dead_letters(self) -> Target:
        """The table for records that do not fit this one."""
        return attrs.evolve(self, name=self.name.rstrip("/") + DEAD_LETTERS)

    @property
    def directory(self) -> Path | None:
        """The directory of the table; None for Iceberg."""
        return None if self.format is Format.ICEBERG else Path(self.name)

    def require_package(self) -> None:
        """Make sure that the package for the table's format is installed.

        Raises:
            SparkJobError: it is not; the text names the extra that installs it.
        """
        if self.format in EXTRAS:
            package, extra = EXTRAS[self.format]
            if find_spec(package) is None:
                raise SparkJobError(f"{self}: {package} is not installed: pip install 'trio-broker[{extra}]'")

    def table(self, shape: TableShape) -> Table:
        """Return the table, not yet opened.

        Raises:
            SparkJobError: as ``require_package``.
        """
        self.require_package()
        match self.format:
            case Format.PARQUET:
                from trio_broker.spark.tables.parquet_directory import ParquetDirectory

                return ParquetDirectory(Path(self.name), shape)
            case Format.DELTA:
                from trio_broker.spark.tables.delta import DeltaTable

                return DeltaTable(Path(self.name), shape)
            case Format.ICEBERG:
                from trio_broker.spark.tables.iceberg import IcebergTable

                assert self.catalog is not None
                self.catalog.make_warehouse()
                return IcebergTable(self.catalog.name, self.catalog.all_properties(), self.name, shape)


def parse_target(text: str, catalog: IcebergCatalog | None = None, option: str = "to") -> Target:
    """Read ``FORMAT:NAME``.

    Raises:
        OptionError: the format is unknown, there is no name, or an Iceberg table has no namespace or no catalog.
    """
    word, separator, name = text.partition(":")
    formats = {each.value: each for each in Format}
    if not separator or word not in formats or not name.strip():
        raise OptionError(option, f"{text!r} is not a table; one is parquet:DIR, delta:DIR or iceberg:NAMESPACE.TABLE")
    target = Target(formats[word], name.strip())
    if target.format is not Format.ICEBERG:
        return target
    if "." not in target.name.strip("."):
        raise OptionError(option, f"{target.name!r} has no namespace; an Iceberg table is iceberg:NAMESPACE.TABLE")
    if catalog is None:
        raise OptionError(option, "an Iceberg table needs --warehouse DIR, or --catalog NAME for one you have")
    return attrs.evolve(target, catalog=catalog)
