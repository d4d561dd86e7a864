"""Metadata changes applied to the partitions of this node.

Deleted topics come first, then new and changed ones, then settings, so that a topic created again under an old name
never finds the files of the old one.

A partition that cannot be opened answers requests with its error and does not affect the others.

Source: Kafka's BrokerMetadataPublisher and TopicConfigHandler.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

import attrs

from trio_broker.cluster.barrier import barrier
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import ConfigResourceType, MetadataImage, PartitionImage, TopicImage
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.log_config import LogConfig
from trio_broker.config.resource_config import topic_config
from trio_broker.partition.local_topics import TopicAssignment
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.storage.errors import CorruptCheckpoint

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class BrokerMetadataPublisher:
    """Passes the image's partitions that this node leads, and their settings, to the ReplicaManager."""

    replicas: ReplicaManager
    config: BrokerConfig
    _defaults: LogConfig = attrs.field(
        init=False, default=attrs.Factory(lambda publisher: publisher.config.log, takes_self=True)
    )
    """The broker's ``LogConfig`` that was applied to the topics last."""

    async def apply_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Apply ``delta``, which has led to ``image``."""
        if deleted := [topic.name for topic in delta.deleted_topics]:
            with barrier(self.replicas):
                await self.replicas.delete_topics(deleted)
        await self._apply_topics(
            (topic, delta.changed_partitions(topic.topic_id))
            for topic in (image.topics[name] for name in delta.changed_topics)
        )
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
        """Open all partitions that this node leads, at a start."""
        await self._apply_topics((topic, topic.partitions) for topic in image.topics.values())

    async def _apply_topics(self, topics: Iterable[tuple[TopicImage, Mapping[int, PartitionImage]]]) -> None:
        """Of each topic, open these partitions if this node leads them, and apply their leader epochs."""
        async for topic, partitions in InTurns(topics):
            try:
                await self.replicas.apply_topic(self._assignment(topic, partitions))
            except (OSError, CorruptCheckpoint) as error:
                log.error("topic %s cannot be held: %s", topic.name, error)

    async def _update_configs(self, topics: Iterable[TopicImage]) -> None:
        async for topic in InTurns(topics):
            self.replicas.update_config(topic.name, topic_config(topic.configs, self.config, topic.name))

    def _assignment(self, topic: TopicImage, partitions: Mapping[int, PartitionImage]) -> TopicAssignment:
        """What this node holds of ``partitions``, which are of ``topic``."""
        return TopicAssignment(
            name=topic.name,
            topic_id=topic.topic_id,
            leader_epochs={
                index: partition.leader_epoch
                for index, partition in partitions.items()
                if partition.leader == self.config.node.node_id
            },
            config=topic_config(topic.configs, self.config, topic.name),
        )
