"""Who speaks, in a consumer group: the member behind the ids of a request, or the refusal of a stranger.

A dynamic member is its member id. A static member is its instance id: whoever comes with that takes over what the one
before had, once that one has left for a while. One that speaks the classic protocol takes over from one that lives,
too, since that protocol has no way of leaving for a while.

Source: Kafka's GroupMetadataManager (getOrMaybeSubscribe…ConsumerGroupMember); KIP-345, KIP-848.
"""

from __future__ import annotations

import attrs

from kafka_wire.error_codes import ErrorCode
from trio_broker.coordinator.consumer.group_update import ConsumerGroupUpdate
from trio_broker.coordinator.consumer.member import STATIC_LEAVE_EPOCH, ConsumerMember
from trio_broker.coordinator.consumer.stored_group import StoredConsumerGroup
from trio_broker.coordinator.runtime.errors import GroupRequestError
from trio_broker.coordinator.runtime.result import GroupEventKind


def require_room(stored: StoredConsumerGroup, max_size: int, member_id: str) -> None:
    """Let nobody new into a full group.

    Raises:
        Refused: ``GROUP_MAX_SIZE_REACHED``.
    """
    if len(stored.members) >= max_size and member_id not in stored.members:
        text = f"group {stored.group_id} has {len(stored.members)} members, and may have {max_size}"
        raise GroupRequestError(ErrorCode.GROUP_MAX_SIZE_REACHED, text)


def joining_member(update: ConsumerGroupUpdate, member_id: str) -> ConsumerMember:
    """The dynamic member that joins, or joins again."""
    member = update.stored.members.get(member_id)
    if member is None:
        member = ConsumerMember(member_id=member_id)
        update.record_event(GroupEventKind.MEMBER_JOINED, member)
    else:
        update.record_event(GroupEventKind.MEMBER_REJOINED, member)
    return member


def known_member(stored: StoredConsumerGroup, member_id: str) -> ConsumerMember:
    """The member by its id.

    Raises:
        Refused: ``UNKNOWN_MEMBER_ID``.
    """
    member = stored.members.get(member_id)
    if member is None:
        raise GroupRequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member of group {stored.group_id}")
    return member


def joining_static_member(
    update: ConsumerGroupUpdate, member_id: str, instance_id: str, *, is_classic: bool
) -> ConsumerMember:
    """The static member that joins, in the place of whoever had the instance id before.

    Raises:
        Refused: ``UNRELEASED_INSTANCE_ID``.
    """
    existing = update.stored.static_member(instance_id)
    if existing is None:
        member = update.stored.members.get(member_id) or ConsumerMember(member_id=member_id)
        update.record_event(GroupEventKind.MEMBER_JOINED, attrs.evolve(member, instance_id=instance_id))
        return member
    if not (is_classic or existing.uses_classic_protocol or existing.member_epoch == STATIC_LEAVE_EPOCH):
        text = f"instance id {instance_id} is in use by member {existing.member_id}"
        raise GroupRequestError(ErrorCode.UNRELEASED_INSTANCE_ID, text)
    member = existing.replaced_by(member_id)
    update.replace(existing, member)
    update.record_event(GroupEventKind.MEMBER_REPLACED, member, f"in the place of {existing.member_id}")
    return member


def known_static_member(stored: StoredConsumerGroup, member_id: str, instance_id: str) -> ConsumerMember:
    """The member by its instance id, if it is the one that has it now.

    Raises:
        Refused: ``UNKNOWN_MEMBER_ID``, ``FENCED_INSTANCE_ID``.
    """
    existing = stored.static_member(instance_id)
    if existing is None:
        text = f"instance id {instance_id} is nobody's in group {stored.group_id}"
        raise GroupRequestError(ErrorCode.UNKNOWN_MEMBER_ID, text)
    if existing.member_id != member_id:
        text = f"instance id {instance_id} is member {existing.member_id}'s now, not {member_id}'s"
        raise GroupRequestError(ErrorCode.FENCED_INSTANCE_ID, text)
    return existing
