"""Raw record batches on their way from a transport to the decoder, and the settings that the decoder reads them by.

Transports (``wire``, ``files``) and the ``decoder`` know these classes and not each other.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Protocol

import attrs

from kafka_wire.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES

if TYPE_CHECKING:
    from trio_broker.spark.batch_table import BatchTable
from trio_broker.spark.ranges import OffsetRange

DEFAULT_BATCH_ROWS = 16_384
"""Rows of one Arrow batch. From 4,000 to 64,000 Spark takes them equally fast; more only costs memory."""

DEFAULT_BATCH_BYTES = 4 * 1024 * 1024
"""Keys and values of one Arrow batch. With large records this fills up first; 1 to 4 MiB is what Spark likes best."""


@attrs.frozen
class AbortedTransactionStart:
    """Records of ``producer_id`` from ``first_offset`` up to its next abort marker never happened."""

    producer_id: int
    first_offset: int


@attrs.frozen
class Chunk:
    """Whole record batches as they lie in the log, one after the other; what follows the last whole one is ignored.

    ``table`` has their headers, as ``batch_table.scan_batches(data)`` read them. The first batches may lie before the
    range that was asked for, and the last ones behind it. ``aborted`` are transactions that had not been told before;
    ``origin`` says where the bytes are from, for people. ``data`` is good until the next chunk is asked for.

    A chunk continues the one before, unless ``resumes_at`` is set. Then it stands for itself, as an answer of a broker
    does: nothing that lies before that offset is a row, because it was read or is lost, and of all transactions that
    were told only those of this chunk's ``aborted`` go on.
    """

    data: memoryview
    table: BatchTable
    origin: str
    aborted: tuple[AbortedTransactionStart, ...] = ()
    resumes_at: int | None = None


class Transport(Protocol):
    """How the bytes of a range come to a task. Picklable, since it travels to the workers."""

    def chunks(self, offsets: OffsetRange) -> Generator[Chunk, None, None]:
        """Yield chunks in the order of their offsets until ``offsets`` is covered; closing the generator frees all.

        Raises:
            DataLoss: the range begins before what is there, or what was there is gone.
            SourceUnavailable: nobody answers.
            CorruptData: what comes are no record batches.
        """
        ...


@attrs.frozen
class Decoding:
    """What to make of raw batches.

    ``columns`` are names of ``schema.COLUMNS`` in the order wanted; what is not named is not decoded. With
    ``read_committed`` the records of aborted transactions are left out. ``verify_crc`` compares every batch's checksum.
    A yielded Arrow batch has up to ``batch_rows`` rows and about ``batch_bytes`` bytes; a larger record comes alone.
    ``max_inflated_bytes`` bounds what one compressed batch may grow to.
    """

    columns: tuple[str, ...]
    read_committed: bool = True
    verify_crc: bool = True
    batch_rows: int = DEFAULT_BATCH_ROWS
    batch_bytes: int = DEFAULT_BATCH_BYTES
    max_inflated_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
