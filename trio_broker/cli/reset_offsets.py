"""``trio-broker groups reset-offsets``: sets the offsets from which a group continues to read.

The command shows the new offsets, and sets them only with consent (``consent``). It refuses a group that has members,
because they keep their own positions and their next commit would replace the new offsets. The broker refuses too, if a
member joins in the meantime.

Source: Kafka's ConsumerGroupCommand (ConsumerGroupService.resetOffsets).
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from kafka_wire.error_codes import ErrorCode
from trio_broker.cli.assignments import TopicSelection
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.consent import Consent, is_agreed, needs_consent
from trio_broker.cli.failure import fail
from trio_broker.cli.group_options import check_scope, exit_with, outcome_name, refuse_members, topic_options
from trio_broker.cli.output import Row, note, print_json, print_table
from trio_broker.cli.positions import chosen_partitions, known_offsets_at, known_ranges
from trio_broker.client.errors import Refused
from trio_broker.client.group_offsets import Outcome, commit_offsets, fetch_offsets
from trio_broker.client.groups import describe_group
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.common.iso8601 import parse_duration, parse_moment
from trio_broker.common.offset_reset import (
    FromFile,
    FromGroup,
    PlanError,
    PlannedOffset,
    ShiftBy,
    Target,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToMoment,
    ToOffset,
    plan,
    read_offsets,
    to_moment,
)
from trio_broker.common.topic_partition import TopicPartition


@click.command("reset-offsets")
@click.argument("group_id", metavar="GROUP")
@topic_options
@click.option("--to-earliest", is_flag=True, help="To the beginning of the log.")
@click.option("--to-latest", is_flag=True, help="To the end of the log.")
@click.option("--to-current", is_flag=True, help="To the committed offset; with --export, a backup of it.")
@click.option("--to-offset", type=click.IntRange(min=0), metavar="OFFSET", help="To one offset.")
@click.option("--shift-by", type=int, metavar="N", help="Forward by N offsets, backward if N is negative.")
@click.option(
    "--to-datetime", metavar="TIME", help="To the first record from this time on: 2026-01-31T12:00:00 (UTC by default)."
)
@click.option("--by-duration", metavar="DURATION", help="To the first record of this last period: PT90M, P7D, P1DT12H.")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="To the offsets of a file, with lines topic,partition,offset.",
)
@click.option("--from-group", metavar="GROUP", help="To the committed offsets of another group.")
@needs_consent
@click.option("--export", is_flag=True, help="Print the new offsets as lines for --from-file.")
@json_option
@with_client
def reset_offsets_command(
    client: KafkaClient,
    group_id: str,
    selections: tuple[TopicSelection, ...],
    all_topics: bool,
    consent: Consent,
    export: bool,
    as_json: bool,
    **ways: Any,
) -> None:
    """Set the offsets from which a group without members continues. Shows the new offsets, and asks."""
    target = chosen_target(client, group_id, ways)
    if not isinstance(target, FromFile):
        check_scope(selections, all_topics)
    elif selections or all_topics:
        raise click.UsageError("the file names the partitions: leave out --topic and --all-topics")
    check_group(client, group_id)
    committed = committed_offsets(client, group_id)
    partitions = meant_partitions(client, selections, committed, target)
    if not partitions:
        fail(f"group {group_id!r} has no committed offsets to reset")
    try:
        found = known_offsets_at(client, partitions, target.timestamp_ms) if isinstance(target, ToMoment) else {}
        planned = plan(target, partitions, committed, known_ranges(client, partitions), found)
    except PlanError as error:
        fail(str(error))
    # Without --execute, --export only prints: its output goes to a file, and a question would be out of place.
    if export and consent is not Consent.GIVEN:
        export_plan(planned)
        return
    if consent is Consent.ASK:
        print_plan(plan_rows(planned, {}), err=True)
    executed = is_agreed(consent, f"Set these offsets of group {group_id!r}?")
    outcomes: Mapping[TopicPartition, Outcome] = {}
    if executed:
        outcomes = commit_offsets(client, group_id, {each.partition: each.new for each in planned})
    rows = plan_rows(planned, outcomes)
    if export:
        export_plan(planned)
    elif as_json:
        print_json({"group": group_id, "dry_run": not executed, "partitions": rows})
    else:
        print_plan(rows)
    if executed and not (export or as_json):
        note(f"offsets set: {sum(row['error'] is None for row in rows)}")
    exit_with(outcomes)


def committed_offsets(client: KafkaClient, group_id: str) -> dict[TopicPartition, int]:
    """Return every offset that a group has committed."""
    return {partition: each.offset for partition, each in fetch_offsets(client, group_id).items()}


def chosen_target(client: KafkaClient, group_id: str, ways: Mapping[str, Any]) -> Target:
    """Return the target that the options name.

    Raises:
        click.UsageError: none or several of the options are given, or the value of one is not valid.
    """
    # 0 is a valid offset, so only None and a flag that was not given count as missing.
    given = {name: value for name, value in ways.items() if value is not None and value is not False}
    names = ", ".join("--" + name.replace("_", "-") for name in ways)
    if len(given) != 1:
        raise click.UsageError(f"choose one way: {names}")
    [(name, value)] = given.items()
    try:
        match name:
            case "to_earliest":
                return ToEarliest()
            case "to_latest":
                return ToLatest()
            case "to_current":
                return ToCurrent()
            case "to_offset":
                return ToOffset(value)
            case "shift_by":
                return ShiftBy(value)
            case "to_datetime":
                return to_moment(parse_moment(value))
            case "by_duration":
                return to_moment(time.time_ns() // 1_000_000 - parse_duration(value))
            case "from_group":
                if not (offsets := committed_offsets(client, value)):
                    raise PlanError(f"group {value!r} has no committed offsets")
                return FromGroup(value, offsets)
            case _:
                with value.open(encoding="utf-8", newline="") as lines:
                    return FromFile(read_offsets(lines, group_id))
    except (ValueError, PlanError) as error:
        raise click.UsageError(f"--{name.replace('_', '-')}: {error}") from None


def check_group(client: KafkaClient, group_id: str) -> None:
    """Check that a group has no members. A group that does not exist passes, because setting its offsets creates it.

    Raises:
        Refused: the group has members.
    """
    try:
        refuse_members(describe_group(client, group_id))
    except Refused as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        note(f"group {group_id!r} does not exist yet; setting its offsets creates it")


def meant_partitions(
    client: KafkaClient, selections: Collection[TopicSelection], committed: Iterable[TopicPartition], target: Target
) -> set[TopicPartition]:
    """Return the partitions that the file or the options name, or all that the group has committed.

    For ``FromGroup`` these are all that the other group has committed.

    Raises:
        Refused: a topic does not exist.
    """
    if isinstance(target, FromFile):
        return set(target.offsets)
    if selections:
        return chosen_partitions(client, selections)
    return set(target.offsets if isinstance(target, FromGroup) else committed)


def export_plan(planned: Iterable[PlannedOffset]) -> None:
    """Print the new offsets as ``--from-file`` reads them."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerows([each.partition.topic, each.partition.partition, each.new] for each in planned)


def plan_rows(planned: Iterable[PlannedOffset], outcomes: Mapping[TopicPartition, Outcome]) -> list[Row]:
    """Return a row for each partition with its outcome; ``outcomes`` is empty before anything was set."""
    return [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "current_offset": each.current,
            "new_offset": each.new,
            "change": None if each.current is None else each.new - each.current,
            "remark": each.remark or None,
            "error": outcome_name(outcomes.get(each.partition)),
        }
        for each in planned
    ]


def print_plan(rows: Collection[Row], *, err: bool = False) -> None:
    """Print the plan, a row for each partition."""
    columns = {
        "TOPIC": "topic",
        "PARTITION": "partition",
        "CURRENT": "current_offset",
        "NEW": "new_offset",
        "CHANGE": "change",
    }
    if any(row["remark"] for row in rows):
        columns["REMARK"] = "remark"
    print_table(columns, list(rows), err=err)
