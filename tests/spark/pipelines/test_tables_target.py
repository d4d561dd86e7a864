"""Tables as people name them, and what keeps one from being written."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_broker.spark.errors import OptionError, SparkJobError
from trio_broker.spark.pipelines.etl.ddl import parse_ddl
from trio_broker.spark.tables import target as target_module
from trio_broker.spark.tables.table import TableError, TableShape
from trio_broker.spark.tables.target import Format, IcebergCatalog, Target, parse_target

SHAPE = TableShape(parse_ddl("id bigint, name string").arrow_schema())
OTHER = TableShape(parse_ddl("id int, name string, more double").arrow_schema())


@pytest.mark.parametrize("text", ["parquet:/data/orders", "delta:orders", "parquet:C:odd:name"])
def test_a_table_prints_as_it_is_written(text: str):
    assert str(parse_target(text)) == text


@pytest.mark.parametrize("text", ["", "orders", "csv:orders", "parquet:", "parquet: ", "/data/orders"])
def test_what_is_no_table_is_reported(text: str):
    with pytest.raises(OptionError, match=r"option 'to': .* is not a table; one is parquet:DIR, delta:DIR or iceberg:"):
        parse_target(text)


def test_an_iceberg_table_needs_a_namespace_and_a_catalog():
    with pytest.raises(OptionError, match="has no namespace"):
        parse_target("iceberg:orders", IcebergCatalog())
    with pytest.raises(OptionError, match="needs --warehouse DIR, or --catalog NAME"):
        parse_target("iceberg:lake.orders")


def test_dead_letters_lie_beside_the_table():
    assert str(parse_target("parquet:/data/orders/").dead_letters) == "parquet:/data/orders_dead_letters"
    catalog = IcebergCatalog("prod")
    assert parse_target("iceberg:lake.orders", catalog).dead_letters == Target(
        Format.ICEBERG, "lake.orders_dead_letters", catalog
    )


def test_properties_of_a_catalog_come_on_top_of_those_of_a_warehouse(tmp_path: Path):
    catalog = IcebergCatalog(properties={"uri": "sqlite:////elsewhere.db"}, warehouse=tmp_path)
    assert catalog.all_properties() == {
        "type": "sql",
        "uri": "sqlite:////elsewhere.db",
        "warehouse": tmp_path.as_uri(),
    }


def test_a_package_that_is_missing_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(target_module, "find_spec", lambda name: None)
    with pytest.raises(SparkJobError, match=r"deltalake is not installed: pip install 'trio-broker\[delta\]'"):
        parse_target("delta:orders").table(SHAPE)


@pytest.mark.parametrize("format", [Format.DELTA, Format.ICEBERG])
def test_a_table_with_other_columns_is_refused(tmp_path: Path, format: Format):
    name = "lake.orders" if format is Format.ICEBERG else str(tmp_path / "orders")
    target = Target(format, name, IcebergCatalog(warehouse=tmp_path / "warehouse"))
    target.table(SHAPE).open("job", "run")
    target.table(SHAPE).open("another job", "run")
    with pytest.raises(TableError, match="has other columns: id, more differ"):
        target.table(OTHER).open("job", "run")


@pytest.mark.parametrize("format", [Format.PARQUET, Format.DELTA])
def test_a_place_that_cannot_be_written_to_is_reported(tmp_path: Path, format: Format):
    (tmp_path / "file").write_text("")
    with pytest.raises(TableError, match="file"):
        Target(format, str(tmp_path / "file" / "table")).table(SHAPE).open("job", "run")


def test_a_warehouse_that_cannot_be_made_is_reported(tmp_path: Path):
    (tmp_path / "file").write_text("")
    catalog = IcebergCatalog(warehouse=tmp_path / "file" / "warehouse")
    with pytest.raises(TableError, match="Not a directory"):
        Target(Format.ICEBERG, "lake.orders", catalog).table(SHAPE)


def test_a_catalog_that_nobody_knows_is_reported():
    catalog = IcebergCatalog("nowhere", {"type": "rest", "uri": "http://127.0.0.1:1"})
    with pytest.raises(TableError, match=r"lake\.orders: "):
        Target(Format.ICEBERG, "lake.orders", catalog).table(SHAPE).open("job", "run")
