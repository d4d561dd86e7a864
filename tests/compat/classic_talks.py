"""Conversations about classic groups: finding the coordinator, joining, syncing, heartbeats, leaving, static members.

Each is a function that says its requests to whatever broker the ``Talk`` is connected to; test_groups_like_kafka.py
compares what was answered.
"""

from __future__ import annotations

from typing import Any, Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.leave_group import LeaveGroupRequest
from tests.compat.broker_talk import Talk
from tests.compat.group_requests import (
    commit,
    heartbeat,
    join,
    leave,
    pending,
    settled,
    subscription,
    sync,
)

MAX_SIZE: Final = 3
"""Of a group: the brokers' ``group.max.size``."""


def rebalancing(response: Any) -> bool:
    return bool(response.error_code == ErrorCode.REBALANCE_IN_PROGRESS)


def describe(talk: Talk, group: str, version: int = 6) -> None:
    talk.ask(DescribeGroupsRequest(groups=[group]), version)


def finding_the_coordinator(talk: Talk) -> None:
    for version in range(4):
        talk.ask(FindCoordinatorRequest(key="some-group"), version)
    for version in range(4, 7):
        talk.ask(FindCoordinatorRequest(coordinator_keys=["some-group"]), version)
    talk.note("several at once, none, and the empty name")
    talk.ask(FindCoordinatorRequest(coordinator_keys=["one", "two"]), 6)
    talk.ask(FindCoordinatorRequest(coordinator_keys=[]), 6)
    talk.ask(FindCoordinatorRequest(coordinator_keys=[""]), 6)
    talk.ask(FindCoordinatorRequest(key=""), 0)
    talk.note("of a type that does not exist")
    talk.ask(FindCoordinatorRequest(key="some-group", key_type=9), 2)
    talk.ask(FindCoordinatorRequest(coordinator_keys=["some-group"], key_type=9), 6)


def joining_in_every_version(talk: Talk) -> None:
    talk.note("without a member id: let in up to version 3, sent back with an id from 4 on (KIP-394)")
    for version in range(10):
        group = f"{talk.name}-{version}"
        answer = talk.ask(join(group), version)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            talk.ask(join(group, answer.member_id), version)


def joining_refused(talk: Talk) -> None:
    group = f"{talk.name}-group"
    for version in (0, 5, 6, 7, 9):
        talk.ask(join(""), version)
    talk.note("session timeouts")
    for session_ms in (5999, 1_800_001, -1, 0):
        talk.ask(join(group, session_ms=session_ms), 9)
    talk.ask(join(group, session_ms=5999), 2)
    talk.note("no protocols, no protocol type")
    talk.ask(join(group, protocols={}), 9)
    talk.ask(join(group, protocols={}), 3)
    talk.ask(join(group, protocol_type=""), 9)
    talk.ask(join(group, protocol_type=""), 3)
    talk.note("a member that nobody knows, in a group that nobody knows, and the group that is left behind")
    talk.ask(join(group, "stranger"), 4)
    talk.ask(join(group, "stranger"), 9)
    describe(talk, group)
    talk.note("a member that nobody knows, in a group that lives")
    settled(talk, group)
    talk.ask(join(group, "stranger"), 9)
    talk.ask(join(group, "stranger", instance="instance"), 9)
    talk.note("another protocol type, no common protocol; with and without a member id")
    talk.ask(join(group, protocol_type="connect"), 9)
    talk.ask(join(group, protocol_type="connect"), 3)
    talk.ask(join(group, protocols={"sticky": b""}), 9)
    talk.ask(join(group, protocols={"sticky": b""}), 3)
    talk.ask(join(group, "stranger", protocols={"sticky": b""}), 9)
    describe(talk, group)


def a_group_that_is_full(talk: Talk) -> None:
    group = f"{talk.name}-group"
    first, generation = settled(talk, group)
    others = [pending(talk, group) for _ in range(MAX_SIZE - 1)]
    talk.note("ids alone do not fill it; this one is refused because two join at the same time and fill it first")
    for number, member in enumerate(others):
        talk.begin(join(group, member), 9, f"member {number}")
    talk.ask_until(
        lambda answer: len(answer.groups[0].members) == MAX_SIZE, DescribeGroupsRequest(groups=[group]), 6, what="full"
    )
    talk.ask(join(group, first), 9)
    for number in range(len(others)):
        talk.finish(f"member {number}")
    talk.note("one more, in every way there is")
    talk.ask(join(group), 3)
    talk.ask(join(group), 9)
    talk.ask(join(group, instance="instance"), 9)
    talk.note("those who are in may join again")
    talk.ask(sync(group, generation + 1, first, {}), 5)
    talk.ask(join(group, others[0]), 9)


def joining_again(talk: Talk) -> None:
    group = f"{talk.name}-group"
    member, _ = settled(talk, group)
    talk.note("a leader that joins again makes a new generation, even with nothing changed")
    talk.ask(join(group, member), 9)
    talk.note("before the sync, a leader that joins again unchanged gets the same generation")
    talk.ask(join(group, member), 9)
    talk.ask(join(group, member, protocols={"range": subscription("other")}), 9)
    talk.ask(sync(group, 3, member, {member: b"new"}), 3)
    talk.note("other protocols, other type")
    talk.ask(join(group, member, protocols={"sticky": subscription(), "range": subscription()}), 9)
    talk.ask(join(group, member, protocols={"other": subscription()}), 9)
    talk.ask(join(group, member, protocol_type="connect"), 9)
    talk.note("in an empty group anything goes")
    talk.ask(leave(group, (member, None)), 5)
    talk.ask(join(group, protocol_type="connect", protocols={"eager": b""}), 3)
    describe(talk, group)


def two_members(talk: Talk) -> None:
    group = f"{talk.name}-group"
    both = {"range": subscription("topic"), "sticky": subscription("topic")}
    one, generation = settled(talk, group, protocols=both)
    describe(talk, group)
    talk.note("a second member waits until the first one joins again")
    two = pending(talk, group, protocols={"sticky": subscription("topic")})
    talk.begin(join(group, two, protocols={"sticky": subscription("topic")}), 9, "two")
    talk.ask_until(rebalancing, heartbeat(group, generation, one), 4, what="rebalancing")
    talk.ask(sync(group, generation, one), 5)
    describe(talk, group)
    talk.ask(heartbeat(group, generation, two), 4)
    talk.note("the generation of before may still commit, as the group waits for its members")
    talk.create_topic(f"{talk.name}-t")
    talk.ask(commit(group, f"{talk.name}-t", {0: 5}, member=one, generation=generation), 9)
    talk.ask(commit(group, f"{talk.name}-t", {0: 5}, member=two, generation=generation), 9)
    talk.note("the leader alone is told of all members; the protocol is the one that both have")
    talk.ask(join(group, one, protocols=both), 9)
    talk.finish("two")
    describe(talk, group)
    talk.note("before the leader has synced")
    talk.ask(heartbeat(group, 2, one), 4)
    talk.ask(heartbeat(group, 2, two), 4)
    talk.ask(heartbeat(group, 1, two), 4)
    talk.ask(commit(group, f"{talk.name}-t", {0: 6}, member=one, generation=2), 9)
    talk.ask(commit(group, f"{talk.name}-t", {0: 6}, member=one, generation=1), 9)
    talk.begin(sync(group, 2, two, protocol="sticky"), 5, "two")
    talk.ask(sync(group, 2, one, {one: b"for one", two: b"for two", "nobody": b"?"}, protocol="sticky"), 5)
    talk.finish("two")
    describe(talk, group)
    talk.note("asking again does not change it")
    talk.ask(sync(group, 2, two, protocol="sticky"), 5, "two")
    talk.ask(sync(group, 2, one, {one: b"ignored", two: b"ignored"}, protocol="sticky"), 5)
    talk.ask(sync(group, 2, two), 0, "two")
    talk.note("a follower that joins again unchanged does not make a new generation")
    talk.ask(join(group, two, protocols={"sticky": subscription("topic")}), 9, "two")
    talk.ask(join(group, two, protocols={"sticky": subscription("topic")}), 4, "two")
    talk.note("a follower that joins with other metadata does; the leader leaves, so that it is alone")
    talk.begin(join(group, two, protocols={"sticky": subscription("other")}), 9, "two")
    talk.ask_until(rebalancing, heartbeat(group, 2, one), 4, what="rebalancing")
    talk.ask(leave(group, (one, None)), 5)
    talk.finish("two")
    talk.ask(leave(group, (two, None)), 5)
    describe(talk, group)


def syncing_refused(talk: Talk) -> None:
    group = f"{talk.name}-group"
    for version in (0, 3, 4, 5):
        talk.ask(sync("", 1, "member"), version)
        talk.ask(sync(f"{talk.name}-unknown", 1, "member"), version)
    member, generation = settled(talk, group)
    for version in (0, 4, 5):
        talk.ask(sync(group, generation, "stranger"), version)
        talk.ask(sync(group, generation + 1, member), version)
        talk.ask(sync(group, generation - 1, member), version)
    talk.ask(sync(group, generation, ""), 5)
    talk.ask(sync(group, generation, member, instance="stranger"), 5)
    talk.note("the names of the protocol, which version 5 has and wants")
    talk.ask(sync(group, generation, member), 5)
    talk.ask(sync(group, generation, member, protocol=None), 5)
    talk.ask(sync(group, generation, member, protocol_type=None), 5)
    talk.ask(sync(f"{talk.name}-unknown", generation, member, protocol_type=None), 5)
    talk.ask(sync(group, generation, member, protocol_type="connect"), 5)
    talk.ask(sync(group, generation, member, protocol="sticky"), 5)
    talk.note("a member that was only given an id")
    talk.ask(sync(group, generation, pending(talk, group)), 5)
    talk.note("an empty group")
    talk.ask(leave(group, (member, None)), 5)
    talk.ask(sync(group, generation, member), 5)
    talk.ask(sync(group, generation + 1, member), 5)


def heartbeats(talk: Talk) -> None:
    group = f"{talk.name}-group"
    for version in range(5):
        talk.ask(heartbeat("", 1, "member"), version)
        talk.ask(heartbeat(f"{talk.name}-unknown", 1, "member"), version)
    member, generation = settled(talk, group)
    for version in range(5):
        talk.ask(heartbeat(group, generation, member), version)
    talk.ask(heartbeat(group, generation + 1, member), 4)
    talk.ask(heartbeat(group, generation - 1, member), 4)
    talk.ask(heartbeat(group, -1, member), 4)
    talk.ask(heartbeat(group, generation, "stranger"), 4)
    talk.ask(heartbeat(group, generation, ""), 4)
    talk.ask(heartbeat(group, generation, member, instance="stranger"), 4)
    talk.ask(heartbeat(group, generation, pending(talk, group)), 4)
    talk.ask(leave(group, (member, None)), 5)
    talk.ask(heartbeat(group, generation, member), 4)
    talk.ask(heartbeat(group, generation + 1, member), 4)


def leaving(talk: Talk) -> None:
    group = f"{talk.name}-group"
    for version in range(3):
        talk.ask(LeaveGroupRequest(group_id="", member_id="member"), version)
        talk.ask(LeaveGroupRequest(group_id=f"{talk.name}-unknown", member_id="member"), version)
    for version in range(3, 6):
        talk.ask(leave("", ("member", None)), version)
        talk.ask(leave(f"{talk.name}-unknown", ("member", None), ("other", "instance")), version)
        talk.ask(leave(f"{talk.name}-unknown"), version)
    member, _ = settled(talk, group)
    talk.ask(LeaveGroupRequest(group_id=group, member_id="stranger"), 2)
    talk.ask(leave(group, ("stranger", None), ("", "instance"), ("stranger", "instance"), ("", None)), 5)
    talk.ask(leave(group, (member, "instance")), 5)
    talk.ask(leave(group), 5)
    talk.note("one that only has an id may leave, too")
    waiting = pending(talk, group)
    talk.ask(leave(group, (waiting, None)), 5)
    talk.ask(leave(group, (waiting, None)), 5)
    talk.note("twice in one request, beside a stranger")
    talk.ask(leave(group, (member, None), (member, None), ("stranger", None)), 5)
    describe(talk, group)
    talk.note("in an empty group")
    talk.ask(leave(group, (member, None)), 5)
    talk.ask(LeaveGroupRequest(group_id=group, member_id=member), 2)
    talk.ask(LeaveGroupRequest(group_id=group, member_id=member), 0)
    member, _ = settled(talk, group)
    talk.ask(LeaveGroupRequest(group_id=group, member_id=member), 1)


def static_members(talk: Talk) -> None:
    group = f"{talk.name}-group"
    talk.note("a static member needs no id beforehand")
    first = talk.ask(join(group, instance="one"), 5).member_id
    talk.ask(sync(group, 1, first, {first: b"mine"}, instance="one"), 3)
    describe(talk, group)
    talk.note(
        "it comes back unchanged: a new id, the old generation; up to version 8 the leader must sync as if it led"
    )
    second = talk.ask(join(group, instance="one"), 8).member_id
    talk.ask(sync(group, 1, second, instance="one"), 5)
    third = talk.ask(join(group, instance="one"), 9).member_id
    talk.ask(sync(group, 1, third, instance="one"), 5)
    describe(talk, group)
    talk.note("the one before is fenced, wherever it names its instance")
    talk.ask(heartbeat(group, 1, first, instance="one"), 4)
    talk.ask(heartbeat(group, 1, first), 4)
    talk.ask(sync(group, 1, first, instance="one"), 5)
    talk.ask(join(group, first, instance="one"), 9)
    talk.create_topic(f"{talk.name}-t")
    talk.ask(commit(group, f"{talk.name}-t", {0: 1}, member=first, generation=1, instance="one"), 9)
    talk.ask(commit(group, f"{talk.name}-t", {0: 1}, member=first, generation=1), 9)
    talk.ask(commit(group, f"{talk.name}-t", {0: 1}, member=third, generation=1, instance="two"), 9)
    talk.ask(commit(group, f"{talk.name}-t", {0: 1}, member=third, generation=1, instance="one"), 9)
    talk.ask(heartbeat(group, 1, third, instance="two"), 4)
    talk.ask(leave(group, (first, "one"), ("", "two")), 5)
    talk.note("it joins under its id, as the leader")
    talk.ask(join(group, third, instance="one"), 9)
    talk.ask(sync(group, 2, third, {third: b"mine"}, instance="one"), 5)
    talk.note("it comes back changed")
    fourth = talk.ask(join(group, instance="one", protocols={"range": subscription("other")}), 9).member_id
    talk.ask(sync(group, 3, fourth, {fourth: b"changed"}, instance="one"), 5)
    talk.note("it is told to leave by its instance id alone")
    talk.ask(leave(group, ("", "one")), 5)
    talk.ask(leave(group, ("", "one")), 5)
    describe(talk, group)


def a_static_member_replaced_while_joining(talk: Talk) -> None:
    group = f"{talk.name}-group"
    one, generation = settled(talk, group, instance="one")
    talk.begin(join(group, instance="two"), 9, "old")
    talk.ask_until(rebalancing, heartbeat(group, generation, one, instance="one"), 4, what="rebalancing")
    talk.note("the same instance from another connection: the first one is fenced")
    talk.begin(join(group, instance="two"), 9, "new")
    talk.finish("old")
    talk.ask(join(group, one, instance="one"), 9)
    two = talk.finish("new").member_id
    talk.begin(sync(group, generation + 1, two, instance="two"), 5, "new")
    talk.ask(sync(group, generation + 1, one, {one: b"1", two: b"2"}, instance="one"), 5)
    talk.finish("new")
    talk.note("a follower that comes back")
    talk.ask(join(group, instance="two"), 9, "new")
    describe(talk, group)


CLASSIC_TALKS = (
    finding_the_coordinator,
    joining_in_every_version,
    joining_refused,
    a_group_that_is_full,
    joining_again,
    two_members,
    syncing_refused,
    heartbeats,
    leaving,
    static_members,
    a_static_member_replaced_while_joining,
)
