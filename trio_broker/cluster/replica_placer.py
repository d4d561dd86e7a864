"""Which brokers a new partition is given to: spread over racks first, and evenly over brokers (KIP-36).

* No broker has two replicas of a partition. Its replicas are in as many racks as there are, or as it has replicas.
* The leader of a partition is not fenced, and all brokers that are not fenced lead equally many of the partitions that
  are placed together, up to one.
* Brokers that follow the same leader differ from partition to partition, so that no single one takes over all that a
  broker has led. Of a rack, fenced brokers come after the others.

The leaders go round over the brokers, which alternate by rack. The followers go round over the racks, from the
leader's on, and in each rack over its brokers. Whenever every broker has led once, the order is drawn anew.

Further replicas of a partition that is there are chosen by a ``ReplicaLoad`` instead.

Source: Kafka's StripedReplicaPlacer, and KIP-36 for the leaders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, zip_longest
from typing import TypeVar

import attrs

from trio_broker.cluster.metadata_image import MetadataImage, PartitionImage
from trio_broker.cluster.partition_change_builder import without
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.runtime.randomness import Random

T = TypeVar("T")


@attrs.frozen
class UsableBroker:
    """A broker that may get replicas."""

    broker_id: int
    rack: str | None
    fenced: bool


def usable_brokers(image: MetadataImage) -> list[UsableBroker]:
    """Every registered broker but those that are shutting down or being decommissioned, by id."""
    leaving = image.leaving_brokers
    return [
        UsableBroker(broker.broker_id, broker.rack, broker.fenced)
        for broker in sorted(image.brokers.values(), key=lambda broker: broker.broker_id)
        if not broker.in_controlled_shutdown and broker.broker_id not in leaving
    ]


@attrs.define
class _Rack:
    unfenced: list[int] = attrs.field(factory=list)
    fenced: list[int] = attrs.field(factory=list)
    given: int = 0
    """How many partitions were given a follower of this rack while another one led."""

    def candidates_from(self, begin: int) -> list[int]:
        """Its brokers from the place ``begin`` on, those that are fenced last."""
        return _rotated(self.unfenced, begin) + _rotated(self.fenced, begin)


def _rotated(items: list[T], begin: int) -> list[T]:
    if not items:
        return items
    begin %= len(items)
    return items[begin:] + items[:begin]


@attrs.frozen
class _StripedLeader:
    """A broker that leads the next partition: the place of its rack, and its place there."""

    broker_id: int
    rack: int
    index: int


class StripedReplicaPlacer:
    """Places the partitions of one request, one after the other."""

    def __init__(self, brokers: Iterable[UsableBroker], random: Random) -> None:
        """At least one of ``brokers`` is not fenced."""
        self._random = random
        racks: dict[str, _Rack] = {}
        for broker in brokers:
            rack = racks.setdefault(broker.rack or "", _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).append(broker.broker_id)
        self._alive = [rack for rack in racks.values() if rack.unfenced]
        self._not_alive = [rack for rack in racks.values() if not rack.unfenced]
        self._leaders = self._stripe()
        if len(self._leaders) > 1:
            self._leaders = _rotated(self._leaders, random.randrange(len(self._leaders)))
        self._placed = 0

    def _stripe(self) -> list[_StripedLeader]:
        """Every broker that may lead, alternating by rack."""
        columns = (
            [_StripedLeader(broker_id, place, index) for index, broker_id in enumerate(rack.unfenced)]
            for place, rack in enumerate(self._alive)
        )
        return [leader for row in zip_longest(*columns) for leader in row if leader is not None]

    def place(self, replication_factor: int) -> tuple[int, ...]:
        """Return the replicas of the next partition, the leader first; there are that many brokers."""
        if self._placed == len(self._leaders):
            self._shuffle()
        leader = self._leaders[self._placed]
        self._placed += 1
        followers = self._followers(leader, replication_factor - 1) if replication_factor > 1 else ()
        return (leader.broker_id, *followers)

    def _followers(self, leader: _StripedLeader, count: int) -> list[int]:
        """Return brokers that follow ``leader``: one of each other rack, of its own, and then second ones."""
        others = _rotated(self._alive, leader.rack + 1)[:-1] + self._not_alive
        candidates = [rack.candidates_from(rack.given) for rack in others]
        for rack in others[:count]:
            rack.given += 1
        # From the one behind the leader on; without the leader, which comes last of those that are not fenced.
        own = self._alive[leader.rack]
        rest = _rotated(own.unfenced, leader.index + 1)[:-1] + _rotated(own.fenced, leader.index)
        if not others:
            return rest[:count]
        rows = zip_longest(*candidates, rest)
        return list(islice((each for row in rows for each in row if each is not None), count))

    def _shuffle(self) -> None:
        self._placed = 0
        if len(self._leaders) == 1:
            return
        for rack in (*self._alive, *self._not_alive):
            self._random.shuffle(rack.unfenced)
            self._random.shuffle(rack.fenced)
        self._random.shuffle(self._alive)
        self._leaders = self._stripe()


@attrs.frozen
class ReplicaLoad:
    """What each broker has of some partitions, by which further replicas are placed: those of all ``brokers`` that may
    get one, active ones that stay."""

    image: MetadataImage
    brokers: frozenset[int]
    replicas: Counter[int] = attrs.field(factory=Counter)
    preferred: Counter[int] = attrs.field(factory=Counter)
    """Of how many partitions a broker is the preferred leader."""

    @classmethod
    def of(cls, image: MetadataImage, partitions: Iterable[PartitionImage]) -> Steps[ReplicaLoad]:
        """What the brokers have of ``partitions``, counted in turns."""
        load, budget = cls(image, image.active_brokers - image.leaving_brokers), YieldBudget()
        for partition in partitions:
            load.replicas.update(partition.replicas)
            load.preferred[partition.replicas[0]] += 1
            if budget.is_spent:
                yield budget.renewed
        return load

    def added(self, present: Sequence[int], count: int) -> tuple[int, ...]:
        """Give a partition that is ``present`` on some brokers ``count`` further ones, as far as there are so many: of
        other racks first, and then those with the fewest replicas. They are counted."""
        brokers = self.image.brokers
        racks = {brokers[each].rack for each in present if each in brokers}
        candidates = self.brokers.difference(present)
        chosen: list[int] = []
        while len(chosen) < count and candidates:
            broker_id = min(candidates, key=lambda each: (brokers[each].rack in racks, self.replicas[each], each))
            candidates -= {broker_id}
            racks.add(brokers[broker_id].rack)
            chosen.append(broker_id)
        self.replicas.update(chosen)
        return tuple(chosen)

    def led_evenly(self, replicas: tuple[int, ...], led_by: int) -> tuple[int, ...]:
        """``replicas`` with one at their head that is the preferred leader of few partitions, instead of ``led_by``."""
        self.preferred[led_by] -= 1
        head = min(replicas, key=lambda each: self.preferred[each])
        self.preferred[head] += 1
        return (head, *without(replicas, (head,)))
