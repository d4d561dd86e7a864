"""What the error codes of Produce and InitProducerId mean to a producer that must neither lose nor double anything.

Source: Kafka's Sender.canRetry, ProducerBatch, and the retriable exceptions of its Errors; KIP-98, KIP-360.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.error_codes import ErrorCode

NOT_NOW: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Codes that say: not appended, and soon it may be, here or at another broker. Damage on the way counts among them."""

PERHAPS_APPENDED: Final = frozenset(
    {ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION}
)
"""Codes after which the batch may be in the log; sending it again finds out."""

TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

SEQUENCE_LOST: Final = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "the broker misses records that it had acknowledged, or lost its memory of"
    " this producer",
    ErrorCode.UNKNOWN_PRODUCER_ID: "the broker has forgotten this producer: its records were deleted, or it was idle"
    " for longer than producer.id.expiration.ms",
    ErrorCode.INVALID_PRODUCER_EPOCH: "another producer took over this one's id",
    ErrorCode.PRODUCER_FENCED: "another producer took over this one's id",
}
"""Codes of a disagreement, and what they mean. Nothing is sent again: it might come twice."""

INIT_NOT_NOW: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
    }
)
"""Codes after which a producer id is asked for again."""
