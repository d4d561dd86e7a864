"""Throws broken requests at a running broker, over many connections, while a healthy client uses it.

Requests of every API and version that the broker serves are made from the declarations, filled with random values,
with topics that exist and with record batches, intact and broken; then they are cut, flipped, spliced and lied in. In
between come noise, wrong frame sizes, and requests and batches of the most elements for their bytes. Responses are read
when they come; connections are dropped in all states.

Meanwhile:

* a healthy client produces and reads back, and gets the right offsets and records; the slowest time it took is printed,
* the broker's process lives, and its memory grows by less than ``MAX_GROWTH_BYTES``,
* its output tells of no bug: no traceback and no line at ERROR or above.

    python -m fuzz.live_socket --seconds 60 --seed 1

Starts a broker of its own; with ``--bootstrap host:port`` another one is used, whose process and output cannot be
looked at. The same seed sends the same bytes, though the broker may meet them in another order. A finding is printed
with the latest requests before it, and the exit status is then 1.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import struct
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs

from fuzz.decoders import command_line, mutated, random_message, until
from fuzz.dense_batches import dense_batches
from fuzz.dense_messages import dense_messages
from fuzz.raw_client import (
    HealthyClient,
    RawConnection,
    WrongAnswer,
    create_topic,
    framed,
    request_bytes,
    resident_bytes,
)
from fuzz.records import broken_batch, seed_batches
from kafka_wire.headers import RequestHeader, request_header
from kafka_wire.messages.create_delegation_token import CreateDelegationTokenRequest
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kafka_wire.messages.sasl_handshake import SaslHandshakeRequest
from kafka_wire.primitives import MAX_TAGS, Sized
from kafka_wire.schema import ArrayOf, StructOf, fields_of
from trio_broker.config.authorizer_config import STANDARD_AUTHORIZER
from trio_broker.handlers.support.registry import served_apis
from trio_broker.testing.process import BrokerProcess

CONNECTIONS: Final = 16
"""Open at a time, so that some may wait in a long poll while others go on."""

REQUESTS_PER_CONNECTION: Final = 40
"""A connection that was not closed for what it sent is given up after so many."""

CHECK_EVERY: Final = 100
"""Requests between two looks at the healthy client and the process."""

WARM_UP_CHECKS: Final = 30
"""Looks before memory is measured: until then readers are compiled and caches filled."""

MAX_GROWTH_BYTES: Final = 64 << 20

RECENT_REQUESTS: Final = 40
"""Printed with a finding: what caused it is most likely among them."""

METADATA_VERSION: Final = 12

DENSE_ELEMENTS: Final = 3000
"""Of a dense request: enough that it is read in turns."""

DENSE_BATCH_BYTES: Final = 100_000

TOPICS: Final = {
    "fuzz-plain": {},
    "fuzz-compacted": {"cleanup_policy": "compact"},
    "fuzz-zstd": {"compression_type": "zstd", "message_timestamp_type": "LogAppendTime"},
    "fuzz-small": {"segment_bytes": "1048576", "retention_ms": "1000", "cleanup_policy": "compact,delete"},
}
"""What the requests are about; each leads to other code."""

TOPIC_NAME_FIELDS: Final = frozenset({"name", "topic", "topic_name", "resource_name"})
INDEX_FIELDS: Final = frozenset({"index", "partition", "partition_index"})
SMALL_FIELDS: Final = frozenset({"num_partitions", "count"})
"""Numbers of partitions. Mostly small, since each good one costs files, and those are not what is looked for."""

WAIT_FIELDS: Final = frozenset({"max_wait_ms", "timeout_ms"})

CONFIGS: Final = (
    *(("cleanup.policy", "compact"), ("cleanup.policy", "delete"), ("compression.type", "gzip")),
    *(("retention.ms", "-1"), ("retention.ms", "x"), ("segment.bytes", "1048576"), ("min.insync.replicas", "1")),
    *(("max.message.bytes", "1000000"), ("num.io.threads", "7"), ("log.retention.ms", "100000"), ("no.such.key", "1")),
)
"""Settings to change on topics and brokers, by which nobody else is harmed."""

PLAUSIBLE: Final[dict[str, tuple[Any, ...]]] = {
    "principal": ("User:victim", "User:*"),
    "host": ("*", "10.0.0.1", "10.0.0.0/8"),
    "operation": tuple(range(2, 15)),
    "permission_type": (2, 3),
    "resource_pattern_type": (3, 4),
    "entity_type": ("user", "client-id", "ip"),
    "entity_name": ("victim", "10.0.0.1"),
    "key": ("producer_byte_rate", "consumer_byte_rate", "request_percentage", "connection_creation_rate"),
    "mechanism": (1, 2),
    "iterations": (4096, 16_384, 1),
    "principal_type": ("User",),
    "principal_name": ("victim", "admin"),
}
"""Of fields of entries, quotas, passwords and tokens: of nobody who is here."""

LOGIN: Final = {
    "listeners": "LOGIN://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
    "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.login.plain.sasl.jaas.config": "x required user_admin=secret;",
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:ANONYMOUS;User:admin",
    "delegation.token.secret.key": "a key",
}
"""Settings of a broker that has rights, passwords and tokens; half of the bad clients log in there, as who may do all.
Without a login nobody gets a token."""

BUG_MARKS: Final = ("Traceback (most recent call last)", " ERROR ", " CRITICAL ")


@attrs.frozen
class Finding:
    """What went wrong, and the requests before it."""

    problem: str
    recent: tuple[bytes, ...]

    def __str__(self) -> str:
        return "\n  ".join([self.problem, "the latest requests:", *(frame[:2000].hex() for frame in self.recent)])


@attrs.define
class Statistics:
    """How much was sent, and what came of it."""

    sent: int = 0
    answered: int = 0
    closed: int = 0
    checks: int = 0
    growth_bytes: int = 0
    slowest_check_seconds: float = 0.0


# --- What is sent ---


@attrs.define
class RequestMaker:
    """Makes requests about the topics that exist, and breaks them."""

    chance: random.Random
    topic_ids: dict[str, bytes]
    hmac: bytes = b""
    """Of a delegation token that there is."""
    batches: list[bytes] = attrs.field(init=False)
    dense_batches: list[bytes] = attrs.field(init=False)
    kinds: list[tuple[type[Any], int]] = attrs.field(init=False)
    previous: bytes = b""

    def __attrs_post_init__(self) -> None:
        self.batches = seed_batches(self.chance)
        self.dense_batches = [each.data for each in dense_batches(DENSE_BATCH_BYTES)]
        self.kinds = [
            (api.request, version)
            for api in served_apis().values()
            for version in range(api.versions.low, api.versions.high + 1)
        ]

    def frames(self) -> Iterator[bytes]:
        """Yield pieces of streams forever: mostly one frame, intact or broken."""
        while True:
            for kind, version in self.chance.sample(self.kinds, len(self.kinds)):
                yield self.frame(kind, version)

    def frame(self, kind: type[Any], version: int) -> bytes:
        """Return one request, or what became of it."""
        message = self.plausible(random_message(kind, version, self.chance), version)
        body = request_bytes(message, version, correlation_id=self.chance.randrange(1 << 31), client_id="fuzz")
        previous, self.previous = self.previous, body
        match self.chance.randrange(13):
            case 0:
                return self.chance.randbytes(self.chance.randrange(100))
            case 1:
                return struct.pack(">i", self.chance.choice((-1, 7, 2**31 - 1, 100 << 20, len(body) * 2))) + body
            case 2 | 3 | 4:
                return framed(mutated(body, previous, self.chance))
            case 5 | 6 | 7:  # the header stays good, so that the body is read
                return framed(body[:16] + mutated(body[16:], previous[16:], self.chance))
            case 8:
                return framed(self.dense(kind, version))
            case _:
                return framed(body)

    def dense(self, kind: type[Any], version: int) -> bytes:
        """Return a request of the most elements for its bytes, in one of the constructs that it has, if it has any."""
        long = self.chance.random() < 0.2
        count = 1 if long else self.chance.choice((MAX_TAGS, DENSE_ELEMENTS))
        constructs = list(dense_messages(kind, version, count, long=long))
        body = self.chance.choice(constructs).data if constructs else b""
        header = RequestHeader(kind.API_KEY, version, self.chance.randrange(1 << 31), "fuzz")
        return request_header(header) + body

    def plausible(self, message: Any, version: int) -> Any:
        """Fill in what exists, in most places, so that requests get further than "unknown topic"."""
        for field in fields_of(type(message)):
            if version not in field.versions or self.chance.random() < 0.15:
                continue
            value = getattr(message, field.name)
            if (replacement := self.replacement(message, field.name, value)) is not None:
                setattr(message, field.name, replacement)
            elif isinstance(field.type, StructOf) and value is not None:
                self.plausible(value, version)
            elif isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructOf):
                for item in value or ():
                    self.plausible(item, version)
            elif field.type == Sized("records"):
                setattr(message, field.name, self.batch())
        return message

    def replacement(self, message: Any, name: str, value: Any) -> Any:
        """Return a better value for a field, or None where the random one is as good."""
        holds_config = "Config" in type(message).__name__ and hasattr(message, "value")
        if holds_config and name in ("name", "value"):
            key, text = self.chance.choice(CONFIGS)
            return key if name == "name" else text
        if (choices := PLAUSIBLE.get(name)) and isinstance(value, type(choices[0])):
            return self.chance.choice(choices)
        if name == "hmac":
            return self.hmac
        if name in TOPIC_NAME_FIELDS and (isinstance(value, str) or value is None):
            return self.chance.choice(list(self.topic_ids))
        if name == "topic_id":
            return self.chance.choice(list(self.topic_ids.values()))
        return self.better_number(name)

    def better_number(self, name: str) -> int | None:
        """Return a number that makes sense in a field, or None where any does."""
        if name in INDEX_FIELDS:
            return 0
        if name in SMALL_FIELDS:
            return self.chance.choice((-1, 0, 1, 2, 3))
        if name in WAIT_FIELDS:
            return self.chance.choice((0, 1, 50, -1))
        if name == "acks":
            return self.chance.choice((0, 1, -1, 2))
        if name in ("replica_id", "session_epoch", "session_id", "current_leader_epoch", "last_fetched_epoch"):
            return self.chance.choice((-1, -1, 0, 1))
        if name in ("fetch_offset", "offset", "timestamp"):
            return self.chance.choice((0, 0, 1, -1, -2, -3, 5))
        if name in ("resource_type", "config_operation"):
            return self.chance.choice((0, 1, 2, 2, 3, 4, 8))
        return None

    def batch(self) -> bytes | None:
        """Return a record batch, intact or broken, now and then none."""
        batch = self.chance.choice(self.batches)
        match self.chance.randrange(8):
            case 0:
                return None
            case 1 | 2 | 3:
                return batch
            case 4:
                return self.chance.choice(self.dense_batches)
            case _:
                return broken_batch(batch, self.chance.choice(self.batches), self.chance)


# --- Who sends it ---


@attrs.define
class BadClient:
    """A connection that sends anything. It never waits for an answer, but takes those that are there."""

    port: int
    statistics: Statistics
    logs_in: bool = False
    connection: RawConnection | None = None
    sent: int = 0

    def send(self, data: bytes) -> None:
        """Send ``data``, on a new connection when the last one has ended or is full."""
        if self.connection is None or self.sent >= REQUESTS_PER_CONNECTION:
            self.close()
            self.connection, self.sent = (logged_in if self.logs_in else RawConnection.open)(self.port), 0
            self.connection.sock.setblocking(False)
        self.sent += 1
        self.statistics.sent += 1
        try:
            self.connection.sock.send(data)
            while part := self.connection.sock.recv(1 << 16):
                self.statistics.answered += len(part) > 0
        except BlockingIOError:
            return  # Nothing has come yet, or the broker reads no more until it has answered.
        except OSError:
            pass
        self.statistics.closed += 1
        self.close()

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None


def logged_in(port: int) -> RawConnection:
    """Return a connection of who may do everything."""
    connection = RawConnection.open(port)
    connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer = connection.ask(SaslAuthenticateRequest(auth_bytes=b"\0admin\0secret"), 2)
    if answer.error_code:
        raise WrongAnswer(f"the login: {answer}")
    return connection


def port_of_logins(broker: BrokerProcess) -> int:
    """Return the port of ``LOGIN``."""
    return next(int(line.rpartition(":")[2]) for line in broker.output if "LOGIN://" in line)


def new_token(port: int) -> bytes:
    """Return the HMAC of a new delegation token."""
    with logged_in(port) as connection:
        answer = connection.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3)
    return bytes(answer.hmac)


# --- What is looked at ---


@attrs.define
class Watch:
    """Looks at the healthy client, and at the process where it is ours."""

    healthy: HealthyClient
    broker: BrokerProcess | None
    statistics: Statistics
    first_bytes: int = 0
    lines_seen: int = 0

    def problems(self) -> Iterator[str]:
        """Yield what is wrong now."""
        self.statistics.checks += 1
        began = time.monotonic()
        try:
            self.healthy.check()
        except (WrongAnswer, OSError) as error:
            yield f"the healthy client: {error!r}"
        taken = time.monotonic() - began
        self.statistics.slowest_check_seconds = max(self.statistics.slowest_check_seconds, taken)
        if self.broker is not None:
            yield from self.process_problems(self.broker)

    def process_problems(self, broker: BrokerProcess) -> Iterator[str]:
        lines = broker.output[self.lines_seen :]
        self.lines_seen += len(lines)
        if any(mark in line for line in lines for mark in BUG_MARKS):
            first = next(index for index, line in enumerate(lines) if any(mark in line for mark in BUG_MARKS))
            yield "the broker's log:\n    " + "\n    ".join(lines[first : first + 60])
        if (code := broker.process.poll()) is not None:
            yield f"the broker ended with {code}"
            return
        now = resident_bytes(broker.pid)
        if self.statistics.checks <= WARM_UP_CHECKS:
            self.first_bytes = now
        self.statistics.growth_bytes = max(self.statistics.growth_bytes, now - self.first_bytes)
        if now - self.first_bytes > MAX_GROWTH_BYTES:
            yield f"memory grew from {self.first_bytes >> 20} to {now >> 20} MiB"
            self.first_bytes = now


# --- Trying ---


def fuzz(
    port: int,
    seed: int,
    rounds: Iterable[object],
    statistics: Statistics,
    broker: BrokerProcess | None = None,
    login_port: int | None = None,
) -> Iterator[Finding]:
    """Yield findings; each round sends ``CHECK_EVERY`` pieces and then looks. ``login_port`` is of ``LOGIN``."""
    chance = random.Random(seed)
    healthy = HealthyClient(port, f"healthy-{time.time_ns()}")  # a name that nothing here can guess
    ports = [port] if login_port is None else [port, login_port]
    clients = itertools.cycle(
        BadClient(each, statistics, logs_in=each == login_port)
        for _ in range(CONNECTIONS // len(ports))
        for each in ports
    )
    maker = RequestMaker(chance, make_topics(port))
    watch = Watch(healthy, broker, statistics)
    pieces, recent = maker.frames(), deque[bytes](maxlen=RECENT_REQUESTS)
    with ExitStack() as stack:
        stack.callback(healthy.close)
        for client in itertools.islice(clients, CONNECTIONS):
            stack.callback(client.close)
        for _ in rounds:
            if login_port is not None:
                maker.hmac = new_token(login_port)
            for piece in itertools.islice(pieces, CHECK_EVERY):
                recent.append(piece)
                next(clients).send(piece)
            for problem in watch.problems():
                yield Finding(problem, tuple(recent))
            if broker is not None and broker.process.poll() is not None:
                return
            maker.topic_ids = make_topics(port)


def make_topics(port: int) -> dict[str, bytes]:
    """Create the topics that the requests have deleted; return their ids, that of one deleted again being zero."""
    asked = [MetadataRequestTopic(name=name) for name in TOPICS]
    for _ in range(2):
        with RawConnection.open(port) as connection:
            answer = connection.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), METADATA_VERSION)
        missing = [topic.name for topic in answer.topics if topic.error_code]
        if not missing:
            break
        for name in missing:
            with contextlib.suppress(WrongAnswer):  # A bad client may create it before us, or delete it again.
                create_topic(port, name, **TOPICS[name])
    return {topic.name: topic.topic_id for topic in answer.topics}


def report(findings: Iterable[Finding]) -> int:
    """Print findings as they come; return how many there were."""
    count = 0
    for finding in findings:
        count += 1
        print(finding, flush=True)
    return count


def main() -> int:
    parser = command_line("Throw broken requests at a running broker.")
    parser.add_argument("--bootstrap", help="host:port of a broker to use instead of starting one; host is 127.0.0.1")
    arguments = parser.parse_args()
    statistics = Statistics()
    rounds = until(time.monotonic() + arguments.seconds)
    if arguments.bootstrap:
        port = int(arguments.bootstrap.rpartition(":")[2])
        findings = report(fuzz(port, arguments.seed, rounds, statistics))
    else:
        with (
            tempfile.TemporaryDirectory() as directory,
            BrokerProcess(Path(directory), overrides={"log.durability": "page-cache", **LOGIN}) as broker,
        ):
            findings = report(fuzz(broker.port, arguments.seed, rounds, statistics, broker, port_of_logins(broker)))
    print(
        f"{statistics.sent} pieces sent, {statistics.answered} answers, {statistics.closed} connections closed, "
        f"{statistics.checks} checks, the slowest {1000 * statistics.slowest_check_seconds:.0f} ms, "
        f"memory grew by {statistics.growth_bytes / (1 << 20):.1f} MiB, {findings} findings"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
