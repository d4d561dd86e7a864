"""The offsets that groups have committed: reading, setting and deleting them.

This client commits without being a member of the group, which brokers allow while the group has no members.

Requests name topics instead of giving their ids, so they use OffsetFetch and OffsetCommit up to version 9 only.

Source: Kafka's OffsetFetch, OffsetCommit and OffsetDelete APIs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeVar

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from kafka_wire.messages.offset_fetch import (
    GROUPS_SINCE_VERSION,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafka_wire.primitives import NO_OFFSET
from trio_broker.client.error_codes import RETRIED_BY_COMMANDS
from trio_broker.client.errors import Refused, check, only
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.common.topic_partition import TopicPartition

NamedPartitionT = TypeVar("NamedPartitionT")

NEWEST_WITH_NAMES: Final = 9
"""From version 10 on, OffsetFetch and OffsetCommit name topics by their ids."""

FETCHES_ALL_FROM: Final = 2
"""The first version of OffsetFetch that can ask for everything that a group has."""


@attrs.frozen
class CommittedOffset:
    """The next offset that a group reads, the leader epoch of the record before (-1: unknown), and its metadata."""

    offset: int
    leader_epoch: int
    metadata: str


Outcome = Refused | None
"""Why a partition was refused, or None where it worked."""


def fetch_offsets(client: KafkaClient, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """Return every committed offset of a group; a group that does not exist has none."""

    def ask() -> dict[TopicPartition, CommittedOffset]:
        coordinator = client.coordinator(group_id)
        version = coordinator.version_for(OffsetFetchRequest, at_least=FETCHES_ALL_FROM, at_most=NEWEST_WITH_NAMES)
        if version < GROUPS_SINCE_VERSION:
            request = OffsetFetchRequest(group_id=group_id, topics=None)
        else:
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
        return _committed(group_id, coordinator.ask(request, client.deadline, version))

    return client.attempt(ask)


def _committed(group_id: str, response: OffsetFetchResponse) -> dict[TopicPartition, CommittedOffset]:
    code, topics = response.error_code, response.topics
    found: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics] = topics
    if response.groups:
        group = only(response.groups, f"group {group_id!r}")
        code, found = group.error_code, group.topics
    check(f"offsets of group {group_id!r}", code)
    committed: dict[TopicPartition, CommittedOffset] = {}
    for topic in found:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            check(f"offset of group {group_id!r} for {partition}", each.error_code)
            if each.committed_offset != NO_OFFSET:
                committed[partition] = CommittedOffset(
                    each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                )
    return committed


def commit_offsets(
    client: KafkaClient, group_id: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Outcome]:
    """Set a group's offsets, and return the outcome for each partition.

    Raises:
        Refused: the coordinator answered with a retriable error until the deadline.
    """

    def ask() -> dict[TopicPartition, Outcome]:
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition.partition,
                        committed_offset=offsets[partition],
                        committed_metadata="",
                    )
                    for partition in partitions
                ],
            )
            for name, partitions in _by_topic(offsets).items()
        ]
        # No member id and, by default, generation -1: the commit of a client that is not a member.
        request = OffsetCommitRequest(group_id=group_id, member_id="", topics=topics)
        response = client.ask(client.coordinator(group_id), request, at_most=NEWEST_WITH_NAMES)
        return _outcomes(group_id, offsets, response)

    return client.attempt(ask)


def delete_offsets(
    client: KafkaClient, group_id: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, Outcome]:
    """Delete a group's offsets for some partitions, and return the outcome for each.

    Raises:
        Refused: the group does not exist, or it has members that are not consumers.
    """

    def ask() -> dict[TopicPartition, Outcome]:
        topics = [
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[OffsetDeleteRequestPartition(partition_index=each.partition) for each in of_topic],
            )
            for name, of_topic in _by_topic(partitions).items()
        ]
        response = client.ask(client.coordinator(group_id), OffsetDeleteRequest(group_id=group_id, topics=topics))
        check(f"group {group_id!r}", response.error_code)
        return _outcomes(group_id, partitions, response)

    return client.attempt(ask)


def _outcomes(
    group_id: str, asked: Iterable[TopicPartition], response: OffsetCommitResponse | OffsetDeleteResponse
) -> dict[TopicPartition, Outcome]:
    """Return the outcome for each partition.

    Raises:
        Refused: one has a retriable error. The whole request is then repeated, which does no harm to the others.
    """
    codes = {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partitions
    }
    outcomes: dict[TopicPartition, Outcome] = {}
    for partition in asked:
        # A partition that the broker left out of its answer counts as UNKNOWN_SERVER_ERROR.
        code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
        refusal = Refused(f"group {group_id!r}, partition {partition}", code) if code else None
        if refusal is not None and code in RETRIED_BY_COMMANDS:
            raise refusal
        outcomes[partition] = refusal
    return outcomes


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    by_topic: dict[str, list[TopicPartition]] = defaultdict(list)
    for partition in sorted(partitions):
        by_topic[partition.topic].append(partition)
    return by_topic
