"""A consumer group under clients that keep to the protocol, and a world that does not.

Members join, leave, die, lose answers, change their subscriptions and take their time to give up partitions; topics
come, grow and go; the log refuses; the broker restarts. At every moment no two members may be at work on one partition,
and what the log tells must be what the group is, which the runner asserts. When the world has calmed down, every
partition of every subscribed topic is somebody's, and the group is stable.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.coordinator.group_runner import GROUP, GroupRunner
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.consumer.group import ConsumerGroup
from trio_broker.coordinator.consumer.stored_group import ConsumerGroupState

SESSION_SECONDS = 45.0
REBALANCE_SECONDS = 20.0
SILENCE_SECONDS = min(SESSION_SECONDS, REBALANCE_SECONDS)
"""A member that has heard nothing for so long may have been removed: an answer that was lost may have asked it to give
something up."""

CALM_ROUNDS = 60
"""Heartbeats of everyone until all must have settled."""

TOPICS = ("foo", "bar", "baz")
PATTERNS = ("ba.*", ".*o", "nothing")
REJOIN_CODES = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND)

NAMES = ("a", "b", "c", "d")

names = st.sampled_from(NAMES)
numbers = st.integers(0, len(NAMES) - 1)
subscriptions = st.one_of(st.just(["foo"]), st.just(["foo", "bar"]), st.lists(st.sampled_from(TOPICS), unique=True))
patterns = st.one_of(st.just(""), st.just(""), st.sampled_from(PATTERNS))
rarely = st.sampled_from([False, False, False, True])


@attrs.define
class Member:
    """A client, as KIP-848 has it: it works on ``owned``, and was asked to work on ``assigned``."""

    member_id: str
    topics: list[str]
    pattern: str
    instance_id: str | None
    epoch: int = 0
    owned: set[tuple[bytes, int]] = attrs.Factory(set)
    assigned: set[tuple[bytes, int]] = attrs.Factory(set)
    says_all: bool = True
    """Whether the next heartbeat says everything, as it does after one that was not answered."""
    heard_at: float = 0.0
    must_revoke_by: float = float("inf")

    def forget(self) -> None:
        """It was fenced, or cannot know that it was not."""
        self.epoch = 0
        self.owned.clear()
        self.assigned.clear()
        self.must_revoke_by = float("inf")

    def give_up(self) -> None:
        self.owned &= self.assigned
        self.must_revoke_by = float("inf")

    def take(self) -> None:
        """Begin with what was assigned, once everything that should be given up is."""
        if self.owned <= self.assigned:
            self.owned |= self.assigned

    def request(self) -> ConsumerGroupHeartbeatRequest:
        joins, all_of_it = self.epoch == 0, self.says_all or self.epoch == 0
        owned: dict[bytes, list[int]] = {}
        for topic_id, index in sorted(self.owned):
            owned.setdefault(topic_id, []).append(index)
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=round(REBALANCE_SECONDS * 1000) if all_of_it else -1,
            subscribed_topic_names=self.topics if all_of_it else None,
            subscribed_topic_regex=self.pattern if all_of_it else None,
            topic_partitions=[]
            if joins
            else [TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in owned.items()],
        )


class World:
    """The group, its members, and what happens to them."""

    def __init__(self, assignment_interval_ms: int) -> None:
        self.runner = GroupRunner(GroupCoordinatorConfig(group_consumer_assignment_interval_ms=assignment_interval_ms))
        self.members: dict[str, Member] = {}
        self.lives = 0
        self.runner.add_topic("foo", 4)

    # --- Members ---

    def somebody(self, number: int) -> Member | None:
        present = sorted(self.members)
        return self.members[present[number % len(present)]] if present else None

    def join(self, name: str, topics: list[str], pattern: str, is_static: bool) -> None:
        if name in self.members:
            return
        self.lives += 1
        member_id = f"{name}-{self.lives}"
        self.members[name] = Member(member_id, topics, pattern, name if is_static else None)
        self.speak(self.members[name], answer_is_lost=False)

    def heartbeat(self, number: int, answer_is_lost: bool) -> None:
        if member := self.somebody(number):
            self.speak(member, answer_is_lost=answer_is_lost)

    def heartbeats_of_all(self) -> None:
        for member in self.members.values():
            self.speak(member, answer_is_lost=False)

    def speak(self, member: Member, *, answer_is_lost: bool) -> None:
        response = self.runner.heartbeat(member.request())
        if answer_is_lost:
            member.says_all = True
            return
        self.hear(member, response)

    def hear(self, member: Member, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code in REJOIN_CODES:
            member.forget()
        elif response.error_code:
            # UNRELEASED_INSTANCE_ID: the former life of a static member has not timed out. Or the log refused.
            member.says_all = True
        else:
            member.heard_at = self.runner.seconds
            member.epoch = response.member_epoch
            member.says_all = False
            if response.assignment is not None:
                self.assign(member, response.assignment.topic_partitions)

    def assign(self, member: Member, partitions: list[TopicPartitions]) -> None:
        member.assigned = {(topic.topic_id, index) for topic in partitions for index in topic.partitions}
        if member.owned <= member.assigned:
            member.take()
        elif member.must_revoke_by == float("inf"):
            member.must_revoke_by = self.runner.seconds + REBALANCE_SECONDS

    def give_up(self, number: int) -> None:
        if member := self.somebody(number):
            member.give_up()
            member.take()

    def subscribe(self, number: int, topics: list[str], pattern: str) -> None:
        if member := self.somebody(number):
            member.topics, member.pattern, member.says_all = topics, pattern, True

    def leave(self, number: int, is_static_leave: bool) -> None:
        member = self.somebody(number)
        if member is None:
            return
        self.forget(member)
        if member.epoch == 0:
            return
        epoch = -2 if is_static_leave and member.instance_id is not None else -1
        self.runner.heartbeat(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id=member.member_id, member_epoch=epoch, instance_id=member.instance_id
            )
        )

    def die(self, number: int) -> None:
        if member := self.somebody(number):
            self.forget(member)

    def forget(self, member: Member) -> None:
        self.members = {name: one for name, one in self.members.items() if one is not member}

    # --- The world ---

    def wait(self, seconds: float) -> None:
        """Members know when they were silent for too long, or too slow; such ones stop before the broker acts on it."""
        until = self.runner.seconds + seconds
        for member in self.members.values():
            if until >= min(member.heard_at + SILENCE_SECONDS, member.must_revoke_by):
                member.forget()
                member.says_all = True
        self.runner.wait(seconds)

    def topic(self, name: str, more: int) -> None:
        known = self.runner.image.topics.get(name)
        if known is None:
            self.runner.add_topic(name, more + 1)
        else:
            self.runner.grow_topic(name, len(known.partitions) + more)

    def delete_topic(self, name: str) -> None:
        if name in self.runner.image.topics:
            self.runner.delete_topic(name)

    def tick(self) -> None:
        self.runner.tick()

    def restart(self) -> None:
        self.runner.reload()
        for member in self.members.values():
            member.says_all = True

    def the_log_refuses(self) -> None:
        self.runner.next_write_fails_with = ErrorCode.COORDINATOR_NOT_AVAILABLE

    # --- What holds ---

    def nobody_works_on_what_another_one_works_on(self) -> None:
        owners: dict[tuple[bytes, int], str] = {}
        for member in self.members.values():
            for partition in member.owned:
                owner = owners.setdefault(partition, member.member_id)
                assert owner == member.member_id, f"{partition}: {owner} and {member.member_id}"

    def calm_down(self) -> None:
        """The world calms down: all that lives goes on living."""
        self.runner.next_write_fails_with = None
        # Those who died are removed, and searches for topics are due.
        for _ in range(9):
            self.everyone_speaks(8.0)
        for _ in range(CALM_ROUNDS):
            if self.is_settled():
                break
            self.everyone_speaks(2.0)
        self.assert_settled()

    def everyone_speaks(self, seconds: float) -> None:
        for member in self.members.values():
            self.speak(member, answer_is_lost=False)
            member.give_up()
            member.take()
            self.runner.tick()
        self.nobody_works_on_what_another_one_works_on()
        self.runner.wait(seconds)

    def is_settled(self) -> bool:
        group = self.runner.group
        if not isinstance(group, ConsumerGroup):
            return not self.members
        works = {member.member_id: member.owned for member in self.members.values()}
        shall = {
            member.member_id: {
                (topic_id, index) for topic_id, indexes in group.stored.target_of(member).items() for index in indexes
            }
            for member in group.members.values()
        }
        at_rest = ConsumerGroupState.STABLE if self.members else ConsumerGroupState.EMPTY
        return group.state is at_rest and works == shall and self.covered() == self.wanted()

    def covered(self) -> set[tuple[bytes, int]]:
        return {partition for member in self.members.values() for partition in member.owned}

    def wanted(self) -> set[tuple[bytes, int]]:
        """All partitions of topics that somebody is subscribed to."""
        group, image = self.runner.consumer_group, self.runner.image
        names = {name for member in group.members.values() for name in group.stored.topics_of(member)}
        return {
            (image.topics[name].topic_id, index)
            for name in names
            if name in image.topics
            for index in image.topics[name].partitions
        }

    def assert_settled(self) -> None:
        assert self.is_settled(), f"{self.runner.group and vars(self.runner.consumer_group.stored)}, {self.members}"
        if not self.members:
            return
        subscribed = {(tuple(sorted(member.topics)), member.pattern) for member in self.members.values()}
        sizes = [len(member.owned) for member in self.members.values()]
        if len(subscribed) == 1:
            assert max(sizes) - min(sizes) <= 1


Event = tuple[str, dict[str, Any]]


def event(name: str, /, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Event]:
    """Something that ``World.name`` does."""
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


joins = event("join", name=names, topics=subscriptions, pattern=patterns, is_static=rarely)
ordinary = st.one_of(
    event("heartbeat", number=numbers, answer_is_lost=rarely),
    event("heartbeats_of_all"),
    event("give_up", number=numbers),
    event("wait", seconds=st.sampled_from([0.1, 1.0, 5.0, 11.0])),
)
member_changes = st.one_of(
    joins,
    event("subscribe", number=numbers, topics=subscriptions, pattern=patterns),
    event("leave", number=numbers, is_static_leave=st.booleans()),
    event("die", number=numbers),
)
world_changes = st.one_of(
    event("topic", name=st.sampled_from(TOPICS), more=st.integers(0, 4)),
    event("delete_topic", name=st.sampled_from(TOPICS)),
    event("wait", seconds=st.sampled_from([19.0, 44.0, 700.0])),
    event("tick"),
    event("restart"),
    event("the_log_refuses"),
)
histories = st.lists(st.one_of(ordinary, ordinary, ordinary, member_changes, world_changes), max_size=60)


def live_through(history: list[Event], assignment_interval_ms: int) -> None:
    world = World(assignment_interval_ms)
    world.join("a", ["foo"], "", is_static=False)
    world.join("b", ["foo", "bar"], "", is_static=False)
    for name, arguments in history:
        getattr(world, name)(**arguments)
        world.nobody_works_on_what_another_one_works_on()
    world.calm_down()


@pytest.mark.parametrize("assignment_interval_ms", [0, 1000])
@given(history=histories)
def test_no_partition_is_worked_on_twice_and_all_are_in_the_end(assignment_interval_ms, history):
    live_through(history, assignment_interval_ms)
