"""The MetadataPublisher: applies metadata changes to the partitions of this node.

The controller calls ``publish`` with each delta after it was appended and applied to the image. Deleted topics come
first, then new and changed ones, then settings, so that a topic created again under an old name never finds the files
of the old one.

A partition that cannot be opened answers requests with its error and does not affect the others.

Source: Kafka's BrokerMetadataPublisher and DynamicTopicConfig handlers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import attrs

from trio_broker.cluster.controller import Controller
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType, TopicImage
from trio_broker.config.log_config import LogConfig
from trio_broker.config.resource_config import topic_config
from trio_broker.partition.hosted_topics import TopicAssignment
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.storage.errors import CorruptCheckpoint

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class MetadataPublisher:
    """Passes the image's partitions that node ``node_id`` leads, and their settings, to the ReplicaManager."""

    controller: Controller
    replicas: ReplicaManager
    node_id: int
    _defaults: LogConfig = attrs.field(init=False)
    """The broker's ``LogConfig`` that was applied to the topics last."""

    def __attrs_post_init__(self) -> None:
        self._defaults = self.controller.config.log

    async def publish(self, delta: MetadataDelta) -> None:
        """Apply ``delta``, which the image has already."""
        image = self.controller.image
        for deleted in delta.deleted_topics:
            await self.replicas.delete_topic(deleted.name)
        await self.apply_topics(image.topics[name] for name in delta.changed_topics)
        for resource in delta.changed_configs:
            self._apply_config(resource)

    async def apply_topics(self, topics: Iterable[TopicImage]) -> None:
        """Open the partitions of ``topics`` that this node leads, and apply their leader epochs."""
        for topic in topics:
            try:
                await self.replicas.apply_topic(self._assignment(topic))
            except (OSError, CorruptCheckpoint) as error:
                log.error("topic %s cannot be held: %s", topic.name, error)

    def _apply_config(self, resource: ConfigResource) -> None:
        image, config = self.controller.image, self.controller.config
        if resource.type is ConfigResourceType.TOPIC and (topic := image.topics.get(resource.name)):
            self.replicas.update_config(topic.name, topic_config(topic.configs, config))
        elif resource.type is ConfigResourceType.BROKER and config.log != self._defaults:
            # Only log settings are defaults of topics: a change of num.io.threads must not resolve ten thousand of
            # them.
            self._defaults = config.log
            for topic in image.topics.values():
                self.replicas.update_config(topic.name, topic_config(topic.configs, config))

    def _assignment(self, topic: TopicImage) -> TopicAssignment:
        """What this node holds of ``topic``."""
        return TopicAssignment(
            name=topic.name,
            topic_id=topic.topic_id,
            leader_epochs={
                index: partition.leader_epoch
                for index, partition in topic.partitions.items()
                if partition.leader == self.node_id
            },
            config=topic_config(topic.configs, self.controller.config),
        )
