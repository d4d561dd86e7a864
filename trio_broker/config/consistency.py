"""Rules about several keys together, which are checked before one of them is set.

Source: Kafka's KafkaConfig.validateValues, LogConfig.validateValues, GroupCoordinatorConfig.validate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from trio_broker.config.errors import ContradictorySettings
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.config.log_config import LogConfig
from trio_broker.config.log_manager_config import MIN_DEDUPE_BUFFER_BYTES
from trio_broker.config.metadata_store_config import LOCAL, etcd_location

BOUNDED_INTERVALS = ("session_timeout_ms", "heartbeat_interval_ms", "assignment_interval_ms")
"""The settings of consumer groups with a minimum and a maximum, as ``group.consumer.min.session.timeout.ms``."""


def check_broker_consistency(values: Mapping[str, Any], logs: LogConfig, groups: GroupCoordinatorConfig) -> None:
    """Check the broker's keys against each other; ``values`` has them by name.

    Raises:
        ContradictorySettings: the text names both keys.
    """
    if (broker_id := values["broker.id"]) is not None and broker_id != values["node.id"]:
        text = f"node.id is {values['node.id']} and broker.id is {broker_id}: they name the same thing"
        raise ContradictorySettings(text, "node.id", "broker.id")
    threads, buffer = values["log.cleaner.threads"], values["log.cleaner.dedupe.buffer.size"]
    if buffer // threads < MIN_DEDUPE_BUFFER_BYTES:
        raise ContradictorySettings(
            f"log.cleaner.dedupe.buffer.size ({buffer}) must have at least {MIN_DEDUPE_BUFFER_BYTES} bytes for each of"
            f" the log.cleaner.threads ({threads})",
            "log.cleaner.dedupe.buffer.size",
            "log.cleaner.threads",
        )
    if values["alerts.webhook.url"] and not values["admin.listener"]:
        raise ContradictorySettings(
            "alerts.webhook.url needs an admin.listener: the rules are those of the admin page",
            "alerts.webhook.url",
            "admin.listener",
        )
    check_metadata_store(values)
    check_connection_limits(values)
    check_compaction_lag(logs)
    check_group_intervals(groups)


def check_metadata_store(values: Mapping[str, Any]) -> None:
    """Check how etcd is spoken to against where the metadata is; ``values`` has the keys by name.

    Raises:
        ContradictorySettings: a key is set that another one leaves without a meaning.
    """
    store = values["metadata.store"]
    is_etcd, is_tls = store != LOCAL, store != LOCAL and etcd_location(store).is_tls
    for name, is_meant, needed in (
        ("metadata.store.user", is_etcd, "metadata in etcd"),
        ("metadata.store.password", bool(values["metadata.store.user"]), "a metadata.store.user"),
        ("metadata.store.ca.file", is_tls, "metadata in etcd over TLS, by etcds://"),
        ("metadata.store.certificate.file", is_tls, "metadata in etcd over TLS, by etcds://"),
    ):
        if values[name] and not is_meant:
            raise ContradictorySettings(f"{name} is for {needed}; metadata.store is {store}", name, "metadata.store")


def check_connection_limits(values: Mapping[str, Any]) -> None:
    """Check the limits of connections and their requests against each other; ``values`` has them by name.

    Raises:
        ContradictorySettings: the largest request does not fit into the memory of requests, no address may connect,
            or connections are idle for too long at once.
    """
    queued, largest = values["queued.max.request.bytes"], values["socket.request.max.bytes"]
    if 0 < queued < largest:
        text = f"queued.max.request.bytes ({queued}) must be at least socket.request.max.bytes ({largest}), or no limit"
        raise ContradictorySettings(text, "queued.max.request.bytes", "socket.request.max.bytes")
    if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
        raise ContradictorySettings(
            "max.connections.per.ip may be 0 only beside max.connections.per.ip.overrides",
            "max.connections.per.ip",
            "max.connections.per.ip.overrides",
        )
    idle, delay = values["connections.max.idle.ms"], values["connection.failed.authentication.delay.ms"]
    if 0 <= idle <= delay:
        raise ContradictorySettings(
            f"connections.max.idle.ms ({idle}) must be above connection.failed.authentication.delay.ms ({delay})",
            "connections.max.idle.ms",
            "connection.failed.authentication.delay.ms",
        )


def check_compaction_lag(config: LogConfig, *, of_topic: bool = False) -> None:
    """Check that the time from which a record may be compacted is not after the time by which it must be.

    Raises:
        ContradictorySettings: the minimum is above the maximum.
    """
    minimum, maximum = config.min_compaction_lag_ms, config.max_compaction_lag_ms
    if minimum > maximum:
        prefix = "" if of_topic else "log.cleaner."
        least, most = f"{prefix}min.compaction.lag.ms", f"{prefix}max.compaction.lag.ms"
        raise ContradictorySettings(f"{least} ({minimum}) must not be above {most} ({maximum})", least, most)


def check_group_intervals(config: GroupCoordinatorConfig, *, of_group: bool = False) -> None:
    """Check that the intervals of consumer groups lie within their bounds.

    Raises:
        ContradictorySettings: an interval is outside; the text is Kafka's.
    """
    prefix = "" if of_group else "group."
    for name in BOUNDED_INTERVALS:
        value, least, most = _with_bounds(config, name)
        dotted = name.replace("_", ".")
        key, lower, upper = f"{prefix}consumer.{dotted}", f"group.consumer.min.{dotted}", f"group.consumer.max.{dotted}"
        if value < least:
            raise ContradictorySettings(f"{key} must be greater than or equal to {lower}", key, lower)
        if value > most:
            raise ContradictorySettings(f"{key} must be less than or equal to {upper}", key, upper)


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
