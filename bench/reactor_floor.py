"""What a request costs before anybody has looked at it: the floor under the broker, and the reactor on top of it.

Two servers answer the same frames. The *bare* one is the least that has the broker's shape on Trio: a reader task per
connection that tries before it waits, a pool of eight handler tasks, and the answer sent by the handler itself. It
knows no limits, no errors and no readings. The *reactor* is ``trio_broker.network`` with a handler that returns a
constant. A client in a process of its own keeps every connection busy with one request at a time; what counts is the
CPU time of the server per request, read from the clock of its process, since client and server share the cores.

    python -m bench.reactor_floor                    # the table
    python -m bench.reactor_floor serve bare         # one server, prints its port
"""

from __future__ import annotations

import argparse
import contextlib
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import attrs
import trio

from bench.machine import process_cpu_seconds
from kafka_wire.headers import RequestHeader, request_header, response_header
from trio_broker.config.socket_server_config import SocketServerConfig
from trio_broker.network.acceptor import Listener
from trio_broker.network.request_channel import Answer, QueuedRequest
from trio_broker.network.socket_server import SocketServer

HANDLERS = 8
"""Kafka's default of num.io.threads, for both servers."""

SIZE_BYTES = 4
"""The size prefix of a frame."""


# ---- the bare server


class BareConnection:
    """A socket, what came from it, and nothing else."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = b""

    def frames(self) -> Iterator[bytes]:
        """Cut whole frames, with their prefix, from what came."""
        while len(self.received) >= SIZE_BYTES:
            end = SIZE_BYTES + int.from_bytes(self.received[:SIZE_BYTES], "big")
            if len(self.received) < end:
                return
            yield self.received[:end]
            self.received = self.received[end:]


async def read_bare(connection: BareConnection, jobs: trio.MemorySendChannel[tuple[BareConnection, bytes]]) -> None:
    """Read frames and hand them to the pool, trying before waiting."""
    with connection.sock:
        while True:
            try:
                data = connection.sock.recv(65536)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(connection.sock)
                continue
            except OSError:
                return
            if not data:
                return
            connection.received += data
            for frame in connection.frames():
                try:
                    jobs.send_nowait((connection, frame))
                except trio.WouldBlock:
                    await jobs.send((connection, frame))
            await trio.lowlevel.checkpoint_if_cancelled()


async def echo_bare(jobs: trio.MemoryReceiveChannel[tuple[BareConnection, bytes]]) -> None:
    """One handler: send the frame back at once. Requests here are small, so the socket always takes them."""
    async for connection, frame in jobs:
        with contextlib.suppress(OSError):
            connection.sock.send(frame)


async def serve_bare(listener: socket.socket) -> None:
    """Accept and echo until cancelled."""
    jobs, received = trio.open_memory_channel[tuple[BareConnection, bytes]](500)
    async with trio.open_nursery() as nursery:
        for _ in range(HANDLERS):
            nursery.start_soon(echo_bare, received)
        while True:
            await trio.lowlevel.wait_readable(listener)
            sock, _ = listener.accept()
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            nursery.start_soon(read_bare, BareConnection(sock), jobs)


async def run_bare() -> None:
    """Serve on a free port, and print it."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        listener.setblocking(False)
        print(listener.getsockname()[1], flush=True)
        await serve_bare(listener)


# ---- the reactor


async def run_reactor() -> None:
    """The network floor with a handler that returns a constant, on a free port, which is printed."""

    def handle(request: QueuedRequest) -> Answer:
        header = request.header
        return [response_header(header.api_key, header.api_version, header.correlation_id), BODY]

    config = SocketServerConfig(num_io_threads=HANDLERS, socket_listen_backlog_size=1024)
    server = SocketServer(
        [Listener("BENCH", "127.0.0.1", 0)], handle=handle, is_served=lambda api, version: True, config=config
    )
    print(server.bind()["BENCH"][1], flush=True)
    await server.run()


SERVERS = {"bare": run_bare, "reactor": run_reactor}


# ---- the client


BODY = bytes(100)
"""What a small request and its response carry."""

FRAME = request_header(RequestHeader(3, 1, 7, "bench")) + BODY
REQUEST = len(FRAME).to_bytes(SIZE_BYTES, "big") + FRAME


@attrs.frozen
class EchoFigures:
    """What one run of the client saw."""

    server: str
    connections: int
    requests: int
    wall_seconds: float
    server_cpu_seconds: float

    @property
    def cpu_us_per_request(self) -> float:
        return self.server_cpu_seconds / self.requests * 1e6


@contextlib.contextmanager
def served_by(kind: str) -> Iterator[tuple[int, int]]:
    """Run a server of ``kind`` in a process; gives its pid and port."""
    command = [sys.executable, "-m", "bench.reactor_floor", "serve", kind]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.terminate()


def ask_in_turn(port: int, connections: int, requests: int) -> None:
    """Send ``requests`` over ``connections``, one in flight on each."""
    selector = selectors.DefaultSelector()
    socks = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    for sock in socks:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(sock, selectors.EVENT_READ, sock)
        sock.sendall(REQUEST)
    left = requests - connections
    answered = 0
    while answered < requests:
        for key, _ in selector.select():
            sock = key.data
            assert sock.recv(65536), "the server closed the connection"
            answered += 1
            if left > 0:
                left -= 1
                sock.send(REQUEST)
    for sock in socks:
        sock.close()


def measure(kind: str, connections: int, requests: int) -> EchoFigures:
    """Run one server and one client against it."""
    with served_by(kind) as (pid, port):
        ask_in_turn(port, connections, max(connections, requests // 10))
        began, cpu = time.perf_counter(), process_cpu_seconds(pid)
        ask_in_turn(port, connections, requests)
        return EchoFigures(kind, connections, requests, time.perf_counter() - began, process_cpu_seconds(pid) - cpu)


def best_of(repeats: int, kind: str, connections: int, requests: int) -> EchoFigures:
    """The run that was disturbed least."""
    return min((measure(kind, connections, requests) for _ in range(repeats)), key=lambda run: run.server_cpu_seconds)


def print_table(repeats: int, requests: int) -> None:
    """Measure both servers and print them side by side."""
    print(f"{'connections':>11} {'bare µs':>9} {'reactor µs':>11} {'ratio':>6}   (server CPU per request)")
    for connections in (1, 16, 50):
        bare, reactor = (best_of(repeats, kind, connections, requests) for kind in ("bare", "reactor"))
        ratio = reactor.cpu_us_per_request / bare.cpu_us_per_request
        print(
            f"{connections:>11} {bare.cpu_us_per_request:>9.1f} {reactor.cpu_us_per_request:>11.1f} {ratio:>6.2f}",
            flush=True,
        )


def main(arguments: list[str] | None = None) -> None:
    """Serve, or measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=["measure", "serve"], default="measure")
    parser.add_argument("server", nargs="?", choices=sorted(SERVERS))
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    options: Any = parser.parse_args(arguments)
    if options.command == "serve":
        trio.run(SERVERS[options.server or "reactor"])
    else:
        print_table(options.repeats, options.requests)


if __name__ == "__main__":
    main()
