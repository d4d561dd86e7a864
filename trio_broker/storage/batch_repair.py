"""Putting right what the checksum of a batch does not cover.

Base offset, length, leader epoch, magic and the checksum itself are 21 bytes before what it covers. Where the batches
around it leave only one value for each of the first four, and the checksum is right with these, nothing is lost.
"""

from __future__ import annotations

import struct

from kafka_wire.records.batch import BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES, RecordBatch, read_batch_header
from kafka_wire.records.errors import CorruptRecordBatch

DAMAGED_MAGIC = b"\x7f"
"""Stands in the place of the magic of a batch whose checksum is known to be wrong: from then on no reader takes it for
a batch, whether it looks at checksums or not. The magic is known, so no byte is lost by it."""

MAGIC_POSITION = 16

# Base offset, length, leader epoch, magic.
_PREFIX = struct.Struct(">qiib")


def put_right(data: bytes | bytearray, base_offset: int, next_offset: int | None, leader_epoch: int) -> bytes | None:
    """Return the first bytes of the header with which ``data`` is the batch at ``base_offset``, None for no such batch.

    ``next_offset`` is where the next batch begins; None where there is none.
    """
    if len(data) < BATCH_HEADER_BYTES:
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
