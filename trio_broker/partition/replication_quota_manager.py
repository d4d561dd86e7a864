"""How many bytes a second go to, or come from, replicas that are throttled, and whether that is too much.

The rate is that of the last ``replication.quota.window.num`` windows, with the one that is under way. What is recorded
is never refused: one answer may exceed the quota, and then there are none until the rate is below it again. Which
replicas are throttled, the settings of their topics say.

Source: Kafka's ReplicationQuotaManager, SimpleRate and TopicConfigHandler.parseThrottledPartitions; KIP-73.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs

from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.log_config import LogConfig
from trio_broker.partition.partition import Partition
from trio_broker.runtime.clock import Clock

ALL_REPLICAS = "*"
"""In place of a list, of a topic whose replicas are all throttled."""


@attrs.define
class Sample:
    """What was recorded in one window."""

    began: float
    size_bytes: int = 0


class ByteRate:
    """Bytes a second, over the last windows."""

    def __init__(self, clock: Clock, config: BrokerConfig) -> None:
        self._clock = clock
        self._window_seconds = float(config.replication.replication_quota_window_size_seconds)
        self._max_samples = config.replication.replication_quota_window_num
        self._samples: deque[Sample] = deque()

    def record(self, size_bytes: int) -> None:
        now = self._clock.monotonic()
        if not self._samples or now - self._samples[-1].began >= self._window_seconds:
            self._samples.append(Sample(now))
        self._samples[-1].size_bytes += size_bytes

    @property
    def per_second(self) -> float:
        """A window that has just begun counts as a whole one, lest its first bytes seem a flood."""
        now, samples = self._clock.monotonic(), self._samples
        while samples and now - samples[0].began >= self._max_samples * self._window_seconds:
            samples.popleft()
        if not samples:
            return 0.0
        return sum(each.size_bytes for each in samples) / max(now - samples[0].began, self._window_seconds)


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
        self.rate = ByteRate(clock, config)

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
