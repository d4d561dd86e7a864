"""Produce without transactions, of this broker and of an earlier one: which of the two costs more.

The earlier one is another checkout of this repository, in the folder that ``--before`` names; it runs with the same
Python and the same packages. Both are up at the same time and take short turns: a difference of a few percent is less
than what other programs make of the machine from one second to the next.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs

from bench.figures import Better, Repeats, ratio
from bench.machine import spent_by
from bench.outcome import Options, Outcome
from bench.small import PAGE_CACHE, PARTITIONS, TOPIC, frames_for
from bench.subject import QUIET, Peer, broker, scratch
from bench.wire import connect, create_topic, receive_exactly, success_response
from trio_broker.testing.process import BrokerProcess

TURN_REQUESTS = 2_000
"""A tenth of a second: many short turns show a smaller difference than few long ones."""

TURNS = 8
"""Per repeat of the command line."""

PIPELINED = 16
"""Requests that are sent at once over a connection, whose client then waits for all their responses."""


@attrs.define
class EarlierBroker(BrokerProcess):
    """The broker of another checkout."""

    checkout: Path = Path()

    def command(self) -> list[str]:
        # attrs makes a new class for slots, so super() without arguments would look in the one that is gone.
        python, *arguments = BrokerProcess.command(self)
        packages = [self.checkout, self.checkout / "protocol", self.checkout / "admin"]
        # -P, or the folder of the benchmark would come before those.
        return ["env", f"PYTHONPATH={os.pathsep.join(map(str, packages))}", python, "-P", *arguments]


@attrs.frozen
class Load:
    """Produces of one record, ``depth`` of them under way on each connection."""

    title: str
    connections: int
    depth: int


LOADS = (
    *(Load("one in flight", connections, 1) for connections in (1, 16, 64)),
    *(Load(f"{PIPELINED} sent at once", connections, PIPELINED) for connections in (4, 16)),
)


@attrs.define
class Side:
    """One load on one of the two brokers."""

    process: Peer
    load: Load
    cpu_us: list[float] = attrs.field(factory=list)
    rates: list[float] = attrs.field(factory=list)

    def turn(self, requests: int) -> None:
        rounds = max(1, requests // (self.load.connections * self.load.depth))
        requests = rounds * self.load.connections * self.load.depth
        with ExitStack() as stack:
            socks = [stack.enter_context(connect(self.process.port)) for _ in range(self.load.connections)]
            frames = [bytes(frame) * self.load.depth for frame in frames_for(self.load.connections)]
            response_bytes = len(success_response(TOPIC)) * self.load.depth
            with spent_by(self.process.pid) as spent:
                for _ in range(rounds):
                    for sock, frame in zip(socks, frames, strict=True):
                        sock.sendall(frame)
                    for sock in socks:
                        receive_exactly(sock, response_bytes)
        self.cpu_us.append(spent.cpu / requests * 1e6)
        self.rates.append(requests / spent.wall)

    @property
    def cpu(self) -> Repeats:
        return Repeats(self.cpu_us)

    @property
    def rate(self) -> Repeats:
        return Repeats(self.rates, Better.MORE)


def versions(options: Options) -> Outcome:
    """CPU and rate of Produce without transactions over those of the broker in ``options.before``."""
    outcome = Outcome("versions")
    if options.before is None:
        outcome.remarks.append("versions skipped: --before names no other checkout")
        return outcome
    with earlier_broker(options.directory, options.before) as before, broker(options.directory, PAGE_CACHE) as now:
        for process in (before, now):
            create_topic(process.port, TOPIC, PARTITIONS)
        pairs = [(Side(before, load), Side(now, load)) for load in LOADS]
        requests = options.volume(TURN_REQUESTS)
        for count in range(options.repeats * TURNS + 1):
            for pair in pairs:
                # Each goes first as often as the other.
                for side in pair[:: 1 if count % 2 else -1]:
                    side.turn(requests)
        for side in (side for pair in pairs for side in pair):
            del side.cpu_us[0], side.rates[0]  # of the warm-up
    add_table(outcome, pairs)
    return outcome


def add_table(outcome: Outcome, pairs: Sequence[tuple[Side, Side]]) -> None:
    count = len(pairs[0][0].cpu_us)
    table = outcome.table(
        f"One-record Produce, acks=1, page cache, {count} turns of this broker and of the one before",
        *("load", "connections", "CPU µs best", "before", "best ÷ before", "CPU ÷ before, median", "rate ÷ before"),
    )
    for before, now in pairs:
        cpu = ratio(now.cpu, before.cpu)
        table.add(
            *(now.load.title, now.load.connections, now.cpu.best, before.cpu.best, now.cpu.best / before.cpu.best),
            *(cpu, ratio(now.rate, before.rate)),
        )
        outcome.measures[f"versions-{now.load.connections}-{now.load.depth}"] = cpu


@contextmanager
def earlier_broker(parent: Path, checkout: Path) -> Iterator[BrokerProcess]:
    """The broker of ``checkout``, running in a new directory under ``parent``."""
    with (
        scratch(parent) as directory,
        EarlierBroker(directory, PAGE_CACHE, QUIET, checkout=checkout.resolve()) as process,
    ):
        yield process
