"""A consumer group for ConsumerGroupDescribe, and as a snapshot for the admin API.

Source: Kafka's ConsumerGroup.asDescribedGroup and ConsumerGroupMember.asConsumerGroupDescribeMember.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from heapq import merge
from itertools import islice

from kafka_wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.concurrency.yield_budget import SORTED_AT_ONCE, at_once
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE
from trio_broker.coordinator.consumer.member import EMPTY_TARGET, ConsumerMember, Target
from trio_broker.coordinator.consumer.stored_group import StoredConsumerGroup
from trio_broker.coordinator.consumer.target_assignment import preferred_assignor
from trio_broker.coordinator.reporting.snapshot import GroupSnapshot, GroupType, MemberSnapshot

TOPICS_AT_ONCE = 100
"""Topics that are described between two turns: a tenth of a millisecond."""

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def described_group(
    stored: StoredConsumerGroup, settings: GroupCoordinatorConfig, image: MetadataImage
) -> Generator[None, None, DescribedGroup]:
    """For ConsumerGroupDescribe: the group as it is now. May be interrupted after some topics of a member."""
    members, targets = list(stored.members.values()), dict(stored.targets)
    described = DescribedGroup(
        group_id=stored.group_id,
        group_state=stored.state.value,
        group_epoch=stored.group_epoch,
        assignment_epoch=stored.target_epoch,
        assignor_name=preferred_assignor(stored.assignor_votes, settings.group_consumer_assignors),
        members=[],
    )
    for member in members:
        described.members.append((yield from _described_member(member, targets, image)))
        yield
    return described


def _described_member(
    member: ConsumerMember, targets: Mapping[str, Target], image: MetadataImage
) -> Generator[None, None, Member]:
    names = yield from _in_order(member.subscribed_topic_names)
    owned = yield from _owned_in_turns(member)
    assignment = yield from _named_in_turns(owned, image)
    target = yield from _named_in_turns(targets.get(member.member_id, EMPTY_TARGET), image)
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=assignment,
        target_assignment=target,
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _in_order(names: frozenset[str]) -> Generator[None, None, list[str]]:
    if len(names) <= SORTED_AT_ONCE:
        return sorted(names)
    parts, remaining = [], iter(names)
    while part := sorted(islice(remaining, SORTED_AT_ONCE)):
        parts.append(part)
        yield
    ordered: list[str] = []
    merged = merge(*parts)
    while some := list(islice(merged, TOPICS_AT_ONCE)):
        ordered += some
        yield
    return ordered


def _owned(member: ConsumerMember) -> dict[bytes, list[int]]:
    """All that the member owns, with what it has to give up."""
    return at_once(_owned_in_turns(member))


def _owned_in_turns(member: ConsumerMember) -> Generator[None, None, dict[bytes, list[int]]]:
    owned: dict[bytes, list[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for number, (topic_id, indexes) in enumerate(partitions.items(), start=1):
            owned.setdefault(topic_id, []).extend(indexes)
            if not number % TOPICS_AT_ONCE:
                yield
    return owned


def _named(partitions: Mapping[bytes, Iterable[int]], image: MetadataImage) -> Assignment:
    """``partitions`` with the names of their topics; topics that do not exist are left out."""
    return at_once(_named_in_turns(partitions, image))


def _named_in_turns(
    partitions: Mapping[bytes, Iterable[int]], image: MetadataImage
) -> Generator[None, None, Assignment]:
    named = Assignment(topic_partitions=[])
    for number, (topic_id, indexes) in enumerate(partitions.items(), start=1):
        if topic_id in image.topics_by_id:
            name = image.topics_by_id[topic_id].name
            named.topic_partitions.append(
                TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(indexes))
            )
        if not number % TOPICS_AT_ONCE:
            yield
    return named


def group_snapshot(
    stored: StoredConsumerGroup, settings: GroupCoordinatorConfig, image: MetadataImage, *, with_members: bool
) -> GroupSnapshot:
    """The group for lists and the admin API."""
    members = stored.members.values() if with_members else ()
    return GroupSnapshot(
        group_id=stored.group_id,
        type=GroupType.CONSUMER,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol=preferred_assignor(stored.assignor_votes, settings.group_consumer_assignors),
        state=stored.state.value,
        generation=stored.group_epoch,
        leader=None,
        member_count=len(stored.members),
        members=tuple(_member_snapshot(stored, member, image) for member in members),
    )


def _member_snapshot(stored: StoredConsumerGroup, member: ConsumerMember, image: MetadataImage) -> MemberSnapshot:
    assignment = _named(_owned(member), image).topic_partitions
    return MemberSnapshot(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topics=tuple(sorted(stored.topics_of(member))),
        assignment={topic.topic_name: tuple(topic.partitions) for topic in assignment},
        epoch=member.member_epoch,
    )
