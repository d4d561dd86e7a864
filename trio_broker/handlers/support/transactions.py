"""What the handlers of transactional requests share.

Source: Kafka's KafkaApis.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError

NO_VERSION: Final = 1 << 15
"""Later than any version, which is an int16."""


def code_in(version: int, code: ErrorCode, *, fenced_since: int = NO_VERSION, abortable_since: int = 0) -> ErrorCode:
    """``code`` as a client of this version knows it.

    PRODUCER_FENCED is as old as KIP-588, and no code of Produce and TxnOffsetCommit; TRANSACTION_ABORTABLE is as old
    as KIP-890.
    """
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < abortable_since:
        return ErrorCode.INVALID_TXN_STATE
    return code


def in_version(error: KafkaError, version: int, *, fenced_since: int) -> KafkaError:
    """``error`` as a client of this version knows it."""
    code = code_in(version, error.code, fenced_since=fenced_since)
    return error if code is error.code else KafkaError(str(error), code=code)
