"""``trio-broker start``: reads the configuration and runs the broker.

An error before the broker serves (a bad key, a port in use, a data directory that is locked or belongs to another
broker) ends the command with one line. A key that this broker does not have is an error on the command line, where it
is a misspelling, and a warning in a file, which may be written for Kafka.

The exit code is 0 only after a clean stop: not when a second signal cut the stop short, nor when a disk has failed.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trio_broker.cli.failure import fail

if TYPE_CHECKING:
    from trio_broker.config.broker_config import BrokerConfig
    from trio_broker.config.static_settings import SettingsFile, StaticSettings

LOG_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


@click.command()
@click.option(
    "--config", "config_file", type=click.Path(path_type=Path), help="A server.properties file in Kafka's format."
)
@click.option("--override", "overrides", multiple=True, metavar="KEY=VALUE", help="Set one key; may be repeated.")
@click.option("--data-dir", type=click.Path(path_type=Path), help="The directory of the logs (log.dirs).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the Kafka listener on 127.0.0.1; 0 picks one.")
@click.option("--admin-port", type=click.IntRange(0, 65535), help="Port of the admin page on 127.0.0.1; 0 picks one.")
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
    """Run a broker and its admin page until SIGTERM, SIGINT or SIGHUP."""
    logging.basicConfig(level=log_level, format=LOG_FORMAT, stream=sys.stderr)
    run(configured(config_file, overrides, data_dir, port, admin_port))


# Functions import what they need: ``trio-broker --help`` and completion need no broker, nor does a mistake in the
# configuration, which is reported before the broker is loaded, the longest part of a start.


def configured(
    config_file: Path | None,
    overrides: tuple[str, ...],
    data_dir: Path | None,
    port: int | None,
    admin_port: int | None,
) -> BrokerConfig:
    """Return the configuration; end the command where something is wrong with it."""
    import os

    from trio_broker.config.broker_config import broker_config_of
    from trio_broker.config.errors import ConfigError
    from trio_broker.config.static_settings import gather_settings

    try:
        file = None if config_file is None else read_settings_file(config_file)
        settings = gather_settings(file, parse_overrides(overrides), os.environ)
        refuse_unknown_overrides(settings)
        apply_options(settings, data_dir, port, admin_port)
        return broker_config_of(settings)
    except ConfigError as error:
        fail(str(error))


def run(config: BrokerConfig) -> None:
    """Run the broker until a signal; end the command where it cannot start, or does not stop cleanly."""
    import gc

    gc.disable()  # modules leave no garbage, and searching what they make takes a fifth of the time of the imports
    from trio_broker.broker import StartupError, UncleanStop, run_until_signalled
    from trio_broker.config.errors import ConfigError
    from trio_broker.runtime.memory import bound_kept_memory

    gc.enable()
    for warning in (*config.warnings, *config.without_effect):
        logging.getLogger(__name__).warning("%s", warning)
    bound_kept_memory()
    try:
        run_until_signalled(config, announce=click.echo)
    except (ConfigError, StartupError, UncleanStop) as error:
        fail(str(error))


def read_settings_file(path: Path) -> SettingsFile:
    """Read a properties file, or a pipe.

    Raises:
        ConfigError: it cannot be read.
    """
    from trio_broker.config.errors import ConfigError
    from trio_broker.config.static_settings import SettingsFile

    try:
        return SettingsFile(str(path), path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from None


def parse_overrides(overrides: tuple[str, ...]) -> dict[str, str]:
    """Return the keys and values of ``--override``.

    Raises:
        ConfigError: one is not of the form KEY=VALUE.
    """
    from trio_broker.config.errors import ConfigError

    settings: dict[str, str] = {}
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key.strip():
            raise ConfigError(f"--override takes KEY=VALUE, not {override!r}")
        settings[key.strip()] = value.strip()
    return settings


def refuse_unknown_overrides(settings: StaticSettings) -> None:
    """Raise ``ConfigError`` for a key of the command line that this broker does not have."""
    from trio_broker.config.entries import ConfigLevel
    from trio_broker.config.errors import ConfigError
    from trio_broker.config.keys import BROKER_KEYS

    for key in settings.levels[ConfigLevel.COMMAND_LINE]:
        if key not in BROKER_KEYS:
            raise ConfigError(f"--override {key}: this broker has no such key{BROKER_KEYS.hint(key)}")


def apply_options(settings: StaticSettings, data_dir: Path | None, port: int | None, admin_port: int | None) -> None:
    """Set the keys for which ``--data-dir``, ``--port`` and ``--admin-port`` stand.

    Raises:
        ConfigError: both ``--port`` and ``listeners`` are given. ``--port`` stands for a plaintext listener on this
            machine, which must not silently replace a listener that was configured with TLS.
    """
    from trio_broker.config.errors import ConfigError
    from trio_broker.config.static_settings import COMMAND_LINE

    if port is not None and (listeners := settings.effective.get("listeners")) is not None:
        where = "--override" if listeners.origin == COMMAND_LINE else listeners.origin
        raise ConfigError(f"--port and listeners ({where}) exclude each other: name the port in listeners")
    if data_dir is not None:
        settings.set("log.dirs", str(data_dir), COMMAND_LINE)
    if port is not None:
        settings.set("listeners", f"PLAINTEXT://127.0.0.1:{port}", COMMAND_LINE)
    if admin_port is not None:
        settings.set("admin.listener", f"127.0.0.1:{admin_port}", COMMAND_LINE)
