"""kafka_wire.frame_receiver."""

from __future__ import annotations

import mmap
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_wire.errors import WireError
from kafka_wire.frame_receiver import (
    BIG_FRAME_FIRST_BYTES,
    BIG_FRAME_GROWTH,
    DIRECT_RECEIVE_BYTES,
    MAX_ZEROED_BYTES,
    FrameReceiver,
)

LIMIT = 1 << 20
BIG_BYTES = DIRECT_RECEIVE_BYTES + 1000


def framed(*payloads: bytes) -> bytes:
    return b"".join(len(payload).to_bytes(4, "big", signed=True) + payload for payload in payloads)


def drained(connection: FrameReceiver) -> Iterator[bytes]:
    while (frame := connection.next_frame()) is not None:
        yield bytes(frame)


def received(connection: FrameReceiver, data: bytes) -> list[bytes]:
    """Receive from a staging buffer that is used again afterwards, and return the frames that are whole by then."""
    staging = bytearray(data)
    first = connection.receive_frame(memoryview(staging))
    staging[:] = b"\xee" * len(staging)
    return [] if first is None else [bytes(first), *drained(connection)]


def received_as_a_socket_would(connection: FrameReceiver, stream: bytes, sizes: Iterator[int]) -> list[bytes]:
    """Receive a stream in steps of the given sizes, big frames directly."""
    frames: list[bytes] = []
    while stream:
        size = next(sizes)
        buffer = connection.receive_buffer()
        if buffer is None:
            frames += received(connection, stream[:size])
        else:
            size = min(size, len(buffer))
            buffer[: len(stream[:size])] = stream[:size]
            connection.bytes_received(len(stream[:size]))
            frames += drained(connection)
        stream = stream[size:]
    return frames


@pytest.fixture
def connection() -> FrameReceiver:
    return FrameReceiver(LIMIT)


payloads = st.lists(
    st.binary(min_size=8, max_size=60)
    | st.builds(
        lambda size, seed: bytes((seed,)) * size, st.integers(8, 3 * DIRECT_RECEIVE_BYTES), st.integers(0, 255)
    ),
    max_size=6,
)
step_sizes = st.lists(st.integers(1, 40) | st.integers(1, 2 * DIRECT_RECEIVE_BYTES), min_size=1, max_size=20)


@given(payloads, step_sizes)
def test_any_split_of_a_stream_gives_the_same_frames(payloads: list[bytes], sizes: list[int]) -> None:
    def forever() -> Iterator[int]:
        yield from sizes
        while True:
            yield max(sizes[-1], 1000)

    stream = framed(*payloads)
    assert received_as_a_socket_would(FrameReceiver(LIMIT), stream, forever()) == payloads


@given(payloads, step_sizes)
def test_receiving_directly_is_not_required(payloads: list[bytes], sizes: list[int]) -> None:
    connection, stream, frames = FrameReceiver(LIMIT), framed(*payloads), []
    for size in (*sizes, len(stream)):
        frames += received(connection, stream[:size])
        stream = stream[size:]
    assert frames == payloads
    assert not connection.frame_under_way


def test_several_frames_may_come_at_once(connection: FrameReceiver) -> None:
    assert received(connection, framed(b"first...", b"second..")) == [b"first...", b"second.."]


def test_frames_are_taken_one_at_a_time_while_more_bytes_come(connection: FrameReceiver) -> None:
    stream = framed(b"first...", b"second..", b"third...")
    connection.receive_data(memoryview(stream[:30]))
    first = connection.next_frame()
    connection.receive_data(memoryview(stream[30:]))
    assert first is not None
    assert first.tobytes() == b"first..."
    assert list(drained(connection)) == [b"second..", b"third..."]


def test_the_bytes_behind_a_frame_are_pending_until_they_are_taken(connection: FrameReceiver) -> None:
    assert connection.bytes_pending == 0
    connection.receive_data(memoryview(framed(b"first...", b"second..")))
    assert connection.next_frame() is not None
    assert connection.bytes_pending == 12
    assert connection.next_frame() is not None
    assert connection.bytes_pending == 0


def test_a_frame_can_be_written_to_without_touching_its_neighbours(connection: FrameReceiver) -> None:
    connection.receive_data(memoryview(framed(b"first...", b"second..")))
    first, second = connection.next_frame(), connection.next_frame()
    assert first is not None
    first[:] = b"xxxxxxxx"
    assert second is not None
    assert second.tobytes() == b"second.."


@pytest.mark.parametrize("begun", [b"", b"\0"])
def test_a_frame_is_the_same_whether_it_comes_whole_or_behind_its_first_byte(
    connection: FrameReceiver, begun: bytes
) -> None:
    connection.receive_data(memoryview(begun))
    frame = connection.receive_frame(memoryview(bytearray(framed(b"a request")[len(begun) :])))
    assert frame is not None
    assert bytes(frame) == b"a request"
    assert not frame.readonly
    assert not connection.frame_under_way


def test_an_idle_connection_holds_no_buffer(connection: FrameReceiver) -> None:
    received(connection, framed(b"x" * 5000, b"y" * BIG_BYTES))
    assert not connection.frame_under_way
    assert connection.receive_buffer() is None
    assert connection._received is None
    assert connection._big_frame is None


def test_a_big_frame_is_received_into_a_buffer_of_its_size(connection: FrameReceiver) -> None:
    payload = bytes(range(256)) * (BIG_BYTES // 256 + 1)
    assert received(connection, framed(payload)[:1000]) == []
    buffer = connection.receive_buffer()
    assert buffer is not None
    assert len(buffer) == len(payload) - 996
    buffer[:] = payload[996:]
    connection.bytes_received(len(buffer))
    assert connection.receive_buffer() is None
    frame = connection.next_frame()
    assert frame is not None
    assert frame.tobytes() == payload
    assert not connection.frame_under_way


def test_a_big_frame_behind_a_small_one_waits_until_that_is_taken(connection: FrameReceiver) -> None:
    connection.receive_data(memoryview(framed(b"first...", b"x" * BIG_BYTES)[:100]))
    assert connection.receive_buffer() is None
    assert bytes(connection.next_frame() or b"") == b"first..."
    assert connection.receive_buffer() is not None


def test_what_comes_after_a_big_frame_is_the_next_frame(connection: FrameReceiver) -> None:
    stream = framed(b"x" * BIG_BYTES, b"second..")
    received(connection, stream[:10])
    assert connection.receive_buffer() is not None
    assert received(connection, stream[10:]) == [b"x" * BIG_BYTES, b"second.."]


def test_nothing_is_allocated_for_a_big_frame_before_its_buffer_is_asked_for(connection: FrameReceiver) -> None:
    received(connection, framed(b"x" * BIG_BYTES)[:10])
    assert connection.frame_bytes_expected == BIG_BYTES
    assert connection._received is not None
    assert len(connection._received) == 10


def test_an_announced_size_allocates_little_until_the_bytes_come() -> None:
    connection = FrameReceiver(max_frame_bytes=100 << 20)
    connection.receive_data(memoryview((100 << 20).to_bytes(4, "big")))
    buffer = connection.receive_buffer()
    assert buffer is not None
    assert len(buffer) == BIG_FRAME_FIRST_BYTES


@pytest.mark.parametrize("piece", [7_000, 64 * 1024, 1 << 20])
def test_a_buffer_that_grows_keeps_what_has_come(piece: int) -> None:
    payload = bytes(range(256)) * (5 * BIG_FRAME_GROWTH * BIG_FRAME_FIRST_BYTES // 256)
    connection, stream = FrameReceiver(max_frame_bytes=len(payload)), memoryview(framed(payload))
    connection.receive_data(stream[:100])
    position = 100
    while (buffer := connection.receive_buffer()) is not None:
        count = min(piece, len(buffer))
        buffer[:count] = stream[position : position + count]
        connection.bytes_received(count)
        position += count
        assert len(buffer) <= max(BIG_FRAME_FIRST_BYTES, BIG_FRAME_GROWTH * position)
    assert bytes(connection.next_frame() or b"") == payload


def test_a_large_buffer_is_mapped_whole_rather_than_zeroed_and_copied() -> None:
    connection = FrameReceiver(max_frame_bytes=100 << 20)
    connection.receive_data(memoryview((100 << 20).to_bytes(4, "big")))
    buffer = connection.receive_buffer()
    assert buffer is not None
    while len(buffer) < MAX_ZEROED_BYTES:
        connection.bytes_received(len(buffer))
        buffer = connection.receive_buffer()
        assert buffer is not None
    assert isinstance(buffer.obj, mmap.mmap)
    assert len(buffer.obj) == 100 << 20


def test_a_growing_frame_may_also_come_through_the_staging_buffer() -> None:
    payload = bytes(range(256)) * 10_000
    connection = FrameReceiver(max_frame_bytes=len(payload))
    stream = framed(payload, b"second..")
    assert received(connection, stream[:10]) == []
    assert connection.receive_buffer() is not None
    connection.receive_data(memoryview(stream[10:]))
    assert list(drained(connection)) == [payload, b"second.."]


def test_progress_is_reported_without_the_size_prefix(connection: FrameReceiver) -> None:
    assert (connection.frame_bytes_expected, connection.frame_bytes_received) == (None, 0)
    stream = framed(b"first...", b"second..", b"x" * BIG_BYTES)
    connection.receive_data(memoryview(stream[:2]))
    assert (connection.frame_bytes_expected, connection.frame_bytes_received) == (None, 0)
    assert connection.frame_under_way
    connection.receive_data(memoryview(stream[2:10]))
    assert (connection.frame_bytes_expected, connection.frame_bytes_received) == (8, 6)
    connection.receive_data(memoryview(stream[10:40]))
    assert list(drained(connection)) == [b"first...", b"second.."]
    assert (connection.frame_bytes_expected, connection.frame_bytes_received) == (BIG_BYTES, 12)
    connection.receive_buffer()
    connection.bytes_received(88)
    assert (connection.frame_bytes_expected, connection.frame_bytes_received) == (BIG_BYTES, 100)


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, LIMIT + 1, 2**31 - 1])
def test_a_size_that_no_request_has_is_refused_before_any_buffer_is_made(connection: FrameReceiver, size: int) -> None:
    connection.receive_data(memoryview(size.to_bytes(4, "big", signed=True)))
    assert connection.receive_buffer() is None
    for _ in range(2):
        with pytest.raises(WireError, match=f"a frame of {size} bytes"):
            connection.next_frame()


def test_good_frames_before_a_bad_size_still_come(connection: FrameReceiver) -> None:
    connection.receive_data(memoryview(framed(b"first...") + b"GET / HTTP/1.1"))
    assert bytes(connection.next_frame() or b"") == b"first..."
    with pytest.raises(WireError):
        connection.next_frame()


def test_the_limit_may_change_while_the_connection_lives(connection: FrameReceiver) -> None:
    connection.max_frame_bytes = 10
    with pytest.raises(WireError, match="allowed are 8 to 10"):
        received(connection, framed(b"x" * 11))
    connection.max_frame_bytes = 11
    assert bytes(connection.next_frame() or b"") == b"x" * 11
