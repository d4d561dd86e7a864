"""``trio-broker produce``: writes the lines of standard input, or of files, to a topic of any Kafka.

Whenever the input pauses, all gathered records are sent, so that ``tail -f log | trio-broker produce …`` delivers lines
promptly. While the input does not pause, only full batches are sent. Ctrl-C ends the input; the records that were read
by then are still sent.

Source: kcat's producer mode and kafka-console-producer, for the options.
"""

from __future__ import annotations

import contextlib
import io
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import click

from kafka_wire.limits import MAX_PARTITION
from kafka_wire.messages.produce import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from kafka_wire.records.compression import Codec
from kafka_wire.records.record import Header
from trio_broker.cli.connecting import CLIENT_ID, keeps_asking_cluster
from trio_broker.cli.escapes import separator
from trio_broker.cli.interrupts import Interrupts
from trio_broker.cli.output import note
from trio_broker.cli.record_input import BadInput, JsonParser, Parser, PieceParser, RecordInput, pieces
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.client.producer.record_producer import RecordProducer
from trio_broker.client.producer.settings import DEFAULT_REQUEST_TIMEOUT_MS, ProducerSettings
from trio_broker.common.amounts import counted

ACKS: Final = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": ACKS_LEADER, "0": ACKS_NONE}

STANDARD_INPUT: Final = Path("-")


def header(text: str) -> Header:
    """Read ``KEY=VALUE``, or ``KEY`` for a header whose value is null.

    Raises:
        click.BadParameter: the key is empty.
    """
    key, equals, value = text.partition("=")
    if not key:
        raise click.BadParameter(f"{text!r} is not of the form KEY=VALUE")
    return key, value.encode("utf-8", "surrogateescape") if equals else None


@click.command("produce")
@click.argument("topic")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@click.option("-K", "--key-separator", type=separator, metavar="TEXT", help="The text between key and value.")
@click.option("-k", "--key", help="The key of every record that has none of its own.")
@click.option(
    "-H", "--header", "headers", type=header, multiple=True, metavar="KEY=VALUE", help="A header; may be repeated."
)
@click.option("-p", "--partition", type=click.IntRange(0, MAX_PARTITION), help="The partition of every record.")
@click.option("-Z", "--null", "null_values", is_flag=True, help="An empty value is null: a tombstone.")
@click.option("-D", "--delimiter", type=separator, metavar="TEXT", help=r"The text after each record; \n if not given.")
@click.option("--whole", is_flag=True, help="Each file is one record.")
@click.option(
    "--json", "as_json", is_flag=True, help="Each line is a JSON object with key, value, headers, as consume prints it."
)
@click.option("--repartition", is_flag=True, help="Ignore the partitions in the JSON, so that keys decide.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice([codec.name.lower() for codec in Codec]),
    default="none",
    show_default=True,
)
@click.option(
    "--acks",
    type=click.Choice(list(ACKS)),
    default="all",
    show_default=True,
    help="The replicas that must have a record before it counts as written. With fewer than all it may be lost.",
)
@click.option("--no-create", is_flag=True, help="Fail if the topic does not exist; the broker may not create it.")
@keeps_asking_cluster
def produce_command(
    client: KafkaClient, topic: str, files: tuple[Path, ...], compression: str, acks: str, no_create: bool, **form: Any
) -> None:
    r"""Write records to TOPIC: the lines of FILES, or of standard input.

    TEXT may have the escapes \n, \r, \t, \0, \xNN. A line without the key separator has no key of its own. Ctrl-C ends
    the input; the records that were read by then are written.
    """
    source = RecordInput(parser(**form), None if form["whole"] else form["delimiter"] or b"\n")
    timeout_ms = int(client.deadline.timeout_seconds * 1000)
    settings = ProducerSettings(
        bootstrap_servers=client.settings.bootstrap,
        security=client.settings.security,
        client_id=CLIENT_ID,
        codec=Codec[compression.upper()],
        request_timeout_ms=min(DEFAULT_REQUEST_TIMEOUT_MS, timeout_ms),
        delivery_timeout_ms=timeout_ms,
        max_block_ms=timeout_ms,
        acks=ACKS[acks],
        allow_auto_topic_creation=not no_create,
        own_options=dict.fromkeys(("max.block.ms", "delivery.timeout.ms"), "--command-timeout"),
    )
    with BatchProducer(settings) as batch_producer, Interrupts() as interrupts:
        # A random first partition: otherwise many short calls of the command would all write to partition 0.
        producer = RecordProducer(batch_producer, first_partition=random.randrange(1 << 16))
        # A topic or partition that does not exist is reported before the user types anything, and if nothing is typed.
        producer.require_partition(topic, form["partition"] or 0)
        try:
            try:
                with contextlib.suppress(KeyboardInterrupt):
                    for file in files or (STANDARD_INPUT,):
                        feed(producer, topic, file, source, interrupts)
            finally:
                # Also after an error in the input: the records before the bad piece are written. After an error of the
                # producer nothing can be sent any more.
                if batch_producer.is_usable:
                    producer.flush()
        finally:
            report(topic, producer)


def parser(
    *,
    as_json: bool,
    repartition: bool,
    key_separator: bytes | None,
    key: str | None,
    headers: tuple[Header, ...],
    partition: int | None,
    null_values: bool,
    delimiter: bytes | None,
    whole: bool,
) -> Parser:
    """Return the parser that turns pieces of the input into records.

    Raises:
        click.UsageError: the options contradict each other.
    """
    if as_json:
        if key_separator or key is not None or null_values or delimiter or whole:
            raise click.UsageError("with --json a line has key and value: leave out -K, -k, -Z, -D, --whole")
        return JsonParser(headers, partition, repartition)
    if repartition:
        raise click.UsageError("--repartition is for --json")
    if whole and delimiter:
        raise click.UsageError("--whole takes no --delimiter")
    key_bytes = None if key is None else key.encode("utf-8", "surrogateescape")
    return PieceParser(key_separator, key_bytes, headers, partition, null_values)


def feed(producer: RecordProducer, topic: str, file: Path, source: RecordInput, interrupts: Interrupts) -> None:
    """Send the records of one file, and flush the producer whenever the input pauses.

    Raises:
        BadInput: a piece is not a record; the records before it were passed to the producer.
        WriteFailed: a record could not be written.
    """
    number = 0
    with opened(file) as stream:
        try:
            for piece in pieces(stream, source.delimiter, interrupts.waiting):
                if piece is None:
                    producer.flush()
                    continue
                number += 1
                if (record := source.parse(piece)) is not None:
                    producer.send(topic, record)
        # Only errors of the input: WriteFailed, which names the partition itself, is a ClientError and no ValueError.
        except ValueError as error:
            name = "standard input" if file == STANDARD_INPUT else str(file)
            raise BadInput(f"{name}, record {max(1, number)}: {error}") from None


@contextlib.contextmanager
def opened(file: Path) -> Iterator[io.BufferedIOBase]:
    """Open a file and close it at the end; standard input stays open."""
    if file != STANDARD_INPUT:
        with file.open("rb") as stream:
            yield stream
        return
    if sys.stdin.isatty():
        note("each line is a record; Ctrl-D ends the input")
    yield cast(io.BufferedIOBase, sys.stdin.buffer)


def report(topic: str, producer: RecordProducer) -> None:
    """Print how many records were acknowledged."""
    counts = producer.record_counts
    records, partitions = sum(counts.values()), len(counts)
    where = f" to {counted(partitions, 'partition', thousands='')}" if records else ""
    note(f"{topic}: {counted(records, 'record', thousands='')} written{where}")
