"""Putting right what the checksum of a batch does not cover.

Base offset, length, leader epoch, magic and the checksum itself are 21 bytes before what it covers. Where the batches
around it leave only one value for each of the first four, and the checksum is right with these, nothing is lost.

But for one thing: a whole batch may stand where it does not belong, since a disk or a file system may show old blocks,
and then the neighbours say nothing of it. It is an older one of the log, or one of another log, so its offset differs
in any number of bits, and neither its time nor its producer's sequence goes on.

Source: docs/decisions/0062.
"""

from __future__ import annotations

import struct

from kafka_wire.records.batch import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    RecordBatch,
    TimestampType,
    read_batch_header,
)
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.storage.producer_state import ProducerEntry, sequence_after

DAMAGED_MAGIC = b"\x7f"
"""Stands in the place of the magic of a batch whose checksum is known to be wrong: from then on no reader takes it for
a batch, whether it looks at checksums or not. The magic is known, so no byte is lost by it."""


MAX_DAMAGED_BITS = 8
"""Bits of base offset and leader epoch that may be wrong together where the producer's sequence tells whose batch it
is: as many as a byte has."""

MAX_UNCONFIRMED_BITS = 2
"""The same where nothing tells it: two offsets of different logs seldom differ in so few."""

# Base offset, length, leader epoch, magic.
_PREFIX = struct.Struct(">qiib")


def put_right(data: bytes | bytearray, base_offset: int, next_offset: int | None, leader_epoch: int) -> bytes | None:
    """Return the first bytes of the header with which ``data`` is the batch at ``base_offset``, None for no such batch.

    ``next_offset`` is where the next batch begins; None where there is none. What an earlier start has found damaged
    stays so: what speaks against it may be deleted since.
    """
    if len(data) < BATCH_HEADER_BYTES or data[MAGIC_POSITION] == DAMAGED_MAGIC[0]:
        return None
    prefix = _PREFIX.pack(base_offset, len(data) - LOG_OVERHEAD_BYTES, leader_epoch, 2)
    whole = bytearray(data)
    whole[: len(prefix)] = prefix
    try:
        batch = RecordBatch(read_batch_header(whole), memoryview(whole))
        batch.verify_crc()
    except CorruptRecordBatch:
        return None
    return prefix if next_offset is None or batch.header.next_offset == next_offset else None


def damaged_bits(found: bytes | bytearray | memoryview, header: BatchHeader) -> int:
    """In how many bits the base offset and the leader epoch that ``found`` begins with differ from those of ``header``.

    0 where the base offset is the same: that the batch belongs there is then as sure as of any other, and its epoch may
    be of a leader that the metadata has lost.
    """
    base_offset: int
    epoch: int
    base_offset, _, epoch, _ = _PREFIX.unpack_from(found)
    if base_offset == header.base_offset:
        return 0
    changed_offset, changed_epoch = base_offset ^ header.base_offset, epoch ^ header.partition_leader_epoch
    return (changed_offset & 2**64 - 1).bit_count() + (changed_epoch & 2**32 - 1).bit_count()


def most_damaged_bits(header: BatchHeader, producer: ProducerEntry | None, *, may_have_gaps: bool) -> int:
    """In how many bits a batch may be damaged before what its checksum covers, to be the next one of its producer.

    ``producer`` is as it was before it, None if it was not known; with ``may_have_gaps`` compaction may have taken
    batches of it. 0 is for a batch that cannot be the next one.
    """
    if header.producer_id < 0:
        return MAX_UNCONFIRMED_BITS
    if producer is None:
        return MAX_UNCONFIRMED_BITS if header.base_sequence == 0 else 0
    if header.is_control:
        return MAX_UNCONFIRMED_BITS if header.producer_epoch >= producer.producer_epoch else 0
    if header.producer_epoch != producer.producer_epoch:
        begins = header.base_sequence == 0 or may_have_gaps
        return MAX_UNCONFIRMED_BITS if begins and header.producer_epoch > producer.producer_epoch else 0
    if header.base_sequence == sequence_after(producer.last_sequence):
        return MAX_DAMAGED_BITS
    return MAX_UNCONFIRMED_BITS if may_have_gaps and header.base_sequence > producer.last_sequence else 0


def first_timestamp(header: BatchHeader) -> int:
    """The time of the first record of a batch, -1 where its header does not say it."""
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        return header.max_timestamp
    return NO_TIMESTAMP if header.has_delete_horizon else header.base_timestamp
