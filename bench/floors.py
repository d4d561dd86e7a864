"""The floors: the least that any program of this shape must spend on this machine, measured in the broker's own run.

Each server floor is a process of its own that prints its port, speaks no Kafka beyond the size prefix and knows no
errors:

* ``write DIRECTORY BYTES``: one thread, blocking; reads a frame into one reused buffer, computes its CRC-32C, writes it
  to a file, answers ``BYTES`` bytes. What a bulk Produce cannot undercut.
* ``sendfile FILE``: one thread, blocking; a request names a position and a count, the answer is that part of the file,
  by ``sendfile``. Asked for the whole file at once it is the bare loop; asked in pieces it pays the round trips too.
* ``echo BYTES``: Trio, a reader task per connection and eight handler tasks behind a memory channel; answers every
  frame with the same ``BYTES`` bytes. What a small request costs with the broker's shape and no broker.

The disk floors run in the calling process: one ``fdatasync``, many of them in threads, cold reads in threads.

    python -m bench.floors echo 60
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import crc32c
import trio

from bench import slow_disk
from bench.load import side_by_side
from bench.machine import drop_from_page_cache
from bench.reactor_floor import HANDLERS, BareConnection, read_bare
from bench.wire import MIB, OFFSET, connect
from kafka_wire.framing import SIZE_PREFIX
from kafka_wire.records.batch import BATCH_HEADER_BYTES

WRITE_FILE: Final = "floor.log"
"""What the write floor appends to, in its directory."""

SENDFILE_BYTES: Final = 4 * MIB
"""One call of the bare sendfile loop at most; the kernel stops at the socket's buffer anyway."""


@attrs.frozen
class FloorServer:
    """A floor that runs: its process and its port."""

    pid: int
    port: int


@contextmanager
def floor(kind: str, *arguments: str | Path | int) -> Iterator[FloorServer]:
    """Run a floor in a process of its own."""
    command = [sys.executable, "-m", "bench.floors", kind, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield FloorServer(process.pid, int(process.stdout.readline()))
        finally:
            process.terminate()


# ---- the servers


def listening() -> socket.socket:
    """A listener on a free port, which is printed for the parent process."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    return listener


def serve_connections(serve: Callable[[socket.socket], None]) -> None:
    """Serve one connection after the other, for ever."""
    with listening() as listener:
        while True:
            sock, _ = listener.accept()
            with sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                serve(sock)


def receive_all(sock: socket.socket, view: memoryview) -> bool:
    """Fill ``view``; False at the end of the stream."""
    got = 0
    while got < len(view):
        received = sock.recv_into(view[got:])
        if not received:
            return False
        got += received
    return True


def serve_writes(directory: Path, response_bytes: int) -> None:
    """The write floor."""
    buffer = memoryview(bytearray(2 * MIB))
    response = SIZE_PREFIX.pack(response_bytes - SIZE_PREFIX.size) + bytes(response_bytes - SIZE_PREFIX.size)
    fd = os.open(directory / WRITE_FILE, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)

    def serve(sock: socket.socket) -> None:
        while receive_all(sock, buffer[: SIZE_PREFIX.size]):
            frame = buffer[: SIZE_PREFIX.unpack_from(buffer)[0]]
            if not receive_all(sock, frame):
                return
            crc32c.crc32c(frame[BATCH_HEADER_BYTES:])
            os.write(fd, frame)
            sock.sendall(response)

    serve_connections(serve)


def serve_files(path: Path) -> None:
    """The sendfile floor. A request is two int64, position and count."""
    fd = os.open(path, os.O_RDONLY)
    request = memoryview(bytearray(2 * OFFSET.size))

    def serve(sock: socket.socket) -> None:
        while receive_all(sock, request):
            position, left = OFFSET.unpack_from(request)[0], OFFSET.unpack_from(request, OFFSET.size)[0]
            while left:
                sent = os.sendfile(sock.fileno(), fd, position, min(left, SENDFILE_BYTES))
                position += sent
                left -= sent

    serve_connections(serve)


async def echo(jobs: trio.MemoryReceiveChannel[tuple[BareConnection, bytes]], response: bytes) -> None:
    """One handler of the echo floor."""
    async for connection, _ in jobs:
        try:
            connection.sock.send(response)
        except OSError:
            continue


async def serve_echo(response_bytes: int) -> None:
    """The echo floor."""
    response = SIZE_PREFIX.pack(response_bytes - SIZE_PREFIX.size) + bytes(response_bytes - SIZE_PREFIX.size)
    jobs, received = trio.open_memory_channel[tuple[BareConnection, bytes]](500)
    with listening() as listener:
        listener.setblocking(False)
        async with trio.open_nursery() as nursery:
            for _ in range(HANDLERS):
                nursery.start_soon(echo, received, response)
            while True:
                await trio.lowlevel.wait_readable(listener)
                sock, _ = listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                nursery.start_soon(read_bare, BareConnection(sock), jobs)


# ---- the sendfile floor's reader


def read_bare_file(port: int, total: int, piece: int, buffer: memoryview) -> float:
    """Read ``total`` bytes in requests of ``piece``; return the seconds it took."""
    with connect(port) as sock:
        began = time.perf_counter()
        for position in range(0, total, piece):
            count = min(piece, total - position)
            sock.sendall(OFFSET.pack(position) + OFFSET.pack(count))
            got = 0
            while got < count:
                got += sock.recv_into(buffer, min(count - got, len(buffer)), socket.MSG_WAITALL)
        return time.perf_counter() - began


# ---- the disk


def fdatasync_seconds(directory: Path, data: bytes, count: int) -> float:
    """The median time of one ``fdatasync`` after an append of ``data``, by one thread that does nothing else."""
    path = directory / "fdatasync.floor"
    fd = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644)
    try:
        durations = []
        for _ in range(count):
            os.write(fd, data)
            began = time.perf_counter()
            slow_disk.fdatasync(fd)
            durations.append(time.perf_counter() - began)
        return statistics.median(durations)
    finally:
        os.close(fd)
        path.unlink()


def syncs_per_second(directory: Path, data: bytes, *, files: int, threads: int, seconds: float) -> float:
    """How often a second ``threads`` threads can append to and sync one of ``files`` files, each thread its share."""
    with ExitStack() as stack:
        paths = [directory / f"sync-{index}.floor" for index in range(files)]
        fds = [os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o644) for path in paths]
        for fd, path in zip(fds, paths, strict=True):
            stack.callback(path.unlink)
            stack.callback(os.close, fd)
        end = time.perf_counter() + seconds

        def work(own: Sequence[int]) -> int:
            syncs = 0
            while time.perf_counter() < end:
                for fd in own:
                    os.write(fd, data)
                    slow_disk.fdatasync(fd)
                    syncs += 1
            return syncs

        began = time.perf_counter()
        total = sum(side_by_side([partial(work, fds[index::threads]) for index in range(threads)]))
        return total / (time.perf_counter() - began)


def cold_mib_per_second(paths: Sequence[Path], threads: int, piece: int = MIB) -> float:
    """What the disk gives ``threads`` threads that read all of ``paths``, which are dropped from the cache before."""
    for path in paths:
        drop_from_page_cache(path)

    def work(own: Sequence[Path]) -> int:
        buffer = memoryview(bytearray(piece))
        total = 0
        for path in own:
            fd = os.open(path, os.O_RDONLY)
            try:
                position = 0
                while True:
                    slow_disk.posix_fadvise(fd, position, piece, os.POSIX_FADV_WILLNEED)
                    if not (got := os.preadv(fd, [buffer], position)):
                        break
                    position += got
            finally:
                os.close(fd)
            total += position
        return total

    began = time.perf_counter()
    total = sum(side_by_side([partial(work, paths[index::threads]) for index in range(threads)]))
    return total / MIB / (time.perf_counter() - began)


def main(arguments: Sequence[str]) -> None:
    """Serve one floor, until terminated."""
    kind, *rest = arguments
    if kind == "write":
        serve_writes(Path(rest[0]), int(rest[1]))
    elif kind == "sendfile":
        serve_files(Path(rest[0]))
    elif kind == "echo":
        trio.run(serve_echo, int(rest[0]))
    else:
        raise SystemExit(f"no floor is called {kind!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
