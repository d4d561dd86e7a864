"""The settings of replication between brokers.

Source: Kafka's ReplicationConfigs.
"""

from __future__ import annotations

import attrs

from trio_broker.config.config_key import ConfigType, UpdateMode, key
from trio_broker.config.validators import at_least


@attrs.frozen(kw_only=True)
class ReplicationConfig:
    """How leaders and followers of partitions deal with each other."""

    num_replica_fetchers: int = key(
        1,
        "How many requests at a time a follower has under way to each leader that it follows.",
        update_mode=UpdateMode.CLUSTER_WIDE, validator=at_least(1),
    )  # fmt: skip
    replica_fetch_wait_max_ms: int = key(
        500, "How long a leader may wait for records before it answers a follower.", validator=at_least(0)
    )
    replica_fetch_min_bytes: int = key(
        1, "How many bytes a leader waits for before it answers a follower.", validator=at_least(0)
    )
    replica_fetch_max_bytes: int = key(
        1024 * 1024,
        "Bytes of one partition that a follower asks for at a time; a larger batch comes all the same.",
        validator=at_least(0),
    )
    replica_fetch_response_max_bytes: int = key(
        10 * 1024 * 1024,
        "Bytes of all partitions that a follower asks for at a time; a larger batch comes all the same.",
        validator=at_least(0),
    )
    replica_fetch_backoff_ms: int = key(
        1_000, "How long a follower waits before it asks again after an error.", validator=at_least(0)
    )
    replica_lag_time_max_ms: int = key(
        30_000,
        "How long a follower may be behind its leader before it is no longer in sync.",
        type=ConfigType.LONG, validator=at_least(1),
    )  # fmt: skip
