"""Rules that bind several keys to each other, checked wherever one of them is about to be set.

Source: Kafka's KafkaConfig.validateValues and LogConfig.validateValues.
"""

from __future__ import annotations

from trio_broker.config.config_key import ConfigKey, ReadsKeys
from trio_broker.config.errors import ConfigError
from trio_broker.config.keys import (
    BROKER_ID,
    LOG_CLEANER_MAX_COMPACTION_LAG_MS,
    LOG_CLEANER_MIN_COMPACTION_LAG_MS,
    NODE_ID,
)


def check_broker_consistency(get: ReadsKeys) -> None:
    """Check the broker keys against each other.

    Raises:
        ConfigError: two of them contradict each other; names both.
    """
    if (broker_id := get(BROKER_ID)) is not None and broker_id != get(NODE_ID):
        raise ConfigError(f"node.id is {get(NODE_ID)} and broker.id is {broker_id}: they name the same thing")
    check_compaction_lag(get, LOG_CLEANER_MIN_COMPACTION_LAG_MS, LOG_CLEANER_MAX_COMPACTION_LAG_MS)


def check_compaction_lag(get: ReadsKeys, minimum_key: ConfigKey[int], maximum_key: ConfigKey[int]) -> None:
    """Check that a record may be compacted before it must be.

    Raises:
        ConfigError: the minimum is above the maximum.
    """
    minimum, maximum = get(minimum_key), get(maximum_key)
    if minimum > maximum:
        raise ConfigError(f"{minimum_key.name} ({minimum}) must not be above {maximum_key.name} ({maximum})")
