"""A classic group becomes a consumer group, while its members go on.

An application changes its consumers one by one. The first that speaks the consumer protocol turns the group into a
consumer group, in which the others go on as members of the classic protocol (``classic_members``). The assignment stays
what it was until the new member has its epoch.

The consumer group is a new object, with the records that make the one group into the other in the log. They are
appended with those of the heartbeat that led to it; if that heartbeat is refused, or the append fails, the classic
group is still what it was.

Source: Kafka's GroupMetadataManager.convertToConsumerGroup and ConsumerGroup.fromClassicGroup; KIP-848, "Online
migration".
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
)
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import WireError
from kafka_wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kafka_wire.stored.groups import ClassicMemberMetadata, ClassicProtocol, GroupRecord
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.classic.member import ClassicMember
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE, MAX_READ_TOPICS, MAX_SUBSCRIBED_TOPICS
from trio_broker.coordinator.consumer.group import ConsumerGroup
from trio_broker.coordinator.consumer.member import JOIN_EPOCH, ConsumerMember, Target, with_epoch, without_epochs
from trio_broker.coordinator.consumer.member_timers import MemberTimer
from trio_broker.coordinator.consumer.records import (
    NEVER_COMPUTED,
    current_assignment_record,
    group_epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from trio_broker.coordinator.consumer.target_assignment import metadata_hash
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.group_result import GroupResult, group_event
from trio_broker.coordinator.runtime.result import CoordinatorEvent, Now

UPGRADING_POLICIES = ("upgrade", "bidirectional")
"""Values of ``group.consumer.migration.policy`` that let a classic group become a consumer group."""


class CannotUpgrade(Exception):
    """The classic group cannot become a consumer group; the message says why."""


def first_heartbeat(
    event: CoordinatorEvent[ConsumerGroupHeartbeatRequest], settings: GroupCoordinatorConfig
) -> GroupResult:
    """A member of the consumer protocol sends a heartbeat to a group that does not exist."""
    group = ConsumerGroup(event.request.group_id, settings)
    return _begun(group, group.consumer_heartbeat(event))


def _begun(group: ConsumerGroup, result: GroupResult) -> GroupResult:
    """``result``, with which ``group`` begins to exist. Nobody knows it before, so the records are applied now."""
    for record in result.records:
        group.apply(record)
    if result.records:
        result.replace_with = group
    return result


def upgraded(
    classic: ClassicGroup, event: CoordinatorEvent[ConsumerGroupHeartbeatRequest], settings: GroupCoordinatorConfig
) -> GroupResult:
    """A member of the consumer protocol sends a heartbeat to ``classic``.

    The result has records only if the group becomes a consumer group, which replaces ``classic``; without them the
    heartbeat was refused.
    """
    try:
        if event.request.member_epoch != JOIN_EPOCH:
            raise CannotUpgrade("it is a classic group")
        group, records = converted(classic, settings, event.now, event.image)
    except CannotUpgrade as reason:
        # An error of the request itself comes first, as from any group that does not exist.
        group = ConsumerGroup(classic.group_id, settings)
        result = group.consumer_heartbeat(event)
        if result.records:
            text = f"group {classic.group_id} is not a consumer group: {reason}"
            code = ErrorCode.GROUP_ID_NOT_FOUND
            result = GroupResult()
            result.complete(event.future, ConsumerGroupHeartbeatResponse(error_code=code, error_message=text))
        return result
    epoch = group.group_epoch
    result = _begun(group, group.consumer_heartbeat(event))
    if result.records:
        # The conversion first: the records of the heartbeat belong to the group that it makes.
        result.records[:0] = records
        kind = GroupEventKind.PROTOCOL_CHANGED
        result.events.append(group_event(kind, event.now, epoch, reason="from classic to consumer"))
    return result


def converted(
    classic: ClassicGroup, settings: GroupCoordinatorConfig, now: Now, image: MetadataImage
) -> tuple[ConsumerGroup, list[GroupRecord]]:
    """Return the consumer group that ``classic`` becomes, and the records of that, which are folded in already.

    Raises:
        CannotUpgrade: the group is not one of consumers, is larger than consumer groups may be, or the policy forbids
            it; a member's subscription or assignment cannot be read, is for an assignor of its own, or one partition is
            assigned to two members.
    """
    group = ConsumerGroup(classic.group_id, settings)
    if not classic.members:
        return group, classic.tombstones()
    if (
        settings.group_consumer_migration_policy not in UPGRADING_POLICIES
        or classic.protocol_type != CONSUMER_PROTOCOL_TYPE
        or len(classic.members) > settings.group_consumer_max_size
    ):
        raise CannotUpgrade("it is a classic group")
    members = _consumer_members(classic, image)
    _require_exclusive_partitions(members)
    topics = {name for member in members for name in member.subscribed_topic_names}
    group_id, epoch = classic.group_id, classic.generation_id
    records = [
        *(member_record(group_id, member) for member in members),
        group_epoch_record(group_id, epoch, metadata_hash(topics, image)),
        *(target_record(group_id, member.member_id, without_epochs(member.assigned)) for member in members),
        target_epoch_record(group_id, epoch, NEVER_COMPUTED),
        *(current_assignment_record(group_id, member) for member in members),
    ]
    for record in records:
        group.apply(record)
    for member in classic.members.values():
        deadline = now.monotonic_seconds + member.session_timeout_ms / 1000
        group.timers.start(MemberTimer.SESSION, member.member_id, deadline)
    return group, classic.tombstones() + records


def _consumer_members(classic: ClassicGroup, image: MetadataImage) -> list[ConsumerMember]:
    members: list[ConsumerMember] = []
    named = 0
    for member in classic.members.values():
        subscription, assignment = _read(classic, member)
        named += len(subscription.topics) + len(subscription.owned_partitions) + len(assignment.assigned_partitions)
        if named > MAX_READ_TOPICS:
            # All are read at once, so their sum is bounded as well as each.
            raise CannotUpgrade(f"its members name more than {MAX_READ_TOPICS} topics")
        members.append(_consumer_member(classic, member, subscription, _target(assignment, image)))
    return members


def _read(
    classic: ClassicGroup, member: ClassicMember
) -> tuple[ConsumerProtocolSubscription, ConsumerProtocolAssignment]:
    """What a member subscribes to, and what the group's leader assigned to it: nothing, if it has not yet."""
    nothing = ConsumerProtocolAssignment(assigned_partitions=[])
    try:
        subscription = decode_subscription(member.metadata(classic.protocol_name))
        assignment = decode_assignment(member.assignment) if member.assignment else nothing
    except WireError as error:
        raise CannotUpgrade(f"the subscription or assignment of member {member.member_id}: {error}") from None
    if (count := len(subscription.topics)) > MAX_SUBSCRIBED_TOPICS:
        raise CannotUpgrade(f"member {member.member_id} subscribes to {count} topics")
    if assignment.user_data:
        raise CannotUpgrade("the leader's assignor keeps data of its own in the assignments, which would be lost")
    return subscription, assignment


def _consumer_member(
    classic: ClassicGroup, member: ClassicMember, subscription: ConsumerProtocolSubscription, target: Target
) -> ConsumerMember:
    protocols = [ClassicProtocol(name=name, metadata=metadata) for name, metadata in member.protocols.items()]
    return ConsumerMember(
        member_id=member.member_id,
        member_epoch=classic.generation_id,
        previous_member_epoch=classic.generation_id,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned=with_epoch(target, classic.generation_id),
        classic=ClassicMemberMetadata(session_timeout_ms=member.session_timeout_ms, supported_protocols=protocols),
    )


def _target(assignment: ConsumerProtocolAssignment, image: MetadataImage) -> Target:
    """The partitions of topics that exist."""
    return {
        image.topics[item.topic].topic_id: frozenset(item.partitions)
        for item in assignment.assigned_partitions
        if item.topic in image.topics
    }


def _require_exclusive_partitions(members: Iterable[ConsumerMember]) -> None:
    """An assignor of the clients may give one partition to many; in a consumer group it has one owner."""
    owners: dict[tuple[bytes, int], str] = {}
    for member in members:
        for topic_id, partitions in member.assigned.items():
            for partition in partitions:
                owner = owners.setdefault((topic_id, partition), member.member_id)
                if owner != member.member_id:
                    raise CannotUpgrade(f"members {owner} and {member.member_id} were assigned the same partition")
