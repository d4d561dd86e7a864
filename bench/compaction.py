"""Compaction: how fast a log is gone over, what a key costs, and what requests notice of it."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import attrs

from bench.figures import Better, Latencies, Repeats
from bench.load import in_turn
from bench.outcome import Options, Outcome
from bench.small import PAGE_CACHE, frames_for
from bench.small import TOPIC as SMALL_TOPIC
from bench.subject import broker, change_config, scratch
from bench.wire import BenchError, connect, create_topic, produce_frame, produced, success_response
from kafka_wire.records.batch import build_batch
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import NewRecord
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.cleaner import Cleaning
from trio_broker.storage.compaction_plan import compaction_range
from trio_broker.storage.log import Log
from trio_broker.storage.offset_map import OffsetMap
from trio_broker.storage.recovery import open_log
from trio_broker.storage.segment_swap import SegmentSwap
from trio_broker.testing.process import BrokerProcess

NOW_MS = 1_700_000_000_000
MIB = 1 << 20
DISTINCT_KEYS = 100_000
DISTINCT_BATCHES = 300
"""Built beforehand and appended again and again: so most records are superseded."""

LOG_MIB = 64
SEGMENT_BYTES = 16 * MIB
MAP_BYTES = 128 * MIB
MAP_KEYS = 1_000_000

REQUESTS = 3_000
"""Small ones, one after the other, before and during compaction: a second or two."""

BIG_TOPIC = "compacted"


@attrs.frozen
class Shape:
    """What a log is made of."""

    name: str
    value_bytes: int
    records: int
    codec: Codec = Codec.NONE

    def batches(self) -> list[bytes]:
        chance = random.Random(1)
        return [
            build_batch(
                [
                    NewRecord(NOW_MS + index, b"key-%012d" % chance.randrange(DISTINCT_KEYS), self.value(chance))
                    for index in range(self.records)
                ],
                codec=self.codec,
            )
            for _ in range(DISTINCT_BATCHES)
        ]

    def value(self, chance: random.Random) -> bytes:
        """Half of it noise, so that codecs have something to do and something to gain."""
        return chance.randbytes(self.value_bytes // 2).ljust(self.value_bytes, b".")


SHAPES = (
    Shape("100 bytes, 100 a batch", 100, 100),
    Shape("1 KB, 100 a batch", 1000, 100),
    Shape("1 KB, one a batch", 1000, 1),
    Shape("200 bytes, 500 a batch, zstd", 200, 500, Codec.ZSTD),
)


def compaction(options: Options) -> Outcome:
    """Rounds over logs of several shapes; the table of keys; small Produces beside a round."""
    outcome = Outcome("compaction")
    table = outcome.table(
        "A round over a log that is dirty throughout, in one thread",
        *("records", "MB/s of CPU best", "median", "spread", "µs a record, both passes", "records kept"),
    )
    for shape in SHAPES:
        rounds = [timed_round(options, shape) for _ in range(options.repeats)]
        rates = Repeats([each.bytes / each.cpu_seconds / 1e6 for each in rounds], Better.MORE)
        best = min(each.cpu_seconds / each.records for each in rounds)
        kept = f"{rounds[0].kept / rounds[0].records:.1%}"
        table.add(shape.name, rates.best, rates.median, f"{rates.spread:.0%}", best * 1e6, kept)
    add_memory(outcome)
    add_latencies(outcome, options)
    return outcome


@attrs.frozen
class TimedRound:
    bytes: int
    records: int
    kept: int
    cpu_seconds: float


def timed_round(options: Options, shape: Shape) -> TimedRound:
    """Write a log, and go over it once."""
    with scratch(options.directory) as directory:
        log = written_log(directory, shape, options.volume(LOG_MIB * MIB))
        compacted = compaction_range(log, stable_offset=log.log_end_offset, now_ms=NOW_MS)
        began = time.process_time()
        offset_map = OffsetMap(MAP_BYTES, secret=bytes(16), load_factor=0.9, expected_keys=compacted.end_offset)
        cleaning = Cleaning(compacted, offset_map, now_ms=NOW_MS, chunk_bytes=256 * 1024)
        for _ in cleaning.index():
            pass
        for group in cleaning.groups():
            for _ in cleaning.rewrite(group):
                pass
            swap = SegmentSwap(log, group, cleaning.pop_cleaned())
            swap.commit()
            swap.replace_segments(NOW_MS)
            swap.finish_rename()
        spent = time.process_time() - began
        offset_map.close()
        log.release()
        done = cleaning.statistics
        return TimedRound(compacted.dirty_bytes, done.records_read, done.records_kept, spent)


def written_log(directory: Path, shape: Shape, size_bytes: int) -> Log:
    config = LogConfig(segment_bytes=SEGMENT_BYTES, cleanup_policy=CleanupPolicy())
    log = open_log(
        RealDisk(),
        directory / "log-0",
        TopicPartition("log", 0),
        bytes(16),
        config,
        recovery_point=0,
        log_start_offset=0,
        clean=False,
        now_ms=NOW_MS,
    ).log
    batches, chance, written = shape.batches(), random.Random(2), 0
    while written < size_bytes:
        batch = chance.choice(batches)
        log.append(bytearray(batch), leader_epoch=0, now_ms=NOW_MS)
        written += len(batch)
    log.roll(NOW_MS)
    log.sync()
    return log


def add_memory(outcome: Outcome) -> None:
    """Bytes a key, in our table and in a dictionary of the same hashes."""
    keys, offsets = [b"key-%012d" % number for number in range(MAP_KEYS)], range(MAP_KEYS)
    full = OffsetMap(round(MAP_KEYS / 0.9) * 24, secret=bytes(16), load_factor=0.9, expected_keys=10 * MAP_KEYS)
    taken = full.keys if full.put_all(keys, offsets) else full.max_keys
    tracemalloc.start()
    dictionary = {
        blake2b(key, digest_size=16).digest(): offset + 1_000 for key, offset in zip(keys, offsets, strict=True)
    }
    dictionary_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    table = outcome.table("Memory for the newest offsets", "", "keys", "bytes a key")
    table.add("the table, as full as it gets", taken, full.size_bytes / taken)
    table.add("a dictionary of hashes", len(dictionary), dictionary_bytes / len(dictionary))
    full.close()


def add_latencies(outcome: Outcome, options: Options) -> None:
    """One-record Produces, one in flight, before a round begins and while it is under way."""
    table = outcome.table(
        "One-record Produces on one connection, page cache, beside compaction of another topic",
        *("", "requests", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms"),
    )
    settings = {**PAGE_CACHE, "log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "1.0"}
    with broker(options.directory, settings) as process:
        create_topic(process.port, SMALL_TOPIC, 16)
        create_topic(process.port, BIG_TOPIC, 1, cleanup_policy="compact", segment_bytes=str(SEGMENT_BYTES))
        fill(process, options.volume(2 * LOG_MIB * MIB))
        for name in ("nothing to compact", "a round is under way"):
            if name != "nothing to compact":
                change_config(process, "log.cleaner.min.cleanable.ratio", "0.01")
            found = small_produces(process, options.volume(REQUESTS))
            table.add(name, found.count, found.p50_ms, found.p95_ms, found.p99_ms, found.p999_ms, found.max_ms)
        if (process.data_directory / "cleaner-offset-checkpoint").exists():
            outcome.remarks.append("The round ended before the requests did: the last row is too good.")


def fill(process: BrokerProcess, size_bytes: int) -> None:
    frames: Sequence[bytearray] = [produce_frame(BIG_TOPIC, 0, batch, 1) for batch in SHAPES[0].batches()]
    sent = 0
    with connect(process.port) as sock:
        while sent < size_bytes:
            frame = frames[sent % len(frames)]
            sock.sendall(frame)
            if (error_code := produced(sock)) < 0:
                raise BenchError(f"a batch was refused: {error_code}")
            sent += len(frame)


def small_produces(process: BrokerProcess, requests: int) -> Latencies:
    response_bytes = len(success_response(SMALL_TOPIC))
    return Latencies.of_ns(in_turn(process.port, frames_for(1), requests, response_bytes).latencies_ns)
