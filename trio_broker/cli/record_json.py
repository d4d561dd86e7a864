"""Reads the lines of ``produce --json``: records as ``trio_broker.common.record_json`` writes them."""

from __future__ import annotations

import json
from typing import Any, Final

from kafka_wire.records.record import Header
from trio_broker.client.producer.record_producer import ProducerRecord
from trio_broker.common.record_json import BASE64, field_bytes, header_of

READ_FIELDS: Final = frozenset({"key", "value", "headers", "partition", "timestamp"})
IGNORED_FIELDS: Final = frozenset({"topic", "offset", "timestamp_type"})
"""The fields that ``consume`` prints and ``produce`` passes over, because the broker decides them."""


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
        headers.append(header_of("headers", _bytes(row, "key"), _bytes(row, "value")))
    return tuple(headers)


def _bytes(row: dict[str, Any], name: str) -> bytes | None:
    """Return a field that is given as text or in base64; None if it is null or missing."""
    text, encoded = row.get(name), row.get(name + BASE64)
    if not all(each is None or isinstance(each, str) for each in (text, encoded)):
        raise ValueError(f"{name!r} is neither a string nor null")
    return field_bytes(name, text, encoded)


def _number(row: dict[str, Any], name: str, bits: int) -> int | None:
    number = row.get(name)
    if number is None:
        return None
    # ``type`` rather than ``isinstance``: True is an int in Python, and no number in JSON.
    if type(number) is not int or not 0 <= number < 1 << bits:
        raise ValueError(f"{name!r} is not a whole number from 0 on")
    return number
