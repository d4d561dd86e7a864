"""A group from the classic protocol to the consumer protocol, and back, while its members go on.

An application changes its consumers one by one. The first that speaks the consumer protocol turns the group into a
consumer group, in which the others go on as members of the classic protocol; the assignment stays what it was until
the new member's epoch comes. When the last that speaks the consumer protocol goes, the group becomes a classic one
again, whose members have what they had as their target, and rebalance.

A conversion is a pure function: from a group to another object, with the records that make one into the other in the
log. Whoever runs groups puts the new object in the place of the old one once the records are appended, together with
those of the event that made it necessary; if that fails the old object is still what it was.

Source: Kafka's GroupMetadataManager (convertToConsumerGroup, convertToClassicGroup), ConsumerGroup.fromClassicGroup and
ClassicGroup.fromConsumerGroup; KIP-848, "Online migration".
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kafka_wire.consumer_protocol import decode_assignment, decode_subscription
from kafka_wire.errors import WireError
from kafka_wire.stored.groups import ClassicMemberMetadata, ClassicProtocol, GroupRecord
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.classic.member import ClassicMember
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE, MAX_SUBSCRIBED_TOPICS
from trio_broker.coordinator.consumer.classic_members import assignment_bytes
from trio_broker.coordinator.consumer.group import ConsumerGroup
from trio_broker.coordinator.consumer.group_update import group_event
from trio_broker.coordinator.consumer.member import ConsumerMember, Target, with_epoch, without_epochs
from trio_broker.coordinator.consumer.member_timers import MemberTimer
from trio_broker.coordinator.consumer.records import (
    current_assignment_record,
    group_epoch_record,
    group_tombstones,
    member_record,
    target_epoch_record,
    target_record,
)
from trio_broker.coordinator.consumer.target_assignment import metadata_hash
from trio_broker.coordinator.runtime.result import CoordinatorResult, GroupEventKind, Now

UPGRADING_POLICIES = ("upgrade", "bidirectional")
"""Values of ``group.consumer.migration.policy`` that let a classic group become a consumer group."""

NEVER_COMPUTED = 0
"""The timestamp of a target that was taken over: the next one may be computed at once."""


class CannotUpgrade(Exception):
    """The classic group cannot become a consumer group; the message says why, and GROUP_ID_NOT_FOUND is answered."""


# --- Classic to consumer ---


def may_upgrade(group: ClassicGroup) -> bool:
    """Whether a member of the consumer protocol may join, and so make ``group`` a consumer group.

    An empty group may always be replaced. Another one has to be one of consumers, be no larger than consumer groups may
    be, and the policy has to allow it.
    """
    if not group.members:
        return True
    return (
        group.settings.group_consumer_migration_policy in UPGRADING_POLICIES
        and group.protocol_type == CONSUMER_PROTOCOL_TYPE
        and len(group.members) <= group.settings.group_consumer_max_size
    )


def upgraded(
    group: ClassicGroup, settings: GroupCoordinatorConfig, now: Now, image: MetadataImage
) -> tuple[ConsumerGroup, list[GroupRecord]]:
    """Return the consumer group that ``group``, which may be upgraded, becomes, and the records that make it so.

    The records are folded in already; if the request that led here is refused, the group returned is to be forgotten,
    since a request that is refused converts nothing. Requests that wait in ``group`` are not answered here: ``abandon``
    it with REBALANCE_IN_PROGRESS when the new group takes its place, and its members join that.

    Raises:
        CannotUpgrade: a member's subscription or assignment cannot be read, is for an assignor of its own, or one
            partition is assigned to two members.
    """
    converted = ConsumerGroup(group.group_id, settings)
    if not group.members:
        return converted, group.tombstones()
    members = [_consumer_member(group, member, image) for member in group.members.values()]
    _require_exclusive_partitions(members)
    topics = {name for member in members for name in member.subscribed_topic_names}
    group_id, epoch = group.group_id, group.generation_id
    records = [
        *(member_record(group_id, member) for member in members),
        group_epoch_record(group_id, epoch, metadata_hash(topics, image)),
        *(target_record(group_id, member.member_id, without_epochs(member.assigned)) for member in members),
        target_epoch_record(group_id, epoch, NEVER_COMPUTED),
        *(current_assignment_record(group_id, member) for member in members),
    ]
    for record in records:
        converted.apply(record)
    for member in members:
        assert member.classic is not None
        deadline = now.monotonic_seconds + member.classic.session_timeout_ms / 1000
        converted.timers.start(MemberTimer.SESSION, member.member_id, deadline)
    return converted, group.tombstones() + records


def upgrade_effects(group: ConsumerGroup, now: Now) -> CoordinatorResult:
    """What people read of the conversion to ``group``."""
    event = group_event(GroupEventKind.PROTOCOL_CHANGED, now, group.group_epoch, None, "from classic to consumer")
    return CoordinatorResult(events=[event])


def _consumer_member(group: ClassicGroup, member: ClassicMember, image: MetadataImage) -> ConsumerMember:
    try:
        subscription = decode_subscription(member.metadata(group.protocol_name))
        target = _assigned(member.assignment, image)
    except WireError as error:
        raise CannotUpgrade(f"what member {member.member_id} says in the consumer protocol is none: {error}") from None
    if (count := len(subscription.topics)) > MAX_SUBSCRIBED_TOPICS:
        raise CannotUpgrade(f"member {member.member_id} subscribes to {count} topics")
    protocols = [ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.protocols.items()]
    return ConsumerMember(
        member_id=member.member_id,
        member_epoch=group.generation_id,
        previous_member_epoch=group.generation_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned=with_epoch(target, group.generation_id),
        classic=ClassicMemberMetadata(session_timeout_ms=member.session_timeout_ms, supported_protocols=protocols),
    )


def _assigned(assignment: bytes, image: MetadataImage) -> Target:
    """The partitions of topics that exist in what the group's leader assigned."""
    if not assignment:
        return {}
    decoded = decode_assignment(assignment)
    if decoded.user_data:
        raise CannotUpgrade("the leader's assignor keeps data of its own in the assignments, which would be lost")
    return {
        image.topics[item.topic].topic_id: frozenset(item.partitions)
        for item in decoded.assigned_partitions
        if item.topic in image.topics
    }


def _require_exclusive_partitions(members: Iterable[ConsumerMember]) -> None:
    """An assignor of the clients' own may give one partition to many; a consumer group cannot."""
    owners: dict[tuple[bytes, int], str] = {}
    for member in members:
        for topic_id, partitions in member.assigned.items():
            for partition in partitions:
                owner = owners.setdefault((topic_id, partition), member.member_id)
                if owner != member.member_id:
                    raise CannotUpgrade(f"members {owner} and {member.member_id} were assigned the same partition")


# --- Consumer to classic ---


def may_downgrade(group: ConsumerGroup) -> bool:
    """Whether the last event left ``group`` with members of the classic protocol alone."""
    return group.downgrade is not None


@attrs.frozen
class Downgraded:
    """What a consumer group becomes.

    ``result`` come after those of the event that led to it, in the same batch of records.
    """

    group: ClassicGroup
    result: CoordinatorResult


def downgraded(group: ConsumerGroup, now: Now, image: MetadataImage) -> Downgraded:
    """Return the classic group that ``group``, which may be downgraded, becomes.

    Its generation is the group's epoch, and every member has its target as its assignment.
    """
    downgrade = group.downgrade
    assert downgrade is not None, group.group_id
    stored = group.stored
    joining = downgrade.joining
    replaced = None if joining is None else stored.static_member(joining.instance_id)
    staying = [
        member
        for member in stored.members.values()
        if member is not replaced and member.member_id not in downgrade.leaving
    ]
    members = [_classic_member(member, stored.target_of(member), image) for member in staying]
    tombstoned = [member_id for member_id in stored.members if replaced is None or member_id != replaced.member_id]
    if joining is not None:
        members.append(_classic_member(joining, stored.target_of(joining), image))
        tombstoned.append(joining.member_id)
    classic = ClassicGroup.of_members(
        group.group_id,
        group.settings,
        now,
        generation_id=stored.group_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        members=members,
    )
    event = group_event(GroupEventKind.PROTOCOL_CHANGED, now, stored.group_epoch, None, "from consumer to classic")
    result = CoordinatorResult(
        records=[*group_tombstones(group.group_id, tombstoned, stored.patterns), classic.metadata_record()],
        events=[event],
    )
    if downgrade.rebalance:
        result.extend(classic.start_rebalance(downgrade.reason, now))
    return Downgraded(classic, result)


def _classic_member(member: ConsumerMember, target: Target, image: MetadataImage) -> ClassicMember:
    assert member.classic is not None, member
    protocols = {protocol.name: protocol.metadata for protocol in member.classic.supported_protocols}
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=member.classic.session_timeout_ms,
        protocols=protocols,
        assignment=assignment_bytes(target, member.classic.supported_protocols[0].metadata, image),
    )
