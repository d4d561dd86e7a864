"""What changes one partition: its log, and the state that its readers go by.

Everything that changes the files of a partition, or what others read of it, is a command of its ``PartitionWriter``;
see ``LogCommands``, its lower floor.

An append is executed at once, without a checkpoint, unless it or a command before it must wait: for the first entry of
a leader epoch, or for a look into a large batch. Then all that come after it wait as well, so none is overtaken.

Leadership is a condition of each append, asked at the moment of the write, whatever it has waited for before.

Source: KIP-101 for leader epochs; Kafka's Partition (``appendRecordsToLeader``) and UnifiedLog, which have locks for
this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import RecordBatch
from trio_broker.partition.append_times import AppendTimes
from trio_broker.partition.delayed_operations import DelayedOperations
from trio_broker.partition.in_sync_replicas import PendingPartitionChange
from trio_broker.partition.leader_and_isr import LeaderAndIsr
from trio_broker.partition.log_commands import InThread, LogCommands, at_once
from trio_broker.partition.remote_replicas import FollowerFetch
from trio_broker.partition.state import NO_EPOCH, Advance, IsrChange, PartitionState
from trio_broker.storage.append import AppendInfo, AppendOrigin
from trio_broker.storage.durable_log import SyncedFiles
from trio_broker.storage.future_log import LogEnd
from trio_broker.storage.log import Log
from trio_broker.storage.truncatable_log import TruncationPlan

AppendGuard: TypeAlias = Callable[[], None]
"""Raises ``KafkaError`` if a batch may not be appended at this moment."""


class PartitionWriter(LogCommands):
    """See the head of the file. ``sync_soon`` is called with it whenever something should become durable.

    The partition calls what moves as long as it has not failed; commands of one that has failed may still be executed,
    and ask.
    """

    def __init__(
        self,
        log: Log,
        state: PartitionState,
        delayed: DelayedOperations,
        *,
        sync_soon: Callable[[PartitionWriter], None],
        in_thread: InThread,
    ) -> None:
        super().__init__(log, state, delayed, in_thread)
        # Held by a truncation, or by a move to another directory. Nothing is synced or compacted then.
        self.rest = trio.Lock()
        self.syncs_slowly = False
        self.reads_slowly = False
        self.append_times = AppendTimes()
        # Since this start, as the leader.
        self.appended_bytes = self.appended_records = 0
        self.last_append_ms = 0
        self._sync_soon = sync_soon
        # For ``flush.ms``: when the oldest append that may be unsynced was made; None when all is durable.
        self._unsynced_since_ms: int | None = None
        # Page-cache mode: a sync was asked for of everything before it.
        self._flush_offset = log.recovery_point
        # Of the active segment: another one means that it was sealed. No reference, which would keep its file open.
        self._active_base_offset = log.active_segment.base_offset

    def __repr__(self) -> str:
        return f"<PartitionWriter {self.log.topic_partition}>"

    # ---- appending ------------------------------------------------------------------------------------------------

    def require_may_append(self, *, acks_all: bool, leader_epoch: int = NO_EPOCH) -> None:
        """Refuse an append where the partition cannot be used, is not led here, or not in ``leader_epoch`` if that is
        given; and one with ``acks_all`` that could not be as safe as the topic demands.

        Raises:
            KafkaError: the partition's failure, ``NOT_LEADER_OR_FOLLOWER``, ``NOT_ENOUGH_REPLICAS``.
        """
        state = self.state
        state.require_online()
        if not state.is_leader:
            text = f"{self.log.topic_partition} is not led here"
            raise KafkaError(text, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if leader_epoch not in (NO_EPOCH, state.leader_epoch):
            text = f"{self.log.topic_partition} is led in epoch {state.leader_epoch}, and no longer in {leader_epoch}"
            raise KafkaError(text, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        # Before the append: records that are refused but in the log would be there twice after the producer's retry.
        if acks_all and state.is_under_min_isr:
            raise KafkaError(
                f"{self.log.topic_partition}: in-sync replicas are {state.in_sync_replica_count}, and"
                f" min.insync.replicas is {state.min_in_sync_replicas}",
                code=ErrorCode.NOT_ENOUGH_REPLICAS,
            )

    def append(
        self,
        records: memoryview,
        *,
        now_ms: int,
        produce_version: int | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        acks_all: bool = False,
        leader_epoch: int = NO_EPOCH,
    ) -> AppendInfo:
        """Append as the leader, at once and without a checkpoint: one batch of a client, or the broker's own.

        Raises:
            KafkaError: as ``require_may_append``, or the log refused the batch; nothing was appended.
            OSError: the disk failed.
        """
        self.require_may_append(acks_all=acks_all, leader_epoch=leader_epoch)
        assert not self.needs_epoch_entry, f"{self!r}: epoch {self.state.leader_epoch} has no entry"
        leader_epoch = self.state.leader_epoch
        info = self.log.append(
            records, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin, produce_version=produce_version
        )
        return self._appended(info, now_ms)

    def append_prepared(
        self, batch: RecordBatch, *, now_ms: int, acks_all: bool, guard: AppendGuard | None = None
    ) -> AppendInfo:
        """As ``append``, for a client's batch that the log has checked and prepared: what is left never takes long.

        ``guard`` raises what else forbids the append.
        """
        self.require_may_append(acks_all=acks_all)
        if guard is not None:
            guard()
        assert not self.needs_epoch_entry, f"{self!r}: epoch {self.state.leader_epoch} has no entry"
        info = self.log.append_prepared(batch, leader_epoch=self.state.leader_epoch, now_ms=now_ms)
        return self._appended(info, now_ms)

    def _appended(self, info: AppendInfo, now_ms: int) -> AppendInfo:
        """Notify the requests that wait for the append, or the flusher that has to sync it."""
        # Nothing is new. The client's Produce still waits for the high watermark if the first try is not durable.
        if info.duplicate:
            return info
        log, times = self.log, self.append_times
        self.last_append_ms = now_ms
        if self.state.is_leader:
            self.appended_bytes += info.appended_bytes
            self.appended_records += info.last_offset - info.first_offset + 1
        # False for nearly every append, and then one comparison is all it costs.
        if not times.last_sample_ms <= now_ms < times.next_sample_ms:
            times.sample(info.first_offset, now_ms)
        if self._unsynced_since_ms is None:
            self._unsynced_since_ms = now_ms
        state, delayed = self.state, self._delayed
        log_end_offset = log.log_end_offset
        advance = state.appended(log_end_offset, info.appended_bytes)
        if advance is not Advance.NOTHING and (delayed.fetches or delayed.produces):
            delayed.advanced(advance, state.high_watermark, state.newly_visible_bytes)
        if delayed.replica_fetches:
            delayed.appended(info.appended_bytes)
        if state.waits_for_disk:
            self._sync_soon(self)
        elif log.segments[-1].base_offset != self._active_base_offset:
            # As in Kafka a roll asks for a sync of what was sealed, so that recovery after a crash reads little.
            self._active_base_offset = log.segments[-1].base_offset
            self.flush_soon()
        elif log_end_offset - self._flush_offset >= log.config.flush_messages:
            self.flush_soon()
        return info

    def fail(self, failure: KafkaError) -> None:
        """Take the partition out of use, at once and for good; what waits gets the error. The first failure stands."""
        if self.state.failure is None:
            self.state.failure = failure
            self._delayed.release()

    # ---- becoming durable -----------------------------------------------------------------------------------------

    @property
    def needs_sync(self) -> bool:
        """Whether there is something to sync: in fsync mode all that is not durable, else what a sync was asked for."""
        state = self.state
        if state.failure is not None or self.rest.locked():
            return False
        return state.durable_offset < (state.log_end_offset if state.waits_for_disk else self._flush_offset)

    def flush_soon(self) -> None:
        """Page-cache mode: have everything synced that was appended so far. Appends that go on do not make it two."""
        self._flush_offset = self.state.log_end_offset
        self._sync_soon(self)

    def flush_if_due(self, now_ms: int) -> None:
        """Have the partition synced when its oldest unsynced record has waited for ``flush.ms``."""
        since_ms = self._unsynced_since_ms
        if since_ms is not None and self.state.failure is None and now_ms - since_ms >= self.log.config.flush_ms:
            self.flush_soon()

    def sync(self) -> Callable[[], None]:
        """Sync the log's files; return what then takes note of it. Blocks, and changes nothing: for a thread."""
        return partial(self._synced, self.log.sync_files())

    def _synced(self, files: SyncedFiles) -> None:
        state, offset = self.state, self.log.note_synced(files)
        # What came during the sync is not older than the newest append, which is all that is known of it.
        self._unsynced_since_ms = None if offset == state.log_end_offset else self.last_append_ms
        self._flush_offset = max(self._flush_offset, offset)
        self._moved(state.synced(offset))

    def _moved(self, advance: Advance) -> None:
        """Notify what waits of what an event lets be seen."""
        state = self.state
        # A partition that has failed has let go of all that waited.
        if advance is not Advance.NOTHING and state.failure is None:
            self._delayed.advanced(advance, state.high_watermark, state.newly_visible_bytes)

    # ---- following ------------------------------------------------------------------------------------------------

    def require_following(self, leader_epoch: int) -> None:
        """Refuse what the leader of ``leader_epoch`` asks for where another one leads by now.

        Raises:
            KafkaError: the partition's failure, ``FENCED_LEADER_EPOCH``.
        """
        state = self.state
        state.require_online()
        if state.is_leader or state.leader_epoch != leader_epoch:
            text = f"{self.log.topic_partition} no longer follows the leader of epoch {leader_epoch}: {state!r}"
            raise KafkaError(text, code=ErrorCode.FENCED_LEADER_EPOCH)

    async def append_as_follower(self, records: memoryview, *, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Append what was fetched from the leader of ``leader_epoch``.

        Raises:
            KafkaError: nothing was appended: the records are damaged, do not go on from the end of the log, are of a
                later epoch, or this broker no longer follows that leader.
            OSError: the disk refused or failed.
        """
        return await self.execute(partial(self._append_as_follower, records, leader_epoch, now_ms))

    async def _append_as_follower(self, records: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        self.require_following(leader_epoch)
        log = self.log
        batches = log.check_replicated(records, leader_epoch)
        log.begin_epochs_of(batches)
        if not log.epochs.is_written:
            await self.write_epochs()
            self.require_following(leader_epoch)
        return self._appended(log.append_as_follower(batches, records, now_ms), now_ms)

    def leader_reported(self, high_watermark: int) -> None:
        """The leader says where its high watermark is."""
        self._moved(self.state.leader_reported(high_watermark))

    async def truncate(self, offset: int, *, leader_epoch: int, now_ms: int, begins_anew: bool = False) -> None:
        """Cut the log at ``offset``, as the leader of ``leader_epoch`` has it, or have it begin anew there.

        To be called while ``rest`` is held, when no sync and no compaction is under way, and no recovery point on the
        disk is behind ``offset``.

        Raises:
            KafkaError: this broker no longer follows that leader; nothing was cut.
            OSError: the disk refused or failed.
        """
        assert self.rest.locked(), f"{self!r}: a sync may be under way"
        await self.execute(partial(self._truncate, offset, leader_epoch, now_ms, begins_anew))

    async def _truncate(self, offset: int, leader_epoch: int, now_ms: int, begins_anew: bool) -> None:
        self.require_following(leader_epoch)
        log = self.log
        if offset < log.log_end_offset or begins_anew:
            plan = await self._in_thread(partial(log.plan_truncation, offset, begins_anew=begins_anew))
            self.require_following(leader_epoch)
            await self._cut(plan.result, now_ms)
        # Also where there is nothing to cut: as a leader this broker may have begun an epoch, and appended nothing.
        log.epochs.truncate_from_end(log.log_end_offset)
        await self.write_epochs()

    async def _cut(self, plan: TruncationPlan, now_ms: int) -> None:
        log, state = self.log, self.state
        cut = log.cut(plan)
        state.truncated(log.log_start_offset, log.log_end_offset, log.recovery_point, log.producers.transactions)
        self._flush_offset = min(self._flush_offset, log.log_end_offset)
        try:
            synced = await self._in_thread(partial(log.sync_cut, cut, now_ms))
        except OSError as error:
            raise log.fail(error) from error
        log.note_cut(synced, now_ms)
        self._active_base_offset = log.active_segment.base_offset
        self._delayed.wake_fetches()

    # ---- another directory ----------------------------------------------------------------------------------------

    async def move_log(
        self, moved: Callable[[LogEnd], Awaitable[Log]], adopt: Callable[[Log], None], now_ms: int
    ) -> None:
        """Have ``moved`` make of the log, to which nobody appends meanwhile, one with the same content elsewhere; in
        the turn in which it takes the place of this one, ``adopt`` is called with it.

        To be called while ``rest`` is held, when no sync and no compaction is under way.

        Raises:
            KafkaError: the partition's failure.
            OSError: the disk refused or failed.
        """
        await self.execute(partial(self._move_log, moved, adopt, now_ms))

    async def _move_log(
        self, moved: Callable[[LogEnd], Awaitable[Log]], adopt: Callable[[Log], None], now_ms: int
    ) -> None:
        self.state.require_online()
        await self.write_epochs()
        before = self.log
        before.roll(now_ms)
        log = await moved(LogEnd.of(before))
        assert (log.log_start_offset, log.log_end_offset) == (before.log_start_offset, before.log_end_offset), (
            f"{log!r} in place of {before!r}"
        )
        log.bind_to_thread()
        log.config, log.first_dirty_offset = before.config, before.first_dirty_offset
        self.log, self.log_directory = log, log.directory.parent
        adopt(log)
        before.release()
        if self.state.is_leader:
            # Opening a log forgets an epoch that has no record yet.
            log.begin_epoch(self.state.leader_epoch)
        self.needs_epoch_entry = self.state.is_leader and log.needs_epoch_entry(self.state.leader_epoch)
        self._flush_offset, self._unsynced_since_ms = log.recovery_point, None
        self._active_base_offset = log.active_segment.base_offset
        self._moved(self.state.log_moved(log.recovery_point, log.producers.transactions))

    # ---- who leads ------------------------------------------------------------------------------------------------

    async def make_leader(self, decided: LeaderAndIsr, now: float) -> None:
        """Lead as the controller has decided, behind what was begun as a follower; ``now`` is monotonic."""
        await self.execute(partial(at_once, partial(self.lead_at_once, decided, now)))

    def has_led_by(self, decided: LeaderAndIsr) -> bool:
        """Whether this is the leader by ``decided`` already."""
        remote = self.state.remote
        # The replicas as well: an AlterPartition that completes a reassignment is answered without them.
        has_epoch = self.state.is_leader and remote.partition_epoch == decided.partition_epoch
        return has_epoch and {*remote.replicas, remote.broker_id} == {*decided.replicas}

    def lead_at_once(self, decided: LeaderAndIsr, now: float) -> None:
        """As ``make_leader``, where no command is under way. Every waiting Fetch checks again at a new epoch, since it
        may have been fenced."""
        state, log = self.state, self.log
        if decided.leader_epoch < state.leader_epoch:
            return  # it has lost the leadership while this waited
        is_new_epoch = decided.leader_epoch > state.leader_epoch
        advance = state.lead(decided, now)
        if is_new_epoch:
            # In memory only: this runs on the event loop. The entry is written before the first append of the epoch.
            log.begin_epoch(decided.leader_epoch)
            self.needs_epoch_entry = log.needs_epoch_entry(decided.leader_epoch)
            self._delayed.wake_fetches()
        # One that is no longer alive is no longer waited for.
        self._delayed.wake_deletions()
        self._moved(advance)

    def make_follower(self, decided: LeaderAndIsr) -> None:
        """Follow another broker, or nobody: at once, so that no append that waits is made. What waits for this one as a
        leader, or in an earlier epoch, ends, and the client asks the other."""
        is_other = self.state.is_leader or decided.leader_epoch > self.state.leader_epoch
        self.state.follow(decided)
        self.needs_epoch_entry = False
        if is_other:
            self._delayed.release()

    def set_min_in_sync_replicas(self, count: int, now: float) -> None:
        """``min.insync.replicas`` is another from now on."""
        self._moved(self.state.set_min_in_sync_replicas(count, now))

    # ---- what replicas and the controller say to a leader ---------------------------------------------------------

    def follower_fetched(self, fetch: FollowerFetch) -> PendingPartitionChange | None:
        """A replica has fetched. Return what is to be asked of the controller.

        Raises:
            KafkaError: as ``PartitionState.follower_fetched``.
        """
        wanted = self._isr_changed(self.state.follower_fetched(fetch))
        self._delayed.wake_deletions()
        return wanted

    def note_high_watermark_sent(self, replica_id: int, high_watermark: int) -> None:
        """A replica is sent a high watermark."""
        # It may be none any more, or this broker not the leader, after a wait.
        if (replica := self.state.remote.replicas.get(replica_id)) is not None:
            replica.sent_high_watermark = high_watermark

    def check_lag(self, now: float) -> PendingPartitionChange | None:
        """Time has passed. Return what is to be asked of the controller."""
        return self._isr_changed(self.state.check_lag(now))

    def isr_altered(self, pending: PendingPartitionChange, answer: LeaderAndIsr, now: float) -> None:
        """The controller has done what was asked."""
        self._moved(self.state.isr_altered(pending, answer, now))

    def isr_refused(
        self, pending: PendingPartitionChange, code: ErrorCode, now: float
    ) -> PendingPartitionChange | None:
        """The controller has refused what was asked. Return what it is to be asked again."""
        return self._isr_changed(self.state.isr_refused(pending, code, now))

    def _isr_changed(self, change: IsrChange) -> PendingPartitionChange | None:
        self._moved(change.advance)
        return change.wanted
