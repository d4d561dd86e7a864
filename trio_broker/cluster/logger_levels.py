"""Changes of logger levels: the one kind of setting that is not written to the metadata log.

A level belongs to the running process, so a change is checked and set, and nothing is recorded.

Source: Kafka's RuntimeLoggerManager and LoggingController; KIP-412.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.cluster.configuration_control import (
    ConfigAlteration,
    ConfigChange,
    ConfigOperation,
    ResourceReplacement,
)
from trio_broker.config.loggers import check_level, set_level


def change_levels(change: ConfigChange, *, validate_only: bool) -> None:
    """Set the levels that ``change`` says, all of them or none.

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
    if not validate_only:
        for name, level in levels.items():
            set_level(name, level)


def _level(alteration: ConfigAlteration) -> str | None:
    if alteration.operation is ConfigOperation.DELETE:
        return None
    if alteration.operation is not ConfigOperation.SET or alteration.value is None:
        text = f"{alteration.operation.name} of {alteration.name} means nothing for a level, or has no value"
        raise KafkaError(text, code=ErrorCode.INVALID_REQUEST)
    return alteration.value
