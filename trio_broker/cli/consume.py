"""``trio-broker consume``: prints the records of topics of any Kafka.

The command reads up to the end that the logs have when it starts; with ``--follow`` it continues with new records. It
joins no group and commits nothing.

Source: kcat's consumer mode and kafka-console-consumer, for the options.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import BinaryIO, Final, TypeAlias

import attrs
import click

from kafka_wire.records.batch import TimestampType
from kafka_wire.records.record import Record
from trio_broker.cli.assignments import TopicSelection, topic_selection
from trio_broker.cli.connecting import keeps_asking_cluster
from trio_broker.cli.escapes import separator
from trio_broker.cli.interrupts import Interrupts
from trio_broker.cli.output import note
from trio_broker.cli.positions import (
    FORMS,
    Boundary,
    Position,
    chosen_partitions,
    known_ranges,
    moved,
    position,
    resolve,
)
from trio_broker.cli.record_format import as_it_is, for_terminal, parse_format, plain_format
from trio_broker.client.fetcher import FetchedBatch, Fetcher
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.common.record_json import record_line
from trio_broker.common.topic_partition import TopicPartition

NULL: Final = b"NULL"

Line: TypeAlias = Callable[[TopicPartition, Record, TimestampType], bytes]
"""Returns the output for one record."""


@click.command("consume")
@click.argument("selections", nargs=-1, required=True, type=topic_selection, metavar="TOPIC[:0,1,2]...")
@click.option("-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this partition.")
@click.option(
    "-o",
    "--from",
    "start",
    type=position,
    metavar="POSITION",
    help=f"The first record: {FORMS}. If not given, earliest, or with --follow latest.",
)
@click.option(
    "--to", "end", type=position, metavar="POSITION", help="The first position not to print; latest if not given."
)
@click.option("--follow", is_flag=True, help="Continue with new records, until Ctrl-C.")
@click.option("-c", "--count", type=click.IntRange(min=1), help="The most records to print.")
@click.option("-K", "--key-separator", type=separator, metavar="TEXT", help="Print keys, with this text after each.")
@click.option("-D", "--delimiter", type=separator, metavar="TEXT", help=r"The text after each record; \n if not given.")
@click.option("-f", "--format", "template", metavar="FORMAT", help=r"The format of a record, such as '%p %o %k=%s\n'.")
@click.option("-Z", "--null", "shows_null", is_flag=True, help="Print NULL for a key or value that is null.")
@click.option("--json", "as_json", is_flag=True, help="Print each record as a line of JSON.")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Whether records of open and aborted transactions are left out.",
)
@keeps_asking_cluster
def consume_command(
    client: KafkaClient,
    selections: tuple[TopicSelection, ...],
    partitions: tuple[int, ...],
    start: Position | None,
    end: Position | None,
    follow: bool,
    count: int | None,
    key_separator: bytes | None,
    delimiter: bytes | None,
    template: str | None,
    shows_null: bool,
    as_json: bool,
    isolation_level: str,
) -> None:
    """Print the records of TOPIC, and with --follow also new ones as they are written.

    \b
    FORMAT has these tokens:
      %t  topic               %k  key, %K its length, -1 for null
      %p  partition           %s  value, %S its length, -1 for null
      %o  offset              %h  headers
      %T  timestamp (ms)      %%  percent
    and the escapes \\n, \\r, \\t, \\0, \\xNN.

    The records of one partition are in their order. The command joins no group and commits no offset. Ctrl-C ends it.
    """
    if follow and end is not None:
        raise click.UsageError("--follow has no end: leave out --to")
    line = chosen_line(template, key_separator, delimiter, shows_null=shows_null, as_json=as_json)
    read_committed = isolation_level == "read_committed"
    wanted = chosen_partitions(client, with_partitions(selections, partitions))
    ranges = known_ranges(client, wanted, read_committed=read_committed)
    start = start or (Boundary.LATEST if follow else Boundary.EARLIEST)
    for each in moved(ranges, start):
        note(each)
    starts = resolve(client, start, ranges)
    # Fixed before the first record is read: the end of a topic that is written to all the time would never be reached.
    ends = None if follow else resolve(client, end or Boundary.LATEST, ranges)
    fetcher = Fetcher(client, starts, read_committed=read_committed, on_lost=note)
    reading = Reading(fetcher, ends, count, line, sys.stdout.buffer)
    with Interrupts() as interrupts:
        try:
            reading.run(interrupts)
        # The normal end with --follow, so exit code 0. Click would print "Aborted!" and exit with 1.
        except KeyboardInterrupt:
            reading.out.flush()


def with_partitions(selections: tuple[TopicSelection, ...], partitions: tuple[int, ...]) -> list[TopicSelection]:
    """Return the topics with the partitions of ``--partition``.

    Raises:
        click.UsageError: ``--partition`` is given, and an argument names partitions as well.
    """
    if partitions and any(each.partitions is not None for each in selections):
        raise click.UsageError("name partitions behind the topic or with --partition, not both")
    return [attrs.evolve(each, partitions=partitions or each.partitions) for each in selections]


def chosen_line(
    template: str | None,
    key_separator: bytes | None,
    delimiter: bytes | None,
    *,
    shows_null: bool,
    as_json: bool,
) -> Line:
    """Return the function that formats a record.

    Raises:
        click.UsageError: the options contradict each other, or the format is not valid.
    """
    if sum((as_json, template is not None, bool(key_separator or delimiter))) > 1:
        raise click.UsageError("choose one form: --json, --format, or --key-separator and --delimiter")
    if as_json:
        return _json_line
    null = NULL if shows_null else b""
    shown = for_terminal if sys.stdout.isatty() else as_it_is
    if template is None:
        form = plain_format(key_separator=key_separator, delimiter=delimiter or b"\n", null=null, shown=shown)
    else:
        try:
            form = parse_format(template, null=null, shown=shown)
        except click.BadParameter as error:
            raise click.BadParameter(error.message, param_hint="--format") from None
    return lambda partition, record, kind: form.line(partition, record)


@attrs.define
class Reading:
    """Prints the records of ``fetcher``: up to ``ends`` unless it is None, and at most ``count`` records."""

    fetcher: Fetcher
    ends: Mapping[TopicPartition, int] | None
    count: int | None
    line: Line
    out: BinaryIO

    def run(self, interrupts: Interrupts) -> None:
        """Return when everything is printed. Ctrl-C raises ``KeyboardInterrupt``, never in the middle of a record."""
        positions = self.fetcher.positions
        self._drop_finished()
        while positions:
            with interrupts.waiting():
                fetched = self.fetcher.fetch()
            for each in fetched:
                for batch in each.batches():
                    if self._print(each.partition, batch):
                        return
                    # The position follows batches, not records: a control batch or one of an aborted transaction has no
                    # records to print, and has to be passed nevertheless.
                    positions[each.partition] = batch.next_offset
            # Once for each round: a reader in a pipe sees records as they arrive, without a system call for each.
            self.out.flush()
            self._drop_finished()

    def _print(self, partition: TopicPartition, batch: FetchedBatch) -> bool:
        """Print the records of a batch; return whether ``count`` records have been printed."""
        end = None if self.ends is None else self.ends[partition]
        for record in batch.records:
            if end is not None and record.offset >= end:
                break
            self.out.write(self.line(partition, record, batch.timestamp_type))
            if self.count is not None:
                self.count -= 1
                if not self.count:
                    self.out.flush()
                    return True
        return False

    def _drop_finished(self) -> None:
        if self.ends is not None:
            for partition, offset in list(self.fetcher.positions.items()):
                if offset >= self.ends[partition]:
                    del self.fetcher.positions[partition]


def _json_line(partition: TopicPartition, record: Record, timestamp_type: TimestampType) -> bytes:
    is_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
    return record_line(partition.topic, partition.partition, record, is_append_time=is_append_time).encode()
