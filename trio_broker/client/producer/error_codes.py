"""The error codes of Produce and InitProducerId, by what a producer does that must neither lose nor duplicate records.

Source: Kafka's Sender.completeBatch and canRetry, TransactionManager.canRetry, and the retriable exceptions among its
Errors; KIP-98, KIP-360.
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
"""Retriable codes: the batch was not appended, and may be soon, by this broker or another one. CORRUPT_MESSAGE is one
of them, because the bytes may have been damaged on the way."""

PERHAPS_APPENDED: Final = frozenset(
    {ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION}
)
"""Codes after which the batch may be in the log. Sending it again with the same sequence shows whether it is."""

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
"""Retriable codes of InitProducerId."""
