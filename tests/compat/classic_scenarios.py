"""Conversations about classic groups: finding the coordinator, joining, syncing, heartbeats, leaving, static members.

Each is a function that sends its requests to the broker that the ``ScenarioClient`` is connected to;
test_groups_like_kafka.py compares the responses.
"""

from __future__ import annotations

from typing import Any, Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.leave_group import LeaveGroupRequest
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
from tests.compat.scenario_client import ScenarioClient

MAX_SIZE: Final = 3
"""Of a group: the brokers' ``group.max.size``."""


def rebalancing(response: Any) -> bool:
    return bool(response.error_code == ErrorCode.REBALANCE_IN_PROGRESS)


def describe(client: ScenarioClient, group: str, version: int = 6) -> None:
    client.ask(DescribeGroupsRequest(groups=[group]), version)


def finding_the_coordinator(client: ScenarioClient) -> None:
    for version in range(4):
        client.ask(FindCoordinatorRequest(key="some-group"), version)
    for version in range(4, 7):
        client.ask(FindCoordinatorRequest(coordinator_keys=["some-group"]), version)
    client.note("several at once, none, and the empty name")
    client.ask(FindCoordinatorRequest(coordinator_keys=["one", "two"]), 6)
    client.ask(FindCoordinatorRequest(coordinator_keys=[]), 6)
    client.ask(FindCoordinatorRequest(coordinator_keys=[""]), 6)
    client.ask(FindCoordinatorRequest(key=""), 0)
    client.note("of a type that does not exist")
    client.ask(FindCoordinatorRequest(key="some-group", key_type=9), 2)
    client.ask(FindCoordinatorRequest(coordinator_keys=["some-group"], key_type=9), 6)


def joining_in_every_version(client: ScenarioClient) -> None:
    client.note("without a member id: let in up to version 3, sent back with an id from 4 on (KIP-394)")
    for version in range(10):
        group = f"{client.name}-{version}"
        answer = client.ask(join(group), version)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.ask(join(group, answer.member_id), version)


def joining_refused(client: ScenarioClient) -> None:
    group = f"{client.name}-group"
    for version in (0, 5, 6, 7, 9):
        client.ask(join(""), version)
    client.note("session timeouts")
    for session_ms in (5999, 1_800_001, -1, 0):
        client.ask(join(group, session_ms=session_ms), 9)
    client.ask(join(group, session_ms=5999), 2)
    client.note("no protocols, no protocol type")
    client.ask(join(group, protocols={}), 9)
    client.ask(join(group, protocols={}), 3)
    client.ask(join(group, protocol_type=""), 9)
    client.ask(join(group, protocol_type=""), 3)
    client.note("a member that nobody knows, in a group that nobody knows, and the group that is left behind")
    client.ask(join(group, "other"), 4)
    client.ask(join(group, "other"), 9)
    describe(client, group)
    client.note("a member that nobody knows, in a group that lives")
    settled(client, group)
    client.ask(join(group, "other"), 9)
    client.ask(join(group, "other", instance="instance"), 9)
    client.note("another protocol type, no common protocol; with and without a member id")
    client.ask(join(group, protocol_type="connect"), 9)
    client.ask(join(group, protocol_type="connect"), 3)
    client.ask(join(group, protocols={"sticky": b""}), 9)
    client.ask(join(group, protocols={"sticky": b""}), 3)
    client.ask(join(group, "other", protocols={"sticky": b""}), 9)
    describe(client, group)


def a_group_that_is_full(client: ScenarioClient) -> None:
    group = f"{client.name}-group"
    first, generation = settled(client, group)
    others = [pending(client, group) for _ in range(MAX_SIZE - 1)]
    client.note("ids alone do not fill it; this one is refused because two join at the same time and fill it first")
    for number, member in enumerate(others):
        client.begin(join(group, member), 9, f"member {number}")
    client.ask_until(
        lambda answer: len(answer.groups[0].members) == MAX_SIZE, DescribeGroupsRequest(groups=[group]), 6, what="full"
    )
    client.ask(join(group, first), 9)
    for number in range(len(others)):
        client.finish(f"member {number}")
    client.note("one more, in every way there is")
    client.ask(join(group), 3)
    client.ask(join(group), 9)
    client.ask(join(group, instance="instance"), 9)
    client.note("those who are in may join again")
    client.ask(sync(group, generation + 1, first, {}), 5)
    client.ask(join(group, others[0]), 9)


def joining_again(client: ScenarioClient) -> None:
    group = f"{client.name}-group"
    member, _ = settled(client, group)
    client.note("a leader that joins again makes a new generation, even with nothing changed")
    client.ask(join(group, member), 9)
    client.note("before the sync, a leader that joins again unchanged gets the same generation")
    client.ask(join(group, member), 9)
    client.ask(join(group, member, protocols={"range": subscription("other")}), 9)
    client.ask(sync(group, 3, member, {member: b"new"}), 3)
    client.note("other protocols, other type")
    client.ask(join(group, member, protocols={"sticky": subscription(), "range": subscription()}), 9)
    client.ask(join(group, member, protocols={"other": subscription()}), 9)
    client.ask(join(group, member, protocol_type="connect"), 9)
    client.note("in an empty group anything goes")
    client.ask(leave(group, (member, None)), 5)
    client.ask(join(group, protocol_type="connect", protocols={"eager": b""}), 3)
    describe(client, group)


def two_members(client: ScenarioClient) -> None:
    group = f"{client.name}-group"
    both = {"range": subscription("topic"), "sticky": subscription("topic")}
    one, generation = settled(client, group, protocols=both)
    describe(client, group)
    client.note("a second member waits until the first one joins again")
    two = pending(client, group, protocols={"sticky": subscription("topic")})
    client.begin(join(group, two, protocols={"sticky": subscription("topic")}), 9, "two")
    client.ask_until(rebalancing, heartbeat(group, generation, one), 4, what="rebalancing")
    client.ask(sync(group, generation, one), 5)
    describe(client, group)
    client.ask(heartbeat(group, generation, two), 4)
    client.note("the generation of before may still commit, as the group waits for its members")
    client.create_topic(f"{client.name}-t")
    client.ask(commit(group, f"{client.name}-t", {0: 5}, member=one, generation=generation), 9)
    client.ask(commit(group, f"{client.name}-t", {0: 5}, member=two, generation=generation), 9)
    client.note("the leader alone receives all members; the protocol is the one that both have")
    client.ask(join(group, one, protocols=both), 9)
    client.finish("two")
    describe(client, group)
    client.note("before the leader has synced")
    client.ask(heartbeat(group, 2, one), 4)
    client.ask(heartbeat(group, 2, two), 4)
    client.ask(heartbeat(group, 1, two), 4)
    client.ask(commit(group, f"{client.name}-t", {0: 6}, member=one, generation=2), 9)
    client.ask(commit(group, f"{client.name}-t", {0: 6}, member=one, generation=1), 9)
    client.begin(sync(group, 2, two, protocol="sticky"), 5, "two")
    client.ask(sync(group, 2, one, {one: b"for one", two: b"for two", "nobody": b"?"}, protocol="sticky"), 5)
    client.finish("two")
    describe(client, group)
    client.note("asking again does not change it")
    client.ask(sync(group, 2, two, protocol="sticky"), 5, "two")
    client.ask(sync(group, 2, one, {one: b"ignored", two: b"ignored"}, protocol="sticky"), 5)
    client.ask(sync(group, 2, two), 0, "two")
    client.note("a follower that joins again unchanged does not make a new generation")
    client.ask(join(group, two, protocols={"sticky": subscription("topic")}), 9, "two")
    client.ask(join(group, two, protocols={"sticky": subscription("topic")}), 4, "two")
    client.note("a follower that joins with other metadata does; the leader leaves, so that it is alone")
    client.begin(join(group, two, protocols={"sticky": subscription("other")}), 9, "two")
    client.ask_until(rebalancing, heartbeat(group, 2, one), 4, what="rebalancing")
    client.ask(leave(group, (one, None)), 5)
    client.finish("two")
    client.ask(leave(group, (two, None)), 5)
    describe(client, group)


def syncing_refused(client: ScenarioClient) -> None:
    group = f"{client.name}-group"
    for version in (0, 3, 4, 5):
        client.ask(sync("", 1, "member"), version)
        client.ask(sync(f"{client.name}-unknown", 1, "member"), version)
    member, generation = settled(client, group)
    for version in (0, 4, 5):
        client.ask(sync(group, generation, "other"), version)
        client.ask(sync(group, generation + 1, member), version)
        client.ask(sync(group, generation - 1, member), version)
    client.ask(sync(group, generation, ""), 5)
    client.ask(sync(group, generation, member, instance="other"), 5)
    client.note("the names of the protocol, which version 5 has and wants")
    client.ask(sync(group, generation, member), 5)
    client.ask(sync(group, generation, member, protocol=None), 5)
    client.ask(sync(group, generation, member, protocol_type=None), 5)
    client.ask(sync(f"{client.name}-unknown", generation, member, protocol_type=None), 5)
    client.ask(sync(group, generation, member, protocol_type="connect"), 5)
    client.ask(sync(group, generation, member, protocol="sticky"), 5)
    client.note("a member that was only given an id")
    client.ask(sync(group, generation, pending(client, group)), 5)
    client.note("an empty group")
    client.ask(leave(group, (member, None)), 5)
    client.ask(sync(group, generation, member), 5)
    client.ask(sync(group, generation + 1, member), 5)


def heartbeats(client: ScenarioClient) -> None:
    group = f"{client.name}-group"
    for version in range(5):
        client.ask(heartbeat("", 1, "member"), version)
        client.ask(heartbeat(f"{client.name}-unknown", 1, "member"), version)
    member, generation = settled(client, group)
    for version in range(5):
        client.ask(heartbeat(group, generation, member), version)
    client.ask(heartbeat(group, generation + 1, member), 4)
    client.ask(heartbeat(group, generation - 1, member), 4)
    client.ask(heartbeat(group, -1, member), 4)
    client.ask(heartbeat(group, generation, "other"), 4)
    client.ask(heartbeat(group, generation, ""), 4)
    client.ask(heartbeat(group, generation, member, instance="other"), 4)
    client.ask(heartbeat(group, generation, pending(client, group)), 4)
    client.ask(leave(group, (member, None)), 5)
    client.ask(heartbeat(group, generation, member), 4)
    client.ask(heartbeat(group, generation + 1, member), 4)


def leaving(client: ScenarioClient) -> None:
    group = f"{client.name}-group"
    for version in range(3):
        client.ask(LeaveGroupRequest(group_id="", member_id="member"), version)
        client.ask(LeaveGroupRequest(group_id=f"{client.name}-unknown", member_id="member"), version)
    for version in range(3, 6):
        client.ask(leave("", ("member", None)), version)
        client.ask(leave(f"{client.name}-unknown", ("member", None), ("other", "instance")), version)
        client.ask(leave(f"{client.name}-unknown"), version)
    member, _ = settled(client, group)
    client.ask(LeaveGroupRequest(group_id=group, member_id="other"), 2)
    client.ask(leave(group, ("other", None), ("", "instance"), ("other", "instance"), ("", None)), 5)
    client.ask(leave(group, (member, "instance")), 5)
    client.ask(leave(group), 5)
    client.note("one that only has an id may leave, too")
    waiting = pending(client, group)
    client.ask(leave(group, (waiting, None)), 5)
    client.ask(leave(group, (waiting, None)), 5)
    client.note("twice in one request, beside an unknown member")
    client.ask(leave(group, (member, None), (member, None), ("other", None)), 5)
    describe(client, group)
    client.note("in an empty group")
    client.ask(leave(group, (member, None)), 5)
    client.ask(LeaveGroupRequest(group_id=group, member_id=member), 2)
    client.ask(LeaveGroupRequest(group_id=group, member_id=member), 0)
    member, _ = settled(client, group)
    client.ask(LeaveGroupRequest(group_id=group, member_id=member), 1)


def static_members(client: ScenarioClient) -> None:
    group = f"{client.name}-group"
    client.note("a static member needs no id beforehand")
    first = client.ask(join(group, instance="one"), 5).member_id
    client.ask(sync(group, 1, first, {first: b"mine"}, instance="one"), 3)
    describe(client, group)
    client.note(
        "it comes back unchanged: a new id, the old generation; up to version 8 the leader must sync as if it led"
    )
    second = client.ask(join(group, instance="one"), 8).member_id
    client.ask(sync(group, 1, second, instance="one"), 5)
    third = client.ask(join(group, instance="one"), 9).member_id
    client.ask(sync(group, 1, third, instance="one"), 5)
    describe(client, group)
    client.note("the one before is fenced, wherever it names its instance")
    client.ask(heartbeat(group, 1, first, instance="one"), 4)
    client.ask(heartbeat(group, 1, first), 4)
    client.ask(sync(group, 1, first, instance="one"), 5)
    client.ask(join(group, first, instance="one"), 9)
    client.create_topic(f"{client.name}-t")
    client.ask(commit(group, f"{client.name}-t", {0: 1}, member=first, generation=1, instance="one"), 9)
    client.ask(commit(group, f"{client.name}-t", {0: 1}, member=first, generation=1), 9)
    client.ask(commit(group, f"{client.name}-t", {0: 1}, member=third, generation=1, instance="two"), 9)
    client.ask(commit(group, f"{client.name}-t", {0: 1}, member=third, generation=1, instance="one"), 9)
    client.ask(heartbeat(group, 1, third, instance="two"), 4)
    client.ask(leave(group, (first, "one"), ("", "two")), 5)
    client.note("it joins under its id, as the leader")
    client.ask(join(group, third, instance="one"), 9)
    client.ask(sync(group, 2, third, {third: b"mine"}, instance="one"), 5)
    client.note("it comes back changed")
    fourth = client.ask(join(group, instance="one", protocols={"range": subscription("other")}), 9).member_id
    client.ask(sync(group, 3, fourth, {fourth: b"changed"}, instance="one"), 5)
    client.note("it is removed by its instance id alone")
    client.ask(leave(group, ("", "one")), 5)
    client.ask(leave(group, ("", "one")), 5)
    describe(client, group)


def a_static_member_replaced_while_joining(client: ScenarioClient) -> None:
    group = f"{client.name}-group"
    one, generation = settled(client, group, instance="one")
    client.begin(join(group, instance="two"), 9, "old")
    client.ask_until(rebalancing, heartbeat(group, generation, one, instance="one"), 4, what="rebalancing")
    client.note("the same instance from another connection: the first one is fenced")
    client.begin(join(group, instance="two"), 9, "new")
    client.finish("old")
    client.ask(join(group, one, instance="one"), 9)
    two = client.finish("new").member_id
    client.begin(sync(group, generation + 1, two, instance="two"), 5, "new")
    client.ask(sync(group, generation + 1, one, {one: b"1", two: b"2"}, instance="one"), 5)
    client.finish("new")
    client.note("a follower that comes back")
    client.ask(join(group, instance="two"), 9, "new")
    describe(client, group)


CLASSIC_SCENARIOS = (
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
