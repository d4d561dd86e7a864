"""How long nobody leads: a leader killed, a leader stopped under control, the controller killed; and how long a change
takes to reach every broker.

Milliseconds or seconds of one client that follows the leaders, with requests of one record and acks=all; the first
beside Apache Kafka, with a session of two seconds.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from functools import partial

import attrs

from bench.clusters import BROKERS, SESSION_MS, Cluster, broker_cluster, kafka_cluster, why_no_cluster
from bench.figures import Repeats
from bench.kafka import why_no_kafka
from bench.outcome import Options, Outcome
from bench.replication import PAGE_CACHE
from bench.subject import memory_or
from bench.wire import BenchError, connect, create_topic, produce_frame, produced, small_batch
from trio_broker.testing.process import BrokerProcess

SESSION = {"broker.session.timeout.ms": str(SESSION_MS), "broker.heartbeat.interval.ms": "500"}

PARTITIONS = 1_000
MANY_PARTITIONS = 10_000
CREATED_AT_ONCE = 1_000

WATCHED = 8
"""Partitions of the stopped broker that are written to in turn: a round takes some ten milliseconds."""

AFTER_STOP_SECONDS = 1.0

CHANGES = 20

GIVE_UP_SECONDS = 60.0
PAUSE_SECONDS = 0.005


@attrs.define
class Writer:
    """Writes single records to the partitions of a topic, wherever these are led."""

    cluster: Cluster
    topic: str
    alive: set[int]
    leaders: dict[int, int] = attrs.field(factory=dict)
    _socks: dict[int, socket.socket] = attrs.field(factory=dict)

    def write(self, partition: int) -> None:
        """Write until it is acknowledged. Raises BenchError after ``GIVE_UP_SECONDS``."""
        frame = produce_frame(self.topic, partition, small_batch(), acks=-1)
        end = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < end:
            try:
                sock = self._sock(self.leaders[partition])
                sock.sendall(frame)
                produced(sock)
                return
            except (BenchError, OSError, KeyError):
                self._look(partition)
        raise BenchError(f"{self.topic}-{partition} takes no records")

    def _sock(self, broker: int) -> socket.socket:
        if broker not in self._socks:
            self._socks[broker] = connect(self.cluster.brokers[broker].port, timeout=5.0)
        return self._socks[broker]

    def _look(self, partition: int) -> None:
        """Forget the connection that failed, and ask a broker that lives who leads."""
        if (sock := self._socks.pop(self.leaders.get(partition, -1), None)) is not None:
            sock.close()
        time.sleep(PAUSE_SECONDS)
        for broker in self.alive:
            try:
                self.leaders = self.cluster.leaders(self.topic, broker)
                return
            except OSError:
                continue


def failover(options: Options) -> Outcome:
    """Seconds and milliseconds without a leader, and until a change is seen."""
    outcome = Outcome("failover")
    if missing := why_no_cluster():
        outcome.remarks.append(f"failover skipped: {missing}")
        return outcome
    partitions = options.volume(PARTITIONS)
    table = outcome.table(
        f"Three brokers, {partitions} partitions with three replicas, session of {SESSION_MS} ms; medians",
        *("", "ours", "Kafka's", "unit"),
    )
    kafkas = why_no_kafka() is None
    ours = Repeats([on_ours(options, partitions, killed) for _ in range(options.repeats)]).median
    theirs = Repeats([on_kafka(options, partitions) for _ in range(options.repeats)]).median if kafkas else ""
    table.add("leader killed: next record acknowledged", ours, theirs, "s")
    outcome.measures["failover-killed"] = ours
    ours = Repeats([on_ours(options, partitions, stopped) for _ in range(options.repeats)]).median
    table.add("leader stopped: longest gap of a partition", ours, "", "ms")
    outcome.measures["failover-stopped"] = ours
    with broker_cluster(options.directory, {**PAGE_CACHE, **SESSION}) as cluster:
        outcome.measures["failover-seen"] = Repeats([seen_everywhere(cluster, each) for each in range(CHANGES)]).median
    table.add(
        "a new topic known to every broker, after its creation was answered",
        outcome.measures["failover-seen"],
        "",
        "ms",
    )
    with broker_cluster(memory_or(options.directory), {**PAGE_CACHE, **SESSION}) as cluster:
        many = options.volume(MANY_PARTITIONS)
        outcome.measures["failover-controller"] = controller_killed(cluster, many)
    table.add(
        f"controller killed, {many} partitions: next topic created", outcome.measures["failover-controller"], "", "s"
    )
    return outcome


def on_ours(options: Options, partitions: int, measure: Callable[[Cluster], float]) -> float:
    with broker_cluster(options.directory, {**PAGE_CACHE, **SESSION}) as cluster:
        return on_filled(cluster, partitions, measure)


def on_kafka(options: Options, partitions: int) -> float:
    with kafka_cluster(options.directory, SESSION) as cluster:
        return on_filled(cluster, partitions, killed)


def on_filled(cluster: Cluster, partitions: int, measure: Callable[[Cluster], float]) -> float:
    create_topic(cluster.any.port, "wide", partitions, replication_factor=BROKERS)
    cluster.wait_until_replicated("wide")
    return measure(cluster)


def a_leader(cluster: Cluster) -> int:
    """A broker that is not the controller."""
    return max(set(cluster.brokers) - {cluster.controller()})


def writer_of(cluster: Cluster, without: int) -> Writer:
    return Writer(cluster, "wide", set(cluster.brokers) - {without}, cluster.leaders("wide"))


def led_by(cluster: Cluster, broker: int) -> list[int]:
    return [partition for partition, leader in cluster.leaders("wide").items() if leader == broker]


def killed(cluster: Cluster) -> float:
    """Seconds from a leader's death until one of its partitions takes a record again."""
    broker = a_leader(cluster)
    partition, writer = led_by(cluster, broker)[0], writer_of(cluster, broker)
    writer.write(partition)
    end_process(cluster, broker)
    began = time.monotonic()
    writer.write(partition)
    return time.monotonic() - began


def stopped(cluster: Cluster) -> float:
    """Milliseconds of the longest gap between two acknowledgements of a partition whose leader is stopped."""
    broker = a_leader(cluster)
    partitions, writer = led_by(cluster, broker)[:WATCHED], writer_of(cluster, broker)
    stopping = begin_stop(cluster, broker)
    last = dict.fromkeys(partitions, time.monotonic())
    longest, end = 0.0, float("inf")
    while time.monotonic() < end:
        for partition in partitions:
            writer.write(partition)
            now = time.monotonic()
            longest, last[partition] = max(longest, now - last[partition]), now
        if end == float("inf") and stopping():
            end = time.monotonic() + AFTER_STOP_SECONDS
    return longest * 1e3


def end_process(cluster: Cluster, broker: int) -> None:
    process = cluster.brokers[broker]
    process.kill() if isinstance(process, BrokerProcess) else process.stop()


def begin_stop(cluster: Cluster, broker: int) -> Callable[[], bool]:
    """Stop a broker of ours under control, beside what follows; return whether that has ended."""
    thread = threading.Thread(target=cluster.brokers[broker].stop, name="stop")
    thread.start()
    return lambda: not thread.is_alive()


def seen_everywhere(cluster: Cluster, number: int) -> float:
    """Milliseconds from the answer to CreateTopics until every broker knows the topic."""
    create_topic(cluster.any.port, f"new-{number}", 1, replication_factor=BROKERS)
    began = time.monotonic()
    for broker in cluster.brokers:
        until(partial(knows, cluster, broker, f"new-{number}"))
    return (time.monotonic() - began) * 1e3


def knows(cluster: Cluster, broker: int, topic: str) -> bool:
    return any(leader != -1 for leader in cluster.leaders(topic, broker).values())


def controller_killed(cluster: Cluster, partitions: int) -> float:
    """Seconds from the controller's death until the next topic is created."""
    for number in range(0, partitions, CREATED_AT_ONCE):
        create_topic(
            cluster.any.port, f"wide-{number}", min(CREATED_AT_ONCE, partitions - number), replication_factor=BROKERS
        )
    for number in range(0, partitions, CREATED_AT_ONCE):
        cluster.wait_until_replicated(f"wide-{number}")
    controller = cluster.controller()
    other = next(broker for broker in cluster.brokers if broker != controller)
    end_process(cluster, controller)
    began = time.monotonic()
    until(lambda: created(cluster.brokers[other].port))
    return time.monotonic() - began


def created(port: int) -> bool:
    try:
        create_topic(port, "after", 1, replication_factor=BROKERS - 1)
    except (BenchError, OSError):
        return False
    return True


def until(found: Callable[[], bool]) -> None:
    """Ask again and again. Raises BenchError after ``GIVE_UP_SECONDS``."""
    end = time.monotonic() + GIVE_UP_SECONDS
    while not found():
        if time.monotonic() > end:
            raise BenchError("waited in vain")
        time.sleep(PAUSE_SECONDS)
