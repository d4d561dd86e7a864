"""The rules for topic names.

Source: Kafka's Topic class (validate, hasCollision, isInternal).
"""

from __future__ import annotations

import re
from typing import Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError

MAX_NAME_CHARACTERS: Final = 249
"""A partition's directory is named after the topic, with ``-`` and up to five digits; file names end at 255."""

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
"""The topic of the metadata log itself; requests cannot create it."""

CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
"""Where the group coordinator keeps groups and committed offsets."""

TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
"""Where the transaction coordinator keeps transactional ids and their transactions."""

INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, "__share_group_state"})
"""Topics that the broker writes for itself; clients see them marked and do not produce to them."""

_LEGAL_CHARACTERS = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def is_internal_topic(name: str) -> bool:
    """Whether the broker writes the topic for itself."""
    return name in INTERNAL_TOPICS


def is_valid_topic_name(name: str) -> bool:
    """Whether a topic may have this name."""
    return _reason_against(name) is None


def require_valid_topic_name(name: str) -> None:
    """Refuse a name that no topic can have.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION with the reason.
    """
    if reason := _reason_against(name):
        raise KafkaError(
            f"topic name {name[: MAX_NAME_CHARACTERS + 1]!r} {reason}", code=ErrorCode.INVALID_TOPIC_EXCEPTION
        )


def collision_key(name: str) -> str:
    """Return a key that two topics must not share: metric names do not distinguish ``.`` from ``_``."""
    return name.replace(".", "_")


def _reason_against(name: str) -> str | None:
    if not name:
        return "is empty"
    if name in (".", ".."):
        return "is a directory's name for itself or its parent"
    if len(name) > MAX_NAME_CHARACTERS:
        return f"is longer than {MAX_NAME_CHARACTERS} characters"
    if not _LEGAL_CHARACTERS.fullmatch(name):
        return "has characters other than letters, digits, '.', '_' and '-'"
    return None
