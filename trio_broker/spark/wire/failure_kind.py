"""Which failures of a fetch another attempt may overcome, and which of them mean lost records.

Source: Kafka's FetchCollector.handleInitializeErrors.
"""

from __future__ import annotations

import enum
from typing import Final

from kafka_wire.error_codes import ErrorCode
from trio_broker.client.error_codes import MISSING_TOPIC, RETRIED_BY_READERS
from trio_broker.client.errors import (
    ClientError,
    ConnectFailed,
    ConnectionLost,
    NotKafka,
    Refused,
    TimedOut,
    TopicReplaced,
)


class FailureKind(enum.Enum):
    """What a reader does after a failure: try again, find out what is lost, or fail."""

    RETRIABLE = enum.auto()
    MISSING = enum.auto()
    REPLACED = enum.auto()
    OUT_OF_RANGE = enum.auto()
    CORRUPT = enum.auto()
    FATAL = enum.auto()


FAILURE_KINDS: Final = {
    **dict.fromkeys(RETRIED_BY_READERS, FailureKind.RETRIABLE),
    **dict.fromkeys(MISSING_TOPIC, FailureKind.MISSING),
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
