"""Replicated produce by librdkafka, acks=all: three brokers beside three of Apache Kafka, both up at the same time.

What was written stays: a follower finds its place by reading what lies before it. CPU is that of all brokers together,
and of etcd on our side. Client and six brokers share the machine, so the rates say less than the CPU.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import attrs

from bench.bulk import Moved, Moves
from bench.clusters import BROKERS, Cluster, broker_cluster, kafka_cluster, why_no_cluster
from bench.figures import Repeats, ratio
from bench.kafka import add_row, why_no_kafka
from bench.librdkafka import Sender, plain_values
from bench.machine import process_cpu_seconds, spent_by
from bench.outcome import Options, Outcome
from bench.wire import create_topic

RECORDS = 16_000
"""Sent per round, 15 MiB, each of them written three times."""

RECORD_BYTES = 1000

KAFKA_WARM_SECONDS = 40.0
"""In which its JVMs compile what one load needs; before that it costs Kafka twice as much."""

WARM_SECONDS = 5.0

SPREAD, SINGLE = "spread", "single"
"""A topic with a leader on each broker, and one with a single partition."""

PAGE_CACHE = {"log.durability": "page-cache"}
FSYNC = {"log.durability": "fsync"}


@attrs.define
class ReplicatedTurns:
    """One load on one cluster."""

    cluster: Cluster
    sender: Sender
    records: int
    moves: Moves = attrs.field(factory=Moves)
    by_broker: list[Mapping[int, float]] = attrs.field(factory=list)
    """CPU seconds of each broker in each turn."""

    @classmethod
    def on(cls, cluster: Cluster, topic: str, partitions: int, records: int) -> ReplicatedTurns:
        create_topic(cluster.any.port, topic, partitions, replication_factor=BROKERS, retention_ms="-1")
        cluster.wait_until_replicated(topic)
        values = plain_values(RECORD_BYTES)
        return cls(cluster, Sender.to(cluster.bootstrap_servers, topic, values, partitions, acks="all"), records)

    def warm_up(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._run()

    def take(self) -> None:
        before = self._by_broker()
        self.moves.runs.append(self._run())
        self.by_broker.append({number: cpu - before[number] for number, cpu in self._by_broker().items()})

    def _run(self) -> Moved:
        with spent_by(*self.cluster.pids) as spent:
            self.sender.send(self.records)
        mib = self.sender.mib(self.records)
        return Moved(spent.cpu / mib * 1e6, mib / spent.wall)

    def _by_broker(self) -> dict[int, float]:
        return {number: process_cpu_seconds(broker.pid) for number, broker in self.cluster.brokers.items()}

    def followers_over_leader(self) -> Repeats:
        """The CPU of a follower of the only partition over that of its leader, turn by turn."""
        leader = self.cluster.leaders(self.sender.topic)[0]
        shares = [
            sum(cpu for number, cpu in turn.items() if number != leader) / (len(turn) - 1) / turn[leader]
            for turn in self.by_broker
        ]
        return Repeats(shares)


def replication(options: Options) -> Outcome:
    """CPU and rate of replicated produce over Kafka's, fsync over page cache, a follower over its leader."""
    outcome = Outcome("replication")
    if missing := why_no_cluster() or why_no_kafka():
        outcome.remarks.append(f"replication skipped: {missing}")
        return outcome
    records = options.volume(RECORDS)
    with (
        kafka_cluster(options.directory, {}) as kafka,
        broker_cluster(options.directory, PAGE_CACHE) as ours,
        broker_cluster(options.directory, FSYNC) as synced,
    ):
        sides = [ReplicatedTurns.on(cluster, SPREAD, BROKERS, records) for cluster in (kafka, ours, synced)]
        single = [ReplicatedTurns.on(cluster, SINGLE, 1, records) for cluster in (kafka, ours)]
        for side in (*sides, *single):
            side.warm_up((KAFKA_WARM_SECONDS if side.cluster is kafka else WARM_SECONDS) * options.scale)
        for _ in range(options.repeats):
            for side in (*sides, *single):
                side.take()
        followers = [side.followers_over_leader() for side in single]
    theirs, mine, fsync = (side.moves for side in sides)
    table = outcome.table(
        f"librdkafka, 1 KB, acks=all, three replicas, two in sync, page cache; {options.repeats} turns with Kafka",
        *("partitions", "CPU µs/MiB", "Kafka's", "CPU ÷ Kafka's", "MiB/s", "Kafka's", "rate ÷ Kafka's"),
    )
    outcome.measures["replication-cpu"], outcome.measures["replication-rate"] = add_row(table, (BROKERS,), mine, theirs)
    add_row(table, (1,), single[1].moves, single[0].moves)
    table = outcome.table("Other ratios of the same run", "", "ours", "Kafka's")
    outcome.measures["replication-fsync"] = ratio(fsync.rate, mine.rate)
    table.add("rate, fsync ÷ page cache", outcome.measures["replication-fsync"], "")
    outcome.measures["replication-follower"] = followers[1].median
    table.add("CPU, a follower ÷ its leader", followers[1].median, followers[0].median)
    return outcome
