"""``trio-broker acls``: the access control entries of any Kafka.

Source: Kafka's AclCommand, for what an entry is about; its options are others, as of all of these commands.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any, Final

import click

from kafka_wire.acl import CLUSTER_NAME, WILDCARD, AclOperation, AclPermissionType, PatternType, ResourceType
from trio_broker.cli.command_group import CommandGroup
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.consent import Consent, is_agreed, needs_consent
from trio_broker.cli.failure import Failures, fail
from trio_broker.cli.output import Row, print_json, print_table
from trio_broker.client.acls import AclBindingFilter, Outcomes, create_acls, delete_acls, describe_acls
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.declaration.rights_text import word_of
from trio_broker.security.standard_acl import StandardAcl

OPERATIONS: Final = {
    word_of(operation): operation
    for operation in AclOperation
    if operation not in (AclOperation.UNKNOWN, AclOperation.ANY)
}
"""Operations as they are typed."""

NAMED_TYPES: Final = {
    "topics": ResourceType.TOPIC,
    "groups": ResourceType.GROUP,
    "transactional_ids": ResourceType.TRANSACTIONAL_ID,
    "tokens": ResourceType.DELEGATION_TOKEN,
    "users": ResourceType.USER,
}
"""The type of the resources that each option names."""


@click.group(cls=CommandGroup)
def acls() -> None:
    """List, add and remove access control entries: who may, or may not, do what to which resources."""


def names_entries(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say what entries are about, as the argument ``resources``: types and names."""

    @functools.wraps(command)
    def run(*arguments: Any, is_cluster: bool, **options: Any) -> None:
        resources = [(type_, name) for option, type_ in NAMED_TYPES.items() for name in options.pop(option)]
        if is_cluster:
            resources.append((ResourceType.CLUSTER, CLUSTER_NAME))
        command(*arguments, resources=tuple(dict.fromkeys(resources)), **options)

    decorated: Callable[..., None] = run
    for decorate in (
        click.option(
            "--operation", "operations", type=click.Choice(sorted(OPERATIONS)), multiple=True, metavar="OPERATION",
            help=f"May be repeated: {', '.join(sorted(OPERATIONS))}.",
        ),
        click.option("--prefixed", is_flag=True, help="The names are beginnings of names."),
        click.option("--cluster", "is_cluster", is_flag=True, help="The cluster itself."),
        click.option("--user", "users", multiple=True, metavar="NAME", help="A user whose tokens are meant."),
        click.option("--delegation-token", "tokens", multiple=True, metavar="ID", help="A delegation token."),
        click.option("--transactional-id", "transactional_ids", multiple=True, metavar="ID", help="May be repeated."),
        click.option("--group", "groups", multiple=True, metavar="NAME", help="A group; * means all."),
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; * means all."),
    ):  # fmt: skip
        decorated = decorate(decorated)
    return decorated


# --- list and remove ---

principals_option = click.option(
    "--principal", "principals", multiple=True, metavar="TYPE:NAME", help="As User:alice; may be repeated."
)
host_option = click.option("--host", metavar="ADDRESS", help="The address, or range of addresses, of an entry.")


def filters_of(
    resources: Sequence[tuple[ResourceType, str]],
    operations: Sequence[str],
    principals: Sequence[str],
    host: str | None,
    pattern_type: PatternType,
) -> list[AclBindingFilter]:
    """The filters that match what the options name; an option that is not given matches everything."""
    any_resource: Sequence[tuple[ResourceType, str | None]] = [(ResourceType.ANY, None)]
    any_operation: Sequence[AclOperation] = [AclOperation.ANY]
    anybody: Sequence[str | None] = [None]
    return [
        AclBindingFilter(type_, name, PatternType.ANY if name is None else pattern_type, principal, host, operation)
        for (type_, name), operation, principal in product(
            resources or any_resource, [OPERATIONS[each] for each in operations] or any_operation, principals or anybody
        )
    ]


def found(client: KafkaClient, filters: Iterable[AclBindingFilter]) -> list[StandardAcl]:
    """The entries that any of the filters matches."""
    return sorted({acl for each in filters for acl in describe_acls(client, each)})


@acls.command("list")
@names_entries
@principals_option
@host_option
@json_option
@with_client
def list_command(
    client: KafkaClient, resources: Sequence[tuple[ResourceType, str]], operations: Sequence[str],
    principals: Sequence[str], host: str | None, prefixed: bool, as_json: bool,
) -> None:  # fmt: skip
    """List entries. For a name, those that count for it: of the name, of its beginnings, and of all of its type."""
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.MATCH
    print_acls(found(client, filters_of(resources, operations, principals, host, pattern_type)), as_json)


@acls.command("remove")
@names_entries
@principals_option
@host_option
@needs_consent
@json_option
@with_client
def remove_command(
    client: KafkaClient, resources: Sequence[tuple[ResourceType, str]], operations: Sequence[str],
    principals: Sequence[str], host: str | None, prefixed: bool, consent: Consent, as_json: bool,
) -> None:  # fmt: skip
    """Remove the entries of just these names, principals and operations. Shows them, and asks."""
    if not resources and not principals:
        raise click.UsageError("say which entries: --principal, --topic, --group or another resource")
    pattern_type = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    entries = found(client, filters_of(resources, operations, principals, host, pattern_type))
    if not entries:
        fail("there are no such entries")
    if consent is not Consent.GIVEN:
        print_acls(entries, as_json=False, err=True)
    is_meant = is_agreed(consent, f"Remove these entries ({len(entries)})?")
    report("removed", delete_acls(client, entries) if is_meant else {}, as_json)


# --- add ---


@acls.command("add")
@names_entries
@click.option("--allow", "allowed", multiple=True, metavar="TYPE:NAME", help="Who may: User:alice, or User:*.")
@click.option("--deny", "denied", multiple=True, metavar="TYPE:NAME", help="Who may not, whatever else allows it.")
@click.option(
    "--host", "hosts", multiple=True, default=[WILDCARD], metavar="ADDRESS", help="Where from; without it, everywhere."
)
@json_option
@with_client
def add_command(
    client: KafkaClient, resources: Sequence[tuple[ResourceType, str]], operations: Sequence[str],
    allowed: Sequence[str], denied: Sequence[str], hosts: Sequence[str], prefixed: bool, as_json: bool,
) -> None:  # fmt: skip
    """Add entries: one for each principal, resource, operation and host. One that is there already is no error."""
    if not (allowed or denied) or not resources or not operations:
        raise click.UsageError("an entry has a principal (--allow, --deny), a resource (--topic, …) and an --operation")
    principals = [(each, AclPermissionType.ALLOW) for each in allowed]
    principals += [(each, AclPermissionType.DENY) for each in denied]
    entries = [
        StandardAcl(
            type_, name, PatternType.PREFIXED if prefixed else PatternType.LITERAL,
            principal, host, OPERATIONS[operation], permission,
        )
        for (type_, name), operation, (principal, permission), host in product(resources, operations, principals, hosts)
    ]  # fmt: skip
    report("added", create_acls(client, entries), as_json)


# --- output ---


def row(acl: StandardAcl) -> Row:
    return {
        "resource_type": acl.resource_type.name.lower(),
        "resource_name": acl.resource_name,
        "pattern_type": acl.pattern_type.name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name.lower(),
        "permission": acl.permission_type.name.lower(),
    }


def print_acls(entries: Iterable[StandardAcl], as_json: bool, *, err: bool = False) -> None:
    """Print a row for each entry."""
    rows = [row(acl) for acl in entries]
    if as_json:
        print_json(rows)
        return
    columns = {
        "RESOURCE": "resource_type",
        "NAME": "resource_name",
        "PATTERN": "pattern_type",
        "PRINCIPAL": "principal",
        "HOST": "host",
        "OPERATION": "operation",
        "PERMISSION": "permission",
    }
    print_table(columns, rows, err=err)


def report(verb: str, outcomes: Outcomes, as_json: bool) -> None:
    """Print the entries that were changed, and end the command with what was refused."""
    changed = [acl for acl, refused in outcomes.items() if refused is None]
    if as_json:
        print_acls(changed, as_json)
    else:
        for acl in changed:
            click.echo(f"{verb}: {acl}")
    failures = Failures()
    for refused in filter(None, outcomes.values()):
        failures.add(refused)
    failures.exit()
