"""``trio-broker quotas``: the quotas of users, client ids and addresses, of any Kafka."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from trio_broker.cli.assignments import key_value
from trio_broker.cli.command_group import CommandGroup
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.consent import dry_run_option
from trio_broker.cli.failure import fail
from trio_broker.cli.output import print_facts, print_json, print_table
from trio_broker.client.client_quotas import QuotaEntityName, alter_client_quotas, describe_client_quotas
from trio_broker.client.kafka_client import KafkaClient

TYPES = {"user": "user", "client_id": "client-id", "ip": "ip"}
"""Types of entities by the names of their options."""


@click.group(cls=CommandGroup)
def quotas() -> None:
    """List, set and remove quotas of users, client ids and addresses."""


def names_entity(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that name whom quotas are for, as the argument ``entity``."""

    @click.option("--user", metavar="NAME", help="A user.")
    @click.option("--default-user", is_flag=True, help="Each user without a quota of its own.")
    @click.option("--client-id", metavar="ID", help="A client id; with --user only of this user.")
    @click.option("--default-client-id", is_flag=True, help="Each client id without a quota of its own.")
    @click.option("--ip", metavar="ADDRESS", help="An address.")
    @click.option("--default-ip", is_flag=True, help="Each address without a quota of its own.")
    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        entity = []
        for option, type_ in TYPES.items():
            name, is_default = options.pop(option), options.pop(f"default_{option}")
            if name is not None and is_default:
                raise click.UsageError(f"--{type_} and --default-{type_} exclude each other")
            if name is not None or is_default:
                entity.append(QuotaEntityName(type_, name))
        command(*arguments, entity=tuple(entity), **options)

    return run


def require_entity(entity: Sequence[QuotaEntityName]) -> None:
    if not entity:
        raise click.UsageError("say whose quotas: --user, --client-id, --ip, or --default-user and the like")


@quotas.command("list")
@names_entity
@json_option
@with_client
def list_command(client: KafkaClient, entity: Sequence[QuotaEntityName], as_json: bool) -> None:
    """List all quotas, or those of one user, client id or address."""
    rows = [
        {**names_of(each.entity), "quota": key, "value": plain(value)}
        for each in describe_client_quotas(client, entity)
        for key, value in sorted(each.values.items())
    ]
    if as_json:
        print_json(rows)
    else:
        print_table({"FOR": "for", "QUOTA": "quota", "VALUE": "value"}, rows)


def names_of(entity: Sequence[QuotaEntityName]) -> dict[str, Any]:
    """Whom a row is about: in words, and for machines."""
    parts = [{"type": part.type, "name": part.name} for part in entity]
    return {"for": ", ".join(map(str, entity)), "entity": parts}


def plain(value: float) -> float | int:
    return int(value) if value.is_integer() else value


@quotas.command("set")
@click.argument("assigned", nargs=-1, required=True, type=key_value, metavar="QUOTA=VALUE...")
@names_entity
@dry_run_option
@json_option
@with_client
def set_command(
    client: KafkaClient,
    assigned: Sequence[tuple[str, str]],
    entity: Sequence[QuotaEntityName],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Set quotas, as producer_byte_rate=1048576.

    Bytes a second: producer_byte_rate, consumer_byte_rate. Per cent of a thread: request_percentage. Changes of
    partitions a second: controller_mutation_rate. New connections a second of an address: connection_creation_rate.
    """
    require_entity(entity)
    changes: dict[str, float | None] = {}
    for key, text in assigned:
        try:
            changes[key] = float(text)
        except ValueError:
            raise click.UsageError(f"{key}: {text!r} is no number") from None
    alter(client, entity, changes, dry_run, as_json)


@quotas.command("remove")
@click.argument("keys", nargs=-1, metavar="[QUOTA]...")
@names_entity
@dry_run_option
@json_option
@with_client
def remove_command(
    client: KafkaClient, keys: Sequence[str], entity: Sequence[QuotaEntityName], dry_run: bool, as_json: bool
) -> None:
    """Remove quotas, or all that a user, client id or address has."""
    require_entity(entity)
    wanted = sorted(entity)
    present = [each.values for each in describe_client_quotas(client, entity) if sorted(each.entity) == wanted]
    if not present:
        fail(f"{names_of(entity)['for']} has no quota")
    if missing := [key for key in keys if key not in present[0]]:
        fail(f"{names_of(entity)['for']} has no {missing[0]}, but {', '.join(sorted(present[0]))}")
    alter(client, entity, dict.fromkeys(keys or sorted(present[0])), dry_run, as_json)


def alter(
    client: KafkaClient,
    entity: Sequence[QuotaEntityName],
    changes: Mapping[str, float | None],
    dry_run: bool,
    as_json: bool,
) -> None:
    """Change quotas, or have the change checked, and print it."""
    alter_client_quotas(client, entity, changes, validate_only=dry_run)
    whom = names_of(entity)
    if as_json:
        print_json([{**whom, "quota": key, "value": value, "dry_run": dry_run} for key, value in changes.items()])
        return
    for key, value in changes.items():
        verb = "removed" if value is None else f"set to {plain(value)}"
        print_facts({f"{whom['for']}, {key}": f"{'would be ' if dry_run else ''}{verb}"})
