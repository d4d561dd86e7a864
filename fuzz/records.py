"""Throws broken record batches at the reader of record batches, and compressed data that grows.

The batches are built here, for every codec, and then broken where it hurts: in the header, in the compressed block, and
in the records before they are compressed, with the CRC put right again half of the time, because damage that the CRC
catches tests nothing but the CRC. Asked for every one:

* nothing but ``KafkaError`` escapes,
* it is done within ``MAX_SECONDS`` of processor time, and inflates to no more than ``MAX_INFLATED_BYTES``,
* what ``validate_records`` takes, ``records`` reads with the same count, offsets, keys and largest timestamp, and
  ``build_batch`` writes so that it reads the same again.

``bombs()`` is a catalogue of small inputs that ask for large outputs, each with the refusal that it must meet.

    python -m fuzz.records --seconds 60 --seed 1

The same seed tries the same batches in the same order. A finding is printed with the bytes that caused it, and the exit
status is then 1.
"""

from __future__ import annotations

import argparse
import random
import resource
import struct
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs

from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import (
    ATTRIBUTES_POSITION,
    BATCH_HEADER_BYTES,
    CODEC_MASK,
    LOG_OVERHEAD_BYTES,
    TIMESTAMP_TYPE_BIT,
    BatchHeader,
    RecordBatch,
    build_batch,
    read_batches,
)
from kafka_wire.records.compression import XERIAL_HEADER, Codec, compress, decompress
from kafka_wire.records.control import EndTransactionMarker, build_control_batch, read_control_record
from kafka_wire.records.crc import crc32c
from kafka_wire.records.errors import DecompressionTooLarge, InvalidRecord
from kafka_wire.records.record import Header, NewRecord, Record

MAX_SECONDS: Final = 1.0
"""Processor time for one batch. Ours are a few kilobytes and take a millisecond."""

MAX_INFLATED_BYTES: Final = 1024 * 1024
"""What we let the batches here grow to."""

MAX_MEMORY_GROWTH_BYTES: Final = 128 * 1024 * 1024
"""How much more memory the process may have held at its highest than before: a few times what one batch may take."""

MAX_MUTATIONS: Final = 4
"""Of one batch; with more, only the first one is ever found."""

BOMB_BYTES: Final = 64 * 1024 * 1024
"""What a bomb grows to."""

EDGE_BYTES: Final = (0x00, 0x01, 0x02, 0x03, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
EDGE_NUMBERS: Final = (
    *(b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\x00\x0f\xff\xff"),
    *(b"\x7f" + 7 * b"\xff", b"\x80" + 7 * b"\x00"),
    *(
        b"\xfe\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\x7f",
        11 * b"\x80",
        b"\x80\x00",
        b"\x81\x00",
    ),
)
"""Lengths, counts, offsets and timestamps on the edge, fixed and variable, and varints that are too long or endless."""


@attrs.frozen
class Finding:
    """A batch or a bomb that was not taken as it should be."""

    name: str
    data: bytes
    problem: str

    def __str__(self) -> str:
        return f"{self.name}: {self.problem}\n  {self.data[:4096].hex()}"


@attrs.define
class Statistics:
    """How many batches were tried, and how many of them passed validation after all."""

    tried: int = 0
    valid: int = 0


@attrs.frozen
class Bomb:
    """Compressed data, and the refusal it must meet."""

    name: str
    codec: Codec
    data: bytes
    refusal: type[KafkaError]


# --- Batches to begin with ---


def random_records(chance: random.Random) -> list[NewRecord]:
    """Return up to a hundred records, most of them small, with every kind of null."""

    def some_bytes(longest: int) -> bytes | None:
        return None if chance.random() < 0.2 else bytes(chance.choices(b"abcdefg", k=chance.randrange(longest)))

    def headers() -> list[Header]:
        return [(chance.choice(("", "h", "größe")), some_bytes(5)) for _ in range(chance.choice((0, 0, 1, 3)))]

    count = chance.choice((1, 2, 3, 70, 100))
    return [
        NewRecord(1_700_000_000_000 + chance.randrange(-5, 10_000), some_bytes(9), some_bytes(200), headers())
        for _ in range(count)
    ]


def seed_batches(chance: random.Random) -> list[bytes]:
    """Return intact batches: some for every codec, idempotent, transactional, and a marker."""
    batches = [build_batch(random_records(chance), codec=codec) for codec in Codec for _ in range(3)]
    batches.append(build_batch(random_records(chance), producer_id=7, producer_epoch=1, base_sequence=2**31 - 2))
    batches.append(build_batch(random_records(chance), producer_id=7, producer_epoch=1, transactional=True))
    batches.append(build_batch([Record(offset, 0, b"k", b"v") for offset in (1, 5, 200)]))
    batches.append(build_control_batch(EndTransactionMarker(committed=True, coordinator_epoch=3), timestamp=5))
    return batches


# --- Breaking them ---


def broken(data: bytes, other: bytes, chance: random.Random) -> bytes:
    """Return ``data`` with one to four places flipped, overwritten, cut out, doubled or spliced with ``other``."""
    out = bytearray(data)
    for _ in range(chance.randint(1, MAX_MUTATIONS)):
        position = chance.randrange(len(out) + 1)
        match chance.randrange(6):
            case 0:
                out[position : position + 1] = bytes([chance.choice(EDGE_BYTES)])
            case 1 if position < len(out):
                out[position] ^= 1 << chance.randrange(8)
            case 2:
                number = chance.choice(EDGE_NUMBERS)
                out[position : position + len(number)] = number
            case 3:
                del out[position : position + chance.randrange(1, 9)]
            case 4:
                out[position:position] = out[position : position + chance.randrange(1, 9)]
            case _:
                start = chance.randrange(len(other) + 1)
                out[position : position + 8] = other[start : start + chance.randrange(1, 33)]
    return bytes(out)


def broken_batch(batch: bytes, other: bytes, chance: random.Random) -> bytes:
    """Return ``batch`` broken in one of its layers, mostly with the length and half of the time with the CRC right."""
    header, block = batch[:BATCH_HEADER_BYTES], batch[BATCH_HEADER_BYTES:]
    codec = Codec(header[ATTRIBUTES_POSITION + 1] & CODEC_MASK)
    match chance.randrange(4):
        case 0:
            return broken(batch, other, chance)
        case 1:
            header = broken(header, other[:BATCH_HEADER_BYTES], chance)[:BATCH_HEADER_BYTES].ljust(BATCH_HEADER_BYTES)
        case 2:
            block = broken(block, other[BATCH_HEADER_BYTES:], chance)
        case _:
            block = compress(codec, broken(decompress(codec, block), other[BATCH_HEADER_BYTES:], chance))
    out = bytearray(header + block)
    struct.pack_into(">i", out, 8, len(out) - LOG_OVERHEAD_BYTES)
    if chance.random() < 0.5:
        struct.pack_into(">I", out, 17, crc32c(memoryview(out)[ATTRIBUTES_POSITION:]))
    return bytes(out)


# --- Judging them ---


def check_batch(batch: RecordBatch) -> bool:
    """Read ``batch`` in every way there is; say whether it passed validation. Only ``AssertionError`` is a finding."""
    for read in (batch.verify_crc, lambda: list(batch.records(max_bytes=MAX_INFLATED_BYTES))):
        refused(read)
    if batch.header.is_control:
        refused(lambda: [read_control_record(record) for record in batch.records(max_bytes=MAX_INFLATED_BYTES)])
    try:
        summary = batch.validate_records(max_bytes=MAX_INFLATED_BYTES)
    except KafkaError:
        return False
    header = batch.header
    records = list(attrs.evolve(batch, header=create_time(batch)).records(max_bytes=MAX_INFLATED_BYTES))
    timestamps = [record.timestamp for record in records]
    assert len(records) == summary.record_count == header.record_count
    assert [record.offset for record in records] == list(range(header.base_offset, header.next_offset))
    assert (min(timestamps), max(timestamps)) == (summary.min_timestamp, summary.max_timestamp)
    assert any(record.key is None for record in records) == summary.null_keys
    (again,) = read_batches(build_batch(records, base_offset=header.base_offset))
    if not any(abs(timestamp - timestamps[0]) >= 2**63 for timestamp in timestamps):
        assert list(again.records()) == records
    return True


def create_time(batch: RecordBatch) -> BatchHeader:
    """Return the header without its LogAppendTime bit, so that the records show their own timestamps."""
    return attrs.evolve(batch.header, attributes=batch.header.attributes & ~TIMESTAMP_TYPE_BIT)


def refused(read: Callable[[], object]) -> bool:
    """Call ``read`` and say whether it refused with an expected error."""
    try:
        read()
    except KafkaError:
        return True
    return False


def try_batches(data: bytes, statistics: Statistics) -> Finding | None:
    """Read all batches in ``data``; return what went wrong other than as expected."""
    began = time.process_time()
    statistics.tried += 1
    try:
        statistics.valid += all(map(check_batch, read_batches(data)))
    except KafkaError:
        pass
    except Exception as error:
        return Finding("batch", data, repr(error))
    seconds = time.process_time() - began
    return Finding("batch", data, f"took {seconds:.1f} s") if seconds > MAX_SECONDS else None


def fuzz(seed: int, rounds: Iterable[object], statistics: Statistics) -> Iterator[Finding]:
    """Break every seed batch once a round, and yield the findings. New seed batches come with every hundredth round."""
    chance = random.Random(seed)
    batches: list[bytes] = []
    for number, _ in enumerate(rounds):
        if number % 100 == 0:
            batches = seed_batches(chance)
            candidates = batches
        else:
            candidates = [broken_batch(batch, chance.choice(batches), chance) for batch in batches]
        for candidate in candidates:
            if finding := try_batches(candidate, statistics):
                yield finding


# --- Bombs ---


def bombs() -> list[Bomb]:
    """Return the catalogue. Every bomb is refused with ``MAX_INFLATED_BYTES`` allowed."""
    zeros = bytes(BOMB_BYTES)
    return [
        *(Bomb(f"{codec.name.lower()} zeros", codec, compress(codec, zeros), DecompressionTooLarge) for codec in Codec),
        *_gzip_bombs(),
        *_snappy_bombs(),
        *_lz4_bombs(),
        *_zstd_bombs(),
    ]


def _gzip_bombs() -> Iterator[Bomb]:
    member = compress(Codec.GZIP, b"")
    half = compress(Codec.GZIP, bytes(MAX_INFLATED_BYTES // 2 + 1))
    yield Bomb("gzip ten thousand empty members", Codec.GZIP, 10_000 * member, InvalidRecord)
    yield Bomb("gzip too large only together", Codec.GZIP, half + half, DecompressionTooLarge)
    yield Bomb("gzip in gzip", Codec.GZIP, zlib.compress(compress(Codec.GZIP, bytes(1000))), InvalidRecord)


def _snappy_bombs() -> Iterator[Bomb]:
    block = compress(Codec.SNAPPY, bytes(32 * 1024))[len(XERIAL_HEADER) :]
    yield Bomb("snappy declares 4 GiB", Codec.SNAPPY, b"\xff\xff\xff\xff\x0f\x00a", InvalidRecord)
    yield Bomb("snappy declares 1 TiB", Codec.SNAPPY, b"\x80\x80\x80\x80\x80\x20\x00a", InvalidRecord)
    yield Bomb(
        "snappy block declares 4 GiB",
        Codec.SNAPPY,
        XERIAL_HEADER + b"\x00\x00\x00\x07\xff\xff\xff\xff\x0f\x00a",
        InvalidRecord,
    )
    yield Bomb("snappy block of 2 GiB", Codec.SNAPPY, XERIAL_HEADER + b"\x7f\xff\xff\xff\x01\x00a", InvalidRecord)
    yield Bomb("snappy block of 4 GiB", Codec.SNAPPY, XERIAL_HEADER + b"\xff\xff\xff\xff\x01\x00a", InvalidRecord)
    yield Bomb("snappy many blocks", Codec.SNAPPY, XERIAL_HEADER + 33 * block, DecompressionTooLarge)
    yield Bomb("snappy empty block", Codec.SNAPPY, XERIAL_HEADER + 4 * b"\x00", InvalidRecord)


def _lz4_bombs() -> Iterator[Bomb]:
    frame = compress(Codec.LZ4, bytes(64 * 1024))
    empty = compress(Codec.LZ4, b"")
    header = frame[:7]
    yield Bomb("lz4 ten thousand empty frames", Codec.LZ4, 10_000 * empty, InvalidRecord)
    yield Bomb("lz4 seventeen frames", Codec.LZ4, 17 * frame, DecompressionTooLarge)
    yield Bomb("lz4 block of 2 GiB", Codec.LZ4, header + b"\xff\xff\xff\xff" + b"a", InvalidRecord)
    yield Bomb("lz4 never ends", Codec.LZ4, header + 100_000 * b"\x01\x00\x00\x80a", InvalidRecord)
    yield Bomb(
        "lz4 lies about its size",
        Codec.LZ4,
        b"\x04\x22\x4d\x18\x68\x70" + 7 * b"\xff" + b"\x7f" + b"\x00" + 4 * b"\x00",
        InvalidRecord,
    )


def _zstd_bombs() -> Iterator[Bomb]:
    magic = b"\x28\xb5\x2f\xfd"
    window_1_mib, window_2_gib = b"\x50", b"\xa8"
    # A block header is three bytes: last-block bit, two bits of type (1: one byte repeated), 21 bits of size.
    repeated = (128 * 1024 << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    last = (1).to_bytes(3, "little")
    empty = compress(Codec.ZSTD, b"")
    yield Bomb(
        "zstd repeats", Codec.ZSTD, magic + b"\x00" + window_1_mib + 512 * repeated + last, DecompressionTooLarge
    )
    yield Bomb("zstd window of 2 GiB", Codec.ZSTD, magic + b"\x00" + window_2_gib + repeated + last, InvalidRecord)
    yield Bomb(
        "zstd declares 2**62 bytes",
        Codec.ZSTD,
        magic + b"\xe0" + 7 * b"\x00" + b"\x40" + repeated + last,
        InvalidRecord,
    )
    yield Bomb("zstd ten thousand empty frames", Codec.ZSTD, 10_000 * empty, InvalidRecord)
    yield Bomb("zstd never ends", Codec.ZSTD, magic + b"\x00" + window_1_mib + 4 * repeated, InvalidRecord)


def try_bomb(bomb: Bomb) -> Finding | None:
    """Set off ``bomb``; return what went wrong other than the refusal."""
    began = time.process_time()
    problem = "was let through"
    try:
        decompress(bomb.codec, bomb.data, max_bytes=MAX_INFLATED_BYTES)
    except KafkaError as error:
        problem = "" if type(error) is bomb.refusal else f"was refused with {error!r}"
    except Exception as error:
        problem = repr(error)
    seconds = time.process_time() - began
    if seconds > MAX_SECONDS:
        problem = f"took {seconds:.1f} s"
    return Finding(bomb.name, bomb.data, problem) if problem else None


def peak_memory_bytes() -> int:
    """Return the most memory that this process ever held at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def clock_ticks(seconds: float) -> Iterator[float]:
    """Yield until ``seconds`` have passed."""
    end = time.monotonic() + seconds
    while (now := time.monotonic()) < end:
        yield now


def main() -> int:
    """Run from the command line; 1 if there was a finding."""
    parser = argparse.ArgumentParser(description="Fuzz the reader of record batches.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    catalogue = bombs()
    before = peak_memory_bytes()
    findings = [finding for bomb in catalogue if (finding := try_bomb(bomb))]
    statistics = Statistics()
    findings += fuzz(arguments.seed, clock_ticks(arguments.seconds), statistics)
    growth = peak_memory_bytes() - before
    if growth > MAX_MEMORY_GROWTH_BYTES:
        findings.append(Finding("memory", b"", f"grew by {growth >> 20} MiB"))
    for finding in findings:
        print(finding)
    print(
        f"{len(catalogue)} bombs, {statistics.tried} batches tried, {statistics.valid} valid, "
        f"{growth >> 20} MiB more memory at the peak, {len(findings)} findings"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
