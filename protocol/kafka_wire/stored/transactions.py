"""The records of ``__transaction_state``: what a transaction coordinator remembers of each transactional id.

Key and value are messages, each behind an int16: before the key the type of the record, of which there is one, before
the value its version. A record without a value is a tombstone: the transactional id has expired. The newest record of
each key is the whole state of the coordinator, which is why the topic may be compacted.

Values are written with version 1, as Kafka writes them from ``transaction.version`` 1 on; version 0, of an older
Kafka, has no tagged fields.

Source: Kafka's TransactionLogKey.json, TransactionLogValue.json and TransactionLog.
"""

from __future__ import annotations

import enum
from typing import Final

from kafka_wire.codec import decode_whole, encode_bytes
from kafka_wire.primitives import Int8, Int16, Int32, Int64, String
from kafka_wire.schema import field, message, struct
from kafka_wire.stored.record_frame import INT16_BYTES, leading_int16, with_int16


class TransactionStatus(enum.IntEnum):
    """The state of a transaction, numbered as the log has it."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


STATE_NAMES: Final = {
    TransactionStatus.EMPTY: "Empty",
    TransactionStatus.ONGOING: "Ongoing",
    TransactionStatus.PREPARE_COMMIT: "PrepareCommit",
    TransactionStatus.PREPARE_ABORT: "PrepareAbort",
    TransactionStatus.COMPLETE_COMMIT: "CompleteCommit",
    TransactionStatus.COMPLETE_ABORT: "CompleteAbort",
    TransactionStatus.DEAD: "Dead",
    TransactionStatus.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
"""Kafka's names, which its tools show and filter by."""


@message(key=0, versions="0", flexible="none")
class TransactionLogKey:
    """A transactional id."""

    transactional_id: String


@message(key=0, versions="0-1", flexible="1+")
class TransactionLogValue:
    """The producer that has a transactional id, and its newest transaction.

    The timeout is in milliseconds; timestamps are in milliseconds since 1970, the start -1 where no transaction has
    begun. ``transaction_partitions`` is None in the state EMPTY. ``next_producer_id`` and ``next_producer_epoch`` are
    what the producer goes on with where a transaction ends under another id than it had (KIP-890).
    """

    producer_id: Int64
    previous_producer_id: Int64 = field("1+", default=-1, tag=0)
    next_producer_id: Int64 = field("1+", default=-1, tag=1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = field("1+", default=-1, tag=3)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field("1+", default=0, tag=2)


@struct
class PartitionsSchema:
    topic: String
    partition_ids: list[Int32]


TRANSACTION_LOG_KEY_TYPE: Final = 0
TRANSACTION_LOG_VALUE_VERSION: Final = 1


def encode_transaction_record(key: TransactionLogKey, value: TransactionLogValue | None) -> tuple[bytes, bytes | None]:
    """Return the key and the value under which a transaction goes into ``__transaction_state``.

    Raises:
        ValueError: a value does not fit its field.
    """
    encoded_key = with_int16(TRANSACTION_LOG_KEY_TYPE, encode_bytes(key, 0))
    if value is None:
        return encoded_key, None
    version = TRANSACTION_LOG_VALUE_VERSION
    return encoded_key, with_int16(version, encode_bytes(value, version))


def decode_transaction_record(
    key: bytes | memoryview, value: bytes | memoryview | None
) -> tuple[TransactionLogKey, TransactionLogValue | None] | None:
    """Return the record that lies under ``key``, or None if it is of another type, which a newer Kafka may add.

    Raises:
        WireError: the key or the value does not decode, is of an unknown version, or has bytes left over; a record was
            written by a broker, so these would be damage.
    """
    if leading_int16(key, "transaction record's key") != TRANSACTION_LOG_KEY_TYPE:
        return None
    decoded_key = decode_whole(TransactionLogKey, 0, key, INT16_BYTES)
    if value is None:
        return decoded_key, None
    version = leading_int16(value, "TransactionLogValue")
    return decoded_key, decode_whole(TransactionLogValue, version, value, INT16_BYTES)
