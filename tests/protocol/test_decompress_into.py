"""Inflating into memory of the caller's, and many zstd frames at once."""

from __future__ import annotations

import random

import pytest

from kafka_wire.records.compression import (
    Codec,
    DecompressionTooLarge,
    InvalidRecord,
    compress,
    decompress,
    decompress_into,
    decompress_zstd_frames,
    zstd_declared_bytes,
)

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
