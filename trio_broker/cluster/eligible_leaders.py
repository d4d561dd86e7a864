"""What a change of ``min.insync.replicas`` means for replicas that are eligible to lead.

They are eligible because nothing could be committed since they left the ISR. With a lower number the ISR that there is
commits without them, so they are eligible no longer, from the same moment on. Of a partition whose ISR is still too
small they stay so.

Source: Kafka's ConfigurationControlManager (maybeGenerateElrSafetyRecords), which takes all of them away; KIP-966.
"""

from __future__ import annotations

from collections.abc import Sequence

from kafka_wire.stored.metadata import ConfigRecord, PartitionChangeRecord
from trio_broker.cluster.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import (
    CLUSTER_DEFAULT,
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
    TopicImage,
)
from trio_broker.cluster.topic_changes import MIN_INSYNC_REPLICAS, TopicChanges
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ConfigScope


def eligibility_changes(
    image: MetadataImage, config: BrokerConfig, resource: ConfigResource, records: Sequence[ConfigRecord]
) -> list[PartitionChangeRecord]:
    """Return what is written beside ``records``, settings of ``resource`` that are about to change."""
    is_concerned = any(record.name == MIN_INSYNC_REPLICAS for record in records)
    if not is_concerned or not image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION):
        return []
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    following = delta.apply(offset=image.offset, epoch=image.epoch)
    settings = _settings_of(following, config)
    is_of_topic = resource.type is ConfigResourceType.TOPIC
    topics = [following.topics[resource.name]] if is_of_topic else following.topics.values()
    return [change for topic in topics for change in _changes_of(following, settings, topic)]


def _changes_of(image: MetadataImage, settings: BrokerConfig, topic: TopicImage) -> list[PartitionChangeRecord]:
    concerned = [index for index, each in topic.partitions.items() if each.eligible_leader_replicas]
    if not concerned:
        return []
    changes = TopicChanges.of(image, settings, topic)
    return [change for index in concerned if (change := changes.change(index)) is not None]


def _settings_of(image: MetadataImage, config: BrokerConfig) -> BrokerConfig:
    resources = {
        ConfigScope.CLUSTER: CLUSTER_DEFAULT,
        ConfigScope.BROKER: ConfigResource.of_broker(config.node.node_id),
    }
    return config.with_dynamic({scope: image.configs(resource) for scope, resource in resources.items()})
