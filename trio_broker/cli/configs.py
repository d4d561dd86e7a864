"""``trio-broker configs``: the settings of topics and brokers of any Kafka.

A broker never sends the value of a secret; it is shown as ``(secret)``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import click

from kafka_wire.config_resources import ConfigOperation, ConfigResourceType
from kafka_wire.error_codes import ErrorCode
from trio_broker.cli.assignments import key_value
from trio_broker.cli.command_group import CommandGroup
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.consent import dry_run_option
from trio_broker.cli.failure import Failures
from trio_broker.cli.output import Row, print_facts, print_json, print_table
from trio_broker.client.configs import (
    CLUSTER_DEFAULT,
    SOURCES,
    ConfigChange,
    DescribedConfig,
    Resource,
    alter_configs,
    describe_configs,
)
from trio_broker.client.errors import ClientError, Refused
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.topics import list_topics
from trio_broker.common.did_you_mean import did_you_mean

SECRET: Final = "(secret)"

CHANGE_VERBS: Final = {
    ConfigOperation.SET: "set to",
    ConfigOperation.DELETE: "reset",
    ConfigOperation.APPEND: "appended",
    ConfigOperation.SUBTRACT: "subtracted",
}


@click.group(cls=CommandGroup)
def configs() -> None:
    """List, describe and alter the settings of topics and brokers."""


def names_resources(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name topics and brokers."""
    for decorate in (
        click.option("--all-brokers", is_flag=True, help="The dynamic values that hold for every broker."),
        click.option(
            "--broker-logger",
            "broker_loggers",
            type=int,
            multiple=True,
            metavar="ID",
            help="The loggers of a broker: their names are the keys, their levels the values; may be repeated.",
        ),
        click.option("--broker", "brokers", type=int, multiple=True, help="A broker's id; may be repeated."),
        click.option("--topic", "topics", multiple=True, help="A topic's name; may be repeated."),
    ):
        command = decorate(command)
    return command


def chosen_resources(
    topics: Iterable[str], brokers: Iterable[int], broker_loggers: Iterable[int], all_brokers: bool
) -> list[Resource]:
    """Return the topics, brokers and brokers' loggers that the options name.

    Raises:
        click.UsageError: the options name none.
    """
    resources = [Resource(ConfigResourceType.TOPIC, name) for name in topics]
    resources += [Resource(ConfigResourceType.BROKER, str(broker)) for broker in brokers]
    resources += [Resource(ConfigResourceType.BROKER_LOGGER, str(broker)) for broker in broker_loggers]
    if all_brokers:
        resources.append(Resource(ConfigResourceType.BROKER, CLUSTER_DEFAULT))
    if not resources:
        raise click.UsageError("name topics or brokers: --topic, --broker, --broker-logger or --all-brokers")
    return list(dict.fromkeys(resources))


# --- Looking ---


@configs.command("list")
@json_option
@with_client
def list_command(client: KafkaClient, as_json: bool) -> None:
    """List the settings of all topics and brokers that were changed from their defaults."""
    resources = [Resource(ConfigResourceType.BROKER, CLUSTER_DEFAULT)]
    resources += [
        Resource(ConfigResourceType.BROKER, str(node.node_id)) for node in client.attempt(client.brokers).nodes
    ]
    resources += [Resource(ConfigResourceType.TOPIC, topic.name) for topic in list_topics(client)]
    show(client, resources, only_changed=True, as_json=as_json)


@configs.command("describe")
@names_resources
@click.option("--all", "all_entries", is_flag=True, help="Also show settings that were not changed.")
@json_option
@with_client
def describe_command(
    client: KafkaClient,
    topics: tuple[str, ...],
    brokers: tuple[int, ...],
    broker_loggers: tuple[int, ...],
    all_brokers: bool,
    all_entries: bool,
    as_json: bool,
) -> None:
    """Show the changed settings of topics and brokers, or all of them."""
    resources = chosen_resources(topics, brokers, broker_loggers, all_brokers)
    show(client, resources, only_changed=not all_entries, as_json=as_json)


def show(client: KafkaClient, resources: Collection[Resource], *, only_changed: bool, as_json: bool) -> None:
    """Print settings, a row for each."""
    rows = [
        row(resource, entry)
        for resource, entries in describe_configs(client, resources).items()
        for entry in entries
        if entry.is_changed(resource) or not only_changed
    ]
    if as_json:
        print_json(rows)
    else:
        people = [{**each, "name": each["name"] or "(all)", "value": shown_value(each)} for each in rows]
        print_table({"TYPE": "type", "NAME": "name", "KEY": "key", "VALUE": "value", "SOURCE": "source"}, people)


def row(resource: Resource, entry: DescribedConfig) -> dict[str, Any]:
    """Return one setting as a row; ``name`` is empty for the setting of all brokers."""
    return {
        "type": resource.type.name.lower(),
        "name": resource.name,
        "key": entry.name,
        "value": entry.value,
        "source": SOURCES.get(entry.source, str(entry.source)),
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
    }


def shown_value(entry: Row) -> str | None:
    """Return a value for display. An empty one is shown as two quotes, since a missing one is shown as a dash."""
    if entry["sensitive"]:
        return SECRET
    return '""' if entry["value"] == "" else entry["value"]


# --- Changing ---


@configs.command("alter")
@names_resources
@click.option(
    "--set", "assigned", type=key_value, multiple=True, metavar="KEY=VALUE", help="Set a key; may be repeated."
)
@click.option("--delete", "deleted", multiple=True, metavar="KEY", help="Reset a key to its default.")
@click.option("--append", "appended", type=key_value, multiple=True, metavar="KEY=VALUE", help="Add to a list.")
@click.option("--subtract", "subtracted", type=key_value, multiple=True, metavar="KEY=VALUE", help="Take from a list.")
@dry_run_option
@json_option
@with_client
def alter_command(
    client: KafkaClient,
    topics: tuple[str, ...],
    brokers: tuple[int, ...],
    broker_loggers: tuple[int, ...],
    all_brokers: bool,
    assigned: tuple[tuple[str, str], ...],
    deleted: tuple[str, ...],
    appended: tuple[tuple[str, str], ...],
    subtracted: tuple[tuple[str, str], ...],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Change settings. Each topic or broker gets all of the changes, or none of them if one is refused."""
    changes = [ConfigChange(key, ConfigOperation.SET, value) for key, value in assigned]
    changes += [ConfigChange(key, ConfigOperation.DELETE, None) for key in deleted]
    changes += [ConfigChange(key, ConfigOperation.APPEND, value) for key, value in appended]
    changes += [ConfigChange(key, ConfigOperation.SUBTRACT, value) for key, value in subtracted]
    if not changes:
        raise click.UsageError("nothing to change: --set, --delete, --append or --subtract")
    names = [change.name for change in changes]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise click.UsageError(f"{twice!r} is changed twice")
    failures = Failures()
    changed: list[Resource] = []
    for resource in chosen_resources(topics, brokers, broker_loggers, all_brokers):
        try:
            alter_configs(client, resource, changes, validate_only=dry_run)
        except ClientError as error:
            failures.add(f"{error}{misspelt_key(client, resource, names, error)}")
            continue
        changed.append(resource)
    report(changed, changes, dry_run, as_json)
    failures.exit()


def misspelt_key(client: KafkaClient, resource: Resource, names: Iterable[str], error: ClientError) -> str:
    """Return a hint about a misspelt key. The keys to compare with are those of the broker, so it is asked for them."""
    # INVALID_CONFIG for topics and groups, INVALID_REQUEST for brokers (KAFKA-13609).
    if not (isinstance(error, Refused) and error.code in (ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST)):
        return ""
    if "did you mean" in str(error):
        return ""  # the broker has said so
    try:
        known = {entry.name for entry in describe_configs(client, [resource])[resource]}
    except ClientError:
        return ""
    return "".join(did_you_mean(name, known) for name in names if name not in known)


def report(changed: Iterable[Resource], changes: Collection[ConfigChange], dry_run: bool, as_json: bool) -> None:
    """Print the changes, or the changes that would be made."""
    rows: list[Row] = [
        {
            "type": resource.type.name.lower(),
            "name": resource.name,
            "key": change.name,
            "operation": change.operation.name.lower(),
            "value": change.value,
            "dry_run": dry_run,
        }
        for resource in changed
        for change in changes
    ]
    if as_json:
        print_json(rows)
        return
    for resource in changed:
        for change in changes:
            verb = ("would be " if dry_run else "") + CHANGE_VERBS[change.operation]
            print_facts({f"{resource}, {change.name}": f"{verb} {change.value or ''}".rstrip()})
