"""The exceptions of single requests from what Kafka calls retriable (``kafka_wire.error_codes.RETRIABLE``).

Source: Kafka's Sender.completeBatch and canRetry, TransactionManager.canRetry, FetchCollector.handleInitializeErrors;
KIP-98, KIP-360.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.error_codes import RETRIABLE, ErrorCode
from trio_broker.client.errors import ClientError, Refused, TlsFailed, VersionNotServed, WriteFailed

MISSING_TOPIC: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)
"""The topic does not exist, or the broker has not learnt of it yet."""

PERHAPS_DONE: Final = frozenset(
    {ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION}
)
"""Codes after which the change may still happen, or has happened: only idempotent requests are repeated. A batch that
is sent again with the same sequence is recognised."""

RETRIED_BY_COMMANDS: Final = (
    RETRIABLE
    - MISSING_TOPIC
    - {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    }
)
"""Codes after which a command repeats its request. A missing topic is most often a misspelt one, and reported at once;
so is a failed disk, which needs an operator. Of an election the codes are the result."""

RETRIED_BY_READERS: Final = (RETRIABLE - {ErrorCode.CORRUPT_MESSAGE}) | {
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""Codes of Fetch after which a reader goes on, as Kafka's consumer does after UNKNOWN_SERVER_ERROR. CORRUPT_MESSAGE is
about what the disk has. BROKER_NOT_AVAILABLE is this client's own: the leader is not among the live brokers yet."""

RETRIED_BY_PRODUCERS: Final = RETRIABLE | {ErrorCode.BROKER_NOT_AVAILABLE}
"""Codes of a coordinator after which a producer asks again; BROKER_NOT_AVAILABLE as for readers."""


def is_retried_by_producers(error: Exception) -> bool:
    """Whether a producer asks a coordinator, or for metadata, again: not where it is refused for good, as at login."""
    if isinstance(error, Refused):
        return error.code in RETRIED_BY_PRODUCERS
    return isinstance(error, ClientError) and not isinstance(error, (TlsFailed, VersionNotServed, WriteFailed))


TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""Codes after which a batch is split: it is larger than the topic's ``max.message.bytes`` or than its segment."""

SEQUENCE_LOST: Final = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "the broker has lost records that it acknowledged, or its state of this"
    " producer",
    ErrorCode.UNKNOWN_PRODUCER_ID: "the broker has forgotten this producer: its records were deleted, or it was idle"
    " for longer than producer.id.expiration.ms",
    ErrorCode.INVALID_PRODUCER_EPOCH: "another producer took over this one's id",
    ErrorCode.PRODUCER_FENCED: "another producer took over this one's id",
}
"""Codes that say that broker and producer disagree about the sequence, and their meaning. Nothing is sent again, since
the records might then be in the log twice. Kafka's producer fails the batch too, but then takes a new epoch (KIP-360)
and goes on."""
