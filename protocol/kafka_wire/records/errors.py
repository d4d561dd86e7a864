"""What can be wrong with a record batch.

Three refusals, all ``KafkaError``: the batch is damaged, its contents break the format, or they would grow too large.
``InvalidRecord`` is a ``CorruptRecordBatch`` because a reader of stored bytes treats both alike, while a producer must
distinguish them: it repeats a damaged batch, and must not repeat one that it built wrongly.

Source: Kafka's CorruptRecordException, InvalidRecordException, RecordTooLargeException and where they are thrown.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError


class CorruptRecordBatch(KafkaError):
    """The batch's frame is damaged: too short, an unknown magic, a wrong CRC. Retriable for a producer."""

    code = ErrorCode.CORRUPT_MESSAGE


class InvalidRecord(CorruptRecordBatch):
    """The batch may have come as it was sent, but what it holds is not what the format says.

    ``record_index`` is the place of the guilty record in the batch, for Produce's ``record_errors``; None when the
    whole batch is guilty.
    """

    code = ErrorCode.INVALID_RECORD

    def __init__(self, message: str = "", *, code: ErrorCode | None = None, record_index: int | None = None) -> None:
        super().__init__(message, code=code)
        self.record_index = record_index


class DecompressionTooLarge(KafkaError):
    """The compressed records would grow beyond what we allow, so inflating them was stopped or not begun.

    MESSAGE_TOO_LARGE rather than CORRUPT_MESSAGE: the bytes may be an honest producer's. The corrupt code is retriable,
    so that producer would send the same bytes until its delivery timeout. For a message that is too large, the Java
    producer splits a batch of several records and sends the halves, and others give up at once. Kafka itself has no
    such limit on this path, so there is no answer of its own to copy.
    """

    code = ErrorCode.MESSAGE_TOO_LARGE
