"""A storm of group requests at a running broker: right ones, wrong ones and monstrous ones, mixed, by many clients.

Clients join, synchronise, live, commit and leave in a few groups, in all versions and in both protocols, with what the
broker has answered before: ids, generations, epochs. Mixed in are fields that are not theirs (generations of others,
other members' ids, names that are empty, huge or no text), requests that are as large as they may be, regular
expressions that are meant to be slow, and clients that vanish while they wait. Meanwhile and afterwards:

* two members of other groups keep their memberships, and read every position that they commit (``good_group``),
* no answer is UNKNOWN_SERVER_ERROR, but where Kafka's own is, for a group that is too large for a record,
* the broker's process lives, its memory is bounded, and given back in the end, its output tells of no bug,
* every request is answered, or its connection closed,
* after the storm a restart, and then a SIGKILL, bring back the same groups and positions.

    python -m fuzz.groups --seconds 60 --seed 1

The same seed makes the same choices; ids that the broker makes, and the order in which connections are served, differ.
A finding is printed with the latest requests before it, and the exit status is then 1.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import attrs

from fuzz.decoders import until
from fuzz.good_group import GoodGroup, beside
from fuzz.group_requests import GROUPS, MONSTROUS, TOPIC, Memory, Sent, StormMaker
from fuzz.live_socket import BUG_MARKS, Finding, report
from fuzz.raw_client import (
    WAIT_SECONDS,
    RawConnection,
    WrongAnswer,
    create_topic,
    resident_bytes,
    response_of,
)
from kafka_wire.emit_reader import MAX_HEAP_BYTES
from kafka_wire.emit_source import TURN_ELEMENTS
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.list_groups import ListGroupsRequest
from kafka_wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafka_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from kafka_wire.schema import ArrayOf, StructOf, fields_of
from trio_broker.broker import TRIM_INTERVAL_MS
from trio_broker.network.request_memory_pool import MAX_BACKLOG_BYTES
from trio_broker.testing.process import BrokerProcess

BROKER_SETTINGS: Final = {
    "log.durability": "page-cache",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "300",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "4000",
    "group.consumer.assignment.interval.ms": "20",
    "offsets.topic.num.partitions": "5",
}
"""Short times, so that much happens, and the storm's groups are empty soon after it."""

CLIENTS: Final = 24
BURST: Final = 200
"""Requests between two looks."""

CALM_BURSTS: Final = 25
"""Before the first request that is as large as can be: what the broker holds then it needs for common ones."""

MAX_WAITING: Final = 3
"""Requests that a client sends without an answer."""

RESPITE_SECONDS: Final = 0.002
"""Given to the broker when a client has sent as many."""

VANISHES: Final = 0.02
"""How likely a client is to drop its connection instead of sending: some wait for an answer just then."""

LARGEST_FRAME_BYTES: Final = 41 << 20
"""Of what ``monsters`` makes."""

STATE_BYTES: Final = 32 << 20
"""What the groups may hold: some members with 3 MB of metadata each."""

MAX_GROWTH_BYTES: Final = MAX_BACKLOG_BYTES + 2 * LARGEST_FRAME_BYTES + MAX_HEAP_BYTES + STATE_BYTES
"""The large requests that wait for their turn, one that was begun to be read when there still was room, the one that is
handled, with its objects, and what the groups hold."""

MAX_KEPT_RATIO: Final = 1.3
"""How much more the process may hold when no member is left than after the calm bursts."""

TRIM_SECONDS: Final = 3 * TRIM_INTERVAL_MS / 1000
"""In which it gives back what the storm has left free: an interval without large requests, and what is left of the two
beside it."""

LAST_REQUEST_ELEMENTS: Final = 10 * TURN_ELEMENTS
"""Of a request that is certain to be read in turns, and so to wait for those before it."""

BACKLOG_SECONDS: Final = 120.0
"""For what clients that have vanished have left to be answered: at most ``MAX_BACKLOG_BYTES``, a quarter as long where
nothing else runs."""

SETTLE_SECONDS: Final = 60.0
"""For all members to be evicted after the storm; some five seconds are the rule."""


# --- Who sends it ---


@attrs.define
class StormClient:
    """A connection that sends any bytes, takes the answers that are there, and looks for bad ones."""

    port: int
    memory: Memory
    statistics: Statistics
    connection: RawConnection | None = None
    waiting: deque[Sent] = attrs.field(factory=deque)
    received: bytearray = attrs.field(factory=bytearray)

    def send(self, frame: bytes, sent: Sent) -> Iterator[str]:
        """Send a request, if the last ones are answered well enough; yield what is wrong with the answers."""
        yield from self.take_answers()
        if len(self.waiting) >= MAX_WAITING:
            time.sleep(RESPITE_SECONDS)
            return
        if self.connection is None:
            self.connection = RawConnection.open(self.port)
        self.statistics.sent += 1
        self.connection.sock.settimeout(WAIT_SECONDS)
        try:
            self.connection.sock.sendall(frame)
            self.waiting.append(sent)
        except ConnectionError:
            self.vanish()

    def take_answers(self) -> Iterator[str]:
        """Read what has come, without waiting; yield what is wrong with it."""
        if self.connection is None:
            return
        self.connection.sock.setblocking(False)
        try:
            while part := self.connection.sock.recv(1 << 20):
                self.received += part
                yield from self.whole_answers()
        except BlockingIOError:
            return
        except ConnectionError:
            pass
        self.statistics.closed += 1
        self.vanish()

    def whole_answers(self) -> Iterator[str]:
        while len(self.received) >= 4:
            (size,) = struct.unpack_from(">i", self.received)
            if len(self.received) < 4 + size:
                return
            frame = bytes(self.received[4 : 4 + size])
            del self.received[: 4 + size]
            yield from self.problems_of(self.waiting.popleft(), frame)

    def problems_of(self, sent: Sent, frame: bytes) -> Iterator[str]:
        self.statistics.answered += 1
        if sent.request is None:
            return
        try:
            response = response_of(sent.request, sent.version, frame)
        except WrongAnswer as error:
            yield str(error)
            return
        if ErrorCode.UNKNOWN_SERVER_ERROR in error_codes_of(response) and not sent.is_excused:
            yield f"UNKNOWN_SERVER_ERROR for {sent.request} v{sent.version}"
        self.memory.note(getattr(sent.request, "group_id", ""), response)

    def answer_all(self) -> Iterator[str]:
        """Wait until every request is answered or the connection closed; yield what is wrong."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.waiting and self.connection is not None:
            if time.monotonic() > deadline:
                yield f"never answered: {[sent.request for sent in self.waiting]}"
                self.vanish()
                return
            yield from self.take_answers()
            time.sleep(0.01)

    def vanish(self) -> None:
        """Be gone, without a goodbye, whatever waits."""
        if self.connection is not None:
            self.connection.close()
        self.connection = None
        self.waiting.clear()
        self.received.clear()


@attrs.define
class Statistics:
    """How much was sent, and what came of it."""

    sent: int = 0
    answered: int = 0
    closed: int = 0
    first_bytes: int = 0
    growth_bytes: int = 0
    kept_bytes: int = 0
    good_rounds: int = 0
    slowest_seconds: float = 0.0
    groups: int = 0


def error_codes_of(message: Any) -> set[int]:
    """Every error code that stands anywhere in a response."""
    codes = set()
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if field.name == "error_code":
            codes.add(value)
        elif isinstance(field.type, ArrayOf) and isinstance(field.type.element, StructOf):
            for item in value or ():
                codes |= error_codes_of(item)
    return codes


# --- What is looked at ---


@attrs.define
class Watch:
    """Looks at the process and at its output."""

    broker: BrokerProcess
    statistics: Statistics
    lines_seen: int = 0

    def problems(self) -> Iterator[str]:
        lines = self.broker.output[self.lines_seen :]
        self.lines_seen += len(lines)
        for number, line in enumerate(lines):
            if any(mark in line for mark in BUG_MARKS):
                yield "the broker's log:\n    " + "\n    ".join(lines[number : number + 60])
                break
        if (code := self.broker.process.poll()) is not None:
            yield f"the broker ended with {code}"
            return
        now = resident_bytes(self.broker.pid)
        first = self.statistics.first_bytes or now
        is_more = now - first > self.statistics.growth_bytes
        self.statistics.growth_bytes = max(self.statistics.growth_bytes, now - first)
        if is_more and now - first > MAX_GROWTH_BYTES:
            yield f"memory grew from {first >> 20} to {now >> 20} MiB"


State = Mapping[str, tuple[str, Mapping[tuple[str, int], int]]]
"""The type of each group, and what it has committed."""


def settled_state(port: int, but: tuple[str, ...]) -> State:
    """All groups and their positions, but for some, once nobody is a member of them any more.

    Raises:
        WrongAnswer: that takes too long.
    """
    deadline = time.monotonic() + SETTLE_SECONDS
    with RawConnection.open(port) as connection:
        while True:
            listed = connection.ask(ListGroupsRequest(), 5)
            others = [group for group in listed.groups if group.group_id not in but]
            if not listed.error_code and all(group.group_state == "Empty" for group in others):
                break
            if time.monotonic() > deadline:
                raise WrongAnswer(f"groups do not come to rest: {others}, {ErrorCode(listed.error_code).name}")
            time.sleep(0.05)
        asked = [OffsetFetchRequestGroup(group_id=group.group_id, topics=None) for group in others]
        fetched = connection.ask(OffsetFetchRequest(groups=asked), 9).groups
    types = {group.group_id: group.group_type for group in others}
    return {
        group.group_id: (
            types[group.group_id],
            {
                (each.name, one.partition_index): one.committed_offset
                for each in group.topics
                for one in each.partitions
            },
        )
        for group in fetched
    }


def topic_id_of(port: int) -> bytes:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    with RawConnection.open(port) as connection:
        topic_id: bytes = connection.ask(request, 12).topics[0].topic_id
    return topic_id


# --- Trying ---


def fuzz(broker: BrokerProcess, seed: int, rounds: Iterable[object], statistics: Statistics) -> Iterator[Finding]:
    """Yield findings. Each round sends ``BURST`` requests and looks; the end is two restarts."""
    create_topic(broker.port, TOPIC)
    chance = random.Random(seed)
    good = GoodGroup(broker.port, "good", TOPIC)
    recent = deque[bytes](maxlen=40)
    with ExitStack() as stack:
        stack.callback(good.close)
        try:
            for problem in storm(broker, good, chance, rounds, statistics, recent):
                yield Finding(problem, tuple(recent))
            statistics.good_rounds, statistics.slowest_seconds = good.rounds, good.slowest_seconds
            for problem in survival(broker, good, statistics):
                yield Finding(problem, tuple(recent))
        except (AssertionError, OSError) as error:
            yield Finding(repr(error), tuple(recent))


def storm(
    broker: BrokerProcess,
    good: GoodGroup,
    chance: random.Random,
    rounds: Iterable[object],
    statistics: Statistics,
    recent: deque[bytes],
) -> Iterator[str]:
    """Yield what goes wrong while the storm lasts, and until all of its requests are answered."""
    maker = StormMaker(chance, topic_id_of(broker.port))
    clients = [StormClient(broker.port, maker.memory, statistics) for _ in range(CLIENTS)]
    requests, watch = maker.requests(), Watch(broker, statistics)
    with ExitStack() as stack:
        for client in clients:
            stack.callback(client.vanish)
        at_its_side = stack.enter_context(beside(good))
        maker.monstrous_share = 0
        for number, _ in enumerate(rounds, start=1):
            for _ in range(BURST):
                client, (frame, sent) = chance.choice(clients), next(requests)
                if chance.random() < VANISHES:
                    client.vanish()
                recent.append(frame[:4_000])
                yield from client.send(frame, sent)
            if number == CALM_BURSTS:
                statistics.first_bytes, maker.monstrous_share = resident_bytes(broker.pid), MONSTROUS
            yield from watch.problems()
            if broker.process.poll() is not None or at_its_side.problem is not None:
                break
        if broker.process.poll() is None:
            wait_for_backlog(broker.port)
        for client in clients:
            yield from client.answer_all()
    yield from watch.problems()


def wait_for_backlog(port: int) -> None:
    """Return when the large requests of clients that have vanished are answered: the broker takes them one after the
    other, and this one is the last.

    Raises:
        WrongAnswer: the connection was closed instead.
        TimeoutError: that takes longer than ``BACKLOG_SECONDS``.
    """
    with RawConnection.open(port) as connection:
        connection.sock.settimeout(BACKLOG_SECONDS)
        connection.ask(DescribeGroupsRequest(groups=[GROUPS[0]] * LAST_REQUEST_ELEMENTS), 5)


def survival(broker: BrokerProcess, good: GoodGroup, statistics: Statistics) -> Iterator[str]:
    """Yield what is not as before after a restart, and after a kill.

    Raises:
        Unwell: the good group is not what it was.
    """
    with beside(good):
        before = settled_state(broker.port, good.group_ids)
    statistics.groups = len(before)
    yield from kept_memory(broker, statistics)
    for end in (broker.stop, broker.kill):
        seen = len(broker.output)
        end()
        broker.start()
        good.reconnect()
        with beside(good):
            after = settled_state(broker.port, good.group_ids)
        if after != before:
            changed = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
            changes = [f"{name[:50]!r}: {before.get(name)} became {after.get(name)}" for name in sorted(changed)]
            yield f"after a {end.__name__}: " + "\n    ".join(changes)
        if bugs := [line for line in broker.output[seen:] if any(mark in line for mark in BUG_MARKS)]:
            yield f"the broker's log after a {end.__name__}: {bugs}"


def kept_memory(broker: BrokerProcess, statistics: Statistics) -> Iterator[str]:
    """Yield how much the process still holds if that is too much ``TRIM_SECONDS`` after the end.

    A storm that ended in the calm has nothing to compare it with.
    """
    if not statistics.first_bytes:
        return
    deadline, most = time.monotonic() + TRIM_SECONDS, MAX_KEPT_RATIO * statistics.first_bytes
    while (kept := resident_bytes(broker.pid)) > most and time.monotonic() < deadline:
        time.sleep(0.1)
    statistics.kept_bytes = kept
    if kept > most:
        yield f"without members {kept >> 20} MiB are held; after the calm bursts {statistics.first_bytes >> 20}"


def main() -> int:
    parser = argparse.ArgumentParser(description="A storm of group requests at a running broker.")
    parser.add_argument("--seconds", type=float, default=60, help="how long the storm lasts (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="where the randomness starts (default: 0)")
    arguments = parser.parse_args()
    statistics = Statistics()
    rounds = until(time.monotonic() + arguments.seconds)
    with tempfile.TemporaryDirectory() as directory, BrokerProcess(Path(directory), BROKER_SETTINGS) as broker:
        findings = report(fuzz(broker, arguments.seed, rounds, statistics))
    print(
        f"{statistics.sent} requests sent, {statistics.answered} answers, {statistics.closed} connections closed; "
        f"{statistics.good_rounds} rounds of the good group, whose two heartbeats took at most "
        f"{statistics.slowest_seconds:.3f} s; {statistics.groups} groups survived; "
        f"memory grew by at most {statistics.growth_bytes >> 20} MiB, from {statistics.first_bytes >> 20} "
        f"to {statistics.kept_bytes >> 20} in the end; {findings} findings"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
