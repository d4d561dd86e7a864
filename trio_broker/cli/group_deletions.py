"""``trio-broker groups delete | delete-offsets``: the end of groups, or of what they committed.

Both show what would go, and delete it only with ``--execute``.

Source: Kafka's ConsumerGroupCommand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from trio_broker.cli.assignments import TopicSelection
from trio_broker.cli.connecting import asks_cluster, json_option
from trio_broker.cli.failure import Failures, fail
from trio_broker.cli.group_options import (
    DRY_RUN_NOTE,
    check_scope,
    execute_option,
    exit_with,
    outcome_name,
    refuse_members,
    topic_options,
)
from trio_broker.cli.output import note, print_json, print_table
from trio_broker.client.errors import ClientError
from trio_broker.client.group_offsets import delete_offsets, fetch_offsets
from trio_broker.client.groups import delete_group, describe_group
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.topic_partition import TopicPartition

# --- delete ---


@click.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@execute_option
@json_option
@asks_cluster
def delete_command(client: KafkaClient, names: tuple[str, ...], execute: bool, as_json: bool) -> None:
    """Delete groups without members, and their offsets. Shows which would go; --execute deletes them."""
    failures = Failures()
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(names):
        try:
            group = describe_group(client, name)
            refuse_members(group)
            offsets = len(fetch_offsets(client, name))
            if execute:
                delete_group(client, name)
        except ClientError as error:
            failures.add(error)
            continue
        rows.append({"group": name, "state": group.state, "offsets": offsets, "deleted": execute})
    if as_json:
        print_json({"dry_run": not execute, "groups": rows})
    elif rows:
        print_table({"GROUP": "group", "STATE": "state", "OFFSETS": "offsets", "DELETED": "deleted"}, rows)
        if not execute:
            note(DRY_RUN_NOTE)
    failures.exit()


# --- delete-offsets ---


@click.command("delete-offsets")
@click.argument("group_id", metavar="GROUP")
@topic_options
@execute_option
@json_option
@asks_cluster
def delete_offsets_command(
    client: KafkaClient,
    group_id: str,
    selections: tuple[TopicSelection, ...],
    all_topics: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Forget where a group stands. Shows which offsets would go; --execute deletes them.

    Possible for topics that no member is subscribed to.
    """
    check_scope(selections, all_topics)
    describe_group(client, group_id)
    committed = {
        partition: each.offset
        for partition, each in sorted(fetch_offsets(client, group_id).items(), key=lambda each: each[0])
        if all_topics or is_selected(partition, selections)
    }
    if not committed:
        fail(f"group {group_id!r} has no such committed offsets")
    outcomes = delete_offsets(client, group_id, committed) if execute else {}
    rows = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "committed_offset": offset,
            "deleted": execute and outcomes[partition] is None,
            "error": outcome_name(outcomes.get(partition)),
        }
        for partition, offset in committed.items()
    ]
    if as_json:
        print_json({"group": group_id, "dry_run": not execute, "partitions": rows})
    else:
        print_table(
            {"TOPIC": "topic", "PARTITION": "partition", "COMMITTED": "committed_offset", "DELETED": "deleted"}, rows
        )
        if not execute:
            note(DRY_RUN_NOTE)
    exit_with(outcomes)


def is_selected(partition: TopicPartition, selections: Iterable[TopicSelection]) -> bool:
    """Whether a partition is among those that were named."""
    return any(
        each.topic == partition.topic and (each.partitions is None or partition.partition in each.partitions)
        for each in selections
    )
