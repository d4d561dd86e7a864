"""Small requests: what one record costs."""

from __future__ import annotations

import attrs

from bench.figures import Better, Latencies, Repeats, ratio
from bench.floors import floor
from bench.load import LoopFigures, SmallLoad, in_turn
from bench.machine import spent_by
from bench.outcome import Options, Outcome
from bench.phases import add_phase_table, phase_row
from bench.subject import broker
from bench.wire import create_topic, produce_frame, small_batch, success_response

TOPIC = "small"

PARTITIONS = 16

CONNECTIONS = (1, 16, 64)

REQUESTS = {1: 5_000, 16: 10_000, 64: 10_000}
"""Per repeat, by connections: about a second."""

PAGE_CACHE = {"log.durability": "page-cache"}


@attrs.define
class Runs:
    """All repeats of one row of the table, loaded by ``client``."""

    client: SmallLoad = in_turn
    figures: list[LoopFigures] = attrs.field(factory=list)
    cpu_us: list[float] = attrs.field(factory=list)

    def take(self, pid: int, port: int, frames: list[bytearray], requests: int, response_bytes: int) -> None:
        """Run the load once, after a little of it to warm up."""
        self.client(port, frames, max(len(frames), requests // 20), response_bytes)
        with spent_by(pid) as spent:
            figures = self.client(port, frames, requests, response_bytes)
        self.figures.append(figures)
        self.cpu_us.append(spent.cpu / requests * 1e6)

    def without_figures(self) -> Runs:
        """Without a repeat yet, and by the same client."""
        return Runs(self.client)

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
