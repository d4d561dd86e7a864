"""``trio-broker topics``: lists, describes, creates, alters, purges and deletes topics of any Kafka.

Changes that cannot be undone, deletions and more partitions, need consent (``consent``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import click

from kafka_wire.config_resources import ConfigResourceType
from kafka_wire.error_codes import ErrorCode
from kafka_wire.limits import MAX_PARTITION_COUNT, MAX_REPLICATION_FACTOR
from kafka_wire.messages.create_topics import BROKER_DEFAULT
from kafka_wire.primitives import NO_UUID, uuid_text
from trio_broker.cli.assignments import key_value
from trio_broker.cli.command_group import CommandGroup
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.consent import Consent, dry_run_option, is_agreed, needs_consent
from trio_broker.cli.failure import Failures
from trio_broker.cli.output import Row, note, print_facts, print_json, print_table
from trio_broker.cli.replicas import reassign_command
from trio_broker.cli.topics_purge import purge_command
from trio_broker.client.configs import Resource, describe_configs
from trio_broker.client.errors import ClientError, Refused
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.offsets import find_ranges
from trio_broker.client.topic_changes import add_partitions, create_topic, delete_topic
from trio_broker.client.topics import TopicDescription, describe_topics, find_topics, list_topics
from trio_broker.common.log_range import LogRange
from trio_broker.common.topic_partition import TopicPartition

PARTITIONS = click.IntRange(1, MAX_PARTITION_COUNT)

Ranges = Mapping[TopicPartition, LogRange | Refused]


@click.group(cls=CommandGroup)
def topics() -> None:
    """List, describe, create, alter, purge and delete topics."""


topics.add_command(purge_command)
topics.add_command(reassign_command)


# --- Looking ---


@topics.command("list")
@click.option("--exclude-internal", is_flag=True, help="Leave out Kafka's own topics.")
@json_option
@with_client
def list_command(client: KafkaClient, exclude_internal: bool, as_json: bool) -> None:
    """List topics."""
    rows = [summary(topic) for topic in list_topics(client) if not (exclude_internal and topic.is_internal)]
    if as_json:
        print_json(rows)
    else:
        print_table(
            {
                "TOPIC": "name",
                "PARTITIONS": "partition_count",
                "REPLICATION": "replication_factor",
                "INTERNAL": "internal",
            },
            rows,
        )


@topics.command("describe")
@click.argument("names", nargs=-1, metavar="[TOPIC]...")
@json_option
@with_client
def describe_command(client: KafkaClient, names: tuple[str, ...], as_json: bool) -> None:
    """Show the partitions of topics with their offsets, and the changed settings. Without names, of all topics."""
    failures = Failures()
    described = chosen_topics(client, names, failures)
    overrides = changed_configs(client, described)
    ranges = find_ranges(client, all_partitions(described))
    documents = [document(topic, overrides[topic.name], ranges) for topic in described]
    if as_json:
        print_json(documents)
    else:
        print_descriptions(documents)
    failures.exit()


def chosen_topics(client: KafkaClient, names: Collection[str], failures: Failures) -> list[TopicDescription]:
    """Return the named topics that exist, and add the others to ``failures``; without names, return all topics."""
    if not names:
        return list_topics(client)
    chosen: list[TopicDescription] = []
    for found in find_topics(client, names).values():
        if isinstance(found, Refused):
            failures.add(found)
        else:
            chosen.append(found)
    return chosen


def changed_configs(client: KafkaClient, described: Iterable[TopicDescription]) -> dict[str, dict[str, str | None]]:
    """Return the settings of each topic that override those of the broker."""
    resources = [Resource(ConfigResourceType.TOPIC, topic.name) for topic in described]
    return {
        resource.name: {entry.name: entry.value for entry in entries if entry.is_changed(resource)}
        for resource, entries in describe_configs(client, resources).items()
    }


def all_partitions(described: Iterable[TopicDescription]) -> list[TopicPartition]:
    """Return every partition of some topics."""
    return [TopicPartition(topic.name, each.index) for topic in described for each in topic.partitions]


def summary(topic: TopicDescription) -> Row:
    """Return the row of a topic in a list."""
    return {
        "name": topic.name,
        "topic_id": None if topic.topic_id == NO_UUID else uuid_text(topic.topic_id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
    }


def document(topic: TopicDescription, configs: Mapping[str, str | None], ranges: Ranges) -> Row:
    """Return the JSON document of a topic."""
    partitions: list[Row] = []
    for each in topic.partitions:
        log = ranges[TopicPartition(topic.name, each.index)]
        partitions.append(
            {
                "partition": each.index,
                "leader": each.leader_id if each.leader_id >= 0 else None,
                "leader_epoch": each.leader_epoch if each.leader_epoch >= 0 else None,
                "replicas": list(each.replicas),
                "in_sync_replicas": list(each.in_sync_replicas),
                "offline_replicas": list(each.offline_replicas),
                "earliest_offset": None if isinstance(log, Refused) else log.earliest,
                "latest_offset": None if isinstance(log, Refused) else log.latest,
            }
        )
    return {**summary(topic), "configs": dict(configs), "partitions": partitions}


def print_descriptions(documents: Iterable[Row]) -> None:
    """Print for each topic a line of facts and a table of its partitions."""
    columns = {
        "PARTITION": "partition",
        "LEADER": "leader",
        "EPOCH": "leader_epoch",
        "REPLICAS": "replicas",
        "IN SYNC": "in_sync_replicas",
        "OFFLINE": "offline_replicas",
        "EARLIEST": "earliest_offset",
        "LATEST": "latest_offset",
    }
    for number, topic in enumerate(documents):
        if number:
            click.echo()
        configs = [f"{key}={value}" for key, value in topic["configs"].items()]
        print_facts({"topic": topic["name"], "id": topic["topic_id"], "configs": configs})
        print_table(columns, topic["partitions"])


# --- Changing ---


@topics.command("create")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option(
    "--partitions", type=PARTITIONS, help="The number of partitions; the broker's num.partitions if not given."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, MAX_REPLICATION_FACTOR),
    help="The replicas of each partition; the broker's default if not given.",
)
@click.option(
    "--config", "configs", type=key_value, multiple=True, metavar="KEY=VALUE", help="A setting; may be repeated."
)
@click.option("--if-not-exists", is_flag=True, help="An existing topic is no error.")
@dry_run_option
@json_option
@with_client
def create_command(
    client: KafkaClient,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[tuple[str, str], ...],
    if_not_exists: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Create topics."""
    failures = Failures()
    rows: list[Row] = []
    for name in names:
        outcome = "would be created" if dry_run else "created"
        try:
            create_topic(
                client,
                name,
                partitions=partitions or BROKER_DEFAULT,
                replication_factor=replication_factor or BROKER_DEFAULT,
                configs=dict(configs),
                validate_only=dry_run,
            )
        except ClientError as error:
            outcome = "exists"
            if not (if_not_exists and isinstance(error, Refused) and error.code == ErrorCode.TOPIC_ALREADY_EXISTS):
                failures.add(error)
                continue
        rows.append({"name": name, "outcome": outcome})
    report(rows, as_json)
    failures.exit()


@topics.command("alter")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--partitions", type=PARTITIONS, required=True, help="The new total number of partitions.")
@needs_consent
@json_option
@with_client
def alter_command(
    client: KafkaClient, names: tuple[str, ...], partitions: int, consent: Consent, as_json: bool
) -> None:
    """Add partitions, after asking.

    Partitions cannot be removed again, and records of a key may go to another partition than before.
    """
    failures = Failures()
    rows: list[Row] = []
    chosen = chosen_topics(client, names, failures)
    if consent is Consent.ASK:
        for topic in chosen:
            note(f"topic {topic.name!r}: from {len(topic.partitions)} to {partitions} partitions")
    executed = bool(chosen) and is_agreed(consent, "Add partitions for good?")
    # A dry run asks the broker too, with ``validate_only``, so it reports the same errors.
    for topic in chosen:
        try:
            add_partitions(client, topic.name, count=partitions, validate_only=not executed)
        except ClientError as error:
            failures.add(error)
            continue
        verb = "went" if executed else "would go"
        rows.append({"name": topic.name, "outcome": f"{verb} from {len(topic.partitions)} to {partitions} partitions"})
    report(rows, as_json)
    failures.exit()


@topics.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--if-exists", is_flag=True, help="A missing topic is no error.")
@needs_consent
@json_option
@with_client
def delete_command(
    client: KafkaClient, names: tuple[str, ...], if_exists: bool, consent: Consent, as_json: bool
) -> None:
    """Delete topics with all of their records, after asking. Nothing is deleted if one of the names is wrong."""
    doomed = list(existing(client, names, if_exists))
    if consent is not Consent.GIVEN:
        show_doomed(client, doomed)
    # No question if there is nothing to delete, as with --if-exists and only missing topics.
    executed = bool(doomed) and is_agreed(consent, "Delete these topics for good?")
    failures = Failures()
    rows: list[Row] = []
    for topic in doomed:
        if executed:
            try:
                delete_topic(client, topic.name)
            except ClientError as error:
                failures.add(error)
                continue
        rows.append({"name": topic.name, "outcome": "deleted" if executed else "would be deleted"})
    report(rows, as_json)
    failures.exit()


def existing(client: KafkaClient, names: Collection[str], if_exists: bool) -> Iterable[TopicDescription]:
    """Return the named topics that exist.

    Raises:
        Refused: a topic is missing and ``if_exists`` is False.
    """
    if not if_exists:
        return describe_topics(client, names).values()
    found = find_topics(client, names).values()
    return [each for each in found if isinstance(each, TopicDescription)]


def show_doomed(client: KafkaClient, doomed: Collection[TopicDescription]) -> None:
    """Print the topics that would be deleted, with their numbers of partitions and records."""
    ranges = find_ranges(client, all_partitions(doomed))
    for topic in doomed:
        logs = [ranges[partition] for partition in all_partitions([topic])]
        known = [log for log in logs if isinstance(log, LogRange)]
        offsets = sum(log.latest - log.earliest for log in known)
        # Fewer records than offsets after a compaction; more, if the range of some partition is unknown.
        at_most = "up to " if len(known) == len(logs) else "more than "
        note(f"topic {topic.name!r}: {len(logs)} partitions, {at_most}{offsets} records")


def report(rows: Collection[Row], as_json: bool) -> None:
    """Print the outcome for each topic."""
    if as_json:
        print_json(list(rows))
    else:
        for row in rows:
            print_facts({row["name"]: row["outcome"]})
