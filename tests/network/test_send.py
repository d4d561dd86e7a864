"""Bytes and regions of files to a socket: whole, in order, and never waiting for a disk on the loop."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import attrs
import outcome
import pytest
import trio

from kafka_wire.frame_receiver import FrameReceiver
from kafka_wire.framing import SIZE_PREFIX
from trio_broker.network.channel import PlaintextChannel
from trio_broker.network.connection import Connection
from trio_broker.network.errors import ShortRegion
from trio_broker.network.request_channel import ConnectionInfo
from trio_broker.network.send import (
    REGIONS_PER_TURN,
    WINDOW_BYTES,
    Pause,
    Sender,
    ThreadWork,
    drop_sent,
    first_bytes,
    join_small,
)
from trio_broker.runtime import real_disk
from trio_broker.runtime.disk import OpenMode
from trio_broker.runtime.real_disk import RealDisk, RealFile

INFO = ConnectionInfo(1, "PLAINTEXT", "10.0.0.1", 5000, "10.0.0.2", 9092)


@attrs.define(eq=False)
class Pair:
    """A sender with one connection, and the socket at its other end."""

    sender: Sender
    connection: Connection
    peer: socket.socket
    turns: int = 0
    cold_reads: int = 0

    async def send_and_receive(self, *chunks: Any) -> bytes:
        """Send ``chunks``; returns what arrived behind their size."""
        received = bytearray()

        async def receive(expected: int) -> None:
            while len(received) < expected:
                await trio.lowlevel.wait_readable(self.peer)
                received.extend(self.peer.recv(1 << 20))

        async with trio.open_nursery() as nursery:
            size = sum(map(len, chunks))
            nursery.start_soon(receive, SIZE_PREFIX.size + size)
            await self.send(*chunks)
        assert received[: SIZE_PREFIX.size] == SIZE_PREFIX.pack(size)
        return bytes(received[SIZE_PREFIX.size :])

    async def send(self, *chunks: Any) -> None:
        """Send ``chunks``, and do what the sender pauses for, as a Processor does."""
        under_way = self.sender.send(self.connection, chunks)
        result: outcome.Outcome[Any] = outcome.Value(None)
        while under_way is not None:
            try:
                pause = result.send(under_way)
            except StopIteration:
                return
            result = outcome.Value(None)
            if pause is Pause.ROOM:
                await trio.lowlevel.wait_writable(self.connection.sock)
            elif pause is Pause.TURN:
                self.turns += 1
            else:
                assert isinstance(pause, ThreadWork)
                self.cold_reads += pause.reads_disk
                result = outcome.capture(pause.work)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    ours, peer = socket.socketpair()
    with ours, peer:
        ours.setblocking(False)
        peer.setblocking(False)
        yield Pair(Sender(), Connection(PlaintextChannel(ours), INFO, FrameReceiver(1000), 0.0), peer)


@pytest.fixture
def content() -> bytes:
    return random.Random(7).randbytes(3_000_000)


@pytest.fixture
def file(tmp_path: Path, content: bytes) -> RealFile:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(content)
    return RealDisk().open(path, OpenMode.READ)


async def test_small_chunks_go_out_in_one_call(pair, monkeypatch):
    calls = []

    class Watched:
        def send(self, data: bytes) -> int:
            calls.append(data)
            return len(data)

    monkeypatch.setattr(pair.connection.channel, "send", Watched().send)
    assert pair.sender.send(pair.connection, [b"", memoryview(b"header"), bytearray(b"body")]) is None
    assert calls == [b"\0\0\0\x0aheaderbody"]


async def test_a_small_cached_region_goes_out_with_its_neighbours_in_one_call(pair, file, content, monkeypatch):
    calls = []

    class Watched:
        def send(self, data: bytes) -> int:
            calls.append(data)
            return len(data)

    monkeypatch.setattr(pair.connection.channel, "send", Watched().send)
    chunks = [b"before", file.region(1000, 500), b"after"]
    assert pair.sender.send(pair.connection, chunks) is None
    assert calls == [b"\0\0\x01\xffbefore" + content[1000:1500] + b"after"]


async def test_bytes_larger_than_the_socket_takes_arrive_whole(pair, content):
    assert await pair.send_and_receive(b"head", memoryview(content), b"tail") == b"head" + content + b"tail"
    assert pair.connection.bytes_out == pair.sender.bytes_out == SIZE_PREFIX.size + len(content) + 8


async def test_thousands_of_chunks_arrive_in_order(pair, content):
    pieces = [content[start : start + 700] for start in range(0, len(content), 700)]
    assert await pair.send_and_receive(*pieces) == content


@pytest.mark.parametrize(("position", "size"), [(0, 3_000_000), (17, 100_000), (2_999_000, 1_000), (5, 0), (1, 2**20)])
async def test_a_region_arrives_between_its_neighbours(pair, file, content, position, size):
    region = file.region(position, size)
    assert await pair.send_and_receive(b"before", region, b"after") == (
        b"before" + content[position : position + size] + b"after"
    )


async def test_several_regions_arrive_in_order(pair, file, content):
    regions = [file.region(start, 300_000) for start in range(0, 3_000_000, 300_000)]
    assert await pair.send_and_receive(*regions) == content


async def test_a_cached_region_needs_no_thread(pair, file, content):
    assert file.region(0, 1).is_cached(0, len(content))
    await pair.send_and_receive(file.region(0, len(content)))
    assert pair.cold_reads == 0


@pytest.mark.parametrize("size", [3_000_000, 1_000])
async def test_a_cold_region_goes_through_the_thread(pair, file, content, monkeypatch, size):
    def refuse(*args: Any) -> int:
        raise BlockingIOError

    monkeypatch.setattr(os, "preadv", refuse)
    assert await pair.send_and_receive(file.region(0, size)) == content[:size]
    assert pair.cold_reads >= 1


async def test_pages_dropped_from_the_cache_are_noticed(file, content):
    os.fsync(file.number)
    os.posix_fadvise(file.number, 0, 0, os.POSIX_FADV_DONTNEED)
    if file.region(0, 1).is_cached(0, len(content)):
        pytest.skip("this file system keeps its pages")
    assert len(os.pread(file.number, len(content), 0)) == len(content)
    assert file.region(0, 1).is_cached(0, len(content))


@pytest.mark.parametrize("size", [3_000_000, 1_000])
async def test_where_nobody_can_tell_the_thread_is_used(pair, file, content, monkeypatch, size):
    monkeypatch.setattr(real_disk, "RWF_NOWAIT", 0)
    assert await pair.send_and_receive(file.region(0, size)) == content[:size]
    assert pair.cold_reads >= 1


@pytest.mark.parametrize(("position", "size"), [(2_900_000, 200_000), (2_999_500, 1_000), (4_000_000, 100_000)])
async def test_a_file_that_ends_before_its_region_raises_and_does_not_hang(pair, file, position, size):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(discard, pair.peer)
        with pytest.raises(ShortRegion, match="a file ended"):
            await pair.send(b"promise", file.region(position, size))
        nursery.cancel_scope.cancel()


async def discard(peer: socket.socket) -> None:
    while True:
        await trio.lowlevel.wait_readable(peer)
        peer.recv(1 << 20)


async def test_a_peer_that_does_not_read_is_waited_for_after_what_its_socket_takes(pair, file):
    under_way = pair.sender.send(pair.connection, [file.region(0, 3_000_000)])
    pauses = [next(under_way) for _ in range(5)]
    assert pauses[-2:] == [Pause.ROOM, Pause.ROOM]
    assert 0 < pair.connection.bytes_out < 3_000_000


async def test_a_fast_reader_does_not_keep_the_loop(pair, file, monkeypatch):
    monkeypatch.setattr(os, "sendfile", lambda out, fd, position, count: count)
    await pair.send(file.region(0, 3_000_000))
    assert pair.turns == 2


async def test_a_fast_reader_of_many_regions_does_not_keep_the_loop(pair, file, monkeypatch):
    monkeypatch.setattr(os, "sendfile", lambda out, fd, position, count: count)
    await pair.send(*[file.region(start, 50_000) for start in range(0, 3_000_000, 50_000)])
    assert pair.turns == 2


async def test_many_small_regions_arrive_in_order(pair, file, content):
    starts = range(0, 3_000_000, 3000)
    expected = b"".join(content[start : start + 500] for start in starts)
    assert await pair.send_and_receive(*[file.region(start, 500) for start in starts]) == expected


async def test_small_regions_are_read_a_few_at_a_time(pair, file, monkeypatch):
    reads, preadv = 0, os.preadv

    def counted(*args: Any) -> int:
        nonlocal reads
        reads += 1
        return preadv(*args)

    monkeypatch.setattr(os, "preadv", counted)
    regions = [file.region(start, 500) for start in range(0, 300_000, 1000)]
    read_at_turns = [reads for _ in pair.sender.send(pair.connection, regions)]
    assert read_at_turns == [64, 128, 192, 256]
    assert (reads, REGIONS_PER_TURN) == (300, 64)


async def test_a_fast_reader_of_bytes_does_not_keep_the_loop(pair, content):
    roomy = RoomySocket()
    pair.connection.channel.sock = roomy
    await pair.send(b"head", content)
    assert pair.turns == 2
    assert max(roomy.sizes) <= WINDOW_BYTES


@attrs.define
class RoomySocket:
    """It takes everything at once."""

    sizes: list[int] = attrs.field(factory=list)

    def sendmsg(self, pieces: list[bytes], *args: Any) -> int:
        self.sizes.append(sum(map(len, pieces)))
        return self.sizes[-1]


def test_the_first_bytes_of_pieces_end_within_one():
    assert first_bytes([b"abc", b"def", b"g"], 5) == [b"abc", b"de"]
    assert first_bytes([b"abc", b"def"], 3) == [b"abc"]
    assert first_bytes([b"abc"], 9) == [b"abc"]


def test_small_pieces_are_joined_and_empty_ones_vanish():
    big = bytes(50_000)
    assert join_small([b"a", b"", b"b", big, b"c", b""]) == [b"ab", big, b"c"]
    assert join_small([b"", b""]) == []


def test_what_was_sent_is_dropped_from_the_front():
    assert drop_sent([b"abc", b"def", b"g"], 4) == [b"ef", b"g"]
    assert drop_sent([b"abc", b"def"], 3) == [b"def"]
    assert drop_sent([b"abc"], 3) == []
