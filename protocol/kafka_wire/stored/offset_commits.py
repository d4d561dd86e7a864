"""Committed offsets as bytes, without a message in between: the short way for what there are millions of.

``groups`` declares the same records and its codec settles what they mean; here stand the forms that a broker writes and
mostly reads, by hand. Whatever else a log may hold (older versions, unknown tagged fields, damage) reads as None, and
the caller asks ``groups``.

A key is int16 1, the group and the topic as strings behind an int16 length, and the partition, an int32. Everything
before the partition is its *prefix*, the same for all commits of one group in one topic. A value is in

* version 4, Kafka 4.1 and later: offset int64, leader epoch int32, metadata behind an unsigned varint, its length plus
  one, commit timestamp int64, and either no tagged fields or the topic id as tag 0;
* version 3, Kafka 2.1 to 4.0: offset, leader epoch, metadata behind an int16 length, commit timestamp;
* version 1, when the commit has an expiry of its own: offset, metadata behind an int16 length, commit timestamp, expire
  timestamp.

Source: Kafka's OffsetCommitKey.json, OffsetCommitValue.json, GroupCoordinatorRecordHelpers.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from kafka_wire.primitives import NO_TAGS, NO_UUID, UUID_BYTES, unsigned_varint

PARTITION_BYTES: Final = 4
"""The end of a key; what stands before it is the prefix."""

NO_EXPIRE_TIMESTAMP: Final = -1
"""The expiry of a commit that the broker's settings decide on: of every commit of a client since Kafka 2.1."""

REMEMBERED_PREFIXES: Final = 8192
"""Encoded prefixes that are kept, since groups commit the same topics again and again: 6 MB at most."""

MAX_REMEMBERED_CHARACTERS: Final = 300
"""Longer names, both together, are encoded anew each time, so that nobody fills the memory with them."""

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_INT64_PAIR: Final = struct.Struct(">qq")
COMMIT_PREFIX: Final = b"\0\1"
"""How the key of a commit begins: its record type."""
_EXPIRING_HEAD: Final = struct.Struct(">hqh")
_V3_HEAD: Final = struct.Struct(">hqih")
_V4_HEAD: Final = struct.Struct(">hqiB")
_V4_WHOLE: Final = struct.Struct(">hqiBq3s16s")
"""Version 4 without metadata and with a topic id: the common commit as a whole."""
_TOPIC_ID_TAG: Final = b"\1\0\x10"
"""One tagged field, number 0, 16 bytes long."""
_V3_EMPTY_BYTES: Final = 24
_V4_EMPTY_BYTES: Final = 24
_V4_EMPTY_WITH_ID_BYTES: Final = 42
_METADATA_AT: Final = 15
"""Where metadata of less than 127 bytes begins in version 4."""
_ONE_BYTE_LENGTH: Final = 0x80


class CommitFields(NamedTuple):
    """What a value says; ``expire_timestamp`` and ``topic_id`` may be ``NO_EXPIRE_TIMESTAMP`` and ``NO_UUID``."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int
    topic_id: bytes


def commit_key_prefix(group: str, topic: str) -> bytes:
    """Return what the keys of all commits of ``group`` in ``topic`` begin with.

    Raises:
        ValueError: a name is longer than 32,767 bytes.
    """
    # Fast path: a group commits the same topics again and again, and its prefixes are encoded once.
    if len(group) + len(topic) <= MAX_REMEMBERED_CHARACTERS:
        return _remembered_prefix(group, topic)
    return _prefix(group, topic)


def _prefix(group: str, topic: str) -> bytes:
    encoded = [name.encode() for name in (group, topic)]
    try:
        return COMMIT_PREFIX + b"".join(_INT16.pack(len(name)) + name for name in encoded)
    except struct.error as error:
        raise ValueError(f"the key of a commit: {error}") from error


_remembered_prefix = lru_cache(REMEMBERED_PREFIXES)(_prefix)


def encode_commit_key(group: str, topic: str, partition: int) -> bytes:
    """Return the key of a commit; errors as for ``commit_key_prefix``, and for a partition that is no int32."""
    try:
        return commit_key_prefix(group, topic) + _INT32.pack(partition)
    except struct.error as error:
        raise ValueError(f"the key of a commit: {error}") from error


def encode_commit_value(
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp: int,
    expire_timestamp: int = NO_EXPIRE_TIMESTAMP,
    topic_id: bytes = NO_UUID,
) -> bytes:
    """Return the value of a commit: in version 4, or in version 1 if it has an expiry, which then loses epoch and id.

    Raises:
        ValueError: something does not fit its field.
    """
    try:
        if expire_timestamp == NO_EXPIRE_TIMESTAMP and not metadata and topic_id != NO_UUID:
            return _V4_WHOLE.pack(4, offset, leader_epoch, 1, commit_timestamp, _TOPIC_ID_TAG, topic_id)
        text = metadata.encode()
        if expire_timestamp != NO_EXPIRE_TIMESTAMP:
            stamps = _INT64_PAIR.pack(commit_timestamp, expire_timestamp)
            return _EXPIRING_HEAD.pack(1, offset, len(text)) + text + stamps
        tags = NO_TAGS if topic_id == NO_UUID else _TOPIC_ID_TAG + topic_id
        # Without the last byte of the head, the length of the metadata: of long metadata it takes two or three.
        head = _V4_HEAD.pack(4, offset, leader_epoch, 0)[:-1] + unsigned_varint(len(text) + 1)
        return head + text + _INT64.pack(commit_timestamp) + tags
    except struct.error as error:
        raise ValueError(f"the value of a commit: {error}") from error


def is_usual_commit_value(value: bytes) -> bool:
    """Whether ``value`` is whole and decodes, as far as its length and a few of its bytes can tell at a glance.

    Most do: a commit without metadata. The others have to be decoded to know.
    """
    if value[:2] == b"\0\4":
        # Byte 14 is the length of the metadata plus one, byte 23 the number of tagged fields.
        size = len(value)
        if size == _V4_EMPTY_WITH_ID_BYTES:
            return value[14] == 1 and value[23:26] == _TOPIC_ID_TAG
        return size == _V4_EMPTY_BYTES and value[14] == 1 and value[23] == 0
    return value[:2] == b"\0\3" and len(value) == _V3_EMPTY_BYTES and value[14:16] == b"\0\0"


def committed_offset(value: bytes) -> int:
    """The offset in ``value``, which must be whole: in all versions it stands behind the version."""
    return int.from_bytes(value[2:10], "big", signed=True)


def read_commit_value(value: bytes) -> CommitFields | None:
    """Return what ``value`` says, or None if it is not of the usual forms in versions 3 and 4."""
    try:
        version, offset, leader_epoch, length = _V4_HEAD.unpack_from(value)
        if version == 4 and 1 <= length < _ONE_BYTE_LENGTH:
            end = _METADATA_AT + length - 1
            (timestamp,) = _INT64.unpack_from(value, end)
            tags = value[end + 8 :]
            if tags == NO_TAGS:
                topic_id = NO_UUID
            elif tags[:3] == _TOPIC_ID_TAG and len(tags) == 3 + UUID_BYTES:
                topic_id = tags[3:]
            else:
                return None
            metadata = value[_METADATA_AT:end].decode() if length > 1 else ""
            return CommitFields(offset, leader_epoch, metadata, timestamp, NO_EXPIRE_TIMESTAMP, topic_id)
        if version == 3:
            *_, size = _V3_HEAD.unpack_from(value)
            if 0 <= size == len(value) - _V3_EMPTY_BYTES:
                (timestamp,) = _INT64.unpack_from(value, len(value) - 8)
                metadata = value[16:-8].decode()
                return CommitFields(offset, leader_epoch, metadata, timestamp, NO_EXPIRE_TIMESTAMP, NO_UUID)
    except (struct.error, UnicodeDecodeError):
        pass
    return None
