"""Apache Kafka as a peer: the same loads on both brokers, which are up at the same time, in turns; ratios.

Kafka is one KRaft node from the jars of ``tests/compat/java`` with the JVM options that its own start script sets, and
its defaults otherwise; the broker has ``log.durability=page-cache``, which is how Kafka writes. Each load is warmed up
on both until its rate stops rising. CPU is the process's own clock: Kafka's collector and compiler threads are in it.

Small requests come from a client in C (``closed_loop.py``). A JVM needs half a minute of one load to compile it, and is
slower again where loads change: both are measured, and goals are held against the first.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs

from bench.bulk import PRODUCE_MIB, Moved, Moves, measured, produce_and_forget
from bench.bulk import TOPIC as BULK_TOPIC
from bench.closed_loop import small_load
from bench.figures import Table, ratio
from bench.librdkafka import compressed_rounds, librdkafka_rounds
from bench.load import Consumer, SmallLoad, send_bulk, side_by_side
from bench.outcome import Options, Outcome
from bench.small import PAGE_CACHE, PARTITIONS, TOPIC, Runs, frames_for
from bench.subject import Peer, broker, scratch
from bench.turns import TURN_SECONDS, WARM_TURN_SECONDS, Turns, measure_in_turns, take_in_turns, warm_up
from bench.wire import (
    CLIENT_ID,
    FETCH_VERSION,
    MIB,
    PRODUCE_VERSION,
    BenchError,
    BulkBatch,
    bulk_batch,
    connect,
    create_filled_topic,
    decoded,
    fetch_frame,
    produce_frame,
    receive_frame,
    request_frame,
    require,
    small_batch,
)
from kafka_wire.framing import SIZE_PREFIX
from kafka_wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_wire.messages.fetch import FetchRequest, FetchResponse
from kafka_wire.messages.produce import ProduceRequest, ProduceResponse
from kafka_wire.schema import Request
from tests.compat.kafka_process import KafkaProcess
from tests.java_programs import JARS

API_VERSIONS_VERSION = 3

START_SCRIPT_OPTIONS = (
    *("-Xms1g", "-Xmx1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
)
"""What ``kafka-server-start.sh`` and ``kafka-run-class.sh`` give the JVM."""

FETCHED = "fetched"
"""A topic with one small batch in every partition."""

CACHED = "cached"
"""A topic with a log of large batches in the page cache."""

CACHED_MIB = 128
"""Read from front to back, again and again."""

BULK_CONNECTIONS = (1, 4)

KAFKA_WARM_SECONDS = 24.0
"""Of one small load, until its cost falls no more: some 20 µs a request where the first seconds cost 45 to 60."""


def why_no_kafka() -> str | None:
    """What is missing for a Kafka to be started here; None when nothing is."""
    if shutil.which("java") is None or shutil.which("javac") is None:
        return "there is no JDK"
    if not list(JARS.glob("kafka-clients-*.jar")):
        return "Kafka's jars were not fetched (tests/compat/README.md)"
    return None


@contextmanager
def both(options: Options) -> Iterator[tuple[KafkaProcess, Peer]]:
    """Kafka and the broker, both running."""
    with (
        scratch(options.directory) as directory,
        KafkaProcess(directory, java_options=START_SCRIPT_OPTIONS) as kafka,
        broker(options.directory, PAGE_CACHE) as ours,
    ):
        yield kafka, ours


# ---- small requests


@attrs.frozen
class Load:
    """A small request that is sent again and again, one in flight on each connection."""

    key: str
    title: str
    kind: type[Request[Any]]
    version: int
    frames: Callable[[int], list[bytearray]]
    check: Callable[[Any], None]
    connections: Sequence[int]

    def on(self, process: Peer, connections: int, client: SmallLoad) -> Turns:
        """This load by ``client`` on one of the two, after a look into an answer: all others must have its size."""
        frames = self.frames(connections)
        with connect(process.port) as sock:
            sock.sendall(frames[0])
            response = receive_frame(sock)
        self.check(decoded(response, self.kind, self.version))
        return Turns(process.pid, process.port, frames, SIZE_PREFIX.size + len(response), runs=Runs(client))


def check_produce(response: ProduceResponse) -> None:
    require(response.responses[0].partition_responses[0].error_code, "producing")


def check_fetch(response: FetchResponse) -> None:
    require(response.error_code or response.responses[0].partitions[0].error_code, "fetching")
    records = response.responses[0].partitions[0].records
    if records is None or len(records) != len(small_batch()):
        raise BenchError("a Fetch did not bring the one batch of its partition")


def check_api_versions(response: ApiVersionsResponse) -> None:
    require(response.error_code, "asking for versions")


def fetch_frames(connections: int) -> list[bytearray]:
    """A Fetch of the only batch of a partition, per connection."""
    return [fetch_frame(FETCHED, index % PARTITIONS, 65536).at(0) for index in range(connections)]


def api_versions_frames(connections: int) -> list[bytearray]:
    request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
    return [request_frame(request, API_VERSIONS_VERSION)] * connections


LOADS = (
    Load("produce", "Produce, one record", ProduceRequest, PRODUCE_VERSION, frames_for, check_produce, (1, 16, 64)),
    Load("fetch", "Fetch, one small batch", FetchRequest, FETCH_VERSION, fetch_frames, check_fetch, (1, 16, 64)),
    Load(
        *("api-versions", "ApiVersions", ApiVersionsRequest, API_VERSIONS_VERSION),
        *(api_versions_frames, check_api_versions, (16, 64)),
    ),
)


def kafka(options: Options) -> Outcome:
    """CPU and rate of small requests over Kafka's."""
    outcome = Outcome("kafka")
    if missing := why_no_kafka():
        outcome.remarks.append(f"kafka skipped: {missing}")
        return outcome
    rows = [(load, connections) for load in LOADS for connections in load.connections]
    with both(options) as processes, small_load(options.directory) as (client, remark):
        for process in processes:
            create_filled_topic(process.port, TOPIC, PARTITIONS, small_batch())
            create_filled_topic(process.port, FETCHED, PARTITIONS, small_batch())
        alone = []
        for load, connections in rows:
            theirs, ours = (load.on(process, connections, client) for process in processes)
            theirs.warm_for(KAFKA_WARM_SECONDS * options.scale)
            take_in_turns([(theirs, ours)], options)
            alone.append((theirs, ours))
        mixed = [(theirs.without_figures(), ours.without_figures()) for theirs, ours in alone]
        measure_in_turns([side for pair in mixed for side in pair], options)
    outcome.remarks.append(remark)
    turns = f"page cache, medians of {options.repeats} turns with Kafka"
    for (load, connections), cpu, rate in compared(
        outcome, f"Small requests, one load at a time, {turns}", rows, alone
    ):
        outcome.measures[f"kafka-{load.key}-{connections}-cpu"] = cpu
        outcome.measures[f"kafka-{load.key}-{connections}-rate"] = rate
    compared(outcome, f"Small requests, all loads after each other again and again, {turns}", rows, mixed)
    return outcome


def compared(
    outcome: Outcome, title: str, rows: Sequence[tuple[Load, int]], pairs: Sequence[tuple[Turns, Turns]]
) -> list[tuple[tuple[Load, int], float, float]]:
    """Add a table; return the ratios of each row, of CPU and of rate."""
    table = outcome.table(
        title,
        *("request", "connections", "CPU µs", "Kafka's", "CPU ÷ Kafka's"),
        *("requests/s", "Kafka's", "rate ÷ Kafka's"),
    )
    return [
        ((load, connections), *add_row(table, (load.title, connections), ours.runs, theirs.runs))
        for (load, connections), (theirs, ours) in zip(rows, pairs, strict=True)
    ]


def add_row(table: Table, what: Sequence[str | int], ours: Runs | Moves, theirs: Runs | Moves) -> tuple[float, float]:
    """Add the medians of both and their ratios; return the ratios, of CPU and of rate."""
    cpu, rate = ratio(ours.cpu, theirs.cpu), ratio(ours.rate, theirs.rate)
    table.add(*what, ours.cpu.median, theirs.cpu.median, cpu, ours.rate.median, theirs.rate.median, rate)
    return cpu, rate


# ---- bulk


@attrs.define
class BulkTurns:
    """One bulk load on one of the two; ``round`` is short, a turn is as many rounds as its time holds."""

    round: Callable[[], Moved]
    moves: Moves = attrs.field(factory=Moves)

    def warm_up(self, scale: float) -> None:
        warm_up(lambda: self.turn(WARM_TURN_SECONDS * scale).mib_per_second)

    def take(self, scale: float) -> None:
        self.moves.runs.append(self.turn(TURN_SECONDS * scale))

    def turn(self, seconds: float) -> Moved:
        """The mean of rounds of the same size: of their CPU per MiB, and of their rates."""
        end = time.perf_counter() + seconds
        rounds = [self.round()]
        while time.perf_counter() < end:
            rounds.append(self.round())
        return Moved(
            statistics.fmean(each.cpu_us_per_mib for each in rounds),
            statistics.harmonic_mean([each.mib_per_second for each in rounds]),
        )


def kafka_bulk(options: Options) -> Outcome:
    """CPU and rate of bulk produce and consume over Kafka's: in frames of 1 MiB, and as librdkafka does it."""
    outcome = Outcome("kafka-bulk")
    if missing := why_no_kafka():
        outcome.remarks.append(f"kafka-bulk skipped: {missing}")
        return outcome
    batch = bulk_batch()
    with both(options) as (kafka, ours):
        frames = Pairs(*(bulk_turns(process, batch, options) for process in (kafka, ours)))
        with librdkafka_rounds(kafka, options) as their_rounds, librdkafka_rounds(ours, options) as our_rounds:
            records = Pairs(
                *({load: BulkTurns(each) for load, each in side.items()} for side in (their_rounds, our_rounds))
            )
            take_in_turns([*frames.sides(), *records.sides()], options)
    turns = f"page cache, medians of {options.repeats} turns with Kafka"
    by_connections = frames.compared(outcome, f"Bulk in frames of 1 MiB, {turns}", "connections")
    by_bytes = records.compared(outcome, f"Bulk by librdkafka, one client, {turns}", "bytes a record")
    alone = [ratios for (_, connections), ratios in by_connections.items() if connections == 1]
    for key, ratios in (("kafka-bulk", alone), ("kafka-bulk-librdkafka", by_bytes.values())):
        outcome.measures[f"{key}-cpu"] = max(cpu for cpu, _ in ratios)
        outcome.measures[f"{key}-rate"] = min(rate for _, rate in ratios)
    outcome.measures["kafka-bulk-librdkafka-produce-1000-cpu"], _ = by_bytes["produce", 1000]
    outcome.remarks.append(
        "The goals of frames are held against one connection; with four, Kafka's threads use all cores."
    )
    return outcome


def kafka_compressed(options: Options) -> Outcome:
    """CPU and rate of compressed bulk produce over Kafka's, by codec."""
    outcome = Outcome("kafka-compressed")
    if missing := why_no_kafka():
        outcome.remarks.append(f"kafka-compressed skipped: {missing}")
        return outcome
    with both(options) as processes:
        loads = Pairs(
            *({load: BulkTurns(each) for load, each in compressed_rounds(side, options).items()} for side in processes)
        )
        take_in_turns(loads.sides(), options)
    title = f"Compressed bulk produce by librdkafka, page cache, medians of {options.repeats} turns with Kafka"
    for (codec, size), (cpu, rate) in loads.compared(outcome, title, "bytes a record").items():
        outcome.measures[f"kafka-compressed-{codec}-{size}-cpu"] = cpu
        outcome.measures[f"kafka-compressed-{codec}-{size}-rate"] = rate
    outcome.remarks.append("MiB are those before compression.")
    return outcome


@attrs.frozen
class Pairs:
    """The same bulk loads on both, by their name and what varies."""

    theirs: Mapping[tuple[str, int], BulkTurns]
    ours: Mapping[tuple[str, int], BulkTurns]

    def sides(self) -> list[tuple[BulkTurns, BulkTurns]]:
        return [(self.theirs[load], self.ours[load]) for load in self.ours]

    def compared(self, outcome: Outcome, title: str, varied: str) -> dict[tuple[str, int], tuple[float, float]]:
        """Add a table of all loads; return the ratios of each, of CPU and of rate."""
        ratio_columns = ("CPU µs/MiB", "Kafka's", "CPU ÷ Kafka's", "MiB/s", "Kafka's", "rate ÷ Kafka's")
        table = outcome.table(title, "load", varied, *ratio_columns)
        return {load: add_row(table, load, self.ours[load].moves, self.theirs[load].moves) for load in self.ours}


def bulk_turns(process: Peer, batch: BulkBatch, options: Options) -> dict[tuple[str, int], BulkTurns]:
    """Write what will be read, and return every bulk load on ``process`` by its name and connections."""
    create_filled_topic(process.port, BULK_TOPIC, max(BULK_CONNECTIONS), batch.data)
    create_filled_topic(process.port, CACHED, 1, batch.data)
    to_send = max(max(BULK_CONNECTIONS), options.volume(PRODUCE_MIB))
    to_read = options.volume(CACHED_MIB)
    with connect(process.port) as sock:
        frame = produce_frame(CACHED, 0, batch.data, acks=1)
        send_bulk(sock, frame, to_read - 1, memoryview(bytearray(65536)))

    def fetch_round(consumers: int) -> Moved:
        frames = [fetch_frame(CACHED, 0, MIB) for _ in range(consumers)]
        jobs = [partial(Consumer(process.port, frame, batch).read, to_read) for frame in frames]
        mib = to_read * consumers * len(batch.data) / MIB
        return measured(process.pid, mib, lambda: side_by_side(jobs))

    def produce_round(producers: int) -> Moved:
        return produce_and_forget(process, batch, to_send, producers)

    rounds = {"produce": produce_round, "fetch": fetch_round}
    return {
        (what, connections): BulkTurns(partial(moved, connections))
        for what, moved in rounds.items()
        for connections in BULK_CONNECTIONS
    }
