"""Inflates compressed blocks, back to back, into memory that is used again.

A batch of the size that producers write by default takes a codec ten microseconds, and so does choosing the way in
which one block is read. Where many blocks are alike one choice, or one call, serves for all of them; the others are
inflated alone, which also finds what is wrong with those that are damaged.

Source: kafka_wire.records.compression for the bounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np

from kafka_wire.errors import KafkaError
from kafka_wire.records.compression import (
    LZ4_WRITTEN_BLOCK_BYTES,
    ZSTD_BLOCK_BYTES,
    ZSTD_SEPARATOR,
    Codec,
    decompress_into,
    decompress_lz4_frames,
    decompress_zstd_frames,
    decompress_zstd_frames_apart,
    decompression_bound,
    zstd_declared_bytes,
    zstd_output_bound,
)
from kafka_wire.records.errors import InvalidRecord
from trio_broker.spark.batch_table import ByteArray

FIRST_INFLATION_BYTES: Final = 1024 * 1024
"""The first size of the memory for inflated blocks; it grows by doubling."""

MAX_FRAMES_AT_ONCE: Final = 32
"""The number of frames inflated together. With 32 the setup of zstd is a fortieth of the work; with more, joining the
frames costs more than it saves."""

SMALL_FRAME_BYTES: Final = 16 * 1024
"""Up to this size a zstd frame that does not declare its inflated size is inflated together with others: finding the
end of its output costs less than a setup of its own."""

_CODECS: Final = {int(codec): codec for codec in Codec}

Spans = list[tuple[int, int]]
"""Where blocks begin and end in some memory."""


class InflationBuffer:
    """Memory that inflated blocks are appended to, and that is reused after ``clear``."""

    def __init__(self) -> None:
        self.memory = bytearray(FIRST_INFLATION_BYTES)
        self.used_bytes = 0

    @property
    def data(self) -> ByteArray:
        """The memory as an array."""
        return np.frombuffer(self.memory, np.uint8)

    def clear(self) -> None:
        """Remove all blocks."""
        self.used_bytes = 0

    def room(self, size: int) -> memoryview:
        """Return memory for ``size`` more bytes, behind the used ones."""
        needed = self.used_bytes + size
        if needed > len(self.memory):
            grown = bytearray(max(needed, 2 * len(self.memory)))
            grown[: self.used_bytes] = memoryview(self.memory)[: self.used_bytes]
            self.memory = grown
        return memoryview(self.memory)[self.used_bytes : needed]


@attrs.frozen(eq=False)
class Inflater:
    """Inflates blocks of ``data``, all of one codec, into ``buffer``, each to at most ``max_inflated_bytes``.

    ``enough_bytes`` of them are inflated at a time.
    """

    codec: int
    data: memoryview
    buffer: InflationBuffer
    max_inflated_bytes: int
    enough_bytes: int

    def inflate(self, packed: Spans) -> tuple[Spans, KafkaError | None]:
        """Inflate the first blocks; return where they lie in the buffer, and the error of the block behind them.

        What the buffer held before is gone.
        """
        self.buffer.clear()
        spans: Spans = []
        while len(spans) < len(packed) and self.buffer.used_bytes < self.enough_bytes:
            some = packed[len(spans) : len(spans) + MAX_FRAMES_AT_ONCE]
            try:
                spans += self._inflate_together(some) or self._inflate_alone(some[0])
            except KafkaError as error:
                return spans, error
        return spans, None

    def _block(self, span: tuple[int, int]) -> memoryview:
        return self.data[span[0] : span[1]]

    def _inflate_alone(self, span: tuple[int, int]) -> Spans:
        codec = _CODECS.get(self.codec)
        if codec is None:
            raise InvalidRecord(f"codec {self.codec} does not exist")
        limit = self.max_inflated_bytes
        return self._appended([decompress_into(codec, self._block(span), self.buffer.room, max_bytes=limit)])

    def _inflate_together(self, packed: Spans) -> Spans:
        """Inflate the first blocks, as far as they are of a kind for which that pays; return where they lie."""
        match self.codec:
            case Codec.LZ4:
                return self._inflate_lz4_frames(packed)
            case Codec.ZSTD:
                blocks = [self._block(span) for span in packed]
                return self._inflate_zstd_frames(blocks) or self._inflate_small_zstd_frames(blocks)
            case _:
                return []

    def _inflate_lz4_frames(self, packed: Spans) -> Spans:
        if self.max_inflated_bytes < LZ4_WRITTEN_BLOCK_BYTES:
            return []
        # Room for the block that reaches beyond what is enough.
        room = self.buffer.room(self.enough_bytes - self.buffer.used_bytes + LZ4_WRITTEN_BLOCK_BYTES)
        return self._appended(decompress_lz4_frames(self.data, packed, room))

    def _appended(self, sizes: Sequence[int]) -> Spans:
        """Count blocks of so many bytes as used; return where they lie."""
        ends = list(itertools.accumulate(sizes, initial=self.buffer.used_bytes))
        self.buffer.used_bytes = ends[-1]
        return list(itertools.pairwise(ends))

    def _inflate_zstd_frames(self, blocks: Sequence[memoryview]) -> Spans:
        """Inflate the first blocks in one call, as far as they declare their inflated size.

        Returns where they lie; nothing if one call does not pay, or if a frame does not inflate to what it declares.
        """
        sizes: list[int] = []
        total = 0
        for block in blocks:
            size = zstd_declared_bytes(block)
            if size is None or size > decompression_bound(block, self.max_inflated_bytes):
                break
            if self.buffer.used_bytes + total + size > self.enough_bytes:
                break
            sizes.append(size)
            total += size
        frames = blocks[: len(sizes)]
        if len(frames) < 2 or not decompress_zstd_frames(frames, self.buffer.room(total)):
            return []
        return self._appended(sizes)

    def _inflate_small_zstd_frames(self, blocks: Sequence[memoryview]) -> Spans:
        """Inflate the first blocks in one call, as far as they are small, whatever they declare.

        Returns where they lie; nothing if one call does not pay or does not succeed.
        """
        frames: list[memoryview] = []
        size = 0
        for block in blocks:
            if len(block) > SMALL_FRAME_BYTES:
                break
            bound = zstd_output_bound(block)
            if bound is None or bound > min(ZSTD_BLOCK_BYTES, self.max_inflated_bytes):
                break
            frames.append(block)
            size += bound + len(ZSTD_SEPARATOR)
        if len(frames) < 2:
            return []
        self.buffer.room(size)
        spans = decompress_zstd_frames_apart(frames, self.buffer.memory, self.buffer.used_bytes) or []
        if spans:
            self.buffer.used_bytes = spans[-1][1]
        return spans
