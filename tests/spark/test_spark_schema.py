"""The columns of a row and the schemas that users give."""

from __future__ import annotations

import attrs
import pyarrow as pa
import pytest

from trio_broker.spark import schema
from trio_broker.spark.errors import OptionError


@attrs.frozen
class Type:
    """As a pyspark ``DataType`` answers."""

    text: str

    def simpleString(self) -> str:
        return self.text


@attrs.frozen
class Field:
    """As a pyspark ``StructField`` answers."""

    name: str
    dataType: Type
    nullable: bool = True


def fields(*names: str) -> list[Field]:
    return [Field(name, Type(schema.SPARK_TYPES[name])) for name in names]


def test_headers_are_a_column_only_when_asked_for():
    assert schema.default_columns(include_headers=True) == schema.COLUMNS
    assert schema.default_columns(include_headers=False) == schema.COLUMNS[:-1]
    assert "headers" in schema.ddl(include_headers=True)
    assert "headers" not in schema.ddl(include_headers=False)


def test_the_ddl_quotes_names_and_fixes_the_kind_of_timestamp():
    """Some names are keywords, and plain TIMESTAMP means what the session says."""
    assert schema.ddl_of(["offset", "timestamp"]) == "`offset` BIGINT, `timestamp` TIMESTAMP_LTZ"


def test_every_column_has_all_its_types():
    assert tuple(schema.DDL_TYPES) == tuple(schema.SPARK_TYPES) == schema.COLUMNS
    assert tuple(schema.arrow_schema(schema.COLUMNS).names) == schema.COLUMNS


def test_the_arrow_types_are_the_ones_pyspark_makes_of_the_ddl():
    from pyspark.sql import types
    from pyspark.sql.pandas.types import to_arrow_schema

    header = types.StructType(
        [types.StructField("key", types.StringType()), types.StructField("value", types.BinaryType())]
    )
    struct = types.StructType(
        [
            types.StructField("key", types.BinaryType()),
            types.StructField("value", types.BinaryType()),
            types.StructField("topic", types.StringType()),
            types.StructField("partition", types.IntegerType()),
            types.StructField("offset", types.LongType()),
            types.StructField("timestamp", types.TimestampType()),
            types.StructField("timestampType", types.IntegerType()),
            types.StructField("headers", types.ArrayType(header)),
        ]
    )
    assert schema.columns_of(struct) == schema.COLUMNS
    assert schema.arrow_schema(schema.COLUMNS).equals(to_arrow_schema(struct, timezone="UTC"))


def test_an_arrow_schema_follows_the_order_that_is_asked_for():
    assert schema.arrow_schema(["offset", "key"]) == pa.schema([("offset", pa.int64()), ("key", pa.binary())])


def test_a_schema_may_name_some_columns_in_any_order():
    assert schema.columns_of(fields("value", "headers", "topic")) == ("value", "headers", "topic")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([], "names no column; there are key, value"),
        (fields("key", "key"), "names key twice"),
        ([Field("Value", Type("binary"))], "'Value' is no column; did you mean value?"),
        ([Field("timestamptype", Type("int"))], "did you mean timestampType?"),
        ([Field("price", Type("int"))], "'price' is no column; there are key"),
        ([Field("value", Type("string"))], "value is of type binary, not string; cast it"),
        ([Field("partition", Type("bigint"))], "partition is of type int, not bigint"),
        ([Field("timestamp", Type("timestamp_ntz"))], "timestamp is of type timestamp, not timestamp_ntz"),
        ([Field("value", Type("binary"), nullable=False)], "value cannot be NOT NULL"),
    ],
)
def test_a_schema_that_no_row_has_is_refused(given, text):
    with pytest.raises(OptionError) as caught:
        schema.columns_of(given)
    assert text in str(caught.value)
    assert caught.value.option == "schema"
