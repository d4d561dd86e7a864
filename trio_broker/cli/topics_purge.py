"""``trio-broker topics purge``: deletes the records of topics and keeps the topics.

Source: Kafka's DeleteRecordsCommand; rpk's ``topic trim-prefix``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import click

from kafka_wire.config_resources import ConfigResourceType
from trio_broker.cli.assignments import TopicSelection, topic_selection
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.consent import Consent, is_agreed, needs_consent
from trio_broker.cli.failure import Failures
from trio_broker.cli.output import Row, note, print_json, print_table
from trio_broker.cli.positions import FORMS, Position, chosen_partitions, known_ranges, position, resolve
from trio_broker.client.configs import Resource, describe_configs
from trio_broker.client.errors import Refused
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.records_deletion import delete_records
from trio_broker.common.log_range import LogRange
from trio_broker.common.topic_partition import TopicPartition

DELETION_DELAY = "file.delete.delay.ms"


@click.command("purge")
@click.argument("selections", nargs=-1, required=True, type=topic_selection, metavar="TOPIC[:0,1,2]...")
@click.option(
    "--to",
    "beginning",
    type=position,
    default="latest",
    show_default=True,
    metavar="POSITION",
    help=f"The new beginning of the logs: {FORMS}.",
)
@needs_consent
@json_option
@with_client
def purge_command(
    client: KafkaClient, selections: tuple[TopicSelection, ...], beginning: Position, consent: Consent, as_json: bool
) -> None:
    """Delete the first records of the logs, after asking. The topics and their settings stay.

    Records that are written after the question was shown are kept.
    """
    # ``latest`` is resolved to a number here, before the question. The broker's own -1 would mean the end of the log at
    # the time of the deletion, with records that the question did not count.
    ranges = known_ranges(client, chosen_partitions(client, selections))
    targets = resolve(client, beginning, ranges)
    if consent is Consent.ASK:
        print_rows(partition_rows(ranges, targets, {}, {}), err=True)
    executed = is_agreed(consent, "Delete these records for good?")
    outcomes = delete_records(client, targets) if executed else {}
    refused = [partition for partition, outcome in outcomes.items() if isinstance(outcome, Refused)]
    rows = partition_rows(ranges, targets, outcomes, known_ranges(client, refused) if refused else {})
    if as_json:
        print_json({"dry_run": not executed, "partitions": rows})
    else:
        print_rows(rows)
    if len(outcomes) > len(refused):
        note(removal_text(client, {each.topic for each in outcomes}))
    failures = Failures()
    for outcome in outcomes.values():
        if isinstance(outcome, Refused):
            failures.add(outcome)
    failures.exit()


def partition_rows(
    ranges: Mapping[TopicPartition, LogRange],
    targets: Mapping[TopicPartition, int],
    outcomes: Mapping[TopicPartition, int | Refused],
    refused: Mapping[TopicPartition, LogRange],
) -> list[Row]:
    """Return a row for each partition with its outcome; ``outcomes`` is empty before anything was deleted.

    ``refused`` has what the logs of refused partitions are now: their beginning may have moved nevertheless.
    """
    rows: list[Row] = []
    for partition, log in ranges.items():
        outcome = outcomes.get(partition)
        target = refused[partition].earliest if partition in refused else targets[partition]
        rows.append(
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "earliest_offset": log.earliest,
                "latest_offset": log.latest,
                "new_earliest_offset": outcome if isinstance(outcome, int) else target,
                "offsets": targets[partition] - log.earliest,
                "deleted": isinstance(outcome, int),
                "error": outcome.name if isinstance(outcome, Refused) else None,
            }
        )
    return rows


def removal_text(client: KafkaClient, topics: Collection[str]) -> str:
    """When the space of what was deleted is free."""
    resources = [Resource(ConfigResourceType.TOPIC, topic) for topic in sorted(topics)]
    try:
        described = describe_configs(client, resources, [DELETION_DELAY])
    except Refused:  # who may delete records need not be one who may see settings
        described = {}
    delays_ms = {int(entry.value) for entries in described.values() for entry in entries if entry.value is not None}
    delay = f"{max(delays_ms) / 1000:g} s ({DELETION_DELAY})" if delays_ms else DELETION_DELAY
    return f"whole segments leave the disk after {delay}, and at once where it is full"


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
