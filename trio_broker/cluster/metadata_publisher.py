"""The MetadataPublisher: lets the partitions that this node holds follow the metadata.

The controller calls ``publish`` with each delta after it was appended and folded into the image. Topics that are gone
come first, then those that are new or changed, then settings, so that a topic that is created anew under an old name
never meets what is left of the old one.

A partition that cannot be opened answers errors of its own and does not end the others.

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
from trio_broker.replication.hosted_topics import TopicAssignment
from trio_broker.replication.replica_manager import ReplicaManager
from trio_broker.storage.errors import CorruptCheckpoint

log = logging.getLogger(__name__)


@attrs.define(eq=False)
class MetadataPublisher:
    """Gives the ReplicaManager what the image says of the partitions that node ``node_id`` leads."""

    controller: Controller
    replicas: ReplicaManager
    node_id: int
    _defaults: LogConfig = attrs.field(init=False)
    """The broker's ``LogConfig`` that the topics were given last."""

    def __attrs_post_init__(self) -> None:
        self._defaults = self.controller.config.log

    async def publish(self, delta: MetadataDelta) -> None:
        """Apply ``delta``, which the image has folded already."""
        image = self.controller.image
        for deleted in delta.deleted_topics:
            await self.replicas.delete_topic(deleted.name)
        await self.apply_topics(image.topics[name] for name in delta.changed_topics if name in image.topics)
        for resource in delta.changed_configs:
            self._apply_config(resource)

    async def apply_topics(self, topics: Iterable[TopicImage]) -> None:
        """Hold the partitions of ``topics`` that this node leads."""
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
            # Only a setting of logs is the default of topics: num.io.threads must not resolve ten thousand of them.
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
