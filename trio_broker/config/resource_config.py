"""What the settings of one topic or one group come to: its own, over those of the broker.

The effective values are the broker's ``LogConfig`` or ``GroupCoordinatorConfig`` with the resource's own in their
places. They are resolved anew whenever the resource's settings or a broker default change.

Source: Kafka's LogConfig, GroupConfig; the order of synonyms is that of ConfigHelper.createTopicConfigEntry.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import attrs

from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.config_key import ConfigKey
from trio_broker.config.consistency import check_compaction_lag, check_group_intervals, held_within_bounds
from trio_broker.config.entries import ConfigEntry, ConfigSource, ConfigSynonym
from trio_broker.config.errors import ConfigError
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.config.keys import GROUP_KEYS, TOPIC_KEYS
from trio_broker.config.log_config import LogConfig

log = logging.getLogger(__name__)


def topic_config(overrides: Mapping[str, str], broker: BrokerConfig) -> LogConfig:
    """Return the effective settings of a topic with these ``overrides``."""
    return attrs.evolve(broker.log, **_valid_values(TOPIC_KEYS, overrides))


def group_config(overrides: Mapping[str, str], broker: GroupCoordinatorConfig) -> GroupCoordinatorConfig:
    """Return the effective settings of a group with these ``overrides``, held within the broker's bounds."""
    values = _valid_values(GROUP_KEYS, overrides)
    return held_within_bounds(attrs.evolve(broker, **values)) if values else broker


def check_topic_configs(overrides: Mapping[str, str], broker: BrokerConfig | None = None) -> None:
    """Check what a topic is about to set for itself; ``broker`` gives the rest, the built-in defaults by default.

    Raises:
        ConfigError: a key is not a topic's, a value is not valid, or values contradict each other.
    """
    values = _checked_values(TOPIC_KEYS, overrides, "topic")
    check_compaction_lag(attrs.evolve(broker.log if broker else LogConfig(), **values), of_topic=True)


def check_group_configs(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Check what a group is about to set for itself.

    Raises:
        ConfigError: a key is not a group's, a value is not valid, or outside the bounds that the broker sets.
    """
    values = _checked_values(GROUP_KEYS, overrides, "group")
    check_group_intervals(attrs.evolve(broker.group_coordinator, **values))


def topic_entries(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """Describe every topic key as it stands for a topic with these ``overrides``."""
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG
    return [_entry(key, overrides.get(key.name), broker, own) for key in TOPIC_KEYS.values() if not key.internal]


def group_entries(overrides: Mapping[str, str], broker: BrokerConfig) -> list[ConfigEntry]:
    """Describe every group key as it stands for a group with these ``overrides``."""
    own = ConfigSource.DYNAMIC_GROUP_CONFIG
    return [_entry(key, overrides.get(key.name), broker, own) for key in GROUP_KEYS.values()]


def _valid_values(keys: Mapping[str, ConfigKey], overrides: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of ``overrides`` by field.

    Overrides are checked before they are written. One that another version of this broker wrote and this one does not
    take counts as not set, with a warning, because a topic must come up to be given a better value.
    """
    values = {}
    for name, text in overrides.items():
        if (key := keys.get(name)) is not None:
            try:
                values[key.field] = key.parse(text)
            except ConfigError as error:
                log.warning("ignoring a setting: %s", error)
    return values


def _checked_values(keys: Mapping[str, ConfigKey], overrides: Mapping[str, str], kind: str) -> dict[str, Any]:
    values = {}
    for name, text in overrides.items():
        if (key := keys.get(name)) is None:
            raise ConfigError(f"Unknown {kind} config name: {name}", key=name)
        values[key.field] = key.parse(text)
    return values


def _entry(key: ConfigKey, override: str | None, broker: BrokerConfig, own: ConfigSource) -> ConfigEntry:
    broker_key = key.broker_key
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
        default=key.text_of(key.default),
    )
