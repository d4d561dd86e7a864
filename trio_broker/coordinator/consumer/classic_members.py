"""Members of a consumer group that speak the classic protocol, while its applications move from one to the other.

Such a member joins, syncs and sends heartbeats as in a classic group, but no member leads: the broker assigns. Its
epoch is its generation. A heartbeat is answered with REBALANCE_IN_PROGRESS when there is a new target for the member,
or when it has partitions to give up; it then joins again with what it owns, gets its epoch, and fetches its assignment
with SyncGroup. Each of these steps has to come within the member's rebalance timeout.

Source: Kafka's GroupMetadataManager (classicGroup…ToConsumerGroup); KIP-848, "Online migration".
"""

from __future__ import annotations

import attrs

from kafka_wire.consumer_protocol import ConsumerProtocolSubscription, decode_subscription
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError, WireError
from kafka_wire.messages.consumer_group_heartbeat import TopicPartitions
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafka_wire.stored.groups import ClassicMemberMetadata, ClassicProtocol
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE, MAX_SUBSCRIBED_TOPICS
from trio_broker.coordinator.classic.responses import (
    FIRST_JOIN_WITH_KNOWN_MEMBER_ID,
    join_error,
    leave_result,
    rebalance_timeout_ms,
)
from trio_broker.coordinator.consumer.downgrade import Downgrade, assignment_bytes
from trio_broker.coordinator.consumer.group_patterns import GroupPatterns
from trio_broker.coordinator.consumer.group_update import ConsumerGroupUpdate
from trio_broker.coordinator.consumer.member import ConsumerMember, MemberState
from trio_broker.coordinator.consumer.member_timers import MemberTimer
from trio_broker.coordinator.consumer.stored_group import StoredConsumerGroup
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.runtime.result import CoordinatorEvent, RequestContext

# --- JoinGroup ---


def join(
    update: ConsumerGroupUpdate, patterns: GroupPatterns, event: CoordinatorEvent[JoinGroupRequest]
) -> JoinGroupResponse:
    """Add a member, or move it on to its next epoch.

    Raises:
        KafkaError: ``INCONSISTENT_GROUP_PROTOCOL``, ``GROUP_MAX_SIZE_REACHED``, ``UNKNOWN_MEMBER_ID``,
            ``FENCED_INSTANCE_ID``, ``INVALID_REGULAR_EXPRESSION``.
    """
    request = event.request
    is_new = not request.member_id
    member_id = request.member_id or event.new_id
    _check_join(update, request, member_id)
    instance_id = request.group_instance_id
    if is_new and instance_id is None and event.context.version >= FIRST_JOIN_WITH_KNOWN_MEMBER_ID:
        return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    downgrades = update.may_downgrade_by_replacing(instance_id)
    member = _joining_member(update, member_id, instance_id, is_new=is_new)
    subscription = _subscription(request.protocols[0].metadata)
    updated = _updated_member(member, request, subscription, event.context)
    joins = member.member_id not in update.stored.members
    changed = patterns.update_subscription(update, member, updated, joins=joins)
    owned = _owned(subscription, update.image)
    if downgrades:
        updated = _downgrade(update, updated, owned, changed=changed)
    else:
        updated = update.reconcile(updated, update.target_for(updated), owned, subscription_changed=changed)
        _await_sync(update, updated)
    return JoinGroupResponse(
        generation_id=updated.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=_protocols(updated)[0].name,
        leader="",
        member_id=updated.member_id,
        members=[],
    )


def _check_join(update: ConsumerGroupUpdate, request: JoinGroupRequest, member_id: str) -> None:
    stored = update.stored
    if update.settings.group_consumer_migration_policy == "disabled":
        text = f"group {stored.group_id} speaks the consumer protocol, and migration is disabled"
        raise KafkaError(text, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    update.require_room(member_id)
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not any(
        stored.classic_protocols[protocol.name] == stored.classic_member_count for protocol in request.protocols
    ):
        text = f"member {member_id} has no protocol in common with the others"
        raise KafkaError(text, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _joining_member(
    update: ConsumerGroupUpdate, member_id: str, instance_id: str | None, *, is_new: bool
) -> ConsumerMember:
    if instance_id is not None and is_new:
        return update.joining_static_member(member_id, instance_id, is_classic=True)
    if instance_id is not None:
        return update.stored.known_member(member_id, instance_id)
    # A known member joins again with every rebalance, which is no event.
    return update.stored.members.get(member_id) or update.joining_member(member_id)


def _subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    try:
        subscription = decode_subscription(metadata)
    except WireError as error:
        text = f"the subscription cannot be read: {error}"
        raise KafkaError(text, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL) from None
    if (count := len(subscription.topics)) > MAX_SUBSCRIBED_TOPICS:
        raise KafkaError(f"the subscription has {count} topics", code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return subscription


def _updated_member(
    member: ConsumerMember,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    context: RequestContext,
) -> ConsumerMember:
    """The member with what the request says of it."""
    protocols = [ClassicProtocol(name=each.name, metadata=bytes(each.metadata)) for each in request.protocols]
    return attrs.evolve(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=rebalance_timeout_ms(request),
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=context.client_id,
        client_host=context.client_host,
        classic=ClassicMemberMetadata(session_timeout_ms=request.session_timeout_ms, supported_protocols=protocols),
    )


def _owned(subscription: ConsumerProtocolSubscription, image: MetadataImage) -> list[TopicPartitions]:
    """The partitions that the member owns by its own account, of topics that exist."""
    return [
        TopicPartitions(topic_id=image.topics[item.topic].topic_id, partitions=item.partitions)
        for item in subscription.owned_partitions
        if item.topic in image.topics
    ]


def _downgrade(
    update: ConsumerGroupUpdate, updated: ConsumerMember, owned: list[TopicPartitions], *, changed: bool
) -> ConsumerMember:
    """The group becomes a classic one with ``updated`` in it; if its target is old, with a rebalance."""
    is_old = update.stored.target_epoch < update.group_epoch
    if not is_old:
        target = update.stored.target_of(updated)
        updated = update.reconcile(updated, target, owned, subscription_changed=changed)
    update.downgrade = Downgrade(
        joining=updated,
        rebalance=is_old,
        reason="the last member that spoke the consumer protocol came back with the classic one",
    )
    return updated


# --- SyncGroup, Heartbeat ---


def sync(update: ConsumerGroupUpdate, request: SyncGroupRequest) -> SyncGroupResponse:
    """Give the member its assignment at its epoch.

    Raises:
        KafkaError: as ``heartbeat``, ``INCONSISTENT_GROUP_PROTOCOL``, ``REBALANCE_IN_PROGRESS``.
    """
    member = _classic_member(update.stored, request)
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        text = f"the protocol type is not {request.protocol_type}"
        raise KafkaError(text, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.protocol_name not in (None, _protocols(member)[0].name):
        text = f"the protocol is not {request.protocol_name}"
        raise KafkaError(text, code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if update.stored.target_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _await_join(update, member)
        raise KafkaError(f"member {member.member_id} has to join again", code=ErrorCode.REBALANCE_IN_PROGRESS)
    update.timers.cancel(MemberTimer.SYNC, member.member_id)
    _start_session(update, member)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_bytes(member.assigned, _protocols(member)[0].metadata, update.image),
    )


def heartbeat(update: ConsumerGroupUpdate, request: HeartbeatRequest) -> ErrorCode:
    """Keep the member's session; REBALANCE_IN_PROGRESS makes it join again for a new assignment.

    Raises:
        KafkaError: ``UNKNOWN_MEMBER_ID``, ``FENCED_INSTANCE_ID``, ``ILLEGAL_GENERATION``.
    """
    member = _classic_member(update.stored, request)
    _start_session(update, member)
    is_done = member.state is MemberState.STABLE or update.stored.waits_for_others(member)
    if is_done and member.member_epoch >= update.stored.target_epoch:
        return ErrorCode.NONE
    _await_join(update, member)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _classic_member(stored: StoredConsumerGroup, request: SyncGroupRequest | HeartbeatRequest) -> ConsumerMember:
    member = stored.known_member(request.member_id, request.group_instance_id)
    if not member.uses_classic_protocol:
        text = f"member {member.member_id} does not speak the classic protocol"
        raise KafkaError(text, code=ErrorCode.UNKNOWN_MEMBER_ID)
    if request.generation_id != member.member_epoch:
        text = f"member {member.member_id} is at {member.member_epoch}, not at {request.generation_id}"
        raise KafkaError(text, code=ErrorCode.ILLEGAL_GENERATION)
    return member


def _await_join(update: ConsumerGroupUpdate, member: ConsumerMember) -> None:
    deadline = update.now.monotonic_seconds + member.rebalance_timeout_ms / 1000
    update.timers.start_if_absent(MemberTimer.JOIN, member.member_id, deadline)


def _await_sync(update: ConsumerGroupUpdate, member: ConsumerMember) -> None:
    update.timers.cancel(MemberTimer.JOIN, member.member_id)
    _start_session(update, member)
    deadline = update.now.monotonic_seconds + member.rebalance_timeout_ms / 1000
    update.timers.start(MemberTimer.SYNC, member.member_id, deadline)


def _start_session(update: ConsumerGroupUpdate, member: ConsumerMember) -> None:
    assert member.classic is not None, member
    deadline = update.now.monotonic_seconds + member.classic.session_timeout_ms / 1000
    update.timers.start(MemberTimer.SESSION, member.member_id, deadline)


def _protocols(member: ConsumerMember) -> list[ClassicProtocol]:
    assert member.classic is not None, member
    return member.classic.supported_protocols


# --- LeaveGroup ---


def leave(update: ConsumerGroupUpdate, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove the members that the request names; an administrator may so remove members of either protocol."""
    leaving: dict[str, ConsumerMember] = {}
    results = []
    for identity in request.members:
        try:
            member = _leaving_member(update.stored, identity)
        except KafkaError as error:
            results.append(leave_result(identity, error.code))
            continue
        if member.member_id not in leaving:
            update.record_event(GroupEventKind.MEMBER_LEFT, member, identity.reason or "")
        leaving[member.member_id] = member
        results.append(leave_result(identity, ErrorCode.NONE))
    update.remove(list(leaving.values()))
    return LeaveGroupResponse(members=results)


def _leaving_member(stored: StoredConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    # An administrator names a static member by its instance id alone.
    existing = None if identity.member_id else stored.static_member(identity.group_instance_id)
    member_id = identity.member_id if existing is None else existing.member_id
    return stored.known_member(member_id, identity.group_instance_id)
