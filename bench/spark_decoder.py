"""The decoder of the Spark source: raw batches to Arrow batches, on one core, without Spark."""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial

import attrs
import cramjam

from bench.figures import Better, Repeats
from bench.outcome import Options, Outcome
from kafka_wire.records.batch import (
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    assemble_batch,
    build_batch,
    read_batch_header,
)
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import Header, NewRecord
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.batch_table import scan_batches
from trio_broker.spark.chunk import Chunk, Decoding
from trio_broker.spark.decoder import Engine, decode
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.schema import COLUMNS, default_columns

NOW_MS = 1_700_000_000_000
DISTINCT_BATCHES = 64
"""Built beforehand and repeated with their own offsets."""

LOG_BYTES = 96 << 20
"""Keys and values of one log: more than the caches hold."""

CHUNK_BYTES = 8 << 20
"""As large as a fetch response."""

KIB = 1024
ZSTD_LEVEL = 3

ALL_BUT_HEADERS = default_columns(include_headers=False)


@attrs.frozen
class Shape:
    """What a log is made of. With ``as_java`` zstd is framed as Java's producers do, without its inflated size."""

    value_bytes: int
    codec: Codec
    batch_bytes: int
    as_java: bool = False
    headers: tuple[Header, ...] = ()

    @property
    def name(self) -> str:
        """For the table."""
        size = "1 record" if self.batch_bytes == 0 else f"{self.batch_bytes // KIB} KiB"
        codec = self.codec.name.lower() + (" as Java" if self.as_java else "")
        return f"{self.value_bytes} B, {codec}, {size}" + (", a header" if self.headers else "")

    def log(self, options: Options) -> tuple[bytes, int]:
        """Return the batches of a log, and how many records are in them."""
        chance = random.Random(1)
        count = max(1, self.batch_bytes // (self.value_bytes + 24))
        distinct = [self.batch(chance, count) for _ in range(DISTINCT_BATCHES)]
        rows = options.volume(LOG_BYTES // (self.value_bytes + 16) // (1 if self.batch_bytes else 4))
        batches = [
            struct.pack(">q", index * count) + distinct[index % DISTINCT_BATCHES][8:]
            for index in range(max(1, rows // count))
        ]
        return b"".join(batches), len(batches) * count

    def batch(self, chance: random.Random, count: int) -> bytes:
        """Return one batch at offset 0."""
        records = [
            NewRecord(NOW_MS + 3 * index, b"key-%012d" % chance.randrange(10**6), self.value(chance), self.headers)
            for index in range(count)
        ]
        batch = build_batch(records, codec=Codec.NONE if self.as_java else self.codec)
        return zstd_as_java(batch) if self.as_java else batch

    def value(self, chance: random.Random) -> bytes:
        """Like JSON: words, numbers, and much that comes again."""
        fields: dict[str, object] = {"id": chance.randrange(10**9), "user": f"user-{chance.randrange(10**5)}"}
        while len(text := json.dumps(fields)) < self.value_bytes:
            fields[f"field{len(fields)}"] = chance.choice(("click", "view", chance.randrange(10**6), chance.random()))
        return text[: self.value_bytes].encode()


def zstd_as_java(batch: bytes) -> bytes:
    """Return an uncompressed ``batch`` with zstd as Java's producers write it, without its inflated size."""
    header = read_batch_header(batch)
    header.attributes = header.attributes & ~CODEC_MASK | Codec.ZSTD
    compressor = cramjam.zstd.Compressor(level=ZSTD_LEVEL)
    compressor.compress(batch[BATCH_HEADER_BYTES:])
    return assemble_batch(header, bytes(compressor.finish()))


FRAMINGS = [(Codec.NONE, False), (Codec.LZ4, False), (Codec.ZSTD, True), (Codec.ZSTD, False)]

SHAPES = [
    *(
        Shape(value_bytes, codec, batch_kib * KIB, as_java)
        for value_bytes in (100, 1000)
        for codec, as_java in FRAMINGS
        for batch_kib in (16, 256)
    ),
    Shape(100, Codec.NONE, 0),
]

GOALS = {
    Shape(100, Codec.NONE, 16 * KIB): "spark-decode-none",
    Shape(100, Codec.LZ4, 16 * KIB): "spark-decode-lz4",
    Shape(100, Codec.ZSTD, 16 * KIB, as_java=True): "spark-decode-zstd",
}
"""The measures that have goals, by their shape."""


def spark_decoder(options: Options) -> Outcome:
    """Millions of rows a second of CPU time, in both engines, beside the parser of a client that is written in C."""
    outcome = Outcome("spark-decoder")
    rates(options, outcome)
    columns(options, outcome)
    return outcome


def rates(options: Options, outcome: Outcome) -> None:
    """All columns but the headers, with checksums, for logs of every kind."""
    table = outcome.table(
        "Million rows a second of CPU time: key, value, topic, partition, offset, timestamp and its type; CRC checked",
        *("log", "numba", "plain", "aiokafka, no Arrow", "numba ÷ aiokafka", "numba, GB/s of keys and values"),
    )
    for shape in SHAPES:
        data, rows = shape.log(options)
        ways: dict[str, Callable[[], int]] = {
            "numba": partial(decoded_rows, data, rows, Engine.NUMBA, ALL_BUT_HEADERS),
            "plain": partial(decoded_rows, data, rows, Engine.PLAIN, ALL_BUT_HEADERS),
            "aiokafka": partial(parsed_records, data),
        }
        best = million_rows_per_second(ways, rows, options)
        ratio = best["numba"] / best["aiokafka"]
        gigabytes = best["numba"] * (shape.value_bytes + 16) / 1000
        table.add(shape.name, best["numba"], best["plain"], best["aiokafka"], ratio, gigabytes)
        if (measure := GOALS.get(shape)) is not None:
            outcome.measures[measure] = best["numba"]
        if shape.codec is Codec.NONE and shape.value_bytes == 100 and shape.batch_bytes:
            for key, value in (("spark-decode-plain", best["plain"]), ("spark-decode-ratio", ratio)):
                outcome.measures[key] = min(value, outcome.measures.get(key, value))


def columns(options: Options, outcome: Outcome) -> None:
    """What fewer columns save, and headers cost."""
    table = outcome.table("Million rows a second of CPU time, 100 B, none, 16 KiB", "columns", "numba", "plain")
    for headers in ((), (("trace", b"0123456789abcdef"),)):
        shape = Shape(100, Codec.NONE, 16 * KIB, headers=headers)
        data, rows = shape.log(options)
        wanted = (COLUMNS, ALL_BUT_HEADERS) if headers else (ALL_BUT_HEADERS, ("key", "value"), ("value",), ("offset",))
        for names in wanted:
            best = million_rows_per_second(
                {
                    "numba": partial(decoded_rows, data, rows, Engine.NUMBA, names),
                    "plain": partial(decoded_rows, data, rows, Engine.PLAIN, names),
                },
                rows,
                options,
            )
            text = "all" if names is COLUMNS else "all but headers" if names is ALL_BUT_HEADERS else ", ".join(names)
            table.add(text + ("; each record has one header" if headers else ""), best["numba"], best["plain"])


def million_rows_per_second(ways: dict[str, Callable[[], int]], rows: int, options: Options) -> dict[str, float]:
    """Go each way in turns; return the best rate of each."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.repeats):
        for name, way in ways.items():
            began = time.process_time()
            found = way()
            seconds[name].append(time.process_time() - began)
            assert found == rows, f"{name}: {found} rows of {rows}"
    return {name: Repeats([rows / 1e6 / one for one in taken], Better.MORE).best for name, taken in seconds.items()}


def decoded_rows(data: bytes, rows: int, engine: Engine, names: tuple[str, ...]) -> int:
    """Decode the log; return how many rows came."""
    offsets = OffsetRange(TopicPartition("orders", 0), 0, rows)
    return sum(len(batch) for batch in decode(chunks(data), offsets, Decoding(names), engine=engine))


def chunks(data: bytes) -> Iterator[Chunk]:
    """Yield the log as fetch responses would."""
    position = 0
    while position < len(data):
        view = memoryview(data)[position : position + CHUNK_BYTES]
        table = scan_batches(view)
        yield Chunk(view, table, "memory")
        position += table.consumed_bytes


def parsed_records(data: bytes) -> int:
    """Let aiokafka make its record objects of the log; return how many there were."""
    from aiokafka.record.memory_records import MemoryRecords

    found = 0
    batches = MemoryRecords(data)
    while (batch := batches.next_batch()) is not None:
        assert batch.validate_crc()
        for _ in batch:
            found += 1
    return found
