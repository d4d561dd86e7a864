"""``trio-broker groups delete | delete-offsets | remove-member``: deletes groups or some of their committed
offsets, and removes static members.

The commands show what they would do, and do it only with consent (``consent``).

Source: Kafka's ConsumerGroupCommand; KIP-345 for the removal, which Kafka has in its admin API only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import click

from trio_broker.cli.assignments import TopicSelection
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.consent import Consent, is_agreed, needs_consent
from trio_broker.cli.failure import Failures, fail
from trio_broker.cli.group_options import check_scope, exit_with, outcome_name, refuse_members, topic_options
from trio_broker.cli.output import Row, print_json, print_table
from trio_broker.client.errors import ClientError
from trio_broker.client.group_offsets import Outcome, delete_offsets, fetch_offsets
from trio_broker.client.groups import delete_group, describe_group, remove_static_member
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.common.topic_partition import TopicPartition

# --- delete ---


@click.command("delete")
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@needs_consent
@json_option
@with_client
def delete_command(client: KafkaClient, names: tuple[str, ...], consent: Consent, as_json: bool) -> None:
    """Delete groups without members, and their offsets. Shows the groups, and asks."""
    failures = Failures()
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(names):
        try:
            group = describe_group(client, name)
            refuse_members(group)
            rows.append(
                {"group": name, "state": group.state, "offsets": len(fetch_offsets(client, name)), "deleted": False}
            )
        except ClientError as error:
            failures.add(error)
    if rows and consent is Consent.ASK:
        print_groups(rows, err=True)
    # No question if none of the named groups can be deleted.
    executed = bool(rows) and is_agreed(consent, "Delete these groups for good?")
    if executed:
        for row in rows:
            try:
                delete_group(client, row["group"])
                row["deleted"] = True
            except ClientError as error:
                failures.add(error)
    if as_json:
        print_json({"dry_run": not executed, "groups": rows})
    elif rows:
        print_groups(rows)
    failures.exit()


def print_groups(rows: Collection[Row], *, err: bool = False) -> None:
    """Print a row for each group."""
    columns = {"GROUP": "group", "STATE": "state", "OFFSETS": "offsets", "DELETED": "deleted"}
    print_table(columns, list(rows), err=err)


# --- delete-offsets ---


@click.command("delete-offsets")
@click.argument("group_id", metavar="GROUP")
@topic_options
@needs_consent
@json_option
@with_client
def delete_offsets_command(
    client: KafkaClient,
    group_id: str,
    selections: tuple[TopicSelection, ...],
    all_topics: bool,
    consent: Consent,
    as_json: bool,
) -> None:
    """Delete committed offsets of a group. Shows the offsets, and asks.

    Brokers refuse it for topics to which a member of the group is subscribed.
    """
    check_scope(selections, all_topics)
    # Called for its error: a group that does not exist has no offsets either, which would be the less helpful message.
    describe_group(client, group_id)
    committed = {
        partition: each.offset
        for partition, each in sorted(fetch_offsets(client, group_id).items(), key=lambda each: each[0])
        if all_topics or is_selected(partition, selections)
    }
    if not committed:
        fail(f"group {group_id!r} has no committed offsets for these partitions")
    if consent is Consent.ASK:
        print_offsets(offset_rows(committed, {}), err=True)
    executed = is_agreed(consent, f"Delete these offsets of group {group_id!r}?")
    outcomes = delete_offsets(client, group_id, committed) if executed else {}
    rows = offset_rows(committed, outcomes)
    if as_json:
        print_json({"group": group_id, "dry_run": not executed, "partitions": rows})
    else:
        print_offsets(rows)
    exit_with(outcomes)


def offset_rows(committed: Mapping[TopicPartition, int], outcomes: Mapping[TopicPartition, Outcome]) -> list[Row]:
    """Return a row for each committed offset with its outcome; ``outcomes`` is empty before anything was deleted."""
    return [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "committed_offset": offset,
            "deleted": partition in outcomes and outcomes[partition] is None,
            "error": outcome_name(outcomes.get(partition)),
        }
        for partition, offset in committed.items()
    ]


def print_offsets(rows: Collection[Row], *, err: bool = False) -> None:
    """Print a row for each partition."""
    columns = {"TOPIC": "topic", "PARTITION": "partition", "COMMITTED": "committed_offset", "DELETED": "deleted"}
    print_table(columns, list(rows), err=err)


def is_selected(partition: TopicPartition, selections: Iterable[TopicSelection]) -> bool:
    """Whether the options name a partition, by itself or with its whole topic."""
    return any(
        each.topic == partition.topic and (each.partitions is None or partition.partition in each.partitions)
        for each in selections
    )


# --- remove-member ---


@click.command("remove-member")
@click.argument("group_id", metavar="GROUP")
@click.argument("instance_id", metavar="INSTANCE")
@needs_consent
@json_option
@with_client
def remove_member_command(
    client: KafkaClient, group_id: str, instance_id: str, consent: Consent, as_json: bool
) -> None:
    """Remove the static member with a group.instance.id. Its partitions go to the other members. Asks."""
    member = next((each for each in describe_group(client, group_id).members if each.instance_id == instance_id), None)
    if member is None:
        fail(f"group {group_id!r} has no member with the group.instance.id {instance_id!r}")
    row: dict[str, Any] = {
        "group": group_id,
        "instance": instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "removed": False,
    }
    if consent is Consent.ASK:
        print_members([row], err=True)
    if executed := is_agreed(consent, "Remove this member?"):
        remove_static_member(client, group_id, instance_id, "removed with trio-broker groups remove-member")
        row["removed"] = True
    if as_json:
        print_json({"dry_run": not executed, "members": [row]})
    else:
        print_members([row])


def print_members(rows: Collection[Row], *, err: bool = False) -> None:
    """Print a row for each member."""
    columns = {
        "GROUP": "group",
        "INSTANCE": "instance",
        "CLIENT ID": "client_id",
        "HOST": "host",
        "REMOVED": "removed",
    }
    print_table(columns, list(rows), err=err)
