"""One partition as its clients see it: a log, and how much of it is visible.

Four offsets describe it::

    log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset

Consumers read up to the high watermark, consumers of committed records up to the last stable offset (the first record
of the oldest open transaction). With one replica and ``log.durability=page-cache`` the high watermark is the log end;
with ``fsync`` it is the durable offset, so that no consumer reads what a power cut can take back.

Offsets and waiting requests change on the event loop only, so they are always consistent. The callers run what blocks
(syncing, writing the leader epoch checkpoint, validating a large batch) in worker threads. A batch that arrives while
another one is in such a thread waits for it under ``append_lock``, so that batches are appended in their order of
arrival.

Source: Kafka's Partition and UnifiedLog; KIP-101 for leader epochs, KIP-320 for fencing.
"""

from __future__ import annotations

import enum
import heapq
import itertools
from collections.abc import Callable
from typing import NamedTuple

import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import RecordBatch
from trio_broker.partition.append_times import AppendTimes
from trio_broker.partition.delayed_operations import DelayedFetch, DelayedProduce
from trio_broker.partition.state import Advance, PartitionState
from trio_broker.storage.append import AppendInfo, AppendOrigin
from trio_broker.storage.log import Log

NO_EPOCH = -1
"""The leader epoch of a client that does not want to be checked."""


class Durability(enum.Enum):
    """When a record counts as safe; the values are those of ``log.durability``."""

    FSYNC = "fsync"
    PAGE_CACHE = "page-cache"


class IsolationLevel(enum.IntEnum):
    """Which records a consumer wants to see."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class HighWatermarkWaiter(NamedTuple):
    """A parked Produce and the high watermark it waits for. ``order`` keeps equal offsets first come, first served.

    A tuple, because a heap compares its items five times for each that passes through, and tuples do that in C.
    """

    required_offset: int
    order: int
    parked: DelayedProduce


class Partition:
    """A partition this broker leads. ``state`` says which offsets it has; on frequent paths it is read directly.

    ``sync_soon`` is called with the partition whenever something was appended that should become durable.
    ``failure`` is what every request gets once the partition was deleted or its disk failed.
    """

    def __init__(
        self,
        log: Log,
        *,
        leader_epoch: int,
        durability: Durability,
        sync_soon: Callable[[Partition], None],
        min_in_sync_replicas: int = 1,
    ) -> None:
        self.topic_partition = log.topic_partition
        self.topic_id = log.topic_id
        self.log = log
        self.durability = durability
        self.min_in_sync_replicas = min_in_sync_replicas
        # Set once by ``fail`` and never cleared.
        self.failure: KafkaError | None = None
        self.state = PartitionState(
            leader_epoch=leader_epoch,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            # At a start all that the log holds is visible; in fsync mode it was synced before it came here.
            high_watermark=log.log_end_offset,
            durable_offset=log.recovery_point,
            waits_for_disk=durability is Durability.FSYNC,
            transactions=log.producers.transactions,
        )
        self.append_times = AppendTimes()
        # Since this start: what was appended, and what fetches were answered with. See ``broker_topic_stats``.
        self.appended_bytes = self.fetched_bytes = self.fetched_records = 0
        self._first_end_offset = log.log_end_offset
        # Held across whatever an append waits for, so that no later batch overtakes it. Without waiting, an append
        # needs no lock: it has no checkpoint.
        self.append_lock = trio.Lock()
        # Keeps apart all who change the leader epoch checkpoint: a new epoch, retention, DeleteRecords, the cleaner's
        # swap. Taken inside ``append_lock`` where both are held.
        self.epoch_entry_lock = trio.Lock()
        # In memory only: the constructor runs on the event loop. The entry is written before the first append.
        log.begin_epoch(leader_epoch)
        # Whether ``write_epoch_entry`` must run before the next append.
        self.needs_epoch_entry = log.needs_epoch_entry(leader_epoch)
        self._sync_soon = sync_soon
        # A heap by the offset waited for.
        self._produces: list[HighWatermarkWaiter] = []
        self._produce_order = itertools.count()
        self._fetches: set[DelayedFetch] = set()
        # For ``flush.ms``: when the oldest append that may be unsynced was made; None when all is durable.
        self._unsynced_since_ms: int | None = None
        # Page-cache mode: set by ``flush_soon``, cleared by the sync in its worker thread.
        self._flush_asked = False
        self._last_append_ms = 0
        self._segment_synced_in = log.active_segment  # another active segment means: one was sealed since

    def __repr__(self) -> str:
        return f"<Partition {self.topic_partition} epoch {self.leader_epoch} high watermark {self.high_watermark}>"

    # ---- what is visible ------------------------------------------------------------------------------------------

    @property
    def leader_epoch(self) -> int:
        return self.state.leader_epoch

    @property
    def log_start_offset(self) -> int:
        return self.state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.state.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.state.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Everything before it is decided: committed, aborted, or never in a transaction."""
        return self.state.last_stable_offset

    @property
    def appended_records(self) -> int:
        """Records appended since this start."""
        return self.state.log_end_offset - self._first_end_offset

    @property
    def last_append_ms(self) -> int | None:
        """When something was appended last (wall clock), None if not since this start."""
        return self._last_append_ms or None

    def fetch_upper_bound(self, isolation_level: IsolationLevel) -> int:
        """The offset that a consumer of this isolation level may read up to, exclusive."""
        return self.last_stable_offset if isolation_level == IsolationLevel.READ_COMMITTED else self.high_watermark

    # ---- who may use it -------------------------------------------------------------------------------------------

    def require_leader(self, current_leader_epoch: int = NO_EPOCH) -> None:
        """Refuse when the partition cannot be used, or when the client believes in another leader epoch (KIP-320).

        Raises:
            KafkaError: the partition's failure; ``FENCED_LEADER_EPOCH`` for an older epoch, ``UNKNOWN_LEADER_EPOCH``
                for a newer one.
        """
        if self.failure is not None:
            # A new one each time: an exception that is raised twice drags all its tracebacks along.
            raise KafkaError(str(self.failure), code=self.failure.code)
        leader_epoch = self.state.leader_epoch
        if current_leader_epoch in (NO_EPOCH, leader_epoch):
            return
        text = f"{self.topic_partition}: the client knows leader epoch {current_leader_epoch}, this is {leader_epoch}"
        if current_leader_epoch < leader_epoch:
            raise KafkaError(text, code=ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(text, code=ErrorCode.UNKNOWN_LEADER_EPOCH)

    def require_in_sync_replicas(self) -> None:
        """Refuse an acks=all append that could not be as safe as the topic demands. There is one replica as yet.

        Raises:
            KafkaError: ``NOT_ENOUGH_REPLICAS``; nothing may be appended then.
        """
        if self.min_in_sync_replicas > 1:
            raise KafkaError(
                f"{self.topic_partition} has 1 in-sync replica and min.insync.replicas is {self.min_in_sync_replicas}",
                code=ErrorCode.NOT_ENOUGH_REPLICAS,
            )

    def begin_leader_epoch(self, leader_epoch: int) -> None:
        """Lead in a later epoch. Every waiting request checks again, since it may have been fenced.

        ``epoch_entry_lock`` must be held: a worker thread may otherwise be writing the epochs that change here.
        """
        if leader_epoch == self.leader_epoch:
            return
        self.state.lead(leader_epoch, {})
        self.log.begin_epoch(leader_epoch)
        self.needs_epoch_entry = self.log.needs_epoch_entry(leader_epoch)
        self._wake_fetches()

    def fail(self, failure: KafkaError) -> None:
        """Take the partition out of use for good; every waiting request gets the error now. The first failure
        stands."""
        if self.failure is not None:
            return
        self.failure = failure
        # Counted as completed, not woken: a Produce to several partitions goes on waiting for the others.
        for waiter in self._produces:
            waiter.parked.partition_completed()
        self._produces.clear()
        self._wake_fetches()

    # ---- appending ------------------------------------------------------------------------------------------------

    def write_epoch_entry(self) -> int:
        """Write down where this leader epoch begins; return the epoch. Blocks: runs in a worker thread.

        It must be on disk before the first record of the epoch, or a truncation after a crash would cut in the wrong
        place. ``append_lock`` keeps appends out, so the log end stands still meanwhile, and ``epoch_entry_lock`` keeps
        out the tasks that move the start of the log, which changes the same file.
        """
        leader_epoch = self.leader_epoch
        self.log.assign_epoch(leader_epoch, self.log.log_end_offset)
        return leader_epoch

    def epoch_entry_written(self, leader_epoch: int) -> None:
        """The entry of ``leader_epoch`` is on disk. It counts only if no later epoch has begun meanwhile."""
        if leader_epoch == self.leader_epoch:
            self.needs_epoch_entry = False

    def append(
        self,
        records: memoryview,
        *,
        now_ms: int,
        produce_version: int | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendInfo:
        """Append as the leader, at once and without a checkpoint: one batch of a client, or the broker's own.

        Raises:
            KafkaError: the log refused the batch; nothing was appended.
            OSError: the disk failed.
        """
        assert not self.needs_epoch_entry, f"{self.topic_partition}: epoch {self.leader_epoch} has no entry"
        leader_epoch = self.state.leader_epoch
        info = self.log.append(
            records, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin, produce_version=produce_version
        )
        return self._appended(info, now_ms)

    def append_prepared(self, batch: RecordBatch, *, now_ms: int) -> AppendInfo:
        """As ``append``, for a client's batch that the log has checked and prepared: what is left never takes long."""
        assert not self.needs_epoch_entry, f"{self.topic_partition}: epoch {self.leader_epoch} has no entry"
        info = self.log.append_prepared(batch, leader_epoch=self.state.leader_epoch, now_ms=now_ms)
        return self._appended(info, now_ms)

    def _appended(self, info: AppendInfo, now_ms: int) -> AppendInfo:
        """Notify the requests that wait for the append, or the flusher that has to sync it."""
        # Nothing is new. The client's Produce still waits for the high watermark if the first try is not durable.
        if info.duplicate:
            return info
        log, times = self.log, self.append_times
        self._last_append_ms = now_ms
        self.appended_bytes += info.appended_bytes
        # False for nearly every append, and then one comparison is all it costs.
        if not times.last_sample_ms <= now_ms < times.next_sample_ms:
            times.sample(info.first_offset, now_ms)
        if self._unsynced_since_ms is None:
            self._unsynced_since_ms = now_ms
        state = self.state
        advance = state.appended(log.log_end_offset, info.appended_bytes)
        if advance is not Advance.NOTHING and (self._fetches or self._produces):
            self._notify(advance, info.appended_bytes)
        if state.waits_for_disk:
            self._sync_soon(self)
        # As in Kafka a roll asks for a sync of what was sealed, so that recovery after a crash reads little.
        elif log.active_segment is not self._segment_synced_in or log.flush_is_due:
            self.flush_soon()
        return info

    def _notify(self, advance: Advance, visible_bytes: int) -> None:
        """Notify the requests that wait for what has become visible, which are so many bytes."""
        high_watermark, produces = self.state.high_watermark, self._produces
        # Waiters leave the heap before their tasks run, so none is woken twice.
        while produces and produces[0].required_offset <= high_watermark:
            heapq.heappop(produces).parked.partition_completed()
        for parked in self._fetches:
            parked.advanced(advance, visible_bytes)

    # ---- becoming durable -----------------------------------------------------------------------------------------

    @property
    def needs_sync(self) -> bool:
        """Whether there is something to sync: in fsync mode all that is not durable, else what a sync was asked for."""
        if self.failure is not None or self.state.durable_offset >= self.state.log_end_offset:
            return False
        return self.durability is Durability.FSYNC or self._flush_asked

    def flush_soon(self) -> None:
        """Page-cache mode: have one sync done. Appends that go on do not make it two."""
        self._flush_asked = True
        self._sync_soon(self)

    def flush_if_due(self, now_ms: int) -> None:
        """Have the partition synced when its oldest unsynced record has waited for ``flush.ms``."""
        since_ms = self._unsynced_since_ms
        if since_ms is not None and self.failure is None and now_ms - since_ms >= self.log.config.flush_ms:
            self.flush_soon()

    def sync(self) -> int:
        """Sync the log's files; return the offset that is durable now. Blocks: runs in a worker thread."""
        # Before the sync: an append that asks while it runs must get another one.
        self._flush_asked = False
        self._segment_synced_in = self.log.active_segment
        return self.log.sync()

    def durable_up_to(self, offset: int) -> None:
        """A sync ended: everything before ``offset`` survives a power cut."""
        state = self.state
        visible_before = state.visible_bytes
        advance = state.synced(offset)
        # What came during the sync is not older than the newest append, which is all that is known of it.
        self._unsynced_since_ms = None if offset == state.log_end_offset else self._last_append_ms
        # A partition that has failed has let go of all that waited.
        if advance is not Advance.NOTHING and self.failure is None:
            self._notify(advance, state.visible_bytes - visible_before)

    # ---- waiting --------------------------------------------------------------------------------------------------

    def add_delayed_produce(self, required_offset: int, parked: DelayedProduce) -> None:
        """Notify ``parked`` when the high watermark reaches ``required_offset``, or when the partition fails."""
        parked.partitions_pending += 1
        heapq.heappush(self._produces, HighWatermarkWaiter(required_offset, next(self._produce_order), parked))

    def remove_delayed_produce(self, parked: DelayedProduce) -> None:
        """Forget a Produce whose time is over."""
        # A heap has no cheaper removal; this happens only when a Produce times out or its client goes.
        kept = [waiter for waiter in self._produces if waiter.parked is not parked]
        heapq.heapify(kept)
        self._produces = kept

    def add_delayed_fetch(self, parked: DelayedFetch) -> None:
        """Notify ``parked`` of every byte that becomes visible, and of all else after which it must read again."""
        self._fetches.add(parked)

    def remove_delayed_fetch(self, parked: DelayedFetch) -> None:
        self._fetches.discard(parked)

    def _wake_fetches(self) -> None:
        for parked in self._fetches:
            parked.wake()

    @property
    def delayed_produces(self) -> int:
        return len(self._produces)

    @property
    def delayed_fetches(self) -> int:
        return len(self._fetches)

    # ---- deleting records -----------------------------------------------------------------------------------------

    def require_may_delete_before(self, offset: int) -> None:
        """Refuse to delete what is not yet safe, or what cannot be there.

        Raises:
            KafkaError: ``OFFSET_OUT_OF_RANGE``: that is beyond the high watermark.
        """
        if not 0 <= offset <= self.high_watermark:
            raise KafkaError(
                f"{self.topic_partition}: {offset} is not between 0 and the high watermark {self.high_watermark}",
                code=ErrorCode.OFFSET_OUT_OF_RANGE,
            )

    def log_start_moved(self) -> None:
        """The log start offset has moved forward: a fetch may wait for what is no longer there."""
        self.state.log_start_moved(self.log.log_start_offset)
        self._wake_fetches()
