"""The errors of the client.

The text of each error is one line: what was requested from which broker, and what was received instead.

Source: Kafka's Errors enum for the codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from kafka_wire.error_codes import ErrorCode
from kafka_wire.primitives import uuid_text

K = TypeVar("K")
T = TypeVar("T")

EXPLANATIONS: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader now",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "its coordinator is still loading it",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "no broker coordinates it now",
    ErrorCode.NOT_COORDINATOR: "the broker that was asked does not coordinate it",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members, so only they may commit",
    ErrorCode.ILLEGAL_GENERATION: "the group has members, so only they may commit",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group has members, and they rebalance",
    ErrorCode.STALE_MEMBER_EPOCH: "the group has members, so only they may commit",
    ErrorCode.NON_EMPTY_GROUP: "the group has members",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group's members are subscribed to the topic",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "its coordinator does not know it, or has forgotten it",
    ErrorCode.PRODUCER_FENCED: "another producer has it by now",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer has another epoch by now",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer coordinator has written there by now",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "its brokers have no delegation.token.secret.key",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "it takes a login, and by no delegation token",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only its owner and its renewers may do that",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "it is over",
}
"""The explanation of a code that the broker sends without a message, as it does for groups, offsets, transactional
ids and tokens. What "it" is says the subject of the error."""


class ClientError(Exception):
    """A request to the cluster failed; the text says which request, and why."""


class ConnectFailed(ClientError):
    """No connection could be made, so nothing was sent."""


class TlsFailed(ClientError):
    """The two sides do not come to terms about TLS, and another attempt would not help; nothing was sent under it, or
    it ended with broken bytes."""


class BrokerUnreachable(ConnectFailed):
    """The cluster named a broker to which no connection could be made; another one may have its place soon."""


class ConnectionLost(ClientError):
    """The connection ended after a request was sent; whether the broker carried it out is unknown."""


class NotKafka(ClientError):
    """The received bytes are not an answer of the Kafka protocol."""


class TimedOut(ClientError):
    """The deadline passed before the answer was received."""


class VersionNotServed(ClientError):
    """The broker and this client have no version of the API in common."""


class DamagedRecords(ClientError):
    """A broker served a batch whose checksum or content is wrong; the text names partition and offset."""


class WriteFailed(ClientError):
    """Records were not written, or it is unknown whether they were; the text names topic and partition."""


class UnknownTopic(WriteFailed):
    """The topic does not exist, and writing to it did not create it."""


class RecordTooLarge(WriteFailed):
    """One record is larger than the topic or a request allows; the text names the size and the limit."""


class Refused(ClientError):
    """The broker answered with an error code; ``subject`` is what the code is about, such as a topic."""

    def __init__(self, subject: str, code: int, message: str | None = None) -> None:
        self.subject = subject
        self.code = code
        # The broker's own words first: they name the value or the limit, which the code alone does not.
        reason = message or EXPLANATIONS.get(code, "")  # type: ignore[call-overload]
        super().__init__(": ".join(part for part in (subject, self.name, reason) if part))

    @property
    def name(self) -> str:
        """Kafka's name of the code."""
        return error_name(self.code)


class TopicReplaced(Refused):
    """The topic was deleted and created again, so the name stands for another topic now (KIP-516)."""

    def __init__(self, topic: str, wanted: bytes, found: bytes) -> None:
        reason = f"it was deleted and created again: its id was {uuid_text(wanted)} and is {uuid_text(found)}"
        super().__init__(f"topic {topic!r}", ErrorCode.INCONSISTENT_TOPIC_ID, reason)


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or a text with the number when it is unknown."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def only(results: Sequence[T], subject: str) -> T:
    """Return the result of an answer that must have exactly one.

    Raises:
        NotKafka: the answer has none, or several.
    """
    if len(results) != 1:
        raise NotKafka(f"{subject}: the answer has {len(results)} results instead of one")
    return results[0]


def all_found(results: Mapping[K, T | Refused]) -> dict[K, T]:
    """Return the results of a request about several things, if all of them were found.

    Raises:
        Refused: the first result that is an error.
    """
    found: dict[K, T] = {}
    for key, result in results.items():
        if isinstance(result, Refused):
            raise result
        found[key] = result
    return found


def check(subject: str, code: int, message: str | None = None) -> None:
    """Raise ``Refused`` unless the code is success."""
    if code != ErrorCode.NONE:
        raise Refused(subject, code, message)
