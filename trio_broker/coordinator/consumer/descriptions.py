"""A consumer group for ConsumerGroupDescribe, and as a snapshot for the admin API.

Source: Kafka's ConsumerGroup.asDescribedGroup and ConsumerGroupMember.asConsumerGroupDescribeMember.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping

from kafka_wire.messages.consumer_group_describe import Assignment, DescribedGroup, Member, TopicPartitions
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE
from trio_broker.coordinator.consumer.member import EMPTY_TARGET, ConsumerMember, Target
from trio_broker.coordinator.consumer.stored_group import StoredConsumerGroup
from trio_broker.coordinator.consumer.target_assignment import preferred_assignor
from trio_broker.coordinator.reporting.snapshot import GroupSnapshot, GroupType, MemberSnapshot

CLASSIC_MEMBER = 0
CONSUMER_MEMBER = 1


def described_group(
    stored: StoredConsumerGroup, settings: GroupCoordinatorConfig, image: MetadataImage
) -> Generator[None, None, DescribedGroup]:
    """For ConsumerGroupDescribe: the group as it is now. May be interrupted after each member."""
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
        target = targets.get(member.member_id, EMPTY_TARGET)
        described.members.append(_described_member(member, target, image))
        yield
    return described


def _described_member(member: ConsumerMember, target: Target, image: MetadataImage) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_named(_owned(member), image),
        target_assignment=_named(target, image),
        member_type=CLASSIC_MEMBER if member.uses_classic_protocol else CONSUMER_MEMBER,
    )


def _owned(member: ConsumerMember) -> dict[bytes, list[int]]:
    """All that the member owns, with what it has to give up."""
    owned: dict[bytes, list[int]] = {}
    for partitions in (member.assigned, member.pending_revocation):
        for topic_id, indexes in partitions.items():
            owned.setdefault(topic_id, []).extend(indexes)
    return owned


def _named(partitions: Mapping[bytes, Iterable[int]], image: MetadataImage) -> Assignment:
    """``partitions`` with the names of their topics; topics that do not exist are left out."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=image.topics_by_id[topic_id].name, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
            if topic_id in image.topics_by_id
        ]
    )


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
