"""Which failures of a fetch another attempt may overcome, and which of them mean lost records.

Source: Kafka's FetchCollector.handleInitializeErrors, and RetriableException for the codes.
"""

from __future__ import annotations

import enum
from typing import Final

from kafka_wire.error_codes import ErrorCode
from trio_broker.client.errors import (
    ClientError,
    ConnectFailed,
    ConnectionLost,
    NotKafka,
    Refused,
    TimedOut,
    TopicReplaced,
)
from trio_broker.client.kafka_client import NOT_NOW, PERHAPS_DONE


class FailureKind(enum.Enum):
    """What a reader does after a failure: try again, find out what is lost, or fail."""

    RETRIABLE = enum.auto()
    MISSING = enum.auto()
    REPLACED = enum.auto()
    OUT_OF_RANGE = enum.auto()
    CORRUPT = enum.auto()
    FATAL = enum.auto()


FAILURE_KINDS: Final = {
    **dict.fromkeys(NOT_NOW | PERHAPS_DONE, FailureKind.RETRIABLE),
    ErrorCode.BROKER_NOT_AVAILABLE: FailureKind.RETRIABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: FailureKind.RETRIABLE,
    ErrorCode.UNKNOWN_SERVER_ERROR: FailureKind.RETRIABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: FailureKind.MISSING,
    ErrorCode.UNKNOWN_TOPIC_ID: FailureKind.MISSING,
    ErrorCode.INCONSISTENT_TOPIC_ID: FailureKind.MISSING,
    ErrorCode.OFFSET_OUT_OF_RANGE: FailureKind.OUT_OF_RANGE,
    ErrorCode.CORRUPT_MESSAGE: FailureKind.CORRUPT,
}


def failure_kind(error: ClientError) -> FailureKind:
    """Return the kind of a failed request. Codes that are not listed, such as a missing permission, are fatal."""
    match error:
        case TopicReplaced():
            return FailureKind.REPLACED
        case Refused():
            return FAILURE_KINDS.get(error.code, FailureKind.FATAL)  # type: ignore[call-overload,no-any-return]
        case ConnectFailed() | ConnectionLost() | TimedOut() | NotKafka():
            # While a broker restarts, another program may listen at its address.
            return FailureKind.RETRIABLE
    return FailureKind.FATAL
