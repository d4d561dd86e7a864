"""The partitions of this broker, and the tasks that serve them.

Handlers find partitions here, append to them, fetch from them and wait for them; ``BrokerMetadataPublisher`` applies
here what the controller decided (``apply_local_changes``). The flusher makes appends durable, and ``LogMaintenance``
runs the tasks that are due by the clock.

It opens and deletes them by ``local_partitions``, appends by ``appends``, deletes records by ``record_deletion``, and
asks ``failures`` what an error of a disk costs.

Source: Kafka's ReplicaManager and LogManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import TypeVar

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import NO_BROKER_EPOCH, uuid_text
from trio_broker.changes.change_log import ChangeLog
from trio_broker.common.request_phase import ReleaseHandler
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.barrier import start_background
from trio_broker.concurrency.scheduled_task import ScheduledTask, start_scheduled
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.partition.broker_topic_stats import SNAPSHOT_SECONDS, BrokerTopicStats
from trio_broker.partition.command_queue import CommandQueue
from trio_broker.partition.delayed_operations import DelayedFetch, ExpirationReaper
from trio_broker.partition.directory_threads import DirectoryThreads
from trio_broker.partition.fetch_operation import (
    FetchedPartition,
    FetchingReplica,
    FetchLimits,
    FetchOperation,
    FetchTarget,
    ReadAttempt,
)
from trio_broker.partition.fetch_sessions import FetchSessionCache
from trio_broker.partition.flusher import Flusher, FlusherStatistics
from trio_broker.partition.follower_appends import FollowerAppends
from trio_broker.partition.in_sync_replicas import PendingPartitionChange
from trio_broker.partition.leader_and_isr import LeaderAndIsr, LocalReplicaChanges, LocalTopicChanges
from trio_broker.partition.leader_appends import LeaderAppends
from trio_broker.partition.local_partitions import LocalPartitions
from trio_broker.partition.local_topics import LocalTopic
from trio_broker.partition.log_dir_failures import LogDirFailures
from trio_broker.partition.log_maintenance import LogMaintenance
from trio_broker.partition.partition import Partition
from trio_broker.partition.record_deletion import RecordDeletion
from trio_broker.partition.remote_replicas import FollowerFetch, ReplicaBrokers
from trio_broker.partition.replica_alter_log_dirs_manager import ReplicaAlterLogDirsManager
from trio_broker.partition.replica_fetcher_manager import ReplicaFetcherManager
from trio_broker.partition.replication_quota_manager import leader_quota
from trio_broker.partition.writer import PartitionWriter
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage.errors import CorruptCheckpoint
from trio_broker.storage.log_manager import LogManager
from trio_broker.storage.log_reader import LogReader

log = logging.getLogger(__name__)

T = TypeVar("T")

SHORTAGE_INTERVAL_MS = 1_000
"""Between two tries of what lacked descriptors or space: short against a producer's timeout, long against spinning."""


@attrs.frozen
class ReplicaManagerStatistics:
    """Counters only grow. ``offline_partitions`` are those whose disk failed."""

    topics: int
    partitions: int
    offline_partitions: int
    delayed_produces: int
    delayed_fetches: int
    appended_batches: int
    appended_records: int
    appended_bytes: int
    fetched_bytes: int
    flusher: FlusherStatistics


class ReplicaManager:
    """Owns the partitions.

    ``io_limiter`` says how many worker threads clients may wait for at a time in a log directory, and how many more the
    flusher may have: ``num.io.threads``, live. It bounds itself what looks into any number of directories.
    """

    def __init__(
        self,
        log_manager: LogManager,
        config: BrokerConfig,
        runtime: Runtime,
        *,
        io_limiter: trio.CapacityLimiter,
        brokers: ReplicaBrokers,
        changes: ChangeLog | None = None,
    ) -> None:
        self.log_manager = log_manager
        self.brokers = brokers
        clock = runtime.clock
        self.config = config
        self.clock = clock
        self.workers = runtime.workers
        self.io_limiter = io_limiter
        self.failures = LogDirFailures(log_manager, clock, self.partitions)
        self.log_maintenance = LogMaintenance(self, log_manager, config, runtime, failures=self.failures)
        self._threads = {
            directory.path: DirectoryThreads(self.workers, int(io_limiter.total_tokens))
            for directory in log_manager.directories
        }
        self.flusher = Flusher(self.workers, int(io_limiter.total_tokens), self.failures.sync_failed)
        self.topic_stats = BrokerTopicStats(clock)
        self.fetch_sessions = FetchSessionCache(
            clock, runtime.random, config.request.max_incremental_fetch_session_cache_slots
        )
        self.local_partitions = LocalPartitions(
            log_manager,
            config,
            clock,
            brokers=brokers,
            flusher=self.flusher,
            log_maintenance=self.log_maintenance,
            change_in_thread=self._change_in_thread,
        )
        # Attributes rather than properties, since every Fetch reads one of them.
        self.topics: Mapping[str, LocalTopic] = self.local_partitions.by_name
        self.topics_by_id: Mapping[bytes, LocalTopic] = self.local_partitions.by_id
        # One change of topics at a time: opening and deleting wait for threads in between.
        self._assignments = CommandQueue()
        self.follower_appends = FollowerAppends(clock, self.failures, self.flusher, self.log_maintenance)
        # Fetches what is followed; None where there are no other brokers.
        self.fetchers: ReplicaFetcherManager | None = None
        self.delayed_fetches: dict[DelayedFetch, None] = {}
        self._reaper = ExpirationReaper()
        self.appends = LeaderAppends(runtime, self.failures, self._reaper)
        self.alter_log_dirs = ReplicaAlterLogDirsManager(
            log_manager,
            config,
            runtime,
            find=self.find,
            failures=self.failures,
            flusher=self.flusher,
            log_maintenance=self.log_maintenance,
        )
        self.record_deletion = RecordDeletion(self.failures, self.log_maintenance, changes or ChangeLog(clock))
        self.stops_waiting = False
        # Called with what the leader of a partition wants of the controller.
        self.alter_partition: Callable[[Partition, PendingPartitionChange], None] = _nobody_decides
        self._fetched_bytes = 0
        self._leader_quota = leader_quota(clock, config)
        self.sends_high_watermarks = config.replication.replica_selector_class is not None

    # ---- finding --------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> LocalTopic:
        """The topic of this name.

        Raises:
            KafkaError: ``UNKNOWN_TOPIC_OR_PARTITION``.
        """
        local = self.topics.get(name)
        if local is None:
            raise KafkaError(f"no topic {name!r} here", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return local

    def reason_not_held(self, name: str) -> KafkaError | None:
        """Why a partition of a topic has no log here, None if all have one."""
        local = self.topics.get(name)
        return next(iter(local.failures.values()), None) if local is not None else None

    def topic_by_id(self, topic_id: bytes) -> LocalTopic:
        """The topic of this id.

        Raises:
            KafkaError: ``UNKNOWN_TOPIC_ID``.
        """
        local = self.topics_by_id.get(topic_id)
        if local is None:
            raise KafkaError(f"no topic with id {uuid_text(topic_id)} here", code=ErrorCode.UNKNOWN_TOPIC_ID)
        return local

    def find(self, partition: TopicPartition) -> Partition | None:
        """The partition, None if there is no log of it here."""
        local = self.topics.get(partition.topic)
        return None if local is None else local.partitions.get(partition.partition)

    def partitions(self) -> Iterator[Partition]:
        """Every partition held, those whose disk failed included."""
        for local in self.topics.values():
            yield from local.partitions.values()

    # ---- what the cluster decides ---------------------------------------------------------------------------------

    async def apply_local_changes(self, changes: LocalReplicaChanges) -> None:
        """Hold, lead and follow what the cluster wants: deletes first, then leaders, then followers.

        So a topic that is created again never finds the files of the old one, and this broker leads before it asks
        others: clients and followers may have read of it before, come while it does so, and are sent away by one that
        does not lead yet. A leader that has to wait for what it did as a follower is waited for at last. Applying the
        same twice changes nothing. A topic of the same name with another id is an earlier one that was deleted: its
        records go first. A log that cannot be opened affects its partition alone.
        """
        await self._assignments.execute(partial(self._apply_local_changes, changes))

    async def _apply_local_changes(self, changes: LocalReplicaChanges) -> None:
        if gone := [self.topics[name] for name in changes.deleted_topics if name in self.topics]:
            await self.local_partitions.delete(gone)
        opened: list[tuple[LocalTopic, LocalTopicChanges]] = []
        async for topic in InTurns(changes.topics):
            try:
                opened.append((await self.local_partitions.open(topic), topic))
            except (OSError, CorruptCheckpoint) as error:
                log.error("topic %s cannot be held: %s", topic.name, error)
        waiting: list[tuple[PartitionWriter, LeaderAndIsr]] = []
        # In turns both ways: of many topics none may be led, and one may have ten thousand partitions.
        async for local, topic in InTurns(opened):
            async for index, decided in InTurns(topic.leaders.items()):
                # Most have been led since they were opened, a moment ago.
                if (partition := local.partitions.get(index)) is None or partition.writer.has_led_by(decided):
                    continue
                if partition.writer.is_busy:
                    waiting.append((partition.writer, decided))
                else:
                    partition.writer.lead_at_once(decided, self.clock.monotonic())
        async for local, topic in InTurns(opened):
            async for index, decided in InTurns(topic.followers.items()):
                if partition := local.partitions.get(index):
                    partition.writer.make_follower(decided)
        if self.fetchers is not None:
            await self.fetchers.apply_local_changes(changes)
        for writer, decided in waiting:
            await writer.make_leader(decided, self.clock.monotonic())

    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, as far as it has read the metadata."""
        epoch = self.brokers.registered_epoch(self.config.node.node_id)
        return NO_BROKER_EPOCH if epoch is None else epoch

    # ---- fetching -------------------------------------------------------------------------------------------------

    def fetch_steps(
        self,
        targets: Sequence[FetchTarget],
        limits: FetchLimits,
        *,
        release_handler: ReleaseHandler,
        when_unawaited: Iterable[Callable[[Callable[[], None]], None]] = (),
    ) -> Steps[list[FetchedPartition]]:
        """Read ``targets`` within ``limits``, waiting if there is too little; results in their order.

        Each of ``when_unawaited`` is given what to call if the client does not want to wait any more.
        """
        operation = FetchOperation(targets, limits, self, when_unawaited)
        attempt = yield from operation.run(release_handler)
        if limits.replica is not None:
            self._answered_replica(targets, limits.replica, attempt)
            return attempt.results
        for partition, result in attempt.with_records:
            partition.fetched_bytes += result.size_bytes
            partition.fetched_records += result.record_count
        self._fetched_bytes += attempt.size_bytes
        return attempt.results

    def _answered_replica(self, targets: Sequence[FetchTarget], replica: FetchingReplica, attempt: ReadAttempt) -> None:
        for partition, result in attempt.with_records:
            self._leader_quota.record(partition, result.size_bytes)
        if self.sends_high_watermarks:
            for target, result in zip(targets, attempt.results, strict=True):
                if isinstance(target.found, Partition):
                    target.found.writer.note_high_watermark_sent(replica.broker_id, result.high_watermark)

    def should_leader_throttle(self, partition: Partition, replica: FetchingReplica) -> bool:
        """Whether a replica is to get nothing of a partition now. One in sync always does, lest it falls behind."""
        return self._leader_quota.should_throttle(partition) and not partition.is_in_sync(replica.broker_id)

    def is_other_broker(self, broker_id: int) -> bool:
        """Whether another broker of the cluster has this id, and so may follow this one."""
        return broker_id != self.config.node.node_id and self.brokers.registered_epoch(broker_id) is not None

    def follower_fetched(
        self, partition: Partition, replica: FetchingReplica, target: FetchTarget, leader_end: int
    ) -> None:
        """A replica has asked for what follows ``target.fetch_offset``, when the log ended at ``leader_end``.

        Raises:
            KafkaError: ``NOT_LEADER_OR_FOLLOWER``: the request is of an earlier life of its broker.
        """
        fetch = FollowerFetch(
            replica.broker_id,
            replica.broker_epoch,
            target.fetch_offset,
            target.log_start_offset,
            leader_end,
            self.clock.monotonic(),
        )
        if (wanted := partition.writer.follower_fetched(fetch)) is not None:
            self.alter_partition(partition, wanted)

    def stop_waiting(self) -> None:
        """The broker stops: let every waiting fetch answer now with what there is, and none begin to wait."""
        self.stops_waiting = True
        for delayed in self.delayed_fetches:
            delayed.wake()

    # ---- running --------------------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the flusher and the scheduled tasks until cancelled."""
        async with trio.open_nursery() as nursery:
            for threads in self._threads.values():
                start_background(nursery, "watch over slow reads", threads.run)
            await nursery.start(self.flusher.run)
            self.log_maintenance.start(nursery)
            start_background(nursery, "expiration reaper", self._reaper.run)
            start_background(nursery, "moves between log directories", self.alter_log_dirs.run)
            if self.fetchers is not None:
                start_background(nursery, "replica fetchers", self.fetchers.run)
                start_scheduled(nursery, self._isr_expiration_task())
            start_scheduled(nursery, self._traffic_task())
            start_scheduled(nursery, self._shortage_task())
            task_status.started()

    def _traffic_task(self) -> ScheduledTask:
        return ScheduledTask(
            "counting traffic",
            lambda: round(SNAPSHOT_SECONDS * 1000),
            lambda: self.topic_stats.take_snapshot(self.topics.values()),
        )

    def _shortage_task(self) -> ScheduledTask:
        return ScheduledTask("what lacked room", lambda: SHORTAGE_INTERVAL_MS, self.retry_after_shortage)

    def _isr_expiration_task(self) -> ScheduledTask:
        # Half of what a replica may lag: so none is in sync for longer than 1.5 times that, as in Kafka.
        return ScheduledTask(
            "in-sync replicas", lambda: self.config.replication.replica_lag_time_max_ms // 2, self.check_lag
        )

    async def check_lag(self) -> None:
        """Have the controller take replicas out that have fallen behind."""
        async for partition in InTurns(list(self.partitions())):
            if partition.state.is_leader and partition.has_other_replicas and partition.failure is None:
                wanted = partition.writer.check_lag(self.clock.monotonic())
                if wanted is not None:
                    self.alter_partition(partition, wanted)

    async def retry_after_shortage(self) -> None:
        """Do what space or descriptors were lacking for: syncs, and partitions whose log could not be opened."""
        await self.flusher.retry_postponed()
        for local in list(self.topics.values()):
            if local.lacks_room:
                await self._assignments.execute(partial(self._open_after_shortage, local))

    async def _open_after_shortage(self, local: LocalTopic) -> None:
        if self.topics.get(local.name) is not local:
            return  # deleted meanwhile
        node_id, unopened = self.config.node.node_id, dict(local.unopened)
        changes = LocalTopicChanges(
            local.name,
            local.topic_id,
            local.config,
            leaders={index: decided for index, decided in unopened.items() if decided.leader == node_id},
            followers={index: decided for index, decided in unopened.items() if decided.leader != node_id},
        )
        await self._apply_local_changes(LocalReplicaChanges(topics=[changes]))
        if not local.lacks_room:
            log.info("topic %s: all of its partitions are open now", local.name)

    def replicated_high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks of partitions that have other replicas."""
        return {each.topic_partition: each.high_watermark for each in self.partitions() if each.has_other_replicas}

    # ---- worker threads -------------------------------------------------------------------------------------------

    async def run_in_io_thread(self, work: Callable[[], T]) -> T:
        """Do ``work``, which looks into any number of log directories, in one of ``num.io.threads`` worker threads."""
        return await self.workers.run(work, limiter=self.io_limiter)

    def threads_of(self, directory: PurePath) -> DirectoryThreads:
        """The worker threads for the files of a log directory."""
        return self._threads[directory]

    async def _change_in_thread(self, directory: PurePath, work: Callable[[], T]) -> T:
        """Do ``work``, which frees space or begins a leader epoch, even where the disk of ``directory`` is full."""
        return await self.threads_of(directory).do(partial(self.log_manager.with_reserve, directory, work))

    def reconfigure(self, config: BrokerConfig) -> None:
        """Follow ``num.io.threads`` and ``num.replica.fetchers``."""
        if self.fetchers is not None:
            self.fetchers.reconfigure(config)
        self.resize_io_threads(config.socket_server.num_io_threads)

    def resize_io_threads(self, count: int) -> None:
        """Change how many worker threads clients may wait for at a time, and how many partitions may sync."""
        self.io_limiter.total_tokens = count
        for threads in self._threads.values():
            threads.resize(count)
        self.flusher.resize(count)

    async def run_in_thread(self, partition: Partition, work: Callable[[LogReader], T]) -> T:
        """Read the log of ``partition`` by ``work`` in a worker thread.

        Raises:
            KafkaError: ``KAFKA_STORAGE_ERROR``: the disk failed.
        """
        while True:
            read = partition.log
            try:
                look = await self.threads_of(read.directory.parent).do(partial(read.read_with, work), partition.writer)
            except OSError as error:
                # Otherwise it has moved to another directory meanwhile.
                if partition.log is read:
                    raise self.failures.storage_failed(partition, error) from error
            else:
                if partition.log is read:
                    read.adopt(look.reader)
                return look.result

    # ---- figures --------------------------------------------------------------------------------------------------

    def statistics(self) -> ReplicaManagerStatistics:
        partitions = list(self.partitions())
        return ReplicaManagerStatistics(
            topics=len(self.topics),
            partitions=len(partitions),
            offline_partitions=sum(partition.failure is not None for partition in partitions),
            delayed_produces=sum(len(partition.delayed.produces) for partition in partitions),
            delayed_fetches=len(self.delayed_fetches),
            appended_batches=self.appends.appended_batches,
            appended_records=self.appends.appended_records,
            appended_bytes=self.appends.appended_bytes,
            fetched_bytes=self._fetched_bytes,
            flusher=self.flusher.statistics(),
        )


def _nobody_decides(partition: Partition, wanted: PendingPartitionChange) -> None:
    """Leave a change pending, where there is no controller to ask."""
