"""``trio-broker transactions``: lists and describes transactions of any Kafka, finds those that hang, and aborts them.

Source: Kafka's TransactionsCommand, for the meaning of the options; KIP-664.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import click

from trio_broker.cli.assignments import TopicSelection, topic_selection
from trio_broker.cli.command_group import CommandGroup
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.failure import Failures
from trio_broker.cli.output import Row, print_facts, print_json, print_table
from trio_broker.cli.positions import chosen_partitions
from trio_broker.cli.transactions_abort import abort_command
from trio_broker.client.errors import Refused
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.topics import list_topics
from trio_broker.client.transactions import (
    ActiveProducer,
    OpenTransaction,
    TransactionDescription,
    TransactionListFilter,
    describe_producers,
    describe_transaction,
    hanging,
    list_transactions,
    open_transactions,
)
from trio_broker.common.topic_partition import TopicPartition

DEFAULT_MAX_TIMEOUT_MINUTES: Final = 15
"""Kafka's default of ``transaction.max.timeout.ms``: no coordinator lets a transaction be open for longer."""

PRODUCER_COLUMNS: Mapping[str, str] = {
    "TOPIC": "topic",
    "PARTITION": "partition",
    "PRODUCER ID": "producer_id",
    "EPOCH": "producer_epoch",
    "COORDINATOR EPOCH": "coordinator_epoch",
}


@click.group(cls=CommandGroup)
def transactions() -> None:
    """List and describe transactions, find those that hang, and abort them."""


transactions.add_command(abort_command)


# --- list ---


@transactions.command("list")
@click.option("--state", "states", multiple=True, help="Only those in this state, such as Ongoing; may be repeated.")
@click.option(
    "--producer-id", "producer_ids", type=int, multiple=True, help="Only those of this producer; may be repeated."
)
@click.option(
    "--duration-filter",
    "longer_than_ms",
    type=click.IntRange(min=0),
    metavar="MS",
    help="Only those that have been open for longer than so many milliseconds.",
)
@click.option(
    "--id-pattern",
    "--transactional-id-pattern",
    "id_pattern",
    metavar="REGEX",
    help="Only transactional ids that match this regular expression as a whole.",
)
@json_option
@with_client
def list_command(
    client: KafkaClient,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    longer_than_ms: int | None,
    id_pattern: str | None,
    as_json: bool,
) -> None:
    """List transactional ids with their producer and the state of their newest transaction."""
    wanted = TransactionListFilter(
        states=states, producer_ids=producer_ids, longer_than_ms=longer_than_ms, id_pattern=id_pattern
    )
    rows = [
        {
            "transactional_id": each.transactional_id,
            "coordinator": each.coordinator_id,
            "producer_id": each.producer_id,
            "state": each.state,
        }
        for each in list_transactions(client, wanted)
    ]
    if as_json:
        print_json(rows)
    else:
        columns = {"TRANSACTIONAL ID": "transactional_id", "COORDINATOR": "coordinator", "PRODUCER ID": "producer_id"}
        print_table({**columns, "STATE": "state"}, rows)


# --- describe ---


@transactions.command("describe")
@click.argument("names", nargs=-1, required=True, metavar="TRANSACTIONAL_ID...")
@json_option
@with_client
def describe_command(client: KafkaClient, names: tuple[str, ...], as_json: bool) -> None:
    """Show the producer, the state, the age and the partitions of transactions."""
    failures = Failures()
    documents: list[Row] = []
    for name in names:
        try:
            documents.append(document(describe_transaction(client, name)))
        except Refused as error:
            failures.add(error)
    if as_json:
        print_json(documents)
    else:
        for each in documents:
            print_facts({**each, "partitions": [f"{at['topic']}-{at['partition']}" for at in each["partitions"]]})
    failures.exit()


def document(described: TransactionDescription) -> Row:
    """Return the JSON document of a transaction; the duration is that of one that is open or ending."""
    is_open = described.start_ms is not None and bool(described.partitions)
    return {
        "transactional_id": described.transactional_id,
        "coordinator": described.coordinator.node_id,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "state": described.state,
        "timeout_ms": described.timeout_ms,
        "start_ms": described.start_ms,
        "duration_ms": now_ms() - described.start_ms if is_open and described.start_ms is not None else None,
        "partitions": [{"topic": each.topic, "partition": each.partition} for each in described.partitions],
    }


def now_ms() -> int:
    """Return the time of this machine, by which Kafka's own tool counts too; brokers do not tell theirs."""
    return time.time_ns() // 1_000_000


# --- describe-producers ---


@transactions.command("describe-producers")
@click.argument("selections", nargs=-1, required=True, type=topic_selection, metavar="TOPIC[:0,1,2]...")
@json_option
@with_client
def describe_producers_command(client: KafkaClient, selections: tuple[TopicSelection, ...], as_json: bool) -> None:
    """Show the idempotent producers that partitions remember, and where an open transaction of each began."""
    failures = Failures()
    rows: list[Row] = []
    for partition, producers in describe_producers(client, sorted(chosen_partitions(client, selections))).items():
        if isinstance(producers, Refused):
            failures.add(producers)
        else:
            rows += [producer_row(partition, each) for each in producers]
    if as_json:
        print_json(rows)
    else:
        further = {"LAST SEQUENCE": "last_sequence", "LAST TIMESTAMP": "last_timestamp", "OPEN SINCE": "start_offset"}
        print_table({**PRODUCER_COLUMNS, **further}, rows)
    failures.exit()


def producer_row(partition: TopicPartition, producer: ActiveProducer) -> dict[str, Any]:
    """Return the row of a producer in one partition; ``start_offset`` is None if it has no open transaction there."""
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "coordinator_epoch": producer.coordinator_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.last_timestamp_ms,
        "start_offset": producer.transaction_start_offset,
    }


# --- find-hanging ---


@transactions.command("find-hanging")
@click.argument("selections", nargs=-1, type=topic_selection, metavar="[TOPIC[:0,1,2]]...")
@click.option("--broker", "broker_id", type=int, metavar="ID", help="Only partitions that this broker leads.")
@click.option(
    "--max-transaction-timeout",
    "max_timeout_minutes",
    type=click.IntRange(min=0),
    default=DEFAULT_MAX_TIMEOUT_MINUTES,
    show_default=True,
    metavar="MINUTES",
    help="Only transactions whose last record is older, as no transaction that is well can be.",
)
@json_option
@with_client
def find_hanging_command(
    client: KafkaClient,
    selections: tuple[TopicSelection, ...],
    broker_id: int | None,
    max_timeout_minutes: int,
    as_json: bool,
) -> None:
    """Find transactions that no coordinator will end, in the named topics or in all of them.

    Such a transaction keeps consumers with isolation.level=read_committed from all that lies behind its beginning.
    """
    failures = Failures()
    described = describe_producers(client, searched_partitions(client, selections, broker_id))
    for each in described.values():
        if isinstance(each, Refused):
            failures.add(each)
    oldest_ms = now_ms() - max_timeout_minutes * 60_000
    old = [each for each in open_transactions(described) if each.producer.last_timestamp_ms < oldest_ms]
    rows = [hanging_row(each) for each in hanging(client, old)]
    if as_json:
        print_json(rows)
    else:
        further = {"START OFFSET": "start_offset", "LAST TIMESTAMP": "last_timestamp", "MINUTES": "duration_minutes"}
        print_table({**PRODUCER_COLUMNS, **further}, rows)
    failures.exit()


def searched_partitions(
    client: KafkaClient, selections: Collection[TopicSelection], broker_id: int | None
) -> list[TopicPartition]:
    """Return the selected partitions, or all, as far as ``broker_id`` leads them.

    Raises:
        Refused: a topic that was named does not exist.
    """
    named = set(chosen_partitions(client, selections)) if selections else None
    if named is not None and broker_id is None:
        return sorted(named)
    return sorted(
        partition
        for partition, leader_id in leaders(client)
        if (named is None or partition in named) and broker_id in (None, leader_id)
    )


def leaders(client: KafkaClient) -> Iterable[tuple[TopicPartition, int]]:
    """Return each partition of the cluster with the id of its leader."""
    return (
        (TopicPartition(topic.name, each.index), each.leader_id)
        for topic in list_topics(client)
        for each in topic.partitions
    )


def hanging_row(transaction: OpenTransaction) -> Row:
    """Return the row of a hanging transaction in one partition."""
    row = producer_row(transaction.partition, transaction.producer)
    return {**row, "duration_minutes": (now_ms() - transaction.producer.last_timestamp_ms) // 60_000}
