"""Appends to the partitions that this broker leads, in order, and waits until they are safe.

A batch is appended at once, in the caller's turn, unless it or one before it has to wait: for a look at many records or
new compression, which a worker thread does, or for the first entry of a leader epoch.

Source: Kafka's ReplicaManager.appendRecords and Partition.appendRecordsToLeader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import RecordBatch
from trio_broker.common.request_phase import ReleaseHandler, RequestPhase, ignore_release
from trio_broker.concurrency.side_by_side import side_by_side
from trio_broker.concurrency.steps import Steps, run_steps
from trio_broker.concurrency.yield_budget import partition_in_turns
from trio_broker.partition.delayed_operations import DelayedProduce, ExpirationReaper
from trio_broker.partition.log_dir_failures import LogDirFailures
from trio_broker.partition.partition import Partition
from trio_broker.partition.state import NO_EPOCH
from trio_broker.partition.transaction_end import TransactionEnd
from trio_broker.partition.writer import AppendGuard
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage import validation
from trio_broker.storage.append import AppendInfo, AppendOrigin

T = TypeVar("T")

INFLATION_THREADS = 2
"""Batches inflated or walked at a time. Each may hold 128 MiB meanwhile (twice ``kafka_wire``'s limit for one batch),
which a sender pays for with a kilobyte; and walking records is Python, which more threads would only take from the
loop."""


@attrs.frozen
class RequiredOffset:
    """A partition and the high watermark that makes an append to it safe, as long as the leadership of
    ``leader_epoch``, in which it was appended, is not lost. Made in the turn of the append."""

    partition: Partition
    required_offset: int
    leader_epoch: int = attrs.field(
        default=attrs.Factory(lambda required: required.partition.leader_epoch, takes_self=True)
    )

    def code(self) -> ErrorCode:
        """The result of the append at the end of the wait."""
        state = self.partition.state
        # First: another leader may have cut what was appended here, and its high watermark is about other records.
        if not state.has_led_since(self.leader_epoch):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if state.high_watermark >= self.required_offset:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if state.is_under_min_isr else ErrorCode.NONE
        return ErrorCode.REQUEST_TIMED_OUT if state.failure is None else state.failure.code


class LeaderAppends:
    """See the head of the file. ``appended_batches``, ``appended_records`` and ``appended_bytes`` only grow."""

    def __init__(self, runtime: Runtime, failures: LogDirFailures, reaper: ExpirationReaper) -> None:
        self.clock = runtime.clock
        self.workers = runtime.workers
        self.failures = failures
        self.inflation_limiter = trio.CapacityLimiter(INFLATION_THREADS)
        self._reaper = reaper
        self.appended_batches = 0
        self.appended_records = 0
        self.appended_bytes = 0

    def append_steps(
        self,
        partition: Partition,
        records: memoryview,
        *,
        produce_version: int,
        acks_all: bool = False,
        release_handler: ReleaseHandler = ignore_release,
        guard: AppendGuard | None = None,
    ) -> Steps[AppendInfo]:
        """Append one batch to a partition: at once, unless it or one before it must wait. With ``acks_all`` only where
        as many replicas would have it as the topic wants.

        ``guard`` is called immediately before the append, and raises what forbids it.

        What makes a batch wait is a look at many records, or new compression, in a worker thread, or the first entry of
        a leader epoch. Before it waits for the disk, ``release_handler`` gives the handler slot back.

        Raises:
            KafkaError: the batch was refused, the partition is out of use or not led here, or its disk failed.
        """
        config, now_ms, writer = partition.log.config, self.clock.now_ms(), partition.writer
        batch = validation.check_client_batch(records, config, produce_version)
        takes_long = validation.takes_long(batch, config, now_ms)
        # No checkpoint lies between this question and the append, so none can overtake another.
        if takes_long or writer.needs_epoch_entry or writer.is_busy:
            if writer.needs_epoch_entry or writer.is_busy:
                release_handler(RequestPhase.DISK)
            # Also before the work: producers that have missed an election would cause much of it in vain.
            writer.require_may_append(acks_all=acks_all)
            append = partial(self._append_in_turn, partition, batch, takes_long, acks_all, guard)
            info: AppendInfo = yield partial(writer.execute, append)
            return info
        batch = validation.prepare(batch, config, now_ms, partition.topic_partition)
        return self._append_now(partition, batch, now_ms, acks_all, guard)

    async def _append_in_turn(
        self, partition: Partition, batch: RecordBatch, takes_long: bool, acks_all: bool, guard: AppendGuard | None
    ) -> AppendInfo:
        """A command: append a batch, however long it takes, behind those that came before it."""
        config, now_ms = partition.log.config, self.clock.now_ms()
        prepare = partial(validation.prepare, batch, config, now_ms, partition.topic_partition)
        if takes_long:
            work = partial(refusing_lightly, prepare)
            batch = await self.workers.run(work, limiter=self.inflation_limiter)
        else:
            batch = prepare()
        if partition.writer.needs_epoch_entry:
            await self.failures.changing(partition, partition.writer.write_epochs())
        return self._append_now(partition, batch, self.clock.now_ms(), acks_all, guard)

    def _append_now(
        self, partition: Partition, batch: RecordBatch, now_ms: int, acks_all: bool, guard: AppendGuard | None
    ) -> AppendInfo:
        try:
            info = partition.writer.append_prepared(batch, now_ms=now_ms, acks_all=acks_all, guard=guard)
        except OSError as error:
            raise self.failures.storage_failed(partition, error) from error
        self._count(info)
        return info

    def _count(self, info: AppendInfo) -> None:
        self.appended_batches += 1
        self.appended_records += info.last_offset - info.first_offset + 1
        self.appended_bytes += info.appended_bytes

    def append_internal(self, partition: Partition, batch: memoryview, *, leader_epoch: int) -> None:
        """Append a batch of the broker's own, such as a coordinator's, at once and without a checkpoint.

        It is refused in another leader epoch than ``leader_epoch``, unless that is ``NO_EPOCH``. ``ready_to_append``
        must have been awaited in this epoch.

        Raises:
            KafkaError: nothing was appended: the log refused, the partition is out of use or not led here, or its disk
                failed.
        """
        writer = partition.writer
        if writer.needs_epoch_entry:
            # First, since there is none either where another broker leads.
            writer.require_may_append(acks_all=True, leader_epoch=leader_epoch)
            text = f"{partition.topic_partition}: leader epoch {partition.leader_epoch} has only begun"
            raise KafkaError(text, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        now_ms = self.clock.now_ms()
        try:
            info = writer.append(
                batch, now_ms=now_ms, origin=AppendOrigin.COORDINATOR, acks_all=True, leader_epoch=leader_epoch
            )
        except OSError as error:
            raise self.failures.storage_failed(partition, error) from error
        self._count(info)

    def append_marker_steps(self, partition: Partition, end: TransactionEnd) -> Steps[int]:
        """Append the end of a transaction, behind all that came before it. Returns the offset after it.

        Raises:
            KafkaError: nothing was appended.
        """
        writer = partition.writer
        if writer.is_busy or writer.needs_epoch_entry:
            yield partial(writer.execute, partial(self._append_marker, partition, end))
        else:
            self.append_end(partition, end, leader_epoch=NO_EPOCH)
        return partition.log_end_offset

    async def _append_marker(self, partition: Partition, end: TransactionEnd) -> None:
        if partition.writer.needs_epoch_entry:
            await self.failures.changing(partition, partition.writer.write_epochs())
        self.append_end(partition, end, leader_epoch=NO_EPOCH)

    def append_end(self, partition: Partition, end: TransactionEnd, *, leader_epoch: int) -> None:
        """As ``append_internal``, for the end of a transaction."""
        # First: the producers of a partition that another broker leads say nothing.
        partition.writer.require_may_append(acks_all=True, leader_epoch=leader_epoch)
        producers = partition.log.producers
        if end.has_raised_epoch:
            producers.check_end(end.producer_id, end.producer_epoch)
        end = end.where_known(producers.coordinator_epoch(end.producer_id))
        self.append_internal(partition, end.batch(self.clock.now_ms()), leader_epoch=leader_epoch)

    async def ready_to_append(self, partition: Partition) -> None:
        """Write down where the partition's leader epoch begins, if that has not been done.

        Raises:
            KafkaError: the disk failed.
        """
        await self.failures.changing(partition, partition.writer.ready_to_append())

    def ready_steps(self, partitions: Iterable[Partition], release_handler: ReleaseHandler) -> Steps[None]:
        """As ``ready_to_append`` for many, side by side: one after another they would take 10 ms each in a new topic.
        What fails is met again by the append.
        """
        new, _ = yield from partition_in_turns(
            partitions, lambda each: each.writer.needs_epoch_entry and each.failure is None
        )
        if len(new) > 1:
            release_handler(RequestPhase.DISK)
            yield partial(side_by_side, "beginning of leader epochs", new, self._write_epoch)

    async def _write_epoch(self, partition: Partition) -> None:
        with suppress(KafkaError):
            await self.ready_to_append(partition)

    async def wait_until_replicated(
        self,
        awaited: Sequence[RequiredOffset],
        *,
        timeout_seconds: float,
        release_handler: ReleaseHandler,
    ) -> list[ErrorCode]:
        """``replication_steps`` in the calling task."""
        steps = self.replication_steps(awaited, timeout_seconds=timeout_seconds, release_handler=release_handler)
        return await run_steps(steps)

    def replication_steps(
        self, awaited: Sequence[RequiredOffset], *, timeout_seconds: float, release_handler: ReleaseHandler
    ) -> Steps[list[ErrorCode]]:
        """Wait until every append is as safe as it gets, at most ``timeout_seconds``; how each stands, in their order.

        A batch that is not safe in time stays in the log all the same: its producer gets REQUEST_TIMED_OUT.
        """
        delayed = DelayedProduce(timeout_seconds, self._reaper)
        partitions = [each.partition for each in awaited]
        for each in awaited:
            if each.code() is ErrorCode.REQUEST_TIMED_OUT:
                each.partition.delayed.add_produce(each.required_offset, delayed)
        if delayed.partitions_pending:
            # Without other replicas the high watermark waits for nothing but a sync.
            awaits_others = any(partition.has_other_replicas for partition in partitions)
            release_handler(RequestPhase.PURGATORY if awaits_others else RequestPhase.DISK)
            try:
                yield delayed
            finally:
                if delayed.partitions_pending:
                    for partition in partitions:
                        partition.delayed.remove_produce(delayed)
        return [each.code() for each in awaited]


def refusing_lightly(prepare: Callable[[], T]) -> T:
    """Do ``prepare``; a refusal comes without the frames it passed through.

    On its way from a worker thread an exception becomes part of a reference cycle, and its traceback keeps every local
    of those frames until a garbage collection: for a decompression bomb, all that was inflated.

    Raises:
        KafkaError: what ``prepare`` raises.
    """
    try:
        return prepare()
    except KafkaError as refusal:
        refusal.__context__ = None
        raise refusal.with_traceback(None) from None
