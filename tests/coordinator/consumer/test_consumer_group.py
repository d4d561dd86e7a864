"""The consumer group: conversations in ``conversations/consumer_*.txt``, and what clients expect beyond the schemas."""

from __future__ import annotations

import sys
import tracemalloc
import uuid
from types import MappingProxyType
from typing import Any

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.consumer_group_describe import TopicPartitions
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.stored.groups import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    GroupRecord,
    TopicMetadata,
    decode_group_record,
    encode_group_record,
)
from tests.coordinator import conversations
from tests.coordinator.consumer.consumer_driver import ConsumerDriver
from tests.coordinator.group_runner import GROUP, GroupRunner, contents
from trio_broker.concurrency.yield_budget import at_once
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.consumer import descriptions
from trio_broker.coordinator.consumer.group import ConsumerGroup
from trio_broker.coordinator.consumer.member import ConsumerMember
from trio_broker.coordinator.consumer.records import (
    current_assignment_record,
    member_record,
    member_tombstones,
    target_record,
)
from trio_broker.coordinator.consumer.stored_group import StoredConsumerGroup


@pytest.mark.parametrize("path", conversations.files("consumer_*.txt"), ids=lambda path: path.stem)
def test_a_consumer_group_answers_as_written(path):
    conversations.play(path, ConsumerDriver())


def test_the_broker_makes_the_id_in_version_0_and_the_client_from_version_1_on():
    runner = GroupRunner()
    made = runner.heartbeat(joining(""), version=0)
    assert (made.error_code, made.member_id) == (ErrorCode.NONE, "made-1")
    again = runner.heartbeat(
        ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="made-1", member_epoch=2), version=0
    )
    assert (again.error_code, again.member_id) == (ErrorCode.NONE, "made-1")
    assert runner.heartbeat(joining(""), version=1).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "member_id", ["rKr2pSG2Q1mZkFUf7o3SPw", "5f6ee4e9-6d6a-4c6d-8f9a-3a2b1c0d9e8f", "any text, even ümläuts"]
)
def test_the_client_s_id_is_free_text(member_id):
    assert GroupRunner().heartbeat(joining(member_id)).member_id == member_id


def test_the_broker_says_how_often_to_send_heartbeats_and_how_long_a_session_is():
    runner = GroupRunner()
    assert runner.heartbeat(joining("a")).heartbeat_interval_ms == 5_000
    assert runner.consumer_group.next_deadline() == 45.0


def test_an_empty_expression_beside_names_is_none():
    runner = GroupRunner()
    topic_id = runner.add_topic("foo", 1)
    response = runner.heartbeat(joining("a", topics=["foo"], pattern=""))
    assert assigned(response) == {topic_id: [0]}
    assert at_once(runner.consumer_group.describe(runner.image)).members[0].subscribed_topic_regex == ""


def test_null_fields_mean_unchanged_and_an_assignment_is_sent_only_when_it_changes():
    runner = GroupRunner()
    topic_id = runner.add_topic("foo", 1)
    assert assigned(runner.heartbeat(joining("a", topics=["foo"]))) == {topic_id: [0]}
    kept = runner.heartbeat(ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=2))
    assert (kept.error_code, kept.member_epoch, kept.assignment) == (ErrorCode.NONE, 2, None)
    runner.grow_topic("foo", 2)
    runner.wait(1)
    changed = runner.heartbeat(ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=2))
    assert assigned(changed) == {topic_id: [0, 1]}


def test_a_static_member_that_comes_back_under_its_own_id_has_a_session_again():
    runner = GroupRunner()
    join = joining("a")
    join.instance_id = "i"
    runner.heartbeat(join)
    away = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", instance_id="i", member_epoch=-2)
    assert runner.heartbeat(away).error_code == ErrorCode.NONE
    runner.wait(40)
    assert runner.heartbeat(join).error_code == ErrorCode.NONE
    runner.wait(40)
    assert list(runner.consumer_group.members) == ["a"]
    runner.wait(5)
    assert runner.consumer_group.is_deserted


def test_a_member_whose_leaving_is_refused_has_the_session_that_it_had():
    runner = GroupRunner()
    runner.heartbeat(joining("a"))
    runner.wait(40)
    runner.next_write_fails_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    leave = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=-1)
    assert runner.heartbeat(leave).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert list(runner.consumer_group.members) == ["a"]
    runner.wait(5)
    assert runner.consumer_group.is_deserted


@pytest.mark.parametrize(
    ("member_id", "epoch", "code"),
    [
        ("a", 1, ErrorCode.FENCED_MEMBER_EPOCH),
        ("a", 3, ErrorCode.FENCED_MEMBER_EPOCH),
        ("b", 2, ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", -1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_wrong_epoch_is_110_and_an_unknown_member_25(member_id, epoch, code):
    runner = GroupRunner()
    runner.heartbeat(joining("a"))
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=epoch)
    assert runner.heartbeat(request).error_code == code


def test_committing_and_fetching_at_a_wrong_epoch_is_113():
    runner = GroupRunner()
    runner.heartbeat(joining("a"))
    group = runner.consumer_group
    topic = OffsetCommitRequestTopic(
        partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")]
    )
    commit = OffsetCommitRequest(group_id=GROUP, member_id="a", generation_id_or_member_epoch=1, topics=[topic])
    assert group.validate_offset_commit(commit, 9, runner.now) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.validate_offset_fetch("a", 1) == ErrorCode.STALE_MEMBER_EPOCH


def test_expressions_are_those_of_re2():
    runner = GroupRunner()
    assert runner.heartbeat(joining("a", pattern="(?=foo)")).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert runner.heartbeat(joining("a", pattern=r"\Qfoo\E.*")).error_code == ErrorCode.NONE


def test_a_refusal_says_why():
    response = GroupRunner().heartbeat(joining("a", assignor="sticky"))
    assert response.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert response.error_message == "there is no assignor 'sticky'; those there are: uniform, range"


def test_a_group_whose_assignor_is_gone_from_the_configuration_uses_the_first_one():
    runner = GroupRunner()
    runner.add_topic("foo", 2)
    runner.heartbeat(joining("a", topics=["foo"], assignor="range"))
    runner.settings = GroupCoordinatorConfig(group_consumer_assignors=("uniform",))
    runner.reload()
    assert at_once(runner.consumer_group.describe(runner.image)).assignor_name == "uniform"
    assert runner.heartbeat(joining("b", topics=["foo"])).error_code == ErrorCode.NONE


def test_many_topics_are_matched_in_steps_that_let_other_groups_have_their_turn():
    runner = GroupRunner()
    for number in range(2_500):
        runner.add_topic(f"t{number}", 1)
    runner.heartbeat(joining("a", pattern="t.*"))
    group = runner.consumer_group
    steps = []
    while group.next_deadline() == 0.0:
        steps.append(group.tick(runner.now, runner.image))
    assert [bool(step.records) for step in steps] == [False, False, True]


def test_records_of_a_kafka_before_4_1_are_read_and_taken_away():
    """It wrote the topics themselves; since then there is a hash, and no assignment epochs before 4.3."""
    runner = GroupRunner()
    topic_id = runner.add_topic("foo", 2)
    runner.heartbeat(joining("a", topics=["foo"]))
    for key, record in [(key, decode_group_record(key, value)) for key, value in runner.log.items()]:
        assert record is not None
        if isinstance(record.value, ConsumerGroupCurrentMemberAssignmentValue):
            value: Any = record.value
            [topic] = value.assigned_partitions
            old = attrs.evolve(value, assigned_partitions=[attrs.evolve(topic, assignment_epochs=[])])
            runner.log[key] = encode_group_record(attrs.evolve(record, value=old))[1] or b""
        if isinstance(record.value, ConsumerGroupMetadataValue):
            runner.log[key] = (
                encode_group_record(attrs.evolve(record, value=ConsumerGroupMetadataValue(epoch=2)))[1] or b""
            )
    key, value = encode_group_record(
        GroupRecord(
            ConsumerGroupPartitionMetadataKey(group_id=GROUP),
            ConsumerGroupPartitionMetadataValue(
                topics=[TopicMetadata(topic_id=topic_id, topic_name="foo", num_partitions=2, partition_metadata=[])]
            ),
        )
    )
    runner.log[key] = value or b""
    runner.seconds += 10
    runner.reload()
    assert runner.consumer_group.members["a"].assigned == {topic_id: {0: 2, 1: 2}}
    response = runner.heartbeat(ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=2))
    assert (response.error_code, response.member_epoch) == (ErrorCode.NONE, 3)
    assert key not in runner.log


def test_a_member_in_a_state_of_a_newer_kafka_has_to_begin_anew():
    runner = GroupRunner()
    runner.add_topic("foo", 2)
    runner.heartbeat(joining("a", topics=["foo"]))
    [record] = [one for one in runner.records() if isinstance(one.value, ConsumerGroupCurrentMemberAssignmentValue)]
    current: Any = record.value
    key, value = encode_group_record(attrs.evolve(record, value=attrs.evolve(current, state=9)))
    runner.log[key] = value or b""
    runner.reload()
    lives = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=2)
    assert runner.heartbeat(lives).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    again = runner.heartbeat(joining("a", topics=["foo"]))
    assert (again.error_code, sum(map(len, assigned(again).values()))) == (ErrorCode.NONE, 2)


def test_deleting_a_group_leaves_nothing_of_it():
    runner = GroupRunner()
    runner.add_topic("foo", 2)
    runner.heartbeat(joining("a", topics=["foo"]))
    runner.heartbeat(joining("b", pattern="f.*"))
    runner.tick()
    assert runner.consumer_group.validate_delete_group() == ErrorCode.NON_EMPTY_GROUP
    for member_id in ("a", "b"):
        runner.heartbeat(ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=-1))
    group = runner.consumer_group
    assert group.validate_delete_group() == ErrorCode.NONE
    tombstones = group.tombstones()
    assert all(record.value is None for record in tombstones)
    assert runner.log.keys() <= {encode_group_record(record)[0] for record in tombstones}
    for record in tombstones:
        group.apply(record)
    assert not group.exists
    assert contents(group.stored) == contents(StoredConsumerGroup(GROUP))


def test_a_member_takes_no_more_than_10_kb():
    """Of a group of two hundred, each with ten partitions."""
    records = [encode_group_record(record) for number in range(200) for record in records_of_member(number)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    group = ConsumerGroup(GROUP, GroupCoordinatorConfig())
    for key, value in records:
        record = decode_group_record(key, value)
        assert record is not None
        group.apply(record)
    group.loaded(GroupRunner().now)
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(group.members) == 200
    assert taken / 200 < 10_000


def test_a_member_of_many_topics_is_described_a_few_of_them_at_a_time(monkeypatch):
    runner, names = GroupRunner(), [f"topic-{number:03}" for number in range(200)]
    for name in names:
        runner.add_topic(name, 1)
    runner.heartbeat(joining("a", topics=names))
    monkeypatch.setattr(descriptions, "SORTED_AT_ONCE", 10)
    monkeypatch.setattr(descriptions, "TOPICS_AT_ONCE", 10)
    made, most = 0, 0

    def counted(**fields: Any) -> TopicPartitions:
        nonlocal made
        made += 1
        return TopicPartitions(**fields)

    monkeypatch.setattr(descriptions, "TopicPartitions", counted)
    description = runner.consumer_group.describe(runner.image)
    while True:
        before = made
        try:
            next(description)
        except StopIteration as end:
            [member] = end.value.members
            break
        finally:
            most = max(most, made - before)
    assert most == 10
    assert member.subscribed_topic_names == names
    for assignment in (member.assignment, member.target_assignment):
        assert sorted(topic.topic_name for topic in assignment.topic_partitions) == names


def test_the_names_of_a_subscription_leave_memory_with_its_last_member():
    runner = GroupRunner()
    small = sys.getsizeof(StoredConsumerGroup(GROUP).subscribed_names)
    runner.heartbeat(joining("a", topics=[f"topic-{number}" for number in range(20_000)]))
    group = runner.consumer_group
    assert group._topic_ids._known
    runner.heartbeat(ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="a", member_epoch=-1))
    assert group.is_deserted
    assert not group._topic_ids._known
    assert sys.getsizeof(group.stored.subscribed_names) == small


def test_the_names_of_a_subscription_that_is_refused_leave_memory():
    runner = GroupRunner()
    runner.heartbeat(joining("a"))
    group = runner.consumer_group
    runner.next_write_fails_with = ErrorCode.COORDINATOR_NOT_AVAILABLE
    runner.heartbeat(joining("b", topics=[f"topic-{number}" for number in range(20_000)]))
    assert not group._topic_ids._known


def records_of_member(number: int) -> list[GroupRecord]:
    partitions = range(number * 10, number * 10 + 10)
    member = ConsumerMember(
        member_id=str(uuid.UUID(int=number)),
        member_epoch=2,
        client_id="a client with a name of some length",
        client_host="/127.0.0.1",
        subscribed_topic_names=frozenset({"a topic with a name of some length"}),
        assigned={bytes(16): dict.fromkeys(partitions, 2)},
    )
    return [
        member_record(GROUP, member),
        target_record(GROUP, member.member_id, {bytes(16): frozenset(partitions)}),
        current_assignment_record(GROUP, member),
    ]


def joining(
    member_id: str, topics: list[str] | None = None, pattern: str | None = None, assignor: str | None = None
) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["any"] if topics is None and pattern is None else topics or [],
        subscribed_topic_regex=pattern,
        server_assignor=assignor,
        topic_partitions=[],
    )


def assigned(response: ConsumerGroupHeartbeatResponse) -> dict[bytes, list[int]]:
    assert response.assignment is not None
    return {topic.topic_id: topic.partitions for topic in response.assignment.topic_partitions}


def test_a_member_s_topics_are_not_counted_again_when_its_assignment_changes():
    stored = StoredConsumerGroup(GROUP)
    member = ConsumerMember(member_id="m", subscribed_topic_names=frozenset({"a", "b"}))
    stored.apply(member_record(GROUP, member))
    assert stored.subscribed_names == {"a": 1, "b": 1}
    stored.subscribed_names = MappingProxyType(stored.subscribed_names)  # type: ignore[assignment]
    stored.apply(current_assignment_record(GROUP, attrs.evolve(member, member_epoch=3)))
    assert stored.members["m"].member_epoch == 3


def test_a_subscription_that_several_members_have_is_kept_and_counted_once():
    stored = StoredConsumerGroup(GROUP)
    for member_id in "mno":
        member = ConsumerMember(member_id=member_id, subscribed_topic_names=frozenset({"a", "b"}))
        stored.apply(member_record(GROUP, member))
    assert stored.subscribed_names == {"a": 1, "b": 1}
    assert len({id(member.subscribed_topic_names) for member in stored.members.values()}) == 1
    other = ConsumerMember(member_id="n", subscribed_topic_names=frozenset({"b", "c"}))
    stored.apply(member_record(GROUP, other))
    assert stored.subscribed_names == {"a": 1, "b": 2, "c": 1}
    existing = dict.fromkeys("abcd").keys()
    assert stored.subscribed_topics(existing) == {"a", "b", "c"}
    assert stored.subscribed_topics(existing, without=[stored.members["m"]]) == {"a", "b", "c"}
    both = [stored.members["m"], stored.members["o"]]
    assert stored.subscribed_topics(existing, without=both) == {"b", "c"}
    assert stored.subscribed_topics(dict.fromkeys("ac").keys(), without=both, plus=both[0]) == {"a", "c"}
    for member_id in "mno":
        for record in member_tombstones(GROUP, member_id):
            stored.apply(record)
    assert (stored.subscribed_names, stored.subscriptions) == ({}, {})
