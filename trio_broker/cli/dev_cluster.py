"""``trio-broker dev-cluster``: several brokers in one process, to try what several brokers do.

Their metadata are in an etcd that is started beside them, where one is installed. For a cluster that outlives a
machine, each broker is a ``trio-broker start`` with ``metadata.store`` in etcd.
"""

from __future__ import annotations

import logging
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import click

from trio_broker.cli.log_output import LogFormat, set_up_logging
from trio_broker.cli.start import DEFAULT_ADMIN_PORT, DEFAULT_HOST, parse_overrides, refuse_unknown_overrides
from trio_broker.common.host_port import DEFAULT_PORT, host_port

if TYPE_CHECKING:
    from trio_broker.config.broker_config import BrokerConfig

DEFAULT_DIRECTORY = "trio-broker-cluster"
MOST_BROKERS = 9
"""In one process, which has one event loop: more would only be slower."""


@click.command("dev-cluster")
@click.option("--brokers", type=click.IntRange(1, MOST_BROKERS), default=3, show_default=True, help="How many.")
@click.option(
    "--data-dir", type=click.Path(path_type=Path), default=Path(DEFAULT_DIRECTORY), show_default=True,
    help="The directory of their data, kept for the next start.",
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(0, 65535 - MOST_BROKERS), default=DEFAULT_PORT, show_default=True,
    help="Of the first broker; the others have the next ones. 0 picks any.",
)  # fmt: skip
@click.option(
    "--admin-port", type=click.IntRange(0, 65535 - MOST_BROKERS), default=DEFAULT_ADMIN_PORT, show_default=True,
    help="Of the first broker's admin page, as --port.",
)  # fmt: skip
@click.option(
    "--metadata", type=click.Choice(["etcd", "shared"]),
    help="In etcd, or in one log that the brokers share.  [default: where they were; in etcd, if it is installed]",
)  # fmt: skip
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one key of each broker.")
@click.option("--log-level", default="WARNING", show_default=True, type=click.Choice(["DEBUG", "INFO", "WARNING"]))
def dev_cluster(
    brokers: int,
    data_dir: Path,
    port: int,
    admin_port: int,
    metadata: str | None,
    overrides: tuple[str, ...],
    log_level: str,
) -> None:
    """Run several brokers in this process until SIGTERM, SIGINT or SIGHUP."""
    from trio_broker.broker import StartupError
    from trio_broker.config.errors import ConfigError
    from trio_broker.config.metadata_store_config import LOCAL
    from trio_broker.dev_cluster import MetadataKind, run_dev_cluster

    def configs(store: str) -> list[BrokerConfig]:
        return [
            configured(node_id, data_dir, following(port, node_id), following(admin_port, node_id), store, overrides)
            for node_id in range(1, brokers + 1)
        ]

    form = LogFormat.TEXT
    set_up_logging(form, log_level)
    try:
        # Before anything is started, for its errors.
        for warning in configs(LOCAL)[0].warnings:
            logging.getLogger(__name__).warning("%s", warning)
        kind = None if metadata is None else MetadataKind(metadata)
        run_dev_cluster(PurePath(data_dir), configs, form.announce, kind)
    except StartupError as error:
        form.fail(*error.reasons)
    except ConfigError as error:
        form.fail(str(error))


def following(first_port: int, node_id: int) -> int:
    """The port of a broker; 0, by which the system chooses, for all if it is that of the first."""
    return first_port and first_port + node_id - 1


def configured(
    node_id: int, directory: Path, port: int, admin_port: int, store: str, overrides: tuple[str, ...]
) -> BrokerConfig:
    """The configuration of one of the brokers, whose metadata are in ``store``.

    Raises:
        ConfigError: an override is not valid.
    """
    from trio_broker.config.broker_config import broker_config_of
    from trio_broker.config.static_settings import gather_settings
    from trio_broker.dev_cluster import broker_directory

    own = {
        "node.id": str(node_id),
        "log.dirs": str(broker_directory(PurePath(directory), node_id)),
        "listeners": f"PLAINTEXT://{host_port(DEFAULT_HOST, port)}",
        "admin.listener": host_port(DEFAULT_HOST, admin_port),
        "metadata.store": store,
    }
    settings = gather_settings(None, {**parse_overrides(overrides), **own}, {}, [])
    refuse_unknown_overrides(settings)
    return broker_config_of(settings)
