"""Records as lines of JSON: what is printed is read back, and what is no record is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.records.batch import TimestampType
from kafka_wire.records.record import Record
from trio_broker.cli.record_json import parse_record, record_line
from trio_broker.client.producer.record_producer import ProducerRecord
from trio_broker.common.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 3)

anything = st.one_of(st.none(), st.binary(), st.text().map(str.encode))
header_keys = st.binary().map(lambda key: key.decode("utf-8", "surrogateescape"))


def test_a_line_has_all_there_is_to_tell():
    record = Record(42, 1_700_000_000_000, b"k", "größe".encode(), (("h", b"1"), ("h", None)))
    line = record_line(ORDERS, record, TimestampType.CREATE_TIME)
    assert line.isascii()
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_000,
        "timestamp_type": "create",
        "key": "k",
        "value": "größe",
        "headers": [{"key": "h", "value": "1"}, {"key": "h", "value": None}],
    }


def test_bytes_that_are_not_utf_8_are_in_base64():
    row = json.loads(
        record_line(ORDERS, Record(0, -1, b"\xff", None, (("\udcfe", b"\xfd"),)), TimestampType.LOG_APPEND_TIME)
    )
    assert row["key_base64"] == "/w=="
    assert "key" not in row
    assert (row["value"], row["timestamp"], row["timestamp_type"]) == (None, None, "append")
    assert row["headers"] == [{"key_base64": "/g==", "value_base64": "/Q=="}]


@given(
    key=anything,
    value=anything,
    headers=st.lists(st.tuples(header_keys, anything), max_size=3).map(tuple),
    timestamp=st.integers(0, (1 << 63) - 1),
)
def test_what_is_printed_is_read_back_to_the_byte(key, value, headers, timestamp):
    line = record_line(ORDERS, Record(7, timestamp, key, value, headers), TimestampType.CREATE_TIME)
    assert parse_record(line.encode()) == ProducerRecord(key, value, headers, 3, timestamp)


def test_a_value_is_enough():
    assert parse_record(b'{"value": "v"}') == ProducerRecord(None, b"v")
    assert parse_record(b'{"value": null}') == ProducerRecord(None, None)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "it is not JSON"),
        (b"{", "it is not JSON"),
        (b"\xff", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "it is not a JSON object"),
        (b"{}", "it has no 'value'; null stands for a tombstone"),
        (b'{"valu": "v"}', "a record has no field 'valu'"),
        (b'{"value": 1}', "'value' is neither a string nor null"),
        (b'{"value": {"a": 1}}', "'value' is neither a string nor null"),
        (b'{"value": "a", "value_base64": "YQ=="}', "it has both 'value' and 'value_base64'"),
        (b'{"value_base64": "a"}', "'value_base64' is not base64"),
        (b'{"value_base64": "\xc3\xbc"}', "'value_base64' is not base64"),
        (b'{"value": "\\ud800"}', "'value' is no Unicode text; 'value_base64' takes any bytes"),
        (b'{"value": "v", "partition": -1}', "'partition' is not a whole number from 0 on"),
        (b'{"value": "v", "partition": true}', "'partition' is not a whole number from 0 on"),
        (b'{"value": "v", "partition": 2147483648}', "'partition' is not a whole number from 0 on"),
        (b'{"value": "v", "timestamp": 1.5}', "'timestamp' is not a whole number from 0 on"),
        (b'{"value": "v", "headers": {"a": "b"}}', "'headers' is not a list of objects"),
        (b'{"value": "v", "headers": ["a"]}', "'headers' is not a list of objects"),
        (b'{"value": "v", "headers": [{"value": "b"}]}', "a header has no 'key'"),
        (b'{"value": "v", "headers": [{"key": "a", "val": "b"}]}', "a header has no field 'val'"),
    ],
)
def test_what_is_no_record_is_refused_in_words(line: bytes, reason: str):
    with pytest.raises(ValueError, match=reason):
        parse_record(line)


@given(st.binary())
def test_any_line_is_read_or_refused(line: bytes):
    try:
        parse_record(line)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017 (most lines are refused, and some are not)
