"""A log that lies in memory, and a transport that reads it as brokers do: by an index of some of its batches."""

from __future__ import annotations

from collections.abc import Generator, Iterable

import attrs

from kafka_wire.records.batch import build_batch
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import NewRecord
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.batch_table import scan_batches
from trio_broker.spark.chunk import Chunk, Decoding
from trio_broker.spark.errors import CorruptData
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.tasks import ReadTask

PARTITION = TopicPartition("orders", 0)


@attrs.frozen
class StoredBatch:
    """The bytes of a batch, damaged or not, and the offset that the index has for it."""

    base_offset: int
    data: bytes


def batch(base_offset: int, count: int = 3, *, codec: Codec = Codec.NONE, timestamp: int = 1000) -> StoredBatch:
    """A good batch."""
    records = [NewRecord(timestamp=timestamp, key=b"k%d" % number, value=b"v" * 20) for number in range(count)]
    return StoredBatch(base_offset, build_batch(records, base_offset=base_offset, codec=codec))


def with_wrong_checksum(good: StoredBatch) -> StoredBatch:
    return attrs.evolve(good, data=good.data[:-1] + bytes([good.data[-1] ^ 1]))


def with_wrong_header(good: StoredBatch) -> StoredBatch:
    """A batch whose magic does not exist, so that nobody knows where it ends."""
    return attrs.evolve(good, data=good.data[:16] + b"\x77" + good.data[17:])


@attrs.frozen
class InMemory:
    """Begins at the last batch of the index, every ``index_every``-th, that is not behind what was asked for.

    With ``raises`` the transport itself says what it cannot read, as those do that look at what they got.
    """

    batches: tuple[StoredBatch, ...]
    index_every: int = 1
    batches_per_chunk: int = 2
    raises: bool = False

    def chunks(self, offsets: OffsetRange) -> Generator[Chunk, None, None]:
        entries = range(0, len(self.batches), self.index_every)
        start = max((entry for entry in entries if self.batches[entry].base_offset <= offsets.start_offset), default=0)
        for first in range(start, len(self.batches), self.batches_per_chunk):
            if self.batches[first].base_offset >= offsets.end_offset:
                return
            data = b"".join(each.data for each in self.batches[first : first + self.batches_per_chunk])
            table = scan_batches(data)
            yield Chunk(memoryview(data), table, "memory")
            if table.damage and self.raises:
                raise CorruptData(offsets.partition, self.batches[first].base_offset, table.damage)


def task_on(transport: InMemory, start: int, end: int, columns: Iterable[str] = ("value",)) -> ReadTask:
    return ReadTask(OffsetRange(PARTITION, start, end), transport, Decoding(tuple(columns)))
