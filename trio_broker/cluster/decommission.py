"""The decommission of a broker: its replicas move to others, and it leaves the cluster when it has none.

What is wanted is a setting of the broker in the metadata, ``broker.decommission``, and all else is derived from the
image: which replicas are still there, which moves are under way, and whether the broker is empty. So a decommission
goes on under whichever broker is the controller, and is cancelled by deleting the setting.

While it lasts the broker gets no new replicas. Some partitions at a time are reassigned, each new replica to another
rack than the ones that stay, where there is one, and to the broker with the fewest. The broker's own topics, whose
number of replicas follows the number of brokers, lose one where too few brokers are left. A broker that is empty is
asked to stop by the answer to its heartbeat; once it is fenced it is unregistered, and its setting goes with it.

Source: KIP-36 for racks; docs/decisions/0094-a-decommission-is-a-setting.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Any, Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import ConfigRecord, PartitionChangeRecord, UnregisterBrokerRecord
from trio_broker.cluster.controller_result import ControllerResult, attempt
from trio_broker.cluster.decommission_progress import DecommissionProgress, DecommissionState, ReplicaMove
from trio_broker.cluster.internal_topics import lowered_min_isr, unset_topics
from trio_broker.cluster.metadata_image import (
    NO_LEADER,
    ConfigResource,
    ConfigResourceType,
    MetadataImage,
    TopicImage,
    is_decommission,
)
from trio_broker.cluster.partition_change_builder import Assignment, without
from trio_broker.cluster.partition_reassignments import Reassignment, decide_reassignment
from trio_broker.cluster.replica_placer import ReplicaLoad
from trio_broker.cluster.topic_changes import ClusterChanges
from trio_broker.common.setting_names import DECOMMISSION
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget, list_in_turns
from trio_broker.config.broker_config import BrokerConfig

MAX_MOVES: Final = 20
"""Partitions that are moved at a time: each copies all of its records, beside what clients ask of the same brokers."""

MAX_SHOWN_MOVES: Final = 1000
"""Moves that a report of the progress lists."""


# --- Whether it may begin ---


def require_decommissionable(image: MetadataImage, config: BrokerConfig, broker_id: int) -> None:
    """Refuse a decommission that could not come to its end.

    Raises:
        KafkaError: INVALID_REQUEST: it is the whole cluster, or too few brokers would be left for a topic.
    """
    left = len(image.brokers.keys() - image.leaving_brokers - {broker_id})
    if left == 0:
        reason = "no other broker would be left"
    elif (topic := _largest_topic(image, config, broker_id)) is not None and _factor(topic) > left:
        brokers = "1 broker" if left == 1 else f"{left} brokers"
        reason = f"topic {topic.name} has {_factor(topic)} replicas, and {brokers} would be left"
    else:
        return
    raise KafkaError(f"broker {broker_id} cannot be decommissioned: {reason}", code=ErrorCode.INVALID_REQUEST)


def _largest_topic(image: MetadataImage, config: BrokerConfig, broker_id: int) -> TopicImage | None:
    """Of the topics that are on a broker and keep their number of replicas, one with the most."""
    shrinking = unset_topics(config)
    topics = (
        topic
        for topic in image.topics.values()
        if topic.name not in shrinking and any(broker_id in each.replicas for each in topic.partitions.values())
    )
    return max(topics, key=_factor, default=None)


def _factor(topic: TopicImage) -> int:
    return max(len(each.target_replicas) for each in topic.partitions.values())


# --- What moves where ---


@attrs.frozen
class _Planner:
    """Plans the moves away from the brokers that are ``leaving``, each by what those before it have added."""

    image: MetadataImage
    leaving: frozenset[int]
    shrinking: Collection[str]
    """The topics that may lose a replica."""
    load: ReplicaLoad
    blocked: list[TopicPartition] = attrs.field(factory=list)
    """Partitions that cannot move now: no broker is there for them, or none that leads them."""

    @classmethod
    def of(cls, image: MetadataImage, config: BrokerConfig, leaving: frozenset[int]) -> Steps[_Planner]:
        """One that has planned nothing yet."""
        partitions = (partition for topic in image.topics.values() for partition in topic.partitions.values())
        return cls(image, leaving, unset_topics(config), (yield from ReplicaLoad.of(image, partitions)))

    def moves(self) -> Iterator[ReplicaMove | None]:
        """Yield each partition that is to move; None stands for one that has not to, or cannot now."""
        for topic in self.image.topics.values():
            for index, partition in topic.partitions.items():
                if partition.is_reassigned or self.leaving.isdisjoint(partition.replicas):
                    yield None
                elif partition.leader == NO_LEADER:
                    # Nobody could copy it, and it would keep others from their move.
                    self.blocked.append(TopicPartition(topic.name, index))
                    yield None
                else:
                    yield self._move(topic.name, index, partition.replicas)

    def _move(self, topic: str, index: int, replicas: tuple[int, ...]) -> ReplicaMove | None:
        staying = without(replicas, self.leaving)
        target = (*staying, *self.load.added(staying, len(replicas) - len(staying)))
        if not target or (len(target) < len(replicas) and topic not in self.shrinking):
            self.blocked.append(TopicPartition(topic, index))
            return None
        if replicas[0] in self.leaving:
            target = self.load.led_evenly(target, replicas[0])
        return ReplicaMove(topic, index, replicas, target)


# --- The next step ---


def decide_decommissions(image: MetadataImage, config: BrokerConfig) -> Steps[ControllerResult[Sequence[int]]]:
    """Begin the next moves away from the brokers that are leaving, and take out those that have left. The outcome are
    the ids of the latter."""
    if not (leaving := image.leaving_brokers):
        return ControllerResult((), ())
    held = yield from _Held.of(image, leaving)
    gone = [each for each in sorted(leaving) if not held.replicas[each] and image.brokers[each].fenced]
    records: list[Any] = [record for broker_id in gone for record in unregistration(image, broker_id)]
    changes, budget = ClusterChanges(image, config), YieldBudget()
    shrunk: set[str] = set()
    room = MAX_MOVES - held.under_way
    if room > 0:
        planner = yield from _Planner.of(image, config, leaving)
        for move in planner.moves():
            if move is not None:
                records += _begin(changes, move)
                room -= 1
                if len(move.target) < len(move.replicas):
                    shrunk.add(move.topic)
            if room == 0:
                break
            if budget.is_spent:
                yield budget.renewed
    records += [record for name in shrunk for record in lowered_min_isr(image.topics[name])]
    return ControllerResult(gone, records)


def _begin(changes: ClusterChanges, move: ReplicaMove) -> Iterator[PartitionChangeRecord]:
    topic = changes.image.topics[move.topic]
    assignment = Assignment.of(topic.partitions[move.partition]).reassigned_to(move.target)
    change = changes.of(topic).change(move.partition, assignment=assignment)
    if change is not None:
        yield change


@attrs.define
class _Held:
    """What the brokers have: how many replicas, how many of them lead, and how many are on their way from brokers that
    are leaving."""

    replicas: Counter[int]
    leaders: Counter[int]
    under_way: int = 0

    @classmethod
    def of(cls, image: MetadataImage, leaving: frozenset[int]) -> Steps[_Held]:
        """What is there in ``image``, counted in turns."""
        held, budget = cls(Counter(), Counter()), YieldBudget()
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                held.replicas.update(partition.replicas)
                held.leaders[partition.leader] += 1
                is_moving = partition.leader != NO_LEADER and not leaving.isdisjoint(partition.removing_replicas)
                held.under_way += is_moving
                if budget.is_spent:
                    yield budget.renewed
        return held


def unregistration(image: MetadataImage, broker_id: int) -> tuple[Any, ...]:
    """The records that take a broker out of the cluster; another one of its id begins without the setting."""
    resource = ConfigResource.of_broker(broker_id)
    record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=image.brokers[broker_id].broker_epoch)
    if DECOMMISSION not in image.configs(resource):
        return (record,)
    setting = ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=DECOMMISSION, value=None)
    return (record, setting)


# --- How far it is ---


def decommission_progress(
    image: MetadataImage, config: BrokerConfig, broker_id: int, *, is_asked: bool = False
) -> Steps[DecommissionProgress]:
    """Return what is left to be done, or with ``is_asked`` what would be if it began now; at most ``MAX_SHOWN_MOVES``
    of the moves.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED.
    """
    if broker_id not in image.brokers:
        text = f"Broker ID {broker_id} is not currently registered"
        raise KafkaError(text, code=ErrorCode.BROKER_ID_NOT_REGISTERED)
    is_leaving = broker_id in image.leaving_brokers
    held = yield from _Held.of(image, frozenset({broker_id}))
    state = DecommissionState.NONE
    if is_leaving:
        state = DecommissionState.MOVING if held.replicas[broker_id] else DecommissionState.STOPPING
    moves, blocked = list(_under_way(image, broker_id)), ""
    if is_leaving or is_asked:
        planner = yield from _Planner.of(image, config, image.leaving_brokers | {broker_id})
        planned = yield from list_in_turns(planner.moves())
        moves += [move for move in planned if move is not None and broker_id in move.replicas]
        if planner.blocked:
            more = f" and {len(planner.blocked) - 1} more" if len(planner.blocked) > 1 else ""
            blocked = f"no broker is there for {planner.blocked[0]}{more}, or none that leads"
    return DecommissionProgress(
        broker_id=broker_id,
        state=state,
        replicas=held.replicas[broker_id],
        leaders=held.leaders[broker_id],
        moves=tuple(moves[:MAX_SHOWN_MOVES]),
        further_moves=max(len(moves) - MAX_SHOWN_MOVES, 0),
        blocked=blocked,
    )


def _under_way(image: MetadataImage, broker_id: int) -> Iterator[ReplicaMove]:
    for topic in image.topics.values():
        for index, each in topic.partitions.items():
            if broker_id in each.removing_replicas:
                yield ReplicaMove(topic.name, index, each.replicas, each.target_replicas, is_under_way=True)


# --- Its beginning, and its end before it is complete ---


def decommission_changes(
    image: MetadataImage, config: BrokerConfig, resource: ConfigResource, records: Sequence[ConfigRecord]
) -> list[PartitionChangeRecord]:
    """Return what is written beside ``records``, settings of ``resource``: where they cancel a decommission, replicas
    that were on their way from the broker stay.

    Raises:
        KafkaError: as ``require_decommissionable``, where they begin one.
    """
    wanted = [each.value for each in records if each.name == DECOMMISSION]
    if resource.type is not ConfigResourceType.BROKER or not wanted:
        return []
    broker_id = int(resource.name)
    if any(map(is_decommission, wanted)):
        require_decommissionable(image, config, broker_id)
        return []
    changes = ClusterChanges(image, config)
    decisions = [
        attempt(partial(decide_reassignment, changes, Reassignment(TopicPartition(name, index), None)))
        for name, topic in image.topics.items()
        for index, partition in topic.partitions.items()
        if broker_id in partition.removing_replicas
    ]
    # One of which only the new replicas are in sync goes on.
    return [record for each in decisions if isinstance(each, ControllerResult) for record in each.records]
