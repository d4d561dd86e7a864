"""The options that all commands about a cluster have, and the client they get from them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import click

from trio_broker import __version__
from trio_broker.cli.failure import fail
from trio_broker.cli.output import let_everything_be_printed
from trio_broker.client.address import Address, parse_addresses
from trio_broker.client.connection import Identity
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import ClientError
from trio_broker.client.kafka_client import KafkaClient

DEFAULT_BOOTSTRAP_SERVER: Final = "127.0.0.1:9092"
"""Where our broker listens unless told otherwise."""

BOOTSTRAP_SERVER_VARIABLE: Final = "TRIO_BROKER_BOOTSTRAP_SERVER"
"""The environment variable that stands in for the option."""

DEFAULT_TIMEOUT_SECONDS: Final = 30.0
"""What Kafka's own tool for groups waits."""

MAX_TIMEOUT_SECONDS: Final = 86_400.0
"""A day; a socket cannot wait much longer than some years, and nobody means to."""

CLIENT_ID: Final = "trio-broker-cli"


def addresses(text: str) -> tuple[Address, ...]:
    """Read ``host:port,host:port…``.

    Raises:
        click.BadParameter: the text is not of that form.
    """
    try:
        return parse_addresses(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def asks_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options to reach a cluster, and a client as its first argument.

    What the cluster refuses, and whatever keeps it from being asked, ends the command with one line.
    """
    return _asks_cluster(command, "How long all of it may take.")


def keeps_asking_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """The same for a command that goes on for as long as there are records."""
    return _asks_cluster(command, "How long the cluster may take to answer, or to come back.")


def _asks_cluster(command: Callable[..., None], timeout_help: str) -> Callable[..., None]:
    @click.option(
        "-b",
        "--bootstrap-server",
        type=addresses,
        default=DEFAULT_BOOTSTRAP_SERVER,
        show_default=True,
        envvar=BOOTSTRAP_SERVER_VARIABLE,
        show_envvar=True,
        metavar="HOST:PORT[,HOST:PORT…]",
        help="A broker that knows the others.",
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
    def run(*arguments: Any, bootstrap_server: tuple[Address, ...], command_timeout: float, **options: Any) -> None:
        let_everything_be_printed()
        identity = Identity(CLIENT_ID, __version__)
        with KafkaClient(bootstrap_server, identity, Deadline(command_timeout)) as client:
            try:
                command(client, *arguments, **options)
            except ClientError as error:
                fail(str(error))

    return run


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the option to print JSON, as ``as_json``."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")(command)
