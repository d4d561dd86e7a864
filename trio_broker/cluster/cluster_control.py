"""Decides what the start of a node writes: its registration, features, and new leader epochs for what it leads.

The offset of the registration is the broker epoch, which fences earlier processes of the node. Every partition of the
node gets a new leader epoch, so that clients and replicas can distinguish what they read before the restart (KIP-101,
KIP-320, KIP-841). The records are one batch: a node is never half-registered.

Source: Kafka's ClusterControlManager.registerBroker, PartitionChangeBuilder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from kafka_wire.stored.metadata import BrokerEndpoint, ConfigRecord, PartitionChangeRecord, RegisterBrokerRecord
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.features import decide_features
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT, NO_LEADER, MetadataImage, PartitionImage, TopicImage
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.listeners import Endpoint
from trio_broker.config.resource_config import topic_config

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
    changes = [change for topic in image.topics.values() for change in _elections(topic, config, node.node_id)]
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


def _elections(topic: TopicImage, config: BrokerConfig, node_id: int) -> list[PartitionChangeRecord]:
    unclean = topic_config(topic.configs, config, topic.name).unclean_leader_election_enable
    return [
        PartitionChangeRecord(partition_id=index, topic_id=topic.topic_id, **election)
        for index, partition in topic.partitions.items()
        if (election := elect(partition, node_id, unclean=unclean)) is not None
    ]


def elect(partition: PartitionImage, node_id: int, *, unclean: bool) -> dict[str, Any] | None:
    """Return the fields of the change that makes the only living node lead ``partition``; None when nothing changes.

    A node that was not in sync leads only where ``unclean`` allows it, and is then alone in sync. A partition that the
    node has no replica of has no leader.
    """
    if node_id in partition.isr:
        # Naming the same leader again begins a new leader epoch, which is the purpose (PartitionRegistration.merge).
        return {"leader": node_id}
    if unclean and node_id in partition.replicas:
        return {"leader": node_id, "isr": [node_id], "leader_recovery_state": 1}
    return None if partition.leader == NO_LEADER else {"leader": NO_LEADER}
