"""What TLS costs: records in bulk beside Kafka, small requests, handshakes and who waits for them.

The ratio is always that of two listeners of one broker, with TLS and without, that take turns.
"""

from __future__ import annotations

import ssl
from contextlib import ExitStack
from functools import partial
from multiprocessing.synchronize import Event

import attrs

from bench.closed_loop import WITH_TLS, compiled_loop
from bench.figures import Repeats, Table, ratio
from bench.hostile_clients import COLUMNS, GOOD_TOPIC, QUESTIONS, Competition, GoodClient
from bench.kafka import BulkTurns
from bench.librdkafka import librdkafka_rounds
from bench.load import side_by_side
from bench.machine import spent_by
from bench.outcome import Options, Outcome
from bench.small import CONNECTIONS, PARTITIONS, TOPIC, Runs, frames_for
from bench.subject import scratch
from bench.tls_peers import PLAIN, RSA, TLS, TlsFiles, TlsPeer, tls_broker, tls_peers
from bench.turns import Turns, take_in_turns
from bench.wire import CLIENT_ID, ask, connect, create_topic, success_response
from kafka_wire.messages.api_versions import ApiVersionsRequest

BULK_RECORD_BYTES = 1000

HANDSHAKES = 1_000

SHAKING_HANDS = 8
"""Threads that shake hands at the same time."""

ROUND = 16
"""Handshakes of each thread between two looks at whether it goes on."""

API_VERSIONS_VERSION = 3

KEYS = {TLS: "P-256", RSA: "RSA 2048"}


# ---- bulk


def tls_bulk(options: Options) -> Outcome:
    """CPU of bulk records by librdkafka, TLS over without, and that over Kafka's."""
    outcome = Outcome("tls-bulk")
    sides: dict[tuple[str, str, str], BulkTurns] = {}
    with tls_peers(options, outcome) as (files, peers), ExitStack() as stack:
        for server, peer in peers.items():
            for listener, client in ((PLAIN, {}), (TLS, client_of(peer, files))):
                rounds = librdkafka_rounds(peer.process, options, (BULK_RECORD_BYTES,), client, f"{listener}-")
                for (load, _), each in stack.enter_context(rounds).items():
                    sides[server, load, listener] = BulkTurns(each)
        take_in_turns([tuple(sides.values())], options)
    table = outcome.table(
        f"Records of {BULK_RECORD_BYTES:,} bytes by librdkafka, one client, page cache, medians of {options.repeats} "
        "turns with TLS and without",
        *("load", "server", "CPU µs/MiB, TLS", "without", "TLS ÷ without", "MiB/s, TLS", "without"),
    )
    found = {}
    for server, load, listener in sides:
        if listener == TLS:
            sealed, plain = sides[server, load, TLS].moves, sides[server, load, PLAIN].moves
            found[server, load] = ratio(sealed.cpu, plain.cpu)
            table.add(
                *(load, server, sealed.cpu.median, plain.cpu.median, found[server, load]),
                *(sealed.rate.median, plain.rate.median),
            )
    for server, load in found:
        if server == "Kafka":
            outcome.measures[f"tls-bulk-{load}"] = found["trio-broker", load] / found[server, load]
    return outcome


def client_of(peer: TlsPeer, files: TlsFiles) -> dict[str, str]:
    """The settings by which a client of librdkafka reaches the listener with TLS."""
    return {"bootstrap.servers": f"127.0.0.1:{peer.ports[TLS]}", **files.librdkafka}


# ---- small requests


@attrs.define
class WithoutConnecting(Turns):
    """Small requests without what it costs to connect, which under TLS is more than several of them."""

    def _run(self, runs: Runs, seconds: float) -> float:
        connections = len(self.frames)
        requests = max(connections, round(self.rate * seconds))
        with spent_by(self.pid) as connecting:
            runs.client(self.port, self.frames, connections, self.response_bytes)
        with spent_by(self.pid) as spent:
            figures = runs.client(self.port, self.frames, connections + requests, self.response_bytes)
        runs.figures.append(figures)
        runs.cpu_us.append((spent.cpu - connecting.cpu) / requests * 1e6)
        self.rate = figures.requests_per_second
        return self.rate


def tls_produce(options: Options) -> Outcome:
    """CPU of one-record Produce, TLS over without."""
    outcome = Outcome("tls-produce")
    with compiled_loop(options.directory, *WITH_TLS) as loop:
        if loop is None:
            outcome.remarks.append("tls-produce skipped: there is no C compiler with OpenSSL's headers")
            return outcome
        clients = {PLAIN: loop, TLS: attrs.evolve(loop, tls=True)}
        with scratch(options.directory) as directory, tls_broker(options, TlsFiles.written_to(directory)) as peer:
            create_topic(peer.process.port, TOPIC, PARTITIONS)
            response_bytes = len(success_response(TOPIC))
            sides = {
                (connections, listener): WithoutConnecting(
                    *(peer.process.pid, peer.ports[listener], frames_for(connections), response_bytes),
                    runs=Runs(client),
                )
                for connections in CONNECTIONS
                for listener, client in clients.items()
            }
            take_in_turns([tuple(sides.values())], options)
    table = outcome.table(
        f"One-record Produce, acks=1, page cache, medians of {options.repeats} turns with TLS and without",
        *("connections", "CPU µs, TLS", "without", "TLS ÷ without", "requests/s, TLS", "without"),
    )
    for connections in CONNECTIONS:
        sealed, plain = sides[connections, TLS].runs, sides[connections, PLAIN].runs
        cpu = outcome.measures[f"tls-produce-{connections}"] = ratio(sealed.cpu, plain.cpu)
        table.add(connections, sealed.cpu.median, plain.cpu.median, cpu, sealed.rate.median, plain.rate.median)
    return outcome


# ---- handshakes


def tls_handshakes(options: Options) -> Outcome:
    """CPU of a thousand new connections by the kind of key, and p99 of a good client beside them."""
    outcome = Outcome("tls-handshakes")
    each = options.volume(HANDSHAKES // SHAKING_HANDS)
    seconds: dict[str, list[float]] = {listener: [] for listener in (PLAIN, *KEYS)}
    beside = Table(f"A good client's Metadata requests beside handshakes, {SHAKING_HANDS} at a time", COLUMNS)
    with scratch(options.directory) as directory, ExitStack() as stack:
        files = TlsFiles.written_to(directory)
        peer, other = (stack.enter_context(tls_broker(options, files)) for _ in range(2))
        for broker in (peer, other):
            create_topic(broker.process.port, GOOD_TOPIC, 1)
            GoodClient(broker.process.port).ask(options.volume(QUESTIONS))
        for _ in range(options.repeats):
            for listener, runs in seconds.items():
                begin = partial(begin_connections, peer.ports[listener], each, is_sealed=listener != PLAIN)
                with spent_by(peer.process.pid) as spent:
                    side_by_side([begin] * SHAKING_HANDS)
                runs.append(spent.cpu / (each * SHAKING_HANDS) * HANDSHAKES)
        judged = [
            Competition(peer.process.port, peer.ports[listener], other.ports[listener]).judge(
                key, shaking_hands, options, beside
            )
            for listener, key in KEYS.items()
        ]
    table = outcome.table(
        f"{HANDSHAKES:,} connections with a request each, {SHAKING_HANDS} at a time, every handshake a whole one",
        *("key", "CPU s", "spread", "CPU ms of a handshake"),
    )
    plain = Repeats(seconds[PLAIN]).median
    for listener, key in ((PLAIN, "without TLS"), *KEYS.items()):
        found = Repeats(seconds[listener])
        table.add(key, found.median, f"{found.spread:.0%}", (found.median - plain) / HANDSHAKES * 1e3)
    outcome.tables.append(beside)
    outcome.measures["tls-handshakes-ec"] = Repeats(seconds[TLS]).median
    outcome.measures["tls-handshakes-rsa"] = Repeats(seconds[RSA]).median
    outcome.measures["tls-handshakes-p99"] = max(each.over_alone for each in judged)
    outcome.measures["tls-handshakes-p99-elsewhere"] = max(each.over_elsewhere for each in judged)
    return outcome


def begin_connections(port: int, count: int, *, is_sealed: bool = True) -> None:
    """Connect ``count`` times, with a session of its own each, and send on each what a client sends first."""
    # No session is kept; and to look at the broker's certificate would be the client's cost.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
    for _ in range(count):
        with connect(port) as plain, context.wrap_socket(plain) if is_sealed else plain as sock:
            ask(sock, request, API_VERSIONS_VERSION)


def shaking_hands(port: int, ends: Event) -> None:
    """Clients that connect again and again."""
    side_by_side([partial(begin_connections, port, ROUND)] * SHAKING_HANDS)
