"""The protocols of a classic group's members: names of assignment strategies, each with bytes of the client's own.

The broker chooses the strategy and passes the bytes on. It reads them for protocol type ``consumer`` only, and no more
than it needs: the topics that a member subscribes to, and the partitions that it was assigned. Bytes that cannot be
read are no error, since clients define them; their topics and partitions are then not known.

Source: Kafka's ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json, whose versions all begin like
version 0; ClassicGroup.selectProtocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from kafka_wire.codec import decode_at_most
from kafka_wire.consumer_protocol import MAX_ELEMENTS, PROTOCOL_TYPE, ConsumerProtocolTopic, protocol_version
from kafka_wire.errors import WireError
from kafka_wire.messages.join_group import JoinGroupRequestProtocol
from kafka_wire.primitives import String
from kafka_wire.schema import message

CONSUMER_PROTOCOL_TYPE: Final = PROTOCOL_TYPE

MAX_PROTOCOLS: Final = 100
"""Strategies that one member may list. Clients have a handful; each is counted when a member joins or leaves."""

MAX_PROTOCOLS_BYTES: Final = 16 << 20
"""Size of all of them, names and bytes. No record could hold more, but they would stay in memory."""

MAX_SUBSCRIBED_TOPICS: Final = 20_000
"""Topics in one subscription: as many as there can be. A subscription with more is not read."""

MAX_READ_TOPICS: Final = 100_000
"""The same for all different subscriptions of a group: some 50 milliseconds."""

Protocols = Mapping[str, bytes]
"""The strategies that a member supports, preferred ones first, with its bytes for each."""

_VERSION_BYTES: Final = 2

T = TypeVar("T")


@message(versions="0", flexible="none")
class _SubscriptionStart:
    topics: list[String]


@message(versions="0", flexible="none")
class _AssignmentStart:
    assigned_partitions: list[ConsumerProtocolTopic]


def protocols_of(listed: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """The strategies of a request. One that is listed twice counts once, at its first place."""
    protocols: dict[str, bytes] = {}
    for protocol in listed:
        protocols.setdefault(protocol.name, protocol.metadata)
    return protocols


def are_too_large(listed: Sequence[JoinGroupRequestProtocol]) -> bool:
    """Whether a member lists more than the broker keeps in memory for it."""
    return (
        len(listed) > MAX_PROTOCOLS
        or sum(len(protocol.name) + len(protocol.metadata) for protocol in listed) > MAX_PROTOCOLS_BYTES
    )


def are_same(one: Protocols, other: Protocols) -> bool:
    """Whether names, bytes and order are the same: a member that joins again with these has not changed."""
    return list(one.items()) == list(other.items())


def choose_protocol(members: Iterable[Protocols]) -> str:
    """The strategy that most members prefer among those that all of them support.

    Every member has one vote, which goes to the first in its list that all support. At a tie the one that was voted
    for first wins. There is at least one member, and at least one strategy that all support: joining sees to that.
    """
    lists = list(members)
    candidates = set(lists[0]).intersection(*lists[1:])
    assert candidates, f"no strategy is supported by all of {[list(protocols) for protocols in lists]}"
    votes: dict[str, int] = {}
    for protocols in lists:
        vote = next(name for name in protocols if name in candidates)
        votes[vote] = votes.get(vote, 0) + 1
    return max(votes, key=votes.__getitem__)


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topics in a consumer's subscription, or None if the bytes cannot be read or are too many topics."""
    start = _start_of(_SubscriptionStart, metadata, MAX_SUBSCRIBED_TOPICS)
    return None if start is None or len(start.topics) > MAX_SUBSCRIBED_TOPICS else tuple(start.topics)


def topics_of_all(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics in all of ``subscriptions``, or None if one cannot be read or there are too many topics."""
    topics: set[str] = set()
    read = 0
    for metadata in dict.fromkeys(subscriptions):
        subscribed = subscribed_topics(metadata)
        if subscribed is None or (read := read + len(subscribed)) > MAX_READ_TOPICS:
            return None
        topics.update(subscribed)
    return frozenset(topics)


def assigned_partitions(assignment: bytes) -> dict[str, tuple[int, ...]] | None:
    """The partitions in a consumer's assignment by topic, or None if the bytes are not one.

    No bytes at all are an assignment too: of nothing.
    """
    if not assignment:
        return {}
    start = _start_of(_AssignmentStart, assignment, MAX_ELEMENTS)
    return None if start is None else {each.topic: tuple(each.partitions) for each in start.assigned_partitions}


def _start_of(kind: type[T], data: bytes, max_elements: int) -> T | None:
    try:
        protocol_version(data)
        return decode_at_most(max_elements, kind, 0, data, _VERSION_BYTES)[0]
    except WireError:
        return None
