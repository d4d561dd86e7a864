"""Columns as SQL writes them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from trio_broker.spark.pipelines.etl.column_types import (
    ArrayType,
    AtomicType,
    DecimalType,
    MapType,
    StructField,
    StructType,
)
from trio_broker.spark.pipelines.etl.ddl import parse_ddl

EVERYTHING = """
    id BIGINT NOT NULL COMMENT 'unique, they say', `the name` string, price Decimal(10,2), plain DECIMAL,
    tags array<string>, by_day map<string, array<double>>, shipped struct<at: timestamp, `to`: string NOT NULL>,
    a boolean, b tinyint, c smallint, d int, e float, f double, g binary, h date, i timestamp_ntz
"""


def test_columns_are_read_with_their_types():
    assert parse_ddl("id bigint not null, at timestamp") == StructType(
        (StructField("id", AtomicType.BIGINT, nullable=False), StructField("at", AtomicType.TIMESTAMP))
    )


def test_types_lie_within_types():
    assert parse_ddl("m map<string,array<struct<x:decimal(5,1)>>>").fields[0].type == MapType(
        ArrayType(StructType((StructField("x", DecimalType(5, 1)),)))
    )


@pytest.mark.parametrize(("alias", "name"), [("long", "BIGINT"), ("Integer", "INT"), ("timestamp_ltz", "TIMESTAMP")])
def test_types_have_other_names(alias: str, name: str):
    assert parse_ddl(f"x {alias}").columns_ddl() == f"`x` {name}"


def test_columns_are_written_as_they_can_be_read_again():
    columns = parse_ddl(EVERYTHING)
    assert parse_ddl(columns.columns_ddl()) == columns


def test_a_quoted_name_is_no_keyword():
    assert parse_ddl("`not` int, `a``b` int").fields == (
        StructField("not", AtomicType.INT),
        StructField("a`b", AtomicType.INT),
    )


def test_columns_have_arrow_types():
    schema = parse_ddl(EVERYTHING).arrow_schema()
    assert schema.field("id").type == pa.int64()
    assert schema.field("price").type == pa.decimal128(10, 2)
    assert schema.field("by_day").type == pa.map_(pa.string(), pa.list_(pa.field("element", pa.float64())))
    assert schema.field("shipped").type == pa.struct([("at", pa.timestamp("us", tz="UTC")), ("to", pa.string())])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a name is expected"),
        ("id", "a type is expected at position 2, not the end"),
        ("id bigint,", "a name is expected"),
        ("id bigint name string", "',' is expected at position 10, not 'name'"),
        ("id number", "there is no type 'number'; there are BOOLEAN"),
        ("id bigint, ID int", "'ID' is there twice"),
        ("id decimal(39, 1)", r"there is no DECIMAL\(39, 1\)"),
        ("id decimal(2, 3)", r"there is no DECIMAL\(2, 3\)"),
        ("id map<int, string>", "a map has STRING keys in JSON, not INT"),
        ("id array<int", "'>' is expected"),
        ("id int not", "NULL is expected"),
        ("id int; drop", "',' is expected|cannot be read from '; drop' on"),
        ("id " + "array<" * 60 + "int" + ">" * 60, "more than 50 types within each other"),
    ],
)
def test_what_is_no_list_of_columns_is_reported(text: str, message: str):
    with pytest.raises(ValueError, match=message):
        parse_ddl(text)


def test_columns_are_those_that_spark_knows():
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(parse_ddl("id bigint, tags array<string>, m map<string,double>").arrow_schema())
    assert schema.simpleString() == "struct<id:bigint,tags:array<string>,m:map<string,double>>"
