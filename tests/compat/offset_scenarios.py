"""Conversations about committed offsets: committing, fetching and deleting them, as a member and without one."""

from __future__ import annotations

from kafka_wire.messages.delete_groups import DeleteGroupsRequest
from kafka_wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestTopic
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafka_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafka_wire.primitives import NO_UUID
from tests.compat.group_requests import commit, fetch_offsets, join, leave, settled, subscription
from tests.compat.scenario_client import ScenarioClient

UNKNOWN_TOPIC_ID = b"no topic has this"


def committing_and_fetching_in_every_version(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_id = client.create_topic(topic, 2)
    for version in range(2, 11):
        offsets = {0: version, 1: 100 + version}
        named = topic if version < 10 else topic_id
        client.ask(commit(group, named, offsets, metadata=f"from {version}", leader_epoch=0), version)
    for version in range(1, 11):
        client.ask(fetch_offsets(group, {topic if version < 10 else topic_id: [1, 0]}, version), version)
    client.note("without metadata, without a leader epoch")
    client.ask(commit(group, topic, {0: 1}, metadata=None), 9)
    client.ask(fetch_offsets(group, {topic: [0]}, 9), 9)


def committing_refused(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_id = client.create_topic(topic, 2)
    client.note("a group that nobody knows, with a generation, with a member")
    for version in range(2, 10):
        client.ask(commit(f"{client.name}-unknown", topic, {0: 1}, generation=1, member="member"), version)
    client.ask(commit(f"{client.name}-unknown", topic_id, {0: 1}, generation=1, member="member"), 10)
    for version in (8, 9):
        client.ask(commit(f"{client.name}-unknown", topic, {0: 1}, generation=0, member=""), version)
        client.ask(commit(f"{client.name}-unknown", topic, {0: 1}, generation=-1, member="member"), version)
        client.ask(commit(f"{client.name}-unknown", topic, {0: 1}, generation=-1, instance="instance"), version)
        client.ask(commit(f"{client.name}-unknown", topic, {0: 1}, generation=-5), version)
    client.note("no group id, no topics, no partitions")
    for version in (2, 9):
        client.ask(commit("", topic, {0: 1}), version)
        client.ask(DeleteGroupsRequest(groups_names=[""]), 2)
        client.ask(OffsetCommitRequest(group_id=f"{group}-none", member_id="", topics=[]), version)
        client.ask(commit(f"{group}-none", topic, {}), version)
    client.note("topics and partitions that do not exist, beside one that does")
    for version in (2, 9):
        mixed = commit(f"{group}-mixed", topic, {0: 1, 2: 1, -1: 1})
        mixed.topics.append(commit("", "no-such-topic", {0: 1, 1: 2}).topics[0])
        mixed.topics.append(commit("", "no/such topic", {0: 1}).topics[0])
        mixed.topics.append(commit("", "", {0: 1}).topics[0])
        client.ask(mixed, version)
    mixed = commit(f"{group}-mixed", topic_id, {0: 1, 2: 1})
    mixed.topics.append(commit("", UNKNOWN_TOPIC_ID[:16], {0: 1}).topics[0])
    mixed.topics.append(commit("", NO_UUID, {0: 1}).topics[0])
    client.ask(mixed, 10)
    client.note("metadata at and above the limit of 4096, in one of two partitions")
    client.ask(commit(f"{group}-mixed", topic, {0: 2}, metadata="m" * 4096), 9)
    large = commit(f"{group}-mixed", topic, {0: 3, 1: 3}, metadata="m" * 4097)
    large.topics[0].partitions[1].committed_metadata = "ä" * 2049
    client.ask(large, 9)
    large.topics[0].partitions[1].committed_metadata = ""
    client.ask(large, 9)
    client.ask(fetch_offsets(f"{group}-mixed", {topic: [0, 1]}, 9), 9)
    client.note("offsets below zero, twice the same partition")
    client.ask(commit(f"{group}-negative", topic, {0: -1, 1: -7}), 9)
    client.ask(fetch_offsets(f"{group}-negative", {topic: [0, 1]}, 9), 9)
    twice = commit(f"{group}-twice", topic, {0: 1})
    twice.topics[0].partitions += commit("", topic, {0: 2}).topics[0].partitions
    twice.topics.append(OffsetCommitRequestTopic(name=topic, partitions=commit("", topic, {0: 3}).topics[0].partitions))
    client.ask(twice, 9)
    client.ask(fetch_offsets(f"{group}-twice", {topic: [0]}, 9), 9)


def committing_as_a_member(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_id = client.create_topic(topic)
    member, generation = settled(client, group)
    for version in range(2, 10):
        client.ask(commit(group, topic, {0: version}, member=member, generation=generation), version)
    client.ask(commit(group, topic_id, {0: 10}, member=member, generation=generation), 10)
    for version in (2, 8, 9):
        client.ask(commit(group, topic, {0: 99}, member=member, generation=generation + 1), version)
        client.ask(commit(group, topic, {0: 99}, member=member, generation=generation - 1), version)
        client.ask(commit(group, topic, {0: 99}, member="other", generation=generation), version)
        client.ask(commit(group, topic, {0: 99}, generation=generation), version)
    client.note("members without a generation, and unknown members, while the group has members")
    for version in (2, 8, 9):
        client.ask(commit(group, topic, {0: 99}), version)
        client.ask(commit(group, topic, {0: 99}, member=member), version)
        client.ask(commit(group, topic, {0: 99}, member="other"), version)
    client.ask(commit(group, topic, {0: 99}, member=member, generation=generation, instance="other"), 9)
    client.ask(fetch_offsets(group, {topic: [0]}, 9), 9)
    client.note("when it is empty again")
    client.ask(leave(group, (member, None)), 5)
    client.ask(commit(group, topic, {0: 99}, member=member, generation=generation), 9)
    client.ask(commit(group, topic, {0: 99}, member=member, generation=generation + 1), 9)
    client.ask(commit(group, topic, {0: 99}, generation=generation + 1), 9)
    client.ask(commit(group, topic, {0: 99}, member=member), 9)
    client.ask(commit(group, topic, {0: 11}), 9)
    client.ask(fetch_offsets(group, {topic: [0]}, 9), 9)


def fetching(client: ScenarioClient) -> None:
    topic, group = f"{client.name}-t", f"{client.name}-group"
    topic_id = client.create_topic(topic, 3)
    client.ask(commit(group, topic, {0: 5}), 9)
    client.note("a group that nobody knows")
    for version in range(1, 11):
        client.ask(
            fetch_offsets(f"{client.name}-unknown", {topic if version < 10 else topic_id: [0]}, version), version
        )
    for version in (2, 7, 8, 9, 10):
        client.ask(fetch_offsets(f"{client.name}-unknown", None, version), version)
    client.note("partitions without an offset, topics that do not exist")
    for version in (1, 7, 8, 9):
        client.ask(
            fetch_offsets(group, {topic: [0, 1, 7], "no-such-topic": [0], "no/such topic": [0]}, version), version
        )
    client.ask(fetch_offsets(group, {topic_id: [0, 7], UNKNOWN_TOPIC_ID[:16]: [0, 1], NO_UUID: [0]}, 10), 10)
    client.note("everything, nothing")
    for version in range(2, 11):
        client.ask(fetch_offsets(group, None, version), version)
    for version in (1, 7, 8, 10):
        client.ask(fetch_offsets(group, {}, version), version)
    client.ask(fetch_offsets(group, {topic: []}, 8), 8)
    client.note("no group id")
    for version in (1, 2, 7, 8, 10):
        client.ask(fetch_offsets("", {}, version), version)
    client.note("no groups, several, one of them twice")
    client.ask(OffsetFetchRequest(groups=[]), 8)
    wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    groups = [group, f"{client.name}-unknown", "", group]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=each, topics=wanted) for each in groups])
    client.ask(request, 8)
    client.note("stable offsets only")
    for version in (7, 8, 9):
        client.ask(fetch_offsets(group, {topic: [0, 1]}, version, require_stable=True), version)
    client.note("as a member of a group of either kind, from version 9 on")
    client.ask(fetch_offsets(group, {topic: [0]}, 9, member="other", epoch=3), 9)
    client.ask(fetch_offsets(group, {topic: [0]}, 9, member="other"), 9)
    client.ask(fetch_offsets(group, {topic: [0]}, 9, epoch=3), 9)
    client.ask(fetch_offsets(f"{client.name}-unknown", {topic: [0]}, 9, member="other", epoch=3), 9)
    member, generation = settled(client, group)
    client.ask(fetch_offsets(group, {topic: [0]}, 9, member=member, epoch=generation), 9)
    client.ask(fetch_offsets(group, {topic: [0]}, 9, member=member, epoch=generation + 5), 9)


def delete_offsets(group: str, topics: dict[str, list[int]]) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in partitions]
            )
            for topic, partitions in topics.items()
        ],
    )


def deleting_offsets(client: ScenarioClient) -> None:
    topic, other, group = f"{client.name}-t", f"{client.name}-other", f"{client.name}-group"
    for name in (topic, other):
        client.create_topic(name, 2)
    client.ask(delete_offsets(f"{client.name}-unknown", {topic: [0]}), 0)
    client.ask(delete_offsets("", {topic: [0]}), 0)
    client.note("of a group that only has offsets")
    client.quietly(commit(group, topic, {0: 1, 1: 1}), 9)
    client.quietly(commit(group, other, {0: 1, 1: 1}), 9)
    client.ask(delete_offsets(group, {topic: [0, 7], "no-such-topic": [0, 1], "no/such topic": [0]}), 0)
    client.ask(delete_offsets(group, {topic: [0]}), 0)
    client.ask(delete_offsets(group, {}), 0)
    client.ask(fetch_offsets(group, None, 9), 9)
    client.note("of a group with consumers: not of the topics that they subscribed to")
    member, _ = settled(client, group, protocols={"range": subscription(topic)})
    client.ask(delete_offsets(group, {topic: [1, 7], other: [0], "no-such-topic": [0]}), 0)
    client.ask(fetch_offsets(group, None, 9), 9)
    client.ask(leave(group, (member, None)), 5)
    client.ask(delete_offsets(group, {topic: [1]}), 0)
    client.note("of a group with members of another protocol")
    settled(client, f"{group}-connect", protocol_type="connect", protocols={"eager": b""})
    client.ask(delete_offsets(f"{group}-connect", {topic: [0]}), 0)
    client.note("of a group whose members have not joined yet")
    client.ask(join(f"{group}-pending"), 9)
    client.ask(delete_offsets(f"{group}-pending", {topic: [0]}), 0)


OFFSET_SCENARIOS = (
    committing_and_fetching_in_every_version,
    committing_refused,
    committing_as_a_member,
    fetching,
    deleting_offsets,
)
