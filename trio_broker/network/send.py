"""Responses to sockets: bytes with ``sendmsg``, regions of files with ``sendfile``.

A send is always tried at once, since a socket usually has room. Small pieces are joined, so that a small response is
one call and one packet. What the socket does not take at once is sent by a generator, which yields what must happen
before it can go on: room in the socket, a turn of the others, or work of a thread, which reads the disk or seals bytes.
The Processor resumes it then.

A region is sent in windows. Before each, a few of its pages are probed with ``preadv`` and ``RWF_NOWAIT``, which fails
instead of reading the disk. A window in the page cache is sent on the event loop, at the speed of memory; any other is
sent by the Processor's one worker thread, so that a slow disk stalls neither the loop nor the other Processors. Where
the system has no such probe, the thread sends everything: a disk read must never stop the loop.

Promise: a generator ends when the kernel has accepted every byte, or raises; a file that ended early raises
ShortRegion, never hangs.
"""

from __future__ import annotations

import enum
import socket
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import attrs

from kafka_wire.framing import SIZE_PREFIX, frame
from kafka_wire.primitives import Chunk
from trio_broker.network.channel import ByteChunk
from trio_broker.network.connection import Connection
from trio_broker.network.errors import ShortRegion
from trio_broker.runtime.disk import FileRegion

JOIN_BYTES = 32 * 1024
"""Up to here pieces are copied together: a copy of 32 KiB costs less than a second system call or a second packet."""

IOV_PIECES = 512
"""Pieces per ``sendmsg``; the kernel takes at most 1024."""

MSG_MORE: int = getattr(socket, "MSG_MORE", 0)
"""0 where the platform has none: then there may be a packet more."""

WINDOW_BYTES = 1024 * 1024
"""Bytes sent between two yields, and between two probes of the page cache: about 0.2 ms of copying."""

REGIONS_PER_TURN = 64
"""Regions too small for a ``sendfile`` that are read between two yields: a fifth of a millisecond of system calls, and
at most 2 MiB that are in memory at a time."""


class Pause(enum.Enum):
    """What a response that is under way waits for, beside the disk."""

    ROOM = enum.auto()
    """Room in the socket."""
    TURN = enum.auto()
    """Nothing; the other connections have their turn."""


@attrs.frozen
class ThreadWork:
    """Work for the Processor's thread. Its result or its OSError is sent back into the generator."""

    work: Callable[[], Any]
    reads_disk: bool


SendUnderWay: TypeAlias = Generator[Pause | ThreadWork, Any, None]


@attrs.define(eq=False)
class Sender:
    """The sending half of one Processor, and its counters."""

    bytes_out: int = 0

    def send(self, connection: Connection, chunks: Sequence[Chunk]) -> SendUnderWay | None:
        """Send the frame of ``chunks``; None if the socket took all of it, else what sends the rest.

        Raises:
            OSError: the connection is gone.
            ValueError: they are more than a frame can hold.
        """
        size = sum(map(len, chunks))
        if size > JOIN_BYTES:
            return self._send_all(connection, frame(chunks))
        pieces = [SIZE_PREFIX.pack(size), *chunks]
        data: bytes | None
        try:
            data = b"".join(pieces)  # type: ignore[arg-type]
        except TypeError:
            # One of the chunks is a region. To try is cheaper than to look at each.
            if (data := joined_cached(pieces)) is None:
                return self._send_all(connection, pieces)
        try:
            sent = connection.channel.send(data)
        except BlockingIOError:
            sent = 0
        self.bytes_out += sent
        connection.bytes_out += sent
        return None if sent == len(data) else self._send_all(connection, (memoryview(data)[sent:],))

    def _send_all(self, connection: Connection, chunks: Sequence[Chunk]) -> SendUnderWay:
        """Send ``chunks`` in order.

        Raises:
            ShortRegion: a file ended before its region did.
            OSError: the connection is gone.
        """
        pieces: list[ByteChunk] = []
        read = 0
        turn_end = connection.bytes_out + WINDOW_BYTES
        for chunk in chunks:
            if isinstance(chunk, (bytes, bytearray, memoryview)):
                pieces.append(chunk)
                continue
            if read == REGIONS_PER_TURN or connection.bytes_out >= turn_end:
                yield from self._send_pieces(connection, pieces, MSG_MORE)
                yield Pause.TURN
                pieces, read, turn_end = [], 0, connection.bytes_out + WINDOW_BYTES
            # Not checked: ``isinstance`` with a Protocol costs more than all the rest of sending the chunk.
            region = cast(FileRegion, chunk)
            if len(region) <= JOIN_BYTES:
                pieces.append((yield from read_region(region)))
                read += 1
                continue
            # More follows at once, so the kernel need not send a packet for these few bytes alone.
            yield from self._send_pieces(connection, pieces, MSG_MORE)
            pieces = []
            yield from self._send_region(connection, region)
        yield from self._send_pieces(connection, pieces, 0)

    def _send_pieces(self, connection: Connection, pieces: list[ByteChunk], flags: int) -> SendUnderWay:
        """Send bytes: joined where they are small, gathered where they are not."""
        channel, left = connection.channel, join_small(pieces)
        turn_end = connection.bytes_out + WINDOW_BYTES
        while left:
            window = first_bytes(left[:IOV_PIECES], WINDOW_BYTES)
            send = partial(channel.send_gathered, window, flags)
            is_light = sum(map(len, window)) <= channel.loop_bytes
            try:
                sent: int = send() if is_light else (yield ThreadWork(send, reads_disk=False))
            except BlockingIOError:
                yield Pause.ROOM
                continue
            self._count(connection, sent)
            left = drop_sent(left, sent)
            if left and connection.bytes_out >= turn_end:
                yield Pause.TURN
                turn_end = connection.bytes_out + WINDOW_BYTES

    def _send_region(self, connection: Connection, region: FileRegion) -> SendUnderWay:
        """Send a part of a file, window by window, each the cheapest way that does not stop the loop."""
        channel = connection.channel
        position, end = region.position, region.position + region.size
        window_end, cached = position, False
        while position < end:
            # Before the first window there is no pause, so that a small region leaves in the turn it was answered in.
            if position == window_end:
                window_end, cached = min(position + WINDOW_BYTES, end), False
                # Between windows there must be one: the socket of a fast reader always has room.
                if position > region.position:
                    yield Pause.TURN
            # After a cold send the rest of the window is probed again: the thread has read ahead further than the
            # socket took.
            cached = cached or region.is_cached(position, window_end - position)
            size = window_end - position
            send = partial(channel.send_region, region, position, size, is_cached=cached)
            is_light = cached and size <= channel.loop_bytes
            try:
                sent: int = send() if is_light else (yield ThreadWork(send, reads_disk=not cached))
            except BlockingIOError:
                yield Pause.ROOM
                continue
            if sent == 0:
                raise ShortRegion(f"a file ended at {position}, {end - position} bytes before what was promised")
            self._count(connection, sent)
            position += sent

    def _count(self, connection: Connection, sent: int) -> None:
        self.bytes_out += sent
        connection.bytes_out += sent


def joined_cached(chunks: Sequence[Chunk]) -> bytes | None:
    """Join ``chunks``, reading their regions; None where one is not whole in the page cache, or nobody can tell."""
    pieces: list[ByteChunk] = []
    for chunk in chunks:
        if not isinstance(chunk, (bytes, bytearray, memoryview)):
            region: FileRegion = chunk  # type: ignore[assignment] # as in ``_send_all``
            if (cached := region.read_cached()) is None:
                return None
            chunk = cached
        pieces.append(chunk)
    return b"".join(pieces)


def read_region(region: FileRegion) -> Generator[ThreadWork, Any, bytes | bytearray]:
    """Read a region that is too small to be worth a ``sendfile``.

    Raises:
        ShortRegion: the file ends before the region does.
    """
    if (cached := region.read_cached()) is not None:
        return cached
    data: bytes = yield ThreadWork(region.read, reads_disk=True)
    if len(data) < region.size:
        raise ShortRegion(f"a file ended {region.size - len(data)} bytes before what was promised")
    return data


def join_small(pieces: list[ByteChunk]) -> list[ByteChunk]:
    """``pieces`` with each run of small ones copied into one."""
    joined: list[ByteChunk] = []
    run: list[ByteChunk] = []
    run_bytes = 0
    for piece in pieces:
        if run_bytes + len(piece) > JOIN_BYTES and run:
            joined.append(b"".join(run))
            run, run_bytes = [], 0
        run.append(piece)
        run_bytes += len(piece)
    if run:
        joined.append(run[0] if len(run) == 1 else b"".join(run))
    return [piece for piece in joined if len(piece)]


def first_bytes(pieces: list[ByteChunk], size: int) -> list[ByteChunk]:
    """The first ``size`` bytes of ``pieces``, of which the last may be cut."""
    chosen: list[ByteChunk] = []
    for piece in pieces:
        if len(piece) >= size:
            chosen.append(memoryview(piece)[:size])
            break
        chosen.append(piece)
        size -= len(piece)
    return chosen


def drop_sent(pieces: list[ByteChunk], sent: int) -> list[ByteChunk]:
    """What is left of ``pieces`` after their first ``sent`` bytes."""
    for index, piece in enumerate(pieces):
        if sent < len(piece):
            return [memoryview(piece)[sent:], *pieces[index + 1 :]]
        sent -= len(piece)
    return []
