"""The topics of a running broker, for the admin app."""

from __future__ import annotations

from collections.abc import Sequence

from kafka_wire.primitives import uuid_text
from trio_broker.cluster.topic_names import is_internal_topic
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.metrics.topics import PartitionInfo, TopicInfo
from trio_broker.replication.partition import Partition


class LiveTopicsView:
    """The part of the admin app's view that is about topics."""

    def __init__(self, services: BrokerServices) -> None:
        self.services = services

    def topics(self) -> Sequence[TopicInfo]:
        held = self.services.replicas.topics
        return [
            TopicInfo(
                name=topic.name,
                topic_id=uuid_text(topic.topic_id),
                partitions=tuple(
                    self._partition_info(partition)
                    for _, partition in sorted(held[topic.name].partitions.items() if topic.name in held else ())
                ),
                configs=dict(topic.configs),
                internal=is_internal_topic(topic.name),
            )
            for topic in sorted(self.services.controller.image.topics.values(), key=lambda topic: topic.name)
        ]

    def topic_names(self) -> Sequence[str]:
        return tuple(self.services.controller.image.topics)

    def _partition_info(self, partition: Partition) -> PartitionInfo:
        return PartitionInfo(
            partition=partition.topic_partition.partition,
            leader=self.services.node.node_id,
            leader_epoch=partition.leader_epoch,
            log_start_offset=partition.log_start_offset,
            last_stable_offset=partition.last_stable_offset,
            high_watermark=partition.high_watermark,
            log_end_offset=partition.log_end_offset,
            size_bytes=partition.log.size_bytes,
        )
