"""When committed offsets expire.

Offsets are kept for ``offsets.retention.minutes``, counted as in Kafka since KIP-211:

=============================================  ==================================================================
group                                          the time of an offset begins with
=============================================  ==================================================================
classic, empty                                 the leaving of the last member; its commit if that is not known
classic, stable, all subscriptions readable    its commit, unless a member is subscribed to its topic
classic, otherwise with members                never: what the members read is not known
simple: commits, and never a member            its commit
consumer (KIP-848)                             its commit, unless a member is subscribed to its topic
=============================================  ==================================================================

A commit with a retention of its own (OffsetCommit 2 to 4, or a log from before Kafka 2.1) expires by that, but never in
a group whose offsets never expire.

Source: Kafka's OffsetExpirationConditionImpl, OffsetMetadataManager.cleanupExpiredOffsets, and the
offsetExpirationCondition of both kinds of groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import attrs

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.offsets.committed_offsets import CommittedOffsets, OffsetAndMetadata
from trio_broker.coordinator.offsets.requests import SubscribedGroup, offset_tombstone
from trio_broker.coordinator.runtime.log import EncodedRecord
from trio_broker.coordinator.runtime.result import Now


@attrs.frozen
class OffsetRetention:
    """What the retention of a group's offsets counts from: ``since_ms`` for all of them, or each one's commit."""

    since_ms: int | None = None


class ExpiringGroup(SubscribedGroup, Protocol):
    """What expiry needs of a group of either kind."""

    def offset_retention(self) -> OffsetRetention | None:
        """What the retention of the group's offsets counts from; None if they do not expire."""
        ...


def expired_offsets(
    offsets: CommittedOffsets,
    group_id: str,
    group: ExpiringGroup,
    settings: GroupCoordinatorConfig,
    now: Now,
    places: Iterable[TopicPartition],
) -> list[EncodedRecord]:
    """Return the tombstones of those of the group's offsets in ``places`` that have expired."""
    retention = group.offset_retention()
    if retention is None:
        return []
    return [
        offset_tombstone(group_id, place)
        for place in places
        if not group.is_subscribed_to(place.topic)
        and (commit := offsets.get(group_id, place.topic, place.partition)) is not None
        and now.expiry_ms >= _expires_at_ms(commit, retention, settings)
        and not offsets.has_pending(group_id, place.topic, place.partition)
    ]


def expires_at_ms(
    commit: OffsetAndMetadata, topic: str, group: ExpiringGroup, settings: GroupCoordinatorConfig
) -> int | None:
    """Return when an offset of ``topic`` expires if its group stays as it is; None if it does not."""
    retention = group.offset_retention()
    if retention is None or group.is_subscribed_to(topic):
        return None
    return _expires_at_ms(commit, retention, settings)


def _expires_at_ms(commit: OffsetAndMetadata, retention: OffsetRetention, settings: GroupCoordinatorConfig) -> int:
    if commit.expire_timestamp_ms is not None:
        return commit.expire_timestamp_ms
    begin_ms = commit.commit_timestamp_ms if retention.since_ms is None else retention.since_ms
    return begin_ms + settings.offsets_retention_ms
