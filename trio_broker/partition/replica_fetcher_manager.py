"""Who follows whom: the fetchers of this broker, ``num.replica.fetchers`` for each leader that it follows.

A partition belongs to one of them by its name, so that its requests come in order. The number is live: partitions move
to others then, and what was under way for them comes to nothing.

Source: Kafka's AbstractFetcherManager and ReplicaFetcherManager.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import NamedTuple

import trio

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.barrier import run_background
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_fetcher import FetcherSettings, ReplicaFetcher


class FetcherId(NamedTuple):
    """Which of the fetchers of a leader."""

    leader_id: int
    number: int


class ReplicaFetcherManager:
    """See the head of the file. Fetchers run while ``run`` does; those that have nothing to follow end."""

    def __init__(self, settings: FetcherSettings) -> None:
        self._settings = settings
        self._fetchers: dict[FetcherId, ReplicaFetcher] = {}
        self._scopes: dict[FetcherId, trio.CancelScope] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Fetch until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                for fetcher_id in self._fetchers:
                    self._start(fetcher_id)
                await trio.sleep_forever()
        finally:
            self._nursery = None
            self._scopes.clear()

    def follow(self, partition: Partition, leader_id: int, leader_epoch: int) -> None:
        """Follow this leader from now on, and nobody else."""
        fetcher_id = self._fetcher_id(partition.topic_partition, leader_id)
        self._leave(partition.topic_partition, but=fetcher_id)
        fetcher = self._fetchers.get(fetcher_id)
        if fetcher is None:
            fetcher = self._fetchers[fetcher_id] = ReplicaFetcher(*fetcher_id, self._settings)
            self._start(fetcher_id)
        fetcher.add(partition, leader_epoch)

    def leave(self, topic_partition: TopicPartition) -> None:
        """Follow nobody for a partition."""
        self._leave(topic_partition)

    def _leave(self, topic_partition: TopicPartition, but: FetcherId | None = None) -> None:
        for fetcher_id, fetcher in list(self._fetchers.items()):
            if fetcher_id != but and topic_partition in fetcher.partitions:
                fetcher.remove(topic_partition)
                if not fetcher.partitions:
                    self._end(fetcher_id)

    def reconfigure(self) -> None:
        """Follow ``num.replica.fetchers``."""
        states = [
            (fetcher.leader_id, state) for fetcher in self._fetchers.values() for state in fetcher.partitions.values()
        ]
        for leader_id, state in states:
            self.follow(state.partition, leader_id, state.leader_epoch)

    def fetchers(self) -> list[ReplicaFetcher]:
        """Those that follow something."""
        return list(self._fetchers.values())

    def _fetcher_id(self, topic_partition: TopicPartition, leader_id: int) -> FetcherId:
        # Not ``hash``, which is another one in each process.
        number = zlib.crc32(topic_partition.topic.encode()) + topic_partition.partition
        return FetcherId(leader_id, number % self._settings.config().num_replica_fetchers)

    def _start(self, fetcher_id: FetcherId) -> None:
        if self._nursery is not None:
            scope = self._scopes[fetcher_id] = trio.CancelScope()
            fetcher = self._fetchers[fetcher_id]
            self._nursery.start_soon(partial(_run_within, scope, fetcher), name=repr(fetcher))

    def _end(self, fetcher_id: FetcherId) -> None:
        del self._fetchers[fetcher_id]
        if (scope := self._scopes.pop(fetcher_id, None)) is not None:
            scope.cancel()


async def _run_within(scope: trio.CancelScope, fetcher: ReplicaFetcher) -> None:
    with scope:
        await run_background(f"replica fetcher of broker {fetcher.leader_id}", fetcher.run)
