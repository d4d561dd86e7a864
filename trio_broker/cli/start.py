"""``trio-broker start``: arguments → configuration → run.

Whatever is wrong before the broker serves (a bad key, a taken port, a data directory that is locked or not ours) ends
the command with one line that says so.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from trio_broker.cli.failure import fail

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


@click.command()
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A server.properties file, as Kafka's.")
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one key; may be repeated.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the logs lie (log.dirs).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the Kafka listener; 0 picks one.")
@click.option("--admin-port", type=click.IntRange(0, 65535), help="Port of the admin page; 0 picks one.")
@click.option(
    "--log-level", default="INFO", show_default=True, type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"])
)
def start(
    config_file: Path | None,
    overrides: tuple[str, ...],
    data_dir: Path | None,
    port: int | None,
    admin_port: int | None,
    log_level: str,
) -> None:
    """Run a broker and its admin page until SIGTERM or SIGINT."""
    import os

    from trio_broker.broker import StartupError, run_until_signalled
    from trio_broker.config.broker_config import load_broker_config
    from trio_broker.config.errors import ConfigError

    logging.basicConfig(level=log_level, format=LOG_FORMAT, stream=sys.stderr)
    try:
        settings = command_line_settings(overrides, data_dir, port, admin_port)
        config = load_broker_config(config_file, settings, os.environ)
        for warning in config.warnings:
            logging.getLogger(__name__).warning("%s", warning)
        run_until_signalled(config, announce=click.echo)
    except (ConfigError, StartupError) as error:
        fail(str(error))


def command_line_settings(
    overrides: tuple[str, ...], data_dir: Path | None, port: int | None, admin_port: int | None
) -> dict[str, str]:
    """What the command line sets, as configuration keys; the short options win over ``--override``.

    Raises:
        ConfigError: an override is not of the form KEY=VALUE.
    """
    from trio_broker.config.errors import ConfigError

    settings: dict[str, str] = {}
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"--override takes KEY=VALUE, not {override!r}")
        settings[key.strip()] = value.strip()
    if data_dir is not None:
        settings["log.dirs"] = str(data_dir)
    if port is not None:
        settings["listeners"] = f"PLAINTEXT://127.0.0.1:{port}"
    if admin_port is not None:
        settings["admin.listener"] = f"127.0.0.1:{admin_port}"
    return settings
