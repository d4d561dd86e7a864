"""``trio-broker groups``: lists and describes groups of any Kafka, shows their lag, and changes them.

The commands that change a group need consent (``reset_offsets``, ``group_deletions``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import click

from kafka_wire.messages.list_offsets import SpecialTimestamp
from trio_broker.cli.command_group import CommandGroup
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.failure import Failures
from trio_broker.cli.group_deletions import delete_command, delete_offsets_command, remove_member_command
from trio_broker.cli.output import Row, note, print_facts, print_json, print_table
from trio_broker.cli.reset_offsets import reset_offsets_command
from trio_broker.client.errors import Refused
from trio_broker.client.group_offsets import fetch_offsets
from trio_broker.client.groups import GroupDescription, GroupMember, describe_group, list_groups
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.lag import PartitionLag, lags, partitions_of
from trio_broker.client.offsets import find_offsets
from trio_broker.common.topic_partition import TopicPartition

LAG_COLUMNS: Mapping[str, str] = {
    "TOPIC": "topic",
    "PARTITION": "partition",
    "COMMITTED": "committed_offset",
    "LOG END": "log_end_offset",
    "LAG": "lag",
}


@click.group(cls=CommandGroup)
def groups() -> None:
    """List, describe and change consumer groups."""


groups.add_command(reset_offsets_command)
groups.add_command(delete_command)
groups.add_command(delete_offsets_command)
groups.add_command(remove_member_command)


# --- list ---


@groups.command("list")
@click.option("--state", "states", multiple=True, help="Only groups in this state, such as Stable; may be repeated.")
@click.option("--type", "types", multiple=True, help="Only groups of this type, classic or consumer; may be repeated.")
@json_option
@with_client
def list_command(client: KafkaClient, states: tuple[str, ...], types: tuple[str, ...], as_json: bool) -> None:
    """List groups."""
    rows = [
        {
            "group": group.group_id,
            "type": group.group_type or None,
            "state": group.group_state or None,
            "protocol_type": group.protocol_type or None,
        }
        for group in list_groups(client, states=states, types=types)
    ]
    if as_json:
        print_json(rows)
    else:
        print_table({"GROUP": "group", "TYPE": "type", "STATE": "state", "PROTOCOL": "protocol_type"}, rows)


# --- describe ---


@groups.command("describe")
@click.argument("names", nargs=-1, required=True, metavar="GROUP...")
@json_option
@with_client
def describe_command(client: KafkaClient, names: tuple[str, ...], as_json: bool) -> None:
    """Show the state and the members of groups, and the offset, lag and member of each partition."""
    failures = Failures()
    documents: list[Row] = []
    for name in names:
        try:
            group = describe_group(client, name)
            documents.append(document(group, partition_lags(client, group)))
        except Refused as error:
            failures.add(error)
    if as_json:
        print_json(documents)
    else:
        print_descriptions(documents)
    failures.exit()


def partition_lags(client: KafkaClient, group: GroupDescription) -> list[PartitionLag]:
    """Return the lag of every partition that the group has committed or is assigned."""
    committed = fetch_offsets(client, group.group_id)
    ends = find_offsets(client, partitions_of(committed, group.members), SpecialTimestamp.LATEST)
    return lags(committed, group.members, ends)


def document(group: GroupDescription, lagging: Iterable[PartitionLag]) -> Row:
    """Return the JSON document of a group."""
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type or None,
        "assignor": group.assignor or None,
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "coordinator": {"node": group.coordinator.node_id, "address": str(group.coordinator.address)},
        "members": [member_row(member) for member in group.members],
        "partitions": [lag_row(lag) for lag in lagging],
    }


def member_row(member: GroupMember) -> dict[str, Any]:
    """Return the row of a member; ``assigned`` is None if its assignment is not a consumer's."""
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        # Kafka's brokers put a slash before the address, as Java's InetAddress prints it.
        "host": member.host.removeprefix("/"),
        "epoch": member.epoch,
        "protocol": "classic" if member.is_classic else "consumer",
        "subscribed_topics": None if member.subscribed_topics is None else list(member.subscribed_topics),
        "subscribed_regex": member.subscribed_regex,
        "assigned": partition_rows(member.assigned),
        "target": partition_rows(member.target),
    }


def partition_rows(partitions: Iterable[TopicPartition] | None) -> list[Row] | None:
    """Return the rows of partitions."""
    if partitions is None:
        return None
    return [{"topic": each.topic, "partition": each.partition} for each in partitions]


def lag_row(lag: PartitionLag) -> dict[str, Any]:
    """Return the lag of one partition."""
    return {
        "topic": lag.partition.topic,
        "partition": lag.partition.partition,
        "committed_offset": lag.committed_offset,
        "log_end_offset": lag.log_end_offset,
        "lag": lag.lag_records,
        "member": None if lag.member is None else lag.member.member_id,
        "client": None if lag.member is None else lag.member.client_id,
        "host": None if lag.member is None else lag.member.host.removeprefix("/"),
        "problem": lag.problem,
    }


def print_descriptions(documents: Collection[Row]) -> None:
    """Print for each group a line of facts, and tables of its members and partitions."""
    for number, group in enumerate(documents):
        if number:
            click.echo()
        coordinator = f"{group['coordinator']['node']} ({group['coordinator']['address']})"
        facts = {"group": group["group"], "type": group["type"], "state": group["state"], "assignor": group["assignor"]}
        if group["epoch"] is not None:
            facts["epoch"] = group["epoch"]
        print_facts({**facts, "coordinator": coordinator, "members": len(group["members"])})
        if group["members"]:
            click.echo()
            print_members(group["members"])
        if group["partitions"]:
            click.echo()
            print_table({**LAG_COLUMNS, "CLIENT": "client", "HOST": "host", "MEMBER": "member"}, group["partitions"])
            print_errors(group["partitions"])


def print_members(members: Collection[Row]) -> None:
    """Print a table of members, with the assignment of each in a short form: ``orders:0,1``."""
    shown = [{**member, "assigned": short(member["assigned"])} for member in members]
    columns = {"MEMBER": "member", "INSTANCE": "instance", "CLIENT": "client", "HOST": "host"}
    if any(member["epoch"] is not None for member in members):
        columns |= {"EPOCH": "epoch", "PROTOCOL": "protocol"}
    print_table({**columns, "ASSIGNED": "assigned"}, shown)


def short(partitions: Iterable[Row] | None) -> str:
    """Return partitions in the form that ``reset-offsets --topic`` accepts, separated by blanks."""
    if partitions is None:
        return "(not a consumer's)"
    by_topic: dict[str, list[str]] = {}
    for each in partitions:
        by_topic.setdefault(each["topic"], []).append(str(each["partition"]))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items())


# --- lag ---


@groups.command("lag")
@click.argument("names", nargs=-1, metavar="[GROUP]...")
@json_option
@with_client
def lag_command(client: KafkaClient, names: tuple[str, ...], as_json: bool) -> None:
    """Show the lag of groups by partition or, if no group is named, the sum of the lag of each group."""
    failures = Failures()
    rows: list[Row] = []
    for name in names or [group.group_id for group in list_groups(client, states=(), types=())]:
        try:
            group = describe_group(client, name)
            lagging = [lag_row(lag) for lag in partition_lags(client, group)]
        except Refused as error:
            failures.add(error)
            continue
        rows += [{"group": name, **row} for row in lagging] if names else [total(group, lagging)]
    if as_json:
        print_json(rows)
    elif names:
        print_table({"GROUP": "group", **LAG_COLUMNS}, rows)
        print_errors(rows)
    else:
        columns = {"GROUP": "group", "STATE": "state", "PARTITIONS": "partition_count"}
        print_table({**columns, "UNKNOWN": "partitions_without_lag", "LAG": "lag"}, rows)
    failures.exit()


def total(group: GroupDescription, lagging: Collection[Row]) -> Row:
    """Return the sum of a group's lag, and the number of partitions that it leaves out.

    Those are the partitions without a committed offset, and those whose end is unknown.
    """
    known = [row["lag"] for row in lagging if row["lag"] is not None]
    return {
        "group": group.group_id,
        "state": group.state,
        "partition_count": len(lagging),
        "partitions_without_lag": len(lagging) - len(known),
        "lag": sum(known) if known else None,
    }


def print_errors(rows: Iterable[Row]) -> None:
    """Print why the end of a log is unknown."""
    for row in rows:
        if row["problem"]:
            note(row["problem"])
