"""The records that a broker writes for itself, decoded: the metadata log, and ``__consumer_offsets``.

``own_text`` has the form of ``kafka-dump-log`` with the decoder for the topic: JSON with the names of Kafka's schemas.

Source: Kafka's DumpLogSegments and OffsetsMessageFormatter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from kafka_wire.errors import WireError
from kafka_wire.plain import plain
from kafka_wire.stored.groups import decode_group_record
from kafka_wire.stored.metadata import decode_metadata_record
from trio_broker.topic_names import CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC


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
    return f"payload: {_json({'type': kind, 'version': version, 'data': plain(record, _camel_case)})}"


def _group_text(key: bytes | None, value: bytes | None) -> str | None:
    if key is None:
        raise WireError("a record of a group has a key")
    record = decode_group_record(key, value)
    if record is None:
        return None
    shown_key = _json({"type": str(int.from_bytes(key[:2], "big")), "data": plain(record.key, _camel_case)})
    if record.value is None or value is None:
        return f"key: {shown_key} payload: <DELETE>"
    shown = {"version": str(int.from_bytes(value[:2], "big")), "data": plain(record.value, _camel_case)}
    return f"key: {shown_key} payload: {_json(shown)}"


_TEXTS: dict[str, Callable[[bytes | None, bytes | None], str | None]] = {
    CONSUMER_OFFSETS_TOPIC: _group_text,
    CLUSTER_METADATA_TOPIC: _metadata_text,
}


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
