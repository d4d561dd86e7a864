"""What the handlers of transactional requests share.

Source: Kafka's KafkaApis.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError


def in_version(error: KafkaError, version: int, *, fenced_since: int) -> KafkaError:
    """``error`` as a client of this version knows it: PRODUCER_FENCED is as old as KIP-588."""
    if error.code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return KafkaError(str(error), code=ErrorCode.INVALID_PRODUCER_EPOCH)
    return error
