"""Metadata changes applied to the partitions of this node.

Deleted topics come first, then new and changed ones, then settings, so that a topic created again under an old name
never finds the files of the old one.

A partition that cannot be opened answers requests with its error and does not affect the others.

Source: Kafka's BrokerMetadataPublisher and TopicConfigHandler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from trio_broker.cluster.assignments_manager import AssignmentsManager
from trio_broker.cluster.barrier import barrier
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_faults import MetadataFaults
from trio_broker.cluster.metadata_image import ConfigResourceType, MetadataImage, PartitionImage, TopicImage
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.log_config import LogConfig
from trio_broker.config.resource_config import topic_config
from trio_broker.partition.leader_and_isr import LeaderAndIsr, LocalReplicaChanges, LocalTopicChanges
from trio_broker.partition.replica_manager import ReplicaManager


@attrs.define(eq=False)
class BrokerMetadataPublisher:
    """Passes the image's partitions that this node leads or follows, and their settings, to the ReplicaManager."""

    replicas: ReplicaManager
    config: BrokerConfig
    faults: MetadataFaults = attrs.field(factory=MetadataFaults)
    assignments: AssignmentsManager | None = None
    """Reports where the partitions are, of one broker of several."""
    _defaults: LogConfig = attrs.field(
        init=False, default=attrs.Factory(lambda publisher: publisher.config.log, takes_self=True)
    )
    """The broker's ``LogConfig`` that was applied to the topics last."""

    async def apply_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply ``delta``, which has led to ``image``."""
        changed_topics = (
            (topic, delta.changed_partitions(topic.topic_id))
            for topic in (image.topics[name] for name in delta.changed_topics)
        )
        changes = LocalReplicaChanges(
            deleted_topics=[topic.name for topic in delta.deleted_topics],
            topics=[await self._local_changes(*each) async for each in InTurns(changed_topics)],
        )
        if changes.deleted_topics or changes.topics:
            with (following := barrier(self.replicas)):
                await self._apply_local_changes(changes)
            if following.has_failed:
                self.faults.part_failed(type(self.replicas).__name__)
        if self.config.log != self._defaults:
            # Only log settings are defaults of topics: a change of num.io.threads must not resolve ten thousand of
            # them.
            self._defaults = self.config.log
            await self._update_configs(image.topics.values())
        else:
            names = [each.name for each in delta.changed_configs if each.type is ConfigResourceType.TOPIC]
            # The settings of changed topics have been applied with their partitions.
            changed = frozenset(delta.changed_topics)
            await self._update_configs(
                topic for name in names if name not in changed and (topic := image.topics.get(name)) is not None
            )

    async def apply_image(self, image: MetadataImage) -> None:
        """Open all partitions that this node has, at a start."""
        topics = [await self._local_changes(topic, topic.partitions) async for topic in InTurns(image.topics.values())]
        await self._apply_local_changes(LocalReplicaChanges(topics=topics))

    async def _apply_local_changes(self, changes: LocalReplicaChanges) -> None:
        await self.replicas.apply_local_changes(changes)
        if self.assignments is not None:
            async for topic in InTurns(changes.topics):
                self.assignments.check(
                    TopicPartition(topic.name, index) for index in (*topic.leaders, *topic.followers)
                )

    async def _update_configs(self, topics: Iterable[TopicImage]) -> None:
        async for topic in InTurns(topics):
            self.replicas.local_partitions.update_config(
                topic.name, topic_config(topic.configs, self.config, topic.name)
            )

    async def _local_changes(self, topic: TopicImage, partitions: Mapping[int, PartitionImage]) -> LocalTopicChanges:
        """What this node leads, follows and has no longer of ``partitions``, which are of ``topic``."""
        node_id = self.config.node.node_id
        deletes: list[int] = []
        leaders: dict[int, LeaderAndIsr] = {}
        followers: dict[int, LeaderAndIsr] = {}
        async for index, partition in InTurns(partitions.items()):
            if node_id not in partition.replicas:
                deletes.append(index)
            elif partition.leader == node_id:
                leaders[index] = leader_and_isr(partition)
            else:
                followers[index] = leader_and_isr(partition)
        config = topic_config(topic.configs, self.config, topic.name)
        return LocalTopicChanges(topic.name, topic.topic_id, config, deletes, leaders, followers)


def leader_and_isr(partition: PartitionImage) -> LeaderAndIsr:
    """What the replicas of a partition go by."""
    return LeaderAndIsr(
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        replicas=partition.replicas,
        partition_epoch=partition.partition_epoch,
    )
