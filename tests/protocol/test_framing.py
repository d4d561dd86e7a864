"""kafka_wire.framing."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.framing import MAX_COPIED_BYTES, MAX_FRAME_BYTES, frame

BIG = b"r" * MAX_COPIED_BYTES


class FileRegion:
    """Stands for bytes in a file."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


def test_a_small_response_becomes_one_piece_with_its_size_before_it() -> None:
    assert frame([b"head", b"", memoryview(b"body")]) == [b"\0\0\0\x08headbody"]


def test_a_big_chunk_passes_through_untouched() -> None:
    framed = frame([b"head", BIG, b"tail"])
    assert framed == [b"\0\0\x10\x08head", BIG, b"tail"]
    assert framed[1] is BIG


def test_a_region_of_a_file_passes_through_however_small_it_is() -> None:
    region = FileRegion(3)
    framed: list[Any] = list(frame([b"head", region, b"tail"]))
    assert framed == [b"\0\0\0\x0bhead", region, b"tail"]


def test_the_empty_frame_is_its_size() -> None:
    assert frame([]) == [b"\0\0\0\0"]


def test_more_than_a_size_can_say_is_refused() -> None:
    with pytest.raises(ValueError, match="more than a frame can hold"):
        frame([FileRegion(MAX_FRAME_BYTES), b"x"])
