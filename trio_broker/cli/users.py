"""``trio-broker users``: who logs in by SCRAM, with which rights, in any Kafka.

The protocol has no request for both, so the entries come first: a user who can log in has all rights. What was made is
taken back where the password is refused.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

import click

from kafka_wire.acl import WILDCARD
from kafka_wire.error_codes import ErrorCode
from kafka_wire.sasl.scram import ScramMechanism
from trio_broker.cli.command_group import CommandGroup
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.consent import Consent, is_agreed, needs_consent
from trio_broker.cli.failure import fail
from trio_broker.cli.output import print_json, print_table
from trio_broker.cli.passwords import password_in, read_password
from trio_broker.client.acls import AclBindingFilter, create_acls, delete_acls, describe_acls
from trio_broker.client.errors import ClientError, Refused
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.scram_users import delete_passwords, describe_users, set_password
from trio_broker.declaration.rights_text import (
    FORM,
    GrantedRight,
    group_right,
    parse_right,
    right_text,
    transactional_right,
)
from trio_broker.security.new_acls import entry_of, principal_of
from trio_broker.security.standard_acl import StandardAcl

PASSWORD_BYTES: Final = 18
"""Of a password that is made here, 24 characters: nobody guesses 144 bits."""

STANDARD_INPUT: Final = "-"

Command = TypeVar("Command", bound=Callable[..., None])


@click.group(cls=CommandGroup)
def users() -> None:
    """List, create and delete users who log in by SCRAM, and set their passwords."""


def right_of(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> list[GrantedRight]:
    try:
        return [parse_right(text) for text in texts]
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def mechanism_option(help_text: str) -> Callable[[Command], Command]:
    names = click.Choice([each.value for each in ScramMechanism])

    def give(command: Command) -> Command:
        return click.option("--mechanism", type=names, help=help_text)(command)

    return give


def password_option(command: Command) -> Command:
    return click.option(
        "--password-file",
        metavar="PATH",
        help="The password, in a file, or - for standard input. Without it one is made, and printed once.",
    )(command)


def chosen_password(path: str | None) -> str:
    """Return the password of the option; a new one without it."""
    if path is None:
        return secrets.token_urlsafe(PASSWORD_BYTES)
    try:
        if path == STANDARD_INPUT:
            return password_in(sys.stdin.buffer.read(), "standard input")
        return read_password(path)
    except ValueError as error:
        fail(str(error))


def entry_text(acl: StandardAcl) -> str:
    """An entry in the words of the options, as far as they have them."""
    right = GrantedRight(acl.operation, acl.resource_type, acl.resource_name, acl.pattern_type, acl.is_deny)
    where = "" if acl.host == WILDCARD else f" from {acl.host}"
    return f"{right_text(right)}{where}"


# --- list ---


@users.command("list")
@json_option
@with_client
def list_command(client: KafkaClient, as_json: bool) -> None:
    """List users with a password or an access control entry."""
    mechanisms = describe_users(client)
    rights: dict[str, list[str]] = {name: [] for name in mechanisms}
    for acl in entries(client):
        rights.setdefault(acl.principal.removeprefix("User:"), []).append(entry_text(acl))
    rows = [
        {
            "user": name,
            "mechanisms": [each.value for each in mechanisms.get(name, [])],
            "rights": sorted(rights[name]),
        }
        for name in sorted(rights)
    ]
    if as_json:
        print_json(rows)
    else:
        print_table({"USER": "user", "MECHANISMS": "mechanisms", "RIGHTS": "rights"}, rows)


def entries(client: KafkaClient, principal: str | None = None) -> list[StandardAcl]:
    """The entries about a principal, or about all; none where there is no authorizer."""
    try:
        return describe_acls(client, AclBindingFilter(principal=principal))
    except Refused as error:
        if error.code == ErrorCode.SECURITY_DISABLED:
            return []
        raise


# --- create ---


@users.command("create")
@click.argument("name", metavar="USER")
@click.argument("further", nargs=-1, metavar="", callback=right_of)
@click.option(
    "--may",
    multiple=True,
    callback=right_of,
    metavar=f"{FORM}...",
    help="A right, as write:orders; a topic may end in *. Several may follow each other.",
)
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="A consumer group that it may be a member of.")
@click.option("--transactional-id", "transactional_ids", multiple=True, help="An id of transactions that it may use.")
@mechanism_option("SCRAM-SHA-512 if not given.")
@password_option
@json_option
@with_client
def create_command(
    client: KafkaClient,
    name: str,
    further: list[GrantedRight],
    may: list[GrantedRight],
    groups: tuple[str, ...],
    transactional_ids: tuple[str, ...],
    mechanism: str | None,
    password_file: str | None,
    as_json: bool,
) -> None:
    """Create a user with a password and no rights but those that are named.

    The rights are made first, then the password; where that is refused the rights are taken back. A command that is
    killed between the two leaves rights of a user who cannot log in.
    """
    by = ScramMechanism(mechanism or ScramMechanism.SHA_512.value)
    password = chosen_password(password_file)
    if describe_users(client, name):
        fail(f"user {name!r} exists; trio-broker users password sets another password")
    wanted = [
        entry_of(right, name)
        for right in (*may, *further, *map(group_right, groups), *map(transactional_right, transactional_ids))
    ]
    made = make_entries(client, name, wanted)
    try:
        set_password(client, name, password, by)
    except ClientError as error:
        # What has no answer may have been done.
        fail(f"{error}{taken_back(client, name, made, () if isinstance(error, Refused) else (by,))}")
    report(name, "created", password if password_file is None else None, as_json=as_json, rights=wanted)


def make_entries(client: KafkaClient, name: str, wanted: list[StandardAcl]) -> list[StandardAcl]:
    """Create all entries or none; return those that were not there before."""
    if not wanted:
        return []
    before = set(describe_acls(client, AclBindingFilter(principal=principal_of(name))))
    made = [each for each in wanted if each not in before]
    try:
        refused = [error for error in create_acls(client, wanted).values() if error is not None]
    except ClientError as error:
        fail(f"{error}{taken_back(client, name, made)}")
    if refused:
        fail(f"{refused[0]}{taken_back(client, name, made)}")
    return made


def remove_entries(client: KafkaClient, acls: Sequence[StandardAcl]) -> None:
    """Remove entries; one that is gone is no error.

    Raises:
        ClientError: one may not be removed, or there is no answer.
    """
    for refused in filter(None, delete_acls(client, acls).values() if acls else ()):
        raise refused


def taken_back(
    client: KafkaClient, name: str, made: Iterable[StandardAcl], passwords: Iterable[ScramMechanism] = ()
) -> str:
    """Undo what was made; return what is to be added to the reason of the failure."""
    try:
        delete_passwords(client, name, passwords)
        remove_entries(client, list(made))
    except ClientError as error:
        return f"; taking back what was made has failed as well ({error}): trio-broker users delete {name}"
    return "; nothing was created"


def report(name: str, done: str, password: str | None, *, as_json: bool, rights: Iterable[StandardAcl] = ()) -> None:
    """Print what was done, and a password that nobody knows yet."""
    texts = [entry_text(each) for each in rights]
    if as_json:
        secret = {} if password is None else {"password": password}
        print_json({"user": name, **secret, "rights": texts})
        return
    click.echo(f"{name}: {done}{', may ' if texts else ''}{' '.join(texts)}")
    if password is not None:
        click.echo(f"password: {password}")


# --- password ---


@users.command("password")
@click.argument("name", metavar="USER")
@mechanism_option("Only for this one; without it, for all that the user has.")
@password_option
@json_option
@with_client
def password_command(
    client: KafkaClient, name: str, mechanism: str | None, password_file: str | None, as_json: bool
) -> None:
    """Set another password. Connections that are logged in go on."""
    password = chosen_password(password_file)
    has = describe_users(client, name).get(name, [])
    if not has:
        fail(f"there is no user {name!r} with a password; trio-broker users create makes one")
    for each in has if mechanism is None else [ScramMechanism(mechanism)]:
        set_password(client, name, password, each)
    report(name, "has another password", password if password_file is None else None, as_json=as_json)


# --- delete ---


@users.command("delete")
@click.argument("name", metavar="USER")
@needs_consent
@json_option
@with_client
def delete_command(client: KafkaClient, name: str, consent: Consent, as_json: bool) -> None:
    """Delete a user's passwords and every entry about it, first the passwords. Shows them, and asks.

    Quotas stay. A connection that is logged in goes on, without rights.
    """
    passwords = describe_users(client, name).get(name, [])
    acls = entries(client, principal_of(name))
    if not passwords and not acls:
        fail(f"there is no user {name!r}, and no entry about it")
    row = {"user": name, "mechanisms": [each.value for each in passwords], "rights": sorted(map(entry_text, acls))}
    columns = {"USER": "user", "MECHANISMS": "mechanisms", "RIGHTS": "rights", "DELETED": "deleted"}
    if consent is Consent.ASK:
        print_table(columns, [row], err=True)
    if executed := is_agreed(consent, "Delete this user?"):
        delete_passwords(client, name, passwords)
        remove_entries(client, acls)
    rows = [{**row, "deleted": executed}]
    if as_json:
        print_json({"dry_run": not executed, "users": rows})
    else:
        print_table(columns, rows)
