"""Changes of logger levels: the one kind of setting that is not written to the metadata log.

A level belongs to the running process, so a change is checked and set, and no record of it is written.

Source: Kafka's RuntimeLoggerManager and LoggingController; KIP-412.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.cluster.configuration_control import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    ResourceReplacement,
)
from trio_broker.config.entries import LoggerLevel, ValueChange
from trio_broker.config.loggers import check_level, logger_levels, set_level


def change_levels(change: ConfigChange, *, validate_only: bool) -> tuple[ValueChange, ...]:
    """Set the levels that ``change`` says, all of them or none; return the loggers whose own level is another one.

    Raises:
        KafkaError: INVALID_REQUEST for a list operation or a reset of the root logger, INVALID_CONFIG for a logger or
            level that does not exist.
    """
    if isinstance(change, ResourceReplacement):
        raise KafkaError("logger levels are changed by IncrementalAlterConfigs only", code=ErrorCode.INVALID_REQUEST)
    levels = {alteration.name: _level(alteration) for alteration in change.alterations}
    if len(levels) != len(change.alterations):
        raise KafkaError("a logger is changed twice in one request", code=ErrorCode.INVALID_REQUEST)
    for name, level in levels.items():
        check_level(name, level)
    before, after = own_levels(logger_levels()), own_levels(logger_levels(levels))
    if not validate_only:
        for name, level in levels.items():
            set_level(name, level)
    return tuple(ValueChange(name, before[name], after[name]) for name in levels if before[name] != after[name])


def own_levels(loggers: Iterable[LoggerLevel]) -> dict[str, str | None]:
    """The level that each logger has of its own, by name."""
    return {logger.name: logger.own_level for logger in loggers}


def _level(alteration: ConfigAlteration) -> str | None:
    if alteration.operation is ConfigOperation.DELETE:
        return None
    if alteration.operation is not ConfigOperation.SET or alteration.value is None:
        text = f"{alteration.operation.name} of {alteration.name} means nothing for a level, or has no value"
        raise KafkaError(text, code=ErrorCode.INVALID_REQUEST)
    return alteration.value
