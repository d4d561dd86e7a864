"""A Java producer at 20,000 records of 1 KiB a second, acks=all: what each record costs the broker, and its memory.

The producer is Kafka's own ``ProducerPerformance`` with its defaults, which waits for no batch: at this rate there are
few records in each, and their number depends on how fast the broker answers. Kafka, the broker as Kafka writes, and the
broker with its default durability are up at the same time and take turns, the first of which warms up.
"""

from __future__ import annotations

import re
import subprocess

import attrs

from bench.figures import Better, Repeats, ratio
from bench.kafka import why_no_kafka
from bench.latency import FSYNC, KAFKA, PAGES, servers
from bench.librdkafka import forget_topic
from bench.machine import resident_bytes, spent_by
from bench.outcome import Options, Outcome
from bench.subject import Peer
from bench.wire import MIB, BenchError, create_filled_topic, small_batch
from tests.java_programs import compiled_java

TOPIC = "paced"

RATE = 20_000
"""Records a second."""

RECORD_BYTES = 1024

TURN_SECONDS = 15.0
"""Long beside what the producer's own JVM needs until it is warm, a second or two of higher latencies."""

SUMMARY = re.compile(r"([\d.]+) records/sec.* (\d+) ms 50th, \d+ ms 95th, (\d+) ms 99th, (\d+) ms 99.9th")
"""The last line that ProducerPerformance prints."""


@attrs.frozen
class Turn:
    """What the producer and the machine said of one turn; latencies as the producer has them, in whole milliseconds."""

    rate: float
    p50_ms: float
    p99_ms: float
    p999_ms: float
    cpu_us: float
    resident_mib: float


def kafka_paced(options: Options) -> Outcome:
    """CPU of a record at a given rate over Kafka's, the rate that was kept, latencies, and memory under load."""
    outcome = Outcome("kafka-paced")
    if missing := why_no_kafka():
        outcome.remarks.append(f"kafka-paced skipped: {missing}")
        return outcome
    records = options.volume(round(RATE * TURN_SECONDS))
    with servers(options, outcome) as peers:
        turns: dict[str, list[Turn]] = {name: [] for name in peers}
        for peer in peers.values():
            create_filled_topic(peer.port, TOPIC, 1, small_batch())
        for number in range(options.repeats + 1):
            for name, peer in peers.items():
                turn = take(peer, records)
                if number:  # the first one warms up
                    turns[name].append(turn)
    table = outcome.table(
        f"A Java producer, {RATE:,} records/s of {RECORD_BYTES:,} bytes, acks=all, medians of {options.repeats} turns",
        *("server", "CPU µs/record", "÷ Kafka's", "records/s", "p50 ms", "p99 ms", "p99.9 ms", "RSS MiB"),
    )
    cpu = {name: Repeats([turn.cpu_us for turn in taken]) for name, taken in turns.items()}
    rate = {name: Repeats([turn.rate for turn in taken], Better.MORE) for name, taken in turns.items()}
    memory = {name: Repeats([turn.resident_mib for turn in taken]) for name, taken in turns.items()}
    for name, taken in turns.items():
        table.add(
            *(name, cpu[name].median, ratio(cpu[name], cpu[KAFKA]), rate[name].median),
            *(Repeats([getattr(turn, key) for turn in taken]).median for key in ("p50_ms", "p99_ms", "p999_ms")),
            memory[name].median,
        )
    for key, name in (("", PAGES), ("-fsync", FSYNC)):
        outcome.measures[f"kafka-paced{key}-cpu"] = ratio(cpu[name], cpu[KAFKA])
        outcome.measures[f"kafka-paced{key}-rate"] = rate[name].median / RATE
        outcome.measures[f"kafka-paced{key}-memory"] = memory[name].median
    return outcome


def take(peer: Peer, records: int) -> Turn:
    """Let the producer send ``records``, and give their memory back.

    Raises:
        BenchError: it failed.
    """
    command = ["java", "-cp", compiled_java().class_path, "org.apache.kafka.tools.ProducerPerformance"]
    server = ("--bootstrap-server", f"127.0.0.1:{peer.port}", "--command-property", "acks=all")
    load = ("--topic", TOPIC, "--num-records", records, "--record-size", RECORD_BYTES, "--throughput", RATE)
    with spent_by(peer.pid) as spent:
        done = subprocess.run([*command, *server, *map(str, load)], capture_output=True, text=True)
        memory = resident_bytes(peer.pid)
    said = SUMMARY.search(done.stdout)
    if done.returncode or said is None:
        raise BenchError(f"ProducerPerformance: {done.stdout}{done.stderr}")
    forget_topic(peer, TOPIC)
    rate, p50_ms, p99_ms, p999_ms = map(float, said.groups())
    return Turn(rate, p50_ms, p99_ms, p999_ms, spent.cpu / records * 1e6, memory / MIB)
