"""When committed offsets are forgotten.

Offsets are kept for ``offsets.retention.minutes``, and Kafka counts from when they were of use last (KIP-211):

=============================================  ==================================================================
group                                          an offset's time begins with
=============================================  ==================================================================
classic, empty                                 the leaving of the last member; with the commit if that is not known
classic, stable, consumers, all understood     its commit, unless somebody is subscribed to its topic
classic, otherwise with members                never: nobody knows what they read
simple: commits, and never a member            its commit
consumer (KIP-848)                             its commit, unless somebody is subscribed to its topic
=============================================  ==================================================================

A commit that came with a retention of its own (OffsetCommit 2 to 4, or a log from before Kafka 2.1) ends when that
says, but never where the others never do.

Source: Kafka's OffsetExpirationConditionImpl, OffsetMetadataManager.cleanupExpiredOffsets, and the
offsetExpirationCondition of both kinds of groups.
"""

from __future__ import annotations

import enum
import itertools

from kafka_wire.stored.groups import GroupRecord
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.group import ClassicGroup, ClassicGroupState
from trio_broker.coordinator.classic.protocols import CONSUMER_PROTOCOL_TYPE
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets, OffsetAndMetadata
from trio_broker.coordinator.offsets.requests import Subscribed, offset_tombstone
from trio_broker.coordinator.runtime.result import Now

UNKNOWN_TIME_MS = -1
"""Of a group whose record, from before Kafka 2.1, does not say when it came into its state."""


class ExpiresFrom(enum.Enum):
    """Where the time of a group's offsets begins."""

    NEVER = enum.auto()
    COMMIT = enum.auto()
    EMPTY_GROUP = enum.auto()


def expired_offsets(
    offsets: CommittedOffsets,
    group_id: str,
    group: ClassicGroup | Subscribed | None,
    settings: GroupCoordinatorConfig,
    now: Now,
    *,
    at_most: int | None = None,
) -> list[GroupRecord]:
    """Return what forgets the offsets of the group whose time is over; without a group they are a simple consumer's.

    With ``at_most`` they may be but some of them.
    """
    expires_from = _expires_from(group)
    if expires_from is ExpiresFrom.NEVER:
        return []
    since_ms = None
    if expires_from is ExpiresFrom.EMPTY_GROUP:
        assert isinstance(group, ClassicGroup), f"{group_id}: {group}"
        since_ms = None if group.state_since_ms == UNKNOWN_TIME_MS else group.state_since_ms
    expired = (
        offset_tombstone(group_id, topic, partition)
        for topic in offsets.topics_of(group_id)
        if group is None or not group.is_subscribed_to(topic)
        for partition in offsets.partitions_of(group_id, topic)
        if (commit := offsets.get(group_id, topic, partition)) and _is_expired(commit, since_ms, settings, now)
    )
    return list(itertools.islice(expired, at_most))


def _expires_from(group: ClassicGroup | Subscribed | None) -> ExpiresFrom:
    if not isinstance(group, ClassicGroup) or group.protocol_type is None:
        return ExpiresFrom.COMMIT
    if group.state is ClassicGroupState.EMPTY:
        return ExpiresFrom.EMPTY_GROUP
    is_consumer = group.protocol_type == CONSUMER_PROTOCOL_TYPE
    if is_consumer and group.state is ClassicGroupState.STABLE and group.subscribed_topics is not None:
        return ExpiresFrom.COMMIT
    return ExpiresFrom.NEVER


def _is_expired(commit: OffsetAndMetadata, since_ms: int | None, settings: GroupCoordinatorConfig, now: Now) -> bool:
    if commit.expire_timestamp_ms is not None:
        return now.wall_ms >= commit.expire_timestamp_ms
    begin_ms = commit.commit_timestamp_ms if since_ms is None else since_ms
    return now.wall_ms - begin_ms >= settings.offsets_retention_ms
