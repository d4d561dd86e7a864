"""Raw record batches on their way from a transport to the decoder, and the settings that the decoder reads them by.

Transports (``wire``, ``files``) and the ``decoder`` know these classes and not each other.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Protocol

import attrs

from kafka_wire.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from trio_broker.spark.ranges import OffsetRange

if TYPE_CHECKING:
    from trio_broker.spark.batch_table import BatchTable

DEFAULT_BATCH_ROWS = 16_384
"""Rows of one Arrow batch. From 4,000 to 64,000 Spark reads them equally fast; more only costs memory."""

DEFAULT_BATCH_BYTES = 4 * 1024 * 1024
"""Keys and values of one Arrow batch. Large records fill it before ``DEFAULT_BATCH_ROWS``; Spark is fastest with 1 to
4 MiB."""


@attrs.frozen
class AbortedTransactionStart:
    """An aborted transaction: records of ``producer_id`` from ``first_offset`` up to its next abort marker are void."""

    producer_id: int
    first_offset: int


@attrs.frozen
class Chunk:
    """Whole record batches as they lie in the log, back to back; bytes behind the last whole one are ignored.

    ``table`` has their headers, as ``batch_table.scan_batches(data)`` reads them. The first batches may lie before the
    requested range, and the last ones behind it. ``aborted`` are transactions that no earlier chunk named; ``origin``
    is the broker or file that the bytes are from, for errors. ``data`` is valid until the next chunk is requested.

    A chunk continues the one before, unless ``resumes_at`` is set. Then it stands for itself, as a response of a broker
    does: records before that offset are no rows, because they were read or are lost, and of all aborted transactions
    named so far only those in this chunk's ``aborted`` still count.
    """

    data: memoryview
    table: BatchTable
    origin: str
    aborted: tuple[AbortedTransactionStart, ...] = ()
    resumes_at: int | None = None


class Transport(Protocol):
    """A way to read the bytes of a range. Picklable, since it is sent to the workers."""

    def chunks(self, offsets: OffsetRange) -> Generator[Chunk, None, None]:
        """Yield chunks in the order of their offsets until ``offsets`` is covered; closing the generator frees all.

        Raises:
            DataLoss: the range begins before the log does, or part of it is gone.
            SourceUnavailable: no broker answers, or no file can be read.
            CorruptData: the bytes are no record batches.
        """
        ...


@attrs.frozen
class Decoding:
    """How raw batches are decoded.

    ``columns`` are names of ``schema.COLUMNS`` in the order of the result; other columns are not decoded. With
    ``read_committed`` the records of aborted transactions are left out. ``verify_crc`` compares every batch's checksum.
    A yielded Arrow batch has up to ``batch_rows`` rows and about ``batch_bytes`` bytes; a larger record comes alone.
    ``max_inflated_bytes`` bounds what one compressed batch may inflate to.
    """

    columns: tuple[str, ...]
    read_committed: bool = True
    verify_crc: bool = True
    batch_rows: int = DEFAULT_BATCH_ROWS
    batch_bytes: int = DEFAULT_BATCH_BYTES
    max_inflated_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
