"""The records of ``__consumer_offsets``: committed offsets, and the groups that commit them.

Key and value are messages, each behind an int16. Before the key stands the type of the record, though Kafka's older
texts call it the version of the key; before the value stands the version of the value. A record without a value is a
tombstone: what its key names is gone. The newest record of each key, in the order of the log, is the whole state of the
groups of a partition, which is why the topic may be compacted.

A record of a type that is not here (share groups, streams groups, what a newer Kafka may add) reads as None, since it
says nothing about the groups that are kept. Anything else that does not decode is a ``WireError``.

Which version of a value is written is settled here and is Kafka 4.3's: all have version 0 alone, but for these.

* OffsetCommitValue: 4, the only one with the topic's id, or 1 when the commit came with an expiry of its own, because
  that is the only one that can say so. Kafka before 4.1 wrote 3.
* GroupMetadataValue: 3, the last one that is not flexible.

Commits outnumber all other records by far. ``offset_commits`` has a shorter way to their bytes; here stands what they
mean.

Source: Kafka's group-coordinator/src/main/resources/common/message/*.json, GroupCoordinatorRecordHelpers for the
versions, CoordinatorRecordSerde for the frame; docs/formats/consumer-offsets.md.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import attrs

from kafka_wire.codec import decode_whole, encode_bytes
from kafka_wire.primitives import NO_UUID, Bytes, Int8, Int32, Int64, String, Uuid
from kafka_wire.schema import field, message, struct
from kafka_wire.stored.offset_commits import NO_EXPIRE_TIMESTAMP
from kafka_wire.stored.record_frame import INT16_BYTES, leading_int16, with_int16

# --- Committed offsets ---


@message(key=1, versions="0", flexible="none")
class OffsetCommitKey:
    """Whose position it is, and where."""

    group: String
    topic: String
    partition: Int32


@message(key=1, versions="0-4", flexible="4+")
class OffsetCommitValue:
    """The next offset that the group will read, as it was committed.

    ``leader_epoch`` is that of the last record read, or -1. Both timestamps are in milliseconds since 1970.
    """

    offset: Int64
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = field("1", default=NO_EXPIRE_TIMESTAMP, ignorable=True)
    topic_id: Uuid = field("4+", default=NO_UUID, tag=0, ignorable=True)


# --- Classic groups ---


@message(key=2, versions="0", flexible="none")
class GroupMetadataKey:
    """A classic group."""

    group: String


@message(key=2, versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A classic group after a rebalance: its generation, and every member with its assignment.

    ``protocol`` and ``leader`` are None when the group is empty. ``current_state_timestamp`` is when the group came
    into its state, in milliseconds since 1970, or -1; how long an empty group's offsets are kept counts from there.
    """

    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: list[MemberMetadata]


@struct
class MemberMetadata:
    """One member of a classic group. Timeouts are in milliseconds; ``rebalance_timeout`` is -1 where only the session
    timeout is known. ``subscription`` and ``assignment`` are the clients' own bytes for the group's protocol.
    """

    member_id: String
    group_instance_id: String | None = field("3+", default=None, ignorable=True)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


# --- Consumer groups (KIP-848) ---


@message(key=3, versions="0", flexible="none")
class ConsumerGroupMetadataKey:
    """A consumer group."""

    group_id: String


@message(key=3, versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    """The group's epoch, which rises with every change of members, subscriptions or their topics.

    ``metadata_hash`` tells whether the subscribed topics are still those that the epoch was made for (KIP-1101); 0
    means that it is not known.
    """

    epoch: Int32
    metadata_hash: Int64 = field(default=0, tag=0)


@message(key=4, versions="0", flexible="none")
class ConsumerGroupPartitionMetadataKey:
    """A consumer group whose subscribed topics were written down."""

    group_id: String


@message(key=4, versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue:
    """The subscribed topics as they were; since Kafka 4.1 ``ConsumerGroupMetadataValue`` has a hash of them instead."""

    topics: list[TopicMetadata]


@struct
class TopicMetadata:
    """A subscribed topic; ``partition_metadata`` is always empty since Kafka 4.0."""

    topic_id: Uuid
    topic_name: String
    num_partitions: Int32
    partition_metadata: list[PartitionMetadata]


@struct
class PartitionMetadata:
    """A partition and the racks it lives on."""

    partition: Int32
    racks: list[String]


@message(key=5, versions="0", flexible="none")
class ConsumerGroupMemberMetadataKey:
    """A member of a consumer group, as it introduced itself."""

    group_id: String
    member_id: String


@message(key=5, versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    """What a member said of itself in its heartbeats.

    ``classic_member_metadata`` is None unless the member speaks the classic protocol, and None is written out: without
    the tag Kafka reads an empty one, which makes the member a classic one.
    """

    instance_id: String | None
    rack_id: String | None
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: String | None
    classic_member_metadata: ClassicMemberMetadata | None = field(factory=lambda: ClassicMemberMetadata(), tag=0)


@struct
class ClassicMemberMetadata:
    """What only the classic protocol has."""

    session_timeout_ms: Int32 = field(default=0)
    supported_protocols: list[ClassicProtocol] = field(factory=list)


@struct
class ClassicProtocol:
    """An assignment strategy of the client, with the bytes it sent for it."""

    name: String
    metadata: Bytes


@message(key=6, versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey:
    """The target assignment of a consumer group."""

    group_id: String


@message(key=6, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    """The group epoch for which the target was computed, and when that was, in milliseconds since 1970 (KIP-1263)."""

    assignment_epoch: Int32
    assignment_timestamp: Int64 = field(default=0, tag=0, ignorable=True)


@message(key=7, versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey:
    """One member's part of the target assignment."""

    group_id: String
    member_id: String


@message(key=7, versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    """The partitions that the member shall have in the end."""

    topic_partitions: list[TargetTopicPartitions]


@struct
class TargetTopicPartitions:
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: list[Int32]


@message(key=8, versions="0", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey:
    """One member's part of the assignment as it is now."""

    group_id: String
    member_id: String


@message(key=8, versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    """How far a member is on the way to its target.

    ``member_epoch`` is the one it must come with, ``previous_member_epoch`` the one it may still come with when our
    last answer was lost. ``state``: 0 stable, 1 unrevoked partitions, 2 unreleased partitions, 127 unknown.
    """

    member_epoch: Int32
    previous_member_epoch: Int32
    state: Int8
    assigned_partitions: list[TopicPartitions]
    partitions_pending_revocation: list[TopicPartitions]


@struct
class TopicPartitions:
    """Partitions of one topic. ``assignment_epochs`` goes beside them: since which member epoch the member has each,
    or nothing where that was not written down; it fences the late commits of a member that had one before (KIP-1251).
    """

    topic_id: Uuid
    partitions: list[Int32]
    assignment_epochs: list[Int32] | None = field(factory=list, tag=0)


@message(key=16, versions="0", flexible="none")
class ConsumerGroupRegularExpressionKey:
    """A regular expression to which members of a consumer group subscribed."""

    group_id: String
    regular_expression: String


@message(key=16, versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics that matched, the offset of the metadata they were looked up in, and when, in milliseconds since
    1970.
    """

    topics: list[String]
    version: Int64
    timestamp: Int64


# --- Groups that are not kept ---


@message(key=11, versions="0", flexible="none")
class ShareGroupMetadataKey:
    """A share group."""

    group_id: String


@message(key=17, versions="0", flexible="none")
class StreamsGroupMetadataKey:
    """A streams group."""

    group_id: String


UNKEPT_GROUP_KEYS: Final[tuple[type[Any], ...]] = (ShareGroupMetadataKey, StreamsGroupMetadataKey)
"""The keys under which groups lie that are not kept: every share group and every streams group has one."""


# --- The frame ---

GroupKey: TypeAlias = (
    OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)

GroupValue: TypeAlias = (
    OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)

GROUP_RECORDS: Final[tuple[tuple[type[Any], type[Any]], ...]] = (
    (OffsetCommitKey, OffsetCommitValue),
    (GroupMetadataKey, GroupMetadataValue),
    (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
    (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
)
"""The key and the value of every record this module knows, in the order of their types."""

LEGACY_OFFSET_COMMIT_TYPE: Final = 0
"""Kafka 0.8 wrote commits under this type, with the same fields; some of them may never have been overwritten."""

_KINDS_OF_TYPE: Final[dict[int, tuple[type[Any], type[Any]]]] = {
    LEGACY_OFFSET_COMMIT_TYPE: (OffsetCommitKey, OffsetCommitValue)
} | {key.API_KEY: (key, value) for key, value in GROUP_RECORDS}

OFFSET_COMMIT_VERSION: Final = 4
EXPIRING_OFFSET_COMMIT_VERSION: Final = 1
GROUP_METADATA_VERSION: Final = 3

_UNKEPT_KEY_OF_TYPE: Final[dict[int, type[Any]]] = {key.API_KEY: key for key in UNKEPT_GROUP_KEYS}


@attrs.frozen(weakref_slot=False)
class GroupRecord:
    """One change to the state of the groups; without a value, what the key names is gone."""

    key: GroupKey
    value: GroupValue | None


def encode_group_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """Return the key and the value under which ``record`` goes into ``__consumer_offsets``.

    Raises:
        ValueError: a value does not fit its field.
    """
    key_kind: Any = type(record.key)
    key = with_int16(key_kind.API_KEY, encode_bytes(record.key, 0))
    if record.value is None:
        return key, None
    version = _version_to_write(record.value)
    return key, with_int16(version, encode_bytes(record.value, version))


def decode_group_record(key: bytes | memoryview, value: bytes | memoryview | None) -> GroupRecord | None:
    """Return the record that lies under ``key``, or None if it is of a type that is not kept.

    Raises:
        WireError: the key or the value does not decode, is of an unknown version, or has bytes left over; a record was
            written by a broker, so these would be damage.
    """
    kinds = _KINDS_OF_TYPE.get(leading_int16(key, "group record's key"))
    if kinds is None:
        return None
    key_kind, value_kind = kinds
    decoded_key = decode_whole(key_kind, 0, key, INT16_BYTES)
    if value is None:
        return GroupRecord(decoded_key, None)
    version = leading_int16(value, value_kind.__name__)
    return GroupRecord(decoded_key, decode_whole(value_kind, version, value, INT16_BYTES))


def unkept_group(key: bytes | memoryview) -> ShareGroupMetadataKey | StreamsGroupMetadataKey | None:
    """Return ``key`` if it is that of a group that is not kept, None for every other record.

    Raises:
        WireError: it does not decode.
    """
    kind = _UNKEPT_KEY_OF_TYPE.get(leading_int16(key, "group record's key"))
    return None if kind is None else decode_whole(kind, 0, key, INT16_BYTES)


def _version_to_write(value: GroupValue) -> int:
    if isinstance(value, OffsetCommitValue):
        expires = value.expire_timestamp != NO_EXPIRE_TIMESTAMP
        return EXPIRING_OFFSET_COMMIT_VERSION if expires else OFFSET_COMMIT_VERSION
    return GROUP_METADATA_VERSION if isinstance(value, GroupMetadataValue) else 0
