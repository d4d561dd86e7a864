"""Requests about groups with what most conversations say in them, and the bytes that consumers put into them."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping
from typing import Any

from kafka_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kafka_wire.messages.delete_groups import DeleteGroupsRequest
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kafka_wire.primitives import NO_UUID
from tests.compat.scenario_client import ANSWER_SECONDS, PAUSE_SECONDS, ScenarioClient
from tests.waits import TimeLeft

SESSION_MS = 30_000
REBALANCE_MS = 60_000

LEAVE = -1
"""The member epoch of a member that leaves its consumer group."""


def subscription(*topics: str, owned: dict[str, list[int]] | None = None) -> bytes:
    """The bytes a consumer sends for its assignor: a version, topics, no user data; with ``owned`` in version 1."""
    text = struct.pack(">hi", 0 if owned is None else 1, len(topics)) + b"".join(map(_string, topics))
    text += struct.pack(">i", -1)
    return text if owned is None else text + _partitions(owned)


def assignment(**partitions: list[int]) -> bytes:
    """The bytes a leader sends to a member, in version 0; ``_`` stands for ``-`` in a name."""
    named = {name.replace("_", "-"): numbers for name, numbers in partitions.items()}
    return struct.pack(">h", 0) + _partitions(named) + struct.pack(">i", -1)


def _partitions(topics: dict[str, list[int]]) -> bytes:
    text = struct.pack(">i", len(topics))
    for topic, partitions in topics.items():
        text += _string(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return text


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def join(
    group: str,
    member: str = "",
    *,
    instance: str | None = None,
    protocols: dict[str, bytes] | None = None,
    protocol_type: str = "consumer",
    session_ms: int = SESSION_MS,
    rebalance_ms: int = REBALANCE_MS,
    reason: str | None = None,
) -> JoinGroupRequest:
    wanted = {"range": subscription("topic")} if protocols is None else protocols
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=rebalance_ms,
        member_id=member,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in wanted.items()],
        reason=reason,
    )


def sync(
    group: str,
    generation: int,
    member: str,
    assignments: dict[str, bytes] | None = None,
    *,
    instance: str | None = None,
    protocol_type: str | None = "consumer",
    protocol: str | None = "range",
) -> SyncGroupRequest:
    given = [SyncGroupRequestAssignment(member_id=who, assignment=what) for who, what in (assignments or {}).items()]
    return SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocol_name=protocol,
        assignments=given,
    )


def heartbeat(group: str, generation: int, member: str, *, instance: str | None = None) -> HeartbeatRequest:
    return HeartbeatRequest(group_id=group, generation_id=generation, member_id=member, group_instance_id=instance)


def leave(group: str, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    """From version 3 on: each member by its id, its instance id, or both."""
    who = [MemberIdentity(member_id=member, group_instance_id=instance) for member, instance in members]
    return LeaveGroupRequest(group_id=group, members=who)


def settled(client: ScenarioClient, group: str, *, instance: str | None = None, **words: object) -> tuple[str, int]:
    """Make a group of one member that has its assignment; return the member and the generation, saying nothing."""
    request = join(group, instance=instance, **words)  # type: ignore[arg-type]
    answer = client.quietly(request, 9)
    if answer.error_code:
        request.member_id = answer.member_id
        answer = client.quietly(request, 9)
    assert answer.error_code == 0, answer
    member: str = answer.member_id
    generation: int = answer.generation_id
    client.quietly(sync(group, generation, member, {member: b"assignment"}, instance=instance), 3)
    return member, generation


def pending(client: ScenarioClient, group: str, **words: object) -> str:
    """Return the id that the broker makes for a member that then does not come back."""
    member: str = client.quietly(join(group, **words), 9).member_id  # type: ignore[arg-type]
    return member


# --- Offsets ---


def commit(
    group: str,
    topic: str | bytes,
    offsets: dict[int, int],
    *,
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "",
    leader_epoch: int = -1,
) -> OffsetCommitRequest:
    """A commit to one topic, by its name or its id."""
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_leader_epoch=leader_epoch,
            committed_metadata=metadata,
        )
        for partition, offset in offsets.items()
    ]
    name, topic_id = (topic, NO_UUID) if isinstance(topic, str) else ("", topic)
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)],
    )


def fetch_offsets(
    group: str,
    topics: Mapping[Any, list[int]] | None,
    version: int,
    *,
    member: str | None = None,
    epoch: int = -1,
    require_stable: bool = False,
) -> OffsetFetchRequest:
    """A fetch from one group in the shape of ``version``; topics by id from 10 on, by name before."""
    if version < 8:
        old = (
            None
            if topics is None
            else [
                OffsetFetchRequestTopic(name=str(name), partition_indexes=numbers) for name, numbers in topics.items()
            ]
        )
        return OffsetFetchRequest(group_id=group, topics=old, require_stable=require_stable)
    new = (
        None
        if topics is None
        else [
            OffsetFetchRequestTopics(
                name=name if isinstance(name, str) else "",
                topic_id=name if isinstance(name, bytes) else NO_UUID,
                partition_indexes=numbers,
            )
            for name, numbers in topics.items()
        ]
    )
    one = OffsetFetchRequestGroup(group_id=group, member_id=member, member_epoch=epoch, topics=new)
    return OffsetFetchRequest(groups=[one], require_stable=require_stable)


# --- Consumer groups ---


def beat(
    group: str,
    member: str,
    epoch: int,
    *,
    topics: list[str] | None = None,
    regex: str | None = None,
    owned: dict[bytes, list[int]] | None = None,
    instance: str | None = None,
    assignor: str | None = None,
    rebalance_ms: int = -1,
    rack: str | None = None,
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat in which everything that is not said did not change."""
    return ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        instance_id=instance,
        rack_id=rack,
        rebalance_timeout_ms=rebalance_ms,
        subscribed_topic_names=topics,
        subscribed_topic_regex=regex,
        server_assignor=assignor,
        topic_partitions=None
        if owned is None
        else [TopicPartitions(topic_id=topic, partitions=partitions) for topic, partitions in owned.items()],
    )


def first_beat(group: str, member: str, topics: list[str] | None, **words: object) -> ConsumerGroupHeartbeatRequest:
    """The heartbeat by which a member joins."""
    return beat(group, member, 0, topics=topics, owned={}, rebalance_ms=REBALANCE_MS, **words)  # type: ignore[arg-type]


def topic_for_consumers(client: ScenarioClient, name: str, partitions: int = 1) -> bytes:
    """Create a topic, wait until the group coordinator knows of it, and return its id.

    Kafka's coordinator is notified of new topics after the rest of the broker, for each partition of its log by itself;
    the brokers of these tests have one. So a consumer group that is not talked about goes first.
    """
    topic_id = client.create_topic(name, partitions)
    probe = f"probe of {name}"
    with_partitions(client, probe, "probe", client.quietly(first_beat(probe, "probe", [name]), 1))
    client.quietly(beat(probe, "probe", LEAVE), 1)
    client.quietly(DeleteGroupsRequest(groups_names=[probe]), 2)
    return topic_id


def with_partitions(
    client: ScenarioClient, group: str, member: str, answer: ConsumerGroupHeartbeatResponse
) -> ConsumerGroupHeartbeatResponse:
    """Send heartbeats, after one with this ``answer``, until one is answered with partitions; return that answer."""
    time_left = TimeLeft(ANSWER_SECONDS)
    while answer.assignment is None or not answer.assignment.topic_partitions:
        assert not time_left.is_over, f"{member} gets nothing: {answer}"
        time.sleep(PAUSE_SECONDS)
        answer = client.quietly(beat(group, member, answer.member_epoch), 1)
    return answer
