"""The options of all commands that send requests to a cluster, and the client that is made of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, TextIO

import click

from trio_broker.cli.failure import fail
from trio_broker.cli.output import let_everything_be_printed
from trio_broker.client.address import Address, parse_addresses
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import ClientError
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.security import ClientSecurity, SecurityKeyError, parse_security
from trio_broker.common.properties import parse_properties

DEFAULT_BOOTSTRAP_SERVER: Final = "127.0.0.1:9092"
"""The default listener of this broker."""

BOOTSTRAP_SERVER_VARIABLE: Final = "TRIO_BROKER_BOOTSTRAP_SERVER"
"""The environment variable that replaces the option."""

DEFAULT_TIMEOUT_SECONDS: Final = 30.0
"""Kafka's default of ``request.timeout.ms`` in its admin client: enough for an election and a few attempts."""

MAX_TIMEOUT_SECONDS: Final = 86_400.0
"""A day. A socket refuses timeouts of more than some years with an error that does not name the option."""

CLIENT_ID: Final = "trio-broker-cli"

PROPERTIES_FILE: Final = click.File(encoding="utf-8")

PROPERTIES_HELP: Final = (
    "A client's properties in Kafka's format: security.protocol, ssl.*, sasl.mechanism, sasl.jaas.config."
)


def addresses(text: str) -> tuple[Address, ...]:
    """Read ``host:port,host:port…``.

    Raises:
        click.BadParameter: the text is not of that form.
    """
    try:
        return parse_addresses(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def client_properties(context: click.Context, parameter: click.Parameter, file: TextIO | None) -> dict[str, str]:
    """Return the properties in a file of a client; there are none without a file.

    Raises:
        click.BadParameter: the file is malformed.
    """
    try:
        return {} if file is None else {each.key: each.value for each in parse_properties(file.read(), file.name)}
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def client_security(context: click.Context, parameter: click.Parameter, file: TextIO | None) -> ClientSecurity:
    """Return what the properties in a file of a client say about security.

    Raises:
        click.BadParameter: they are malformed, or ask for what this client does not have.
    """
    try:
        return parse_security(client_properties(context, parameter, file))
    except SecurityKeyError as error:
        raise click.BadParameter(str(error)) from None


def with_client(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options to reach a cluster, and a client as its first argument.

    An error of the cluster or of the connection ends the command with one line.
    """
    return _with_client(command, "How long the whole command may take.")


def keeps_asking_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """As ``with_client``, for a command without a limit on its duration: the timeout is that of one answer."""
    return _with_client(command, "How long the cluster may take to answer, or to become available again.")


def _with_client(command: Callable[..., None], timeout_help: str) -> Callable[..., None]:
    @click.option(
        "-b",
        "--bootstrap-server",
        type=addresses,
        default=DEFAULT_BOOTSTRAP_SERVER,
        show_default=True,
        envvar=BOOTSTRAP_SERVER_VARIABLE,
        show_envvar=True,
        metavar="HOST:PORT[,HOST:PORT…]",
        help="Any brokers of the cluster; they name the others.",
    )
    @click.option(
        "--command-config",
        "security",
        type=PROPERTIES_FILE,
        callback=client_security,
        metavar="PATH",
        help=PROPERTIES_HELP,
    )
    @click.option(
        "--command-timeout",
        type=click.FloatRange(min=0, min_open=True, max=MAX_TIMEOUT_SECONDS),
        default=DEFAULT_TIMEOUT_SECONDS,
        show_default=True,
        metavar="SECONDS",
        help=timeout_help,
    )
    @functools.wraps(command)
    def run(
        *arguments: Any,
        bootstrap_server: tuple[Address, ...],
        security: ClientSecurity,
        command_timeout: float,
        **options: Any,
    ) -> None:
        let_everything_be_printed()
        settings = ConnectionSettings(bootstrap_server, CLIENT_ID, security)
        with KafkaClient(settings, Deadline(command_timeout)) as client:
            try:
                command(client, *arguments, **options)
            except ClientError as error:
                fail(str(error))

    return run


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option ``--json``, as the argument ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")(command)
