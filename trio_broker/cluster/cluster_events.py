"""The feed of what happens in a cluster: elections, in-sync replicas, controllers and brokers, as the metadata tell it.

Each broker reads it off the changes that it follows, so all have the same, but for what came before their start. It is
kept in memory and shown; nothing is decided by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Final

import attrs

from trio_broker.cluster.cluster_event import ClusterChanged, ClusterEvent, ClusterEventKind
from trio_broker.cluster.metadata_delta import MetadataDelta
from trio_broker.cluster.metadata_image import NO_LEADER, BrokerImage, MetadataImage, PartitionImage
from trio_broker.cluster.metadata_store import LeaderAndEpoch
from trio_broker.cluster.partition_change_builder import without
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.runtime.clock import Clock

MAX_EVENTS: Final = 1000
"""Events that are kept: what a restart of each of three brokers with a hundred partitions causes."""

MAX_CHANGED: Final = 50
"""Events of one batch that listeners get: a page shows no more, and the death of a broker may bring ten thousand."""


@attrs.frozen
class ClusterEventCounts:
    """Counted since the start. Shrinks and expansions are those of partitions that this broker led; elections those
    while it was the controller, as Kafka counts them."""

    isr_shrinks: int = 0
    isr_expands: int = 0
    elections: int = 0
    unclean_elections: int = 0


@attrs.frozen
class ReplicaOfPartition:
    """A broker's replica of a partition."""

    partition: TopicPartition
    broker_id: int


@attrs.define(eq=False)
class ClusterEvents:
    """Follows the metadata. ``controller`` is ``MetadataStore.controller``; listeners do not raise."""

    own_id: int
    clock: Clock
    controller: Callable[[], LeaderAndEpoch]
    counts: ClusterEventCounts = attrs.field(factory=ClusterEventCounts, init=False)
    out_of_sync_since_ms: dict[ReplicaOfPartition, int] = attrs.field(factory=dict, init=False)
    """Of those that left the replicas in sync since the start."""
    _events: deque[ClusterEvent] = attrs.field(factory=lambda: deque(maxlen=MAX_EVENTS), init=False)
    _known_epoch: int = attrs.field(default=-1, init=False)
    """Of the controller that the last such event names."""
    _listeners: list[Callable[[ClusterChanged], None]] = attrs.field(factory=list, init=False)

    def latest_first(self) -> Sequence[ClusterEvent]:
        """All that are kept."""
        return tuple(reversed(self._events))

    def subscribe(self, listener: Callable[[ClusterChanged], None]) -> None:
        """Call ``listener`` with what each batch of the metadata brings."""
        self._listeners.append(listener)

    async def apply_metadata(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See ``MetadataSubscriber``."""
        now_ms, before = self.clock.now_ms(), delta.image
        events = [
            *self._controller_events(now_ms),
            *broker_events(before.brokers, image.brokers, now_ms),
        ]
        if delta.deleted_topics:
            self._forget({topic.name for topic in delta.deleted_topics})
        async for name in InTurns(delta.changed_topics):
            topic, old = image.topics[name], before.topics_by_id.get(image.topics[name].topic_id)
            if old is None:
                continue  # it is new, and has nothing that moves
            async for index, state in InTurns(delta.changed_partitions(topic.topic_id).items()):
                if (former := old.partitions.get(index)) is not None:
                    events += self._partition_events(TopicPartition(name, index), former, state, now_ms)
        if events:
            self._events.extend(events)
            changed = ClusterChanged(tuple(events[:MAX_CHANGED]), max(0, len(events) - MAX_CHANGED))
            for listener in tuple(self._listeners):
                listener(changed)

    def _controller_events(self, now_ms: int) -> Iterator[ClusterEvent]:
        # Not by the epoch of the image: who has written in a new one may be known later.
        leader = self.controller()
        if leader.leader_id != NO_LEADER and leader.epoch > self._known_epoch:
            self._known_epoch = leader.epoch
            text = f"broker {leader.leader_id} is the controller, in epoch {leader.epoch}"
            yield ClusterEvent(at_ms=now_ms, kind=ClusterEventKind.CONTROLLER, text=text, broker_id=leader.leader_id)

    def _partition_events(
        self, place: TopicPartition, before: PartitionImage, state: PartitionImage, now_ms: int
    ) -> Sequence[ClusterEvent]:
        for each in without(before.isr, state.isr):
            self.out_of_sync_since_ms[ReplicaOfPartition(place, each)] = now_ms
        for each in without(state.isr, before.isr):
            self.out_of_sync_since_ms.pop(ReplicaOfPartition(place, each), None)
        found = list(partition_events(place, before, state, now_ms))
        kinds = [each.kind for each in found]
        led_here, decides = state.leader == self.own_id, self.controller().leader_id == self.own_id
        elected = before.leader_epoch != state.leader_epoch and state.leader != NO_LEADER
        unclean = ClusterEventKind.UNCLEAN_ELECTION in kinds
        self.counts = attrs.evolve(
            self.counts,
            isr_shrinks=self.counts.isr_shrinks + (led_here and ClusterEventKind.ISR_SHRINK in kinds),
            isr_expands=self.counts.isr_expands + (led_here and ClusterEventKind.ISR_EXPAND in kinds),
            elections=self.counts.elections + (decides and elected),
            unclean_elections=self.counts.unclean_elections + (decides and unclean),
        )
        return found

    def _forget(self, topics: Set[str]) -> None:
        since = self.out_of_sync_since_ms
        self.out_of_sync_since_ms = {each: at_ms for each, at_ms in since.items() if each.partition.topic not in topics}


def partition_events(
    place: TopicPartition, before: PartitionImage, state: PartitionImage, now_ms: int
) -> Iterator[ClusterEvent]:
    """What has happened to a partition between two states of it."""

    def event(kind: ClusterEventKind, text: str, broker_id: int | None) -> ClusterEvent:
        return ClusterEvent(
            at_ms=now_ms,
            kind=kind,
            text=text,
            broker_id=broker_id,
            topic=place.topic,
            partition=place.partition,
            leader_epoch=state.leader_epoch,
        )

    if state.leader != before.leader and state.leader == NO_LEADER:
        yield event(ClusterEventKind.LEADERLESS, f"nobody leads {place}, after broker {before.leader}", None)
    elif state.leader != before.leader:
        former = "nobody" if before.leader == NO_LEADER else f"broker {before.leader}"
        text = f"broker {state.leader} leads {place} in epoch {state.leader_epoch}, after {former}"
        known = (*before.isr, *before.eligible_leader_replicas)
        if state.leader in known:
            preferred = " (preferred)" if state.leader == state.replicas[0] else ""
            yield event(ClusterEventKind.ELECTION, text + preferred, state.leader)
        else:
            text += ": it was not in sync, so records may be lost"
            yield event(ClusterEventKind.UNCLEAN_ELECTION, text, state.leader)
    in_sync = f"in sync: {', '.join(map(str, state.isr)) or 'nobody'}"
    if left := without(before.isr, state.isr):
        text = f"{place}: {brokers_text(left)} out of sync; {in_sync}"
        yield event(ClusterEventKind.ISR_SHRINK, text, left[0])
    if joined := without(state.isr, before.isr):
        text = f"{place}: {brokers_text(joined)} in sync again; {in_sync}"
        yield event(ClusterEventKind.ISR_EXPAND, text, joined[0])
    if state.is_reassigned != before.is_reassigned:
        target = state.target_replicas
        verb = "moves to" if state.is_reassigned else "has arrived on"
        yield event(ClusterEventKind.REASSIGNMENT, f"{place} {verb} {', '.join(map(str, target))}", target[0])


def brokers_text(broker_ids: Sequence[int]) -> str:
    """Brokers as the beginning of a sentence."""
    return f"broker {broker_ids[0]} is" if len(broker_ids) == 1 else f"brokers {', '.join(map(str, broker_ids))} are"


def broker_events(
    before: Mapping[int, BrokerImage], after: Mapping[int, BrokerImage], now_ms: int
) -> Iterator[ClusterEvent]:
    """What has happened to brokers between two states of all of them."""
    if before is after:
        return
    for broker_id in sorted({*before, *after}):
        if text := broker_text(before.get(broker_id), after.get(broker_id)):
            text = f"broker {broker_id} {text}"
            yield ClusterEvent(at_ms=now_ms, kind=ClusterEventKind.BROKER, text=text, broker_id=broker_id)


def broker_text(before: BrokerImage | None, after: BrokerImage | None) -> str:
    """What has happened to one broker, empty if nothing has."""
    if after is None:
        return "is out of the cluster"
    if before is None or before.broker_epoch != after.broker_epoch:
        return "has registered"
    if after.in_controlled_shutdown and not before.in_controlled_shutdown:
        return "stops, and hands over what it leads"
    if after.fenced and not before.fenced:
        return "is fenced: out of contact"
    return "is in contact" if before.fenced and not after.fenced else ""
