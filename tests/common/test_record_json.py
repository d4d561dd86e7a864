"""The one form of records as lines of JSON, as the commands and the admin app write and read it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_admin.messages.export import show_lines
from kafka_wire.records.batch import TimestampType
from kafka_wire.records.record import Record
from trio_broker.cli.consume import chosen_line
from trio_broker.cli.record_json import parse_record
from trio_broker.client.producer.record_producer import ProducerRecord
from trio_broker.common.record_json import record_line
from trio_broker.common.topic_partition import TopicPartition

LINE_OF_CONSUME = chosen_line(None, None, None, shows_null=False, as_json=True)

anything = st.one_of(st.none(), st.binary(), st.text().map(str.encode))
header_keys = st.binary().map(lambda key: key.decode("utf-8", "surrogateescape"))


@st.composite
def records(draw: st.DrawFn) -> Record:
    headers = draw(st.lists(st.tuples(header_keys, anything), max_size=3))
    return Record(7, draw(st.integers(-2, (1 << 63) - 1)), draw(anything), draw(anything), tuple(headers))


def test_a_line_has_all_there_is_to_tell():
    record = Record(42, 1_700_000_000_000, b"k", "größe".encode(), (("h", b"1"), ("h", None)))
    line = record_line("orders", 3, record, is_append_time=False)
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
    record = Record(0, -1, b"\xff", None, (("\udcfe", b"\xfd"),))
    row = json.loads(record_line("orders", 3, record, is_append_time=True))
    assert row["key_base64"] == "/w=="
    assert "key" not in row
    assert (row["value"], row["timestamp"], row["timestamp_type"]) == (None, None, "append")
    assert row["headers"] == [{"key_base64": "/g==", "value_base64": "/Q=="}]


@given(record=records(), timestamp_type=st.sampled_from(TimestampType))
def test_the_export_of_the_page_is_what_consume_prints_and_produce_reads_it(record, timestamp_type):
    printed = LINE_OF_CONSUME(TopicPartition("orders", 3), record, timestamp_type)
    variables: Any = SimpleNamespace(partition=3, record=record)
    batch: Any = SimpleNamespace(timestamp_type=timestamp_type.name.lower())
    assert show_lines("orders")(variables, batch).row.encode() == printed
    timestamp = None if record.timestamp == -1 else record.timestamp
    assert json.loads(printed)["timestamp"] == timestamp
    if record.timestamp >= -1:
        assert parse_record(printed) == ProducerRecord(record.key, record.value, record.headers, 3, timestamp)
    else:
        with pytest.raises(ValueError, match="'timestamp' is not a whole number from 0 on"):
            parse_record(printed)
