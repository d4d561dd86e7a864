"""Committed offsets go when nobody has used them for the time of retention, and never before."""

from __future__ import annotations

import pytest

from kafka_wire.stored.groups import GroupMetadataValue, MemberMetadata, OffsetCommitKey, decode_group_record
from kafka_wire.stored.offset_commits import NO_EXPIRE_TIMESTAMP, encode_commit_key, encode_commit_value
from tests.coordinator.appended import restored
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.classic.group_metadata import ClassicGroupState
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets
from trio_broker.coordinator.offsets.expiry import OffsetRetention, expired_offsets, expires_at_ms
from trio_broker.coordinator.runtime.result import Now

RETENTION_MS = 60_000
SETTINGS = GroupCoordinatorConfig(offsets_retention_minutes=1)
NOW_MS = 1_700_000_000_000
NOW = Now(0.0, NOW_MS)


def subscription(*topics: str) -> bytes:
    """Version 0 of what consumers send for a strategy: topics and no user data."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


def group(*, subscribed: bytes | None = None, protocol_type: str = "consumer", since_ms: int = NOW_MS) -> ClassicGroup:
    """A classic group with one member that sent ``subscribed``, or an empty one."""
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout=10_000,
        subscription=subscribed or b"",
        assignment=b"",
    )
    value = GroupMetadataValue(
        protocol_type=protocol_type,
        generation=4,
        protocol=None if subscribed is None else "range",
        leader=None if subscribed is None else "m",
        current_state_timestamp=since_ms,
        members=[] if subscribed is None else [member],
    )
    return restored(value, SETTINGS, NOW)


def simple_group() -> ClassicGroup:
    """A group of commits that never had a member."""
    return ClassicGroup("g", SETTINGS, NOW)


class ConsumerLike:
    """As much of a KIP-848 group as is asked."""

    def __init__(self, *topics: str) -> None:
        self.topics = topics

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.topics

    def offset_retention(self) -> OffsetRetention:
        return OffsetRetention()


def committed(**ages_ms: int | tuple[int, int]) -> CommittedOffsets:
    """Commits of group g in topics by name, by their age; a pair adds an expiry of its own, so far in the future."""
    offsets = CommittedOffsets()
    for topic, age_ms in ages_ms.items():
        age_ms, expires_in_ms = age_ms if isinstance(age_ms, tuple) else (age_ms, None)
        expires = NO_EXPIRE_TIMESTAMP if expires_in_ms is None else NOW_MS + expires_in_ms
        offsets.put(encode_commit_key("g", topic, 0), encode_commit_value(5, 0, "", NOW_MS - age_ms, expires))
    return offsets


def expired(offsets: CommittedOffsets, group, now: Now = NOW) -> set[str]:
    topics = set()
    for key, value in expired_offsets(offsets, "g", group, SETTINGS, now, places_of(offsets)):
        record = decode_group_record(key, value)
        assert record is not None
        assert isinstance(record.key, OffsetCommitKey)
        assert (record.key.group, record.value) == ("g", None)
        topics.add(record.key.topic)
    return topics


def places_of(offsets: CommittedOffsets) -> list[TopicPartition]:
    return [TopicPartition(topic, 0) for topic in offsets.topics_of("g")]


ALL_AGES = {"fresh": 0, "late": RETENTION_MS - 1, "due": RETENTION_MS, "old": 10 * RETENTION_MS}


def test_a_simple_consumers_offsets_expire_from_their_commit():
    assert expired(committed(**ALL_AGES), simple_group()) == {"due", "old"}
    never_joined = ClassicGroup("g", SETTINGS, NOW)
    assert never_joined.protocol_type is None
    assert expired(committed(**ALL_AGES), never_joined) == {"due", "old"}


def test_offsets_of_an_empty_group_expire_all_together_from_when_it_became_empty():
    offsets = committed(**ALL_AGES)
    assert expired(offsets, group(since_ms=NOW_MS - RETENTION_MS + 1)) == set()
    assert expired(offsets, group(since_ms=NOW_MS - RETENTION_MS)) == ALL_AGES.keys()


def test_an_empty_group_that_does_not_know_since_when_lets_offsets_expire_from_their_commit():
    assert expired(committed(**ALL_AGES), group(since_ms=-1)) == {"due", "old"}


def test_offsets_of_a_group_with_members_expire_where_nobody_is_subscribed():
    offsets = committed(read=10 * RETENTION_MS, left=10 * RETENTION_MS, lately=0)
    assert expired(offsets, group(subscribed=subscription("read"))) == {"left"}


def test_offsets_of_members_that_cannot_be_understood_never_expire():
    offsets = committed(old=10 * RETENTION_MS, own=(10 * RETENTION_MS, -1))
    assert expired(offsets, group(subscribed=b"\xff")) == set()
    assert expired(offsets, group(subscribed=subscription("other"), protocol_type="connect")) == set()


@pytest.mark.parametrize(
    "state", [state for state in ClassicGroupState if state.value in ("PreparingRebalance", "CompletingRebalance")]
)
def test_nothing_expires_while_a_group_rebalances(state):
    rebalancing = group(subscribed=subscription("read"))
    rebalancing.state = state
    assert expired(committed(old=10 * RETENTION_MS), rebalancing) == set()


def test_offsets_of_a_consumer_group_expire_from_their_commit_where_nobody_is_subscribed():
    offsets = committed(**ALL_AGES, read=10 * RETENTION_MS)
    assert expired(offsets, ConsumerLike("read")) == {"due", "old"}
    assert expired(offsets, ConsumerLike()) == {"due", "old", "read"}


@pytest.mark.parametrize("keeper", [simple_group(), group(since_ms=NOW_MS), group(since_ms=0)])
def test_a_commit_with_a_retention_of_its_own_ends_with_that(keeper):
    offsets = committed(over=(0, 0), past=(0, -5), ahead=(10 * RETENTION_MS, 1))
    assert expired(offsets, keeper) == {"over", "past"}


def test_what_has_expired_is_gone_and_the_rest_is_not():
    offsets = committed(**ALL_AGES)
    for record in expired_offsets(offsets, "g", simple_group(), SETTINGS, NOW, places_of(offsets)):
        offsets.put(*record)
    assert set(offsets.topics_of("g")) == {"fresh", "late"}
    then = Now(1.0, NOW_MS + RETENTION_MS)
    later = expired_offsets(offsets, "g", simple_group(), SETTINGS, then, places_of(offsets))
    assert len(later) == offsets.count_of("g")


def test_a_group_without_offsets_has_none_to_expire():
    assert expired(CommittedOffsets(), simple_group()) == set()
    assert expired(CommittedOffsets(), group(since_ms=0)) == set()


@pytest.mark.parametrize(
    "held_by",
    [
        simple_group(),
        group(since_ms=NOW_MS - 1000),
        group(since_ms=-1),
        group(subscribed=subscription("read")),
        ConsumerLike("read"),
    ],
    ids=["simple", "empty", "empty, since when is not known", "classic", "consumer"],
)
def test_the_time_that_is_reported_is_that_at_which_it_expires(held_by):
    offsets = committed(left=5000, own=(5000, 7000), read=5000)
    for topic in ("left", "own", "read"):
        commit = offsets.get("g", topic, 0)
        assert commit is not None
        at_ms = expires_at_ms(commit, topic, held_by, SETTINGS)
        if at_ms is None:
            assert topic not in expired(offsets, held_by, Now(0.0, NOW_MS + 1000 * RETENTION_MS))
        else:
            assert topic not in expired(offsets, held_by, Now(0.0, at_ms - 1))
            assert topic in expired(offsets, held_by, Now(0.0, at_ms))
