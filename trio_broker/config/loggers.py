"""The levels of this process's loggers, as settings of the resource type "broker logger" (KIP-412).

Levels have the names of log4j, which Kafka's tools use. They belong to the running process: a change takes effect at
once and is lost at the next start, as in Kafka. The root logger, the loggers of the broker's packages, and the packages
with loggers below them are described.

Source: Kafka's LoggingController and RuntimeLoggerManager.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from kafka_wire.error_codes import ErrorCode
from trio_broker.config.config_key import ConfigType, UpdateMode
from trio_broker.config.entries import ConfigEntry, ConfigSource, LoggerLevel
from trio_broker.config.errors import ConfigError

log = logging.getLogger(__name__)

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
    return [_entry(logger) for logger in logger_levels()]


def logger_levels(changes: Mapping[str, str | None] | None = None) -> list[LoggerLevel]:
    """Return the level of every logger, first that of the root logger, as it is or as it would be after ``changes``.

    ``check_level`` has accepted the changes.
    """
    numbers = {ROOT: logging.root.level}
    for name in _names():
        # A package without a logger of its own has a placeholder here until it is given a level.
        logger = logging.root.manager.loggerDict[name]
        numbers[name] = logger.level if isinstance(logger, logging.Logger) else logging.NOTSET
    for name, level in (changes or {}).items():
        numbers[name] = _number(level)
    return [_logger_level(name, numbers) for name in (ROOT, *_names())]


def _logger_level(name: str, numbers: Mapping[str, int]) -> LoggerLevel:
    """Return the level of one logger; ``numbers`` has Python's number of every logger's own level."""
    above = name
    while not numbers.get(above) and above != ROOT:
        above = above.rpartition(".")[0] or ROOT
    own = _level_name(numbers[name]) if numbers[name] else None
    return LoggerLevel(name, _level_name(numbers[above]), own, None if above == name else above)


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
    logging.getLogger(None if name == ROOT else name).setLevel(_number(level))
    # A warning, as in Kafka: it is there at any level that is commonly set, and explains why lines begin or cease.
    log.warning("the level of the logger %s is now %s", name, level.upper() if level else "that of its parent")


def _number(level: str | None) -> int:
    return logging.NOTSET if level is None else LEVELS[level.upper()]


def _level_name(number: int) -> str:
    """Return the name of Python's ``number``; that of the next higher level for one between two names, because the
    messages of that level are certainly logged."""
    return next((text for text, each in LEVELS.items() if each >= number), "FATAL")


def _names() -> list[str]:
    return sorted(name for name in logging.root.manager.loggerDict if name.partition(".")[0] in PACKAGES)


def _entry(logger: LoggerLevel) -> ConfigEntry:
    return ConfigEntry(
        name=logger.name,
        value=logger.level,
        source=ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
        synonyms=(),
        read_only=False,
        sensitive=False,
        type=ConfigType.STRING,
        documentation="The level below which this logger says nothing.",
        update_mode=UpdateMode.PER_BROKER,
        default=None,
    )
