"""What thousands of partitions cost: to create them, to stop and to start with them, to recover them after a kill.

Beside each stands a floor: as many small directories and files made, synced and read again by nothing but system calls,
and for the recovery the same bytes read and their CRC computed.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.figures import Repeats
from bench.outcome import Options, Outcome
from bench.populated import TOPICS_AT_ONCE, create_topics, topic_name
from bench.subject import QUIET, scratch
from bench.wire import MIB, connect
from kafka_wire.records.batch import build_batch
from kafka_wire.records.crc import crc32c
from kafka_wire.records.record import NewRecord
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.log import Log
from trio_broker.storage.recovery import open_log
from trio_broker.testing.process import BrokerProcess
from trio_broker.topic_partition import TopicPartition

CREATED = 1_000
HELD = 5_000
PARTITIONS_PER_TOPIC = 10

RECOVERED_MIB = 256
BATCH_BYTES = (1024, 16 * 1024, MIB)
RECORD_BYTES = 100
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
    """How fast a log is read after a kill, in MiB per CPU second, by the size of its batches."""
    table = outcome.table(
        "Recovery after a kill: MiB per CPU second", "bytes a batch", "best", "median", "read and CRC", "÷ read and CRC"
    )
    for batch_bytes in BATCH_BYTES:
        ours, floor = [], []
        for _ in range(options.repeats):
            with scratch(options.directory) as parent:
                path = write_log(parent, batch_bytes, options.volume(RECOVERED_MIB * MIB) // batch_bytes)
                mib = path.stat().st_size / MIB
                began = time.process_time()
                read_and_check([path])
                floor.append(mib / (time.process_time() - began))
                began = time.process_time()
                opened(path.parent, clean=False)
                ours.append(mib / (time.process_time() - began))
        best = max(ours)
        table.add(batch_bytes, best, Repeats(ours).median, max(floor), best / max(floor))
        outcome.measures[f"partitions-recovery-{batch_bytes}"] = Repeats(ours).median


def opened(directory: Path, *, clean: bool) -> Log:
    """Open the log in ``directory``, as a start does that knows of no recovery point."""
    return open_log(
        RealDisk(),
        directory,
        TopicPartition("recovered", 0),
        bytes(15) + b"\x02",
        LogConfig(),
        recovery_point=0,
        log_start_offset=0,
        clean=clean,
        now_ms=0,
    ).log


def write_log(parent: Path, batch_bytes: int, count: int) -> Path:
    """Write a log of ``count`` batches and leave it as a kill does; return the file of its only segment."""
    log = opened(parent / "recovered-0", clean=True)
    records = [NewRecord(0, None, bytes(RECORD_BYTES))] * max(1, batch_bytes // RECORD_BYTES)
    batch = build_batch(records)
    for _ in range(count):
        log.append(bytearray(batch), leader_epoch=0, now_ms=0, origin=AppendOrigin.COORDINATOR)
    log.release()
    return Path(log.segments[0].file.path)


def read_and_check(paths: Sequence[Path]) -> None:
    for path in paths:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(CHUNK_BYTES):
                crc32c(chunk)
