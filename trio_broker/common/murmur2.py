"""The hash that gives a record's key its partition, the same as in Kafka's Java clients.

All records with the same key therefore go to the same partition, whichever program writes them.

Source: Kafka's Utils.murmur2 and BuiltInPartitioner.
"""

from __future__ import annotations

from typing import Final

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
SHIFT: Final = 24

POSITIVE: Final = 0x7FFF_FFFF
"""Masks the sign bit, as Kafka's ``Utils.toPositive`` does; ``abs`` would give other partitions."""

WORD_BYTES: Final = 4


def murmur2(data: bytes) -> int:
    """Return the hash of ``data`` as an unsigned number of 32 bits."""
    mask = 0xFFFF_FFFF
    size = len(data)
    tail = size % WORD_BYTES
    value = SEED ^ size
    for start in range(0, size - tail, WORD_BYTES):
        word = int.from_bytes(data[start : start + WORD_BYTES], "little") * MULTIPLIER & mask
        # ``*`` binds before ``&``, and ``&`` before ``^``.
        value = value * MULTIPLIER & mask ^ (word ^ word >> SHIFT) * MULTIPLIER & mask
    # The switch over 1 to 3 remaining bytes in Kafka's code, as one little-endian number.
    if tail:
        value = (value ^ int.from_bytes(data[size - tail :], "little")) * MULTIPLIER & mask
    value = (value ^ value >> 13) * MULTIPLIER & mask
    return value ^ value >> 15


def partition_of(key: bytes, partition_count: int) -> int:
    """Return the partition of a key in a topic with ``partition_count`` partitions."""
    return (murmur2(key) & POSITIVE) % partition_count
