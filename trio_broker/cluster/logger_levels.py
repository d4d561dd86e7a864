"""Changes of logger levels: the one kind of setting that is not written to the metadata log.

A level belongs to the running process, so the broker that is asked checks and sets it, and the controller has no part
in it.

Source: Kafka's ConfigAdminManager, RuntimeLoggerManager and LoggingController; KIP-412.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.changes.change import Change, ChangeAction, ChangedResource, MadeChange
from trio_broker.changes.change_log import ChangeLog
from trio_broker.cluster.configuration_control import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    ResourceReplacement,
    require_own_resource,
)
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import LoggerLevel, ValueChange
from trio_broker.config.loggers import check_level, logger_levels, set_level


def change_levels(
    change: ConfigChange, config: BrokerConfig, changes: ChangeLog, *, validate_only: bool
) -> Sequence[Change]:
    """Set the levels that ``change`` says, all of them or none; return what was recorded of it in ``changes``.

    Raises:
        KafkaError: INVALID_REQUEST for another broker, a list operation or a reset of the root logger, INVALID_CONFIG
            for a logger or level that does not exist.
    """
    require_own_resource(config, change.resource)
    if isinstance(change, ResourceReplacement):
        raise KafkaError("logger levels are changed by IncrementalAlterConfigs only", code=ErrorCode.INVALID_REQUEST)
    levels = {alteration.name: _level(alteration) for alteration in change.alterations}
    if len(levels) != len(change.alterations):
        raise KafkaError("a logger is changed twice in one request", code=ErrorCode.INVALID_REQUEST)
    for name, level in levels.items():
        check_level(name, level)
    before, after = own_levels(logger_levels()), own_levels(logger_levels(levels))
    values = tuple(ValueChange(name, before[name], after[name]) for name in levels if before[name] != after[name])
    if validate_only:
        return ()
    for name, level in levels.items():
        set_level(name, level)
    made = MadeChange(ChangeAction.CONFIG, ChangedResource.BROKER_LOGGER, change.resource.name, values)
    return (changes.record(made),) if values else ()


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
