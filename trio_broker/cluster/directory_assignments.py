"""Decides about reports of brokers in which of their log directories their replicas are.

A directory that fails later takes just these replicas out of the ISRs and of leadership (``broker_liveness``). One that
has failed before it is reported does so at once: nobody else will say that the replicas in it are gone.

A replica that is reported elsewhere while its broker lacks the directory that it was in has been made anew, so it has
nothing of what was committed, and is not one to be elected for that. Kafka elects it.

Source: Kafka's ReplicationControlManager.handleAssignReplicasToDirs; KIP-858.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import uuid_text
from trio_broker.cluster.broker_liveness import require_broker_epoch
from trio_broker.cluster.controller_result import ControllerResult, attempt
from trio_broker.cluster.metadata_image import BrokerImage, MetadataImage
from trio_broker.cluster.partition_change_builder import without
from trio_broker.cluster.topic_changes import ClusterChanges
from trio_broker.config.broker_config import BrokerConfig


@attrs.frozen(kw_only=True)
class DirectoryAssignment:
    """A replica of the broker that reports, and the id of the log directory that it is in."""

    topic_id: bytes
    index: int
    directory_id: bytes


def decide_directory_assignments(
    image: MetadataImage,
    config: BrokerConfig,
    broker_id: int,
    broker_epoch: int,
    assignments: Sequence[DirectoryAssignment],
) -> Iterator[ControllerResult[None] | KafkaError]:
    """Decide about each assignment, in order, when it is asked for.

    Raises:
        KafkaError: STALE_BROKER_EPOCH, for the whole request.
    """
    broker = require_broker_epoch(image, broker_id, broker_epoch)
    changes = ClusterChanges(image, config)
    return (attempt(partial(_decide_assignment, changes, broker, wanted)) for wanted in assignments)


def _decide_assignment(
    changes: ClusterChanges, broker: BrokerImage, wanted: DirectoryAssignment
) -> ControllerResult[None]:
    """Return what notes the directory of one replica.

    Raises:
        KafkaError: UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER: the broker has no replica.
    """
    topic = changes.image.topics_by_id.get(wanted.topic_id)
    if topic is None:
        raise KafkaError(f"no topic with id {uuid_text(wanted.topic_id)}", code=ErrorCode.UNKNOWN_TOPIC_ID)
    present = topic.partitions.get(wanted.index)
    if present is None:
        text = f"topic {topic.name} has no partition {wanted.index}"
        raise KafkaError(text, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    broker_id, directory_id = broker.broker_id, wanted.directory_id
    if broker_id not in present.replicas:
        text = f"{topic.name}-{wanted.index} has no replica on broker {broker_id}"
        raise KafkaError(text, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    targets: dict[str, Any] = {"directories": present.with_directory(broker_id, directory_id)}
    if not broker.has_online(directory_id):
        targets["isr"] = without(present.isr, (broker_id,))
    if not broker.has_online(present.directory_of(broker_id)):
        targets |= {"unclean_shutdown_replicas": (broker_id,), "emptied_replicas": (broker_id,)}
    change = changes.of(topic).change(wanted.index, **targets)
    return ControllerResult(None, () if change is None else (change,))
