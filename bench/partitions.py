"""What thousands of partitions cost: to create them, to stop and to start with them, to recover them after a kill.

Beside each stands a floor: as many small directories and files made, synced and read again by nothing but system calls,
and for the recovery the same bytes read and their CRC computed.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from bench.bulk import fill
from bench.figures import Repeats
from bench.machine import process_cpu_seconds
from bench.outcome import Options, Outcome
from bench.populated import TOPICS_AT_ONCE, create_topics, topic_name
from bench.subject import QUIET, scratch
from bench.wire import MIB, bulk_batch, connect
from kafka_wire.records.crc import crc32c
from trio_broker.testing.process import BrokerProcess

CREATED = 1_000
HELD = 5_000
PARTITIONS_PER_TOPIC = 10

RECOVERED_MIB = 512
RECOVERED_PARTITIONS = 4
CHUNK_BYTES = MIB


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def partitions(options: Options) -> Outcome:
    """Seconds to create, to stop and to start, and how fast a start after a kill reads."""
    outcome = Outcome("partitions")
    created, held = options.volume(CREATED), options.volume(HELD)
    rows: dict[str, list[float]] = {}
    for _ in range(options.repeats):
        with scratch(options.directory) as parent:
            for name, took in measured(parent, created, held).items():
                rows.setdefault(name, []).append(took)
    table = outcome.table(f"{created:,} partitions created, {held:,} held; seconds", "", "best", "median", "spread")
    for name, values in rows.items():
        found = Repeats(values)
        table.add(name, found.best, found.median, f"{found.spread:.0%}")
    for measure in ("create", "stop", "start", "start after a kill"):
        outcome.measures[f"partitions-{measure.replace(' ', '-')}"] = Repeats(rows[measure]).median
    add_recovery(options, outcome)
    return outcome


def measured(parent: Path, created: int, held: int) -> dict[str, float]:
    """One round: a broker that gets its partitions, stops, starts, is killed and starts again; then the floors."""
    took = {}
    process = BrokerProcess(parent / "broker", {}, QUIET)
    with process, connect(process.port) as sock:
        took["create"] = seconds(lambda: create(sock, 0, created))
        create(sock, created, held)
        took["stop"] = seconds(process.stop)
    took["start"] = seconds(process.start)
    process.kill()
    took["start after a kill"] = seconds(process.start)
    process.stop()
    floor = parent / "floor"
    floor.mkdir()
    took["floor of create: mkdir, three files, fsync of each and of the directory"] = seconds(
        lambda: make_directories(floor, created)
    )
    took["floor of stop: one sync of the file system"] = seconds(lambda: sync_file_system(floor))
    took["floor of start: list each directory, read each file"] = seconds(lambda: read_directories(parent / "broker"))
    return took


def create(sock: socket.socket, begin: int, end: int) -> None:
    """Create topics of ten partitions until there are so many partitions."""
    names = [topic_name(index) for index in range(begin // PARTITIONS_PER_TOPIC, end // PARTITIONS_PER_TOPIC)]
    for at in range(0, len(names), TOPICS_AT_ONCE):
        create_topics(sock, names[at : at + TOPICS_AT_ONCE], PARTITIONS_PER_TOPIC)


def make_directories(parent: Path, count: int) -> None:
    for index in range(count):
        directory = parent / f"floor-{index}"
        directory.mkdir()
        for name in ("a.log", "b.index", "partition.metadata"):
            write_synced(directory / name)
        sync_directory(directory)
    sync_directory(parent)


def write_synced(path: Path) -> None:
    number = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        os.write(number, b"floor")
        os.fsync(number)
    finally:
        os.close(number)


def sync_directory(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def sync_file_system(parent: Path) -> None:
    (parent / "last").write_bytes(b"floor")
    os.sync()


def read_directories(parent: Path) -> None:
    for directory in parent.iterdir():
        if directory.is_dir():
            for path in directory.iterdir():
                path.read_bytes() if path.suffix != ".log" else path.stat()


# ---- recovery


def add_recovery(options: Options, outcome: Outcome) -> None:
    """How fast a start after a kill checks what was not known to be durable, in MiB per CPU second."""
    table = outcome.table(
        "Start after a kill: MiB/s", "", "by CPU best", "by CPU median", "by clock best", "÷ read and CRC, by CPU"
    )
    ours_cpu, ours_wall, floor_cpu, floor_wall = [], [], [], []
    per_partition = options.volume(RECOVERED_MIB // RECOVERED_PARTITIONS)
    for _ in range(options.repeats):
        with scratch(options.directory) as parent:
            # No recovery point is written before the kill: all is read.
            settings = {"log.durability": "page-cache", "log.flush.offset.checkpoint.interval.ms": "3600000"}
            process = BrokerProcess(parent / "broker", settings, QUIET)
            with process:
                topics = [f"bulk-{index}" for index in range(RECOVERED_PARTITIONS)]
                paths = [fill(process, topic, 0, bulk_batch(), per_partition) for topic in topics]
                total = sum(path.stat().st_size for path in paths) / MIB
                process.kill()
                wall = seconds(process.start)
                cpu = process_cpu_seconds(process.pid)
                process.stop()
                empty_wall = seconds(process.start)
                empty_cpu = process_cpu_seconds(process.pid)
            # A clean start of the same broker is taken away: what is left is the recovery.
            ours_cpu.append(total / max(cpu - empty_cpu, 1e-3))
            ours_wall.append(total / max(wall - empty_wall, 1e-3))
            began = time.process_time()
            floor_wall.append(total / seconds(partial(read_and_check, paths)))
            floor_cpu.append(total / (time.process_time() - began))
    ours, floor = max(ours_cpu), max(floor_cpu)
    table.add("recovery", ours, Repeats(ours_cpu).median, max(ours_wall), ours / floor)
    table.add("floor: read and CRC", floor, Repeats(floor_cpu).median, max(floor_wall), 1)
    outcome.measures["partitions-recovery"] = Repeats(ours_cpu).median


def read_and_check(paths: Sequence[Path]) -> None:
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                crc32c(chunk)
