"""``trio-broker transactions abort``: aborts one transaction, by its coordinator or, if it hangs, in one partition.

The command shows the transaction, and aborts it only with consent (``consent``).

Source: Kafka's TransactionsCommand; KIP-664.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection

import click

from kafka_wire.limits import INT32_MAX, MAX_PRODUCER_EPOCH
from trio_broker.cli.assignments import TopicSelection, topic_selection
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.consent import Consent, is_agreed, needs_consent
from trio_broker.cli.failure import fail
from trio_broker.cli.output import Row, print_json, print_table
from trio_broker.client.errors import Refused, VersionNotServed
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.transactions import (
    NONE,
    ONGOING,
    ActiveProducer,
    OpenTransaction,
    TransactionDescription,
    abort_in_partition,
    abort_transaction,
    coordinated_partitions,
    describe_producers,
    describe_transaction,
    open_transactions,
)
from trio_broker.common.topic_partition import TopicPartition


@click.command("abort")
@click.argument("transactional_id", required=False, metavar="[TRANSACTIONAL_ID]")
@click.option(
    "--partition",
    "selection",
    type=topic_selection,
    metavar="TOPIC:0",
    help="The partition in which a transaction hangs, with --start-offset, or with the three options about epochs.",
)
@click.option(
    "--start-offset", type=click.IntRange(min=0), help="Where the transaction begins, as find-hanging shows it."
)
@click.option("--producer-id", type=click.IntRange(min=0), help="For brokers before 3.0, which do not tell it.")
@click.option("--producer-epoch", type=click.IntRange(0, MAX_PRODUCER_EPOCH), help="Likewise.")
@click.option("--coordinator-epoch", type=click.IntRange(-1, INT32_MAX), help="Likewise.")
@needs_consent
@json_option
@with_client
def abort_command(
    client: KafkaClient,
    transactional_id: str | None,
    selection: TopicSelection | None,
    start_offset: int | None,
    producer_id: int | None,
    producer_epoch: int | None,
    coordinator_epoch: int | None,
    consent: Consent,
    as_json: bool,
) -> None:
    """Abort the transaction of a transactional id and fence its producer, or one that hangs in a partition. Asks.

    One that its coordinator still knows is aborted by its id, in all of its partitions at once.
    """
    named = None
    if producer_id is not None and producer_epoch is not None and coordinator_epoch is not None:
        named = ActiveProducer(producer_id, producer_epoch, coordinator_epoch, NONE, NONE, None)
    has_place = any(each is not None for each in (start_offset, producer_id, producer_epoch, coordinator_epoch))
    if (transactional_id is None) == (selection is None):
        raise click.UsageError("name the transaction: TRANSACTIONAL_ID, or --partition TOPIC:0 with --start-offset")
    if transactional_id is not None:
        if has_place:
            raise click.UsageError("--start-offset and the epochs go with --partition")
        abort_coordinated(client, transactional_id, consent, as_json)
        return
    partition = one_partition(selection)
    if named is not None and start_offset is None:
        transaction = of_producer(client, partition, named)
    elif start_offset is not None and producer_id is producer_epoch is coordinator_epoch is None:
        transaction = begun_at(client, partition, start_offset)
    else:
        raise click.UsageError("give --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch")
    abort_hanging(client, transaction, consent, as_json)


def one_partition(selection: TopicSelection | None) -> TopicPartition:
    """Return the partition of ``TOPIC:0``.

    Raises:
        click.UsageError: it names none, or several.
    """
    if selection is None or selection.partitions is None or len(selection.partitions) != 1:
        raise click.UsageError("--partition names one partition: TOPIC:0")
    return TopicPartition(selection.topic, selection.partitions[0])


# --- By the coordinator ---


def abort_coordinated(client: KafkaClient, transactional_id: str, consent: Consent, as_json: bool) -> None:
    """Let the coordinator abort the transaction that is ongoing now."""
    transaction = describe_transaction(client, transactional_id)
    if transaction.state != ONGOING:
        fail(f"transactional id {transactional_id!r} has no ongoing transaction: it is {transaction.state}")
    if consent is Consent.ASK:
        print_coordinated([coordinated_row(transaction, aborted=False)], err=True)
    executed = is_agreed(consent, "Abort this transaction and fence its producer?")
    if executed:
        transaction = abort_transaction(client, transaction)
    row = coordinated_row(transaction, aborted=executed)
    if as_json:
        print_json({"dry_run": not executed, **row})
    else:
        print_coordinated([row])


def coordinated_row(transaction: TransactionDescription, *, aborted: bool) -> Row:
    """Return the row of a transaction that a coordinator knows."""
    return {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "state": transaction.state,
        "partitions": len(transaction.partitions),
        "aborted": aborted,
    }


def print_coordinated(rows: Collection[Row], *, err: bool = False) -> None:
    """Print the rows; the epoch is the one that fences the producer once the transaction is aborted."""
    columns = {
        "TRANSACTIONAL ID": "transactional_id",
        "PRODUCER ID": "producer_id",
        "EPOCH": "producer_epoch",
        "STATE": "state",
        "PARTITIONS": "partitions",
        "ABORTED": "aborted",
    }
    print_table(columns, list(rows), err=err)


# --- In a partition ---


def begun_at(client: KafkaClient, partition: TopicPartition, start_offset: int) -> OpenTransaction:
    """Return the open transaction that begins at an offset. The command ends if there is none."""
    for each in open_transactions(described(client, partition)):
        if each.producer.transaction_start_offset == start_offset:
            return each
    return fail(f"partition {partition}: no open transaction begins at offset {start_offset}")


def of_producer(client: KafkaClient, partition: TopicPartition, named: ActiveProducer) -> OpenTransaction:
    """Return the open transaction of a producer. The command ends if the broker can tell that there is none."""
    try:
        found = described(client, partition)
    except VersionNotServed:
        return OpenTransaction(partition, named)
    for each in open_transactions(found):
        known = each.producer
        if (known.producer_id, known.producer_epoch) == (named.producer_id, named.producer_epoch):
            if known.coordinator_epoch != named.coordinator_epoch:
                fail(f"partition {partition}: the coordinator epoch is {known.coordinator_epoch}")
            return each
    who = f"producer {named.producer_id} in epoch {named.producer_epoch}"
    return fail(f"partition {partition}: {who} has no open transaction")


def described(client: KafkaClient, partition: TopicPartition) -> dict[TopicPartition, list[ActiveProducer] | Refused]:
    """Return the producers of one partition.

    Raises:
        Refused: the partition does not exist, or its leader did not answer in time.
        VersionNotServed: the broker is older than Kafka 3.0.
    """
    found = describe_producers(client, [partition])
    if isinstance(refused := found[partition], Refused):
        raise refused
    return found


def abort_hanging(client: KafkaClient, transaction: OpenTransaction, consent: Consent, as_json: bool) -> None:
    """Abort a transaction in one partition, unless its coordinator will end it there."""
    refuse_coordinated(client, transaction)
    if consent is Consent.ASK:
        print_hanging([hanging_row(transaction, aborted=False)], err=True)
    executed = is_agreed(consent, "Abort this transaction in this partition?")
    if executed:
        abort_in_partition(client, transaction)
    row = hanging_row(transaction, aborted=executed)
    if as_json:
        print_json({"dry_run": not executed, **row})
    else:
        print_hanging([row])


def refuse_coordinated(client: KafkaClient, transaction: OpenTransaction) -> None:
    """End the command if a coordinator will end the transaction: a marker of ours would tear it apart."""
    producer_id = transaction.producer.producer_id
    try:
        known = coordinated_partitions(client, [producer_id]).get(producer_id, {})
    except VersionNotServed:
        return
    if (owner := known.get(transaction.partition)) is not None:
        name = owner.transactional_id
        fail(
            f"partition {transaction.partition}: the transaction is that of transactional id {name!r}, which is"
            f" {owner.state} and does not hang; trio-broker transactions abort {shlex.quote(name)} aborts it everywhere"
        )


def hanging_row(transaction: OpenTransaction, *, aborted: bool) -> Row:
    """Return the row of a transaction in one partition."""
    return {
        "topic": transaction.partition.topic,
        "partition": transaction.partition.partition,
        "producer_id": transaction.producer.producer_id,
        "producer_epoch": transaction.producer.producer_epoch,
        "coordinator_epoch": transaction.producer.coordinator_epoch,
        "start_offset": transaction.producer.transaction_start_offset,
        "aborted": aborted,
    }


def print_hanging(rows: Collection[Row], *, err: bool = False) -> None:
    """Print the rows."""
    columns = {
        "TOPIC": "topic",
        "PARTITION": "partition",
        "PRODUCER ID": "producer_id",
        "EPOCH": "producer_epoch",
        "COORDINATOR EPOCH": "coordinator_epoch",
        "START OFFSET": "start_offset",
        "ABORTED": "aborted",
    }
    print_table(columns, list(rows), err=err)
