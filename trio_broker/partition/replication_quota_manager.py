"""How many bytes a second go to, or come from, replicas that are throttled, and whether that is too much.

The rate is that of the last ``replication.quota.window.num`` windows, with the one that is under way. What is recorded
is never refused: one answer may exceed the quota, and then there are none until the rate is below it again. Which
replicas are throttled, the settings of their topics say.

Source: Kafka's ReplicationQuotaManager and TopicConfigHandler.parseThrottledPartitions; KIP-73.
"""

from __future__ import annotations

from collections.abc import Callable

from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.log_config import LogConfig
from trio_broker.partition.partition import Partition
from trio_broker.quota.rate import Rate
from trio_broker.runtime.clock import Clock

ALL_REPLICAS = "*"
"""In place of a list, of a topic whose replicas are all throttled."""


def replication_rate(clock: Clock, config: BrokerConfig) -> Rate:
    """Bytes a second, over the windows of the settings."""
    settings = config.replication
    window_seconds = float(settings.replication_quota_window_size_seconds)
    return Rate(clock, window_seconds, settings.replication_quota_window_num)


class ReplicationQuotaManager:
    """See the head of the file. ``bound`` returns the bytes a second that are allowed now, and ``throttled_of`` the
    replicas of a topic that are throttled, as ``partition:broker``."""

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        bound: Callable[[], int],
        throttled_of: Callable[[LogConfig], tuple[str, ...]],
    ) -> None:
        self._node_id = config.node.node_id
        self._bound = bound
        self._throttled_of = throttled_of
        self.rate = replication_rate(clock, config)

    def is_throttled(self, partition: Partition) -> bool:
        """Whether the replica of this broker is one that the quota is for."""
        throttled = self._throttled_of(partition.log.config)
        if not throttled:
            return False
        return ALL_REPLICAS in throttled or f"{partition.topic_partition.partition}:{self._node_id}" in throttled

    def should_throttle(self, partition: Partition) -> bool:
        """Whether nothing of it may be sent or fetched now."""
        return self.is_throttled(partition) and self.rate.per_second > self._bound()

    def record(self, partition: Partition, size_bytes: int) -> None:
        """So many bytes of a partition have been sent or fetched."""
        if self.is_throttled(partition):
            self.rate.record(size_bytes)


def leader_quota(clock: Clock, config: BrokerConfig) -> ReplicationQuotaManager:
    """The quota of what this broker sends as a leader."""
    return ReplicationQuotaManager(
        clock,
        config,
        lambda: config.replication.leader_replication_throttled_rate,
        lambda topic: topic.leader_replication_throttled_replicas,
    )


def follower_quota(clock: Clock, config: BrokerConfig) -> ReplicationQuotaManager:
    """The quota of what this broker fetches as a follower."""
    return ReplicationQuotaManager(
        clock,
        config,
        lambda: config.replication.follower_replication_throttled_rate,
        lambda topic: topic.follower_replication_throttled_replicas,
    )
