"""Conversations about groups of the consumer protocol (KIP-848), and about those where both protocols meet.

Kafka makes ids of another form for members that come to a consumer group in the classic protocol. Nobody looks into
them, so they are called by names here.
"""

from __future__ import annotations

from typing import Any, Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.delete_groups import DeleteGroupsRequest
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.list_groups import ListGroupsRequest
from tests.compat.group_requests import (
    LEAVE,
    assignment,
    beat,
    commit,
    fetch_offsets,
    first_beat,
    heartbeat,
    join,
    leave,
    settled,
    subscription,
    sync,
    topic_for_consumers,
    with_partitions,
)
from tests.compat.offset_scenarios import delete_offsets
from tests.compat.scenario_client import ScenarioClient

LEAVE_FOR_A_WHILE: Final = -2

MAX_SIZE: Final = 3
"""Of a group: the brokers' ``group.consumer.max.size``."""


ROUNDS_TO_REST: Final = 4
"""Of heartbeats: enough for three members to give up, to acknowledge that, and to be given what others gave up."""


def describe(client: ScenarioClient, group: str, version: int = 1) -> None:
    client.ask(ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), version)


def describe_both_ways(client: ScenarioClient, group: str) -> None:
    describe(client, group)
    client.ask(DescribeGroupsRequest(groups=[group]), 6)


def owned(answer: Any) -> dict[bytes, list[int]]:
    """What a member has after this answer, as it tells in its next heartbeat."""
    return {each.topic_id: list(each.partitions) for each in answer.assignment.topic_partitions}


def heartbeats_refused(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_id = topic_for_consumers(client, topic, 2)
    client.note("what a first heartbeat must have")
    client.ask(first_beat("", "m", [topic]), 1)
    client.ask(first_beat(group, "", [topic]), 1)
    client.ask(beat(group, "m", 0, topics=[topic], owned={}), 1)
    client.ask(beat(group, "m", 0, topics=[topic], owned={}, rebalance_ms=0), 1)
    client.ask(beat(group, "m", 0, topics=[topic], rebalance_ms=1000), 1)
    client.ask(first_beat(group, "m", [topic], instance=""), 1)
    client.ask(first_beat(group, "m", [topic], rack=""), 1)
    client.ask(first_beat(group, "m", None), 1)
    client.ask(first_beat(group, "m", []), 1)
    client.ask(first_beat(group, "m", None, regex=""), 1)
    client.ask(beat(group, "m", 0, topics=[topic], owned={topic_id: [0]}, rebalance_ms=1000), 1)
    client.ask(first_beat(group, "m", [topic], assignor="sticky"), 1)
    client.ask(first_beat(group, "m", [topic], assignor=""), 1)
    client.ask(first_beat(group, "m", None, regex="t.["), 1)
    client.ask(first_beat(group, "m", [topic], regex="("), 1)
    client.ask(first_beat(group, "m" * 200, [topic]), 1)
    describe(client, f"{group}-other")
    client.note("in version 0")
    client.ask(first_beat("", "m", [topic]), 0)
    client.ask(beat(group, "", 5), 0)
    client.ask(beat(group, "", LEAVE), 0)
    client.note("epochs that do not exist, in a group that does not")
    unknown = f"{client.name}-unknown"
    client.ask(beat(unknown, "m", 5), 1)
    client.ask(beat(unknown, "m", LEAVE), 1)
    client.ask(beat(unknown, "m", LEAVE_FOR_A_WHILE), 1)
    client.ask(beat(unknown, "m", LEAVE_FOR_A_WHILE, instance="i"), 1)
    client.ask(beat(unknown, "m", -3), 1)
    describe_both_ways(client, unknown)
    client.note("in a group that does exist")
    client.ask(first_beat(f"{group}-2", "one", [topic]), 1)
    for epoch in (5, LEAVE, -3):
        client.ask(beat(f"{group}-2", "other", epoch), 1)
    client.ask(beat(f"{group}-2", "other", LEAVE_FOR_A_WHILE, instance="i"), 1)
    client.ask(beat(f"{group}-2", "one", -3), 1)
    client.ask(beat(f"{group}-2", "", 5), 1)
    client.ask(beat(f"{group}-2", "one", LEAVE_FOR_A_WHILE), 1)


def one_member(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_id = topic_for_consumers(client, topic, 2)
    answer = client.ask(first_beat(group, "one", [topic]), 1)
    epoch, mine = answer.member_epoch, owned(answer)
    describe_both_ways(client, group)
    client.note("nothing changed: no assignment; with what it owns: none either; with nothing owned: again")
    client.ask(beat(group, "one", epoch), 1)
    client.ask(beat(group, "one", epoch, owned=mine), 1)
    client.ask(beat(group, "one", epoch, owned={}), 1)
    client.ask(beat(group, "one", epoch, topics=[topic], owned=mine, rebalance_ms=60_000), 1)
    client.note("wrong epochs, and the one before this one")
    client.ask(beat(group, "one", epoch + 1), 1)
    client.ask(beat(group, "one", epoch - 1), 1)
    client.ask(beat(group, "one", epoch - 1, owned=mine), 1)
    client.ask(beat(group, "one", epoch - 1, owned={}), 1)
    client.note("it joins again under its id, as if it had lost its state")
    answer = client.ask(first_beat(group, "one", [topic]), 1)
    describe(client, group)
    client.note("a topic that does not exist beside one that does, and none at all")
    answer = client.ask(beat(group, "one", answer.member_epoch, topics=[topic, "no-such-topic"], owned=mine), 1)
    answer = client.ask(beat(group, "one", answer.member_epoch, topics=[], owned=mine), 1)
    answer = client.ask(beat(group, "one", answer.member_epoch, owned={}), 1)
    answer = client.ask(beat(group, "one", answer.member_epoch, topics=["no/such topic"], owned={}), 1)
    describe(client, group)
    client.note("another assignor")
    answer = client.ask(beat(group, "one", answer.member_epoch, topics=[topic], assignor="range", owned={}), 1)
    client.ask(beat(group, "one", answer.member_epoch, assignor="sticky"), 1)
    describe(client, group, 0)
    client.note("a partition it was never given")
    client.ask(beat(group, "one", answer.member_epoch, owned={topic_id: [0, 1, 7]}), 1)
    client.note("it leaves; the group stays, empty")
    client.ask(beat(group, "one", LEAVE), 1)
    client.ask(beat(group, "one", answer.member_epoch), 1)
    client.ask(beat(group, "one", LEAVE), 1)
    describe_both_ways(client, group)
    client.ask(ListGroupsRequest(), 5)
    client.note("and is deleted")
    client.ask(DeleteGroupsRequest(groups_names=[group]), 2)
    describe(client, group)


def a_member_whose_id_the_broker_makes(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_for_consumers(client, topic)
    answer = client.ask(first_beat(group, "", [topic]), 0)
    client.ask(beat(group, answer.member_id, answer.member_epoch), 0)
    client.ask(beat(group, answer.member_id, LEAVE), 0)


def two_members_reconcile(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_id = topic_for_consumers(client, topic, 4)
    one = client.ask(first_beat(group, "one", [topic]), 1)
    client.note("a second member: nothing for it until the first one has given up its half")
    two = client.ask(first_beat(group, "two", [topic]), 1)
    describe(client, group)
    client.ask(ListGroupsRequest(), 5)
    client.ask(beat(group, "two", two.member_epoch, owned={}), 1)
    client.note("the first one receives what to keep, in its old epoch")
    kept = client.ask(beat(group, "one", one.member_epoch), 1)
    describe(client, group)
    client.ask(beat(group, "one", kept.member_epoch), 1)
    client.ask(beat(group, "one", kept.member_epoch, owned={topic_id: [0, 1, 2, 3]}), 1)
    client.note("it gives up; then it is in the new epoch, and the second one gets its half")
    one = client.ask(beat(group, "one", kept.member_epoch, owned=owned(kept)), 1)
    describe(client, group)
    two = client.ask(beat(group, "two", two.member_epoch), 1)
    client.ask(beat(group, "one", one.member_epoch, owned=owned(kept)), 1)
    describe(client, group)
    client.note("the second one leaves")
    client.ask(beat(group, "two", LEAVE), 1)
    one = client.ask(beat(group, "one", one.member_epoch, owned=owned(kept)), 1)
    describe(client, group)


def at_rest(
    client: ScenarioClient, group: str, topics: dict[str, list[str]], assignor: str
) -> dict[str, dict[bytes, list[int]]]:
    """Let members join one after the other, each obeying until nothing changes any more; return what each has."""
    answers = {
        name: client.quietly(first_beat(group, name, wanted, assignor=assignor), 1) for name, wanted in topics.items()
    }
    epochs = {name: answer.member_epoch for name, answer in answers.items()}
    has = {name: owned(answer) for name, answer in answers.items()}
    for _ in range(ROUNDS_TO_REST):
        for name in topics:
            answer = client.quietly(beat(group, name, epochs[name], owned=has[name]), 1)
            epochs[name] = answer.member_epoch
            has[name] = owned(answer) if answer.assignment else has[name]
    return has


def the_range_assignor(client: ScenarioClient) -> None:
    one, two = f"{client.name}-one", f"{client.name}-two"
    topic_for_consumers(client, one, 7)
    topic_for_consumers(client, two, 2)
    client.note("everybody wants everything")
    at_rest(client, f"{client.name}-same", {name: [one, two] for name in "abc"}, "range")
    describe(client, f"{client.name}-same")
    client.note("some want less")
    at_rest(client, f"{client.name}-other", {"a": [one], "b": [one, two], "c": [two]}, "range")
    describe(client, f"{client.name}-other")


def the_uniform_assignor(client: ScenarioClient) -> None:
    """Which partitions move when a member comes depends on the topics' random ids; how many there are does not."""
    one, two = f"{client.name}-one", f"{client.name}-two"
    topic_for_consumers(client, one, 7)
    topic_for_consumers(client, two, 2)
    for group, topics in (
        ("everybody wants everything", {name: [one, two] for name in "abc"}),
        ("some want less", {"a": [one], "b": [one, two], "c": [two]}),
    ):
        has = at_rest(client, f"{client.name}-{group}", topics, "uniform")
        counts = {name: sum(map(len, partitions.values())) for name, partitions in has.items()}
        client.note(f"{group}: {counts}")


def a_consumer_group_that_is_full(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_for_consumers(client, topic)
    for number in range(MAX_SIZE):
        client.quietly(first_beat(group, f"member-{number}", [topic]), 1)
    client.ask(first_beat(group, "one-too-many", [topic]), 1)
    client.ask(first_beat(group, "one-too-many", [topic], instance="i"), 1)
    client.ask(join(group, protocols={"range": subscription(topic)}), 3)


def static_members_of_a_consumer_group(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_id = topic_for_consumers(client, topic, 2)
    one = client.ask(first_beat(group, "one", [topic], instance="i"), 1)
    client.note("somebody else under the same instance, while it is there")
    client.ask(first_beat(group, "two", [topic], instance="i"), 1)
    client.ask(beat(group, "two", one.member_epoch, instance="i"), 1)
    client.ask(beat(group, "two", LEAVE, instance="i"), 1)
    client.ask(beat(group, "two", LEAVE_FOR_A_WHILE, instance="i"), 1)
    client.ask(beat(group, "one", one.member_epoch, instance="j"), 1)
    client.ask(beat(group, "one", one.member_epoch), 1)
    client.ask(beat(group, "one", one.member_epoch + 1, instance="i"), 1)
    client.note("it leaves for a while: its partitions are kept for it")
    client.ask(beat(group, "one", LEAVE_FOR_A_WHILE, instance="i"), 1)
    describe(client, group)
    client.ask(beat(group, "one", one.member_epoch, instance="i"), 1)
    client.ask(beat(group, "one", LEAVE_FOR_A_WHILE, instance="i"), 1)
    client.note("and comes back under a new id")
    two = client.ask(first_beat(group, "two", [topic], instance="i"), 1)
    describe(client, group)
    client.note("the id of before is fenced")
    client.ask(beat(group, "one", one.member_epoch, instance="i"), 1)
    client.ask(beat(group, "one", one.member_epoch), 1)
    client.ask(commit(group, topic, {0: 1}, member="one", generation=one.member_epoch), 9)
    client.ask(commit(group, topic_id, {0: 1}, member="two", generation=two.member_epoch, instance="i"), 10)
    client.note("it leaves for a while and comes back with another subscription")
    client.ask(beat(group, "two", LEAVE_FOR_A_WHILE, instance="i"), 1)
    client.ask(first_beat(group, "three", ["no-such-topic"], instance="i"), 1)
    client.note("and for good")
    client.ask(beat(group, "three", LEAVE, instance="i"), 1)
    describe(client, group)


def offsets_of_a_consumer_group(client: ScenarioClient) -> None:
    topic, other, group = f"{client.name}-t", f"{client.name}-other", f"{client.name}-group"
    topic_id = topic_for_consumers(client, topic, 2)
    topic_for_consumers(client, other)
    one = client.quietly(first_beat(group, "one", [topic]), 1)
    epoch = one.member_epoch
    client.note("as a member: from version 9 on")
    for version in (2, 8, 9):
        client.ask(commit(group, topic, {0: version}, member="one", generation=epoch), version)
    client.ask(commit(group, topic_id, {0: 10}, member="one", generation=epoch), 10)
    client.note("in a wrong epoch, as an unknown member, without a member")
    for version in (8, 9):
        client.ask(commit(group, topic, {0: 99}, member="one", generation=epoch + 1), version)
        client.ask(commit(group, topic, {0: 99}, member="one", generation=epoch - 1), version)
        client.ask(commit(group, topic, {0: 99}, member="one", generation=-1), version)
        client.ask(commit(group, topic, {0: 99}, member="other", generation=epoch), version)
        client.ask(commit(group, topic, {0: 99}), version)
    client.ask(commit(group, topic, {0: 9}, member="one", generation=epoch, instance="i"), 9)
    client.ask(commit(group, other, {0: 9}, member="one", generation=epoch), 9)
    client.note("reading them")
    client.ask(fetch_offsets(group, {topic: [0, 1]}, 7), 7)
    client.ask(fetch_offsets(group, {topic: [0, 1]}, 8), 8)
    client.ask(fetch_offsets(group, {topic: [0]}, 9, member="one", epoch=epoch), 9)
    client.ask(fetch_offsets(group, {topic_id: [0]}, 10, member="one", epoch=epoch), 10)
    for member, wrong in (("one", epoch + 1), ("one", epoch - 1), ("one", -1), ("other", epoch), ("", epoch)):
        client.ask(fetch_offsets(group, {topic: [0, 1]}, 9, member=member, epoch=wrong), 9)
    client.ask(fetch_offsets(group, {topic: [0]}, 9, epoch=epoch), 9)
    client.ask(fetch_offsets(group, {topic: [0]}, 9, member="other"), 9)
    client.ask(fetch_offsets(group, None, 9, member="other", epoch=epoch), 9)
    client.note("deleting them, and the group")
    client.ask(delete_offsets(group, {topic: [0, 7], other: [0]}), 0)
    client.ask(DeleteGroupsRequest(groups_names=[group]), 2)
    client.note("when the group is empty")
    client.quietly(beat(group, "one", LEAVE), 1)
    client.ask(commit(group, topic, {0: 50}), 9)
    client.ask(commit(group, topic, {0: 99}, member="one", generation=epoch), 9)
    client.ask(commit(group, topic, {0: 51}), 2)
    client.ask(fetch_offsets(group, {topic: [0]}, 9, member="one", epoch=epoch), 9)
    client.ask(fetch_offsets(group, None, 9), 9)
    client.ask(DeleteGroupsRequest(groups_names=[group]), 2)
    client.ask(fetch_offsets(group, None, 9), 9)


def subscribing_by_regex(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_for_consumers(client, topic, 2)
    client.note("the matching topics are looked up aside: their partitions may come with a later heartbeat")
    answer = client.quietly(first_beat(group, "one", None, regex=f"{client.name}-.*"), 1)
    answer = with_partitions(client, group, "one", answer)
    describe(client, group)
    client.note("names take the place of the expression, and an empty one takes it back")
    mine = owned(answer)
    answer = client.ask(beat(group, "one", answer.member_epoch, topics=[topic], regex="", owned=mine), 1)
    describe(client, group)
    client.note("an expression that is none, from a member that has one")
    client.ask(beat(group, "one", answer.member_epoch, regex="a{1"), 1)
    client.ask(beat(group, "one", answer.member_epoch, regex="(?<=look)behind"), 1)
    client.ask(beat(group, "one", answer.member_epoch, regex="["), 1)


def a_classic_member_where_consumers_are(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_for_consumers(client, topic, 2)
    one = client.quietly(first_beat(group, "one", [topic]), 1)
    client.note("refused: another protocol type, no subscription in the bytes, no known member, wrong timeout")
    client.ask(join(group, protocol_type="connect"), 9)
    needed = client.quietly(join(group, protocols={"range": b""}), 9)
    client.call(needed.member_id, "two")
    client.ask(join(group, needed.member_id, protocols={"range": b""}), 9)
    client.ask(join(group, protocols={"range": b"garbage"}), 3)
    client.ask(join(group, protocols={}), 9)
    client.ask(join(group, "other", protocols={"range": subscription(topic)}), 9)
    client.ask(join(group, session_ms=1), 9)
    client.ask(join(group, "one", protocols={"range": subscription(topic)}), 9)
    for version in (0, 4):
        client.ask(heartbeat(group, one.member_epoch, "other"), version)
        client.ask(heartbeat(group, one.member_epoch, "one"), version)
    client.ask(sync(group, one.member_epoch, "one"), 5)
    client.ask(sync(group, one.member_epoch, "other"), 5)
    client.ask(leave(group, ("one", None), ("other", None)), 5)
    describe(client, group)


def a_classic_member_joins_consumers(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_id = topic_for_consumers(client, topic, 2)
    one = client.quietly(first_beat(group, "one", [topic]), 1)
    protocols = {"range": subscription(topic, owned={})}
    needed = client.quietly(join(group, protocols=protocols), 9)
    client.call(needed.member_id, "two")
    two = client.ask(join(group, needed.member_id, protocols=protocols), 9)
    describe_both_ways(client, group)
    client.ask(sync(group, two.generation_id, two.member_id), 5)
    client.ask(heartbeat(group, two.generation_id, two.member_id), 4)
    client.note("the consumer gives up one partition; the classic member is asked to join again for it")
    kept = client.ask(beat(group, "one", one.member_epoch), 1)
    one = client.ask(beat(group, "one", kept.member_epoch, owned=owned(kept)), 1)
    client.ask(heartbeat(group, two.generation_id, two.member_id), 4)
    client.ask(heartbeat(group, two.generation_id + 1, two.member_id), 4)
    client.ask(commit(group, topic, {0: 1}, member=two.member_id, generation=two.generation_id), 8)
    client.ask(join(group, two.member_id, protocols=protocols), 9)
    describe(client, group)
    client.ask(sync(group, one.member_epoch, two.member_id), 5)
    client.ask(heartbeat(group, one.member_epoch, two.member_id), 4)
    client.ask(commit(group, topic, {0: 1}, member=two.member_id, generation=one.member_epoch), 8)
    client.ask(commit(group, topic_id, {0: 1}, member=two.member_id, generation=one.member_epoch), 10)
    client.ask(commit(group, topic, {0: 1}, member=two.member_id, generation=one.member_epoch + 1), 8)
    client.note("it goes, and the consumer has everything again")
    client.ask(leave(group, (two.member_id, None)), 5)
    client.ask(beat(group, "one", one.member_epoch, owned=owned(kept)), 1)


def the_last_consumer_leaves_classic_members(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_id = topic_for_consumers(client, topic, 2)
    one = client.quietly(first_beat(group, "one", [topic]), 1)
    protocols = {"range": subscription(topic, owned={})}
    two = client.quietly(join(group, protocols=protocols), 3)
    client.call(two.member_id, "two")
    client.quietly(sync(group, two.generation_id, two.member_id), 3)
    client.ask(beat(group, "one", LEAVE), 1)
    client.note("the group is a classic one again, and rebalances")
    describe_both_ways(client, group)
    client.ask(heartbeat(group, two.generation_id, two.member_id), 4)
    again = client.ask(join(group, two.member_id, protocols=protocols), 9)
    client.ask(sync(group, again.generation_id, two.member_id, {two.member_id: b"all"}), 5)
    describe_both_ways(client, group)
    client.ask(beat(group, "one", one.member_epoch, owned={topic_id: [0]}), 1)


def a_consumer_joins_classic_members(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_id = topic_for_consumers(client, topic, 2)
    protocols = {"range": subscription(topic, owned={})}
    one = client.quietly(join(group, protocols=protocols), 3)
    mine = {one.member_id: assignment(**{topic.replace("-", "_"): [0, 1]})}
    client.quietly(sync(group, 1, one.member_id, mine), 3)
    client.quietly(commit(group, topic, {0: 7}, member=one.member_id, generation=1), 8)
    client.note("wrong epoch or leaving: the group is still classic")
    client.ask(beat(group, "two", 1), 1)
    client.ask(beat(group, "two", LEAVE), 1)
    describe_both_ways(client, group)
    client.note("a consumer joins: the group is of the consumer protocol from now on")
    two = client.ask(first_beat(group, "two", [topic]), 1)
    describe_both_ways(client, group)
    client.ask(ListGroupsRequest(), 5)
    client.ask(fetch_offsets(group, {topic: [0]}, 9, member="two", epoch=two.member_epoch), 9)
    client.note("the classic member is asked to join again, and does so with what it keeps")
    client.ask(heartbeat(group, 1, one.member_id), 4)
    client.ask(sync(group, 1, one.member_id), 5)
    again = client.ask(join(group, one.member_id, protocols={"range": subscription(topic, owned={topic: [0, 1]})}), 9)
    client.ask(sync(group, again.generation_id, one.member_id), 5)
    client.ask(beat(group, "two", two.member_epoch, owned={}), 1)
    client.ask(heartbeat(group, again.generation_id, one.member_id), 4)
    kept = client.ask(join(group, one.member_id, protocols={"range": subscription(topic, owned={topic: [0]})}), 9)
    client.ask(sync(group, kept.generation_id, one.member_id), 5)
    client.ask(beat(group, "two", two.member_epoch, owned={}), 1)
    describe(client, group)
    client.note("the classic member leaves")
    client.ask(leave(group, (one.member_id, None)), 5)
    client.ask(beat(group, "two", two.member_epoch, owned={topic_id: [1]}), 1)
    describe_both_ways(client, group)


def a_consumer_and_groups_that_it_cannot_join(client: ScenarioClient) -> None:
    topic = f"{client.name}-t"
    topic_for_consumers(client, topic)
    client.note("members of another protocol type")
    settled(client, f"{client.name}-connect", protocol_type="connect", protocols={"eager": b""})
    client.ask(first_beat(f"{client.name}-connect", "m", [topic]), 1)
    client.note("members whose subscription does not read")
    settled(client, f"{client.name}-bytes", protocols={"range": b"\0\1"})
    client.ask(first_beat(f"{client.name}-bytes", "m", [topic]), 1)
    client.note("in the middle of a rebalance")
    client.quietly(join(f"{client.name}-completing"), 3)
    client.ask(first_beat(f"{client.name}-completing", "m", [topic]), 1)
    client.note("an empty one is taken over, with its offsets")
    member, _ = settled(client, f"{client.name}-empty")
    client.quietly(leave(f"{client.name}-empty", (member, None)), 5)
    client.quietly(commit(f"{client.name}-empty", topic, {0: 5}), 8)
    answer = client.ask(first_beat(f"{client.name}-empty", "m", [topic]), 1)
    client.ask(fetch_offsets(f"{client.name}-empty", None, 9, member="m", epoch=answer.member_epoch), 9)
    describe_both_ways(client, f"{client.name}-empty")
    client.note("and back, when it is empty again")
    client.quietly(beat(f"{client.name}-empty", "m", LEAVE), 1)
    answer = client.ask(join(f"{client.name}-empty"), 3)
    assert answer.error_code == ErrorCode.NONE
    client.ask(fetch_offsets(f"{client.name}-empty", None, 9), 9)
    describe_both_ways(client, f"{client.name}-empty")


CONSUMER_GROUP_SCENARIOS = (
    heartbeats_refused,
    one_member,
    a_member_whose_id_the_broker_makes,
    two_members_reconcile,
    the_range_assignor,
    the_uniform_assignor,
    a_consumer_group_that_is_full,
    static_members_of_a_consumer_group,
    offsets_of_a_consumer_group,
    subscribing_by_regex,
    a_classic_member_where_consumers_are,
    a_classic_member_joins_consumers,
    the_last_consumer_leaves_classic_members,
    a_consumer_joins_classic_members,
    a_consumer_and_groups_that_it_cannot_join,
)
