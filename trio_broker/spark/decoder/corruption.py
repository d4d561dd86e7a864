"""Errors of a damaged batch: the partition, the offset, where the bytes are from, and the reason."""

from __future__ import annotations

import attrs

from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import RecordBatch, read_batch_header
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.chunk import Chunk, Decoding
from trio_broker.spark.errors import CorruptData


@attrs.frozen(eq=False)
class PartitionChunk:
    """A chunk, and the partition whose records are in it."""

    partition: TopicPartition
    chunk: Chunk

    def batch(self, index: int) -> RecordBatch:
        """Return the batch in row ``index`` of the chunk's table."""
        table = self.chunk.table
        position, size = int(table.positions[index]), int(table.sizes[index])
        return RecordBatch(
            read_batch_header(self.chunk.data, position), self.chunk.data[position : position + size].toreadonly()
        )

    def corrupt(self, index: int, reason: object) -> CorruptData:
        """Return the error of the batch in row ``index``."""
        table = self.chunk.table
        offset, position = int(table.base_offsets[index]), int(table.positions[index])
        return CorruptData(
            self.partition, offset, f"{reason} (the batch at byte {position} of what came from {self.chunk.origin})"
        )

    def corrupt_crc(self, index: int) -> CorruptData:
        """Return the error for a batch whose checksum is wrong."""
        try:
            self.batch(index).verify_crc()
        except KafkaError as error:
            return self.corrupt(index, error)
        raise AssertionError(f"the checksum of the batch in row {index} is right")

    def corrupt_block(self, index: int, decoding: Decoding) -> CorruptData:
        """Return the error of a batch that an engine refused; engines give no reason.

        The reason is found by reading the batch once more, record by record, with the reference implementation.
        """
        batch = self.batch(index)
        offset = None
        try:
            if decoding.verify_crc:
                batch.verify_crc()
            for record in batch.records(max_bytes=decoding.max_inflated_bytes):
                offset = record.offset
        except KafkaError as error:
            return self.corrupt(index, error if offset is None else f"behind the record at offset {offset}: {error}")
        return self.corrupt(index, "a timestamp that does not fit into 64 bits as microseconds")


class CorruptBlock(Exception):
    """Raised by an engine: block ``index`` of those it got breaks the format."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index
