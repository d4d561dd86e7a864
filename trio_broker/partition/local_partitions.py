"""The topics of which this broker has partitions: how they are opened, changed and deleted.

A log that cannot be opened affects its partition alone, which says why until it can be. Files are made and removed in
worker threads, one change of topics at a time: the caller sees to that.

Source: Kafka's ReplicaManager (``getOrCreatePartition``, ``stopPartitions``) and HostedPartition.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from pathlib import PurePath
from typing import Protocol, TypeVar

import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.yield_budget import InTurns, YieldBudget
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.log_config import LogConfig
from trio_broker.partition.flusher import Flusher
from trio_broker.partition.leader_and_isr import LeaderAndIsr, LocalTopicChanges
from trio_broker.partition.local_topics import LocalTopic
from trio_broker.partition.log_maintenance import LogMaintenance
from trio_broker.partition.partition import Durability, Partition
from trio_broker.partition.remote_replicas import RemoteReplicas, ReplicaBrokers
from trio_broker.runtime.clock import Clock
from trio_broker.storage.errors import CorruptCheckpoint, LogUnusable, StorageShortage, is_shortage
from trio_broker.storage.log import Log
from trio_broker.storage.log_manager import LogManager

log = logging.getLogger(__name__)

T = TypeVar("T")


class ChangeInThread(Protocol):
    """Changes files of a log directory in a worker thread; see ``ReplicaManager``."""

    def __call__(self, directory: PurePath, work: Callable[[], T], /) -> Awaitable[T]: ...


class LocalPartitions:
    """See the head of the file. ``by_name`` and ``by_id`` are the topics, for readers."""

    def __init__(
        self,
        log_manager: LogManager,
        config: BrokerConfig,
        clock: Clock,
        *,
        brokers: ReplicaBrokers,
        flusher: Flusher,
        log_maintenance: LogMaintenance,
        change_in_thread: ChangeInThread,
    ) -> None:
        self.by_name: dict[str, LocalTopic] = {}
        self.by_id: dict[bytes, LocalTopic] = {}
        # Called with each topic of which partitions were opened that could not be before; no checkpoint lies between.
        self.on_opened: Callable[[str], None] = _nothing_follows
        self._log_manager = log_manager
        self._config = config
        self._clock = clock
        self._brokers = brokers
        self._flusher = flusher
        self._log_maintenance = log_maintenance
        self._change_in_thread = change_in_thread
        self._throttled_log = LogThrottle(log, clock)

    async def open(self, changes: LocalTopicChanges) -> LocalTopic:
        """Have the partitions of a topic that are to be here, and no others of those that are named."""
        local = self.by_name.get(changes.name)
        if local is not None and local.topic_id != changes.topic_id:
            await self.delete([local])
            local = None
        if local is None:
            local = LocalTopic(changes.name, changes.topic_id, changes.config)
        if gone := [index for index in changes.deletes if index in local.partitions or index in local.failures]:
            await self._delete_partitions(local, gone)
        await self._open_missing(local, changes)
        if local.partitions or local.failures:
            self.by_name[local.name] = self.by_id[local.topic_id] = local
        if changes.config != local.config:
            self._configure(local, changes.config)
        return local

    def update_config(self, name: str, config: LogConfig) -> None:
        """Let new settings of a topic count from now on; a topic that is not here has none."""
        if local := self.by_name.get(name):
            self._configure(local, config)

    def _configure(self, local: LocalTopic, config: LogConfig) -> None:
        local.config = config
        for partition in local.partitions.values():
            partition.configure(config, self._clock.monotonic())

    async def delete(self, topics: Sequence[LocalTopic]) -> None:
        """Forget the topics' partitions and have their files removed; requests that wait for them get an error."""
        async for local in InTurns(topics):
            del self.by_name[local.name]
            del self.by_id[local.topic_id]
            gone = KafkaError(f"topic {local.name!r} was deleted", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            # All of a topic fail at once: no request may use one while another's files are removed.
            for partition in local.partitions.values():
                partition.fail(gone)
        await self._remove([each for local in topics for each in local.partitions.values()])
        indexes = ((local.name, index) for local in topics for index in (*local.partitions, *local.failures))
        await self._log_maintenance.delete_logs([TopicPartition(*each) async for each in InTurns(indexes)])

    async def _delete_partitions(self, local: LocalTopic, indexes: Collection[int]) -> None:
        """Forget partitions whose replicas are on other brokers now."""
        partitions = [local.partitions.pop(index) for index in indexes if index in local.partitions]
        for partition in partitions:
            text = f"{partition.topic_partition} has no replica here any more"
            partition.fail(KafkaError(text, code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for index in indexes:
            if index in local.failures:
                local.forget_unopened(index)
        if not (local.partitions or local.failures):
            self.by_name.pop(local.name, None)
            self.by_id.pop(local.topic_id, None)
        await self._remove(partitions)
        await self._log_maintenance.delete_logs([TopicPartition(local.name, index) for index in indexes])

    async def _remove(self, partitions: Iterable[Partition]) -> None:
        """Wait until nothing is done any more to the files of partitions that have failed."""
        async for partition in InTurns(partitions):
            # A sync under way needs the file open; none begins after a failure.
            await self._flusher.wait_idle(partition.writer)
            await partition.writer.wait_idle()
            await self._log_maintenance.log_cleaner.wait_idle(partition)

    async def _open_missing(self, local: LocalTopic, changes: LocalTopicChanges) -> None:
        wanted = {**changes.followers, **changes.leaders}
        missing = [index for index in sorted(wanted) if index not in local.partitions]
        outcomes: dict[int, Log | KafkaError] = {}
        for index in missing:
            topic_partition = TopicPartition(changes.name, index)
            if (existing := self._log_manager.logs.get(topic_partition)) is None:
                continue
            if existing.topic_id == changes.topic_id:
                outcomes[index] = existing
            else:
                log.warning("%s: its log is of another topic of that name; removing it", topic_partition)
                await self._log_maintenance.delete_logs([topic_partition])
        # None is at a start, when thousands of topics would wait for a thread one after another.
        if absent := [index for index in missing if index not in outcomes]:
            opened = await self._log_maintenance.change_directories(partial(self._open_logs, changes, absent))
            outcomes.update(zip(absent, opened, strict=True))
        budget, opened_now = YieldBudget(), dict[int, Partition]()
        for index in missing:
            if budget.is_spent:
                # Shielded: a log that is open belongs to the LogManager, which closes it.
                with trio.CancelScope(shield=True):
                    await budget.renewed()
            outcome = outcomes[index]
            if isinstance(outcome, KafkaError):
                local.note_unopened(index, wanted[index], outcome)
                continue
            self._log_manager.add(outcome)
            opened_now[index] = self._partition(outcome, wanted[index], changes.config)
            # In the turn in which it can be found: requests that have waited for its topic do not ask in vain.
            if index in changes.leaders:
                opened_now[index].writer.lead_at_once(wanted[index], self._clock.monotonic())
            else:
                opened_now[index].writer.make_follower(wanted[index])
        local.partitions.update(opened_now)
        if late := local.failures.keys() & opened_now:
            for index in late:
                local.forget_unopened(index)
            # In this turn, so that no request comes before what follows from it.
            self.on_opened(local.name)

    def _partition(self, opened: Log, decided: LeaderAndIsr, config: LogConfig) -> Partition:
        settings = self._config.replication

        def in_thread(work: Callable[[], T]) -> Awaitable[T]:
            # Where the log is then: it may move to another directory.
            return self._change_in_thread(partition.log.directory.parent, work)

        partition = Partition(
            opened,
            RemoteReplicas(self._config.node.node_id, self._brokers, settings.replica_lag_time_max_ms / 1000),
            high_watermark=self._first_high_watermark(opened, decided),
            durability=Durability(self._config.node.log_durability),
            sync_soon=self._flusher.request,
            in_thread=in_thread,
        )
        partition.configure(config, self._clock.monotonic())
        return partition

    def _first_high_watermark(self, opened: Log, decided: LeaderAndIsr) -> int:
        """What is visible at a start. Where there are other replicas, what was written down: what is behind it another
        leader may have in another way."""
        if decided.replicas == (self._config.node.node_id,):
            # All that the log holds; in fsync mode it was synced before it came here.
            return opened.log_end_offset
        directory = self._log_manager.directory(opened.directory.parent)
        written = directory.high_watermarks.get(opened.topic_partition, 0)
        return max(min(written, opened.log_end_offset), opened.log_start_offset)

    def _open_logs(self, changes: LocalTopicChanges, indexes: Sequence[int]) -> list[Log | KafkaError]:
        """The logs of these partitions, new or tried again. Blocks: runs in a worker thread."""
        opened: list[Log] = []
        return [self._open_log(changes, TopicPartition(changes.name, index), opened) for index in indexes]

    def _open_log(
        self, changes: LocalTopicChanges, topic_partition: TopicPartition, beside: list[Log]
    ) -> Log | KafkaError:
        """One log, which is put beside the others, or why it cannot be had."""
        try:
            opened = self._log_manager.find_or_open(topic_partition, changes.topic_id, changes.config, beside)
        except (OSError, CorruptCheckpoint, KafkaError) as error:
            text = f"{topic_partition} cannot be opened: {error}"
            if is_shortage(error):
                self._throttled_log.error("shortage", text)
                return StorageShortage(text)
            if isinstance(error, LogUnusable):
                # Why was said when it was loaded, of an offline directory once for all that is there.
                self._throttled_log.error("unusable", text)
            else:
                log.error("%s", text)
            return KafkaError(text, code=ErrorCode.KAFKA_STORAGE_ERROR)
        beside.append(opened)
        return opened


def _nothing_follows(topic: str) -> None:
    """Follow partitions that were opened, where nothing else depends on them."""
