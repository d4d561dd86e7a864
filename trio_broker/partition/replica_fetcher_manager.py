"""The fetchers of this broker: ``num.replica.fetchers`` for each broker that leads what this one follows.

A partition is fetched by one of those of its leader, by a hash of its name. A fetcher is made for the first partition,
and ends when it has none.

Source: Kafka's ReplicaFetcherManager and AbstractFetcherManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from zlib import crc32

import attrs
import trio

from kafka_wire.messages.metadata import NO_LEADER
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.barrier import start_background
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.partition.follower_appends import FollowerAppends
from trio_broker.partition.leader_and_isr import LocalReplicaChanges, LocalTopicChanges
from trio_broker.partition.partition import Partition
from trio_broker.partition.remote_leader_endpoint import Follower, LeaderClients, RemoteLeaderEndpoint
from trio_broker.partition.replica_fetcher import FollowedPartition, ReplicaFetcher, ReplicaFetcherStatistics
from trio_broker.partition.replication_quota_manager import follower_quota


@attrs.frozen(order=True)
class FetcherKey:
    """Which fetcher of which leader."""

    leader_id: int
    fetcher_id: int


@attrs.frozen
class ReplicaFetcherManagerStatistics:
    """``max_lag`` and ``min_fetch_rate`` are Kafka's MaxLag and MinFetchRate: the most records that consumers see and a
    partition here has not, and the requests a second of the slowest fetcher. ``failed_partitions`` are fetched no more
    until new metadata."""

    max_lag: int
    min_fetch_rate: float
    failed_partitions: int
    fetchers: Sequence[ReplicaFetcherStatistics]


@attrs.define(eq=False)
class RunningFetcher:
    """A fetcher, and how to end its task."""

    fetcher: ReplicaFetcher
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    async def run(self) -> None:
        with self.scope:
            await self.fetcher.run()


class ReplicaFetcherManager:
    """See the head of the file. ``run`` is a task of the broker; what is followed before is fetched from then on.

    ``make_clients`` returns the connections of one fetcher.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        follower: Follower,
        find: Callable[[TopicPartition], Partition | None],
        appends: FollowerAppends,
        make_clients: Callable[[], LeaderClients],
    ) -> None:
        self._settings = config.replication
        self._fetchers_per_leader = self._settings.num_replica_fetchers
        self._follower = follower
        self._find = find
        self._quota = follower_quota(appends.clock, config)
        self._appends = appends
        self._make_clients = make_clients
        self._running: dict[FetcherKey, RunningFetcher] = {}
        # Which of them fetches a partition.
        self._keys: dict[TopicPartition, FetcherKey] = {}
        self._nursery: trio.Nursery | None = None

    # ---- what the controller has decided --------------------------------------------------------------------------

    async def apply_local_changes(self, changes: LocalReplicaChanges) -> None:
        """Fetch what this broker follows now, and no more what it leads or has not. To be called once its partitions
        follow."""
        deleted = frozenset(changes.deleted_topics)
        if deleted:
            self.remove([each for each in self._keys if each.topic in deleted])
        async for topic in InTurns(changes.topics):
            self._apply_topic(topic)
        self._end_idle()

    def _apply_topic(self, topic: LocalTopicChanges) -> None:
        self.remove(TopicPartition(topic.name, index) for index in (*topic.deletes, *topic.leaders))
        for index, decided in topic.followers.items():
            topic_partition = TopicPartition(topic.name, index)
            if decided.leader == NO_LEADER:
                self.remove([topic_partition])
            else:
                self._follow(topic_partition, decided.leader, FollowedPartition(topic.topic_id, decided.leader_epoch))

    def _follow(self, topic_partition: TopicPartition, leader_id: int, followed: FollowedPartition) -> None:
        key = self._key_of(topic_partition, leader_id)
        if self._keys.get(topic_partition, key) != key:
            self.remove([topic_partition])
        self._keys[topic_partition] = key
        self._fetcher(key).follow({topic_partition: followed})

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch these no more."""
        for topic_partition in partitions:
            if (key := self._keys.pop(topic_partition, None)) is not None:
                self._running[key].fetcher.remove([topic_partition])

    # ---- the fetchers ---------------------------------------------------------------------------------------------

    def _key_of(self, topic_partition: TopicPartition, leader_id: int) -> FetcherKey:
        # Neighbours of one topic go to different fetchers; no hash of Python's, which differs from start to start.
        number = 31 * crc32(topic_partition.topic.encode()) + topic_partition.partition
        return FetcherKey(leader_id, number % self._fetchers_per_leader)

    def _fetcher(self, key: FetcherKey) -> ReplicaFetcher:
        if (running := self._running.get(key)) is None:
            leader = RemoteLeaderEndpoint(key.leader_id, self._make_clients(), self._follower, self._settings)
            fetcher = ReplicaFetcher(leader, key.fetcher_id, find=self._find, appends=self._appends, quota=self._quota)
            running = self._running[key] = RunningFetcher(fetcher)
            self._start(running)
        return running.fetcher

    def _start(self, running: RunningFetcher) -> None:
        if self._nursery is not None:
            start_background(self._nursery, str(running.fetcher), running.run)

    def _end_idle(self) -> None:
        for key, running in list(self._running.items()):
            if running.fetcher.is_idle:
                running.scope.cancel()
                del self._running[key]

    def reconfigure(self, config: BrokerConfig) -> None:
        """Follow ``num.replica.fetchers``: partitions go to other fetchers, which go on where the logs end."""
        count = config.replication.num_replica_fetchers
        if count == self._fetchers_per_leader:
            return
        self._fetchers_per_leader = count
        fetched = [(key.leader_id, running.fetcher.take_all()) for key, running in self._running.items()]
        for leader_id, partitions in fetched:
            for topic_partition, followed in partitions.items():
                del self._keys[topic_partition]
                self._follow(topic_partition, leader_id, followed)
        self._end_idle()

    async def run(self) -> None:
        """Run the fetchers until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                for running in self._running.values():
                    self._start(running)
                await trio.sleep_forever()
        finally:
            self._nursery = None

    # ---- figures --------------------------------------------------------------------------------------------------

    def statistics(self) -> ReplicaFetcherManagerStatistics:
        fetchers = [self._running[key].fetcher.statistics() for key in sorted(self._running)]
        return ReplicaFetcherManagerStatistics(
            max_lag=max((lag for each in fetchers for lag in each.lags.values()), default=0),
            min_fetch_rate=min((each.fetch_rate for each in fetchers), default=0.0),
            failed_partitions=sum(len(running.fetcher.failed) for running in self._running.values()),
            fetchers=fetchers,
        )
