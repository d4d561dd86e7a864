"""Each codec is written as Java reads it, read as clients write it, and never grows beyond its bound."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys

import cramjam
import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.error_codes import ErrorCode
from kafka_wire.records.compression import (
    DEFAULT_MAX_DECOMPRESSED_BYTES,
    LZ4_PLAIN_HEADER_BYTES,
    LZ4_WRITTEN_HEADER,
    MAX_DECOMPRESSED_BYTES,
    MAX_FRAMES,
    MAX_RATIO,
    RATIO_FREE_BYTES,
    XERIAL_BLOCK_BYTES,
    XERIAL_HEADER,
    Codec,
    compress,
    decompress,
    decompression_limit,
)
from kafka_wire.records.errors import DecompressionTooLarge, InvalidRecord

COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
SIZES = [0, 1, 100, XERIAL_BLOCK_BYTES, XERIAL_BLOCK_BYTES + 1, 64 * 1024 + 1, 1_000_000]


def sample(size: int) -> bytes:
    """Text-like bytes: neither random nor all the same."""
    return b"".join(b"record %d of many, " % number for number in range(size // 15 + 1))[:size]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", Codec)
def test_what_is_compressed_comes_back(codec: Codec, size: int) -> None:
    assert decompress(codec, compress(codec, sample(size))) == sample(size)


@given(codec=st.sampled_from(Codec), data=st.binary(max_size=5000))
def test_any_bytes_come_back(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("codec", Codec)
def test_any_buffer_is_taken_both_ways(codec: Codec, kind: type[bytes]) -> None:
    packed = compress(codec, kind(sample(1000)))
    assert decompress(codec, kind(packed)) == sample(1000)


@pytest.mark.parametrize("size", [size for size in SIZES if size])
@pytest.mark.parametrize("codec", Codec)
def test_exactly_the_limit_passes_and_one_byte_more_does_not(codec: Codec, size: int) -> None:
    packed = compress(codec, sample(size))
    assert len(decompress(codec, packed, max_bytes=size)) == size
    with pytest.raises(DecompressionTooLarge):
        decompress(codec, packed, max_bytes=size - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_every_cut_is_refused(codec: Codec) -> None:
    packed = compress(codec, sample(300))
    for length in range(len(packed)):
        if codec is Codec.SNAPPY and length == len(XERIAL_HEADER):
            continue  # a stream of no blocks
        with pytest.raises(InvalidRecord):
            decompress(codec, packed[:length])


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bytes_after_the_end_are_refused(codec: Codec) -> None:
    with pytest.raises(InvalidRecord):
        decompress(codec, compress(codec, sample(300)) + b"more")


@given(codec=st.sampled_from(COMPRESSING), data=st.binary(max_size=200))
def test_noise_is_refused_or_read_within_the_limit(codec: Codec, data: bytes) -> None:
    with contextlib.suppress(InvalidRecord, DecompressionTooLarge):
        assert len(decompress(codec, data, max_bytes=1000)) <= 1000


def test_a_batch_that_grows_too_large_is_one_to_split_rather_than_to_repeat() -> None:
    with pytest.raises(DecompressionTooLarge) as refusal:
        decompress(Codec.ZSTD, compress(Codec.ZSTD, bytes(1000)), max_bytes=999)
    assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_damage_behind_a_right_crc_is_the_producers_and_not_retriable() -> None:
    with pytest.raises(InvalidRecord) as refusal:
        decompress(Codec.GZIP, b"not gzip")
    assert refusal.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("size", [RATIO_FREE_BYTES, RATIO_FREE_BYTES + 1])
def test_the_ratio_counts_only_beyond_what_is_free(size: int) -> None:
    packed = compress(Codec.ZSTD, bytes(size))
    assert len(packed) * MAX_RATIO < RATIO_FREE_BYTES
    if size == RATIO_FREE_BYTES:
        assert len(decompress(Codec.ZSTD, packed)) == size
    else:
        with pytest.raises(DecompressionTooLarge):
            decompress(Codec.ZSTD, packed)


def test_large_batches_follow_max_message_bytes_up_to_the_absolute_limit() -> None:
    assert decompression_limit(1_048_588) == DEFAULT_MAX_DECOMPRESSED_BYTES
    assert decompression_limit(100_000_000) == 400_000_000
    assert decompression_limit(2**31 - 1) == MAX_DECOMPRESSED_BYTES


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_joined_frames_are_read_up_to_a_limit(codec: Codec) -> None:
    frame = compress(codec, b"abc")
    assert decompress(codec, frame * MAX_FRAMES) == b"abc" * MAX_FRAMES
    with pytest.raises(InvalidRecord, match="more than"):
        decompress(codec, frame * (MAX_FRAMES + 1))


def test_joined_frames_share_one_limit() -> None:
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        with pytest.raises(DecompressionTooLarge):
            decompress(codec, compress(codec, bytes(600)) * 2, max_bytes=1000)


# --- snappy ---


def test_snappy_is_written_in_the_framing_of_snappy_java() -> None:
    packed = compress(Codec.SNAPPY, bytes(XERIAL_BLOCK_BYTES + 1))
    assert packed.startswith(bytes.fromhex("82534e41505059000000000100000001"))
    length = int.from_bytes(packed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + length])) == bytes(XERIAL_BLOCK_BYTES)


def test_a_raw_snappy_block_is_read() -> None:
    assert decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(sample(1000)))) == sample(1000)


def test_joined_snappy_streams_are_read() -> None:
    assert decompress(Codec.SNAPPY, compress(Codec.SNAPPY, b"abc") + compress(Codec.SNAPPY, b"def")) == b"abcdef"


def test_a_snappy_block_may_not_declare_more_than_it_can_hold() -> None:
    with pytest.raises(InvalidRecord, match="declares"):
        decompress(Codec.SNAPPY, b"\xff\xff\xff\x7f" + bytes(10))


# --- lz4 ---


@pytest.mark.parametrize("level", [None, 9, 12])
@pytest.mark.parametrize("data", [b"", sample(10), sample(200_000), random.Random(1).randbytes(200_000)])
def test_lz4_frames_are_written_as_java_writes_them(data: bytes, level: int | None) -> None:
    """Kafka's reader refuses linked blocks, which are the codec library's default, and a reader of plain frames, our
    own among them, is faster."""
    packed = compress(Codec.LZ4, data, level)
    plain = lz4.frame.compress(data, block_linked=False, store_size=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB)
    assert packed[:LZ4_PLAIN_HEADER_BYTES] == plain[:LZ4_PLAIN_HEADER_BYTES] == LZ4_WRITTEN_HEADER
    assert lz4.frame.decompress(packed) == data


@pytest.mark.parametrize("size", [0, 1, 1000, 70_000, 5_000_000])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"block_linked": False, "block_size": 7},
        {"content_checksum": True, "block_checksum": True},
        {"store_size": False, "compression_level": 9},
    ],
)
def test_lz4_frames_of_every_shape_are_read(options: dict[str, int], size: int) -> None:
    packed = lz4.frame.compress(sample(size), **options)
    assert decompress(Codec.LZ4, packed) == sample(size)


def test_a_flipped_bit_under_an_lz4_checksum_is_found() -> None:
    packed = bytearray(lz4.frame.compress(sample(1000), content_checksum=True))
    packed[-1] ^= 1
    with pytest.raises(InvalidRecord):
        decompress(Codec.LZ4, bytes(packed))


# --- zstd ---


def test_zstd_frames_without_a_size_are_read() -> None:
    """Streaming writers, Java's among them, do not know the size when they begin."""
    compressor = cramjam.zstd.Compressor()
    compressor.compress(sample(1000))
    packed = bytes(compressor.finish())
    assert decompress(Codec.ZSTD, packed) == sample(1000)


def test_zstd_skippable_frames_are_passed_over() -> None:
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    assert decompress(Codec.ZSTD, skippable + compress(Codec.ZSTD, b"abc")) == b"abc"


@pytest.mark.parametrize("exponent", [27, 28, 41])
def test_zstd_windows_beyond_what_java_accepts_are_refused(exponent: int) -> None:
    last_raw_block = (3 << 3 | 1).to_bytes(3, "little") + b"abc"
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([(exponent - 10) << 3]) + last_raw_block
    if exponent == 27:
        assert decompress(Codec.ZSTD, frame) == b"abc"
    else:
        with pytest.raises(InvalidRecord):
            decompress(Codec.ZSTD, frame)


# --- levels and imports ---


@pytest.mark.parametrize(("codec", "level"), [(Codec.GZIP, 1), (Codec.GZIP, 9), (Codec.LZ4, 9), (Codec.ZSTD, 19)])
def test_levels_are_the_codecs_own(codec: Codec, level: int) -> None:
    assert decompress(codec, compress(codec, sample(10_000), level)) == sample(10_000)


def test_no_codec_library_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, kafka_wire.records.batch;"
        "sys.exit(' '.join({'cramjam', 'backports.zstd', 'compression.zstd'} & set(sys.modules)))"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert not finished.stderr.strip()
