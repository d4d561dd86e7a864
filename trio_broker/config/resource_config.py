"""The effective settings of one topic or one group: its own settings, and the broker's for all others.

They are the broker's ``LogConfig`` or ``GroupCoordinatorConfig`` with the resource's own values in it. They are
computed again whenever the resource's settings or the broker's change.

Source: Kafka's LogConfig, GroupConfig; the order of synonyms is that of ConfigHelper.createTopicConfigEntry.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Mapping
from contextlib import suppress
from typing import Any

import attrs

from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.client_metrics_config import CLIENT_METRICS_KEYS
from trio_broker.config.config_key import ConfigKey
from trio_broker.config.consistency import check_compaction_lag, check_group_intervals, held_within_bounds
from trio_broker.config.entries import ConfigEntry, ConfigSource, ConfigSynonym
from trio_broker.config.errors import ConfigError, ContradictorySettings
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.config.keys import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS
from trio_broker.config.log_config import LogConfig

log = logging.getLogger(__name__)


def topic_config(overrides: Mapping[str, str], broker: BrokerConfig, name: str = "") -> LogConfig:
    """Return the effective settings of a topic with these ``overrides``; ``name`` is for warnings."""
    return attrs.evolve(broker.log, **_valid_values(TOPIC_KEYS, overrides, f"topic {name!r}"))


def group_config(
    overrides: Mapping[str, str], broker: GroupCoordinatorConfig, name: str = ""
) -> GroupCoordinatorConfig:
    """Return the effective settings of a group with these ``overrides``, moved into the broker's bounds; ``name`` is
    for warnings."""
    # Without overrides it is the broker's own object: most groups have none, and then share it.
    values = _valid_values(GROUP_KEYS, overrides, f"group {name!r:.200}") if overrides else {}
    return held_within_bounds(attrs.evolve(broker, **values)) if values else broker


def check_topic_configs(overrides: Mapping[str, str], broker: BrokerConfig | None = None) -> None:
    """Check the settings of a topic together with those of ``broker``, or with the built-in defaults.

    Raises:
        ConfigError: topics do not have the key, a value is not valid, or values contradict each other.
    """
    values = _checked_values(TOPIC_KEYS, overrides, "topic")
    try:
        check_compaction_lag(attrs.evolve(broker.log if broker else LogConfig(), **values), of_topic=True)
    except ContradictorySettings as error:
        raise _with_origins(error, TOPIC_KEYS, overrides, broker, "topic") from None


def check_group_configs(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Check the settings of a group.

    Raises:
        ConfigError: groups do not have the key, or a value is not valid or outside the broker's bounds.
    """
    values = _checked_values(GROUP_KEYS, overrides, "group")
    try:
        check_group_intervals(attrs.evolve(broker.group_coordinator, **values), of_group=True)
    except ContradictorySettings as error:
        raise _with_origins(error, GROUP_KEYS, overrides, broker, "group") from None


def _with_origins(
    error: ContradictorySettings,
    keys: Mapping[str, ConfigKey],
    overrides: Mapping[str, str],
    broker: BrokerConfig | None,
    kind: str,
) -> ConfigError:
    """The error with where each value was set: one may have been stored long before the change that it refuses."""
    origins = []
    for name in error.keys:
        broker_key = BROKER_KEYS[name] if name not in keys else keys[name].broker_key
        if name in overrides:
            origins.append(f"{name}={overrides[name]} (of the {kind})")
        elif broker is not None and broker_key is not None:
            origins.append(broker.with_origin(broker_key))
    return ConfigError(f"{error}: {', '.join(origins)}", key=error.keys[0])


def topic_entries(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Container[str] | None = None
) -> list[ConfigEntry]:
    """Describe every topic key, or those of these ``names``, with its effective value for a topic with these
    ``overrides``."""
    return _entries(TOPIC_KEYS, overrides, broker, names, ConfigSource.DYNAMIC_TOPIC_CONFIG)


def group_entries(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Container[str] | None = None
) -> list[ConfigEntry]:
    """Describe every group key, or those of these ``names``, with its effective value for a group with these
    ``overrides``; a key without effect only where it is set."""
    return _entries(GROUP_KEYS, overrides, broker, names, ConfigSource.DYNAMIC_GROUP_CONFIG)


def client_metrics_entries(
    overrides: Mapping[str, str], broker: BrokerConfig, names: Container[str] | None = None
) -> list[ConfigEntry]:
    """Describe every key of a subscription to client metrics, or those of these ``names``."""
    return _entries(CLIENT_METRICS_KEYS, overrides, broker, names, ConfigSource.CLIENT_METRICS_CONFIG)


def _entries(
    keys: Mapping[str, ConfigKey],
    overrides: Mapping[str, str],
    broker: BrokerConfig,
    names: Container[str] | None,
    own: ConfigSource,
) -> list[ConfigEntry]:
    return [
        _entry(key, overrides.get(key.name), broker, own)
        for key in keys.values()
        if not key.internal
        and (key.name in overrides or not key.without_effect)
        and (names is None or key.name in names)
    ]


def _valid_values(keys: Mapping[str, ConfigKey], overrides: Mapping[str, str], owner: str) -> dict[str, Any]:
    """Return the values of ``overrides`` by field.

    Overrides were checked before they were written. One that another version of this broker wrote, and that is not
    valid here, is ignored with a warning: a topic has to be usable before it can be given a better value.
    """
    values = {}
    for name, text in overrides.items():
        if (key := keys.get(name)) is not None and not key.without_effect:
            try:
                values[key.field] = key.parse(key.persisted(text))
            except ConfigError as error:
                log.warning("ignoring a stored setting of %s: %s", owner, error)
    return values


def _checked_values(keys: Mapping[str, ConfigKey], overrides: Mapping[str, str], kind: str) -> dict[str, Any]:
    values = {}
    for name, text in overrides.items():
        if (key := keys.get(name)) is None:
            raise ConfigError(f"Unknown {kind} config name: {name}", key=name)
        value = key.parse(text)
        if not key.without_effect:
            values[key.field] = value
    return values


def _entry(key: ConfigKey, override: str | None, broker: BrokerConfig, own: ConfigSource) -> ConfigEntry:
    broker_key = key.broker_key
    if override is not None:
        with suppress(ConfigError):  # it is ignored, and shown as it is
            override = key.canonical(override)
    synonyms = broker.synonyms(broker_key) if broker_key is not None else ()
    if override is not None:
        synonyms = (ConfigSynonym(key.name, override, own), *synonyms)
    inherited = key.default if broker_key is None else broker.value(broker_key)
    return ConfigEntry(
        name=key.name,
        value=key.text_of(inherited) if override is None else override,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        synonyms=synonyms,
        read_only=False,
        sensitive=key.sensitive,
        type=key.type,
        documentation=key.documentation,
        update_mode=key.update_mode,
        default=key.default_text,
        unit=key.unit,
        valid_values=key.valid_values,
        bounds=key.bounds,
    )
