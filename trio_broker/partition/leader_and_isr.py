"""What the controller has decided about the partitions of this broker, as the metadata have it.

Source: Kafka's LeaderAndIsr and LocalReplicaChanges.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from trio_broker.config.log_config import LogConfig


@attrs.frozen(kw_only=True)
class LeaderAndIsr:
    """Who leads a partition, and which replicas are in sync. ``leader`` is -1 where nobody leads.

    ``partition_epoch`` counts all changes, ``leader_epoch`` those of the leader.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int


@attrs.frozen
class LocalTopicChanges:
    """What has changed of the replicas that this broker has of one topic; settings are those of all of its partitions.

    Partitions that are not named stay as they are. ``deletes`` are those that it has no longer.
    """

    name: str
    topic_id: bytes
    config: LogConfig
    deletes: Collection[int] = ()
    leaders: Mapping[int, LeaderAndIsr] = attrs.field(factory=dict)
    followers: Mapping[int, LeaderAndIsr] = attrs.field(factory=dict)


@attrs.frozen
class LocalReplicaChanges:
    """What has changed of the replicas of this broker: topics that are deleted, and topics with changed partitions."""

    deleted_topics: Collection[str] = ()
    topics: Collection[LocalTopicChanges] = ()
