"""Bulk produce and bulk fetch of 1 MiB batches: how close Python comes to moving bytes as the kernel does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs

from bench.figures import Better, Repeats, ratio
from bench.floors import WRITE_FILE, FloorServer, floor, read_bare_file
from bench.load import Consumer, send_bulk, side_by_side
from bench.machine import forget_contents, spent_by
from bench.outcome import Options, Outcome
from bench.subject import Peer, broker, partition_directory, scratch
from bench.wire import (
    MIB,
    BulkBatch,
    bulk_batch,
    connect,
    create_topic,
    fetch_frame,
    produce_frame,
    produced,
    success_response,
)
from trio_broker.testing.process import BrokerProcess

TOPIC = "bulk"

PRODUCE_MIB = 32
"""Sent per round. A virtual machine must first be given the pages it did not use for a while, which costs several times
what writing to them does; so what a round wrote is dropped at once, and the next one gets the same pages."""

FETCH_MIB = 128
"""Read per round; short rounds of floor and broker side by side see the same machine."""

ROUNDS = 4
"""Per repeat of the command line."""


CONNECTIONS = (1, 4)

FETCH_SIZES_MIB = (1, 8, 50)
"""A consumer's default per partition, a batch job's, and the default of a whole response."""

PAGE_CACHE = {"log.durability": "page-cache"}


@attrs.frozen
class Moved:
    """One repeat: CPU of the server per MiB, and the rate."""

    cpu_us_per_mib: float
    mib_per_second: float


@attrs.define
class Moves:
    """All repeats of one row."""

    runs: list[Moved] = attrs.field(factory=list)

    @property
    def cpu(self) -> Repeats:
        return Repeats([run.cpu_us_per_mib for run in self.runs])

    @property
    def rate(self) -> Repeats:
        return Repeats([run.mib_per_second for run in self.runs], Better.MORE)


def measured(pid: int, mib: float, work: Callable[[], object]) -> Moved:
    """Move ``mib`` MiB by ``work`` and see what the process ``pid`` spends on it."""
    with spent_by(pid) as spent:
        work()
    return Moved(spent.cpu / mib * 1e6, mib / spent.wall)


# ---- produce


def produce(options: Options) -> Outcome:
    """CPU per MiB of a bulk Produce over the bare loop's, for one connection and for several."""
    outcome = Outcome("bulk-produce")
    batch = bulk_batch()
    count = options.volume(PRODUCE_MIB)
    bare, ours = Moves(), {connections: Moves() for connections in CONNECTIONS}
    with (
        broker(options.directory, PAGE_CACHE) as process,
        scratch(options.directory) as directory,
        floor("write", directory, len(success_response(TOPIC))) as server,
    ):
        create_topic(process.port, TOPIC, max(CONNECTIONS))
        for _ in range(options.repeats * ROUNDS):
            bare.runs.append(produce_to(server.pid, server.port, batch, count, 1))
            forget_contents(directory / WRITE_FILE)
            for connections, moves in ours.items():
                moves.runs.append(produce_and_forget(process, batch, count, connections))
    table = outcome.table(
        f"Bulk produce: {len(batch.data):,} bytes a batch, {count} batches a round, acks=1, page cache",
        *("", "CPU µs/MiB best", "median", "spread", "MiB/s best", "median", "CPU ÷ bare"),
    )
    for name, moves in [("bare recv+crc+write", bare), *((f"broker, {n} connections", m) for n, m in ours.items())]:
        cpu, rate = moves.cpu, moves.rate
        table.add(name, cpu.best, cpu.median, f"{cpu.spread:.0%}", rate.best, rate.median, ratio(cpu, bare.cpu))
    outcome.measures["bulk-produce"] = ratio(ours[1].cpu, bare.cpu)
    return outcome


def produce_and_forget(process: Peer, batch: BulkBatch, count: int, connections: int) -> Moved:
    """Send ``count`` batches to the topic, see what it costs, and give their memory back."""
    moved = produce_to(process.pid, process.port, batch, count, connections)
    for path in process.data_directory.glob(f"{TOPIC}-*/*.log"):
        forget_contents(path)
    return moved


def produce_to(pid: int, port: int, batch: BulkBatch, count: int, connections: int) -> Moved:
    """Send ``count`` batches over ``connections``, each to a partition of its own, and see what it costs."""
    frames = [produce_frame(TOPIC, index, batch.data, acks=1) for index in range(connections)]
    each = count // connections
    socks = [connect(port) for _ in frames]
    try:
        jobs = [
            partial(send_bulk, sock, frame, each, memoryview(bytearray(65536)))
            for sock, frame in zip(socks, frames, strict=True)
        ]
        return measured(pid, each * connections * len(batch.data) / MIB, lambda: side_by_side(jobs))
    finally:
        for sock in socks:
            sock.close()


# ---- fetch


def fetch(options: Options) -> Outcome:
    """Throughput of sequential Fetches of cached pages over that of a bare sendfile loop over the same file."""
    outcome = Outcome("bulk-fetch")
    batch = bulk_batch()
    count = options.volume(FETCH_MIB)
    with broker(options.directory, PAGE_CACHE) as process:
        path = fill(process, TOPIC, 0, batch, count)
        with floor("sendfile", path) as server:
            rows = fetch_rows(process, server, batch, count)
            for _ in range(options.repeats * ROUNDS):
                for row in rows.values():
                    row.moves.runs.append(measured(row.pid, row.mib, row.work))
    table = outcome.table(
        f"Bulk fetch, cached: a log of {count} batches, read from front to back",
        *("", "MiB/s best", "median", "spread", "CPU µs/MiB best", "median", "rate ÷ bare loop"),
    )
    bare = rows["bare sendfile loop"].moves.rate
    for name, row in rows.items():
        rate, cpu = row.moves.rate, row.moves.cpu
        table.add(name, rate.best, rate.median, f"{rate.spread:.0%}", cpu.best, cpu.median, ratio(rate, bare))
    outcome.measures["bulk-fetch"] = ratio(rows["broker, 1 consumer, 8 MiB a fetch"].moves.rate, bare)
    outcome.remarks.append(
        "The goal is held against fetches of 8 MiB and the bare loop that never waits for a request."
    )
    return outcome


@attrs.define
class FetchRow:
    """One way to read the log: who serves it, how much it is, how to do it, what came of it."""

    pid: int
    mib: float
    work: Callable[[], object]
    moves: Moves = attrs.field(factory=Moves)


def fetch_rows(process: BrokerProcess, server: FloorServer, batch: BulkBatch, count: int) -> dict[str, FetchRow]:
    """Every way to read the log, by its name in the table."""
    total = len(batch.data) * count
    mib = total / MIB
    buffer = memoryview(bytearray(MIB))

    def bare(piece: int) -> FetchRow:
        return FetchRow(server.pid, mib, lambda: read_bare_file(server.port, total, piece, buffer))

    def ours(size_mib: int, consumers: int = 1) -> FetchRow:
        frames = [fetch_frame(TOPIC, 0, size_mib * MIB) for _ in range(consumers)]
        jobs = [partial(Consumer(process.port, frame, batch).read, count) for frame in frames]
        return FetchRow(process.pid, mib * consumers, lambda: side_by_side(jobs))

    return {
        "bare sendfile loop": bare(total),
        **{f"bare sendfile, {size} MiB a request": bare(size * MIB) for size in FETCH_SIZES_MIB[:2]},
        **{f"broker, 1 consumer, {size} MiB a fetch": ours(size) for size in FETCH_SIZES_MIB},
        "broker, 4 consumers, 1 MiB a fetch": ours(1, consumers=4),
    }


def fill(process: BrokerProcess, topic: str, partition: int, batch: BulkBatch, count: int) -> Path:
    """Write a log of ``count`` batches, into a new topic if it is partition 0; return its only segment's file."""
    if partition == 0:
        create_topic(process.port, topic, 1)
    with connect(process.port) as sock:
        frame = produce_frame(topic, partition, batch.data, acks=1)
        for _ in range(count):
            sock.sendall(frame)
            produced(sock)
    return partition_directory(process, topic, partition) / f"{0:020}.log"
