"""Transactions beside Apache Kafka's, and a start with ten thousand transactional ids."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import attrs

from bench.figures import ratio
from bench.groups import NOW_MS, stored_logs
from bench.kafka import both, why_no_kafka
from bench.machine import process_cpu_seconds, spent_by
from bench.node import bytecode_in
from bench.outcome import Options, Outcome
from bench.small import PAGE_CACHE, Runs
from bench.subject import Peer, broker, scratch
from bench.transaction_load import (
    FIRST,
    RECORDS,
    SECOND,
    Protocol,
    TransactionalProducer,
    take_transactional_id,
    transact,
    transaction_batch,
    transactional_producer,
)
from bench.turns import PacedTurns, take_in_turns
from bench.wire import BenchError, ask, connect, create_filled_topic, create_topic, small_batch
from kafka_wire.messages.list_transactions import ListTransactionsRequest
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    TransactionStatus,
    encode_transaction_record,
)
from trio_broker.common.topic_names import TRANSACTION_STATE_TOPIC
from trio_broker.partition.transaction_end import TransactionEnd
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.log import Log
from trio_broker.testing.process import BrokerProcess

TOPIC = "transactions"

PARTITIONS = 16

VALUE_BYTES = 100

PRODUCERS = (1, 16)

FIRST_RATE = 100.0
"""Transactions a second that the first turn expects; each one after it goes by the one before."""

FSYNC = {"log.durability": "fsync"}


# ---- beside Kafka


@attrs.define
class TransactionTurns(PacedTurns):
    """The transactions of some producers on one broker."""

    process: Peer
    producers: list[TransactionalProducer]
    rate: float = attrs.field(default=FIRST_RATE, kw_only=True)

    def _run(self, runs: Runs, seconds: float) -> float:
        transactions = max(len(self.producers), round(self.rate * seconds))
        with spent_by(self.process.pid) as spent:
            figures = transact(self.producers, transactions)
        runs.figures.append(figures)
        runs.cpu_us.append(spent.cpu / transactions * 1e6)
        self.rate = figures.requests_per_second
        return self.rate


def transactions(options: Options) -> Outcome:
    """Rate and CPU of transactions over Kafka's, by protocol and producers; and with every decision synced."""
    outcome = Outcome("transactions")
    if missing := why_no_kafka():
        outcome.remarks.append(f"transactions skipped: {missing}")
        return outcome
    rows = [(protocol, producers) for protocol in (SECOND, FIRST) for producers in PRODUCERS]
    with both(options) as (kafka, ours), broker(options.directory, FSYNC) as synced, ExitStack() as stack:
        for process in (kafka, ours, synced):
            create_filled_topic(process.port, TOPIC, PARTITIONS, small_batch())
        sides = [
            tuple(stack.enter_context(turns_on(process, *row)) for process in (kafka, ours, synced)) for row in rows
        ]
        take_in_turns(sides, options)
    turns = f"{RECORDS} records of {VALUE_BYTES} bytes, medians of {options.repeats} turns with Kafka"
    table = outcome.table(
        f"Transactions of {turns}, page cache",
        *("protocol", "producers", "CPU µs", "Kafka's", "CPU ÷ Kafka's"),
        *("transactions/s", "Kafka's", "rate ÷ Kafka's", "p50 ms", "Kafka's"),
    )
    with_fsync = outcome.table(
        "The same with log.durability=fsync; Kafka's are in the page cache all the same",
        *("protocol", "producers", "CPU µs", "CPU ÷ Kafka's", "transactions/s", "rate ÷ Kafka's", "p50 ms"),
    )
    for (protocol, producers), (theirs, mine, durable) in zip(rows, sides, strict=True):
        what = (protocol.name, producers)
        latencies = [side.runs.latencies().p50_ms for side in (mine, theirs, durable)]
        cpu, rate = ratio(mine.runs.cpu, theirs.runs.cpu), ratio(mine.runs.rate, theirs.runs.rate)
        table.add(
            *(*what, mine.runs.cpu.median, theirs.runs.cpu.median, cpu),
            *(mine.runs.rate.median, theirs.runs.rate.median, rate, *latencies[:2]),
        )
        with_fsync.add(
            *(*what, durable.runs.cpu.median, ratio(durable.runs.cpu, theirs.runs.cpu)),
            *(durable.runs.rate.median, ratio(durable.runs.rate, theirs.runs.rate), latencies[2]),
        )
        if protocol is SECOND:
            outcome.measures[f"transactions-{producers}-cpu"] = cpu
            outcome.measures[f"transactions-{producers}-rate"] = rate
        else:
            outcome.measures[f"transactions-first-{producers}-cpu"] = cpu
            outcome.measures[f"transactions-first-{producers}-rate"] = rate
    return outcome


@contextmanager
def turns_on(process: Peer, protocol: Protocol, producers: int) -> Iterator[TransactionTurns]:
    """``producers`` of them on one broker, each with a partition of its own."""
    batch = transaction_batch(VALUE_BYTES)
    with ExitStack() as stack:
        yield TransactionTurns(
            process,
            [
                stack.enter_context(
                    transactional_producer(
                        process.port, f"{protocol.name}-{producers}-{index}", TOPIC, index, protocol, batch
                    )
                )
                for index in range(producers)
            ],
        )


# ---- a start


STORED_IDS = 10_000

FIRST_STORED_ID = 1_000_000
"""Of a producer; far from those that the broker has given."""

LIST_TRANSACTIONS_VERSION = 0

STATES = (
    TransactionStatus.EMPTY,
    TransactionStatus.ONGOING,
    TransactionStatus.PREPARE_COMMIT,
    TransactionStatus.COMPLETE_COMMIT,
)
"""Of a transactional id that has committed its first transaction: a record each."""


def transactions_start(options: Options) -> Outcome:
    """How long a start takes until all of many transactional ids are there again."""
    outcome = Outcome("transactions-start")
    count = options.volume(STORED_IDS)
    table = outcome.table(
        f"A start with {count:,} transactional ids, each with one committed transaction",
        *("after", "s until it serves", "s until all ids are there", "CPU s"),
    )
    with (
        scratch(options.directory) as bytecode,
        bytecode_in(bytecode),
        broker(options.directory, PAGE_CACHE) as process,
    ):
        create_topic(process.port, TOPIC, PARTITIONS)
        with connect(process.port) as sock:
            take_transactional_id(sock, "first")
        process.stop()
        store_transactions(process, count)
        for end, stop in (("a stop", lambda: None), ("a kill", process.kill)):
            stop()
            began = time.perf_counter()
            process.start()
            started = time.perf_counter() - began
            wait_until_listed(process, count + 1)
            loaded = time.perf_counter() - began
            table.add(end, started, loaded, process_cpu_seconds(process.pid))
            outcome.measures["transactions-start"] = max(loaded, outcome.measures.get("transactions-start", 0.0))
    return outcome


def store_transactions(process: BrokerProcess, count: int) -> None:
    """Append what ``count`` transactional ids and their transactions leave in the logs of the broker, which does not
    run.
    """
    from trio_broker.coordinator.runtime.coordinator_runtime import partition_for

    states, data = stored_logs(process, TRANSACTION_STATE_TOPIC), stored_logs(process, TOPIC)

    def append(log: Log, batch: bytes | memoryview) -> None:
        log.append(batch, leader_epoch=log.latest_epoch or 0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)

    for number in range(count):
        transactional_id, producer_id, partition = f"stored-{number}", FIRST_STORED_ID + number, number % len(data)
        state = states[partition_for(transactional_id, len(states))]
        for status in STATES:
            append(state, build_batch([state_record(transactional_id, producer_id, status, partition)]))
        records = [NewRecord(NOW_MS, None, b"v" * VALUE_BYTES)] * RECORDS
        append(data[partition], build_batch(records, producer_id=producer_id, producer_epoch=0, transactional=True))
        append(data[partition], TransactionEnd(producer_id, 0, True, 0).batch(NOW_MS))
    for log in (*states, *data):
        log.close()


def state_record(transactional_id: str, producer_id: int, status: TransactionStatus, partition: int) -> NewRecord:
    """The record of a transactional id whose transaction is in one partition of ``TOPIC``."""
    has_partitions = status in (TransactionStatus.ONGOING, TransactionStatus.PREPARE_COMMIT)
    value = TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_timeout_ms=60_000,
        transaction_status=status,
        transaction_partitions=[PartitionsSchema(topic=TOPIC, partition_ids=[partition])] if has_partitions else None,
        transaction_last_update_timestamp_ms=round(time.time() * 1000),
        transaction_start_timestamp_ms=NOW_MS,
    )
    return NewRecord(NOW_MS, *encode_transaction_record(TransactionLogKey(transactional_id=transactional_id), value))


def wait_until_listed(process: BrokerProcess, count: int) -> None:
    """Ask for all transactions until the coordinator knows them.

    Raises:
        BenchError: they are not ``count``.
    """
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[])
    with connect(process.port) as sock:
        while (response := ask(sock, request, LIST_TRANSACTIONS_VERSION)).error_code:
            time.sleep(0.01)
    if len(response.transaction_states) != count:
        raise BenchError(f"{len(response.transaction_states)} transactional ids, not {count}")
