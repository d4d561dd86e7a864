"""The settings of a subscription to client metrics (KIP-714): which metrics clients are to send, and how often.

They are checked, kept and described as in Kafka. They have no effect: no client is asked for its metrics. The patterns
of ``match`` are regular expressions of Java, so what stands behind the name of an attribute is not looked at.

Source: Kafka's ClientMetricsConfigs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafka_wire.error_codes import ErrorCode
from trio_broker.config.config_key import ConfigKey, ConfigType, UpdateMode, Validator
from trio_broker.config.errors import ConfigError

MIN_INTERVAL_MS: Final = 100
MAX_INTERVAL_MS: Final = 3_600_000
"""Kafka's limits: an hour at most, so that a subscription that has changed reaches its clients."""

CLIENT_ATTRIBUTES: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What clients can be chosen by."""


def _are_patterns(items: tuple[str, ...]) -> bool:
    return all(item.partition("=")[0].strip() in CLIENT_ATTRIBUTES and "=" in item for item in items)


CLIENT_METRICS_KEYS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            name="interval.ms",
            type=ConfigType.INT,
            default=300_000,
            documentation="How often a client sends its metrics; without effect here.",
            update_mode=UpdateMode.CLUSTER_WIDE,
            acts_on_rates=False,
        ),
        ConfigKey(
            name="metrics",
            type=ConfigType.LIST,
            default=(),
            documentation="Prefixes of the names of the metrics that are sent, * for all; without effect here.",
            update_mode=UpdateMode.CLUSTER_WIDE,
            acts_on_rates=False,
            validator=Validator("a list without empty items", all),
        ),
        ConfigKey(
            name="match",
            type=ConfigType.LIST,
            default=(),
            documentation="The clients that send metrics, as attribute=pattern; without effect here.",
            update_mode=UpdateMode.CLUSTER_WIDE,
            acts_on_rates=False,
            validator=Validator(f"a list of attribute=pattern, of {', '.join(CLIENT_ATTRIBUTES)}", _are_patterns),
        ),
    )
}


def unknown_client_metrics_key(name: str) -> ConfigError:
    """Kafka's error for a key that subscriptions do not have, whose code is not that of other resources."""
    return ConfigError(f"Unknown client metrics configuration: {name}", key=name, code=ErrorCode.INVALID_REQUEST)


def check_client_metrics_configs(overrides: Mapping[str, str]) -> None:
    """Check the settings of a subscription.

    Raises:
        ConfigError: a subscription does not have the key, or a value is not valid; with Kafka's codes.
    """
    for name, text in overrides.items():
        if (key := CLIENT_METRICS_KEYS.get(name)) is None:
            raise unknown_client_metrics_key(name)
        value = key.parse(text)
        if name == "interval.ms" and not MIN_INTERVAL_MS <= value <= MAX_INTERVAL_MS:
            limits = f"interval must be between {MIN_INTERVAL_MS} and {MAX_INTERVAL_MS} (1 hour)"
            reason = f"Invalid value {value} for interval.ms, {limits}"
            raise ConfigError(reason, key=name, code=ErrorCode.INVALID_REQUEST)
