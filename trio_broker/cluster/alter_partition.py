"""Decides about requests of leaders to change who is in sync with them.

A leader asks with the epochs that it knows, so that a request which was overtaken by another change has no effect. Only
active brokers in the epoch of their registration come into an ISR: a replica that has restarted since may have lost
what the leader counted on (KIP-841, KIP-903). An ISR that completes a reassignment may end the leadership of the broker
that asked for it; its partition is changed all the same, and answered with NEW_LEADER_ELECTED.

Source: Kafka's ReplicationControlManager.alterPartition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import NO_BROKER_EPOCH, uuid_text
from trio_broker.cluster.broker_liveness import require_broker_epoch
from trio_broker.cluster.controller_result import ControllerResult, attempt
from trio_broker.cluster.metadata_image import LEADER_UNCHANGED, MetadataImage, PartitionImage, TopicImage
from trio_broker.cluster.partition_change_builder import RECOVERED, RECOVERING
from trio_broker.cluster.topic_changes import ClusterChanges, TopicChanges
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import count_in_turns
from trio_broker.config.broker_config import BrokerConfig


@attrs.frozen
class ReplicaState:
    """A replica that shall be in sync, and the epoch of its broker in which the leader has seen it, ``NO_BROKER_EPOCH``
    where that is not known."""

    broker_id: int
    broker_epoch: int


@attrs.frozen(kw_only=True)
class PartitionAlteration:
    """What a leader asks for about one partition, and the epochs that it knows of it."""

    topic_id: bytes
    index: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[ReplicaState]
    leader_recovery_state: int


Altered = PartitionImage | KafkaError
"""The partition as it is afterwards, or NEW_LEADER_ELECTED."""


def decide_alterations(
    image: MetadataImage,
    config: BrokerConfig,
    broker_id: int,
    broker_epoch: int,
    alterations: Sequence[PartitionAlteration],
) -> Steps[Iterator[ControllerResult[Altered] | KafkaError]]:
    """Decide about each alteration that the broker asks for, in order, when it is asked for.

    Raises:
        KafkaError: STALE_BROKER_EPOCH, for the whole request.
    """
    require_broker_epoch(image, broker_id, broker_epoch)
    counts = yield from count_in_turns((wanted.topic_id, wanted.index) for wanted in alterations)
    changes = ClusterChanges(image, config)

    def decide(wanted: PartitionAlteration) -> ControllerResult[Altered]:
        topic = image.topics_by_id.get(wanted.topic_id)
        if topic is None:
            raise KafkaError(f"no topic with id {uuid_text(wanted.topic_id)}", code=ErrorCode.UNKNOWN_TOPIC_ID)
        if counts[wanted.topic_id, wanted.index] > 1:
            text = f"partition {topic.name}-{wanted.index} is named twice in one request"
            raise KafkaError(text, code=ErrorCode.INVALID_REQUEST)
        return _decide_alteration(image, changes.of(topic), broker_id, wanted)

    return (attempt(partial(decide, wanted)) for wanted in alterations)


def _decide_alteration(
    image: MetadataImage, changes: TopicChanges, broker_id: int, wanted: PartitionAlteration
) -> ControllerResult[Altered]:
    """Return what gives the partition the ISR wanted.

    Raises:
        KafkaError: with Kafka's code for what is wrong with it.
    """
    present = _checked(changes.topic, broker_id, wanted)
    for replica in wanted.isr:
        if reason := reason_not_eligible(image, replica):
            text = f"{changes.topic.name}-{wanted.index}: broker {replica.broker_id} cannot be in sync: {reason}"
            raise KafkaError(text, code=ErrorCode.INELIGIBLE_REPLICA)
    isr = tuple(replica.broker_id for replica in wanted.isr)
    change = changes.change(wanted.index, isr=isr, leader_recovery_state=wanted.leader_recovery_state)
    if change is None:
        return ControllerResult(present, ())
    outcome: Altered = present.changed_by(change)
    if change.leader not in (LEADER_UNCHANGED, broker_id):
        text = f"{changes.topic.name}-{wanted.index} is led by {change.leader} since its reassignment is complete"
        outcome = KafkaError(text, code=ErrorCode.NEW_LEADER_ELECTED)
    return ControllerResult(outcome, (change,))


def _checked(topic: TopicImage, broker_id: int, wanted: PartitionAlteration) -> PartitionImage:
    """Return the partition as it is, if ``broker_id`` leads it in the epochs that it names, and asks what may be."""
    present = topic.partitions.get(wanted.index)
    if present is None:
        text = f"topic {topic.name} has no partition {wanted.index}"
        raise KafkaError(text, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    refusal = _refusal_by_epoch(present, broker_id, wanted) or _refusal_by_isr(present, wanted)
    if refusal is not None:
        reason, code = refusal
        raise KafkaError(f"{topic.name}-{wanted.index}: {reason}", code=code)
    return present


Refusal = tuple[str, ErrorCode]


def _refusal_by_epoch(present: PartitionImage, broker_id: int, wanted: PartitionAlteration) -> Refusal | None:
    # What the leader knows and this controller does not, a newer controller has written.
    if wanted.leader_epoch > present.leader_epoch or wanted.partition_epoch > present.partition_epoch:
        return "a newer controller has changed it", ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < present.leader_epoch:
        return f"its leader epoch is {present.leader_epoch}", ErrorCode.FENCED_LEADER_EPOCH
    if broker_id != present.leader:
        return f"its leader is {present.leader}, not {broker_id}", ErrorCode.INVALID_REQUEST
    if wanted.partition_epoch < present.partition_epoch:
        return f"its partition epoch is {present.partition_epoch}", ErrorCode.INVALID_UPDATE_VERSION
    return None


def _refusal_by_isr(present: PartitionImage, wanted: PartitionAlteration) -> Refusal | None:
    isr = [replica.broker_id for replica in wanted.isr]
    if len(set(isr)) != len(isr) or not set(isr).issubset(present.replicas):
        return f"the ISR {isr} is not among its replicas {list(present.replicas)}", ErrorCode.INVALID_REQUEST
    if present.leader not in isr:
        return f"the ISR {isr} is without its leader", ErrorCode.INVALID_REQUEST
    if wanted.leader_recovery_state not in (RECOVERED, RECOVERING):
        return f"no recovery state has the number {wanted.leader_recovery_state}", ErrorCode.INVALID_REQUEST
    if wanted.leader_recovery_state == RECOVERING and len(isr) > 1:
        return "nobody is in sync with a leader that is recovering", ErrorCode.INVALID_REQUEST
    if wanted.leader_recovery_state == RECOVERING and present.leader_recovery_state == RECOVERED:
        return "its leader has recovered", ErrorCode.INVALID_REQUEST
    return None


def reason_not_eligible(image: MetadataImage, replica: ReplicaState) -> str:
    """Return why a broker may not come into an ISR, or the empty string."""
    broker = image.brokers.get(replica.broker_id)
    if broker is None:
        return "it is not registered"
    if broker.in_controlled_shutdown:
        return "it is shutting down"
    if broker.fenced:
        return "it is fenced"
    if replica.broker_epoch not in (NO_BROKER_EPOCH, broker.broker_epoch):
        return f"its epoch is {broker.broker_epoch}, not {replica.broker_epoch}"
    return ""
