"""Decides what the start of a node writes: its registration, features, and new leader epochs for what it leads.

The offset of the registration is the broker epoch, which fences earlier processes of the node. Every partition of the
node gets a new leader epoch, so that clients and replicas can distinguish what they read before the restart (KIP-101,
KIP-320, KIP-841). The records are one batch: a node is never half-registered.

Source: Kafka's ClusterControlManager.registerBroker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from kafka_wire.stored.metadata import BrokerEndpoint, ConfigRecord, PartitionChangeRecord, RegisterBrokerRecord
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.features import decide_features
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT, MetadataImage, TopicImage
from trio_broker.cluster.topic_changes import TopicChanges
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.listeners import Endpoint

MIN_INSYNC_REPLICAS = "min.insync.replicas"


@attrs.frozen(kw_only=True)
class NodeRegistration:
    """A starting node: its id, the id of the process (incarnation), its advertised listeners, and the ids of its data
    directories."""

    node_id: int
    incarnation_id: bytes
    endpoints: Sequence[Endpoint]
    rack: str | None
    log_dirs: Sequence[bytes] = ()


def decide_registration(
    image: MetadataImage, config: BrokerConfig, node: NodeRegistration, *, broker_epoch: int
) -> ControllerResult[int]:
    """Return the broker epoch and the records of a start; ``broker_epoch`` is the offset that the first will have."""
    topics = image.topics.values()
    changes = [change for topic in topics for change in _elections(image, config, topic, node.node_id)]
    records = (_registration(node, broker_epoch), *decide_features(image), *_cluster_defaults(image, config), *changes)
    return ControllerResult(broker_epoch, records)


def _cluster_defaults(image: MetadataImage, config: BrokerConfig) -> list[ConfigRecord]:
    """Keep ``min.insync.replicas`` as a default of the cluster from its first start on, as Kafka does (KIP-966).

    The meaning of acks=all must not depend on the configuration file of the broker that leads.
    """
    if MIN_INSYNC_REPLICAS in image.configs(CLUSTER_DEFAULT):
        return []
    value = str(config.log.min_insync_replicas)
    resource = CLUSTER_DEFAULT
    return [
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=MIN_INSYNC_REPLICAS, value=value)
    ]


def _registration(node: NodeRegistration, broker_epoch: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=node.node_id,
        incarnation_id=node.incarnation_id,
        broker_epoch=broker_epoch,
        end_points=[
            BrokerEndpoint(
                name=item.listener_name, host=item.host, port=item.port, security_protocol=item.security_protocol
            )
            for item in node.endpoints
        ],
        features=[],
        rack=node.rack,
        fenced=False,
        log_dirs=list(node.log_dirs),
    )


def _elections(
    image: MetadataImage, config: BrokerConfig, topic: TopicImage, node_id: int
) -> Iterator[PartitionChangeRecord]:
    """Begin new leader epochs under the only living node, where it is in sync or may be elected uncleanly."""
    changes = TopicChanges.of(image, config, topic, lambda broker_id, directory: broker_id == node_id)
    made = (changes.change(index, begins_leader_epoch=True) for index in topic.partitions)
    return (change for change in made if change is not None)
