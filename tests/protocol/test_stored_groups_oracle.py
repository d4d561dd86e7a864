"""Kafka's own classes read our group records as we meant them, and write the same bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.stored.groups import (
    GROUP_RECORDS,
    GroupMetadataValue,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_record,
    encode_group_record,
)
from tests.java_programs import Java
from tests.protocol.coordinator_records import as_given, assert_same
from tests.protocol.message_strategies import messages

VERSIONS = {OffsetCommitValue: 4, GroupMetadataValue: 3}
"""Of the values that we write; all others have version 0 alone."""

pytestmark = pytest.mark.compat


def records_of_every_kind() -> list[GroupRecord]:
    """The same ones each time."""
    found: list[GroupRecord] = []
    for key_kind, value_kind in GROUP_RECORDS:

        @given(messages(key_kind, 0), st.none() | messages(value_kind, VERSIONS.get(value_kind, 0)))
        def collect(key: Any, value: Any) -> None:
            found.append(GroupRecord(key, value))

        collect()
    return found


def test_kafka_reads_our_records_as_we_meant_them_and_writes_the_same(java: Java) -> None:
    records = records_of_every_kind()
    written = [encode_group_record(record) for record in records]
    answers = java.run("GroupRecords", given=[as_given(*each) for each in written])
    for record, (key, value), answer in zip(records, written, answers, strict=True):
        reported = answer["result"]
        assert_same(record.key, reported["key"], 0)
        if record.value is not None:
            assert_same(record.value, reported["value"], VERSIONS.get(type(record.value), 0))
        assert as_given(key, value) == {"key": reported["key bytes"], "value": reported["value bytes"]}
        assert decode_group_record(bytes.fromhex(reported["key bytes"]), value) == record


@pytest.mark.parametrize("expires", [None, 1_700_000_000_001])
def test_kafka_writes_a_commit_in_the_version_that_we_choose(java: Java, expires: int | None) -> None:
    [answer] = java.run("GroupRecords", given=[{"offset": 42, "expires": expires}])
    ours = OffsetCommitValue(
        offset=42,
        leader_epoch=7,
        metadata="metadata",
        commit_timestamp=1_700_000_000_000,
        expire_timestamp=-1 if expires is None else expires,
        topic_id=bytes(7) + b"\1" + bytes(7) + b"\2",
    )
    key, value = encode_group_record(GroupRecord(OffsetCommitKey(group="group", topic="topic", partition=3), ours))
    assert as_given(key, value) == {"key": answer["result"]["key bytes"], "value": answer["result"]["value bytes"]}
