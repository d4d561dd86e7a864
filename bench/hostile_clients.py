"""What hostile clients cost a good one: its p99 beside each kind of them, over two others of the same client.

The good client asks for one small topic again and again, with a pause after each answer, so that what holds up the
broker meets a question as often as it lasts long. Each kind runs in a process of its own. Three times take turns:

* *alone*: nothing else runs, and the client and its broker have a processor each.
* *elsewhere*: the hostile clients attack a second broker of the same kind. All the same processes want the processors,
  but the good client shares no event loop with them: what is above this is the broker's own doing.
* *beside*: they attack the broker that the good client asks.
"""

from __future__ import annotations

import multiprocessing
import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing.synchronize import Event
from typing import TypeAlias

import attrs

from bench.figures import Latencies, Table
from bench.largest_requests import largest_requests
from bench.outcome import Options, Outcome
from bench.small import PAGE_CACHE
from bench.subject import broker
from bench.wire import (
    METADATA_VERSION,
    BenchError,
    body_frame,
    connect,
    create_topic,
    metadata,
    receive_frame,
    request_frame,
)
from kafka_wire.messages.delete_topics import DeleteTopicsRequest
from kafka_wire.messages.fetch import FetchRequest
from kafka_wire.messages.metadata import MetadataRequest, MetadataResponse

GOOD_TOPIC, WIDE_TOPIC = "good", "wide"
WIDE_TOPIC_PARTITIONS = 2000
CONNECTIONS = 100
PIPELINED = 50
QUESTIONS = 1000
LARGE_FRAME_BYTES = 3 * 1024 * 1024
GARBAGE_BYTES = 4096
PAUSE_SECONDS = 0.001
"""Between two connections of a flood: a thousand a second, which a client process of one core can make; and between an
answer and the good client's next question."""

Hostile: TypeAlias = Callable[[int, Event], None]
"""Does one round against the port; called again until the event is set."""


def never_reading(port: int, ends: Event) -> None:
    """A hundred connections that pipeline Metadata of all topics, and read nothing."""
    frame = bytes(request_frame(MetadataRequest(topics=None), METADATA_VERSION)) * PIPELINED
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            stack.enter_context(connect(port)).sendall(frame)
        ends.wait(1.0)


def reading_slowly(port: int, ends: Event) -> None:
    """The same, of which each reads a little at a time."""
    frame = bytes(request_frame(MetadataRequest(topics=None), METADATA_VERSION)) * PIPELINED
    with ExitStack() as stack:
        socks = [stack.enter_context(connect(port)) for _ in range(CONNECTIONS)]
        for sock in socks:
            sock.sendall(frame)
        for sock in socks:
            sock.recv(GARBAGE_BYTES)
            ends.wait(PAUSE_SECONDS)


def sending(frame: bytes, port: int, ends: Event) -> None:
    """A client that sends one large request after the other."""
    with connect(port) as sock:
        while not ends.is_set():
            sock.sendall(frame)
            receive_frame(sock)


def flooding(port: int, ends: Event) -> None:
    """A connection that says nothing and ends."""
    connect(port).close()
    ends.wait(PAUSE_SECONDS)


def garbling(port: int, ends: Event) -> None:
    """A connection that sends bytes without meaning."""
    with connect(port) as sock:
        sock.sendall(random.randbytes(GARBAGE_BYTES))
    ends.wait(PAUSE_SECONDS)


def kinds() -> dict[str, Hostile]:
    delete, *_ = largest_requests(DeleteTopicsRequest, 6, LARGE_FRAME_BYTES)
    _, fetch, *_ = largest_requests(FetchRequest, 12, LARGE_FRAME_BYTES)
    delete_frame = body_frame(DeleteTopicsRequest, 6, delete.body)
    fetch_frame = body_frame(FetchRequest, 12, fetch.body)
    return {
        "100 connections pipeline Metadata and never read": never_reading,
        "100 connections pipeline Metadata and read slowly": reading_slowly,
        f"DeleteTopics of {delete.elements:,} topics": partial(sending, delete_frame),
        f"Fetch of {fetch.elements:,} partitions": partial(sending, fetch_frame),
        "a flood of connections": flooding,
        "garbage": garbling,
    }


Question: TypeAlias = Callable[[socket.socket], object]
"""Asks the broker for something, and returns with its answer."""


def one_topic(sock: socket.socket) -> MetadataResponse:
    return metadata(sock, GOOD_TOPIC)


@attrs.define
class GoodClient:
    """Asks the same question again and again; the first answer is that of a new connection."""

    port: int
    question: Question = one_topic
    latencies_ns: list[int] = attrs.field(factory=list)
    first_ns: int = 0

    def ask(self, questions: int) -> None:
        began = time.perf_counter_ns()
        with connect(self.port) as sock:
            for number in range(questions):
                self.question(sock)
                self.latencies_ns.append(time.perf_counter_ns() - began)
                self.first_ns = self.first_ns if number else max(self.first_ns, self.latencies_ns[-1])
                time.sleep(PAUSE_SECONDS)
                began = time.perf_counter_ns()


def attack(hostile: Hostile, port: int, begins: Event, ends: Event) -> None:
    """Let ``hostile`` do its rounds until ``ends``."""
    begins.set()
    while not ends.is_set():
        # The broker may end its connections at any time, and rightly.
        with suppress(OSError, BenchError):
            hostile(port, ends)


@contextmanager
def running(hostile: Hostile, port: int) -> Iterator[None]:
    """Let ``hostile`` do its rounds while the block lasts."""
    spawn = multiprocessing.get_context("spawn")
    begins, ends = spawn.Event(), spawn.Event()
    process = spawn.Process(target=attack, args=(hostile, port, begins, ends), name="hostile client")
    process.start()
    try:
        begins.wait()
        yield
    finally:
        ends.set()
        process.join()


COLUMNS = (
    *("beside", "p50 ms", "p99 ms", "p99 alone ms", "÷ alone", "p99 elsewhere ms", "÷ elsewhere"),
    "slowest first answer ms",
)


@attrs.frozen
class Judged:
    """p99 of the good client beside hostile ones: over that alone and elsewhere, and in milliseconds."""

    over_alone: float
    over_elsewhere: float
    p99_ms: float


@attrs.frozen
class Competition:
    """A good client at ``port``, and hostile ones at ``attacked``, a port of the same broker, or at ``elsewhere``."""

    port: int
    attacked: int
    elsewhere: int
    question: Question = one_topic

    def judge(self, name: str, hostile: Hostile, options: Options, table: Table) -> Judged:
        """Take the three times in turns, and add a row with ``COLUMNS`` to ``table``."""
        questions = options.volume(QUESTIONS)
        alone, elsewhere, beside = (GoodClient(self.port, self.question) for _ in range(3))
        for _ in range(options.repeats):
            alone.ask(questions)
            with running(hostile, self.elsewhere):
                elsewhere.ask(questions)
            with running(hostile, self.attacked):
                beside.ask(questions)
        quiet, competing, attacked = (Latencies.of_ns(each.latencies_ns) for each in (alone, elsewhere, beside))
        judged = Judged(attacked.p99_ms / quiet.p99_ms, attacked.p99_ms / competing.p99_ms, attacked.p99_ms)
        table.add(
            *(name, attacked.p50_ms, attacked.p99_ms, quiet.p99_ms, judged.over_alone),
            *(competing.p99_ms, judged.over_elsewhere, beside.first_ns / 1e6),
        )
        return judged


def hostile_clients(options: Options) -> Outcome:
    """p99 of a good client beside each kind of hostile ones."""
    outcome = Outcome("hostile-clients")
    questions = options.volume(QUESTIONS)
    title = f"A good client's {questions:,} Metadata requests of one topic, one after the other"
    table = outcome.table(title, *COLUMNS)
    with broker(options.directory, PAGE_CACHE) as process, broker(options.directory, PAGE_CACHE) as other:
        for each in (process, other):
            create_topic(each.port, GOOD_TOPIC, 1)
            create_topic(each.port, WIDE_TOPIC, WIDE_TOPIC_PARTITIONS)
            GoodClient(each.port).ask(questions)
        competition = Competition(process.port, process.port, other.port)
        judged = [competition.judge(name, hostile, options, table) for name, hostile in kinds().items()]
    outcome.measures["hostile-clients"] = max(each.over_alone for each in judged)
    outcome.measures["hostile-clients-elsewhere"] = max(each.over_elsewhere for each in judged)
    outcome.measures["hostile-clients-p99"] = max(each.p99_ms for each in judged)
    return outcome
