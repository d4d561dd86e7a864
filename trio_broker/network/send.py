"""Responses to sockets: bytes with ``sendmsg``, regions of files with ``sendfile``.

A send is always tried at once, since a socket usually has room, and waits for room only when the kernel refuses.
Small pieces are joined, so that a small response is one call and one packet.

A region is sent in windows. Before each, a few of its pages are probed with ``preadv`` and ``RWF_NOWAIT``, which fails
instead of reading the disk. A window in the page cache is sent on the event loop, at the speed of memory; any other is
sent by the Processor's one worker thread, so that a slow disk stalls neither the loop nor the other Processors. Where
the system has no such probe, the thread sends everything: a disk read must never stop the loop.

Promise: returns when the kernel has accepted every byte, or raises; a file that ended early raises ShortRegion, never
hangs.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeAlias, TypeVar, cast

import attrs
import trio
from trio.lowlevel import wait_writable

from kafka_wire.primitives import Chunk
from trio_broker.network.busy_time import BusyTime
from trio_broker.network.connection import Connection, ConnectionState
from trio_broker.network.errors import ShortRegion

JOIN_BYTES = 32 * 1024
"""Up to here pieces are copied together: a copy of 32 KiB costs less than a second system call or a second packet."""

IOV_PIECES = 512
"""Pieces per ``sendmsg``; the kernel takes at most 1024."""

WINDOW_BYTES = 1024 * 1024
"""Bytes sent between two yields, and between two probes of the page cache: about 0.2 ms of copying."""

PROBE_STRIDE_BYTES = 256 * 1024
"""Distance of the probed pages. The cache fills and empties in runs of about the read-ahead (128 KiB), so a hole
that lies between two probes costs at most a short disk read on the loop; probing every page would cost more than
sending."""

RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
"""0 where the platform has none; then every region goes through the thread."""

T = TypeVar("T")

ByteChunk: TypeAlias = bytes | bytearray | memoryview


class FileRegion(Protocol):
    """Bytes that lie in a file, and stay there, with the file open, for as long as this object lives."""

    @property
    def position(self) -> int: ...

    @property
    def size(self) -> int: ...

    def fileno(self) -> int: ...

    def __len__(self) -> int: ...


@attrs.define(eq=False)
class Sender:
    """The sending half of one Processor: its worker thread and its counters.

    Its owner has entered ``busy_time``; the sender leaves it while it waits for room in a socket, not while the thread
    works.
    """

    busy_time: BusyTime
    thread: trio.CapacityLimiter = attrs.field(factory=lambda: trio.CapacityLimiter(1))
    thread_busy_time: BusyTime = attrs.field(factory=BusyTime)
    bytes_out: int = 0
    cold_sends: int = 0

    async def send(self, connection: Connection, chunks: Sequence[Chunk]) -> None:
        """Send ``chunks`` in order, waiting for room in the socket as often as it takes.

        Raises:
            ShortRegion: a file ended before its region did.
            OSError: the connection is gone.
            trio.ClosedResourceError: the wait for room was interrupted, see ``Connection.interrupt``.
        """
        pieces: list[ByteChunk] = []
        for chunk in self._send_small(connection, chunks):
            if isinstance(chunk, (bytes, bytearray, memoryview)):
                pieces.append(chunk)
                continue
            # Not checked: ``isinstance`` with a Protocol costs more than all the rest of sending the chunk.
            region = cast(FileRegion, chunk)
            if len(region) <= JOIN_BYTES:
                pieces.append(await self._read(region))
                continue
            # More follows at once, so the kernel need not send a packet for these few bytes alone.
            await self._send_pieces(connection, pieces, socket.MSG_MORE)
            pieces = []
            await self._send_region(connection, region)
        await self._send_pieces(connection, pieces, 0)

    def _send_small(self, connection: Connection, chunks: Sequence[Chunk]) -> Sequence[Chunk]:
        """Try to send a small response in one call; returns what is left to send."""
        if sum(map(len, chunks)) > JOIN_BYTES:
            return chunks
        try:
            data = b"".join(chunks)  # type: ignore[arg-type]
        except TypeError:
            return chunks  # One of the chunks is a region. To try is cheaper than to look at each.
        sent = self._send_now(connection, data, 0)
        return () if sent == len(data) else (memoryview(data)[sent:],)

    async def _send_pieces(self, connection: Connection, pieces: list[ByteChunk], flags: int) -> None:
        """Send bytes: joined where they are small, gathered where they are not."""
        left = join_small(pieces)
        while left:
            try:
                sent = connection.sock.sendmsg(left[:IOV_PIECES], (), flags)
            except BlockingIOError:
                await self._wait_for_room(connection)
                continue
            self._count(connection, sent)
            left = drop_sent(left, sent)

    async def _send_region(self, connection: Connection, region: FileRegion) -> None:
        """Send a part of a file, window by window, each the cheapest way that does not stop the loop."""
        position, end = region.position, region.position + region.size
        window_end, cached = position, False
        while position < end:
            # Before the first window there is no yield, so that a small region leaves in the turn it was answered in.
            if position == window_end:
                window_end, cached = min(position + WINDOW_BYTES, end), False
                # Between windows there must be one: the socket of a fast reader always has room, so nothing else here
                # yields.
                if position > region.position:
                    await self.busy_time.turn()
            # After a cold send the rest of the window is probed again: the thread has read ahead further than the
            # socket took.
            cached = cached or is_cached(region.fileno(), position, window_end - position)
            try:
                sent = await self._send_part(connection, region, position, window_end - position, cached)
            except BlockingIOError:
                await self._wait_for_room(connection)
                continue
            # sendfile returns 0 only at the end of the file, never for a full socket.
            if sent == 0:
                raise ShortRegion(f"a file ended at {position}, {end - position} bytes before what was promised")
            self._count(connection, sent)
            position += sent

    async def _send_part(
        self, connection: Connection, region: FileRegion, position: int, count: int, cached: bool
    ) -> int:
        """Send a part of a window, here or in the thread; returns how many bytes the socket took."""
        if cached:
            return os.sendfile(connection.sock.fileno(), region.fileno(), position, count)
        return await self._in_thread(partial(send_cold, connection.sock.fileno(), region.fileno(), position, count))

    async def _read(self, region: FileRegion) -> bytes | bytearray:
        """Read a region that is too small to be worth a ``sendfile``."""
        buffer = bytearray(len(region))
        try:
            got = os.preadv(region.fileno(), [buffer], region.position, RWF_NOWAIT) if RWF_NOWAIT else 0
        except OSError:
            got = 0  # Not in the page cache, or a file system without RWF_NOWAIT.
        if got == len(buffer):
            return buffer
        data = await self._in_thread(partial(os.pread, region.fileno(), len(buffer), region.position))
        if len(data) < len(buffer):
            raise ShortRegion(f"a file ended {len(buffer) - len(data)} bytes before what was promised")
        return data

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Do ``work``, which waits for the disk, in the one thread."""
        self.cold_sends += 1
        # Others that wait for the thread meanwhile overlap with this one: the thread's busy time counts once.
        self.thread_busy_time.enter()
        try:
            return await trio.to_thread.run_sync(work, limiter=self.thread)
        finally:
            self.thread_busy_time.exit()

    def _send_now(self, connection: Connection, data: bytes, flags: int) -> int:
        """Send as much of ``data`` as the socket takes without waiting, which may be nothing."""
        try:
            sent = connection.sock.send(data, flags)
        except BlockingIOError:
            return 0
        self._count(connection, sent)
        return sent

    def _count(self, connection: Connection, sent: int) -> None:
        self.bytes_out += sent
        connection.bytes_out += sent

    async def _wait_for_room(self, connection: Connection) -> None:
        connection.state = ConnectionState.WAITING_FOR_READER
        with self.busy_time.waiting:
            await wait_writable(connection.sock)
        connection.state = ConnectionState.SENDING


def is_cached(fd: int, position: int, count: int) -> bool:
    """Whether the page cache seems to hold ``count`` bytes of ``fd`` from ``position``; False if it cannot be
    probed."""
    if not RWF_NOWAIT:
        return False
    last = position + count - 1
    byte = [bytearray(1)]
    try:
        for probe in range(position, last, PROBE_STRIDE_BYTES):
            os.preadv(fd, byte, probe, RWF_NOWAIT)
        os.preadv(fd, byte, last, RWF_NOWAIT)
    except OSError:
        return False
    return True


def send_cold(socket_fd: int, fd: int, position: int, count: int) -> int:
    """Send a window that must come from the disk; runs in a worker thread. Returns how many bytes the socket took."""
    if hasattr(os, "posix_fadvise"):
        # One large read instead of the kernel's cautious read-ahead of 128 KiB at a time.
        os.posix_fadvise(fd, position, count, os.POSIX_FADV_WILLNEED)
    return os.sendfile(socket_fd, fd, position, count)


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


def drop_sent(pieces: list[ByteChunk], sent: int) -> list[ByteChunk]:
    """What is left of ``pieces`` after their first ``sent`` bytes."""
    for index, piece in enumerate(pieces):
        if sent < len(piece):
            return [memoryview(piece)[sent:], *pieces[index + 1 :]]
        sent -= len(piece)
    return []
