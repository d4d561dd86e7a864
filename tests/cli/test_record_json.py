"""Lines that ``produce --json`` reads, and what it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_broker.cli.record_json import parse_record
from trio_broker.client.producer.record_producer import ProducerRecord


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
        (b'{"value": "a", "value_base64": "YQ=="}', "'value' and 'value_base64' are both given"),
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
