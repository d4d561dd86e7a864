"""What is in a table, read with the usual tools."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from trio_broker.spark.tables.target import Format, IcebergCatalog, Target

Rows = list[tuple[str, int, int, bytes | None]]


def target_in(directory: Path, format: Format, name: str = "table") -> Target:
    """A table below a directory."""
    if format is Format.ICEBERG:
        return Target(format, f"lake.{name}", IcebergCatalog(warehouse=directory / "warehouse"))
    return Target(format, str(directory / name))


def read_table(target: Target) -> pa.Table:
    """All rows of a table, also of one that does not exist yet."""
    match target.format:
        case Format.PARQUET:
            return ds.dataset(target.name, format="parquet", partitioning="hive").to_table()
        case Format.DELTA:
            from deltalake import DeltaTable

            files = DeltaTable(target.name)
            return ds.dataset(files.file_uris(), partitioning="hive", partition_base_dir=target.name).to_table()
        case Format.ICEBERG:
            from pyiceberg.catalog import load_catalog

            assert target.catalog is not None
            catalog = load_catalog(target.catalog.name, **target.catalog.all_properties())
            return catalog.load_table(target.name).scan().to_arrow()


def rows_of(target: Target) -> Rows:
    """Topic, partition, offset and value of every row, sorted, those that are there twice twice."""
    table = read_table(target)
    if table.num_rows == 0:
        return []
    columns = [table.column(name).to_pylist() for name in ("topic", "partition", "offset", "value")]
    return sorted(zip(*columns, strict=True))
