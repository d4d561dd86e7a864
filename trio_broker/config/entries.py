"""The description of a setting in DescribeConfigs and the admin API: its value, source and synonyms.

The synonyms are all values that the layers and the fallback keys have, in order of precedence, as in Kafka: by source
and then by name, so a dynamic ``log.retention.ms`` precedes a ``log.retention.hours`` of the file.

Source: Kafka's ConfigEntry and DescribeConfigsResponse.ConfigSource.
"""

from __future__ import annotations

import enum

import attrs

from trio_broker.config.config_key import ConfigType, UpdateMode


class ConfigSource(enum.IntEnum):
    """The source of a value, numbered as in DescribeConfigs. Of the sources of one setting the smallest number wins."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_GROUP_CONFIG = 8


@attrs.frozen
class ConfigSynonym:
    """A value of a setting and its source. It is the effective value if it is the first of the synonyms."""

    name: str
    value: str | None
    source: ConfigSource


@attrs.frozen
class AllowedRange:
    """The range of numbers to which one change may set a value now, both ends included."""

    minimum: int
    maximum: int


@attrs.frozen(kw_only=True)
class ConfigEntry:
    """One setting with its effective value, which is None if there is none, or if it is a secret.

    The admin API sets ``allowed_range`` for keys whose change is limited, such as the size of a pool.
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
