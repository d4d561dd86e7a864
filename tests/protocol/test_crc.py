"""CRC-32C is Castagnoli's, continues over pieces, and takes any buffer."""

from __future__ import annotations

import pytest

from kafka_wire.records.crc import crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0x00000000),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_the_published_values_come_out(data: bytes, expected: int) -> None:
    """RFC 3720 §B.4, and the usual check value."""
    assert crc32c(data) == expected


def test_pieces_give_what_the_whole_gives() -> None:
    assert crc32c(b"456789", crc32c(b"123")) == crc32c(b"123456789")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))[:]])
def test_any_buffer_is_taken(kind: type[bytes]) -> None:
    assert crc32c(kind(b"123456789")) == 0xE3069283
