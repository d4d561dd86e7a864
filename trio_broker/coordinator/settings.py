"""The settings that groups live by, as values; their meaning stands with the keys (``config/group_keys``)."""

from __future__ import annotations

import attrs

from trio_broker.config import keys
from trio_broker.config.broker_config import BrokerConfig


@attrs.frozen(kw_only=True)
class GroupSettings:
    """All of them, in the units of their keys."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    consumer_assignment_interval_ms: int = 1_000
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 604_800_000


def group_settings(config: BrokerConfig) -> GroupSettings:
    """The settings of this broker. None of them changes while it runs."""
    return GroupSettings(
        min_session_timeout_ms=config.get(keys.GROUP_MIN_SESSION_TIMEOUT_MS),
        max_session_timeout_ms=config.get(keys.GROUP_MAX_SESSION_TIMEOUT_MS),
        initial_rebalance_delay_ms=config.get(keys.GROUP_INITIAL_REBALANCE_DELAY_MS),
        max_size=config.get(keys.GROUP_MAX_SIZE),
        consumer_session_timeout_ms=config.get(keys.GROUP_CONSUMER_SESSION_TIMEOUT_MS),
        consumer_heartbeat_interval_ms=config.get(keys.GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS),
        consumer_assignment_interval_ms=config.get(keys.GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS),
        consumer_max_size=config.get(keys.GROUP_CONSUMER_MAX_SIZE),
        consumer_assignors=config.get(keys.GROUP_CONSUMER_ASSIGNORS),
        consumer_migration_policy=config.get(keys.GROUP_CONSUMER_MIGRATION_POLICY),
        consumer_regex_refresh_interval_ms=config.get(keys.GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS),
        offset_metadata_max_bytes=config.get(keys.OFFSET_METADATA_MAX_BYTES),
        offsets_retention_ms=config.get(keys.OFFSETS_RETENTION_MINUTES) * 60_000,
    )
