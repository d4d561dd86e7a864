"""The records that a broker writes for itself, decoded: of the metadata log, of groups and of transactions.

``own_text`` has the form of ``kafka-dump-log`` with the decoder for the topic: JSON with the names of Kafka's schemas.

Source: Kafka's DumpLogSegments, OffsetsMessageFormatter and TransactionLogMessageFormatter.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from kafka_wire.errors import WireError
from kafka_wire.plain import plain
from kafka_wire.stored.groups import decode_group_record
from kafka_wire.stored.metadata import decode_metadata_record
from kafka_wire.stored.transactions import decode_transaction_record
from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC, CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC


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
    return None if record is None else _keyed_text(key, record.key, value, record.value)


def _transaction_text(key: bytes | None, value: bytes | None) -> str | None:
    if key is None:
        raise WireError("a record of a transaction has a key")
    record = decode_transaction_record(key, value)
    return None if record is None else _keyed_text(key, record[0], value, record[1])


def _keyed_text(key: bytes, decoded_key: Any, value: bytes | None, decoded_value: Any) -> str:
    """Return key and value as text, each with the int16 that stands before it in the log."""
    shown_key = _json({"type": str(int.from_bytes(key[:2], "big")), "data": plain(decoded_key, _camel_case)})
    if value is None:
        return f"key: {shown_key} payload: <DELETE>"
    shown = {"version": str(int.from_bytes(value[:2], "big")), "data": plain(decoded_value, _camel_case)}
    return f"key: {shown_key} payload: {_json(shown)}"


_TEXTS: Final[dict[str, Callable[[bytes | None, bytes | None], str | None]]] = {
    CONSUMER_OFFSETS_TOPIC: _group_text,
    TRANSACTION_STATE_TOPIC: _transaction_text,
    CLUSTER_METADATA_TOPIC: _metadata_text,
}

OWN_TOPICS: Final = frozenset(_TEXTS)
"""The topics whose records have formats of their own."""


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
