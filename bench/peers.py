"""Kafka itself beside the broker: seconds from nothing to the first Metadata answer, and memory when idle.

Kafka is one KRaft node, broker and controller, from the jars of ``tests/compat/java``, with the flags that let a JVM
start quickly and a heap of 256 MiB. Both format a new data directory, since both must for their first start.
"""

from __future__ import annotations

import time

from bench.figures import Repeats
from bench.kafka import why_no_kafka
from bench.machine import resident_bytes
from bench.node import SETTLE_SECONDS, bytecode_in
from bench.outcome import Options, Outcome
from bench.subject import QUIET, scratch
from bench.wire import MIB, connect, metadata
from tests.compat.kafka_process import KafkaProcess
from tests.java_programs import compiled_java
from trio_broker.testing.process import BrokerProcess


def peers(options: Options) -> Outcome:
    """Start Kafka and the broker in turns, and look at what each takes."""
    outcome = Outcome("peers")
    if missing := why_no_kafka():
        outcome.remarks.append(f"peers skipped: {missing}")
        return outcome
    table = outcome.table("Start with a new directory, and memory when idle", "", "best s", "median s", "RSS MiB")
    rows: dict[str, list[tuple[float, float]]] = {"Kafka": [], "broker": []}
    with scratch(options.directory) as parent, bytecode_in(parent / "bytecode"):
        compiled_java()  # so that the first start does not pay for it
        measure(BrokerProcess(parent / "first", arguments=QUIET))  # its bytecode is compiled once
        for index in range(options.repeats):
            rows["Kafka"].append(measure(KafkaProcess(parent / f"kafka-{index}")))
            rows["broker"].append(measure(BrokerProcess(parent / f"broker-{index}", arguments=QUIET)))
    for name, values in rows.items():
        seconds = Repeats([started for started, _ in values])
        table.add(name, seconds.best, seconds.median, Repeats([memory for _, memory in values]).median)
    return outcome


def measure(process: KafkaProcess | BrokerProcess) -> tuple[float, float]:
    """Seconds from the start of the process to its first Metadata answer, and its MiB of memory a moment later."""
    began = time.perf_counter()
    with process, connect(process.port) as sock:
        metadata(sock)
        seconds = time.perf_counter() - began
        time.sleep(SETTLE_SECONDS)
        return seconds, resident_bytes(process.pid) / MIB
