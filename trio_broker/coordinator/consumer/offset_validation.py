"""Who may commit and fetch the offsets of a consumer group.

A member shows by its epoch that it is not a zombie. Since a commit may have been under way while the member's epoch
rose, one from an older epoch is good for partitions that the member has had since that epoch.

Source: Kafka's ConsumerGroup.validateOffsetCommit and validateOffsetFetch; KIP-1251.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire.error_codes import ErrorCode
from trio_broker.coordinator.consumer.member import ConsumerMember
from trio_broker.coordinator.consumer.stored_group import StoredConsumerGroup

EPOCH_COMMIT_VERSION = 9
"""From this version of OffsetCommit on a commit can carry a member epoch."""


def commit_error(
    stored: StoredConsumerGroup,
    member_id: str,
    member_epoch: int,
    version: int,
    partitions: Iterable[tuple[bytes, int]] | None,
) -> ErrorCode:
    """NONE, or why the commit may not be; ``partitions`` are those of the commit, None if they are not known."""
    if member_epoch < 0 and not stored.members:
        return ErrorCode.NONE
    member = stored.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if not member.uses_classic_protocol and version < EPOCH_COMMIT_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    if member_epoch == member.member_epoch:
        return ErrorCode.NONE
    if member_epoch > member.member_epoch or partitions is None:
        return _stale(member)
    had_all = all(_had_since(member, topic_id, index, member_epoch) for topic_id, index in partitions)
    return ErrorCode.NONE if had_all else _stale(member)


def fetch_error(stored: StoredConsumerGroup, member_id: str | None, member_epoch: int) -> ErrorCode:
    """NONE, or why who asks may not see the offsets. Administrators may, who are no members and say so."""
    if member_id is None and member_epoch < 0:
        return ErrorCode.NONE
    member = stored.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if member_epoch == member.member_epoch else _stale(member)


def _had_since(member: ConsumerMember, topic_id: bytes, partition: int, member_epoch: int) -> bool:
    since = member.assignment_epoch(topic_id, partition)
    return since is not None and since <= member_epoch


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
