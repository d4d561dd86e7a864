"""The short way to the bytes of a commit says what the declared records say, and leaves them what it does not know."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.codec import decode, encode_bytes
from kafka_wire.primitives import NO_UUID
from kafka_wire.stored.groups import OffsetCommitKey, OffsetCommitValue, decode_group_record
from kafka_wire.stored.offset_commits import (
    NO_EXPIRE_TIMESTAMP,
    PARTITION_BYTES,
    CommitFields,
    commit_key_prefix,
    encode_commit_key,
    encode_commit_value,
    is_usual_commit_value,
    read_commit_value,
)

ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
int64 = st.integers(-(2**63), 2**63 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=150)
ids = st.just(NO_UUID) | st.just(ID)
fields = st.builds(
    CommitFields,
    offset=int64,
    leader_epoch=int32,
    metadata=names,
    commit_timestamp=int64,
    expire_timestamp=st.just(NO_EXPIRE_TIMESTAMP) | st.integers(0, 2**63 - 1),
    topic_id=ids,
)


def encoded(value: OffsetCommitValue, version: int) -> bytes:
    return version.to_bytes(2, "big") + encode_bytes(value, version)


def declared(fields: CommitFields) -> OffsetCommitValue:
    return OffsetCommitValue(**fields._asdict())


def test_a_commit_is_written_as_kafka_4_3_writes_it() -> None:
    """Worked out by hand from OffsetCommitKey.json and OffsetCommitValue.json."""
    assert encode_commit_key("g", "logs", 7) == bytes.fromhex("0001 0001 67 0004 6c6f6773 00000007")
    value = encode_commit_value(258, 3, "m", NOW_MS, topic_id=ID)
    assert value == bytes.fromhex("0004 0000000000000102 00000003 02 6d 0000018bcfe56800 01 00 10") + ID
    assert encode_commit_value(258, 3, "", NOW_MS) == bytes.fromhex(
        "0004 0000000000000102 00000003 01 0000018bcfe56800 00"
    )


def test_a_commit_with_an_expiry_of_its_own_is_written_in_version_1() -> None:
    value = encode_commit_value(258, 3, "m", NOW_MS, NOW_MS + 1, ID)
    assert value == bytes.fromhex("0001 0000000000000102 0001 6d 0000018bcfe56800 0000018bcfe56801")


@given(group=names, topic=names, partition=int32)
def test_keys_are_those_of_the_declared_record(group: str, topic: str, partition: int) -> None:
    key = encode_commit_key(group, topic, partition)
    declared_key = OffsetCommitKey(group=group, topic=topic, partition=partition)
    assert key == b"\0\1" + encode_bytes(declared_key, 0)
    assert key[:-PARTITION_BYTES] == commit_key_prefix(group, topic)


@given(fields)
def test_values_are_those_of_the_declared_record(commit: CommitFields) -> None:
    version = 4 if commit.expire_timestamp == NO_EXPIRE_TIMESTAMP else 1
    assert encode_commit_value(*commit) == encoded(declared(commit), version)


@given(fields)
def test_what_is_written_is_read(commit: CommitFields) -> None:
    commit = commit._replace(expire_timestamp=NO_EXPIRE_TIMESTAMP)
    read = read_commit_value(encode_commit_value(*commit))
    # Metadata of 127 bytes and more is rare enough to go the long way.
    assert read == (commit if len(commit.metadata.encode()) < 127 else None)


@given(fields, st.integers(0, 4))
def test_what_is_read_of_any_version_is_what_the_declared_record_says(commit: CommitFields, version: int) -> None:
    value = encoded(declared(commit), version)
    decoded, end = decode(OffsetCommitValue, version, value, 2)
    assert end == len(value)
    read = read_commit_value(value)
    assert version >= 3 or read is None
    if read is not None:
        assert encoded(declared(read), version) == encoded(decoded, version)


@given(
    st.binary(max_size=60) | st.builds(lambda v, b: v + b, st.sampled_from([b"\0\3", b"\0\4"]), st.binary(max_size=60))
)
def test_noise_is_not_taken_for_a_commit(value: bytes) -> None:
    """What the short way reads, the long way reads too; what it calls usual, it reads."""
    read = read_commit_value(value)
    assert not is_usual_commit_value(value) or read is not None
    if read is not None:
        record = decode_group_record(encode_commit_key("", "", 0), value)
        assert record is not None
        assert isinstance(record.value, OffsetCommitValue)
        assert (record.value.offset, record.value.metadata) == (read.offset, read.metadata)
        assert (record.value.commit_timestamp, record.value.topic_id) == (read.commit_timestamp, read.topic_id)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("topic_id", [NO_UUID, ID])
def test_a_commit_without_metadata_is_a_usual_one(version: int, topic_id: bytes) -> None:
    commit = CommitFields(5, 1, "", NOW_MS, NO_EXPIRE_TIMESTAMP, topic_id)
    value = encoded(declared(commit), version)
    assert is_usual_commit_value(value)
    assert not is_usual_commit_value(value[:-1])
    assert not is_usual_commit_value(value + b"\0")


@pytest.mark.parametrize(
    ("group", "topic", "partition"), [("g" * 32_768, "t", 0), ("g", "t" * 32_768, 0), ("g", "t", 2**31)]
)
def test_a_key_that_no_record_can_have_is_refused(group: str, topic: str, partition: int) -> None:
    with pytest.raises(ValueError, match="key of a commit"):
        encode_commit_key(group, topic, partition)


def test_a_value_that_no_record_can_have_is_refused() -> None:
    with pytest.raises(ValueError, match="value of a commit"):
        encode_commit_value(2**63, 0, "", NOW_MS)
    with pytest.raises(ValueError, match="value of a commit"):
        encode_commit_value(0, 0, "m" * 32_768, NOW_MS, NOW_MS)
