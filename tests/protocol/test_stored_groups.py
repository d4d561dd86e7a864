"""Group records lie in ``__consumer_offsets`` as Kafka writes them, and nothing else is taken for one."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.codec import encode_bytes
from kafka_wire.errors import WireError
from kafka_wire.stored.groups import (
    GROUP_RECORDS,
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    TopicPartitions,
    decode_group_record,
    encode_group_record,
)
from tests.property_examples import examples
from tests.protocol.message_strategies import messages

TOPIC_ID = bytes(range(16))

COMMIT_KEY = bytes.fromhex("0001000267310002743100000000")
COMMIT_VALUE = bytes.fromhex("0004000000000000002affffffff010000018bcfe5680000")
COMMIT_VALUE_3 = bytes.fromhex("0003000000000000002affffffff00000000018bcfe56800")
GROUP_KEY = bytes.fromhex("000200026731")
GROUP_VALUE = bytes.fromhex(
    "00030008636f6e73756d657200000001000572616e676500026d310000018bcfe568000000000100026d31ffff000163"
    "000a2f3132372e302e302e31000493e00000afc80000000201020000000103"
)
"""Written by Kafka's own classes."""

SHARE_GROUP_KEY = b"\x00\x0b" + b"\x00\x01g"
STREAMS_GROUP_KEY = b"\x00\x11" + b"\x00\x01g"

each_pair = pytest.mark.parametrize(("key_kind", "value_kind"), GROUP_RECORDS, ids=lambda kind: kind.__name__)


def a_commit(**changes: Any) -> GroupRecord:
    said: dict[str, Any] = {"offset": 42, "metadata": "", "commit_timestamp": 1_700_000_000_000, **changes}
    return GroupRecord(OffsetCommitKey(group="g1", topic="t1", partition=0), OffsetCommitValue(**said))


# --- Kafka's bytes ---


def test_a_commit_is_kafkas_to_the_byte() -> None:
    assert decode_group_record(COMMIT_KEY, COMMIT_VALUE) == a_commit()
    assert encode_group_record(a_commit()) == (COMMIT_KEY, COMMIT_VALUE)


def test_a_commit_that_an_older_kafka_wrote_is_read() -> None:
    assert decode_group_record(COMMIT_KEY, COMMIT_VALUE_3) == a_commit()


def test_a_commits_topic_id_is_its_only_tag() -> None:
    _, value = encode_group_record(a_commit(topic_id=TOPIC_ID))
    assert value == COMMIT_VALUE[:-1] + b"\x01" + b"\x00\x10" + TOPIC_ID
    assert decode_group_record(COMMIT_KEY, value) == a_commit(topic_id=TOPIC_ID)


def test_a_classic_group_is_kafkas_to_the_byte() -> None:
    member = MemberMetadata(
        member_id="m1",
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout=300_000,
        session_timeout=45_000,
        subscription=b"\1\2",
        assignment=b"\3",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m1",
        current_state_timestamp=1_700_000_000_000,
        members=[member],
    )
    record = GroupRecord(GroupMetadataKey(group="g1"), value)
    assert decode_group_record(GROUP_KEY, GROUP_VALUE) == record
    assert encode_group_record(record) == (GROUP_KEY, GROUP_VALUE)


def test_a_consumer_groups_epoch_is_four_bytes_and_its_hash_a_tag_when_it_is_known() -> None:
    key = ConsumerGroupMetadataKey(group_id="g")
    unknown = encode_group_record(GroupRecord(key, ConsumerGroupMetadataValue(epoch=5)))
    known = encode_group_record(GroupRecord(key, ConsumerGroupMetadataValue(epoch=5, metadata_hash=9)))
    assert unknown == (b"\x00\x03" + b"\x00\x01g", b"\x00\x00" + b"\x00\x00\x00\x05" + b"\x00")
    assert known[1] == b"\x00\x00" + b"\x00\x00\x00\x05" + b"\x01" + b"\x00\x08" + bytes(7) + b"\x09"


def test_a_member_of_the_classic_protocol_is_a_tag_that_says_first_that_it_is_there() -> None:
    """A struct that may be null begins with a 1 (KIP-893), also where as a tag it could simply be missing."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex=None,
        rebalance_timeout_ms=-1,
        server_assignor=None,
        classic_member_metadata=ClassicMemberMetadata(
            session_timeout_ms=5, supported_protocols=[ClassicProtocol(name="r", metadata=b"m")]
        ),
    )
    _, written = encode_group_record(GroupRecord(ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), value))
    assert written is not None
    head = b"\x00\x00" + b"\x00\x00" + b"\x02c\x02h" + b"\x02\x02t" + b"\x00" + b"\xff\xff\xff\xff" + b"\x00"
    classic = b"\x01" + b"\x00\x00\x00\x05" + b"\x02\x02r\x02m\x00" + b"\x00"
    assert written == head + b"\x01" + b"\x00" + bytes([len(classic)]) + classic


def test_the_epochs_of_an_assignment_go_beside_its_partitions() -> None:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=3,
        previous_member_epoch=2,
        state=0,
        assigned_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[4], assignment_epochs=[2])],
        partitions_pending_revocation=[],
    )
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m")
    _, written = encode_group_record(GroupRecord(key, value))
    partition, epoch = b"\x02\x00\x00\x00\x04", b"\x02\x00\x00\x00\x02"
    assert written == (
        b"\x00\x00" + b"\x00\x00\x00\x03" + b"\x00\x00\x00\x02" + b"\x00"
        + b"\x02" + TOPIC_ID + partition + b"\x01" + b"\x00\x05" + epoch
        + b"\x01" + b"\x00"
    )  # fmt: skip


# --- Versions ---


def test_a_commit_that_expires_by_itself_is_written_in_the_one_version_that_can_say_so() -> None:
    """It has no leader epoch and no topic id, which are therefore forgotten, as by Kafka."""
    key, value = encode_group_record(a_commit(expire_timestamp=1_700_000_000_001, leader_epoch=3, topic_id=TOPIC_ID))
    assert value is not None
    assert value[:2] == b"\0\1"
    assert decode_group_record(key, value) == a_commit(expire_timestamp=1_700_000_000_001)


def test_a_commit_of_kafka_0_8_has_a_type_of_its_own() -> None:
    old_key = b"\0\0" + COMMIT_KEY[2:]
    assert decode_group_record(old_key, COMMIT_VALUE_3) == a_commit()
    assert decode_group_record(old_key, None) == GroupRecord(a_commit().key, None)


@pytest.mark.parametrize("version", range(5))
def test_a_classic_group_is_read_in_every_version(version: int) -> None:
    record = decode_group_record(GROUP_KEY, GROUP_VALUE)
    assert record is not None
    again = decode_group_record(GROUP_KEY, version.to_bytes(2, "big") + encode_bytes(record.value, version))
    assert again is not None
    assert isinstance(again.value, GroupMetadataValue)
    assert again.value.members[0].assignment == b"\3"
    assert again.value.current_state_timestamp == (1_700_000_000_000 if version >= 2 else -1)


# --- Round trips ---


@each_pair
def test_a_record_reads_as_it_was_written(key_kind: type[Any], value_kind: type[Any]) -> None:
    version = {OffsetCommitValue: 4, GroupMetadataValue: 3}.get(value_kind, 0)

    @given(messages(key_kind, 0), st.none() | messages(value_kind, version))
    def survives(key: Any, value: Any) -> None:
        written_key, written_value = encode_group_record(GroupRecord(key, value))
        assert decode_group_record(written_key, written_value) == GroupRecord(key, value)
        view = None if written_value is None else memoryview(written_value)
        assert decode_group_record(memoryview(written_key), view) == GroupRecord(key, value)

    survives()


def test_a_tombstone_has_no_value() -> None:
    tombstone = GroupRecord(GroupMetadataKey(group="g1"), None)
    assert encode_group_record(tombstone) == (GROUP_KEY, None)
    assert decode_group_record(GROUP_KEY, None) == tombstone


@pytest.mark.parametrize("key", [SHARE_GROUP_KEY, STREAMS_GROUP_KEY, b"\x7f\xff", b"\xff\xff?"])
def test_a_record_of_other_groups_or_of_the_future_is_nothing(key: bytes) -> None:
    assert decode_group_record(key, b"whatever") is None
    assert decode_group_record(key, None) is None


# --- Garbage ---


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        (b"", None, "has no version"),
        (b"\0", None, "has no version"),
        (b"\0\2", None, "GroupMetadataKey v0 ends too early"),
        (GROUP_KEY + b"?", None, "1 bytes left over after GroupMetadataKey"),
        (COMMIT_KEY + b"?", None, "1 bytes left over after OffsetCommitKey"),
        (COMMIT_KEY[:-1], None, "ends too early"),
        (COMMIT_KEY, b"", "has no version"),
        (COMMIT_KEY, COMMIT_VALUE + b"?", "1 bytes left over after OffsetCommitValue version 4"),
        (COMMIT_KEY, b"\0\5" + COMMIT_VALUE[2:], "has the versions 0-4, not 5"),
        (COMMIT_KEY, b"\xff\xff" + COMMIT_VALUE[2:], "has the versions 0-4, not -1"),
        (GROUP_KEY, GROUP_VALUE + b"?", "1 bytes left over after GroupMetadataValue version 3"),
        (b"\0\1\0\1\xff\0\0\0\0\0\0", None, "not UTF-8"),
    ],
)
def test_what_is_no_record_is_refused(key: bytes, value: bytes | None, complaint: str) -> None:
    with pytest.raises(WireError, match=complaint):
        decode_group_record(key, value)


@each_pair
def test_a_record_that_is_cut_off_anywhere_is_refused(key_kind: type[Any], value_kind: type[Any]) -> None:
    @examples(Fraction(1, 10))
    @given(messages(key_kind, 0), messages(value_kind, 0))
    def refused(key: Any, value: Any) -> None:
        written_key, written_value = encode_group_record(GroupRecord(key, value))
        assert written_value is not None
        for end in range(len(written_key)):
            with pytest.raises(WireError):
                decode_group_record(written_key[:end], written_value)
        for end in range(len(written_value)):
            with pytest.raises(WireError):
                decode_group_record(written_key, written_value[:end])

    refused()


@given(st.integers(-2, 20).map(lambda kind: kind.to_bytes(2, "big", signed=True)), st.binary(max_size=60), st.binary())
def test_garbage_is_refused_and_does_nothing_else(kind: bytes, key: bytes, value: bytes) -> None:
    with contextlib.suppress(WireError):
        decode_group_record(kind + key, value)


@pytest.mark.parametrize(
    "record",
    [
        GroupRecord(OffsetCommitKey(group="g" * 32768, topic="t", partition=0), None),
        GroupRecord(OffsetCommitKey(group="g", topic="\ud800", partition=0), None),
        GroupRecord(OffsetCommitKey(group="g", topic="t", partition=2**31), None),
        a_commit(offset=2**63),
        a_commit(metadata="m" * 32768),
        a_commit(expire_timestamp=2**63),
        a_commit(commit_timestamp=2**63, topic_id=TOPIC_ID),
    ],
)
def test_what_does_not_fit_is_not_written(record: GroupRecord) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode_group_record(record)


def test_no_two_records_share_a_type_and_a_value_has_that_of_its_key() -> None:
    types = [key.API_KEY for key, _ in GROUP_RECORDS]
    assert types == sorted(set(types))
    assert types == [value.API_KEY for _, value in GROUP_RECORDS]


def test_a_member_of_the_consumer_protocol_says_that_it_has_no_classic_metadata():
    """Kafka's default there is an empty one, and its null in a tag is a zero: tag 0, one byte long, 0."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        subscribed_topic_names=[],
        subscribed_topic_regex=None,
        server_assignor=None,
        classic_member_metadata=None,
    )
    key, written = encode_group_record(GroupRecord(ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), value))
    assert written is not None
    assert written.endswith(bytes([1, 0, 1, 0]))
    assert decode_group_record(key, written) == GroupRecord(
        ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"), value
    )
