"""The description of a setting in DescribeConfigs and the admin API: its value, source and synonyms.

The synonyms are all values that the layers and the fallback keys have, in order of precedence, as in Kafka: by source
and then by name, so a dynamic ``log.retention.ms`` precedes a ``log.retention.hours`` of the file.

Source: Kafka's ConfigEntry and DescribeConfigsResponse.ConfigSource.
"""

from __future__ import annotations

import enum

import attrs

from trio_broker.config.config_key import NO_BOUNDS, ConfigType, ConfigUnit, UpdateMode, ValueBounds


class ConfigSource(enum.IntEnum):
    """The source of a value, numbered as in DescribeConfigs. Of the sources of one setting the smallest number wins."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigScope(enum.Enum):
    """The brokers for which a dynamic value counts."""

    CLUSTER = "cluster"
    """Every broker that has no value of its own; the broker resource with an empty name."""
    BROKER = "broker"
    """This broker; the broker resource named by the node id."""

    @property
    def source(self) -> ConfigSource:
        """The source that DescribeConfigs returns for this layer."""
        if self is ConfigScope.CLUSTER:
            return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        return ConfigSource.DYNAMIC_BROKER_CONFIG


@attrs.frozen
class ConfigSynonym:
    """A value of a setting and its source. It is the effective value if it is the first of the synonyms."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigLevel(enum.Enum):
    """A level at which a broker's key can be set, the strongest first. Three are static, one source to Kafka."""

    BROKER = "broker"
    """The dynamic value of this broker."""
    CLUSTER = "cluster"
    """The dynamic default of the cluster."""
    COMMAND_LINE = "command-line"
    """An option of the command, or the program that has started the broker."""
    ENVIRONMENT = "environment"
    FILE = "file"
    BUILT_IN = "built-in"


ON_TRIAL = "on trial"
"""The origin of a value that is tried, which is in effect and written nowhere."""


@attrs.frozen(kw_only=True)
class ConfigLevelValue:
    """The value of a key at one level; ``name`` differs from the key's if the value is that of a fallback."""

    level: ConfigLevel
    name: str
    value: str | None
    """None for a secret."""
    origin: str
    """File and line, or the environment variable; empty if the level alone says it."""
    wins: bool
    """Whether this is the value in effect, which it is for one of the values of a key."""


@attrs.frozen(kw_only=True)
class ConfigDifference:
    """What a change of one key does: its value at the changed level, and the value in effect, before and after.

    None for no value, and for a secret. ``shadowed_by`` is the stronger level whose value stays in effect, if any.
    """

    key: str
    old: str | None
    new: str | None
    effective_old: str | None
    effective_new: str | None
    shadowed_by: ConfigLevel | None


@attrs.frozen
class LoggerLevel:
    """The level of one logger: the one in effect, and its own; None if it has that of the logger ``inherited_from``."""

    name: str
    level: str
    own_level: str | None
    inherited_from: str | None


@attrs.frozen
class ValueChange:
    """A value before and after, as text; None where there is none, or it is a secret."""

    name: str
    old: str | None
    new: str | None


@attrs.frozen
class AllowedRange:
    """The range of numbers to which one change may set a value now, both ends included."""

    minimum: int
    maximum: int


@attrs.frozen(kw_only=True)
class ConfigEntry:
    """One setting with its effective value, which is None if there is none, or if it is a secret.

    ``valid_values`` completes the sentence "the value must be …". The admin API sets the attributes that only it
    shows: for keys whose change is limited, such as the size of a pool, ``allowed_range``; for keys of the broker the
    subject they belong to as ``group``, the value in effect as ``effective_value`` (which ``value`` does not have if a
    fallback or its default counts), and as ``levels`` the value of each level that has one, the strongest first.
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
    unit: ConfigUnit | None = None
    valid_values: str = ""
    bounds: ValueBounds = NO_BOUNDS
    group: str = ""
    effective_value: str | None = None
    levels: tuple[ConfigLevelValue, ...] = ()
    allowed_range: AllowedRange | None = None
