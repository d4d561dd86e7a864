"""The settings of replication between brokers.

Source: Kafka's ReplicationConfigs.
"""

from __future__ import annotations

import attrs

from trio_broker.config.config_key import LONG_MAX, ConfigType, UpdateMode, key
from trio_broker.config.validators import POOL_SIZE, at_least, one_of, optionally

RACK_AWARE_REPLICA_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Kafka's only one; it is done here without that class."""


@attrs.frozen(kw_only=True)
class ReplicationConfig:
    """How leaders and followers of partitions deal with each other."""

    replica_lag_time_max_ms: int = key(
        30_000,
        "How long a follower may be behind its leader before it is no longer in sync.",
        type=ConfigType.LONG, validator=at_least(1),
    )  # fmt: skip
    num_replica_fetchers: int = key(
        1,
        "How many fetchers this broker has for each broker that it follows, each with a connection of its own.",
        update_mode=UpdateMode.CLUSTER_WIDE, validator=POOL_SIZE, thread_pool=True,
    )  # fmt: skip
    replica_fetch_wait_max_ms: int = key(
        500,
        "How long a leader may hold back the answer to a follower that has all; less than replica.lag.time.max.ms.",
        validator=at_least(0),
    )
    replica_fetch_min_bytes: int = key(
        1, "How much a leader has for a follower before it answers without a wait.", validator=at_least(0)
    )
    replica_fetch_max_bytes: int = key(
        1024 * 1024,
        "How much of one partition a follower fetches at a time; at least one batch, however large.",
        validator=at_least(0),
    )
    replica_fetch_response_max_bytes: int = key(
        10 * 1024 * 1024,
        "How much of all partitions a follower fetches at a time; at least one batch, however large.",
        validator=at_least(0),
    )
    replica_fetch_backoff_ms: int = key(
        1000, "How long a follower leaves a partition alone after an error.", validator=at_least(0)
    )
    replica_selector_class: str | None = key(
        None,
        "Which replica a consumer reads from: with RackAwareReplicaSelector one in its client.rack, else the leader.",
        validator=optionally(one_of(RACK_AWARE_REPLICA_SELECTOR)),
    )
    replica_socket_timeout_ms: int = key(
        30_000,
        "How long a follower waits for an answer of its leader; more than replica.fetch.wait.max.ms.",
        validator=at_least(1),
    )
    leader_replication_throttled_rate: int = key(
        LONG_MAX,
        "Bytes a second that this broker sends of leader.replication.throttled.replicas to replicas out of sync.",
        type=ConfigType.LONG, update_mode=UpdateMode.CLUSTER_WIDE, validator=at_least(0),
    )  # fmt: skip
    follower_replication_throttled_rate: int = key(
        LONG_MAX,
        "Bytes a second that this broker fetches of follower.replication.throttled.replicas that lag.",
        type=ConfigType.LONG, update_mode=UpdateMode.CLUSTER_WIDE, validator=at_least(0),
    )  # fmt: skip
    replica_alter_log_dirs_io_max_bytes_per_second: int = key(
        LONG_MAX,
        "Bytes a second that moves between log directories may copy.",
        type=ConfigType.LONG, update_mode=UpdateMode.CLUSTER_WIDE, validator=at_least(0),
    )  # fmt: skip
    replication_quota_window_num: int = key(
        11, "Over how many windows the three rates above are measured.", validator=at_least(1)
    )
    replication_quota_window_size_seconds: int = key(1, "How long each of these is.", validator=at_least(1))
