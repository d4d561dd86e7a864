"""What a broker costs that does nothing: time to start, memory, ten thousand connections that only exist."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from bench.figures import Repeats, shown
from bench.machine import private_bytes, process_cpu_seconds, raise_file_limit, resident_bytes
from bench.outcome import Options, Outcome
from bench.subject import broker, scratch
from bench.wire import (
    CLIENT_ID,
    MIB,
    answer,
    connect,
    create_filled_topic,
    create_topic,
    metadata,
    request_frame,
    small_batch,
)
from kafka_wire.messages.api_versions import ApiVersionsRequest
from trio_broker.testing.process import BrokerProcess

CONNECTIONS = 10_000

BACKLOG = {"socket.listen.backlog.size": "1024"}
"""Kafka's default of 50 fills when thousands connect at once; a client is then made to wait a second and try again."""

OTHER_FILES = 500
"""What the broker and the benchmark hold open besides the connections."""

ASKED_AT_ONCE = 200
"""Requests sent before their answers are read: a client that asks one by one would measure itself."""

SETTLE_SECONDS = 1.0
IDLE_SECONDS = 5.0

IDLE_PARTITIONS = 1_000

KEPT_PARTITIONS = 100

STARTS_IN_PROCESS = 4
"""The first one compiles its codecs and opens its threads; later ones are what a test suite sees."""

API_VERSIONS_VERSION = 3


# ---- start


def start(options: Options) -> Outcome:
    """Seconds from starting the process to its first Metadata answer, beside what Python itself takes."""
    outcome = Outcome("start")
    table = outcome.table("Start, to the first Metadata answer", "", "best ms", "median ms", "spread")
    with scratch(options.directory) as parent:
        rows = start_rows(parent, options.repeats)
    for name, values in rows.items():
        found = Repeats([value * 1e3 for value in values])
        table.add(name, found.best, found.median, f"{found.spread:.0%}")
    outcome.measures["start"] = Repeats(rows["broker, empty directory"]).median
    outcome.measures["start-in-process"] = Repeats(rows["in a running Python: each one after it"]).median * 1e3
    outcome.measures["start-in-process-first"] = Repeats(rows["in a running Python: the first broker"]).median * 1e3
    return outcome


def start_rows(parent: Path, repeats: int) -> dict[str, list[float]]:
    """Every way to start, and how many seconds it took each time."""
    numbered = range(repeats)
    rows: dict[str, list[float]] = {}
    with bytecode_in(parent / "bytecode"):
        in_process_seconds(1)  # So that all that follows finds its bytecode, as every start but the first does.
        seconds_to_metadata(parent / "first")
        rows["python -c pass"] = [python_seconds("pass") for _ in numbered]
        dependencies = "import trio, starlette.applications, hypercorn.trio"
        rows["python, importing trio, starlette and hypercorn"] = [python_seconds(dependencies) for _ in numbered]
        rows["python, importing the broker"] = [python_seconds("import trio_broker.broker") for _ in numbered]
        rows["broker, empty directory"] = [seconds_to_metadata(parent / f"empty-{index}") for index in numbered]
        with BrokerProcess(parent / "kept") as process:
            create_topic(process.port, "kept", KEPT_PARTITIONS)
        name = f"broker, {KEPT_PARTITIONS} partitions, stopped cleanly before"
        rows[name] = [seconds_to_metadata(parent / "kept") for _ in numbered]
        runs = [in_process_seconds(STARTS_IN_PROCESS) for _ in numbered]
        rows["in a running Python: its imports"] = [imports for imports, *_ in runs]
        rows["in a running Python: the first broker"] = [first for _, first, *_ in runs]
        rows["in a running Python: each one after it"] = [later for _, _, *more in runs for later in more]
    return rows


@contextmanager
def bytecode_in(directory: Path) -> Iterator[None]:
    """Have the Pythons that are started keep their bytecode in ``directory``, whatever our own environment says.

    A test machine often forbids it (PYTHONDONTWRITEBYTECODE); then every start would compile the whole broker anew,
    which is what a user pays once.
    """
    kept = {key: os.environ.pop(key, None) for key in ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")}
    os.environ["PYTHONPYCACHEPREFIX"] = str(directory)
    try:
        yield
    finally:
        del os.environ["PYTHONPYCACHEPREFIX"]
        os.environ.update({key: value for key, value in kept.items() if value is not None})


def python_seconds(code: str) -> float:
    """The time a Python takes to run ``code`` and end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.perf_counter() - began


def seconds_to_metadata(directory: Path) -> float:
    """Start a broker, ask it for Metadata, stop it; return the time from start to answer."""
    process = BrokerProcess(directory)
    began = time.perf_counter()
    with process, connect(process.port) as sock:
        metadata(sock)
        return time.perf_counter() - began


def in_process_seconds(count: int) -> list[float]:
    """What the imports and ``count`` brokers one after the other take in a fresh Python that goes on running."""
    command = [sys.executable, "-m", "bench.in_process", str(count)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [float(milliseconds) / 1e3 for milliseconds in json.loads(printed)]


# ---- memory


def memory(options: Options) -> Outcome:
    """RSS of an idle broker, and what an idle connection adds to it, by ten thousand of them."""
    outcome = Outcome("memory")
    table = outcome.table("Memory and CPU of a broker that does nothing", "", "value", "unit")
    allowed = raise_file_limit(CONNECTIONS + OTHER_FILES)
    connections = min(options.volume(CONNECTIONS), allowed - OTHER_FILES)
    with broker(options.directory, BACKLOG) as process:
        with connect(process.port) as sock:
            metadata(sock)
        time.sleep(SETTLE_SECONDS)
        empty = Footprint.of(process)
        table.add("RSS, no connections", empty.resident / MIB, "MiB")
        table.add("of it private (USS)", empty.private / MIB, "MiB")
        table.add("CPU, no connections", idle_cpu(process) * 100, "% of a core")
        began = time.perf_counter()
        with idle_connections(process.port, connections) as socks:
            ask_last(socks)
            accepted_seconds = time.perf_counter() - began
            time.sleep(SETTLE_SECONDS)
            silent = Footprint.of(process)
            table.add(f"{connections:,} connections made and accepted in", accepted_seconds, "s")
            table.add("per idle connection", (silent.resident - empty.resident) / connections / 1000, "KB")
            table.add(f"CPU, {connections:,} idle connections", idle_cpu(process) * 100, "% of a core")
            began = time.perf_counter()
            introduce(socks)
            table.add("ApiVersions on each, 200 at a time", time.perf_counter() - began, "s")
            time.sleep(SETTLE_SECONDS)
            spoken = Footprint.of(process)
            table.add("per idle connection after it", (spoken.resident - empty.resident) / connections / 1000, "KB")
        began = time.perf_counter()
        with connect(process.port) as sock:
            metadata(sock)
        table.add("a new client's Metadata while they all close", time.perf_counter() - began, "s")
        time.sleep(SETTLE_SECONDS)
        table.add("RSS after they closed", Footprint.of(process).resident / MIB, "MiB")
    outcome.measures["memory-idle"] = empty.resident / MIB
    outcome.measures["memory-connection"] = (spoken.resident - empty.resident) / connections / 1000
    if connections < CONNECTIONS * options.scale:
        outcome.remarks.append(f"Only {shown(connections)} connections: the limit of open files is {allowed:,}.")
    outcome.remarks.append(
        "What the kernel holds for a socket, about 1 to 4 KB of its own memory, is not in these numbers."
    )
    return outcome


@attrs.frozen
class Footprint:
    """Memory of a process at one moment, in bytes."""

    resident: int
    private: int

    @classmethod
    def of(cls, process: BrokerProcess) -> Footprint:
        return cls(resident_bytes(process.pid), private_bytes(process.pid))


def idle_cpu(process: BrokerProcess, seconds: float = IDLE_SECONDS) -> float:
    """The share of a core that the process takes while nothing happens."""
    before = process_cpu_seconds(process.pid)
    time.sleep(seconds)
    return (process_cpu_seconds(process.pid) - before) / seconds


def idle(options: Options) -> Outcome:
    """CPU of a broker that nobody is connected to and that has a thousand partitions, each with a record."""
    outcome = Outcome("idle")
    partitions = options.volume(IDLE_PARTITIONS)
    seconds = IDLE_SECONDS * options.scale
    with broker(options.directory) as process:
        create_filled_topic(process.port, "idle", partitions, small_batch())
        idle_cpu(process, seconds)  # What follows the writes, a flush or a checkpoint, does not count.
        percent = Repeats([idle_cpu(process, seconds) * 100 for _ in range(options.repeats)])
    table = outcome.table("CPU of an idle broker, % of a core", "partitions", "best", "median", "spread")
    table.add(partitions, percent.best, percent.median, f"{percent.spread:.0%}")
    outcome.measures["idle"] = percent.median
    return outcome


@contextmanager
def idle_connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """Connections to the broker, held while the block runs."""
    with ExitStack() as stack:
        yield [stack.enter_context(connect(port)) for _ in range(count)]


def ask_last(socks: list[socket.socket]) -> None:
    """Get an answer on the last connection made: it was accepted, and so were all before it."""
    metadata(socks[-1])


def introduce(socks: list[socket.socket]) -> None:
    """Say on every connection what a client says first."""
    request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
    frame = request_frame(request, API_VERSIONS_VERSION)
    for begin in range(0, len(socks), ASKED_AT_ONCE):
        some = socks[begin : begin + ASKED_AT_ONCE]
        for sock in some:
            sock.sendall(frame)
        for sock in some:
            answer(sock, ApiVersionsRequest, API_VERSIONS_VERSION)
