"""The columns of a row, their types, and the choice among them.

Names, order and types are those of Spark's own Kafka source. Unlike there a job may read some of the columns only, by a
schema or the option ``columns``. Columns that are left out are not decoded, which makes reading up to twice as fast,
since Spark does not inform a Python source which columns a query uses.

Nothing heavy is imported before it is needed: the types are texts here.

Source: Spark's Kafka integration guide; pyspark.sql.pandas.types for the Arrow types.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, Protocol

from trio_broker.common.did_you_mean import CLOSE
from trio_broker.spark.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""All columns of a row, in Spark's order."""

HEADERS: Final = "headers"
"""The column that rows have only on request."""

SCHEMA: Final = "schema"
"""The name of a job's schema in errors."""

DDL_TYPES: Final = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "timestamp": "TIMESTAMP_LTZ",  # plain TIMESTAMP is another type where spark.sql.timestampType says so
    "timestampType": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}

SPARK_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""The ``DataType.simpleString()`` of each column."""


class SparkType(Protocol):
    """The part of a pyspark ``DataType`` that is used here."""

    def simpleString(self) -> str: ...


class SparkField(Protocol):
    """The part of a pyspark ``StructField`` that is used here."""

    @property
    def name(self) -> str: ...

    @property
    def dataType(self) -> SparkType: ...

    @property
    def nullable(self) -> bool: ...


def default_columns(include_headers: bool) -> tuple[str, ...]:
    """Return the columns of a job that names none."""
    return COLUMNS if include_headers else COLUMNS[:-1]


def ddl(include_headers: bool) -> str:
    """Return the schema of a job that names no columns, as Spark's DDL."""
    return ddl_of(default_columns(include_headers))


def ddl_of(columns: Iterable[str]) -> str:
    """Return the schema of ``columns``, as Spark's DDL."""
    return ", ".join(f"`{column}` {DDL_TYPES[column]}" for column in columns)


def check_columns(names: tuple[str, ...], option: str) -> tuple[str, ...]:
    """Return ``names`` if they are columns, each named once.

    Raises:
        OptionError: ``option`` names none, one twice, or something that is no column.
    """
    if not names:
        raise OptionError(option, f"names no column; there are {', '.join(COLUMNS)}")
    for position, name in enumerate(names):
        if name not in COLUMNS:
            raise OptionError(option, f"{name!r} is no column; {_hint(name)}")
        if name in names[:position]:
            raise OptionError(option, f"names {name} twice")
    return names


def columns_of(fields: Iterable[SparkField]) -> tuple[str, ...]:
    """Return the columns that a schema (a ``StructType``) names, in its order.

    Raises:
        OptionError: a field is no column, has another type than the column, or must not be null.
    """
    fields = list(fields)
    names = check_columns(tuple(field.name for field in fields), SCHEMA)
    for field in fields:
        found, wanted = field.dataType.simpleString(), SPARK_TYPES[field.name]
        if found != wanted:
            raise OptionError(SCHEMA, f"{field.name} is of type {wanted}, not {found}; cast it in the query")
        if not field.nullable:
            raise OptionError(SCHEMA, f"{field.name} cannot be NOT NULL: Spark takes a source's columns as nullable")
    return names


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the Arrow schema of ``columns`` as PySpark requires it: nullable, no large types, time in UTC."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
    }
    return pa.schema([pa.field(column, types[column]) for column in columns])


def _hint(name: str) -> str:
    close = get_close_matches(name.lower(), [column.lower() for column in COLUMNS], n=1, cutoff=CLOSE)
    if not close:
        return f"there are {', '.join(COLUMNS)}"
    return f"did you mean {next(column for column in COLUMNS if column.lower() == close[0])}?"
