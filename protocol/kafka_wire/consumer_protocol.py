"""The consumer protocol: what consumers tell each other inside the classic group protocol.

The broker passes these bytes along. It reads them where a group of consumers changes to the protocol of KIP-848, whose
members send the broker what here only the leader of the group receives. A version stands before each message; versions
to come will begin like the newest one known here, and are read as it.

Version notes:

* 1: the subscription has the partitions owned so far (KIP-429).
* 2: and the generation in which they were (KIP-792).
* 3: and the rack (KIP-881).

Source: Kafka's ConsumerProtocolSubscription.json, ConsumerProtocolAssignment.json and ConsumerProtocol.
"""

from __future__ import annotations

import struct as binary
from typing import Any, Final, TypeVar

from kafka_wire.codec import decode_at_most, encode_bytes
from kafka_wire.errors import WireError
from kafka_wire.primitives import Bytes, Int32, String
from kafka_wire.schema import field, message, struct

T = TypeVar("T")

PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of groups of consumers. Kafka Connect has ``connect``, the schema registry ``sr``, and so on."""

NEWEST_VERSION: Final = 3

MAX_ELEMENTS: Final = 60_000
"""Topics and partitions in one message, which is read at once: some 50 milliseconds. A member that owned all of 20,000
partitions, each of a topic of its own, would name no more."""

_INT16 = binary.Struct(">h")


@message(versions="0-3", flexible="none")
class ConsumerProtocolSubscription:
    """What a member wants, and what it has. ``generation_id`` is -1 when it had none."""

    topics: list[String]
    user_data: Bytes | None = field(default=None)
    owned_partitions: list[ConsumerProtocolTopic] = field("1+", factory=list, ignorable=True)
    generation_id: Int32 = field("2+", default=-1, ignorable=True)
    rack_id: String | None = field("3+", default=None, ignorable=True)


@message(versions="0-3", flexible="none")
class ConsumerProtocolAssignment:
    """What a member was given. ``user_data`` is the assignor's own."""

    assigned_partitions: list[ConsumerProtocolTopic]
    user_data: Bytes | None = field(default=None)


@struct
class ConsumerProtocolTopic:
    """Partitions of one topic."""

    topic: String
    partitions: list[Int32]


def protocol_version(data: bytes) -> int:
    """The version that ``data`` begins with, or the newest one known if that is newer.

    Raises:
        WireError: there is none.
    """
    if len(data) < _INT16.size:
        raise WireError(f"a message of the consumer protocol has {len(data)} bytes")
    version: int = _INT16.unpack_from(data)[0]
    if version < 0:
        raise WireError(f"version {version} of the consumer protocol")
    # A newer message begins like the newest known one; the bytes behind are left over, and not an error
    # (ConsumerProtocol).
    return min(version, NEWEST_VERSION)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Read what JoinGroup has as the metadata of a protocol.

    Raises:
        WireError: it is no subscription, or has more than ``MAX_ELEMENTS``.
    """
    return _decode(ConsumerProtocolSubscription, data)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Read what SyncGroup has as an assignment.

    Raises:
        WireError: it is no assignment, or has more than ``MAX_ELEMENTS``.
    """
    return _decode(ConsumerProtocolAssignment, data)


def _decode(kind: type[T], data: bytes) -> T:
    return decode_at_most(MAX_ELEMENTS, kind, protocol_version(data), data, _INT16.size)[0]


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int = NEWEST_VERSION) -> bytes:
    """Write the metadata of a protocol for JoinGroup; fields the version lacks are left out."""
    return _encode(subscription, version)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int = NEWEST_VERSION) -> bytes:
    """Write an assignment for SyncGroup."""
    return _encode(assignment, version)


def _encode(value: Any, version: int) -> bytes:
    return _INT16.pack(version) + encode_bytes(value, version)
