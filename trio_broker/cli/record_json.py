"""Records as lines of JSON, which ``consume`` prints and ``produce`` reads.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1700000000000, "timestamp_type": "create",
     "key": "k", "value": "v", "headers": [{"key": "trace", "value": "7"}]}

Bytes that are UTF-8 are a string. Other bytes are in ``key_base64`` or ``value_base64``, in place of ``key`` or
``value``. A null key or value is null. A printed line is read back to exactly the same bytes.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from kafka_wire.records.batch import NO_TIMESTAMP, TimestampType
from kafka_wire.records.record import Header, Record
from trio_broker.client.producer.record_producer import ProducerRecord
from trio_broker.common.topic_partition import TopicPartition

BASE64: Final = "_base64"

READ_FIELDS: Final = frozenset({"key", "value", "headers", "partition", "timestamp"})
IGNORED_FIELDS: Final = frozenset({"topic", "offset", "timestamp_type"})
"""The fields that ``consume`` prints and ``produce`` passes over, because the broker decides them."""

TIMESTAMP_TYPES: Final = {TimestampType.CREATE_TIME: "create", TimestampType.LOG_APPEND_TIME: "append"}


# --- Out ---


def record_line(partition: TopicPartition, record: Record, timestamp_type: TimestampType) -> str:
    """Return a record as one line of ASCII, without a line end."""
    row: dict[str, Any] = {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp == NO_TIMESTAMP else record.timestamp,
        "timestamp_type": TIMESTAMP_TYPES[timestamp_type],
    }
    _put(row, "key", record.key)
    _put(row, "value", record.value)
    row["headers"] = [_header_row(*header) for header in record.headers]
    return json.dumps(row, separators=(",", ":"))


def _header_row(key: str, value: bytes | None) -> dict[str, Any]:
    row: dict[str, Any] = {}
    _put(row, "key", key.encode("utf-8", "surrogateescape"))
    _put(row, "value", value)
    return row


def _put(row: dict[str, Any], name: str, data: bytes | None) -> None:
    if data is None:
        row[name] = None
        return
    try:
        row[name] = data.decode()
    except UnicodeDecodeError:
        row[name + BASE64] = base64.b64encode(data).decode()


# --- In ---


def parse_record(line: bytes) -> ProducerRecord:
    """Read a line.

    Raises:
        ValueError: the line is not a JSON object, has no value, or has a field that does not exist or has a wrong type.
    """
    try:
        row = json.loads(line)
    # RecursionError: brackets nested a thousand deep.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    known = READ_FIELDS | IGNORED_FIELDS | {"key" + BASE64, "value" + BASE64}
    if unknown := sorted(row.keys() - known):
        raise ValueError(f"a record has no field {unknown[0]!r}")
    # Required, since a record without one would be a tombstone, which deletes on a compacted topic.
    if not row.keys() & {"value", "value" + BASE64}:
        raise ValueError("it has no 'value'; null stands for a tombstone")
    return ProducerRecord(
        key=_bytes(row, "key"),
        value=_bytes(row, "value"),
        headers=_headers(row.get("headers", [])),
        partition=_number(row, "partition", 31),
        timestamp=_number(row, "timestamp", 63),
    )


def _headers(rows: Any) -> tuple[Header, ...]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("'headers' is not a list of objects with 'key' and 'value'")
    headers: list[Header] = []
    for row in rows:
        if unknown := sorted(row.keys() - {"key", "value", "key" + BASE64, "value" + BASE64}):
            raise ValueError(f"a header has no field {unknown[0]!r}")
        key = _bytes(row, "key")
        if key is None:
            raise ValueError("a header has no 'key'")
        headers.append((key.decode("utf-8", "surrogateescape"), _bytes(row, "value")))
    return tuple(headers)


def _bytes(row: dict[str, Any], name: str) -> bytes | None:
    """Return a field that is given as text or in base64; None if it is null or missing."""
    text, encoded = row.get(name), row.get(name + BASE64)
    if text is not None and encoded is not None:
        raise ValueError(f"it has both {name!r} and {name + BASE64!r}")
    if not all(each is None or isinstance(each, str) for each in (text, encoded)):
        raise ValueError(f"{name!r} is neither a string nor null")
    if encoded is None:
        # ``_utf8`` may fail: JSON can express a lone surrogate, which UTF-8 cannot encode.
        return None if text is None else _utf8(name, text)
    try:
        return base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):
        raise ValueError(f"{name + BASE64!r} is not base64") from None


def _utf8(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name!r} is no Unicode text; {name + BASE64!r} takes any bytes") from None


def _number(row: dict[str, Any], name: str, bits: int) -> int | None:
    number = row.get(name)
    if number is None:
        return None
    # ``type`` rather than ``isinstance``: True is an int in Python, and no number in JSON.
    if type(number) is not int or not 0 <= number < 1 << bits:
        raise ValueError(f"{name!r} is not a whole number from 0 on")
    return number
