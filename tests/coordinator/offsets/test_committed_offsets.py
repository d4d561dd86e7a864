"""Commits come back as they were committed, from requests as from the log, and cost little."""

from __future__ import annotations

import gc
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import WireError
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafka_wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafka_wire.primitives import NO_UUID
from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.groups import (
    GroupMetadataKey,
    GroupRecord,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_group_record,
)
from kafka_wire.stored.offset_commits import encode_commit_key, encode_commit_value
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import run_steps
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets, OffsetAndMetadata
from trio_broker.coordinator.offsets.requests import (
    commit_result,
    delete_records,
    fetched_offsets,
    group_tombstones,
    topic_tombstones,
)
from trio_broker.coordinator.runtime.log import EncodedRecord
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import CoordinatorResult, Now

NOW_MS = 1_700_000_000_000
MOMENT = Now(10.0, NOW_MS)
ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
SETTINGS = GroupCoordinatorConfig()


def commit(
    *partitions: tuple[int, int], topic: str = "orders", topic_id: bytes = ID, metadata: str | None = "", **fields
) -> OffsetCommitRequest:
    """A commit of ``(partition, offset)`` in one topic."""
    wanted = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
        )
        for index, offset in partitions
    ]
    topics = [OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=wanted)]
    return OffsetCommitRequest(**({"group_id": "g", "member_id": ""} | fields), topics=topics)


def codes(response) -> list[int]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def committed(
    request: OffsetCommitRequest, settings: GroupCoordinatorConfig = SETTINGS
) -> CoordinatorResult[EncodedRecord]:
    return commit_result(request, ResponseFuture(), MOMENT.wall_ms, settings)


def do(
    offsets: CommittedOffsets, request: OffsetCommitRequest, settings: GroupCoordinatorConfig = SETTINGS
) -> list[int]:
    """Commit, as a shard does; return the codes."""
    outcome = committed(request, settings)
    for record in outcome.records:
        offsets.put(*record)
    return codes(outcome.completions[0].response)


def forget(offsets: CommittedOffsets, records: list[EncodedRecord]) -> None:
    for key, value in records:
        assert value is None
        offsets.put(key, value)


def fetch(*topics: OffsetFetchRequestTopics | None, group_id: str = "g") -> OffsetFetchRequestGroup:
    """Ask for topics, or for all by ``None``."""
    named = [topic for topic in topics if topic is not None]
    return OffsetFetchRequestGroup(group_id=group_id, topics=None if topics == (None,) else named)


def wanted(*indexes: int, topic: str = "orders", topic_id: bytes = NO_UUID) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(name=topic, topic_id=topic_id, partition_indexes=list(indexes))


def found(response) -> dict[tuple[str, int], tuple[int, int, str | None]]:
    assert response.error_code == 0
    return {
        (topic.name, each.partition_index): (each.committed_offset, each.committed_leader_epoch, each.metadata)
        for topic in response.topics
        for each in topic.partitions
        if each.error_code == 0
    }


class Group:
    """As much of a group as is asked."""

    def __init__(self, *topics: str) -> None:
        self.topics = topics

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topics


@pytest.fixture
def offsets() -> CommittedOffsets:
    return CommittedOffsets()


# --- committing ---


def test_a_commit_comes_back_with_all_it_said(offsets):
    assert do(offsets, commit((0, 17), metadata="host-1")) == [0]
    assert offsets.get("g", "orders", 0) == OffsetAndMetadata(17, 3, "host-1", NOW_MS, None, ID)


def test_a_later_commit_replaces_the_one_before_even_if_it_goes_back(offsets):
    do(offsets, commit((0, 17), (1, 4)))
    do(offsets, commit((0, 12)))
    assert (offsets.get("g", "orders", 0).offset, offsets.get("g", "orders", 1).offset) == (12, 4)
    assert offsets.count == 2


def test_metadata_that_is_null_is_kept_as_empty(offsets):
    do(offsets, commit((0, 1), metadata=None))
    assert offsets.get("g", "orders", 0).metadata == ""


def test_groups_and_topics_do_not_see_each_others_commits(offsets):
    do(offsets, commit((0, 1)))
    do(offsets, commit((0, 2), topic="bills"))
    do(offsets, commit((0, 3), group_id="h"))
    assert set(offsets.topics_of("g")) == {"orders", "bills"}
    assert offsets.get("h", "bills", 0) is None
    assert set(offsets.groups()) == {"g", "h"}
    assert offsets.groups_with_topic("bills") == ["g"]
    assert (offsets.count_of("g"), offsets.count_of("h"), offsets.count_of("i")) == (2, 1, 0)


def test_oversized_metadata_is_refused_for_its_partition_and_the_others_are_committed(offsets):
    small = GroupCoordinatorConfig(offset_metadata_max_bytes=4)
    request = commit((0, 1), (1, 2), metadata="12345")
    request.topics[0].partitions[1].committed_metadata = "1234"
    assert do(offsets, request, small) == [ErrorCode.OFFSET_METADATA_TOO_LARGE, 0]
    assert offsets.of_topic("g", "orders").keys() == {1}


@pytest.mark.parametrize(
    ("metadata", "code"), [("äöüß", 0), ("😀😀", 0), ("😀😀a", ErrorCode.OFFSET_METADATA_TOO_LARGE)]
)
def test_metadata_is_measured_as_java_does(offsets, metadata, code):
    assert do(offsets, commit((0, 1), metadata=metadata), GroupCoordinatorConfig(offset_metadata_max_bytes=4)) == [code]


def test_a_retention_time_of_an_old_client_becomes_an_expiry_and_minus_one_none(offsets):
    do(offsets, commit((0, 1), retention_time_ms=-1))
    do(offsets, commit((1, 1), retention_time_ms=5000))
    do(offsets, commit((2, 1), retention_time_ms=2**63 - 1))
    expiries = [offsets.get("g", "orders", index).expire_timestamp_ms for index in range(3)]
    assert expiries == [None, NOW_MS + 5000, 2**63 - 1]


def test_the_answer_names_every_partition_in_order(offsets):
    outcome = committed(commit((5, 1), (2, 1), (5, 2)))
    [topic] = outcome.completions[0].response.topics
    assert (topic.name, topic.topic_id) == ("orders", ID)
    assert [partition.partition_index for partition in topic.partitions] == [5, 2, 5]


def test_a_group_whose_name_fits_no_record_is_refused_whole():
    with pytest.raises(ValueError, match="key of a commit"):
        committed(commit((0, 1), group_id="g" * 40_000))


# --- the log ---


def test_commits_survive_the_log_in_batches_of_any_size(offsets):
    outcome = committed(commit(*((index, index * 10) for index in range(70))))
    records = [NewRecord(0, *record) for record in outcome.records]
    data = b"".join(build_batch(records[at : at + 7]) for at in range(0, 70, 7))
    for batch in read_batches(data):
        for key, value in batch.keys_and_values():
            offsets.put(key, value)
    assert {index: each.offset for index, each in offsets.of_topic("g", "orders").items()} == {
        index: index * 10 for index in range(70)
    }


@pytest.mark.parametrize("version", range(5))
def test_values_of_every_version_are_read(offsets, version):
    """Kafka's logs go back to 0.8; version 1 may have an expiry, 3 knows the epoch, 4 the topic's id."""
    value = OffsetCommitValue(
        offset=9, leader_epoch=2, metadata="m", commit_timestamp=NOW_MS, expire_timestamp=NOW_MS + 1, topic_id=ID
    )
    offsets.put(encode_commit_key("g", "orders", 0), version.to_bytes(2, "big") + encode_bytes(value, version))
    assert offsets.get("g", "orders", 0) == OffsetAndMetadata(
        9,
        2 if version >= 3 else -1,
        "m",
        NOW_MS,
        NOW_MS + 1 if version == 1 else None,
        ID if version == 4 else NO_UUID,
    )


def test_a_key_of_kafka_0_8_is_the_same_commit(offsets):
    do(offsets, commit((0, 1)))
    key = encode_commit_key("g", "orders", 0)
    for topic in ("orders", "old"):
        old = b"\0\0" + encode_commit_key("g", topic, 0)[2:]
        offsets.put(old, encode_commit_value(5, 0, "", NOW_MS))
    assert offsets.count == 2
    assert (offsets.get("g", "orders", 0).offset, offsets.get("g", "old", 0).offset) == (5, 5)
    offsets.put(key, None)
    offsets.put(b"\0\0" + encode_commit_key("g", "old", 0)[2:], None)
    assert (offsets.count, list(offsets.groups())) == (0, [])


def test_a_record_says_the_same_as_its_bytes(offsets):
    key = OffsetCommitKey(group="g", topic="orders", partition=4)
    value = OffsetCommitValue(offset=9, leader_epoch=2, metadata="m", commit_timestamp=NOW_MS, topic_id=ID)
    offsets.apply(GroupRecord(key, value))
    assert offsets.get("g", "orders", 4) == OffsetAndMetadata(9, 2, "m", NOW_MS, None, ID)
    offsets.put(*encode_group_record(GroupRecord(key, None)))
    assert not offsets.has_offsets("g")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (encode_commit_key("g", "orders", 0), b""),
        (encode_commit_key("g", "orders", 0), b"\0\3"),
        (encode_commit_key("g", "orders", 0), b"\0\5" + bytes(22)),
        (encode_commit_key("g", "orders", 0), encode_commit_value(1, 0, "", NOW_MS)[:-1]),
        (
            encode_commit_key("g", "orders", 0),
            encode_commit_value(1, 0, "\N{BULLET}", NOW_MS).replace(b"\xe2", b"\xff"),
        ),
        (encode_commit_key("g", "orders", 0)[:-1], encode_commit_value(1, 0, "", NOW_MS)),
        (encode_commit_key("g", "orders", 0) + b"\0", encode_commit_value(1, 0, "", NOW_MS)),
        (encode_group_record(GroupRecord(GroupMetadataKey(group="g"), None))[0], encode_commit_value(1, 0, "", NOW_MS)),
        (b"\0\1", None),
        (b"", None),
    ],
)
def test_damage_is_refused_and_changes_nothing(offsets, key, value):
    do(offsets, commit((0, 17)))
    with pytest.raises(WireError):
        offsets.put(key, value)
    assert offsets.count == 1
    assert offsets.get("g", "orders", 0).offset == 17


@given(
    st.lists(
        st.tuples(st.sampled_from("gh"), st.sampled_from("tu"), st.integers(0, 3), st.none() | st.integers(0, 9)),
        max_size=40,
    )
)
def test_any_row_of_records_leaves_the_newest_of_each_key(rows):
    offsets = CommittedOffsets()
    newest: dict[tuple[str, str, int], int] = {}
    for group_id, topic, partition, offset in rows:
        key = encode_commit_key(group_id, topic, partition)
        offsets.put(key, None if offset is None else encode_commit_value(offset, 0, "", NOW_MS))
        if offset is None:
            newest.pop((group_id, topic, partition), None)
        else:
            newest[group_id, topic, partition] = offset
    kept = {
        (group_id, topic, partition): each.offset
        for group_id in offsets.groups()
        for topic in offsets.topics_of(group_id)
        for partition, each in offsets.of_topic(group_id, topic).items()
    }
    assert kept == newest
    assert offsets.count == len(newest) == sum(map(offsets.count_of, offsets.groups()))


def test_a_commit_takes_less_than_250_bytes():
    """A million commits of a thousand groups are to fit well; here are fifty thousand of fifty."""
    keys = [(group, index) for index in range(1000) for group in range(50)]
    gc.collect()
    tracemalloc.start()
    try:
        offsets = CommittedOffsets()
        for group, index in keys:
            value = encode_commit_value(123_456_789 + index, 5, "", NOW_MS + index, topic_id=ID)
            offsets.put(encode_commit_key(f"group-{group:04}", "orders", index), value)
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert offsets.count == len(keys)
    assert used / len(keys) < 250


# --- fetching ---


async def test_what_was_never_committed_is_minus_one_and_no_error(offsets):
    do(offsets, commit((0, 17)))
    response = await run_steps(fetched_offsets(offsets, fetch(wanted(0, 1), wanted(0, topic="bills"))))
    assert found(response) == {("orders", 0): (17, 3, ""), ("orders", 1): (-1, -1, ""), ("bills", 0): (-1, -1, "")}


async def test_a_group_that_is_not_known_has_no_offsets_and_no_error(offsets):
    assert found(await run_steps(fetched_offsets(offsets, fetch(wanted(0))))) == {("orders", 0): (-1, -1, "")}
    assert (await run_steps(fetched_offsets(offsets, fetch(None)))).topics == []


async def test_without_topics_everything_the_group_has_comes(offsets):
    do(offsets, commit((0, 17), (3, 5)))
    do(offsets, commit((1, 8), topic="bills", metadata="m"))
    do(offsets, commit((0, 99), group_id="h"))
    response = await run_steps(fetched_offsets(offsets, fetch(None)))
    assert response.group_id == "g"
    assert found(response) == {("orders", 0): (17, 3, ""), ("orders", 3): (5, 3, ""), ("bills", 1): (8, 3, "m")}


async def test_no_topics_is_not_the_same_as_null(offsets):
    do(offsets, commit((0, 17)))
    assert (await run_steps(fetched_offsets(offsets, fetch()))).topics == []


@pytest.mark.parametrize(
    ("committed_id", "asked_id", "offset"),
    [(ID, ID, 17), (ID, OTHER_ID, -1), (ID, NO_UUID, 17), (NO_UUID, ID, 17), (NO_UUID, NO_UUID, 17)],
)
async def test_offsets_of_a_deleted_topic_are_not_those_of_its_successor(offsets, committed_id, asked_id, offset):
    do(offsets, commit((0, 17), topic_id=committed_id))
    response = await run_steps(fetched_offsets(offsets, fetch(wanted(0, topic_id=asked_id))))
    assert found(response)["orders", 0][0] == offset
    assert response.topics[0].topic_id == asked_id


# --- deleting ---


def delete(*indexes: int, topic: str = "orders") -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    return OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)])


def test_deleting_forgets_what_was_committed_and_succeeds_for_the_rest(offsets):
    do(offsets, commit((0, 17), (1, 4)))
    outcome = delete_records(offsets, delete(0, 2, 0), Group())
    assert codes(outcome.response) == [0, 0, 0]
    assert len(outcome.records) == 1
    forget(offsets, outcome.records)
    assert offsets.of_topic("g", "orders").keys() == {1}


def test_offsets_of_a_topic_the_group_reads_are_not_deleted(offsets):
    do(offsets, commit((0, 17)))
    outcome = delete_records(offsets, delete(0, 1), Group("orders"))
    assert codes(outcome.response) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC] * 2
    assert outcome.records == []


def test_deleting_a_group_forgets_all_it_has_committed(offsets):
    do(offsets, commit((0, 17), (1, 4)))
    do(offsets, commit((0, 8), topic="bills"))
    do(offsets, commit((0, 99), group_id="h"))
    places = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("bills", 0)]
    forget(offsets, group_tombstones(offsets, "g", places))
    assert (offsets.has_offsets("g"), offsets.count) == (False, 1)
    assert group_tombstones(offsets, "g", places) == []


def test_a_deleted_topic_takes_its_commits_along_but_not_those_of_a_later_one(offsets):
    do(offsets, commit((0, 17), topic_id=ID))
    do(offsets, commit((1, 17), topic_id=OTHER_ID))
    do(offsets, commit((2, 17), topic_id=NO_UUID))
    places = [TopicPartition("orders", index) for index in range(4)]
    forget(offsets, topic_tombstones(offsets, "g", ID, places))
    assert offsets.of_topic("g", "orders").keys() == {1}
