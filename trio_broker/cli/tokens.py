"""``trio-broker tokens``: the delegation tokens of any Kafka.

A token is named by its id; its password is fetched where Kafka's tool asks for it, so that it is in no list of
processes, and is printed once, when it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import click

from trio_broker.cli.command_group import CommandGroup
from trio_broker.cli.connecting import json_option, with_client
from trio_broker.cli.consent import Consent, is_agreed, needs_consent
from trio_broker.cli.failure import fail
from trio_broker.cli.output import print_json, print_table
from trio_broker.client.delegation_tokens import (
    BROKERS_LIMIT,
    DelegationToken,
    create_token,
    describe_tokens,
    expire_token,
    renew_token,
)
from trio_broker.client.kafka_client import KafkaClient

COLUMNS: Final = {"TOKEN": "token", "OWNER": "owner", "RENEWERS": "renewers", "EXPIRES": "expires", "LATEST": "latest"}

YEAR_10000_MS: Final = 253_402_300_800_000
"""From which on Python has no dates. A broker may allow tokens for all that an int64 has."""

Command = TypeVar("Command", bound=Callable[..., None])


@click.group(cls=CommandGroup)
def tokens() -> None:
    """Create, list, prolong and end delegation tokens, by which others log in as a user."""


def lifetime_option(help_text: str) -> Callable[[Command], Command]:
    def give(command: Command) -> Command:
        return click.option("--lifetime", type=click.IntRange(min=1), metavar="SECONDS", help=help_text)(command)

    return give


def in_milliseconds(seconds: int | None) -> int:
    return BROKERS_LIMIT if seconds is None else seconds * 1000


def row(token: DelegationToken) -> dict[str, Any]:
    """What is shown of a token, without its password."""
    return {
        "token": token.token_id,
        "owner": token.owner,
        "renewers": list(token.renewers),
        "expires": time_text(token.expires_at_ms),
        "latest": time_text(token.max_timestamp_ms),
    }


def time_text(timestamp_ms: int) -> str:
    if timestamp_ms >= YEAR_10000_MS:
        return "never"
    return datetime.fromtimestamp(timestamp_ms // 1000, UTC).isoformat().replace("+00:00", "Z")


def token_named(client: KafkaClient, token_id: str) -> DelegationToken:
    found = [token for token in describe_tokens(client) if token.token_id == token_id]
    if not found:
        fail(f"there is no token {token_id!r} that you may see")
    return found[0]


@tokens.command("create")
@click.option("--owner", metavar="USER", help="Whom the token stands for; you, without it.")
@click.option("--renewer", "renewers", multiple=True, metavar="USER", help="Who may prolong and end it, too.")
@lifetime_option("How long it can be prolonged; the broker's limit, without it.")
@json_option
@with_client
def create_command(
    client: KafkaClient, owner: str | None, renewers: Sequence[str], lifetime: int | None, as_json: bool
) -> None:
    """Create a token. Its id and password are for SCRAM, with tokenauth="true"."""
    token = create_token(client, owner, renewers, in_milliseconds(lifetime))
    if as_json:
        print_json({**row(token), "password": token.password})
    else:
        print_table(COLUMNS, [row(token)])
        click.echo(f"password: {token.password}")


@tokens.command("list")
@click.option("--user", "users", multiple=True, metavar="USER", help="Only those that it owns, asked for or may renew.")
@json_option
@with_client
def list_command(client: KafkaClient, users: Sequence[str], as_json: bool) -> None:
    """List the tokens that you may see."""
    rows = [row(token) for token in describe_tokens(client, users)]
    if as_json:
        print_json(rows)
    else:
        print_table(COLUMNS, rows)


@tokens.command("renew")
@click.argument("token_id", metavar="TOKEN")
@lifetime_option("From now on; the broker's limit, without it.")
@json_option
@with_client
def renew_command(client: KafkaClient, token_id: str, lifetime: int | None, as_json: bool) -> None:
    """Prolong a token, for its owner or a renewer."""
    token = token_named(client, token_id)
    expires = time_text(renew_token(client, token, in_milliseconds(lifetime)))
    if as_json:
        print_json({**row(token), "expires": expires})
    else:
        click.echo(f"{token_id}: expires {expires}")


@tokens.command("expire")
@click.argument("token_id", metavar="TOKEN")
@needs_consent
@json_option
@with_client
def expire_command(client: KafkaClient, token_id: str, consent: Consent, as_json: bool) -> None:
    """End a token. Shows it, and asks. Clients that are logged in by it stay so until it would have ended."""
    token = token_named(client, token_id)
    columns = {**COLUMNS, "ENDED": "ended"}
    if consent is Consent.ASK:
        print_table(columns, [row(token)], err=True)
    if executed := is_agreed(consent, "End this token?"):
        expire_token(client, token)
    rows = [{**row(token), "ended": executed}]
    if as_json:
        print_json({"dry_run": not executed, "tokens": rows})
    else:
        print_table(columns, rows)
