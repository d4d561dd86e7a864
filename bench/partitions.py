"""What thousands of partitions cost: to create and delete them, to stop and to start with them, also after a kill.

Beside each stands a floor: as many small directories and files made, synced and read again by nothing but system calls,
and for the recovery the same bytes read and their CRC computed.
"""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from bench.figures import Repeats
from bench.machine import process_cpu_seconds, spent_by
from bench.outcome import Options, Outcome
from bench.populated import TOPICS_AT_ONCE, create_topics, topic_name
from bench.subject import QUIET, scratch
from bench.wire import MIB, ask, connect, require
from kafka_wire.messages.delete_topics import DeleteTopicsRequest
from kafka_wire.records.batch import build_batch
from kafka_wire.records.crc import crc32c
from kafka_wire.records.record import NewRecord
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.log import Log
from trio_broker.storage.recovery import open_log
from trio_broker.testing.process import BrokerProcess

DELETE_TOPICS_VERSION = 5
"""The last one that names topics in a plain list."""

TIMEOUT_MS = 60_000

CREATED = 1_000
HELD = 5_000
PARTITIONS_PER_TOPIC = 10

RECOVERED_MIB = 256
BATCH_BYTES = (1024, 16 * 1024, MIB)
RECORD_BYTES = 100
CHUNK_BYTES = MIB


@attrs.frozen
class Took:
    """Seconds of a phase: of the wall clock, and of the broker's processors, which tell more on a busy machine."""

    wall: float
    cpu: float


def took(process: BrokerProcess, work: Callable[[], object]) -> Took:
    """What ``work`` takes while the broker runs."""
    with spent_by(process.pid) as spent:
        work()
    return Took(spent.wall, spent.cpu)


def took_to_start(process: BrokerProcess) -> Took:
    began = time.perf_counter()
    process.start()
    return Took(time.perf_counter() - began, process_cpu_seconds(process.pid))


def took_to_stop(process: BrokerProcess) -> Took:
    before, began = ended_children_seconds() + process_cpu_seconds(process.pid), time.perf_counter()
    process.stop()
    wall = time.perf_counter() - began
    return Took(wall, ended_children_seconds() - before)


def ended_children_seconds() -> float:
    """CPU seconds of all processes of this one that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def took_here(work: Callable[[], object]) -> Took:
    """What ``work`` of this process takes."""
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - began, time.process_time() - cpu)


def partitions(options: Options) -> Outcome:
    """Seconds to create, to delete, to stop and to start, and how fast a start after a kill reads."""
    outcome = Outcome("partitions")
    created, held = options.volume(CREATED), options.volume(HELD)
    rows: dict[str, list[Took]] = {}
    for _ in range(options.repeats):
        with scratch(options.directory) as parent:
            for name, each in measured(parent, created, held).items():
                rows.setdefault(name, []).append(each)
    table = outcome.table(
        f"{created:,} partitions created, {held:,} held; seconds", "", "best", "median", "spread", "CPU, median"
    )
    for name, values in rows.items():
        walls, cpus = Repeats([each.wall for each in values]), Repeats([each.cpu for each in values])
        table.add(name, walls.best, walls.median, f"{walls.spread:.0%}", cpus.median)
    for measure in (*SHAPES, "stop", "start", "start after a kill"):
        median = Repeats([each.wall for each in rows[measure]]).median
        outcome.measures[f"partitions-{measure.replace(' ', '-').replace(',', '')}"] = median
    add_recovery(options, outcome)
    return outcome


SHAPES = ("create", "create one topic", "create topics of one")
"""A hundred topics of ten in requests of fifty; one topic; as many topics as partitions, in one request: the last two
are what tools ask for at once."""


def measured(parent: Path, created: int, held: int) -> dict[str, Took]:
    """One round: a broker that gets its partitions, stops, starts, is killed, starts again and deletes; the floors."""
    rows: dict[str, Took] = {}
    ones = [f"one-{index:04}" for index in range(created)]
    process = BrokerProcess(parent / "broker", {}, QUIET)
    with process, connect(process.port) as sock:
        rows["create"] = took(process, lambda: create(sock, 0, created))
        rows["create one topic"] = took(process, lambda: create_topics(sock, ["wide"], created))
        rows["create topics of one"] = took(process, lambda: create_topics(sock, ones, 1))
        create(sock, created, held - 2 * created)
        rows["stop"] = took_to_stop(process)
    rows["start"] = took_to_start(process)
    process.kill()
    rows["start after a kill"] = took_to_start(process)
    with connect(process.port) as sock:
        rows["delete one topic"] = took(process, lambda: delete_topics(sock, ["wide"]))
        rows["delete topics of one"] = took(process, lambda: delete_topics(sock, ones))
    process.stop()
    floor = parent / "floor"
    floor.mkdir()
    rows["floor of create: mkdir, three files, fsync of each and of the directory"] = took_here(
        lambda: make_directories(floor, created)
    )
    rows["floor of stop: one sync of the file system"] = took_here(lambda: sync_file_system(floor))
    rows["floor of start: list each directory, read each file"] = took_here(lambda: read_directories(parent / "broker"))
    return rows


def create(sock: socket.socket, begin: int, end: int) -> None:
    """Create topics of ten partitions until there are so many partitions."""
    names = [topic_name(index) for index in range(begin // PARTITIONS_PER_TOPIC, end // PARTITIONS_PER_TOPIC)]
    for at in range(0, len(names), TOPICS_AT_ONCE):
        create_topics(sock, names[at : at + TOPICS_AT_ONCE], PARTITIONS_PER_TOPIC)


def delete_topics(sock: socket.socket, names: Sequence[str]) -> None:
    response = ask(sock, DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS), DELETE_TOPICS_VERSION)
    for topic in response.responses:
        require(topic.error_code, f"deleting {topic.name}")


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
