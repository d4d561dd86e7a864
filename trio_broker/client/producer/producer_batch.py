"""Record batches as they are sent: with a producer's id and sequence, and split in halves if they are too large.

A batch that a broker refuses for its size was not appended, so its records keep their sequence numbers when it is
split: the first half has the batch's base sequence, and the second half continues after the first. The records are
decoded from the batch and encoded again, which is slow but rare.

Source: Kafka's ProducerBatch.split.
"""

from __future__ import annotations

from typing import Final

import attrs

from kafka_wire.limits import MAX_SEQUENCE
from kafka_wire.primitives import ReadableBuffer
from kafka_wire.records.batch import (
    BATCH_HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble_batch,
    build_batch,
    read_batches,
)
from kafka_wire.records.compression import MAX_DECOMPRESSED_BYTES, Codec
from kafka_wire.records.record import NewRecord, Record
from trio_broker.common.topic_partition import TopicPartition

MOST_RECORDS: Final = 500_000
"""The most records of one batch: half of the million at which readers of this package take a batch for an attack."""


@attrs.frozen(eq=False, repr=False)
class UnsequencedBatch:
    """Records of one partition, and the fields of the batch header except producer id, epoch and sequence.

    ``blocks`` are the encoded records, compressed if ``codec`` says so. The batch has them in this order.
    """

    partition: TopicPartition
    record_count: int
    base_timestamp: int
    max_timestamp: int
    codec: Codec
    blocks: tuple[ReadableBuffer, ...]

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch with its header."""
        return BATCH_HEADER_BYTES + sum(map(len, self.blocks))


@attrs.frozen(eq=False, repr=False)
class ProducerBatch:
    """A whole batch as bytes. They never change, so every attempt sends the same bytes with the same sequence."""

    partition: TopicPartition
    record_count: int
    base_sequence: int
    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data)


def encode_batch(
    batch: UnsequencedBatch,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    *,
    is_transactional: bool = False,
) -> ProducerBatch:
    """Return the bytes of ``batch`` with its header."""
    header = BatchHeader(
        base_offset=0,
        batch_length=batch.size_bytes - LOG_OVERHEAD_BYTES,
        partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=batch.codec | (TRANSACTIONAL_BIT if is_transactional else 0),
        last_offset_delta=batch.record_count - 1,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=batch.record_count,
    )
    return ProducerBatch(batch.partition, batch.record_count, base_sequence, assemble_batch(header, *batch.blocks))


def halves(batch: ProducerBatch) -> tuple[ProducerBatch, ProducerBatch]:
    """Split a batch of more than one record in two."""
    [whole] = read_batches(batch.data)
    header = whole.header
    records = [_new(record) for record in whole.records(max_bytes=MAX_DECOMPRESSED_BYTES)]
    middle = len(records) // 2

    def part(records: list[NewRecord], base_sequence: int) -> ProducerBatch:
        data = build_batch(
            records,
            codec=header.codec,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=base_sequence,
            transactional=header.is_transactional,
        )
        return ProducerBatch(batch.partition, len(records), base_sequence, data)

    # Sequences wrap round from 2**31 - 1 to 0 (KIP-98).
    second_sequence = batch.base_sequence
    if second_sequence != NO_SEQUENCE:
        second_sequence = (batch.base_sequence + middle) & MAX_SEQUENCE
    return part(records[:middle], batch.base_sequence), part(records[middle:], second_sequence)


def _new(record: Record) -> NewRecord:
    return NewRecord(record.timestamp, record.key, record.value, record.headers)
