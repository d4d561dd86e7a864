"""The client side of the measurements: as much load for as little of the machine as Python allows.

Two shapes. ``in_turn`` keeps many connections busy from one thread, one small request in flight on each, and keeps
every latency; ``Consumer`` and ``side_by_side`` move large requests and responses with blocking calls in threads, where
the kernel does the work and the interpreter lock is free.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TypeVar

import attrs

from bench.wire import (
    FETCH_VERSION,
    MIB,
    BenchError,
    BulkBatch,
    FetchFrame,
    connect,
    fetch_problem,
    receive_response_into,
)

T = TypeVar("T")

SMALL_RESPONSE_BYTES = 65536
"""More than any response to a small Produce."""


@attrs.frozen
class LoopFigures:
    """What ``in_turn`` saw."""

    requests: int
    wall_seconds: float
    latencies_ns: Sequence[int]

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.wall_seconds


def in_turn(port: int, frames: Sequence[bytes | bytearray], requests: int, response_bytes: int | None) -> LoopFigures:
    """Send ``requests`` over one connection per frame, each connection its own frame again and again, one in flight.

    Every response must have ``response_bytes`` bytes, prefix included: a response with an error has others, since it
    brings a message or lacks an offset. None lets any size pass.

    Raises:
        BenchError: a connection ended, or a response has another size.
    """
    with ExitStack() as stack:
        selector = stack.enter_context(selectors.DefaultSelector())
        socks = [stack.enter_context(connect(port)) for _ in frames]
        began_ns = {}
        frame_of = dict(zip(socks, frames, strict=True))
        for sock in socks:
            selector.register(sock, selectors.EVENT_READ)
        buffer = memoryview(bytearray(SMALL_RESPONSE_BYTES))
        latencies_ns: list[int] = []
        left = requests - len(socks)
        clock = time.perf_counter_ns
        start = time.perf_counter()
        for sock, frame in frame_of.items():
            began_ns[sock] = clock()
            sock.sendall(frame)
        while len(latencies_ns) < requests:
            for key, _ in selector.select():
                sock = key.fileobj  # type: ignore[assignment]
                received = receive_response_into(sock, buffer)
                now = clock()
                latencies_ns.append(now - began_ns[sock])
                if response_bytes is not None and received != response_bytes:
                    raise BenchError(
                        f"a response of {received} bytes, not {response_bytes}: {bytes(buffer[:received])!r}"
                    )
                if left > 0:
                    left -= 1
                    began_ns[sock] = now
                    sock.send(frame_of[sock])
        return LoopFigures(requests, time.perf_counter() - start, latencies_ns)


SmallLoad = Callable[[int, Sequence[bytes | bytearray], int, int], LoopFigures]
"""``in_turn``, or what does the same; with a size of all answers."""


def side_by_side(tasks: Iterable[Callable[[], T]]) -> list[T]:
    """Run each task in a thread of its own; return their results in order, or raise the first failure in the end."""
    jobs = list(tasks)
    results: list[T | None] = [None] * len(jobs)
    failures: list[BaseException] = []

    def run(index: int) -> None:
        try:
            results[index] = jobs[index]()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,), name=f"load {index}") for index in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results  # type: ignore[return-value]


def send_bulk(sock: socket.socket, frame: bytes | bytearray, count: int, buffer: memoryview) -> None:
    """Send the same large request ``count`` times, each after the response to the one before."""
    for _ in range(count):
        sock.sendall(frame)
        receive_response_into(sock, buffer)


@attrs.define
class Consumer:
    """Reads a partition of equal batches from front to back with Fetch after Fetch."""

    port: int
    frame: FetchFrame
    batch: BulkBatch
    buffer: memoryview = attrs.field(factory=lambda: memoryview(bytearray(MIB)))

    def read(self, batches: int) -> int:
        """Read the first ``batches`` batches; return the bytes of all responses.

        Raises:
            BenchError: a response without records.
        """
        total = 0
        offset = 0
        left = batches
        with connect(self.port) as sock:
            while left > 0:
                sock.sendall(self.frame.at(offset))
                size = receive_response_into(sock, self.buffer)
                got = size // len(self.batch.data)
                if not got:
                    raise BenchError(f"{fetch_problem(self.buffer, size)} at {offset} (v{FETCH_VERSION})")
                total += size
                left -= got
                offset += got * self.batch.record_count
        return total
