"""The options of the pipelines that write topics: where to, how packed, to which partitions, and how fast."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from trio_broker.cli.connecting import addresses

if TYPE_CHECKING:
    from trio_broker.client.address import Address
    from trio_broker.client.producer.settings import ProducerSettings

WRITE_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

Command = Callable[..., None]

checkpoint_option = click.option(
    "--checkpoint",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Where the job notes what it did. The same command goes on from there.",
)

row_ids_option = click.option(
    "--row-ids/--no-row-ids",
    default=True,
    show_default=True,
    help="Give each record a header by which one that comes twice, after a crash, can be told.",
)

partitions_option = click.option(
    "--partitions",
    type=click.Choice(["keep", "key"]),
    default="keep",
    show_default=True,
    help="Let records stay in partitions of the same number, or let their keys choose.",
)


def target_options(command: Command) -> Command:
    """Give a command the options of the cluster it writes to."""
    for decorate in (
        click.option(
            "--compression",
            type=click.Choice(WRITE_CODECS),
            default="lz4",
            show_default=True,
            help="How batches are compressed.",
        ),
        click.option(
            "--to-bootstrap-server",
            metavar="HOST:PORT[,HOST:PORT…]",
            help="The cluster to write to.  [default: the one that is read]",
        ),
    ):
        command = decorate(command)
    return command


def rate_options(command: Command) -> Command:
    """Give a command the options of a rate, as ``limit``."""

    @click.option(
        "--max-records-per-second",
        type=click.FloatRange(min=0, min_open=True),
        metavar="COUNT",
        help="Of all tasks together.",
    )
    @click.option(
        "--max-bytes-per-second",
        type=click.FloatRange(min=0, min_open=True),
        metavar="BYTES",
        help="Of keys, values and headers, of all tasks together.",
    )
    @functools.wraps(command)
    def run(
        *arguments: Any, max_records_per_second: float | None, max_bytes_per_second: float | None, **options: Any
    ) -> None:
        from trio_broker.spark.pipelines.token_bucket import RateLimit

        command(*arguments, limit=RateLimit(max_records_per_second, max_bytes_per_second), **options)

    return run


def producer_settings(
    to_bootstrap_server: str | None, default: tuple[Address, ...], compression: str
) -> ProducerSettings:
    """Return how records are written, to the cluster of ``default`` unless another is named.

    Raises:
        click.UsageError: no cluster is named, or by no address.
    """
    from kafka_wire.records.compression import Codec
    from trio_broker.client.producer.settings import ProducerSettings

    servers = default if to_bootstrap_server is None else addresses(to_bootstrap_server)
    if not servers:
        raise click.UsageError("say which cluster to write to: --to-bootstrap-server")
    return ProducerSettings(servers, client_id="trio-broker-spark", codec=Codec[compression.upper()])
