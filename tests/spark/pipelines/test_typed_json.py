"""Rows out of JSON: what fits a type, and what is said of what does not."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.spark.pipelines.etl.column_types import AtomicType
from trio_broker.spark.pipelines.etl.ddl import parse_ddl
from trio_broker.spark.pipelines.etl.typed_json import RowReader


def read_one(type_name: str, json_text: str) -> Any:
    """The value of a column of that type, or the reason why there is none."""
    found = RowReader(parse_ddl(f"x {type_name}")).read([b'{"x": %s}' % json_text.encode()])
    return found.reasons[0] if found.reasons else found.batch.column(0)[0].as_py()


@pytest.mark.parametrize(
    ("type_name", "json_text", "value"),
    [
        ("boolean", "true", True),
        ("tinyint", "-128", -128),
        ("bigint", "9223372036854775807", 2**63 - 1),
        ("float", "1.5", 1.5),
        ("double", "1", 1.0),
        ("double", "-1e300", -1e300),
        ("decimal(10, 2)", "0.10", decimal.Decimal("0.10")),
        ("decimal(10, 2)", '"12345678.90"', decimal.Decimal("12345678.90")),
        ("decimal(38, 0)", "9" * 38, decimal.Decimal("9" * 38)),
        ("decimal(5, 2)", "1e2", decimal.Decimal("100.00")),
        ("string", '"\\u00e9\\ud83d\\ude00"', "é😀"),
        ("binary", '"aGk="', b"hi"),
        ("date", '"2026-01-31"', datetime.date(2026, 1, 31)),
        ("timestamp", '"2026-01-31T12:00:00.123456+02:00"', "2026-01-31T10:00:00.123456+00:00"),
        ("timestamp", '"2026-01-31 12:00:00Z"', "2026-01-31T12:00:00+00:00"),
        ("timestamp", '"2026-01-31"', "2026-01-31T00:00:00+00:00"),
        ("timestamp_ntz", '"2026-01-31T12:00:00"', "2026-01-31T12:00:00"),
        ("array<int>", "[1, null, 3]", [1, None, 3]),
        ("map<string,int>", '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        ("struct<a: int, b: string>", '{"a": 1, "c": 2}', {"a": 1, "b": None}),
        ("int", "null", None),
    ],
)
def test_what_fits_is_taken(type_name: str, json_text: str, value: Any):
    found = read_one(type_name, json_text)
    assert (found.isoformat() if isinstance(found, datetime.datetime) else found) == value


@pytest.mark.parametrize(
    ("type_name", "json_text", "reason"),
    [
        ("boolean", "1", "x: BOOLEAN is expected, not 1"),
        ("boolean", '"true"', 'x: BOOLEAN is expected, not "true"'),
        ("tinyint", "128", "x: TINYINT is expected, not 128"),
        ("bigint", "9223372036854775808", "x: BIGINT is expected, not 9223372036854775808"),
        ("bigint", "1.0", "x: BIGINT is expected, not 1.0"),
        ("bigint", '"1"', 'x: BIGINT is expected, not "1"'),
        ("bigint", "true", "x: BIGINT is expected, not true"),
        ("float", "1e39", "x: FLOAT is expected, not 1e+39"),
        ("double", "1e999", "x: DOUBLE is expected, not inf"),
        ("double", "1" + "0" * 400, "x: DOUBLE is expected, not 1000000000000000000000000000000000000000…"),
        ("decimal(5, 2)", "1.234", "x: DECIMAL(5, 2) is expected, not 1.234"),
        ("decimal(5, 2)", "1000", "x: DECIMAL(5, 2) is expected, not 1000"),
        ("decimal(5, 2)", "1e999999999", "x: DECIMAL(5, 2) is expected, not 1E+999999999"),
        ("decimal(5, 2)", '"NaN"', 'x: DECIMAL(5, 2) is expected, not "NaN"'),
        ("decimal(5, 2)", '"one"', 'x: DECIMAL(5, 2) is expected, not "one"'),
        ("string", "1", "x: STRING is expected, not 1"),
        ("string", "{}", "x: STRING is expected, not an object"),
        ("binary", '"hi!"', 'x: BINARY is expected, as base64, not "hi!"'),
        ("date", '"31.1.2026"', 'x: DATE is expected, not "31.1.2026"'),
        ("date", "20260131", "x: DATE is expected, not 20260131"),
        ("timestamp", "1700000000", "x: TIMESTAMP is expected, not 1700000000"),
        ("timestamp", '"0001-01-01T00:00:00+14:00"', 'x: TIMESTAMP is expected, not "0001-01-01T00:00:00+14:00"'),
        ("timestamp_ntz", '"2026-01-31T12:00Z"', 'x: TIMESTAMP_NTZ is expected, not "2026-01-31T12:00Z"'),
        ("array<int>", "{}", "x: ARRAY<INT> is expected, not an object"),
        ("array<array<int>>", '[[1], [2, "3"]]', 'x[1][1]: INT is expected, not "3"'),
        ("map<string,int>", '{"a": "b"}', 'x."a": INT is expected, not "b"'),
        ("struct<a: struct<b: int not null>>", '{"a": {}}', "x.a.b: is missing or null, and must not be"),
        ("int not null", "null", "x: is missing or null, and must not be"),
        ("double", "NaN", "not JSON: NaN is not JSON"),
        ("string", '"\\ud800"', "a string has half of a surrogate pair"),
    ],
)
def test_what_does_not_fit_is_reported_with_the_way_to_it(type_name: str, json_text: str, reason: str):
    assert read_one(type_name, json_text) == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "the value is null"),
        (b"", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b'{"x": 1} 2', "not JSON: Extra data: line 1 column 10 (char 9)"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b'\xff\xfe{\x00"\x00', "not UTF-8 at byte 0"),
        (b"[1]", "a JSON object is expected, not a list"),
        (b"null", "a JSON object is expected, not null"),
        (b'"text"', 'a JSON object is expected, not "text"'),
        (b"[" * 200_000, "not JSON: too many values within each other"),
    ],
)
def test_what_is_no_object_is_reported(text: bytes | None, reason: str):
    assert RowReader(parse_ddl("x int")).read([text]).reasons == [reason]


def test_a_number_with_thousands_of_digits_is_no_row_and_takes_no_time():
    assert RowReader(parse_ddl("x bigint")).read([b'{"x": ' + b"1" * 100_000 + b"}"]).batch.num_rows == 0


def test_rows_and_the_rest_keep_their_places():
    found = RowReader(parse_ddl("x int")).read([b'{"x": 1}', None, b"{}", b"?", b'{"x": 4}'])
    assert (found.valid, found.invalid) == ([0, 2, 4], [1, 3])
    assert found.batch.column(0).to_pylist() == [1, None, 4]


def test_names_matter_with_their_case():
    assert RowReader(parse_ddl("x int")).read([b'{"X": 1}']).batch.column(0).to_pylist() == [None]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcx"), inner, max_size=3),
    max_leaves=8,
)
SCHEMA = "a bigint, b array<double>, c struct<a: string, x: map<string, int>>, x decimal(9, 3)"


@given(st.lists(st.dictionaries(st.sampled_from("abcx"), anything).map(json.dumps) | st.text(max_size=9), max_size=5))
def test_whatever_comes_each_text_is_a_row_or_has_a_reason(texts: list[str]):
    found = RowReader(parse_ddl(SCHEMA)).read([text.encode("utf-8", "surrogatepass") for text in texts])
    assert sorted([*found.valid, *found.invalid]) == list(range(len(texts)))
    assert found.batch.num_rows == len(found.valid)
    assert len(found.reasons) == len(found.invalid)
    pa.array(found.reasons, pa.string())
    found.batch.validate(full=True)


@pytest.mark.parametrize("atomic", list(AtomicType), ids=lambda atomic: atomic.name)
def test_a_type_is_itself_again_in_another_process(atomic: AtomicType) -> None:
    """Spark sends the conversion of an ETL to its tasks pickled."""
    assert pickle.loads(pickle.dumps(atomic)) is atomic
