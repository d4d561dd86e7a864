"""Small requests: what one record costs, and how long it takes from a producer to a consumer."""

from __future__ import annotations

import time

import attrs

from bench.figures import Better, Latencies, Repeats, ratio
from bench.floors import floor
from bench.load import LoopFigures, in_turn
from bench.machine import spent_by
from bench.outcome import Options, Outcome
from bench.phases import PhaseRow, add_phase_table, phase_row
from bench.subject import broker
from bench.wire import (
    BenchError,
    connect,
    create_topic,
    fetch_frame,
    produce_frame,
    produced,
    receive_response_into,
    small_batch,
    success_response,
)

TOPIC = "small"

PARTITIONS = 16

CONNECTIONS = (1, 16, 64)

REQUESTS = {1: 5_000, 16: 10_000, 64: 10_000}
"""Per repeat, by connections: about a second."""

ROUND_TRIPS = 2_000

PARKING_SECONDS = 0.001
"""Time for a Fetch to be parked before the record is sent that it waits for; many times what it takes."""

PAGE_CACHE = {"log.durability": "page-cache"}


@attrs.define
class Runs:
    """All repeats of one row of the table."""

    figures: list[LoopFigures] = attrs.field(factory=list)
    cpu_us: list[float] = attrs.field(factory=list)

    def take(self, pid: int, port: int, frames: list[bytearray], requests: int, response_bytes: int) -> None:
        """Run the load once, after a little of it to warm up."""
        in_turn(port, frames, max(len(frames), requests // 20), response_bytes)
        with spent_by(pid) as spent:
            figures = in_turn(port, frames, requests, response_bytes)
        self.figures.append(figures)
        self.cpu_us.append(spent.cpu / requests * 1e6)

    @property
    def cpu(self) -> Repeats:
        return Repeats(self.cpu_us)

    @property
    def rate(self) -> Repeats:
        return Repeats([run.requests_per_second for run in self.figures], Better.MORE)

    def latencies(self) -> Latencies:
        """The latencies of all repeats together."""
        return Latencies.of_ns([latency for run in self.figures for latency in run.latencies_ns])


def produce(options: Options) -> Outcome:
    """CPU per one-record Produce over the bare Trio pool echo's, with rates and latencies."""
    outcome = Outcome("produce")
    response_bytes = len(success_response(TOPIC))
    bare = {connections: Runs() for connections in CONNECTIONS}
    ours = {connections: Runs() for connections in CONNECTIONS}
    with broker(options.directory, PAGE_CACHE) as process, floor("echo", response_bytes) as server:
        create_topic(process.port, TOPIC, PARTITIONS)
        for _ in range(options.repeats):
            for connections in CONNECTIONS:
                frames = frames_for(connections)
                requests = max(connections, options.volume(REQUESTS[connections]))
                bare[connections].take(server.pid, server.port, frames, requests, response_bytes)
                ours[connections].take(process.pid, process.port, frames, requests, response_bytes)
        phases = phase_row("all connections", process, "Produce")
    table = outcome.table(
        f"One-record Produce, 100 byte value, acks=1, page cache: request {len(frames_for(1)[0])} bytes, "
        f"response {response_bytes} bytes",
        *("server", "connections", "CPU µs/request best", "median", "spread", "CPU ÷ bare"),
        *("requests/s best", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms"),
    )
    for connections in CONNECTIONS:
        for name, runs in (("bare echo", bare[connections]), ("broker", ours[connections])):
            cpu, latencies = runs.cpu, runs.latencies()
            table.add(
                *(name, connections, cpu.best, cpu.median, f"{cpu.spread:.0%}", ratio(cpu, bare[connections].cpu)),
                *(runs.rate.best, latencies.p50_ms, latencies.p95_ms, latencies.p99_ms, latencies.p999_ms),
            )
    add_phase_table(outcome, [phases])
    outcome.measures["produce"] = ratio(ours[16].cpu, bare[16].cpu)
    return outcome


def frames_for(connections: int, acks: int = 1, partitions: int = PARTITIONS) -> list[bytearray]:
    """A request per connection, spread over the partitions."""
    return [produce_frame(TOPIC, index % partitions, small_batch(), acks) for index in range(connections)]


def latency(options: Options) -> Outcome:
    """From the sending of a record to the end of the long poll that waited for it."""
    outcome = Outcome("latency")
    table = outcome.table(
        "Produce to Fetch, end to end: one consumer in a long poll, one producer, one record of 100 bytes",
        *("durability", "acks", "round trips", "p50 ms", "p95 ms", "p99 ms", "p99.9 ms", "max ms"),
    )
    phases: list[PhaseRow] = []
    for durability, acks in (("page-cache", 1), ("fsync", -1)):
        with broker(options.directory, {"log.durability": durability}) as process:
            create_topic(process.port, TOPIC, 1)
            found = Latencies.of_ns(round_trips(process.port, options.volume(ROUND_TRIPS), acks))
            phases += [phase_row(durability, process, api) for api in ("Produce", "Fetch")]
        table.add(
            *(durability, "all" if acks < 0 else acks, found.count),
            *(found.p50_ms, found.p95_ms, found.p99_ms, found.p999_ms, found.max_ms),
        )
    add_phase_table(outcome, phases)
    return outcome


def round_trips(port: int, count: int, acks: int) -> list[int]:
    """Send ``count`` records one by one, each to a Fetch that waits for it; return nanoseconds from send to receipt."""
    request = produce_frame(TOPIC, 0, small_batch(), acks)
    poll = fetch_frame(TOPIC, 0, 65536, max_wait_ms=5_000)
    buffer = memoryview(bytearray(65536))
    durations = []
    with connect(port) as producer, connect(port) as consumer:
        for offset in range(count):
            consumer.sendall(poll.at(offset))
            time.sleep(PARKING_SECONDS)
            began = time.perf_counter_ns()
            producer.sendall(request)
            size = receive_response_into(consumer, buffer)
            durations.append(time.perf_counter_ns() - began)
            if size < len(small_batch()):
                raise BenchError(f"the poll at {offset} ended with {size} bytes and no record")
            produced(producer)
    return durations
