"""What storage refuses, and how it says that the disk or a data directory is no good.

Three families, because three different people act on them:

* ``KafkaError`` subclasses are answers to a client. They carry Kafka's error code and change nothing in the log. What
  is wrong inside a batch has its classes in ``kafka_wire.records.errors``.
* ``StorageFailed`` is an ``OSError``: the disk broke a promise. The log it comes from accepts nothing more; where the
  error means a broken disk, the floor above takes the directory offline. It is never retried, since after a failed
  fsync the kernel may have thrown the dirty pages away and a second fsync would report success about data that is gone.
* ``DataDirectoryError`` ends the start of the broker with one line for the person who started it.

Source: Kafka's ``Errors`` and ``LogValidator``.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.runtime.descriptors import NO_DESCRIPTORS


class OffsetOutOfRange(KafkaError):
    """The offset is before the log start offset or behind the log end offset."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE


class MessageTooLarge(KafkaError):
    """The batch is larger than ``max.message.bytes``."""

    code = ErrorCode.MESSAGE_TOO_LARGE


class RecordListTooLarge(KafkaError):
    """The batches of one append are larger than a segment may be."""

    code = ErrorCode.RECORD_LIST_TOO_LARGE


class OffsetsExhausted(KafkaError):
    """The log has come to the end of all offsets, and has none left for the batch; no retry will find one."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class InvalidTimestamp(KafkaError):
    """A record's timestamp lies outside the window the topic allows, or the client set LogAppendTime itself."""

    code = ErrorCode.INVALID_TIMESTAMP


@attrs.frozen
class RecordError:
    """Why one record of a batch is refused; ``batch_index`` counts the records of the batch from 0."""

    batch_index: int
    message: str

    def __str__(self) -> str:
        return f"RecordError(batchIndex={self.batch_index}, message='{self.message}')"


class RecordValidationError(KafkaError):
    """A batch is refused because of some of its records; ``record_errors`` names those to blame (KIP-467).

    ``count`` is how many they are, which may be more than ``record_errors`` holds. The text is Kafka's. The code is
    INVALID_TIMESTAMP if the time of any record is wrong, INVALID_RECORD otherwise.

    Source: Kafka's RecordValidationException and LogValidator.processRecordErrors.
    """

    def __init__(self, record_errors: Sequence[RecordError], count: int, code: ErrorCode) -> None:
        if code is ErrorCode.INVALID_TIMESTAMP:
            text = "One or more records have been rejected due to invalid timestamp"
        else:
            shown = ", ".join(map(str, record_errors[:3]))
            text = (
                f"One or more records have been rejected due to {count} record errors in total, and only showing the"
                f" first three errors at most: [{shown}]"
            )
        super().__init__(text, code=code)
        self.record_errors = record_errors


class OutOfOrderSequence(KafkaError):
    """A producer's batch does not follow the last one: something before it was lost or came out of order."""

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpoch(KafkaError):
    """A producer with an older epoch writes: it was fenced by a newer one."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionState(KafkaError):
    """A plain write in the middle of the same producer's transaction."""

    code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFenced(KafkaError):
    """A transaction marker from a coordinator that has been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class UnsupportedCompressionType(KafkaError):
    """The client's version of Produce does not allow the codec."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class LogClosed(KafkaError):
    """The log was closed or deleted while a caller still held it; the caller looks up the partition again."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class LogUnusable(KafkaError):
    """The partition's directory is there and could not be opened; nothing is put in its place."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class FencedLeaderEpoch(KafkaError):
    """Someone appends who was replaced as leader: the log has batches of a newer epoch."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(KafkaError):
    """A replicated batch is of a later leader epoch than the leader that it was fetched from."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class UnexpectedAppendOffset(KafkaError):
    """A replicated batch would overwrite offsets the log already has, or its offsets run backwards."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class StorageFailed(OSError):
    """The disk failed in a way that leaves the state of the file unknown. Final for the log it comes from."""


DISK_FAILURE_ERRNOS = frozenset(
    {errno.EIO, errno.EROFS, errno.ENXIO, errno.ENODEV, errno.ENOMEDIUM, errno.EREMOTEIO, errno.ESTALE, errno.EUCLEAN}
)
"""What the system says of a disk that is broken, gone or mounted read-only after an error of its own. Anything else is
about one file or one call: a full disk, too few descriptors, a file without its rights, or a mistake of ours."""


def is_disk_failure(error: OSError) -> bool:
    """Whether ``error`` means that the disk is broken, which costs the whole log directory."""
    return error.errno in DISK_FAILURE_ERRNOS


def is_log_failure(error: OSError) -> bool:
    """Whether ``error`` costs the log it comes from: the disk is broken, or storage calls it final."""
    return isinstance(error, StorageFailed) or is_disk_failure(error)


SPACE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})

SHORTAGE_ERRNOS = SPACE_ERRNOS | NO_DESCRIPTORS | {errno.ENOMEM}
"""What passes by itself, or when an operator has made room: the same works then."""


def is_shortage(error: BaseException) -> bool:
    """Whether ``error`` means that space, descriptors or memory were lacking."""
    return isinstance(error, OSError) and error.errno in SHORTAGE_ERRNOS


class StorageShortage(KafkaError):
    """The log of a partition could not be opened for a shortage. It is tried again."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class DataDirectoryError(Exception):
    """A data directory cannot be used; the message is one line that says which and why."""


class DirectoryUnusable(DataDirectoryError):
    """The directory cannot be made, read or written, or its disk is not mounted. ``errno`` is what the system says."""

    def __init__(self, text: str, errno: int | None) -> None:
        super().__init__(text)
        self.errno = errno


class DirectoryLocked(DataDirectoryError):
    """Another process works in the directory."""


class ForeignDirectory(DataDirectoryError):
    """The directory holds something that no Kafka broker puts there, or belongs to another node or cluster."""


class CorruptCheckpoint(Exception):
    """A checkpoint file cannot be parsed; the caller decides what its absence costs."""


class CorruptSnapshot(Exception):
    """A producer snapshot has a wrong version, length or checksum; an older one is tried."""


class CorruptIndex(Exception):
    """An index file contradicts itself or its segment; it is rebuilt from the log."""
