"""Inflating into memory of the caller's, and many zstd frames at once."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress

import lz4.frame
import pytest

from kafka_wire.records.compression import (
    LZ4_PLAIN_HEADERS,
    ZSTD_SEPARATOR,
    Codec,
    compress,
    decompress,
    decompress_into,
    decompress_lz4_frames,
    decompress_zstd_frames,
    decompress_zstd_frames_apart,
    zstd_declared_bytes,
    zstd_output_bound,
)
from kafka_wire.records.errors import DecompressionTooLarge, InvalidRecord

DATA = random.Random(1).randbytes(500) * 300
CODECS = [codec for codec in Codec if codec is not Codec.NONE]


class Room:
    """Memory that remembers how much was asked for."""

    def __init__(self) -> None:
        self.memory = bytearray(1 << 22)
        self.asked: list[int] = []

    def __call__(self, size: int) -> memoryview:
        self.asked.append(size)
        return memoryview(self.memory)


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"a", DATA])
def test_the_same_bytes_come_as_by_decompress(codec: Codec, data: bytes) -> None:
    room = Room()
    assert decompress_into(codec, compress(codec, data), room) == len(data)
    assert room.memory[: len(data)] == data
    assert len(room.asked) == 1
    assert room.asked[0] >= len(data)


@pytest.mark.parametrize("codec", CODECS)
def test_no_more_room_is_asked_for_than_allowed(codec: Codec) -> None:
    room = Room()
    with pytest.raises(DecompressionTooLarge):
        decompress_into(codec, compress(codec, DATA), room, max_bytes=len(DATA) - 1)
    assert all(size < len(DATA) for size in room.asked)


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_refused_with_the_same_words(codec: Codec) -> None:
    broken = compress(codec, DATA)[:-20]
    with pytest.raises(InvalidRecord) as into:
        decompress_into(codec, broken, Room())
    with pytest.raises(InvalidRecord) as alone:
        decompress(codec, broken)
    assert str(into.value) == str(alone.value)


def frame(data: bytes, **options: int) -> bytes:
    import cramjam

    if not options:
        return compress(Codec.ZSTD, data)
    compressor = cramjam.zstd.Compressor(**options)
    compressor.compress(data)
    return bytes(compressor.finish())


@pytest.mark.parametrize("size", [0, 1, 255, 256, 257, 65_791, 65_792, 300_000])
def test_a_whole_zstd_frame_says_its_size(size: int) -> None:
    data = (DATA * 3)[:size]
    assert zstd_declared_bytes(memoryview(frame(data))) == size
    assert zstd_declared_bytes(memoryview(frame(bytes(size)))) == size


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x28\xb5\x2f\xfd",
        frame(DATA)[:-1],
        frame(DATA) + b"\x00",
        frame(DATA) + frame(b""),
        frame(DATA, level=1),  # a stream, whose size was not known when it began
        b"\x28\xb5\x2f\xfd\x28" + frame(DATA)[5:],
        b"\x50\x2a\x4d\x18\x01\x00\x00\x00\x00",
    ],
)
def test_what_is_not_one_whole_frame_with_its_size_says_nothing(data: bytes) -> None:
    assert zstd_declared_bytes(memoryview(data)) is None


def test_frames_are_inflated_one_behind_the_other() -> None:
    pieces = [DATA[:1000], b"", DATA[5:70_000], b"x"]
    out = bytearray(sum(map(len, pieces)))
    assert decompress_zstd_frames([memoryview(frame(piece)) for piece in pieces], memoryview(out))
    assert bytes(out) == b"".join(pieces)


def test_a_damaged_frame_among_others_is_noticed() -> None:
    good = memoryview(frame(DATA))
    out = memoryview(bytearray(2 * len(DATA)))
    assert decompress_zstd_frames([good, good], out)
    assert not decompress_zstd_frames([good, good[:-1]], out)
    assert not decompress_zstd_frames([good], out)


def undeclared(data: bytes) -> bytes:
    """Return a zstd frame that does not say what it inflates to, as Java's producers write them."""
    import cramjam

    compressor = cramjam.zstd.Compressor(level=3)
    compressor.compress(data)
    packed = bytes(compressor.finish())
    assert not zstd_declared_bytes(memoryview(packed))  # nothing at all is declared, but does not matter here
    return packed


@pytest.mark.parametrize("data", [b"", b"a", bytes(1000), DATA, random.Random(2).randbytes(200_000)])
def test_an_undeclared_frame_has_a_bound_that_holds(data: bytes) -> None:
    packed = undeclared(data)
    bound = zstd_output_bound(memoryview(packed))
    assert bound is not None
    assert len(data) <= bound <= len(data) + 2 * 128 * 1024
    room = Room()
    assert decompress_into(Codec.ZSTD, packed, room) == len(data)
    assert room.memory[: len(data)] == data
    assert room.asked == [max(1, bound)]


def test_what_is_not_one_zstd_frame_has_no_bound() -> None:
    packed = undeclared(DATA)
    for wrong in (b"", packed[:5], packed[:-1], packed + b"\0", packed + packed, b"\0" + packed):
        assert zstd_output_bound(memoryview(wrong)) is None
    room = Room()
    assert decompress_into(Codec.ZSTD, packed + packed, room) == 2 * len(DATA)
    assert room.memory[: 2 * len(DATA)] == 2 * DATA


def apart(frames: list[bytes], start: int = 0) -> list[bytes] | None:
    views = [memoryview(one) for one in frames]
    memory = bytearray(start + sum((zstd_output_bound(view) or 0) + len(ZSTD_SEPARATOR) for view in views))
    pieces = decompress_zstd_frames_apart(views, memory, start)
    assert memory[:start] == bytes(start)
    return None if pieces is None else [bytes(memory[begin:end]) for begin, end in pieces]


@pytest.mark.parametrize("start", [0, 100])
def test_frames_of_unknown_size_are_inflated_at_once_and_kept_apart(start: int) -> None:
    pieces = [b"a", b"", DATA[:10_000], b"", bytes(1000), random.Random(3).randbytes(1000)]
    assert apart([undeclared(one) for one in pieces], start) == pieces
    assert apart([compress(Codec.ZSTD, one) for one in pieces], start) == pieces


@pytest.mark.parametrize("position", [5, 40, -1])
def test_a_damaged_frame_of_unknown_size_is_noticed_among_others(position: int) -> None:
    import cramjam

    good = undeclared(DATA)
    assert apart([good, good]) == [DATA, DATA]
    bad = bytearray(good)
    bad[position] ^= 0xFF
    try:
        assert cramjam.zstd.decompress(bytes(bad)) != DATA
        damage = False
    except cramjam.DecompressionError:
        damage = True
    assert (apart([good, bytes(bad), good]) is None) == damage


JAVA = {"block_linked": False, "store_size": False}
"""How Java's clients and librdkafka frame lz4."""


@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("data", [b"a" * 20, DATA, DATA + random.Random(4).randbytes(200_000), bytes(3_000_000)])
def test_lz4_without_sizes_and_checksums_is_inflated_block_by_block(data: bytes, block_size: int) -> None:
    packed = lz4.frame.compress(data, block_size=block_size, **JAVA)
    assert packed[:7] in LZ4_PLAIN_HEADERS
    room = Room()
    assert decompress_into(Codec.LZ4, packed, room) == len(data)
    assert room.memory[: len(data)] == data


def test_every_cut_of_plain_lz4_is_refused_as_by_the_frame_reader() -> None:
    packed = lz4.frame.compress(DATA[:600], **JAVA)
    for size in range(len(packed)):
        with pytest.raises(InvalidRecord):
            decompress_into(Codec.LZ4, packed[:size], Room())


def test_plain_lz4_never_writes_beyond_what_its_blocks_may_hold() -> None:
    chance = random.Random(5)
    packed = lz4.frame.compress(DATA[:3000], **JAVA)
    for _ in range(500):
        broken = bytearray(packed)
        broken[chance.randrange(7, len(packed))] = chance.randrange(256)
        room = Room()
        with suppress(InvalidRecord):
            decompress_into(Codec.LZ4, bytes(broken), room)
        most = max(room.asked, default=0)
        assert room.memory[most:] == bytes(len(room.memory) - most)


def pieces_of(frames: list[bytes]) -> list[tuple[int, int]]:
    """Where each of the frames lies that are joined."""
    return list(itertools.pairwise(itertools.accumulate(map(len, frames), initial=0)))


@pytest.mark.parametrize("size", [100, 1000, 16_000, 65_536])
def test_lz4_frames_of_one_block_are_inflated_one_behind_the_other(size: int) -> None:
    records = [bytes([number]) * size for number in range(20)]
    frames = [compress(Codec.LZ4, each) for each in records]
    out = bytearray(20 * 65_536)
    sizes = decompress_lz4_frames(memoryview(b"".join(frames)), pieces_of(frames), memoryview(out))
    assert sizes == [size] * 20
    assert out.startswith(b"".join(records))


PLAIN = compress(Codec.LZ4, DATA[:1000])
LINKED = PLAIN[:4] + lz4.frame.compress(DATA[:70_000], block_linked=True, store_size=False)[4:7] + PLAIN[7:]
WITH_CHECKSUMS = lz4.frame.compress(DATA[:1000], block_linked=False, store_size=False, block_checksum=True)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(compress(Codec.LZ4, b""), id="no block"),
        pytest.param(compress(Codec.LZ4, DATA[:70_000]), id="two blocks"),
        pytest.param(compress(Codec.LZ4, DATA[:500]), id="a block that is stored as it is"),
        pytest.param(LINKED, id="linked"),
        pytest.param(WITH_CHECKSUMS, id="with checksums"),
        pytest.param(PLAIN[:-1], id="cut"),
        pytest.param(PLAIN[:10], id="cut in the first block's length"),
        pytest.param(PLAIN + b"\0", id="a byte behind it"),
        pytest.param(PLAIN[:-4] + b"\1\0\0\0", id="no end"),
        pytest.param(PLAIN[:11] + b"\xff" * (len(PLAIN) - 15) + bytes(4), id="damaged"),
    ],
)
def test_an_lz4_frame_of_another_kind_and_all_behind_it_are_left_to_the_caller(frame: bytes) -> None:
    frames = [PLAIN, PLAIN, frame, PLAIN]
    out = bytearray(5 * 65_536)
    sizes = decompress_lz4_frames(memoryview(b"".join(frames)), pieces_of(frames), memoryview(out))
    assert sizes == [1000, 1000]
    assert out.startswith(2 * DATA[:1000])


def test_a_last_lz4_frame_that_is_cut_is_left_to_the_caller() -> None:
    for end in range(len(PLAIN)):
        assert decompress_lz4_frames(memoryview(PLAIN)[:end], [(0, end)], memoryview(bytearray(65_536))) == []


def test_an_lz4_frame_that_may_not_fit_is_left_to_the_caller() -> None:
    out = bytearray(65_536 + 999)
    assert decompress_lz4_frames(memoryview(2 * PLAIN), pieces_of([PLAIN, PLAIN]), memoryview(out)) == [1000]
