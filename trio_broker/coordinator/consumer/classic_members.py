"""Members of a consumer group that speak the classic protocol, while its applications move from one to the other.

Such a member joins, syncs and sends heartbeats as ever, but nobody leads: the broker assigns. Its epoch is told as the
generation. A heartbeat is answered with REBALANCE_IN_PROGRESS when there is a new target for it, or when it has
partitions to give up; it then joins again, says what it has, gets its epoch, and fetches what it may have with
SyncGroup. Each of these steps has the member's rebalance timeout.

Where this differs from Kafka: a subscription that cannot be read is refused with INCONSISTENT_GROUP_PROTOCOL, not
with UNKNOWN_SERVER_ERROR.

Source: Kafka's GroupMetadataManager (classicGroup…ToConsumerGroup); KIP-848, "Online migration".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import attrs

from kafka_wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
    decode_subscription,
    encode_assignment,
    protocol_version,
)
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import WireError
from kafka_wire.messages.consumer_group_heartbeat import TopicPartitions
from kafka_wire.messages.heartbeat import HeartbeatRequest
from kafka_wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kafka_wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kafka_wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kafka_wire.stored.groups import ClassicMemberMetadata, ClassicProtocol
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.coordinator.classic import responses as classic_responses
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE, MAX_SUBSCRIBED_TOPICS
from trio_broker.coordinator.consumer import membership as consumer_membership
from trio_broker.coordinator.consumer.downgrade import Downgrade
from trio_broker.coordinator.consumer.group_update import ConsumerGroupUpdate, PatternChange
from trio_broker.coordinator.consumer.member import ConsumerMember, MemberState
from trio_broker.coordinator.consumer.member_timers import MemberTimer
from trio_broker.coordinator.runtime.errors import GroupRequestError
from trio_broker.coordinator.runtime.result import GroupEventKind, Now, RequestContext

if TYPE_CHECKING:
    from trio_broker.coordinator.consumer.group import ConsumerGroup


# --- JoinGroup ---


def join(
    group: ConsumerGroup,
    update: ConsumerGroupUpdate,
    request: JoinGroupRequest,
    context: RequestContext,
    new_member_id: str,
) -> JoinGroupResponse:
    """Let a member in, or on to its next epoch. ``new_member_id`` is for one that has none.

    Raises:
        Refused: ``INCONSISTENT_GROUP_PROTOCOL``, ``INVALID_SESSION_TIMEOUT``, ``GROUP_MAX_SIZE_REACHED``,
            ``UNKNOWN_MEMBER_ID``, ``FENCED_INSTANCE_ID``.
    """
    is_new = not request.member_id
    member_id = request.member_id or new_member_id
    _check_join(group, request, member_id)
    instance_id = request.group_instance_id
    if is_new and instance_id is None and context.version >= classic_responses.FIRST_JOIN_WITH_KNOWN_MEMBER_ID:
        return classic_responses.join_error(context.version, ErrorCode.MEMBER_ID_REQUIRED, member_id)
    downgrades = _ends_consumer_protocol(group, instance_id)
    if instance_id is None:
        # One that is there already joins again with every rebalance, which is no news.
        member = group.members.get(member_id) or consumer_membership.joining_member(update, member_id)
    elif is_new:
        member = consumer_membership.joining_static_member(update, member_id, instance_id, is_classic=True)
    else:
        member = consumer_membership.known_static_member(group.stored, member_id, instance_id)
    subscription = _subscription(request.protocols[0].metadata)
    updated = _updated_member(member, request, subscription, context)
    changed = _follow_subscription(group, update, member, updated)
    owned = _owned(subscription, update.image)
    if downgrades:
        updated = _downgrade(group, update, updated, owned, changed=changed)
    else:
        target = update.target_for(updated)
        updated = update.reconcile(updated, target, owned, subscription_changed=changed)
        _wait_for_sync(group, updated, update.now)
    return JoinGroupResponse(
        generation_id=updated.member_epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=_protocols(updated)[0].name,
        leader="",
        member_id=updated.member_id,
        members=[],
    )


def _check_join(group: ConsumerGroup, request: JoinGroupRequest, member_id: str) -> None:
    if group.settings.group_consumer_migration_policy == "disabled":
        text = f"group {group.group_id} speaks the consumer protocol, and migration is disabled"
        raise GroupRequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)
    if code := classic_responses.session_timeout_error(request, group.settings):
        raise GroupRequestError(code, f"a session timeout of {request.session_timeout_ms} ms is not allowed")
    consumer_membership.require_room(group.stored, group.settings.group_consumer_max_size, member_id)
    stored = group.stored
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not any(
        stored.classic_protocols[protocol.name] == stored.classic_member_count for protocol in request.protocols
    ):
        text = f"member {member_id} has no protocol in common with the others"
        raise GroupRequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)


def _subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    try:
        subscription = decode_subscription(metadata)
    except WireError as error:
        text = f"the subscription is none: {error}"
        raise GroupRequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text) from None
    if (count := len(subscription.topics)) > MAX_SUBSCRIBED_TOPICS:
        raise GroupRequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription has {count} topics")
    return subscription


def _updated_member(
    member: ConsumerMember,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    context: RequestContext,
) -> ConsumerMember:
    """The member after what it says of itself."""
    return attrs.evolve(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=classic_responses.rebalance_timeout_ms(request, context.version),
        subscribed_topic_names=frozenset(subscription.topics),
        subscribed_topic_regex="",
        client_id=context.client_id,
        client_host=context.client_host,
        classic=ClassicMemberMetadata(
            session_timeout_ms=request.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=each.name, metadata=bytes(each.metadata)) for each in request.protocols
            ],
        ),
    )


def _follow_subscription(
    group: ConsumerGroup, update: ConsumerGroupUpdate, member: ConsumerMember, updated: ConsumerMember
) -> bool:
    """Let the group's epoch follow the member's subscription; return whether that changed."""
    changed = update.upsert_member(member, updated)
    changed |= group.patterns.follow(update, member, updated) is not PatternChange.NONE
    if changed and member.member_id in group.members:
        update.record_event(GroupEventKind.SUBSCRIPTION_CHANGED, updated)
    update.follow_topics(member, updated, subscription_changed=changed)
    return changed


def _owned(subscription: ConsumerProtocolSubscription, image: MetadataImage) -> list[TopicPartitions]:
    """The partitions the member says it has, of topics that exist."""
    return [
        TopicPartitions(topic_id=image.topics[item.topic].topic_id, partitions=item.partitions)
        for item in subscription.owned_partitions
        if item.topic in image.topics
    ]


def _wait_for_sync(group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
    group.timers.cancel(MemberTimer.JOIN, member.member_id)
    _start_session(group, member, now)
    deadline = now.monotonic_seconds + member.rebalance_timeout_ms / 1000
    group.timers.start(MemberTimer.SYNC, member.member_id, deadline)


def _ends_consumer_protocol(group: ConsumerGroup, instance_id: str | None) -> bool:
    """Whether this join replaces the last member that does not speak the classic protocol."""
    existing = group.stored.static_member(instance_id)
    return existing is not None and group.may_downgrade_by_replacing(existing)


def _downgrade(
    group: ConsumerGroup,
    update: ConsumerGroupUpdate,
    updated: ConsumerMember,
    owned: list[TopicPartitions],
    *,
    changed: bool,
) -> ConsumerMember:
    """The group becomes a classic one with ``updated`` in it; if its target is old, with a rebalance."""
    is_old = group.stored.target_epoch < update.group_epoch
    if not is_old:
        target = group.stored.target_of(updated)
        updated = update.reconcile(updated, target, owned, subscription_changed=changed)
    group.downgrade = Downgrade(
        joining=updated,
        rebalance=is_old,
        reason="the last member that spoke the consumer protocol came back with the classic one",
    )
    return updated


# --- SyncGroup, Heartbeat ---


def sync(group: ConsumerGroup, request: SyncGroupRequest, now: Now, image: MetadataImage) -> SyncGroupResponse:
    """Give the member what it may have at its epoch.

    Raises:
        Refused: as ``heartbeat``, ``INCONSISTENT_GROUP_PROTOCOL``, ``REBALANCE_IN_PROGRESS``.
    """
    member = _speaking_member(group, request.member_id, request.group_instance_id, request.generation_id)
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        raise GroupRequestError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the protocol type is not {request.protocol_type}"
        )
    if request.protocol_name not in (None, _protocols(member)[0].name):
        raise GroupRequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the protocol is not {request.protocol_name}")
    if group.stored.target_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        _wait_for_join(group, member, now)
        raise GroupRequestError(ErrorCode.REBALANCE_IN_PROGRESS, f"member {member.member_id} has to join again")
    group.timers.cancel(MemberTimer.SYNC, member.member_id)
    _start_session(group, member, now)
    return SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=assignment_bytes(member.assigned, _protocols(member)[0].metadata, image),
    )


def heartbeat(group: ConsumerGroup, request: HeartbeatRequest, now: Now) -> ErrorCode:
    """Keep the member's session; tell it to join again if there is something new for it.

    Raises:
        Refused: ``UNKNOWN_MEMBER_ID``, ``FENCED_INSTANCE_ID``, ``ILLEGAL_GENERATION``.
    """
    member = _speaking_member(group, request.member_id, request.group_instance_id, request.generation_id)
    _start_session(group, member, now)
    is_done = member.state is MemberState.STABLE or group.stored.waits_for_others(member)
    if is_done and member.member_epoch >= group.stored.target_epoch:
        return ErrorCode.NONE
    _wait_for_join(group, member, now)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _speaking_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> ConsumerMember:
    if instance_id is None:
        member = consumer_membership.known_member(group.stored, member_id)
    else:
        member = consumer_membership.known_static_member(group.stored, member_id, instance_id)
    if not member.uses_classic_protocol:
        raise GroupRequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} does not speak the classic protocol")
    if generation_id != member.member_epoch:
        text = f"member {member_id} is at {member.member_epoch}, not at {generation_id}"
        raise GroupRequestError(ErrorCode.ILLEGAL_GENERATION, text)
    return member


def _wait_for_join(group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
    deadline = now.monotonic_seconds + member.rebalance_timeout_ms / 1000
    group.timers.start_if_absent(MemberTimer.JOIN, member.member_id, deadline)


def _start_session(group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
    assert member.classic is not None, member
    deadline = now.monotonic_seconds + member.classic.session_timeout_ms / 1000
    group.timers.start(MemberTimer.SESSION, member.member_id, deadline)


def _protocols(member: ConsumerMember) -> list[ClassicProtocol]:
    assert member.classic is not None, member
    return member.classic.supported_protocols


def assignment_bytes(partitions: Mapping[bytes, Iterable[int]], metadata: bytes, image: MetadataImage) -> bytes:
    """``partitions`` as a client of the classic protocol reads them, in the version in which it wrote ``metadata``."""
    assigned = [
        ConsumerProtocolTopic(topic=image.topics_by_id[topic_id].name, partitions=sorted(indexes))
        for topic_id, indexes in sorted(partitions.items())
        if topic_id in image.topics_by_id
    ]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=assigned), protocol_version(metadata))


# --- LeaveGroup ---


def leave(
    group: ConsumerGroup, update: ConsumerGroupUpdate, request: LeaveGroupRequest, version: int
) -> LeaveGroupResponse:
    """Take out whom the request names; an administrator may so remove members of either protocol."""
    leaving: dict[str, ConsumerMember] = {}
    responses = []
    for identity in classic_responses.leaving_members(request, version):
        try:
            member = _leaving_member(group, identity)
        except GroupRequestError as error:
            responses.append(classic_responses.left(identity, error.code))
            continue
        if member.member_id not in leaving:
            update.record_event(GroupEventKind.MEMBER_LEFT, member, identity.reason or "")
        leaving[member.member_id] = member
        responses.append(classic_responses.left(identity, ErrorCode.NONE))
    group.remove(update, list(leaving.values()))
    return classic_responses.leave_answer(version, responses)


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.group_instance_id is None:
        return consumer_membership.known_member(group.stored, identity.member_id)
    existing = group.stored.static_member(identity.group_instance_id)
    # Without a member id, whoever has the instance id is meant.
    member_id = identity.member_id or ("" if existing is None else existing.member_id)
    return consumer_membership.known_static_member(group.stored, member_id, identity.group_instance_id)
