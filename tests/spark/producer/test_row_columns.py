from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.spark.producer.arrow_rows import HEADERS_TYPE
from trio_broker.spark.producer.errors import UnwritableRow
from trio_broker.spark.producer.row_columns import NO_PARTITION, RowColumns, read_columns, varint_bytes

NOW_MS = 1_700_000_000_123
TEXT = ["ä", None, "", "long enough not to be in a view itself"]
BYTES = [None if text is None else text.encode() for text in TEXT]


def read(option: str | None = "orders", /, *, first_row: int = 0, **columns: pa.Array) -> RowColumns:
    columns = {"value": pa.nulls(len(next(iter(columns.values()))), pa.binary()), **columns}
    return read_columns(pa.record_batch(columns), topic=option, now_ms=NOW_MS, first_row=first_row)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(BYTES, pa.binary()),
        pa.array(BYTES, pa.large_binary()),
        pa.array(BYTES, pa.binary_view()),
        pa.array(TEXT, pa.string()),
        pa.array(TEXT, pa.large_string()),
        pa.array(TEXT, pa.string_view()),
        pa.array(TEXT, pa.string()).dictionary_encode(),
        pa.array(["before", *TEXT, "behind"], pa.string()).slice(1, 4),
        pa.array([b"before", *BYTES], pa.binary()).slice(1),
    ],
    ids=lambda column: str(column.type).split("<")[0],
)
def test_text_and_bytes_of_all_kinds_are_bytes(column: pa.Array):
    columns = read(key=column)

    assert [columns.key[row] for row in range(len(columns))] == BYTES


def test_a_record_without_key_or_value_has_null_lengths():
    columns = read(value=pa.array([None, b""], pa.binary()))

    assert columns.value.lengths.tolist() == [-1, 0]
    assert columns.key.lengths.tolist() == [-1, -1]


def test_no_rows_are_no_rows():
    columns = read(
        None, topic=pa.array([], pa.string()), headers=pa.array([], HEADERS_TYPE), partition=pa.array([], pa.int32())
    )

    assert len(columns) == 0
    assert columns.record_bytes.tolist() == []


def test_the_value_column_is_required():
    with pytest.raises(UnwritableRow, match="there is no column 'value'"):
        read_columns(pa.record_batch({"key": pa.array([b"k"])}), topic="orders", now_ms=0)


@pytest.mark.parametrize(
    ("name", "column", "expected"),
    [
        ("value", pa.array([1]), "column 'value' is of type int64; it must be string or binary"),
        ("key", pa.array([True]), "column 'key' is of type bool; it must be string or binary"),
        ("partition", pa.array([1], pa.int64()), "column 'partition' is of type int64; it must be int"),
        ("timestamp", pa.array([1], pa.int64()), "column 'timestamp' is of type int64; it must be timestamp or double"),
        ("headers", pa.array(["h"]), "column 'headers' is of type string; it must be array<struct<key:string,value"),
        ("headers", pa.array([[{"name": "a", "value": b""}]]), "column 'headers' is of type list"),
    ],
)
def test_columns_of_other_types_are_refused_by_name(name: str, column: pa.Array, expected: str):
    with pytest.raises(UnwritableRow) as raised:
        read(**{name: column})
    assert str(raised.value).startswith(expected)


def test_other_columns_are_left_alone():
    assert len(read(offset=pa.array([5]), payload=pa.array([[1.5]]))) == 1


def test_the_first_of_two_columns_of_one_name_counts():
    batch = pa.RecordBatch.from_arrays([pa.array([b"first"]), pa.array([b"second"])], ["value", "value"])

    assert read_columns(batch, topic="orders", now_ms=0).value[0] == b"first"


# --- Topics ---


def test_the_option_beats_the_column():
    columns = read("orders", topic=pa.array(["other", None]))

    assert columns.topic_names == ["orders"]
    assert columns.topics.tolist() == [0, 0]


def test_without_the_option_each_row_names_its_topic():
    columns = read(None, topic=pa.array(["a", "b", "a"]))

    assert [columns.topic_names[index] for index in columns.topics] == ["a", "b", "a"]


def test_without_option_and_column_there_is_no_topic():
    with pytest.raises(UnwritableRow, match="neither an option 'topic' nor a column 'topic'"):
        read(None, key=pa.array([b"k"]))


def test_a_null_topic_is_an_error_that_names_the_row():
    with pytest.raises(UnwritableRow, match="column 'topic' of row 102 of the task is null; the option 'topic' would"):
        read(None, topic=pa.array(["a", "b", None]), first_row=100)


# --- Numbers ---


def test_a_null_partition_is_to_be_chosen():
    assert read(partition=pa.array([3, None, 0], pa.int32())).partitions.tolist() == [3, NO_PARTITION, 0]


def test_a_negative_partition_is_an_error():
    with pytest.raises(UnwritableRow, match=r"column 'partition' of row 1 of the task is negative \(-2\)"):
        read(partition=pa.array([3, -2], pa.int32()))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_timestamps_of_every_unit_become_milliseconds(unit: str, zone: str | None):
    seconds = pa.array([1_600_000_000, None], pa.timestamp("s", zone))

    assert read(timestamp=seconds.cast(pa.timestamp(unit, zone))).timestamps.tolist() == [1_600_000_000_000, NOW_MS]


def test_what_is_finer_than_a_millisecond_is_cut_off():
    column = pa.array([1_600_000_000_123_999, 999], pa.int64()).cast(pa.timestamp("us", "UTC"))

    assert read(timestamp=column).timestamps.tolist() == [1_600_000_000_123, 0]


def test_a_double_is_seconds_as_spark_casts_them():
    column = pa.array([1_600_000_000.25, None, float("nan"), float("inf")], pa.float64())

    assert read(timestamp=column).timestamps.tolist() == [1_600_000_000_250, NOW_MS, NOW_MS, NOW_MS]


def test_without_a_timestamp_it_is_now():
    assert read(key=pa.array([b"k"])).timestamps.tolist() == [NOW_MS]


def test_a_record_may_be_without_timestamp_but_not_before_1970():
    column = pa.array([-1], pa.int64()).cast(pa.timestamp("ms"))
    assert read(timestamp=column).timestamps.tolist() == [-1]

    with pytest.raises(UnwritableRow, match=r"column 'timestamp' of row 0 of the task is before 1970 \(-2\)"):
        read(timestamp=pa.array([-2], pa.int64()).cast(pa.timestamp("ms")))


# --- Headers ---


def test_headers_of_a_slice_are_those_of_its_rows():
    lists = [[{"key": "a", "value": b"1"}], None, [], [{"key": "b", "value": None}, {"key": "c", "value": b"3"}]]
    columns = read(headers=pa.array(lists, HEADERS_TYPE).slice(1))
    found = columns.headers
    assert found is not None

    assert found.counts.tolist() == [0, 0, 2]
    places = range(int(found.starts[2]), int(found.starts[2]) + 2)
    assert [(found.keys[place], found.values[place]) for place in places] == [(b"b", None), (b"c", b"3")]


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"v"}])
def test_a_header_without_key_is_an_error(header: object):
    with pytest.raises(UnwritableRow, match="column 'headers' of row 1 of the task has a header without a key"):
        read(headers=pa.array([[], [header]], HEADERS_TYPE))


def test_headers_can_be_left_out():
    batch = pa.record_batch({"value": pa.array([b"v"]), "headers": pa.array([[{"key": "a", "value": b"1"}]])})

    assert read_columns(batch, topic="orders", now_ms=0, include_headers=False).headers is None


# --- Sizes ---


def test_lengths_take_what_their_varints_take():
    lengths = np.array([-1, 0, 63, 64, 8191, 8192, (1 << 20) - 1, 1 << 20, (1 << 27) - 1, 1 << 27])

    assert varint_bytes(lengths).tolist() == [1, 1, 1, 2, 2, 3, 3, 4, 4, 5]
