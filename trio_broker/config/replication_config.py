"""The settings of replication between brokers.

Source: Kafka's ReplicationConfigs.
"""

from __future__ import annotations

import attrs

from trio_broker.config.config_key import ConfigType, key
from trio_broker.config.validators import at_least


@attrs.frozen(kw_only=True)
class ReplicationConfig:
    """How leaders and followers of partitions deal with each other."""

    replica_lag_time_max_ms: int = key(
        30_000,
        "How long a follower may be behind its leader before it is no longer in sync.",
        type=ConfigType.LONG, validator=at_least(1),
    )  # fmt: skip
