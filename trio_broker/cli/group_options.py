"""The common part of the commands that change groups: their options, checks and reports.

Source: Kafka's ConsumerGroupCommand, for the spelling of the options.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import click

from kafka_wire.error_codes import ErrorCode
from trio_broker.cli.assignments import TopicSelection, topic_selection
from trio_broker.cli.failure import Failures
from trio_broker.client.errors import Refused
from trio_broker.client.group_offsets import Outcome
from trio_broker.client.groups import MEMBERLESS_STATES, GroupDescription
from trio_broker.common.topic_partition import TopicPartition


def topic_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name partitions."""
    for decorate in (
        click.option("--all-topics", is_flag=True, help="All partitions that the group has committed offsets for."),
        click.option(
            "--topic",
            "selections",
            type=topic_selection,
            multiple=True,
            metavar="TOPIC[:0,1,2]",
            help="A topic, or some of its partitions; may be repeated.",
        ),
    ):
        command = decorate(command)
    return command


def check_scope(selections: Collection[TopicSelection], all_topics: bool) -> None:
    """Raise ``click.UsageError`` unless exactly one of ``--topic`` and ``--all-topics`` is given."""
    if bool(selections) == all_topics:
        raise click.UsageError("name partitions: --topic or --all-topics")


def refuse_members(group: GroupDescription) -> None:
    """Raise the error of a broker for a group that has members, so that a dry run reports it too."""
    if group.state not in MEMBERLESS_STATES:
        reason = f"it is {group.state}; stop its members first ({len(group.members)})"
        raise Refused(f"group {group.group_id!r}", ErrorCode.NON_EMPTY_GROUP, reason)


def outcome_name(outcome: Outcome) -> str | None:
    """Return Kafka's name of a partition's error code, or None if there was no error."""
    return None if outcome is None else outcome.name


def exit_with(outcomes: Mapping[TopicPartition, Outcome]) -> None:
    """Print each error and, if there was any, end the command with exit code 1."""
    failures = Failures()
    for outcome in outcomes.values():
        if outcome is not None:
            failures.add(outcome)
    failures.exit()
