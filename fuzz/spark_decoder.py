"""Throws broken logs at Spark's decoder, whose fast engine works on raw addresses.

Logs of a few batches are built here, of every codec, with gaps, markers and aborted transactions, and then a batch of
each is broken as in ``fuzz.records``: in the header, in the compressed block, and in the records before they are
compressed, mostly with the CRC put right again. Asked for every one:

* nothing but ``CorruptData`` escapes, and the process lives,
* the engines give the same rows, or refuse with the same words,
* they give the rows that ``kafka_wire.records`` reads, and refuse what it refuses (its limits on the number of records
  and headers are far beyond what is built here), and beyond that only timestamps that have no microseconds,
* it is done within ``MAX_SECONDS`` of processor time.

    python -m fuzz.spark_decoder --seconds 60 --seed 1

The same seed tries the same logs in the same order. A finding is printed with the bytes that caused it, and the exit
status is then 1. What a finding cannot show is a read beyond the memory that hits something of ours: for that, blocks
end at the end of a page that nobody may read behind, every other time.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import random
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import attrs
import cramjam
import lz4.frame
import pyarrow as pa

from fuzz.records import MAX_INFLATED_BYTES, Statistics, broken, broken_batch, clock_ticks, random_records
from kafka_wire.errors import KafkaError
from kafka_wire.limits import MAX_OFFSET
from kafka_wire.records.batch import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    RecordBatch,
    TimestampType,
    assemble_batch,
    build_batch,
    read_batch_header,
    read_batches,
)
from kafka_wire.records.compression import Codec, decompress
from kafka_wire.records.control import EndTransactionMarker, build_control_batch, read_control_record
from kafka_wire.records.record import NewRecord, Record
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.batch_table import BatchTable, scan_batches
from trio_broker.spark.chunk import AbortedTransactionStart, Chunk, Decoding
from trio_broker.spark.decoder import Engine, decode
from trio_broker.spark.errors import CorruptData
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.schema import COLUMNS, arrow_schema

PARTITION: Final = TopicPartition("orders", 3)

MAX_SECONDS: Final = 1.0
"""Processor time for one log in one engine. Ours are a few kilobytes and take some milliseconds."""

MAX_MICROSECONDS: Final = 2**63 - 1

PROT_NONE: Final = 0


@attrs.frozen
class Log:
    """Batches one behind the other, and what a task is to make of them."""

    data: bytes
    offsets: OffsetRange
    decoding: Decoding
    aborted: tuple[AbortedTransactionStart, ...] = ()


@attrs.frozen
class Finding:
    """A log that was not decoded as it should be."""

    log: Log
    problem: str

    def __str__(self) -> str:
        log = self.log
        return f"{self.problem}\n  {log.offsets} {log.decoding} {log.aborted}\n  {log.data[:4096].hex()}"


# --- Logs ---


def random_batches(chance: random.Random) -> tuple[list[bytes], list[AbortedTransactionStart]]:
    """Return one to eight intact batches of one partition, and the transactions among them that were aborted.

    Half of the logs have one codec only, since zstd frames that follow one another are inflated together.
    """
    codecs = tuple(Codec) if chance.random() < 0.5 else (chance.choice(tuple(Codec)),)
    batches: list[bytes] = []
    aborted: list[AbortedTransactionStart] = []
    began: dict[int, int] = {}
    offset = chance.choice((0, 5, 2**40))
    for _ in range(chance.randint(1, 8)):
        batch = random_batch(chance, offset, began, codecs)
        header = read_batch_header(batch)
        if header.is_control:
            (record,) = RecordBatch(header, memoryview(batch)).records()
            marker = read_control_record(record)
            assert isinstance(marker, EndTransactionMarker)
            if (first := began.pop(header.producer_id, None)) is not None and not marker.committed:
                aborted.append(AbortedTransactionStart(header.producer_id, first))
        elif header.is_transactional:
            began.setdefault(header.producer_id, offset)
        batches.append(batch)
        offset = header.next_offset + chance.choice((0, 0, 1, 40))
    return batches, aborted


def random_batch(chance: random.Random, offset: int, began: dict[int, int], codecs: Sequence[Codec]) -> bytes:
    """Return an intact batch: with or without gaps, codec, producer; or the marker of a transaction that ``began``."""
    producer_id = chance.choice((-1, 7, 8))
    if began and chance.random() < 0.4:
        marker = EndTransactionMarker(committed=chance.random() < 0.5, coordinator_epoch=1)
        return build_control_batch(marker, timestamp=5, base_offset=offset, producer_id=chance.choice(list(began)))
    records: Sequence[Record | NewRecord] = random_records(chance)
    if chance.random() < 0.3:
        deltas = sorted(chance.sample(range(300), len(records)))
        records = [
            Record(offset + delta, one.timestamp, one.key, one.value, one.headers)
            for delta, one in zip(deltas, records, strict=True)
        ]
    batch = build_batch(
        records,
        base_offset=offset,
        codec=chance.choice(codecs),
        timestamp_type=chance.choice((TimestampType.CREATE_TIME, *TimestampType)),
        producer_id=producer_id,
        transactional=producer_id >= 0 and chance.random() < 0.7,
    )
    batch = framed_by_others(batch) if chance.random() < 0.5 else batch
    return cleaned(batch, chance) if chance.random() < 0.2 else batch


def framed_by_others(batch: bytes) -> bytes:
    """Return ``batch`` with lz4 in a frame that has its size and a checksum, as clients in Python may write it, and
    with zstd as Java's producers write it, without its size.

    That is read in other ways than what we write.
    """
    header, block = read_batch_header(batch), batch[BATCH_HEADER_BYTES:]
    match header.attributes & CODEC_MASK:
        case Codec.LZ4:
            records = decompress(Codec.LZ4, block)
            return assemble_batch(header, lz4.frame.compress(records, content_checksum=True))
        case Codec.ZSTD:
            compressor = cramjam.zstd.Compressor(level=3)
            compressor.compress(decompress(Codec.ZSTD, block))
            return assemble_batch(header, bytes(compressor.finish()))
        case _:
            return batch


def cleaned(batch: bytes, chance: random.Random) -> bytes:
    """Return ``batch`` as compaction may leave it: empty, or with a delete horizon; its last offset stays or grows."""
    header, block = read_batch_header(batch), batch[BATCH_HEADER_BYTES:]
    header.last_offset_delta += chance.choice((0, 1, 100))
    if chance.random() < 0.3:
        header.record_count, header.base_timestamp, block = 0, -1, b""
    else:
        header.attributes |= DELETE_HORIZON_BIT
    return assemble_batch(header, block)


def random_log(chance: random.Random, batches: Sequence[bytes], aborted: Sequence[AbortedTransactionStart]) -> Log:
    """Return ``batches`` with a range and a way of decoding, of which half take everything."""
    data = b"".join(batches)
    first, last = 0, MAX_OFFSET
    decoding = Decoding(COLUMNS, max_inflated_bytes=MAX_INFLATED_BYTES)
    if chance.random() < 0.5:
        known = [offset for batch in read_whole(data) for offset in (batch.base_offset, batch.last_offset)] or [0]
        first = min(max(0, chance.choice(known) + chance.randrange(-3, 4)), MAX_OFFSET)
        last = max(first, min(chance.choice(known) + chance.randrange(1, 90), MAX_OFFSET))
        decoding = Decoding(
            tuple(chance.sample(COLUMNS, chance.randint(1, len(COLUMNS)))),
            read_committed=chance.random() < 0.7,
            verify_crc=chance.random() < 0.5,
            batch_rows=chance.choice((1, 3, 50, 100_000)),
            batch_bytes=chance.choice((1, 100, 3000, 2**40)),
            max_inflated_bytes=MAX_INFLATED_BYTES,
        )
    return Log(data, OffsetRange(PARTITION, first, last), decoding, tuple(aborted))


def read_whole(data: bytes) -> list[BatchHeader]:
    """Return the headers of the batches up to the first damage."""
    table = scan_batches(data)
    return [batch.header for batch in read_batches(data[: table.consumed_bytes])]


# --- Reading them ---


def decoded(log: Log, engine: Engine, data: memoryview | None = None) -> pa.Table | str:
    """Return what ``engine`` makes of ``log``: a table, or the words it refuses it with."""
    view = memoryview(log.data) if data is None else data
    table = scan_batches(view)
    chunks = [Chunk(view[: table.consumed_bytes], table, "a fuzzer", log.aborted)]
    try:
        batches = list(decode(chunks, log.offsets, log.decoding, engine=engine))
    except CorruptData as error:
        return str(error)
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, arrow_schema(log.decoding.columns))


def expected(log: Log) -> pa.Table | str:
    """Return what ``kafka_wire`` makes of ``log``, record by record; the words of a refusal do not count."""
    table, schema = scan_batches(log.data), arrow_schema(log.decoding.columns)
    rows: list[dict[str, object]] = []
    if log.offsets.offset_count == 0:
        return schema.empty_table()
    try:
        for batch in committed(log, table):
            if log.decoding.verify_crc:
                batch.verify_crc()
            rows += [
                row_of(record, batch.header, log.decoding)
                for record in batch.records(max_bytes=log.decoding.max_inflated_bytes)
                if log.offsets.start_offset <= record.offset < log.offsets.end_offset
            ]
    except (KafkaError, OverflowError) as error:
        return f"refused: {error}"
    if table.damage is not None and (max(log.offsets.start_offset, table.next_offset or 0) < log.offsets.end_offset):
        return f"refused: {table.damage}"
    return pa.Table.from_arrays(
        [pa.array([row[name] for row in rows], schema.field(name).type) for name in schema.names], schema=schema
    )


def committed(log: Log, table: BatchTable) -> Iterator[RecordBatch]:
    """Yield the batches that have to be read: those in the range that hold no markers, nor what was aborted."""
    ahead, void = list(log.aborted) if log.decoding.read_committed else [], set[int]()
    for batch in read_batches(log.data[: table.consumed_bytes]):
        header = batch.header
        if header.is_transactional:
            void |= {one.producer_id for one in ahead if one.first_offset <= header.last_offset}
            ahead = [one for one in ahead if one.first_offset > header.last_offset]
        if header.is_control:
            if header.is_transactional and header.producer_id in void and is_abort(batch, log):
                void.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in void:
            pass
        elif header.record_count == 0 and header.size_bytes == BATCH_HEADER_BYTES:
            pass  # emptied by compaction: there is nothing whose checksum would matter
        elif header.last_offset >= log.offsets.start_offset and header.base_offset < log.offsets.end_offset:
            yield batch


def is_abort(batch: RecordBatch, log: Log) -> bool:
    """Whether this control batch aborts its producer's transaction."""
    if log.decoding.verify_crc:
        batch.verify_crc()
    markers = [read_control_record(one) for one in batch.records(max_bytes=log.decoding.max_inflated_bytes)]
    return any(isinstance(marker, EndTransactionMarker) and not marker.committed for marker in markers)


def row_of(record: Record, header: BatchHeader, decoding: Decoding) -> dict[str, object]:
    """Return the row of ``record``.

    Raises:
        OverflowError: the timestamp is asked for, and does not fit into microseconds.
    """
    microseconds = record.timestamp * 1000
    if "timestamp" in decoding.columns and not -MAX_MICROSECONDS - 1 <= microseconds <= MAX_MICROSECONDS:
        raise OverflowError(f"{microseconds} microseconds")
    headers = [
        {"key": key.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), "value": value}
        for key, value in record.headers
    ]
    return {
        "key": record.key,
        "value": record.value,
        "topic": PARTITION.topic,
        "partition": PARTITION.partition,
        "offset": record.offset,
        "timestamp": microseconds,
        "timestampType": int(header.timestamp_type),
        "headers": headers or None,
    }


class GuardedMemory:
    """A copy of some bytes that ends where memory does: a read behind it ends the process."""

    def __init__(self, data: bytes) -> None:
        pages = -(-len(data) // mmap.PAGESIZE)
        self._memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        guard = ctypes.addressof(ctypes.c_char.from_buffer(self._memory, pages * mmap.PAGESIZE))
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(guard), ctypes.c_size_t(mmap.PAGESIZE), PROT_NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
        end = pages * mmap.PAGESIZE
        self.view = memoryview(self._memory)[end - len(data) : end]
        self.view[:] = data


# --- Judging them ---


def check(log: Log) -> str:
    """Return what is wrong with how ``log`` is decoded; nothing if all is as it should be."""
    guarded = GuardedMemory(log.data)
    fast, plain, reference = decoded(log, Engine.NUMBA, guarded.view), decoded(log, Engine.PLAIN), expected(log)
    if isinstance(fast, str) or isinstance(plain, str):
        if fast != plain:
            return f"numba: {fast}; plain: {plain}"
        if not isinstance(reference, str):
            return f"refused without need: {fast}"
    elif not fast.equals(plain):
        return "the engines differ"
    elif isinstance(reference, str):
        # Headers that are not selected are not decoded.
        return reference if "headers" in log.decoding.columns else ""
    elif not fast.equals(reference):
        return "the engines agree, and differ from kafka_wire"
    return ""


def try_log(log: Log, statistics: Statistics) -> Finding | None:
    """Decode ``log`` in every way; return what went wrong other than as expected."""
    began = time.process_time()
    statistics.tried += 1
    try:
        problem = check(log)
        statistics.valid += isinstance(expected(log), pa.Table)
    except Exception as error:
        problem = repr(error)
    seconds = time.process_time() - began
    if not problem and seconds > MAX_SECONDS:
        problem = f"took {seconds:.1f} s"
    return Finding(log, problem) if problem else None


def broken_log(batches: Sequence[bytes], chance: random.Random) -> list[bytes]:
    """Return ``batches`` with one of them broken, or the last one cut short."""
    out = list(batches)
    index = chance.randrange(len(out))
    if chance.random() < 0.1:
        return [*out[:-1], out[-1][: chance.randrange(len(out[-1]))]]
    whole, other = out[index], chance.choice(batches)
    # There is no block to break in a batch that compaction emptied.
    damaged = (broken if len(whole) == BATCH_HEADER_BYTES else broken_batch)(whole, other, chance)
    if chance.random() < 0.5 and len(damaged) >= LOG_OVERHEAD_BYTES:
        damaged = whole[:8] + damaged[8:]  # offsets that go back would hide all other damage
    out[index] = damaged
    return out


def fuzz(seed: int, rounds: Iterable[object], statistics: Statistics) -> Iterator[Finding]:
    """Make a log each round, decode it as it is and broken in several ways, and yield the findings."""
    chance = random.Random(seed)
    for _ in rounds:
        batches, aborted = random_batches(chance)
        candidates = [batches, *(broken_log(batches, chance) for _ in range(4))]
        for candidate in candidates:
            if finding := try_log(random_log(chance, candidate, aborted), statistics):
                yield finding


def main() -> int:
    """Run from the command line; 1 if there was a finding."""
    parser = argparse.ArgumentParser(description="Fuzz the Spark source's decoder.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    statistics = Statistics()
    found = 0
    for finding in fuzz(arguments.seed, clock_ticks(arguments.seconds), statistics):
        print(finding, flush=True)
        found += 1
    print(f"{statistics.tried} logs tried, {statistics.valid} valid, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
