"""The uniform assignor: every member has as many partitions as any other, give or take one, and keeps what it can.

When all members are subscribed to the same topics that is exact: each has a quota, gives up what is above it, and what
is free then fills those below theirs. When they are not, free partitions go to the subscriber that has the fewest, and
afterwards partitions move from subscribers with many to subscribers with few until no single move would help, or for
``MAX_BALANCING_ROUNDS`` rounds.

Source: the ideas are Kafka's UniformHomogeneousAssignmentBuilder and UniformHeterogeneousAssignmentBuilder.
"""

from __future__ import annotations

import heapq

from trio_broker.coordinator.consumer.assignors.group_spec import GroupSpec, MemberSubscriptionSpec

MAX_BALANCING_ROUNDS = 16
"""Rounds over all topics, as in Kafka; two or three are the rule, and balance may be left imperfect after them."""


def assign(spec: GroupSpec) -> dict[str, dict[bytes, frozenset[int]]]:
    """Spread all partitions evenly, moving as few as possible."""
    if not spec.members:
        return {}
    owned = _kept(spec)
    if spec.is_homogeneous:
        _fill_quotas(spec, owned)
    else:
        balancer = _Balancer(spec, owned)
        balancer.hand_out_free()
        balancer.balance()
    return {
        member_id: {topic_id: frozenset(partitions) for topic_id, partitions in topics.items() if partitions}
        for member_id, topics in owned.items()
    }


_Owned = dict[str, dict[bytes, set[int]]]


def _kept(spec: GroupSpec) -> _Owned:
    """The partitions of each member's target in topics that it is still subscribed to."""
    owned: _Owned = {}
    taken: set[tuple[bytes, int]] = set()
    for member in spec.members:
        topics = owned[member.member_id] = {}
        for topic_id, partitions in member.target.items():
            if topic_id not in member.topic_ids:
                continue
            count = spec.partition_counts[topic_id]
            # A target from the log may have partitions that do not exist or that two members have. They would stay.
            kept = {index for index in partitions if index < count and (topic_id, index) not in taken}
            taken.update((topic_id, index) for index in kept)
            topics[topic_id] = kept
    return owned


def _free(spec: GroupSpec, owned: _Owned) -> dict[bytes, list[int]]:
    """The partitions that no member has, by topic."""
    taken: dict[bytes, set[int]] = {topic_id: set() for topic_id in spec.partition_counts}
    for topics in owned.values():
        for topic_id, partitions in topics.items():
            taken[topic_id] |= partitions
    return {
        topic_id: [index for index in range(count) if index not in taken[topic_id]]
        for topic_id, count in spec.partition_counts.items()
    }


# --- All subscribed to the same topics ---


def _fill_quotas(spec: GroupSpec, owned: _Owned) -> None:
    members = spec.members
    smallest, larger = divmod(sum(spec.partition_counts.values()), len(members))
    quotas = _quotas([_size(owned[member.member_id]) for member in members], smallest, larger)
    for member, quota in zip(members, quotas, strict=True):
        _shrink(owned[member.member_id], quota)
    free = iter([(topic_id, index) for topic_id, indexes in _free(spec, owned).items() for index in indexes])
    for member, quota in zip(members, quotas, strict=True):
        topics = owned[member.member_id]
        for _ in range(quota - _size(topics)):
            topic_id, index = next(free)
            topics.setdefault(topic_id, set()).add(index)
    assert next(free, None) is None, "a partition was left over"


def _quotas(sizes: list[int], smallest: int, larger: int) -> list[int]:
    """The quota of each member: ``larger`` of them get one more than ``smallest``, first those that have it already."""
    quotas = [smallest] * len(sizes)
    by_size = sorted(range(len(sizes)), key=lambda place: sizes[place] <= smallest)
    for place in by_size[:larger]:
        quotas[place] += 1
    return quotas


def _size(topics: dict[bytes, set[int]]) -> int:
    return sum(map(len, topics.values()))


def _shrink(topics: dict[bytes, set[int]], quota: int) -> None:
    """Keep the first ``quota`` partitions of ``topics``."""
    room = quota
    for topic_id, partitions in topics.items():
        if len(partitions) > room:
            topics[topic_id] = set(sorted(partitions)[:room])
        room -= len(topics[topic_id])


# --- Each subscribed to other topics ---


class _Balancer:
    """Assigns partitions to the subscribers of their topics that have the fewest."""

    def __init__(self, spec: GroupSpec, owned: _Owned) -> None:
        self._spec = spec
        self._owned = owned
        self._sizes = {member_id: _size(topics) for member_id, topics in owned.items()}
        self._subscribers: dict[bytes, list[MemberSubscriptionSpec]] = {
            topic_id: [member for member in spec.members if topic_id in member.topic_ids]
            for topic_id in spec.partition_counts
        }
        # Where each subscriber has to take many, there is the least room to choose, so these topics come first.
        self._topic_ids = sorted(
            (topic_id for topic_id, subscribers in self._subscribers.items() if subscribers),
            key=lambda topic_id: (
                -spec.partition_counts[topic_id] / len(self._subscribers[topic_id]),
                len(self._subscribers[topic_id]),
            ),
        )

    def hand_out_free(self) -> None:
        """Give each free partition to the subscriber of its topic that has the fewest partitions."""
        free = _free(self._spec, self._owned)
        for topic_id in self._topic_ids:
            subscribers = self._subscribers[topic_id]
            fewest = [(self._sizes[member.member_id], place) for place, member in enumerate(subscribers)]
            heapq.heapify(fewest)
            for index in free[topic_id]:
                size, place = fewest[0]
                self._give(topic_id, index, subscribers[place].member_id)
                heapq.heapreplace(fewest, (size + 1, place))

    def balance(self) -> None:
        """Move partitions between subscribers of the same topic while that makes their numbers more alike."""
        contested = [topic_id for topic_id in self._topic_ids if len(self._subscribers[topic_id]) > 1]
        for _ in range(MAX_BALANCING_ROUNDS):
            if not sum(self._balance_topic(topic_id) for topic_id in contested):
                return

    def _balance_topic(self, topic_id: bytes) -> int:
        """Returns how many partitions moved."""
        ids = [member.member_id for member in self._subscribers[topic_id]]
        fewest = [(self._sizes[member_id], place) for place, member_id in enumerate(ids)]
        most = [
            (-self._sizes[member_id], place) for place, member_id in enumerate(ids) if self._has(topic_id, member_id)
        ]
        heapq.heapify(fewest)
        heapq.heapify(most)
        moved = 0
        while most:
            (giver_size, giver), (taker_size, taker) = most[0], fewest[0]
            # An entry says what was true when it was made; the members of a move get new ones.
            if -giver_size != self._sizes[ids[giver]] or not self._has(topic_id, ids[giver]):
                heapq.heappop(most)
            elif taker_size != self._sizes[ids[taker]]:
                heapq.heappop(fewest)
            elif -giver_size - taker_size <= 1:
                break
            else:
                self._move(topic_id, ids[giver], ids[taker])
                moved += 1
                for place in (giver, taker):
                    heapq.heappush(fewest, (self._sizes[ids[place]], place))
                    heapq.heappush(most, (-self._sizes[ids[place]], place))
        return moved

    def _has(self, topic_id: bytes, member_id: str) -> bool:
        return bool(self._owned[member_id].get(topic_id))

    def _give(self, topic_id: bytes, index: int, member_id: str) -> None:
        self._owned[member_id].setdefault(topic_id, set()).add(index)
        self._sizes[member_id] += 1

    def _move(self, topic_id: bytes, giver: str, taker: str) -> None:
        index = max(self._owned[giver][topic_id])
        self._owned[giver][topic_id].remove(index)
        self._sizes[giver] -= 1
        self._give(topic_id, index, taker)
