"""How long a record takes from the sending of its Produce to the end of the long polls that wait for it.

Consumers poll again as soon as they have an answer, and the next record follows after a pause of any length: so it
meets polls that wait, polls that are on their way, and polls that are just about to wait. What wakes no poll there is
answered at the end of the poll's time, and shows from p99 on. Each consumer has a fetch session.

Kafka, the broker as Kafka writes, and the broker with its default durability are up at the same time, and take turns.
"""

from __future__ import annotations

import random
import select
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import attrs

from bench.figures import Latencies
from bench.kafka import START_SCRIPT_OPTIONS, why_no_kafka
from bench.outcome import Options, Outcome
from bench.phases import add_phase_table, phase_row
from bench.small import PAGE_CACHE
from bench.subject import Peer, broker, scratch
from bench.wire import (
    FETCH_VERSION,
    BenchError,
    answer,
    connect,
    create_filled_topic,
    produce_frame,
    produced,
    request_frame,
    require,
    small_batch,
)
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.compat.kafka_process import KafkaProcess
from trio_broker.testing.process import BrokerProcess

RECORDS = 2_000
"""Of each load on each server in one turn."""

MAX_PAUSE_SECONDS = 0.001
"""Before the next record: longer than a Fetch needs until it waits, so that some come before and some after."""

MAX_WAIT_MS = 500
"""Of a poll, as most clients have it by default."""

MAX_BYTES = 65_536

FSYNC = "trio-broker, fsync"
PAGES = "trio-broker, page cache"
KAFKA = "Kafka"

ACKS = {KAFKA: 1, PAGES: 1, FSYNC: -1}


@attrs.frozen
class Load:
    """Consumers that each read all partitions of a topic."""

    name: str
    topic: str
    consumers: int
    partitions: int


LOADS = (
    Load("one consumer", "one", 1, 1),
    Load("two consumers of one partition", "two", 2, 1),
    Load("eight partitions in one session", "eight", 1, 8),
)


@attrs.define(eq=False)
class Consumer:
    """A consumer of all partitions of a topic, from ``offset`` on, with one poll under way at any time."""

    sock: socket.socket
    topic: str
    offsets: list[int]
    session_id: int = 0
    session_epoch: int = 0
    changed: list[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.changed = list(range(len(self.offsets)))

    def poll(self) -> None:
        """Ask for more; of the session the partitions whose offset has moved."""
        wanted = [
            FetchPartition(partition=index, fetch_offset=self.offsets[index], partition_max_bytes=MAX_BYTES)
            for index in self.changed
        ]
        request = FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[FetchTopic(topic=self.topic, partitions=wanted)] if wanted else [],
        )
        self.sock.sendall(request_frame(request, FETCH_VERSION))

    def receive(self) -> int:
        """Read the answer to the poll; return how many records came."""
        response = answer(self.sock, FetchRequest, FETCH_VERSION)
        require(response.error_code, "fetching")
        self.session_id = response.session_id
        self.session_epoch += 1
        self.changed = []
        count = 0
        for partition in (each for topic in response.responses for each in topic.partitions):
            require(partition.error_code, "fetching")
            if came := len(partition.records or b"") // len(small_batch()):
                self.changed.append(partition.partition_index)
                self.offsets[partition.partition_index] += came
                count += came
        return count


def latency(options: Options) -> Outcome:
    """From the sending of a record to the end of the long polls that waited for it."""
    outcome = Outcome("latency")
    durations: dict[tuple[Load, str], list[int]] = {}
    with servers(options, outcome) as peers:
        for load in LOADS:
            for peer in peers.values():
                create_filled_topic(peer.port, load.topic, load.partitions, small_batch())
        for turn in range(options.repeats + 1):
            for load in LOADS:
                for name, peer in peers.items():
                    pauses = random.Random(turn)
                    found = deliveries(peer.port, load, options.volume(RECORDS), ACKS[name], pauses)
                    if turn:  # the first one warms up
                        durations.setdefault((load, name), []).extend(found)
        phases = [
            phase_row(name, peer, api)
            for name, peer in peers.items()
            if isinstance(peer, BrokerProcess)
            for api in ("Produce", "Fetch")
        ]
    table = outcome.table(
        "Produce to Fetch, end to end: one producer, one record of 100 bytes at a time, long polls",
        *("load", "server", "acks", "deliveries", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms"),
    )
    for (load, name), values in durations.items():
        found_all = Latencies.of_ns(values)
        table.add(
            *(load.name, name, "all" if ACKS[name] < 0 else str(ACKS[name]), found_all.count),
            *(found_all.p50_ms, found_all.p95_ms, found_all.p99_ms, found_all.p999_ms, found_all.max_ms),
        )
    add_phase_table(outcome, phases)
    if KAFKA in peers:
        ours, theirs = (Latencies.of_ns(durations[LOADS[0], name]) for name in (PAGES, KAFKA))
        outcome.measures["latency-p50"] = ours.p50_ms / theirs.p50_ms
        outcome.measures["latency-p99"] = ours.p99_ms / theirs.p99_ms
        outcome.measures["latency-p999"] = ours.p999_ms / theirs.p999_ms
    return outcome


@contextmanager
def servers(options: Options, outcome: Outcome) -> Iterator[Mapping[str, Peer]]:
    """All that are compared, up at the same time; without Kafka where it is not to be had."""
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        if missing := why_no_kafka():
            outcome.remarks.append(f"without Kafka: {missing}")
        else:
            directory = stack.enter_context(scratch(options.directory))
            peers[KAFKA] = stack.enter_context(KafkaProcess(directory, java_options=START_SCRIPT_OPTIONS))
        peers[PAGES] = stack.enter_context(broker(options.directory, PAGE_CACHE))
        peers[FSYNC] = stack.enter_context(broker(options.directory))
        yield peers


def deliveries(port: int, load: Load, count: int, acks: int, pauses: random.Random) -> list[int]:
    """Send ``count`` records one by one; return nanoseconds from send to receipt, of each record by each consumer."""
    frames = [produce_frame(load.topic, partition, small_batch(), acks) for partition in range(load.partitions)]
    durations: list[int] = []
    with ExitStack() as stack:
        producer = stack.enter_context(connect(port))
        ends = []
        for frame in frames:
            producer.sendall(frame)
            ends.append(produced(producer) + 1)
        consumers = [
            Consumer(stack.enter_context(connect(port)), load.topic, list(ends)) for _ in range(load.consumers)
        ]
        for consumer in consumers:
            consumer.poll()
        for number in range(count):
            time.sleep(pauses.uniform(0, MAX_PAUSE_SECONDS))
            began = time.perf_counter_ns()
            producer.sendall(frames[number % len(frames)])
            waiting = set(consumers)
            while waiting:
                by_socket = {consumer.sock: consumer for consumer in waiting}
                for sock in select.select(by_socket, (), (), MAX_WAIT_MS)[0]:
                    received = time.perf_counter_ns()
                    consumer = by_socket[sock]
                    if records := consumer.receive():
                        durations.append(received - began)
                        waiting.discard(consumer)
                    if records > 1:
                        raise BenchError(f"{load.name}: one record was sent, {records} came")
                    consumer.poll()
            produced(producer)
    return durations
