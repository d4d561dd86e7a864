"""The five codecs of record batches, each in the framing that Kafka's clients use, and bounded.

=======  ============================================================================================================
gzip     a gzip stream; concatenated members are read
snappy   snappy-java's blocks: 8 magic bytes, two int32 versions, then int32 length and raw snappy, repeated; what does
         not begin with the magic is read as one raw snappy block
lz4      the lz4 frame format. Written as Java's clients write it, without checksums and with independent blocks, since
         their reader refuses linked ones; all are read
zstd     zstd frames, with or without the size in them; concatenated and skippable frames are read
=======  ============================================================================================================

Every inflation is bounded twice: by what the caller allows and by the ratio to the compressed size. Sizes that the data
declares are checked before memory is taken for them; where nothing is declared the output is counted as it comes.
Two hundred million zeros compress to six thousand bytes, so a limit on the input alone does not bound the output.

All functions release the interpreter lock while they work on large blocks; call them in a worker thread. The
libraries are imported on first use: a broker without lz4 data does not load it.

Source: Kafka's CompressionType and compress package; RFC 1952, RFC 8878, the snappy and lz4 frame descriptions;
docs/formats/record-batch.md.
"""

from __future__ import annotations

import contextlib
import enum
import os
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from types import ModuleType
from typing import Any, NamedTuple

from kafka_wire.primitives import ReadableBuffer
from kafka_wire.records.errors import DecompressionTooLarge, InvalidRecord

DEFAULT_MAX_DECOMPRESSED_BYTES = 64 * 1024 * 1024
"""What one batch may grow to when nobody says otherwise: sixty times the default ``message.max.bytes``, far above what
a producer packs into one batch, and little enough for several at once."""

MAX_DECOMPRESSED_BYTES = 1024 * 1024 * 1024
"""What one batch may grow to whatever the configuration says: beyond a gibibyte the
process may run out of memory."""

MAX_MESSAGE_BYTES_FACTOR = 4
"""Where ``message.max.bytes`` is large, a batch may at least grow to this many times as much: text packs about so."""

MAX_RATIO = 1000
"""How many bytes one compressed byte may become. Text packs 10:1, zeros pack 255:1 (lz4), 1,000:1 (gzip) and 30,000:1
(zstd)."""

RATIO_FREE_BYTES = 4 * 1024 * 1024
"""Below this size the ratio is not checked: a batch of equal records is legitimate, common in tests, and harmless."""

MAX_FRAMES = 64
"""How many gzip members, or lz4 or zstd frames, may follow one another. Clients write one. Without a limit, frames of a
few bytes each would make us copy the rest of the input once for each of them."""

ZSTD_MAX_WINDOW_LOG = 27
"""The largest zstd window, 2**27 bytes: what Java's reader accepts and what its level 22 writes. The memory is touched
only as far as there is output, which is bounded; a larger window could ask for 2 GiB up front."""

GZIP_MAX_RATIO = 1032
"""Deflate's densest code makes 258 bytes of two bits."""

GZIP_WBITS = 31
"""zlib's name for "gzip framing, 32 KiB window"."""

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
"""The magic, the version written and the lowest version that can read it."""

XERIAL_BLOCK_BYTES = 32 * 1024
"""How much goes into one snappy block: snappy-java's own default."""

SNAPPY_MAX_RATIO = 32
"""Snappy's densest element makes 64 bytes of 3, so a block that declares more has a wrong size."""

LZ4_FRAME_MAGIC = b"\x04\x22\x4d\x18"
LZ4_BLOCK_BYTES = {4: 64 * 1024, 5: 256 * 1024, 6: 1024 * 1024, 7: 4 * 1024 * 1024}
"""The largest block, by the three bits that say so in the frame's second descriptor byte."""

_LZ4_BLOCK_HEADER = struct.Struct("<I")
_LZ4_FRAME_START = struct.Struct("<7sI")
"""The header of a plain frame and that of its first block."""
_ZSTD_FRAME_START = struct.Struct("<IB")

LZ4_WRITTEN_HEADER, LZ4_WRITTEN_BLOCK_BYTES = bytes.fromhex("04224d18 60 40 82"), LZ4_BLOCK_BYTES[4]
"""What frames begin with that are written here, by Java's clients and by librdkafka, and their largest block."""

LZ4_PLAIN_HEADERS = {
    LZ4_WRITTEN_HEADER: LZ4_WRITTEN_BLOCK_BYTES,
    bytes.fromhex("04224d18 60 50 fb"): LZ4_BLOCK_BYTES[5],
    bytes.fromhex("04224d18 60 60 51"): LZ4_BLOCK_BYTES[6],
    bytes.fromhex("04224d18 60 70 73"): LZ4_BLOCK_BYTES[7],
}
"""How frames of independent blocks begin that have neither sizes nor checksums, with the header's own checksum at the
end, and their largest block."""

LZ4_PLAIN_HEADER_BYTES = 7
LZ4_CHECKSUM_BYTES = 4
LZ4_BLOCK_SIZE_MASK = 0x7FFF_FFFF
"""The high bit of a block's length marks one that is stored as it is."""

LZ4_KNOWN_FLAGS = 0xE3
"""Of a frame's first descriptor byte: version, independence of blocks, a reserved bit, and whether there is a
dictionary. The others say which checksums and sizes there are, and may have any value."""
LZ4_INDEPENDENT_BLOCKS = 0x60
"""Version 1 of the format, independent blocks, no dictionary."""

LZ4_MAX_RATIO = 255
"""One byte of lz4 makes at most 255: a match length grows by that much for each further byte."""

DEFAULT_GZIP_LEVEL = 6
DEFAULT_LZ4_LEVEL = 1
"""The fast one: the library's own default level is eight times slower for a third less output."""
DEFAULT_ZSTD_LEVEL = 3


ZSTD_MAGIC = 0xFD2FB528
ZSTD_MIN_FRAME_BYTES = 6
ZSTD_SIZE_BYTES = (0, 2, 4, 8)
"""How long the content size in a zstd frame's header is, by the two highest bits of the first byte behind the magic."""
ZSTD_DICTIONARY_BYTES = (0, 1, 2, 4)
"""The same for the dictionary id, by the two lowest bits."""

ZSTD_REPEATED_BYTE, ZSTD_COMPRESSED = 1, 2
"""Kinds of blocks; kind 0 is stored as it is, 3 does not exist."""
ZSTD_BLOCK_BYTES = 128 * 1024
"""What a block inflates to at most."""

ZSTD_SEPARATOR = os.urandom(32)  # noqa: TID251 - the output does not depend on it
"""Inflated between frames that do not say how large they are, to be found again. No data can hold it, since it is
chosen when the process starts. One of this length is looked for at eight bytes a nanosecond."""
ZSTD_SEPARATOR_FRAME = struct.pack("<IBBHB", ZSTD_MAGIC, 0x20, len(ZSTD_SEPARATOR), len(ZSTD_SEPARATOR) << 3 | 1, 0)
ZSTD_SEPARATOR_FRAME += ZSTD_SEPARATOR
"""It, stored as it is in the one block of a frame."""


Room = Callable[[int], memoryview]
"""Takes a number of bytes, returns writable memory of at least as many."""


class Codec(enum.IntEnum):
    """How the records of a batch are compressed: bits 0 to 2 of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def decompression_limit(max_message_bytes: int) -> int:
    """Return what a batch may grow to on a topic with this ``max.message.bytes``."""
    wanted = max(DEFAULT_MAX_DECOMPRESSED_BYTES, MAX_MESSAGE_BYTES_FACTOR * max_message_bytes)
    return min(wanted, MAX_DECOMPRESSED_BYTES)


def compress(codec: Codec, data: ReadableBuffer, level: int | None = None) -> bytes:
    """Return ``data`` compressed. ``level`` is the codec's own scale; None is a good one; snappy has none."""
    match codec:
        case Codec.NONE:
            return bytes(data)
        case Codec.GZIP:
            import zlib

            return zlib.compress(data, DEFAULT_GZIP_LEVEL if level is None else level, wbits=GZIP_WBITS)
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data, DEFAULT_LZ4_LEVEL if level is None else level)
        case Codec.ZSTD:
            packed: bytes = _zstd().compress(data, DEFAULT_ZSTD_LEVEL if level is None else level)
            return packed


def decompress(codec: Codec, data: ReadableBuffer, *, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
    """Return ``data`` inflated, at most ``max_bytes`` of it.

    Raises:
        DecompressionTooLarge: there is more, or it grows by more than ``MAX_RATIO`` beyond ``RATIO_FREE_BYTES``.
        InvalidRecord: it is not what ``codec`` writes, or it is cut short.
    """
    limit = decompression_bound(data, max_bytes)
    match codec:
        case Codec.NONE:
            if len(data) > max_bytes:
                raise _too_large(codec, data, max_bytes)
            return bytes(data)
        case Codec.GZIP:
            return _decompress_gzip(data, limit)
        case Codec.SNAPPY:
            return _into_new(_snappy_into, data, limit)
        case Codec.LZ4:
            return _into_new(_lz4_into, data, limit)
        case Codec.ZSTD:
            return _decompress_zstd(data, limit)


def decompress_into(
    codec: Codec, data: ReadableBuffer, room: Room, *, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> int:
    """Inflate ``data`` into memory of the caller's; return how many bytes of it that took.

    ``room`` is called with a number of bytes that is enough and within the bounds, and returns at least as much memory;
    when it is called again, because the data had to be read in another way, that replaces what it gave before. Of
    snappy, lz4 and zstd nothing is copied then, which for batches of a few kilobytes takes half the time of
    ``decompress``. Errors are the same.
    """
    match codec:
        case Codec.SNAPPY:
            return _snappy_into(memoryview(data), room, decompression_bound(data, max_bytes))
        case Codec.LZ4:
            return _lz4_into(memoryview(data), room, decompression_bound(data, max_bytes))
        case Codec.ZSTD:
            return _zstd_into(memoryview(data), room, decompression_bound(data, max_bytes))
        case _:
            inflated = decompress(codec, data, max_bytes=max_bytes)
            room(len(inflated))[: len(inflated)] = inflated
            return len(inflated)


def decompression_bound(data: ReadableBuffer, max_bytes: int) -> int:
    """Return how many bytes ``data`` may become."""
    return min(max_bytes, MAX_DECOMPRESSED_BYTES, max(RATIO_FREE_BYTES, MAX_RATIO * len(data)))


def inflated_bytes_bound(codec: Codec, data: memoryview, *, max_blocks: int | None = None) -> int:
    """Return the most that ``data`` can inflate to, by its headers and what a byte of the codec makes at most.

    Nothing is inflated, but blocks are followed: a microsecond or two for each, and an empty one has three to five
    bytes. Of more than ``max_blocks`` it is ``MAX_DECOMPRESSED_BYTES``. It says nothing about whether ``data`` can be
    inflated at all.

    Raises:
        InvalidRecord: snappy or lz4 whose blocks do not fit into ``data``.
    """
    match codec:
        case Codec.NONE:
            return len(data)
        case Codec.GZIP:
            return GZIP_MAX_RATIO * len(data)
        case Codec.SNAPPY:
            blocks = _snappy_blocks(data)
            first = list(islice(blocks, max_blocks))
            return sum(map(_snappy_declared_bytes, first)) if next(blocks, None) is None else MAX_DECOMPRESSED_BYTES
        case Codec.LZ4:
            return _lz4_output_bound(data, max_blocks)
        case Codec.ZSTD:
            bound = zstd_output_bound(data, max_blocks)
            return MAX_DECOMPRESSED_BYTES if bound is None else bound


def check_framing(codec: Codec, data: memoryview) -> None:
    """Refuse what ``decompress`` reads and Kafka's clients in Java do not: lz4 in other than one frame of independent
    blocks. Their consumers stop at it, and a broker of Kafka takes it from no producer.

    Raises:
        InvalidRecord: so it is.
    """
    if codec is not Codec.LZ4:
        return
    _, end = _lz4_frame_bound(data, 0)
    if end != len(data):
        raise _damaged(Codec.LZ4, f"{len(data) - end} bytes behind its one frame")
    flags = data[4]
    if flags & LZ4_KNOWN_FLAGS != LZ4_INDEPENDENT_BLOCKS:
        raise _damaged(Codec.LZ4, f"frame flags {flags:#04x}, blocks must be independent and without a dictionary")


def _into_new(into: Callable[[memoryview, Room, int], int], data: ReadableBuffer, limit: int) -> bytes:
    out = bytearray()

    def room(size: int) -> memoryview:
        nonlocal out
        out = bytearray(size)
        return memoryview(out)

    produced = into(memoryview(data), room, limit)
    return bytes(memoryview(out)[:produced])


def _too_large(codec: Codec, data: ReadableBuffer, limit: int) -> DecompressionTooLarge:
    return DecompressionTooLarge(f"{len(data)} bytes of {codec.name.lower()} hold more than the {limit} bytes allowed")


def _damaged(codec: Codec, reason: object) -> InvalidRecord:
    return InvalidRecord(f"cannot decompress {codec.name.lower()}: {reason}")


# gzip -----------------------------------------------------------------------------------------------------------------


def _decompress_gzip(data: ReadableBuffer, limit: int) -> bytes:
    import zlib

    return _inflate_streams(Codec.GZIP, lambda: zlib.decompressobj(GZIP_WBITS), zlib.error, data, limit)


def _inflate_streams(
    codec: Codec, new_inflater: Callable[[], Any], failed: type[Exception], data: ReadableBuffer, limit: int
) -> bytes:
    """Inflate the streams, gzip members or zstd frames, that ``data`` consists of."""
    parts: list[bytes] = []
    produced = 0
    rest: ReadableBuffer = data
    for _ in range(MAX_FRAMES):
        inflater = new_inflater()
        try:
            # One byte more than allowed, so that "exactly the limit" and "beyond it" look different.
            part: bytes = inflater.decompress(rest, limit - produced + 1)
        except failed as error:
            raise _damaged(codec, error) from None
        parts.append(part)
        produced += len(part)
        if produced > limit:
            raise _too_large(codec, data, limit)
        if not inflater.eof:
            raise _damaged(codec, "it ends early")
        rest = inflater.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)
    raise _damaged(codec, f"more than {MAX_FRAMES} streams")


# snappy ---------------------------------------------------------------------------------------------------------------


def _compress_snappy(data: ReadableBuffer) -> bytes:
    import cramjam

    view = memoryview(data)
    out = bytearray(XERIAL_HEADER)
    for start in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + XERIAL_BLOCK_BYTES]))
        out += len(block).to_bytes(4, "big")
        out += block
    return bytes(out)


def _snappy_into(data: memoryview, room: Room, limit: int) -> int:
    import cramjam

    blocks = list(_snappy_blocks(data))
    sizes = [_snappy_declared_bytes(block) for block in blocks]
    total = sum(sizes)
    if total > limit:
        raise _too_large(Codec.SNAPPY, data, limit)
    view = room(total)
    position = 0
    try:
        for block, size in zip(blocks, sizes, strict=True):
            if size:  # an empty output buffer is an error to the library; the declared size was all there was to read
                cramjam.snappy.decompress_raw_into(block, view[position : position + size])
            position += size
    except cramjam.DecompressionError as error:
        raise _damaged(Codec.SNAPPY, error) from None
    return total


def _snappy_blocks(data: memoryview) -> Iterator[memoryview]:
    return _xerial_blocks(data) if data[:8] == XERIAL_MAGIC else iter([data])


def _xerial_blocks(data: memoryview) -> Iterator[memoryview]:
    """Yield the raw snappy blocks of snappy-java's framing, whose magic was seen.

    The whole header may come again between blocks, where two streams were joined.
    """
    position, end = 0, len(data)
    while position < end:
        if data[position : position + 8] == XERIAL_MAGIC:
            position += len(XERIAL_HEADER)
            if position > end:
                raise _damaged(Codec.SNAPPY, "the stream header ends early")
            continue
        size = int.from_bytes(data[position : position + 4], "big")
        position += 4
        if size > end - position or position > end:
            raise _damaged(Codec.SNAPPY, f"a block of {size} bytes where {max(0, end - position)} are left")
        yield data[position : position + size]
        position += size


def _snappy_declared_bytes(block: memoryview) -> int:
    """Return the inflated size that a raw block declares (a little-endian varint), refusing impossible ones."""
    size = 0
    for index in range(min(5, len(block))):
        byte = block[index]
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if size > SNAPPY_MAX_RATIO * len(block):
                raise _damaged(Codec.SNAPPY, f"a block of {len(block)} bytes cannot hold the {size} it declares")
            return size
    raise _damaged(Codec.SNAPPY, "a block without a size")


# lz4 ------------------------------------------------------------------------------------------------------------------


def _compress_lz4(data: ReadableBuffer, level: int) -> bytes:
    import cramjam

    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))  # it takes nothing else; bytes are not copied by this
    return _without_block_checksums(memoryview(compressor.finish()))


def _without_block_checksums(frame: memoryview) -> bytes:
    """Return a frame of the library, which has a checksum behind each block, as a plain one.

    The batch has its own, and a reader of plain frames needs no more than their blocks (``_lz4_plain_into``).
    """
    pieces: list[ReadableBuffer] = [LZ4_WRITTEN_HEADER]
    position = LZ4_PLAIN_HEADER_BYTES
    while True:
        (word,) = _LZ4_BLOCK_HEADER.unpack_from(frame, position)
        end = position + _LZ4_BLOCK_HEADER.size + (word & LZ4_BLOCK_SIZE_MASK)
        pieces.append(frame[position:end])
        if word == 0:
            return b"".join(pieces)
        position = end + LZ4_CHECKSUM_BYTES


def _lz4_into(data: memoryview, room: Room, limit: int) -> int:
    produced = _lz4_plain_into(data, room, limit)
    return _lz4_frames_into(data, room, limit) if produced is None else produced


def _lz4_plain_into(data: memoryview, room: Room, limit: int) -> int | None:
    """Inflate one frame that has but compressed blocks in it; None for other data and wherever anything is wrong.

    What the library sets up for a frame takes as long as inflating ten kilobytes, and blocks do not need it.
    """
    import cramjam

    block_bytes = LZ4_PLAIN_HEADERS.get(bytes(data[:LZ4_PLAIN_HEADER_BYTES]))
    blocks = None if block_bytes is None else _lz4_compressed_blocks(data, block_bytes)
    if block_bytes is None or blocks is None:
        return None
    bound = sum(min(block_bytes, LZ4_MAX_RATIO * len(block)) for block in blocks)
    # A bound, not the size: whether the frame really holds more is found by the slower way, which also has the right
    # error.
    if bound > limit:
        return None
    view = room(bound)[:bound]
    produced = 0
    try:
        for block in blocks:
            out = view[produced : produced + block_bytes]
            produced += cramjam.lz4.decompress_block_into(block, out, output_len=len(out))
    # No error here: the slower way reads the frame again, and says what is wrong.
    except cramjam.DecompressionError:
        return None
    return produced


def _lz4_compressed_blocks(data: memoryview, block_bytes: int) -> list[memoryview] | None:
    """Return the blocks of a plain frame; None unless all are compressed and nothing is behind them."""
    blocks: list[memoryview] = []
    position, end = LZ4_PLAIN_HEADER_BYTES, len(data)
    while position + _LZ4_BLOCK_HEADER.size <= end:
        (size,) = _LZ4_BLOCK_HEADER.unpack_from(data, position)
        position += _LZ4_BLOCK_HEADER.size
        if size == 0:
            return blocks if position == end else None
        if size > block_bytes:  # as is any size with the high bit, which marks a block stored as it is
            return None
        blocks.append(data[position : position + size])
        position += size
    return None


def decompress_lz4_frames(data: memoryview, pieces: Sequence[tuple[int, int]], out: memoryview) -> list[int]:
    """Inflate pieces of ``data`` into ``out``, one behind the other, as far as each is a plain frame of one block.

    Returns what each became, in bytes. The others, from the first that is anything else, is damaged, or may not fit,
    are left to ``decompress_into``. For many small ones, since that takes as long as inflating 16 KiB to choose a way.
    """
    import cramjam

    start_bytes, end_bytes = _LZ4_FRAME_START.size, _LZ4_BLOCK_HEADER.size
    sizes: list[int] = []
    position, left = 0, len(out)
    with contextlib.suppress(cramjam.DecompressionError, struct.error):
        for start, end in pieces:
            header, size = _LZ4_FRAME_START.unpack_from(data, start)
            (end_mark,) = _LZ4_BLOCK_HEADER.unpack_from(data, end - end_bytes)
            block_start, block_end = start + start_bytes, end - end_bytes
            bound = min(LZ4_WRITTEN_BLOCK_BYTES, LZ4_MAX_RATIO * size)
            is_plain = header == LZ4_WRITTEN_HEADER and size == block_end - block_start and end_mark == 0
            if not is_plain or size > LZ4_WRITTEN_BLOCK_BYTES or bound > left:
                break
            room = out[position : position + bound]
            produced = cramjam.lz4.decompress_block_into(data[block_start:block_end], room, output_len=bound)
            sizes.append(produced)
            position += produced
            left -= produced
    return sizes


def _lz4_frames_into(data: memoryview, room: Room, limit: int) -> int:
    import cramjam

    bound = _lz4_output_bound(data)
    size = max(1, min(bound, limit))  # not empty, so that the library looks at empty frames too
    try:
        produced: int = cramjam.lz4.decompress_into(data, room(size)[:size])
    except cramjam.DecompressionError as error:
        if bound > limit:
            # The library says only that it failed. With room for all that the frame could hold this would be damage;
            # here the room was cut, and that is by far the likelier reason.
            raise _too_large(Codec.LZ4, data, limit) from None
        raise _damaged(Codec.LZ4, error) from None
    if produced > limit:
        raise _too_large(Codec.LZ4, data, limit)
    return produced


def _lz4_output_bound(data: memoryview, max_blocks: int | None = None) -> int:
    """Return the most that the frames in ``data`` can inflate to, by walking their block headers.

    The library wants the output buffer beforehand; this keeps it as small as the input can fill. Where a frame has more
    than ``max_blocks``, it is ``MAX_DECOMPRESSED_BYTES``.
    """
    bound = position = 0
    for _ in range(MAX_FRAMES):
        frame_bound, position = _lz4_frame_bound(data, position, max_blocks)
        bound += frame_bound
        if position == len(data):
            return bound
    raise _damaged(Codec.LZ4, f"more than {MAX_FRAMES} frames")


def _lz4_frame_bound(data: memoryview, position: int, max_blocks: int | None = None) -> tuple[int, int]:
    """Return the most that the frame at ``position`` can inflate to, and the position after it.

    Of one that has more than ``max_blocks`` the whole rest of ``data`` is taken.
    """
    if data[position : position + 4] != LZ4_FRAME_MAGIC or len(data) < position + 7:
        raise _damaged(Codec.LZ4, f"no frame at byte {position}")
    flags, descriptor = data[position + 4], data[position + 5]
    block_bytes = LZ4_BLOCK_BYTES.get(descriptor >> 4 & 0x07)
    if block_bytes is None:
        raise _damaged(Codec.LZ4, "a block size that does not exist")
    position += 7 + (8 if flags & 0x08 else 0) + (4 if flags & 0x01 else 0)  # content size, dictionary id
    block_checksum_bytes = LZ4_CHECKSUM_BYTES if flags & 0x10 else 0
    bound = 0
    for blocks in count():
        try:
            (word,) = _LZ4_BLOCK_HEADER.unpack_from(data, position)
        except struct.error:
            raise _damaged(Codec.LZ4, "it ends early") from None
        position += 4
        if word == 0:
            return bound, position + (LZ4_CHECKSUM_BYTES if flags & 0x04 else 0)  # of the content
        if blocks == max_blocks:
            break
        size = word & LZ4_BLOCK_SIZE_MASK
        bound += min(block_bytes, LZ4_MAX_RATIO * size)
        position += size + block_checksum_bytes
    return MAX_DECOMPRESSED_BYTES, len(data)


# zstd -----------------------------------------------------------------------------------------------------------------


def _zstd() -> ModuleType:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    module: ModuleType = zstd
    return module


def _decompress_zstd(data: ReadableBuffer, limit: int) -> bytes:
    zstd = _zstd()
    options = {zstd.DecompressionParameter.window_log_max: ZSTD_MAX_WINDOW_LOG}
    return _inflate_streams(Codec.ZSTD, lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError, data, limit)


def _zstd_into(data: memoryview, room: Room, limit: int) -> int:
    bound = zstd_output_bound(data)
    if bound is not None and bound <= limit:
        import cramjam

        size = max(1, bound)  # an empty output buffer is an error to the library
        try:
            produced: int = cramjam.zstd.decompress_into(data, room(size)[:size])
        except cramjam.DecompressionError:
            pass  # the other library has better words for what is wrong
        else:
            return produced
    inflated = _decompress_zstd(data, limit)
    room(len(inflated))[: len(inflated)] = inflated
    return len(inflated)


def zstd_output_bound(data: memoryview, max_blocks: int | None = None) -> int | None:
    """Return the most that ``data`` inflates to, which is what it declares if it does.

    None unless it is one frame, or if that has more than ``max_blocks``.
    """
    frame = _zstd_frame(data)
    bound = None if frame is None else _zstd_blocks_bound(data, frame, max_blocks)
    return bound if frame is None or bound is None or frame.declared_bytes is None else frame.declared_bytes


def zstd_declared_bytes(data: memoryview) -> int | None:
    """Return the inflated size that ``data`` declares; None unless it is one whole frame with its size in it."""
    frame = _zstd_frame(data)
    if frame is None or frame.declared_bytes is None or _zstd_blocks_bound(data, frame) is None:
        return None
    return frame.declared_bytes


class ZstdFrame(NamedTuple):
    """The header of a frame: where its blocks begin, what it says that they inflate to, what is behind the last one."""

    blocks_at: int
    declared_bytes: int | None
    checksum_bytes: int


def _zstd_frame(data: memoryview) -> ZstdFrame | None:
    """Return the header of the frame that ``data`` begins with, if it does."""
    if len(data) < ZSTD_MIN_FRAME_BYTES:
        return None
    magic, flags = _ZSTD_FRAME_START.unpack_from(data)
    # Bit 3 is reserved and must be 0: a frame that has it is of a format to come.
    if magic != ZSTD_MAGIC or flags & 0x08:
        return None
    single_segment = flags & 0x20
    position = 5 + (0 if single_segment else 1) + ZSTD_DICTIONARY_BYTES[flags & 0x03]
    checksum_bytes = 4 if flags & 0x04 else 0
    width = ZSTD_SIZE_BYTES[flags >> 6] or (1 if single_segment else 0)
    if not width:
        return ZstdFrame(position, None, checksum_bytes)
    # A size of two bytes is stored less 256, since smaller ones fit into one byte (RFC 8878, 3.1.1.1.4).
    declared = int.from_bytes(data[position : position + width], "little") + (256 if width == 2 else 0)
    return ZstdFrame(position + width, declared, checksum_bytes)


def _zstd_blocks_bound(data: memoryview, frame: ZstdFrame, max_blocks: int | None = None) -> int | None:
    """Return the most that the blocks of ``frame`` can inflate to; None unless ``data`` ends with it.

    Blocks are followed to the end of the frame, so that it is certain where it ends; what is in them is not looked at.
    None, too, if they are more than ``max_blocks``.
    """
    bound, position, last_start, blocks = 0, frame.blocks_at, len(data) - 3, 0
    while position <= last_start and blocks != max_blocks:
        blocks += 1
        word = data[position] | data[position + 1] << 8 | data[position + 2] << 16
        kind, size = word >> 1 & 0x03, word >> 3
        position += 3 + (1 if kind == ZSTD_REPEATED_BYTE else size)
        bound += ZSTD_BLOCK_BYTES if kind == ZSTD_COMPRESSED else size
        if word & 1:
            return bound if position + frame.checksum_bytes == len(data) else None
    return None


def decompress_zstd_frames(frames: Sequence[memoryview], out: memoryview) -> bool:
    """Inflate ``frames`` into ``out``, one behind the other; say whether that filled it exactly.

    For many small ones: what the library sets up for a frame takes as long as inflating ten kilobytes, and this does it
    once for all. ``out`` must be as long as the frames declare together (``zstd_declared_bytes``), and the caller has
    checked that this may be. False means that some frame is damaged; ``decompress`` knows which and why.
    """
    import cramjam

    try:
        produced: int = cramjam.zstd.decompress_into(b"".join(frames), out)
    except cramjam.DecompressionError:
        return False
    return produced == len(out)


def decompress_zstd_frames_apart(
    frames: Sequence[memoryview], memory: bytearray, start: int
) -> list[tuple[int, int]] | None:
    """Inflate ``frames``, of any size, into ``memory`` from ``start`` on; return from where to where each one lies.

    As ``decompress_zstd_frames``, for those that do not declare what they inflate to. There must be room for as much as
    they can become (``zstd_output_bound``, which makes sure that each is one whole frame, too) and for a
    ``ZSTD_SEPARATOR`` behind each. None means that some frame is damaged; ``decompress`` knows which and why.
    """
    import cramjam

    # One call for all frames; the empty last element puts a separator behind the last of them too.
    joined = ZSTD_SEPARATOR_FRAME.join([*frames, b""])
    try:
        end = start + cramjam.zstd.decompress_into(joined, memoryview(memory)[start:])
    except cramjam.DecompressionError:
        return None
    pieces: list[tuple[int, int]] = []
    for _ in frames:
        found = memory.find(ZSTD_SEPARATOR, start, end)
        if found < 0:
            return None
        pieces.append((start, found))
        start = found + len(ZSTD_SEPARATOR)
    return pieces if start == end else None
