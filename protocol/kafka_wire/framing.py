"""Frames: every request and every response stands behind its size, a big-endian int32.

Source: Kafka's protocol guide, "Common Request and Response Structure".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from kafka_wire.primitives import Chunk

SIZE_PREFIX: Final = struct.Struct(">i")

MIN_REQUEST_BYTES: Final = 8
"""A request has at least an API key, a version, and a correlation id; a smaller frame is garbage."""

MIN_RESPONSE_BYTES: Final = 4
"""A response has at least a correlation id."""

MAX_RESPONSE_BYTES: Final = 100 * 1024 * 1024
"""The default of ``socket.request.max.bytes``, Kafka's limit for requests. The Metadata of 100,000 partitions takes a
tenth of it. The first four bytes of an HTTP or TLS answer, read as a size, exceed it, so such a peer is recognised."""

MAX_FRAME_BYTES: Final = 0x7FFFFFFF
"""What the size prefix can say."""

MAX_COPIED_BYTES: Final = 4096
"""A chunk in memory smaller than this is cheaper to copy than to hand to the kernel on its own."""


def frame(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Return chunks with their size before them; small ones in memory are joined with their neighbours.

    Raises:
        ValueError: they are more than a frame can hold.
    """
    size = sum(map(len, chunks))
    if size > MAX_FRAME_BYTES:
        raise ValueError(f"{size} bytes are more than a frame can hold")
    framed: list[Chunk] = []
    small: list[bytes | bytearray | memoryview] = [SIZE_PREFIX.pack(size)]
    for chunk in chunks:
        if isinstance(chunk, (bytes, bytearray, memoryview)) and len(chunk) < MAX_COPIED_BYTES:
            small.append(chunk)
            continue
        if small:
            framed.append(b"".join(small))
            small.clear()
        framed.append(chunk)
    if small:
        framed.append(b"".join(small))
    return framed
