"""Memory for answers: it grows with what comes, and is used again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trio_broker.client.receive_buffer import FIRST_BYTES, ReceiveBuffer

ANNOUNCED_BYTES = 1 << 30


def source(data: bytes, piece_bytes: int) -> tuple[Callable[[memoryview], int], list[int]]:
    """Something that brings ``data`` in pieces, and how much memory it was offered each time."""
    offered: list[int] = []
    rest = bytearray(data)

    def receive_into(memory: memoryview) -> int:
        offered.append(len(memory))
        piece = rest[: min(piece_bytes, len(memory))]
        if not piece:
            raise ConnectionError("nothing more comes")
        memory[: len(piece)] = piece
        del rest[: len(piece)]
        return len(piece)

    return receive_into, offered


@pytest.mark.parametrize("piece_bytes", [1000, 300_000, 1 << 30])
def test_what_comes_in_pieces_is_whole(piece_bytes: int):
    data = bytes(range(256)) * 5000
    receive_into, _ = source(data, piece_bytes)
    assert ReceiveBuffer().fill(len(data), receive_into) == data


def test_memory_is_taken_as_bytes_come_and_not_as_they_are_announced():
    receive_into, offered = source(b"x" * (3 * FIRST_BYTES), FIRST_BYTES)
    with pytest.raises(ConnectionError):
        ReceiveBuffer().fill(ANNOUNCED_BYTES, receive_into)
    assert max(offered) <= 3 * FIRST_BYTES


def test_a_second_answer_takes_no_more_memory():
    buffer = ReceiveBuffer()
    first = buffer.fill(1_000_000, source(b"a" * 1_000_000, 100_000)[0])
    second = buffer.fill(500_000, source(b"b" * 500_000, 100_000)[0])
    assert second.obj is first.obj
    assert second == b"b" * 500_000


def test_a_slightly_larger_answer_takes_no_more_memory():
    buffer = ReceiveBuffer()
    first = buffer.fill(2_500_000, source(b"a" * 2_500_000, 1_000_000)[0])
    second = buffer.fill(2_600_000, source(b"b" * 2_600_000, 1_000_000)[0])
    assert second.obj is first.obj


def test_a_small_answer_takes_no_more_than_its_size():
    assert memoryview(ReceiveBuffer().fill(100, source(b"a" * 100, 100)[0]).obj).nbytes == 100


def test_an_answer_that_somebody_still_holds_does_not_keep_a_larger_one_away():
    buffer = ReceiveBuffer()
    first = buffer.fill(10, source(b"a" * 10, 10)[0])
    second = buffer.fill(1_000_000, source(b"b" * 1_000_000, 1_000_000)[0])
    assert len(second) == 1_000_000
    assert len(first) == 10


def test_nothing_is_received_for_an_answer_of_no_bytes():
    receive_into, offered = source(b"", 1)
    assert len(ReceiveBuffer().fill(0, receive_into)) == 0
    assert offered == []
