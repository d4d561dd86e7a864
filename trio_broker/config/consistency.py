"""Rules about several keys together, which are checked before one of them is set.

Source: Kafka's KafkaConfig.validateValues, LogConfig.validateValues, GroupCoordinatorConfig.validate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from trio_broker.config.errors import ConfigError
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.config.log_config import LogConfig
from trio_broker.config.log_manager_config import MIN_DEDUPE_BUFFER_BYTES

BOUNDED_INTERVALS = ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
"""The settings of consumer groups with a minimum and a maximum, as ``group.consumer.min.session.timeout.ms``."""


def check_broker_consistency(values: Mapping[str, Any], logs: LogConfig, groups: GroupCoordinatorConfig) -> None:
    """Check the broker's keys against each other; ``values`` has them by name.

    Raises:
        ConfigError: two keys contradict each other; the text names both.
    """
    if (broker_id := values["broker.id"]) is not None and broker_id != values["node.id"]:
        raise ConfigError(f"node.id is {values['node.id']} and broker.id is {broker_id}: they name the same thing")
    threads, buffer = values["log.cleaner.threads"], values["log.cleaner.dedupe.buffer.size"]
    if buffer // threads < MIN_DEDUPE_BUFFER_BYTES:
        raise ConfigError(
            f"log.cleaner.dedupe.buffer.size ({buffer}) must have at least {MIN_DEDUPE_BUFFER_BYTES} bytes for each of"
            f" the log.cleaner.threads ({threads})"
        )
    check_compaction_lag(logs)
    check_group_intervals(groups)


def check_compaction_lag(config: LogConfig, *, of_topic: bool = False) -> None:
    """Check that the time from which a record may be compacted is not after the time by which it must be.

    Raises:
        ConfigError: the minimum is above the maximum.
    """
    minimum, maximum = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if minimum > maximum:
        prefix = "" if of_topic else "log.cleaner."
        raise ConfigError(
            f"{prefix}min.compaction.lag.ms ({minimum}) must not be above {prefix}max.compaction.lag.ms ({maximum})"
        )


def check_group_intervals(config: GroupCoordinatorConfig) -> None:
    """Check that the intervals of consumer groups lie within their bounds.

    Raises:
        ConfigError: an interval is outside; the text is Kafka's.
    """
    for name in BOUNDED_INTERVALS:
        value, least, most = _with_bounds(config, name)
        dotted = name.replace("_", ".")
        if value < least:
            raise ConfigError(f"consumer.{dotted} must be greater than or equal to group.consumer.min.{dotted}")
        if value > most:
            raise ConfigError(f"consumer.{dotted} must be less than or equal to group.consumer.max.{dotted}")


def held_within_bounds(config: GroupCoordinatorConfig) -> GroupCoordinatorConfig:
    """Return ``config`` with each interval moved to the nearer bound where it lies outside.

    A group's own value was checked when it was set, but the broker's bounds may have been changed since.
    """
    held: dict[str, Any] = {}
    for name in BOUNDED_INTERVALS:
        value, least, most = _with_bounds(config, name)
        held[f"group_consumer_{name}"] = max(least, min(value, most))
    return attrs.evolve(config, **held)


def _with_bounds(config: GroupCoordinatorConfig, name: str) -> tuple[int, int, int]:
    return (
        getattr(config, f"group_consumer_{name}"),
        getattr(config, f"group_consumer_min_{name}"),
        getattr(config, f"group_consumer_max_{name}"),
    )
