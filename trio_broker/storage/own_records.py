"""The records that a broker writes for itself, decoded: the metadata log, and ``__consumer_offsets``.

``own_text`` has the form of ``kafka-dump-log`` with the decoder for the topic: JSON with the names of Kafka's schemas.

Source: Kafka's DumpLogSegments and OffsetsMessageFormatter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import attrs

from kafka_wire.errors import WireError
from kafka_wire.primitives import uuid_text
from kafka_wire.stored.groups import decode_group_record
from kafka_wire.stored.metadata import decode_metadata_record

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
CLUSTER_METADATA_TOPIC = "__cluster_metadata"


def own_text(topic: str, key: bytes | None, value: bytes | None) -> str | None:
    """Return a record of the topic as text; None where clients write, or for a type that is not kept.

    Raises:
        WireError: it cannot be decoded.
    """
    text = _TEXTS.get(topic)
    return None if text is None else text(key, value)


def _metadata_text(key: bytes | None, value: bytes | None) -> str:
    record = decode_metadata_record(value or b"")
    kind = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(record).__name__).upper()
    # Frame version, type and version are varints; no type or version needs a second byte.
    version = (value or b"")[2]
    return f"payload: {_json({'type': kind, 'version': version, 'data': _plain(record)})}"


def _group_text(key: bytes | None, value: bytes | None) -> str | None:
    if key is None:
        raise WireError("a record of a group has a key")
    record = decode_group_record(key, value)
    if record is None:
        return None
    shown_key = _json({"type": str(int.from_bytes(key[:2], "big")), "data": _plain(record.key)})
    if record.value is None or value is None:
        return f"key: {shown_key} payload: <DELETE>"
    shown = {"version": str(int.from_bytes(value[:2], "big")), "data": _plain(record.value)}
    return f"key: {shown_key} payload: {_json(shown)}"


_TEXTS: dict[str, Callable[[bytes | None, bytes | None], str | None]] = {
    CONSUMER_OFFSETS_TOPIC: _group_text,
    CLUSTER_METADATA_TOPIC: _metadata_text,
}


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """A message of the wire as what ``json`` can write, by the names of Kafka's schemas."""
    if attrs.has(type(value)):
        return {
            _camel_case(field.name): _ids(getattr(value, field.name))
            if "Uuid" in str(field.type)
            else _plain(getattr(value, field.name))
            for field in attrs.fields(type(value))
        }
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return value


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _ids(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_ids(each) for each in value]
    return uuid_text(value) if isinstance(value, bytes) else value
