"""The partitions of this broker, and the tasks that serve them.

Handlers find partitions here, append to them, fetch from them and wait for them; ``BrokerMetadataPublisher`` applies
here what the controller decided (``apply_local_changes``). The flusher makes appends durable, and ``LogMaintenance``
runs the tasks that are due by the clock.

It appends by ``appends``, and asks ``failures`` what an error of a disk costs.

Source: Kafka's ReplicaManager and LogManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import TypeVar

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import uuid_text
from trio_broker.changes.change import ChangeAction, ChangedResource, MadeChange
from trio_broker.changes.change_log import ChangeLog
from trio_broker.common.log_throttle import LogThrottle
from trio_broker.common.request_phase import ReleaseHandler
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.barrier import start_background
from trio_broker.concurrency.scheduled_task import ScheduledTask, start_scheduled
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import InTurns, YieldBudget
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.entries import ValueChange
from trio_broker.config.log_config import LogConfig
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
)
from trio_broker.partition.fetch_sessions import FetchSessionCache
from trio_broker.partition.flusher import Flusher, FlusherStatistics
from trio_broker.partition.follower_appends import FollowerAppends
from trio_broker.partition.in_sync_replicas import PendingPartitionChange
from trio_broker.partition.leader_and_isr import LeaderAndIsr, LocalReplicaChanges, LocalTopicChanges
from trio_broker.partition.leader_appends import LeaderAppends
from trio_broker.partition.local_topics import LocalTopic
from trio_broker.partition.log_dir_failures import LogDirFailures
from trio_broker.partition.log_maintenance import LogMaintenance
from trio_broker.partition.partition import Durability, Partition
from trio_broker.partition.remote_replicas import NO_BROKER_EPOCH, RemoteReplicas, ReplicaBrokers
from trio_broker.partition.replica_fetcher_manager import ReplicaFetcherManager
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage.errors import CorruptCheckpoint, StorageShortage, is_shortage
from trio_broker.storage.log import Log
from trio_broker.storage.log_manager import LogManager
from trio_broker.storage.log_reader import LogReader

log = logging.getLogger(__name__)

T = TypeVar("T")

HIGH_WATERMARK = -1
"""The offset in DeleteRecords that stands for everything a consumer can see."""

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
        self.changes = changes or ChangeLog(clock)
        self.config = config
        self.clock = clock
        self.workers = runtime.workers
        self.io_limiter = io_limiter
        self.failures = LogDirFailures(log_manager, clock, self.partitions)
        self.log_maintenance = LogMaintenance(self, log_manager, config, runtime, failures=self.failures)
        self.durability = Durability(config.node.log_durability)
        self._threads = {
            directory.path: DirectoryThreads(self.workers, int(io_limiter.total_tokens))
            for directory in log_manager.directories
        }
        self.flusher = Flusher(self.workers, int(io_limiter.total_tokens), self.failures.sync_failed)
        self.topic_stats = BrokerTopicStats(clock)
        self.fetch_sessions = FetchSessionCache(
            clock, runtime.random, config.request.max_incremental_fetch_session_cache_slots
        )
        self._topics: dict[str, LocalTopic] = {}
        self._topics_by_id: dict[bytes, LocalTopic] = {}
        # For readers; attributes rather than properties, since every Fetch reads one of them.
        self.topics: Mapping[str, LocalTopic] = self._topics
        self.topics_by_id: Mapping[bytes, LocalTopic] = self._topics_by_id
        # One change of topics at a time: opening and deleting wait for threads in between.
        self._assignments = CommandQueue()
        self.follower_appends = FollowerAppends(clock, self.failures, self.flusher, self.log_maintenance)
        # Fetches what is followed; None where there are no other brokers.
        self.fetchers: ReplicaFetcherManager | None = None
        self._delayed_fetches: dict[DelayedFetch, None] = {}
        self._reaper = ExpirationReaper()
        self.appends = LeaderAppends(runtime, self.failures, self._reaper)
        self._stops_waiting = False
        self._throttled_log = LogThrottle(log, clock)
        # Called with each topic of which partitions were opened that could not be before; no checkpoint lies between.
        self.on_opened: Callable[[str], None] = _nothing_follows
        # Called with what the leader of a partition wants of the controller.
        self.alter_partition: Callable[[Partition, PendingPartitionChange], None] = _nobody_decides
        self._fetched_bytes = 0

    # ---- finding --------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> LocalTopic:
        """The topic of this name.

        Raises:
            KafkaError: ``UNKNOWN_TOPIC_OR_PARTITION``.
        """
        local = self._topics.get(name)
        if local is None:
            raise KafkaError(f"no topic {name!r} here", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return local

    def reason_not_held(self, name: str) -> KafkaError | None:
        """Why a partition of a topic has no log here, None if all have one."""
        local = self._topics.get(name)
        return next(iter(local.failures.values()), None) if local is not None else None

    def topic_by_id(self, topic_id: bytes) -> LocalTopic:
        """The topic of this id.

        Raises:
            KafkaError: ``UNKNOWN_TOPIC_ID``.
        """
        local = self._topics_by_id.get(topic_id)
        if local is None:
            raise KafkaError(f"no topic with id {uuid_text(topic_id)} here", code=ErrorCode.UNKNOWN_TOPIC_ID)
        return local

    def find(self, partition: TopicPartition) -> Partition | None:
        """The partition, None if there is no log of it here."""
        local = self._topics.get(partition.topic)
        return None if local is None else local.partitions.get(partition.partition)

    def partitions(self) -> Iterator[Partition]:
        """Every partition held, those whose disk failed included."""
        for local in self._topics.values():
            yield from local.partitions.values()

    # ---- what the cluster decides ---------------------------------------------------------------------------------

    async def apply_local_changes(self, changes: LocalReplicaChanges) -> None:
        """Hold, lead and follow what the cluster wants: deletes first, then followers, then leaders.

        So a topic that is created again never finds the files of the old one, and nobody waits for a leader that waits
        for the deletion of what is not its own. Applying the same twice changes nothing. A topic of the same name with
        another id is an earlier one that was deleted: its records go first. A log that cannot be opened affects its
        partition alone.
        """
        await self._assignments.execute(partial(self._apply_local_changes, changes))

    async def _apply_local_changes(self, changes: LocalReplicaChanges) -> None:
        if gone := [self._topics[name] for name in changes.deleted_topics if name in self._topics]:
            await self._delete(gone)
        opened: list[tuple[LocalTopic, LocalTopicChanges]] = []
        async for topic in InTurns(changes.topics):
            try:
                opened.append((await self._open_topic(topic), topic))
            except (OSError, CorruptCheckpoint) as error:
                log.error("topic %s cannot be held: %s", topic.name, error)
        # In turns both ways: of many topics none may be followed, and one may have ten thousand partitions.
        async for local, topic in InTurns(opened):
            async for index, decided in InTurns(topic.followers.items()):
                if partition := local.partitions.get(index):
                    partition.writer.make_follower(decided)
        if self.fetchers is not None:
            await self.fetchers.apply_local_changes(changes)
        async for local, topic in InTurns(opened):
            async for index, decided in InTurns(topic.leaders.items()):
                # Most have been led since they were opened, a moment ago.
                if (partition := local.partitions.get(index)) and not partition.writer.has_led_by(decided):
                    await partition.writer.make_leader(decided, self.clock.monotonic())

    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, as far as it has read the metadata."""
        epoch = self.brokers.registered_epoch(self.config.node.node_id)
        return NO_BROKER_EPOCH if epoch is None else epoch

    async def _open_topic(self, changes: LocalTopicChanges) -> LocalTopic:
        """Have the partitions of a topic that are to be here, and no others of those that are named."""
        local = self._topics.get(changes.name)
        if local is not None and local.topic_id != changes.topic_id:
            await self._delete([local])
            local = None
        if local is None:
            local = LocalTopic(changes.name, changes.topic_id, changes.config)
        if here := [index for index in changes.deletes if index in local.partitions or index in local.failures]:
            await self._delete_partitions(local, here)
        await self._open_missing(local, changes)
        if local.partitions or local.failures:
            self._topics[local.name] = self._topics_by_id[local.topic_id] = local
        if changes.config != local.config:
            self._configure(local, changes.config)
        return local

    def update_config(self, name: str, config: LogConfig) -> None:
        """Let new settings of a topic count from now on; a topic that is not here has none."""
        if local := self._topics.get(name):
            self._configure(local, config)

    def _configure(self, local: LocalTopic, config: LogConfig) -> None:
        local.config = config
        for partition in local.partitions.values():
            partition.configure(config, self.clock.monotonic())

    async def _delete(self, topics: Sequence[LocalTopic]) -> None:
        """Forget the topics' partitions and have their files removed; requests that wait for them get an error."""
        async for local in InTurns(topics):
            del self._topics[local.name]
            del self._topics_by_id[local.topic_id]
            gone = KafkaError(f"topic {local.name!r} was deleted", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            # All of a topic fail at once: no request may use one while another's files are removed.
            for partition in local.partitions.values():
                partition.fail(gone)
        await self._remove([each for local in topics for each in local.partitions.values()])
        indexes = ((local.name, index) for local in topics for index in (*local.partitions, *local.failures))
        await self.log_maintenance.delete_logs([TopicPartition(*each) async for each in InTurns(indexes)])

    async def _delete_partitions(self, local: LocalTopic, indexes: Collection[int]) -> None:
        """Forget partitions whose replicas are on other brokers now."""
        here = [index for index in indexes if index in local.partitions or index in local.failures]
        if not here:
            return
        partitions = [local.partitions.pop(index) for index in here if index in local.partitions]
        for partition in partitions:
            text = f"{partition.topic_partition} has no replica here any more"
            partition.fail(KafkaError(text, code=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for index in indexes:
            if index in local.failures:
                local.forget_unopened(index)
        if not (local.partitions or local.failures):
            self._topics.pop(local.name, None)
            self._topics_by_id.pop(local.topic_id, None)
        await self._remove(partitions)
        await self.log_maintenance.delete_logs([TopicPartition(local.name, index) for index in indexes])

    async def _remove(self, partitions: Iterable[Partition]) -> None:
        """Wait until nothing is done any more to the files of partitions that have failed."""
        async for partition in InTurns(partitions):
            # A sync under way needs the file open; none begins after a failure.
            await self.flusher.wait_idle(partition.writer)
            await partition.writer.wait_idle()
            await self.log_maintenance.log_cleaner.wait_idle(partition)

    async def _open_missing(self, local: LocalTopic, changes: LocalTopicChanges) -> None:
        wanted = {**changes.followers, **changes.leaders}
        missing = [index for index in sorted(wanted) if index not in local.partitions]
        outcomes: dict[int, Log | KafkaError] = {}
        for index in missing:
            topic_partition = TopicPartition(changes.name, index)
            if (existing := self.log_manager.logs.get(topic_partition)) is None:
                continue
            if existing.topic_id == changes.topic_id:
                outcomes[index] = existing
            else:
                log.warning("%s: its log is of another topic of that name; removing it", topic_partition)
                await self.log_maintenance.delete_logs([topic_partition])
        # None is at a start, when thousands of topics would wait for a thread one after another.
        if absent := [index for index in missing if index not in outcomes]:
            opened = await self.log_maintenance.change_directories(partial(self._open_logs, changes, absent))
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
            self.log_manager.add(outcome)
            opened_now[index] = self._partition(outcome, wanted[index], changes.config)
            # In the turn in which it can be found: requests that have waited for its topic do not ask in vain.
            if index in changes.leaders:
                opened_now[index].writer.lead_at_once(wanted[index], self.clock.monotonic())
            else:
                opened_now[index].writer.make_follower(wanted[index])
        local.partitions.update(opened_now)
        if late := local.failures.keys() & opened_now:
            for index in late:
                local.forget_unopened(index)
            # In this turn, so that no request comes before what follows from it.
            self.on_opened(local.name)

    def _partition(self, opened: Log, decided: LeaderAndIsr, config: LogConfig) -> Partition:
        settings = self.config.replication
        partition = Partition(
            opened,
            RemoteReplicas(self.config.node.node_id, self.brokers, settings.replica_lag_time_max_ms / 1000),
            high_watermark=self._first_high_watermark(opened, decided),
            durability=self.durability,
            sync_soon=self.flusher.request,
            in_thread=partial(self._change_in_thread, opened.directory.parent),
        )
        partition.configure(config, self.clock.monotonic())
        return partition

    def _first_high_watermark(self, opened: Log, decided: LeaderAndIsr) -> int:
        """What is visible at a start. Where there are other replicas, what was written down: what is behind it another
        leader may have in another way."""
        if decided.replicas == (self.config.node.node_id,):
            # All that the log holds; in fsync mode it was synced before it came here.
            return opened.log_end_offset
        directory = next(each for each in self.log_manager.directories if each.path == opened.directory.parent)
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
            opened = self.log_manager.find_or_open(topic_partition, changes.topic_id, changes.config, beside)
        except (OSError, CorruptCheckpoint, KafkaError) as error:
            text = f"{topic_partition} cannot be opened: {error}"
            if is_shortage(error):
                self._throttled_log.error("shortage", text)
                return StorageShortage(text)
            log.error("%s", text)
            return KafkaError(text, code=ErrorCode.KAFKA_STORAGE_ERROR)
        beside.append(opened)
        return opened

    # ---- fetching -------------------------------------------------------------------------------------------------

    def fetch_steps(
        self,
        targets: Sequence[FetchTarget],
        limits: FetchLimits,
        *,
        release_handler: ReleaseHandler,
        when_abandoned: Callable[[Callable[[], None]], None] | None = None,
    ) -> Steps[list[FetchedPartition]]:
        """Read ``targets`` within ``limits``, waiting if there is too little; results in their order.

        ``when_abandoned`` is given what to call if the client goes meanwhile.
        """
        operation = FetchOperation(
            targets,
            limits,
            storage_failed=self.failures.storage_failed,
            run_in_thread=self.run_in_thread,
            may_wait=lambda: not self._stops_waiting,
            delayed_fetches=self._delayed_fetches,
            follower_fetched=self.follower_fetched,
        )
        if when_abandoned is not None:
            when_abandoned(operation.abandon)
        attempt = yield from operation.run(release_handler)
        for partition, result in attempt.with_records:
            partition.fetched_bytes += result.size_bytes
            partition.fetched_records += result.record_count
        self._fetched_bytes += attempt.size_bytes
        return attempt.results

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
        wanted = partition.writer.follower_fetched(
            replica.broker_id,
            target.fetch_offset,
            log_start_offset=target.log_start_offset,
            leader_end=leader_end,
            now=self.clock.monotonic(),
            broker_epoch=replica.broker_epoch,
        )
        if wanted is not None:
            self.alter_partition(partition, wanted)

    def stop_waiting(self) -> None:
        """The broker stops: let every waiting fetch answer now with what there is, and none begin to wait."""
        self._stops_waiting = True
        for delayed in self._delayed_fetches:
            delayed.wake()

    # ---- deleting records -----------------------------------------------------------------------------------------

    def require_deletable(self, partition: Partition, offset: int) -> int:
        """Refuse to move the log start up to ``offset``, -1 for the high watermark; return where it would stand.

        Raises:
            KafkaError: ``OFFSET_OUT_OF_RANGE``, ``POLICY_VIOLATION`` for a topic that is only compacted, or the
                partition is out of use.
        """
        partition.require_leader()
        if not partition.log.config.cleanup_policy.delete:
            text = f"{partition.topic_partition} is compacted only: its records are not deleted by offset"
            raise KafkaError(text, code=ErrorCode.POLICY_VIOLATION)
        end_offset = partition.high_watermark if offset == HIGH_WATERMARK else offset
        partition.require_may_delete_before(end_offset)
        return max(end_offset, partition.log_start_offset)

    async def delete_records(self, offsets: Mapping[Partition, int]) -> dict[Partition, int | KafkaError]:
        """Move the log start of each partition up to its offset, -1 for the high watermark, and write all down at once.

        Returns where each stands, or the error of ``require_deletable`` or of the disk. Where only the writing failed,
        the start has moved, and may go back at a start after a kill.
        """
        outcomes: dict[Partition, int | KafkaError] = {}
        moved = []
        async for partition, offset in InTurns(offsets.items()):
            try:
                if await self._delete_before(partition, self.require_deletable(partition, offset)):
                    moved.append(partition)
                outcomes[partition] = partition.log_start_offset
            except KafkaError as error:
                outcomes[partition] = error.with_traceback(None)
        if not moved:
            return outcomes
        # First: it makes the room that the checkpoints take.
        await self.log_maintenance.remove_deleted_segments(moved)
        failed = await self.log_maintenance.write_deletions()
        for partition in moved:
            if partition.log.directory.parent in failed:
                text = f"{partition.topic_partition}: the new log start offset could not be written down"
                outcomes[partition] = KafkaError(text, code=ErrorCode.KAFKA_STORAGE_ERROR)
        return outcomes

    async def _delete_before(self, partition: Partition, end_offset: int) -> bool:
        """Move one log start; return whether it has moved."""
        start_offset = partition.log_start_offset
        if not await self.failures.changing(partition, partition.writer.delete_before(end_offset)):
            return False
        self.changes.record(deletion_of_records(partition, start_offset))
        return True

    # ---- running --------------------------------------------------------------------------------------------------

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the flusher and the scheduled tasks until cancelled."""
        async with trio.open_nursery() as nursery:
            for threads in self._threads.values():
                start_background(nursery, "watch over slow reads", threads.run)
            await nursery.start(self.flusher.run)
            self.log_maintenance.start(nursery)
            start_background(nursery, "expiration reaper", self._reaper.run)
            if self.fetchers is not None:
                start_background(nursery, "replica fetchers", self.fetchers.run)
            start_scheduled(nursery, self._traffic_task())
            start_scheduled(nursery, self._shortage_task())
            start_scheduled(nursery, self._isr_expiration_task())
            task_status.started()

    def _traffic_task(self) -> ScheduledTask:
        return ScheduledTask(
            "counting traffic",
            lambda: round(SNAPSHOT_SECONDS * 1000),
            lambda: self.topic_stats.take_snapshot(self._topics.values()),
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
        for local in list(self._topics.values()):
            if local.lacks_room:
                await self._assignments.execute(partial(self._open_after_shortage, local))

    async def _open_after_shortage(self, local: LocalTopic) -> None:
        if self._topics.get(local.name) is not local:
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
        try:
            threads = self.threads_of(partition.log.directory.parent)
            look = await threads.do(partial(partition.log.read_with, work), partition.writer)
        except OSError as error:
            raise self.failures.storage_failed(partition, error) from error
        partition.log.adopt(look.reader)
        return look.result

    # ---- figures --------------------------------------------------------------------------------------------------

    def statistics(self) -> ReplicaManagerStatistics:
        partitions = list(self.partitions())
        return ReplicaManagerStatistics(
            topics=len(self._topics),
            partitions=len(partitions),
            offline_partitions=sum(partition.failure is not None for partition in partitions),
            delayed_produces=sum(len(partition.delayed.produces) for partition in partitions),
            delayed_fetches=len(self._delayed_fetches),
            appended_batches=self.appends.appended_batches,
            appended_records=self.appends.appended_records,
            appended_bytes=self.appends.appended_bytes,
            fetched_bytes=self._fetched_bytes,
            flusher=self.flusher.statistics(),
        )


def _nobody_decides(partition: Partition, wanted: PendingPartitionChange) -> None:
    """Leave a change pending, where there is no controller to ask."""


def _nothing_follows(topic: str) -> None:
    """Follow partitions that were opened, where nothing else depends on them."""


def deletion_of_records(partition: Partition, start_offset: int) -> MadeChange:
    """The change that is recorded of a log that began at ``start_offset``, and begins later now."""
    topic_partition = partition.topic_partition
    moved = ValueChange(str(topic_partition), str(start_offset), str(partition.log_start_offset))
    return MadeChange(ChangeAction.RECORDS_DELETED, ChangedResource.TOPIC, topic_partition.topic, (moved,))
