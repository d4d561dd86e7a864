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
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType, MetadataImage
from trio_broker.cluster.topic_changes import MIN_INSYNC_REPLICAS, ClusterChanges
from trio_broker.config.broker_config import BrokerConfig


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
    changes = ClusterChanges(following, config.with_dynamic(following.config_layers(config.node.node_id)))
    is_of_topic = resource.type is ConfigResourceType.TOPIC
    topics = [following.topics[resource.name]] if is_of_topic else following.topics.values()
    concerned = (
        (topic, index) for topic in topics for index, each in topic.partitions.items() if each.eligible_leader_replicas
    )
    return [change for topic, index in concerned if (change := changes.of(topic).change(index)) is not None]
