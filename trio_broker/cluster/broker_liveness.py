"""Decides what follows from brokers that come, stop and vanish: who leads in their place, and who is in sync.

A broker that registers is fenced: it leads nothing and is in no ISR. It is unfenced once it has read the metadata up to
its registration, fenced again when its session ends, and leaves the ISRs before it stops under control. In each case
all its partitions change together with it, in one decision that is made in turns.

A broker that was not stopped cleanly may have lost what it had, so its new registration takes it out of the ISR, and
out of the replicas that are eligible to lead (KIP-966).

Source: Kafka's ReplicationControlManager (generateLeaderAndIsrUpdates, processBrokerHeartbeat, unregisterBroker).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import BrokerRegistrationChangeRecord, PartitionChangeRecord
from trio_broker.cluster.broker_heartbeat_manager import BrokerControlState, BrokerHeartbeat, BrokerHeartbeatManager
from trio_broker.cluster.controller_result import ControllerResult
from trio_broker.cluster.decommission import unregistration
from trio_broker.cluster.metadata_image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage
from trio_broker.cluster.partition_change_builder import IsAcceptableLeader, without
from trio_broker.cluster.topic_changes import ClusterChanges
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.config.broker_config import BrokerConfig

FENCE, UNFENCE = 1, -1
"""``fenced`` in a BrokerRegistrationChangeRecord."""

SHUTDOWN = 1
"""``in_controlled_shutdown`` in a BrokerRegistrationChangeRecord."""


@attrs.frozen(kw_only=True)
class BrokerHeartbeatReply:
    """What a broker is to do: serve, wait while it is fenced, or end."""

    is_caught_up: bool
    is_fenced: bool
    in_controlled_shutdown: bool
    should_shut_down: bool


def require_broker_epoch(image: MetadataImage, broker_id: int, broker_epoch: int) -> BrokerImage:
    """Return the broker that sends a request, if it sends it in its present life.

    Raises:
        KafkaError: STALE_BROKER_EPOCH: it is not registered, or has registered again since.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        reason = f"No broker registration found for broker id {broker_id}"
    elif broker.broker_epoch != broker_epoch:
        reason = f"Expected broker epoch {broker.broker_epoch}, but got broker epoch {broker_epoch}"
    else:
        return broker
    raise KafkaError(reason, code=ErrorCode.STALE_BROKER_EPOCH)


def decide_heartbeat(
    image: MetadataImage, config: BrokerConfig, sessions: BrokerHeartbeatManager, heartbeat: BrokerHeartbeat
) -> Steps[ControllerResult[BrokerHeartbeatReply]]:
    """Return what a broker is to do, and what changes with its state.

    Raises:
        KafkaError: STALE_BROKER_EPOCH.
    """
    broker = require_broker_epoch(image, heartbeat.broker_id, heartbeat.broker_epoch)
    broker_id = broker.broker_id
    is_leaving = broker_id in image.leaving_brokers
    if is_leaving and not (yield from _has_partition(image, lambda each: broker_id in each.replicas)):
        # It has nothing left to do, and is asked to stop.
        heartbeat = attrs.evolve(heartbeat, want_shut_down=True)
    asks_leaders = heartbeat.want_shut_down and not broker.fenced
    leads = (yield from _has_partition(image, lambda each: each.leader == broker_id)) if asks_leaders else False
    state = sessions.next_state(image, broker, heartbeat, leads=leads)
    records: list[Any] = []
    if state is BrokerControlState.UNFENCED:
        if broker.fenced:
            records = yield from unfencing(image, config, broker)
    elif state is BrokerControlState.CONTROLLED_SHUTDOWN:
        if not broker.in_controlled_shutdown:
            records = yield from controlled_shutdown(image, config, broker)
    elif not broker.fenced:
        records = yield from fencing(image, config, broker)
    if not records and (remaining := _remaining_log_dirs(broker, heartbeat)):
        records = yield from without_directories(image, config, broker, remaining)
    reply = BrokerHeartbeatReply(
        is_caught_up=heartbeat.current_metadata_offset >= broker.broker_epoch,
        is_fenced=state in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
        in_controlled_shutdown=state is BrokerControlState.CONTROLLED_SHUTDOWN,
        should_shut_down=state is BrokerControlState.SHUTDOWN_NOW,
    )
    return ControllerResult(reply, records)


def decide_fencing(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Steps[ControllerResult[None]]:
    """Fence a broker whose session has ended."""
    return ControllerResult(None, (yield from fencing(image, config, image.brokers[broker_id])))


def decide_unregistration(image: MetadataImage, config: BrokerConfig, broker_id: int) -> Steps[ControllerResult[None]]:
    """Take a broker that is gone for good out of the cluster. It stays among the replicas of its partitions.

    One that is active is refused: unlike Kafka's, which would lose its place without noticing.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED; INVALID_REQUEST: it is active.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        text = f"Broker ID {broker_id} is not currently registered"
        raise KafkaError(text, code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    if broker.is_active:
        is_alone = image.active_brokers == {broker_id}
        alone = "is the whole cluster, and serves all partitions: stop it instead"
        text = f"broker {broker_id} {alone if is_alone else 'is running: stop it first'}"
        raise KafkaError(text, code=ErrorCode.INVALID_REQUEST)
    changes = yield from without_broker(image, config, broker_id, is_lost=True)
    return ControllerResult(None, [*changes, *unregistration(image, broker_id)])


def fencing(image: MetadataImage, config: BrokerConfig, broker: BrokerImage) -> Steps[list[Any]]:
    changes = yield from without_broker(image, config, broker.broker_id)
    return [*changes, _registration_change(broker, fenced=FENCE)]


def controlled_shutdown(image: MetadataImage, config: BrokerConfig, broker: BrokerImage) -> Steps[list[Any]]:
    changes = yield from without_broker(image, config, broker.broker_id)
    return [_registration_change(broker, in_controlled_shutdown=SHUTDOWN), *changes]


def unfencing(image: MetadataImage, config: BrokerConfig, broker: BrokerImage) -> Steps[list[Any]]:
    """Unfence a broker, and let it lead what has no leader and may be led by it."""

    def may_lead(broker_id: int, directory: bytes) -> bool:
        return image.can_lead(broker_id, directory) or (broker_id == broker.broker_id and broker.has_online(directory))

    changes = yield from _partition_changes(
        image, config, lambda partition: partition.leader == NO_LEADER, lambda partition: {}, may_lead
    )
    return [_registration_change(broker, fenced=UNFENCE), *changes]


def without_broker(
    image: MetadataImage,
    config: BrokerConfig,
    broker_id: int,
    *,
    is_lost: bool = False,
    is_emptied: Callable[[PartitionImage], bool] | None = None,
) -> Steps[list[PartitionChangeRecord]]:
    """Return the changes of all partitions that take a broker out of the ISR and of their leaders.

    One that ``is_lost`` is not eligible to lead any more either, and it is not the last known leader of the partitions
    that it ``is_emptied`` of, none if that is not given.
    """

    def concerns(partition: PartitionImage) -> bool:
        lost = (*partition.eligible_leader_replicas, *partition.last_known_elr) if is_lost else ()
        return broker_id in partition.isr or broker_id in lost

    def targets(partition: PartitionImage) -> dict[str, Any]:
        return {
            "isr": without(partition.isr, (broker_id,)),
            "unclean_shutdown_replicas": (broker_id,) if is_lost else (),
            "emptied_replicas": (broker_id,) if is_emptied is not None and is_emptied(partition) else (),
        }

    def may_lead(other: int, directory: bytes) -> bool:
        return other != broker_id and image.can_lead(other, directory)

    return (yield from _partition_changes(image, config, concerns, targets, may_lead))


def _remaining_log_dirs(broker: BrokerImage, heartbeat: BrokerHeartbeat) -> list[bytes]:
    """The data directories that a broker has left; none if it has lost none, or all, with which it ends by itself."""
    remaining = [each for each in broker.log_dirs if each not in heartbeat.offline_log_dirs]
    return remaining if len(remaining) < len(broker.log_dirs) else []


def without_directories(
    image: MetadataImage, config: BrokerConfig, broker: BrokerImage, remaining: list[bytes]
) -> Steps[list[Any]]:
    """Leave a broker these data directories, and take its replicas in the others out of the ISRs and of leadership."""
    broker_id, after = broker.broker_id, attrs.evolve(broker, log_dirs=tuple(remaining))

    def concerns(partition: PartitionImage) -> bool:
        return broker_id in partition.isr and not after.has_online(partition.directory_of(broker_id))

    def may_lead(other: int, directory: bytes) -> bool:
        return image.can_lead(other, directory) and (other != broker_id or after.has_online(directory))

    changes = yield from _partition_changes(
        image, config, concerns, lambda partition: {"isr": without(partition.isr, (broker_id,))}, may_lead
    )
    record = _registration_change(broker)
    record.log_dirs = remaining
    return [record, *changes]


def _partition_changes(
    image: MetadataImage,
    config: BrokerConfig,
    concerns: Callable[[PartitionImage], bool],
    targets: Callable[[PartitionImage], dict[str, Any]],
    may_lead: IsAcceptableLeader,
) -> Steps[list[PartitionChangeRecord]]:
    """Return the changes of those partitions that a change of a broker concerns."""
    changes, budget = ClusterChanges(image, config, may_lead), YieldBudget()
    records = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if concerns(partition) and (change := changes.of(topic).change(index, **targets(partition))) is not None:
                records.append(change)
            if budget.is_spent:
                yield budget.renewed
    return records


def _has_partition(image: MetadataImage, is_such: Callable[[PartitionImage], bool]) -> Steps[bool]:
    """Whether any partition is such a one, looked for in turns."""
    budget = YieldBudget()
    for topic in image.topics.values():
        if any(map(is_such, topic.partitions.values())):
            return True
        if budget.is_spent:
            yield budget.renewed
    return False


def _registration_change(
    broker: BrokerImage, *, fenced: int = 0, in_controlled_shutdown: int = 0
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )
