"""Records as lines of JSON: the one form that ``consume --json``, ``produce --json`` and the admin app's export have.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1700000000000, "timestamp_type": "create",
     "key": "k", "value": "v", "headers": [{"key": "trace", "value": "7"}]}

Bytes that are UTF-8 are a string. Other bytes are in ``key_base64`` or ``value_base64``, in place of ``key`` or
``value``. A null key or value is null, and so is a timestamp that the record does not have. A written line is read back
to exactly the same record, but for a time before 1970: it is written as it is stored, and refused as Kafka's producers
refuse it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final, Protocol

from kafka_wire.records.batch import NO_TIMESTAMP

BASE64: Final = "_base64"
"""What the name of a field ends with that has bytes in base64."""


class StoredRecord(Protocol):
    """A record as a log has it; a header's name has lone surrogates in place of bytes that are not UTF-8."""

    @property
    def offset(self) -> int: ...

    @property
    def timestamp(self) -> int: ...

    @property
    def key(self) -> bytes | None: ...

    @property
    def value(self) -> bytes | None: ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]: ...


class InvalidField(ValueError):
    """A field of a record stands for no bytes; ``name`` is the field's, and the text says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


def record_line(topic: str, partition: int, record: StoredRecord, *, is_append_time: bool) -> str:
    """Return a record as a line of ASCII, with its line end."""
    row: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": time_of(record),
        "timestamp_type": "append" if is_append_time else "create",
        **text_or_base64("key", record.key),
        **text_or_base64("value", record.value),
        "headers": [
            text_or_base64("key", name.encode("utf-8", "surrogateescape")) | text_or_base64("value", data)
            for name, data in record.headers
        ],
    }
    return json.dumps(row, separators=(",", ":")) + "\n"


def time_of(record: StoredRecord) -> int | None:
    """Return a record's timestamp, which may be before 1970; None where it has none."""
    return None if record.timestamp == NO_TIMESTAMP else record.timestamp


def text_or_base64(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes as the field ``name`` if they are text, else in base64."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name + BASE64: base64.b64encode(data).decode()}


def field_bytes(name: str, text: str | None, encoded: str | None) -> bytes | None:
    """Return the bytes that a field has as ``text``, or ``encoded`` in base64; None without either.

    Raises:
        InvalidField: both are given, or one stands for no bytes.
    """
    if text is not None and encoded is not None:
        raise InvalidField(name, f"{name!r} and {name + BASE64!r} are both given")
    if encoded is not None:
        return decode_base64(name + BASE64, encoded)
    try:
        return None if text is None else text.encode()
    except UnicodeEncodeError:
        # JSON can express a lone surrogate, which UTF-8 cannot encode.
        raise InvalidField(name, f"{name!r} is no Unicode text; {name + BASE64!r} takes any bytes") from None


def header_of(name: str, key: bytes | None, value: bytes | None) -> tuple[str, bytes | None]:
    """Return a header as a ``StoredRecord`` has it; ``name`` is that of its field, for the error.

    Raises:
        InvalidField: it has no key.
    """
    if key is None:
        raise InvalidField(f"{name}/key", "a header has no 'key'")
    return key.decode("utf-8", "surrogateescape"), value


def decode_base64(name: str, text: str) -> bytes:
    """Return the bytes of a field that is given in base64.

    Raises:
        InvalidField: it is not base64.
    """
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        raise InvalidField(name, f"{name!r} is not base64") from None
