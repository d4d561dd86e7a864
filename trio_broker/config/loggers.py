"""The levels of this process's loggers, as settings of the resource type "broker logger" (KIP-412).

Levels have the names of log4j, which Kafka's tools use. They belong to the running process: a change takes effect at
once and is lost at the next start, as in Kafka. The root logger and the loggers of the broker's packages are described.

Source: Kafka's LoggingController and RuntimeLoggerManager.
"""

from __future__ import annotations

import logging
from typing import Final

from kafka_wire.error_codes import ErrorCode
from trio_broker.config.config_key import ConfigType, UpdateMode
from trio_broker.config.entries import ConfigEntry, ConfigSource
from trio_broker.config.errors import ConfigError

ROOT: Final = "root"
"""The name of the root logger, as in Kafka (LoggingController.ROOT_LOGGER)."""

PACKAGES: Final = ("trio_broker", "broker_admin", "kafka_wire")

TRACE: Final = 5
"""A level of log4j that Python does not have; it is below DEBUG."""

LEVELS: Final = {
    "TRACE": TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


def logger_entries() -> list[ConfigEntry]:
    """Describe the effective level of every logger, first that of the root logger."""
    return [_entry(name) for name in (ROOT, *_names())]


def check_level(name: str, level: str | None) -> None:
    """Check a change of a logger's level; None removes the level, so that the logger has that of its parent.

    Raises:
        ConfigError: there is no such logger or level (INVALID_CONFIG), or the root logger, which has no parent, is to
            lose its level (INVALID_REQUEST).
    """
    if name != ROOT and name not in _names():
        raise ConfigError(f"there is no logger {name}", key=name)
    if level is None and name == ROOT:
        # Not INVALID_CONFIG, as the other two: Kafka's RuntimeLoggerManager makes this difference.
        raise ConfigError("the root logger always has a level of its own", key=name, code=ErrorCode.INVALID_REQUEST)
    if level is not None and level.upper() not in LEVELS:
        raise ConfigError(f"{name}: {level!r} is refused: the level must be one of {', '.join(LEVELS)}", key=name)


def set_level(name: str, level: str | None) -> None:
    """Set or remove a logger's level, which ``check_level`` has accepted."""
    logger = logging.getLogger(None if name == ROOT else name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level.upper()])


def _names() -> list[str]:
    return sorted(
        name
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in PACKAGES
    )


def _entry(name: str) -> ConfigEntry:
    effective = logging.getLogger(None if name == ROOT else name).getEffectiveLevel()
    # A level between two names is shown as the higher one, whose messages are certainly logged.
    level = next((text for text, number in LEVELS.items() if number >= effective), "FATAL")
    return ConfigEntry(
        name=name,
        value=level,
        source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        synonyms=(),
        read_only=False,
        sensitive=False,
        type=ConfigType.STRING,
        documentation="The level below which this logger says nothing.",
        update_mode=UpdateMode.PER_BROKER,
        default=None,
    )
