"""``trio-broker topics purge``: deletes the records of topics and keeps the topics.

Source: Kafka's DeleteRecordsCommand; rpk's ``topic trim-prefix``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import click

from trio_broker.cli.assignments import TopicSelection, topic_selection
from trio_broker.cli.connecting import asks_cluster, json_option
from trio_broker.cli.consent import Consent, is_agreed, needs_consent
from trio_broker.cli.failure import Failures
from trio_broker.cli.output import Row, print_json, print_table
from trio_broker.cli.positions import FORMS, Position, chosen_partitions, known_ranges, position, resolve
from trio_broker.client.errors import Refused
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.records_deletion import delete_records
from trio_broker.log_range import LogRange
from trio_broker.topic_partition import TopicPartition


@click.command("purge")
@click.argument("selections", nargs=-1, required=True, type=topic_selection, metavar="TOPIC[:0,1,2]...")
@click.option(
    "--to",
    "place",
    type=position,
    default="latest",
    show_default=True,
    metavar="PLACE",
    help=f"The new beginning of the logs: {FORMS}.",
)
@needs_consent
@json_option
@asks_cluster
def purge_command(
    client: KafkaClient, selections: tuple[TopicSelection, ...], place: Position, consent: Consent, as_json: bool
) -> None:
    """Delete the first records of the logs, after asking. The topics and their settings stay.

    Records that are written after the question was shown are kept.
    """
    # ``latest`` is resolved to a number here, before the question. The broker's own -1 would mean the end of the log at
    # the time of the deletion, with records that the question did not count.
    ranges = known_ranges(client, chosen_partitions(client, selections))
    targets = resolve(client, place, ranges)
    if consent is Consent.ASK:
        print_rows(partition_rows(ranges, targets, {}), err=True)
    executed = is_agreed(consent, "Delete these records for good?")
    outcomes = delete_records(client, targets) if executed else {}
    rows = partition_rows(ranges, targets, outcomes)
    if as_json:
        print_json({"dry_run": not executed, "partitions": rows})
    else:
        print_rows(rows)
    failures = Failures()
    for outcome in outcomes.values():
        if isinstance(outcome, Refused):
            failures.add(outcome)
    failures.exit()


def partition_rows(
    ranges: Mapping[TopicPartition, LogRange],
    targets: Mapping[TopicPartition, int],
    outcomes: Mapping[TopicPartition, int | Refused],
) -> list[Row]:
    """Return a row for each partition with its outcome; ``outcomes`` is empty before anything was deleted."""
    rows: list[Row] = []
    for partition, log in ranges.items():
        outcome = outcomes.get(partition)
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "earliest_offset": log.earliest,
                "latest_offset": log.latest,
                "new_earliest_offset": outcome if isinstance(outcome, int) else targets[partition],
                "offsets": targets[partition] - log.earliest,
                "deleted": isinstance(outcome, int),
                "error": outcome.name if isinstance(outcome, Refused) else None,
            }
        )
    return rows


def print_rows(rows: Collection[Row], *, err: bool = False) -> None:
    """Print the rows. OFFSETS counts offsets, of which compaction and transaction markers leave fewer records."""
    columns = {
        "TOPIC": "topic",
        "PARTITION": "partition",
        "EARLIEST": "earliest_offset",
        "LATEST": "latest_offset",
        "NEW EARLIEST": "new_earliest_offset",
        "OFFSETS": "offsets",
        "DELETED": "deleted",
    }
    print_table(columns, list(rows), err=err)
