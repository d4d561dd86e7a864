"""Decides what the start of a node writes: its registration, features, and what follows for its partitions.

The offset of the registration is the broker epoch, which fences earlier processes of the node. The records are one
batch: a node is never half-registered.

A node that is the whole cluster serves at once. Each of its partitions gets a new leader epoch, so that clients can
distinguish what they read before the restart (KIP-101, KIP-320). What it has of other brokers, with which it shared its
metadata before it left them, goes: they are unregistered, and it is the only replica.

One of several begins fenced, and its partitions go on without it; it is unfenced by its heartbeats
(``broker_liveness``).

Source: Kafka's ClusterControlManager.registerBroker.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import NO_BROKER_EPOCH, uuid_text
from kafka_wire.stored.metadata import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from trio_broker.cluster.broker_liveness import without_broker
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.features import FeatureLevels, decide_features, reason_against_features
from trio_broker.cluster.metadata_image import (
    CLUSTER_DEFAULT,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerImage,
    MetadataImage,
    PartitionImage,
)
from trio_broker.cluster.partition_change_builder import Assignment, new_leader_epoch
from trio_broker.cluster.topic_changes import MIN_INSYNC_REPLICAS, ClusterChanges
from trio_broker.concurrency.steps import Steps
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.listeners import Endpoint

RESERVED_DIRECTORIES = 100
"""Kafka gives the first ids a meaning of their own, such as "not assigned yet"."""


@attrs.frozen(kw_only=True)
class NodeRegistration:
    """A starting node: its id, the id of the process (incarnation), its advertised listeners, the ids of its data
    directories, the levels of features that it knows, and its epoch before a clean stop."""

    node_id: int
    incarnation_id: bytes
    endpoints: Sequence[Endpoint]
    rack: str | None
    log_dirs: Sequence[bytes] = ()
    features: Mapping[str, FeatureLevels] = attrs.field(factory=dict)
    previous_broker_epoch: int = NO_BROKER_EPOCH


def decide_registration(
    image: MetadataImage, config: BrokerConfig, node: NodeRegistration, *, broker_epoch: int
) -> ControllerResult[int]:
    """Return the broker epoch and the records of a start of the only node of a cluster.

    ``broker_epoch`` is the offset that the first record will have.
    """
    changes = list(_elections(image, config, node.node_id))
    defaults = (*decide_features(image), *_cluster_defaults(image, config))
    former = [
        UnregisterBrokerRecord(broker_id=each.broker_id, broker_epoch=each.broker_epoch)
        for each in image.brokers.values()
        if each.broker_id != node.node_id
    ]
    registered = _registration(node, broker_epoch, fenced=False)
    return ControllerResult(broker_epoch, (registered, *defaults, *changes, *former))


def decide_broker_registration(
    image: MetadataImage, config: BrokerConfig, node: NodeRegistration, *, has_session: bool, broker_epoch: int
) -> Steps[ControllerResult[int]]:
    """Return the broker epoch and the records of a start of one node of several.

    ``has_session`` says whether a broker of its id is in contact, or may be. A process that registers again keeps its
    epoch.

    Raises:
        KafkaError: DUPLICATE_BROKER_REGISTRATION: another process of its id is in contact; INVALID_REGISTRATION: it
            cannot be reached, or its data directories are not its own; UNSUPPORTED_VERSION: it does not know a
            finalized feature.
    """
    existing = image.brokers.get(node.node_id)
    is_same_process = existing is not None and existing.incarnation_id == node.incarnation_id
    is_clean = _was_stopped_cleanly(existing, node)
    # A node that was stopped cleanly in the life that is registered has ended that life, even if nobody knows yet: the
    # last of a cluster that is stopped, or one whose controller has changed meanwhile.
    if has_session and not is_same_process and not is_clean:
        text = f"another process is registered as broker {node.node_id}, and in contact"
        raise KafkaError(text, code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    _require_place(image, node)
    if reason := reason_against_features(image, node.features):
        raise KafkaError(f"Unable to register because the broker {reason}", code=ErrorCode.UNSUPPORTED_VERSION)
    if existing is not None and is_same_process:
        record = _registration(node, existing.broker_epoch, fenced=existing.fenced)
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        return ControllerResult(existing.broker_epoch, (record,))
    changes = yield from without_broker(
        image, config, node.node_id, is_lost=not is_clean, is_emptied=partial(_lacks_log, existing, node)
    )
    highest_levels = [
        {name: levels.high for name, levels in node.features.items()},
        *(
            {name: high for name, (_, high) in broker.features.items()}
            for broker in image.brokers.values()
            if broker.broker_id != node.node_id
        ),
    ]
    defaults = (*decide_features(image, highest_levels), *_cluster_defaults(image, config))
    records = (_registration(node, broker_epoch, fenced=True), *defaults, *changes)
    return ControllerResult(broker_epoch, records)


def _was_stopped_cleanly(existing: BrokerImage | None, node: NodeRegistration) -> bool:
    """Whether the node stopped in its last life with everything on its disks (KIP-966)."""
    return existing is not None and existing.broker_epoch == node.previous_broker_epoch


def _lacks_log(existing: BrokerImage | None, node: NodeRegistration, partition: PartitionImage) -> bool:
    """Whether the node comes without the data directory in which its replica of a partition was, and could lead it.

    It cannot where the directory is assigned: that may come back, and until a replica is reported elsewhere
    (``directory_assignments``) it leads nothing. Where none is assigned the replica was in one of those that the node
    had, of which one that is unregistered has none.
    """
    if partition.directory_of(node.node_id) not in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return False
    return existing is None or (bool(existing.log_dirs) and not set(existing.log_dirs).intersection(node.log_dirs))


def _require_place(image: MetadataImage, node: NodeRegistration) -> None:
    """Check that a node can be reached, and that its data directories are nobody else's."""
    reserved = [directory for directory in node.log_dirs if int.from_bytes(directory, "big") < RESERVED_DIRECTORIES]
    others = {
        directory: broker.broker_id
        for broker in image.brokers.values()
        for directory in broker.log_dirs
        if broker.broker_id != node.node_id
    }
    taken = [directory for directory in node.log_dirs if directory in others]
    if node.node_id < 0:
        reason = "an id is not negative"
    elif not node.endpoints:
        reason = "it has no listener"
    elif not node.log_dirs:
        reason = "it names no data directory"
    elif reserved:
        reason = f"a data directory has a reserved id, {uuid_text(reserved[0])}"
    elif len(set(node.log_dirs)) < len(node.log_dirs):
        reason = "two of its data directories have one id"
    elif taken:
        reason = f"data directory {uuid_text(taken[0])} is that of broker {others[taken[0]]}"
    else:
        return
    text = f"broker {node.node_id} cannot be registered: {reason}"
    raise KafkaError(text, code=ErrorCode.INVALID_REGISTRATION)


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


def _registration(node: NodeRegistration, broker_epoch: int, *, fenced: bool) -> RegisterBrokerRecord:
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
        features=[
            BrokerFeature(name=name, min_supported_version=levels.low, max_supported_version=levels.high)
            for name, levels in node.features.items()
        ],
        rack=node.rack,
        fenced=fenced,
        log_dirs=list(node.log_dirs),
    )


def _elections(image: MetadataImage, config: BrokerConfig, node_id: int) -> Iterator[PartitionChangeRecord]:
    """Begin new leader epochs under the only living node, where it is in sync or may be elected uncleanly."""
    changes = ClusterChanges(image, config, lambda broker_id, directory: broker_id == node_id)
    made = (
        new_leader_epoch(partition, topic.topic_id, index, node_id)
        or changes.of(topic).change(index, begins_leader_epoch=True, **_alone(partition, node_id))
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
    )
    return (change for change in made if change is not None)


def _alone(partition: PartitionImage, node_id: int) -> dict[str, Any]:
    """The targets that leave a partition one replica, which has all that is committed."""
    if partition.replicas == (node_id,) or node_id not in (*partition.isr, *partition.eligible_leader_replicas):
        return {}
    return {"assignment": Assignment((node_id,)), "isr": (node_id,)}
