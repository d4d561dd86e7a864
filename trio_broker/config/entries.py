"""One setting as DescribeConfigs and the admin API show it: its value, its source, and its synonyms.

The chain of synonyms is Kafka's: every place the value could come from, the one that counts first. It is ordered by
source, then by name, so a dynamic ``log.retention.ms`` precedes a ``log.retention.hours`` of the file.

Source: Kafka's ConfigEntry and DescribeConfigsResponse.ConfigSource.
"""

from __future__ import annotations

import enum

import attrs

from trio_broker.config.config_key import ConfigType, UpdateMode


class ConfigSource(enum.IntEnum):
    """Where a value comes from, numbered as DescribeConfigs sends it; of one setting's the smaller number wins."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_GROUP_CONFIG = 8


@attrs.frozen
class ConfigSynonym:
    """One place that a value comes from, or would come from if the places before it said nothing."""

    name: str
    value: str | None
    source: ConfigSource


@attrs.frozen
class AllowedRange:
    """What a number may be changed to at this moment, both ends included."""

    minimum: int
    maximum: int


@attrs.frozen(kw_only=True)
class ConfigEntry:
    """One setting as it stands. The value is None when there is none, or when it is a secret.

    ``allowed_range`` is set by the admin API for those keys that one change may not set to any valid number.
    """

    name: str
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    read_only: bool
    sensitive: bool
    type: ConfigType
    documentation: str
    update_mode: UpdateMode
    default: str | None
    allowed_range: AllowedRange | None = None
