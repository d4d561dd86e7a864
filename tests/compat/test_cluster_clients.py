"""Clients that were not written here, and a cluster that loses brokers under them: nothing is lost, nothing is doubled.

What is processed in transactions is judged by what a reader of committed records finds.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaConnectionError

from tests.compat.cluster_clients import (
    GROUP_OFFSETS,
    PARTITIONS,
    TRANSACTION_STATE,
    WAIT_SECONDS,
    cluster_of_one_shard,
    committed_numbers,
    create_topics,
    kill_leader,
    restart,
    write_numbers,
)
from tests.java_programs import Java
from tests.oracles import absent
from tests.waits import TimeLeft, eventually, killed_after, scaled, within
from trio_broker.testing.cluster_thread import ClusterThread

HERE = Path(__file__).parent

NUMBERS = 100
STEPS = 50
"""How many numbers are written between two things that happen to the cluster."""

JOIN_SECONDS = 20.0
"""Longer than a consumer takes to join. kafka-python 3.0.12 drops an assignment whose poll has ended before it came, if
a change of metadata had made it join again, and waits for ever then: a new group's first assignment is such a one."""

LOOP_SECONDS = 180.0
"""How long a loop may live; one that does not do what the test waits for is killed."""

StartLoop = Callable[[Sequence[str | Path]], "subprocess.Popen[str]"]


@pytest.fixture
def cluster() -> Iterator[ClusterThread]:
    with cluster_of_one_shard() as running:
        yield running


@pytest.fixture
def start_loop() -> Iterator[StartLoop]:
    """Starts a program that reads, processes and writes in transactions, and waits for its first one."""
    with ExitStack() as stack:

        def start(command: Sequence[str | Path]) -> subprocess.Popen[str]:
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            stack.enter_context(killed_after(process, LOOP_SECONDS))
            assert process.stdout is not None
            assert process.stdout.readline().startswith("committed")
            return process

        yield start


def test_kafka_python_loses_and_doubles_nothing_when_leader_and_group_coordinator_die(cluster: ClusterThread) -> None:
    create_topics(cluster, "orders")
    servers = cluster.bootstrap_servers.split(",")
    producer = KafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
    sent = [producer.send("orders", b"%d" % number, partition=number % PARTITIONS) for number in range(STEPS)]
    dead = kill_leader(cluster, "orders")
    sent += [producer.send("orders", b"%d" % number, partition=number % PARTITIONS) for number in range(STEPS, NUMBERS)]
    for future in sent:
        within(future.get, WAIT_SECONDS)
    producer.close()
    restart(cluster, dead)

    consumer = KafkaConsumer("orders", bootstrap_servers=servers, group_id="billing", auto_offset_reset="earliest")
    found: list[int] = []
    time_left = TimeLeft(WAIT_SECONDS)
    while len(found) < NUMBERS:
        assert not time_left.is_over
        records = consumer.poll(timeout_ms=int(scaled(JOIN_SECONDS) * 1000), max_records=STEPS)
        is_first = bool(records) and not found
        found += [int(record.value) for batch in records.values() for record in batch]
        if is_first:
            consumer.commit()
            kill_leader(cluster, GROUP_OFFSETS)
    consumer.commit()
    assert sum(consumer.committed(partition) for partition in consumer.assignment()) == NUMBERS
    consumer.close()
    assert sorted(found) == list(range(NUMBERS))


@pytest.mark.soak
def test_kafka_python_processes_exactly_once_when_the_transaction_coordinator_dies_and_it_forgets_no_request(
    cluster: ClusterThread,
) -> None:
    """A coordinator that refuses a connection must be answered as one that is not ready: else kafka-python 3.0.12 drops
    the request, and its transaction waits for ever, as it does with Apache Kafka's brokers."""
    create_topics(cluster, "invoices")
    with KafkaProducer(bootstrap_servers=cluster.bootstrap_servers.split(","), transactional_id="billing") as producer:
        client = producer._sender._client
        connect = client.await_ready

        def await_ready(*arguments: Any, **settings: Any) -> bool:
            try:
                return bool(connect(*arguments, **settings))
            except KafkaConnectionError:
                return False

        client.await_ready = await_ready
        producer.init_transactions()
        for first in range(0, NUMBERS, STEPS):
            producer.begin_transaction()
            for number in range(first, first + STEPS):
                producer.send("invoices", b"%d" % number, partition=number % PARTITIONS)
            if first:
                kill_leader(cluster, TRANSACTION_STATE)
            producer.commit_transaction()
    assert committed_numbers(cluster, "invoices") == list(range(NUMBERS))


def test_aiokafka_processes_exactly_once_when_the_transaction_coordinator_dies(cluster: ClusterThread) -> None:
    create_topics(cluster, "orders", "invoices")
    write_numbers(cluster, "orders", range(NUMBERS))
    asyncio.run(asyncio.wait_for(_invoice(cluster), scaled(2 * WAIT_SECONDS)))
    assert committed_numbers(cluster, "invoices") == list(range(NUMBERS))


async def _invoice(cluster: ClusterThread) -> None:
    """Process all orders; the coordinator dies within the second transaction."""
    servers = cluster.bootstrap_servers
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="billing",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    moved = transactions = 0
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id="billing") as producer, consumer:
        while moved < NUMBERS:
            records = await consumer.getmany(timeout_ms=200, max_records=10)
            if not records:
                continue
            transactions += 1
            async with producer.transaction():
                for partition, batch in records.items():
                    for record in batch:
                        await producer.send("invoices", record.value, partition=partition.partition)
                        moved += 1
                if transactions == 2:
                    await asyncio.to_thread(kill_leader, cluster, TRANSACTION_STATE)
                positions = {partition: batch[-1].offset + 1 for partition, batch in records.items()}
                await producer.send_offsets_to_transaction(positions, "billing")


def test_java_processes_exactly_once_when_both_coordinators_die(
    java: Java, cluster: ClusterThread, start_loop: StartLoop
) -> None:
    lose_under(cluster, start_loop, java_loop(java, cluster, "classic"), (TRANSACTION_STATE, GROUP_OFFSETS))


EVERYTHING = (TRANSACTION_STATE, GROUP_OFFSETS, "invoices", "orders")
"""The topics whose leaders die one after the other."""


@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_processes_exactly_once_through_each_loss_and_a_rolling_restart(
    java: Java, cluster: ClusterThread, start_loop: StartLoop, protocol: str
) -> None:
    lose_under(cluster, start_loop, java_loop(java, cluster, protocol), EVERYTHING, is_rolling=True)


@pytest.mark.soak
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_franz_go_processes_exactly_once_through_each_loss_and_a_rolling_restart(
    cluster: ClusterThread, start_loop: StartLoop, protocol: str
) -> None:
    program = HERE / "go" / "target" / "franz"
    if not program.exists():
        absent("go", "the programs of tests/compat/go were not built")
    # It takes one address, and learns those of the others from there.
    address = cluster.bootstrap_servers.split(",")[0]
    command: list[str | Path] = [program, "loop", address, "orders", "invoices", "billing", "billing", protocol]
    lose_under(cluster, start_loop, command, EVERYTHING, is_rolling=True)


def java_loop(java: Java, cluster: ClusterThread, protocol: str) -> Sequence[str]:
    command = ["java", *java.quick_start, "-cp", java.class_path, "TransactionalLoop", cluster.bootstrap_servers]
    return [*command, "orders", "invoices", "billing", "billing", protocol]


def lose_under(
    cluster: ClusterThread,
    start_loop: StartLoop,
    command: Sequence[str | Path],
    lost: Sequence[str],
    *,
    is_rolling: bool = False,
) -> None:
    """Kill the leaders of topics under a loop, and then restart all brokers if ``is_rolling``: each order is invoiced
    once."""
    create_topics(cluster, "orders", "invoices")
    write_numbers(cluster, "orders", range(STEPS))
    loop = start_loop(command)
    written = STEPS

    def write_more() -> None:
        nonlocal written
        write_numbers(cluster, "orders", range(written, written + STEPS))
        written += STEPS

    for topic in lost:
        dead = kill_leader(cluster, topic)
        write_more()
        restart(cluster, dead)
    for broker_id in cluster.broker_ids if is_rolling else ():
        cluster.stop_broker(broker_id)
        write_more()
        restart(cluster, broker_id)

    def all_are_invoiced() -> bool:
        assert loop.poll() is None, "it ended, or was killed after its time"
        return len(committed_numbers(cluster, "invoices")) >= written

    eventually(all_are_invoiced, WAIT_SECONDS)
    assert committed_numbers(cluster, "invoices") == list(range(written))
