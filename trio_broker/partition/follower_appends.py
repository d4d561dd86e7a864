"""What a follower does to its logs: it appends what its leader has, and cuts what its leader has not.

All of it is done for the leader of one epoch, and refused with ``FENCED_LEADER_EPOCH`` once another one leads, also in
the middle.

Source: Kafka's Partition.appendRecordsToFollowerOrFutureReplica and LogManager.truncateTo.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import PurePath

import attrs

from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import read_batches
from trio_broker.concurrency.side_by_side import side_by_side
from trio_broker.partition.flusher import Flusher
from trio_broker.partition.log_dir_failures import LogDirFailures
from trio_broker.partition.log_maintenance import LogMaintenance
from trio_broker.partition.partition import Partition
from trio_broker.runtime.clock import Clock
from trio_broker.storage.append import AppendInfo
from trio_broker.storage.errors import UnexpectedAppendOffset


@attrs.frozen
class Truncation:
    """A cut at ``offset``, which the leader of ``leader_epoch`` has asked for. With ``begins_anew`` the log drops all,
    and begins there."""

    offset: int
    leader_epoch: int
    begins_anew: bool = False


@attrs.frozen
class FollowerAppends:
    """See the head of the file."""

    clock: Clock
    failures: LogDirFailures
    flusher: Flusher
    log_maintenance: LogMaintenance

    async def append(self, partition: Partition, records: memoryview, *, leader_epoch: int) -> AppendInfo:
        """Append what was fetched from the leader of ``leader_epoch``; see ``PartitionWriter.append_as_follower``.

        Raises:
            KafkaError: it was refused, or the disk refused or failed.
        """
        try:
            return await self._append(partition, records, leader_epoch)
        except UnexpectedAppendOffset:
            first, log = next(read_batches(records)).header, partition.log
            is_empty = log.log_start_offset == log.log_end_offset
            if not (is_empty and first.base_offset < log.log_end_offset < first.next_offset):
                raise
        # The leader's log starts within its first batch, by DeleteRecords, and this log shall have that batch.
        anew = Truncation(first.base_offset, leader_epoch, begins_anew=True)
        if refusal := (await self.truncate({partition: anew})).get(partition):
            raise refusal
        return await self._append(partition, records, leader_epoch)

    async def _append(self, partition: Partition, records: memoryview, leader_epoch: int) -> AppendInfo:
        append = partition.writer.append_as_follower(records, leader_epoch=leader_epoch, now_ms=self.clock.now_ms())
        return await self.failures.changing(partition, append)

    async def adopt_offsets(
        self, partition: Partition, *, leader_epoch: int, high_watermark: int, log_start_offset: int
    ) -> None:
        """Follow the high watermark and the log start of the leader of ``leader_epoch``, as far as this log goes.

        Raises:
            KafkaError: this broker no longer follows that leader, or the disk refused or failed.
        """
        writer = partition.writer
        writer.require_following(leader_epoch)
        writer.leader_reported(high_watermark)
        # What this log has not safe yet is deleted at a later Fetch.
        offset = min(log_start_offset, partition.high_watermark)
        if offset > partition.log_start_offset:
            await self.failures.changing(partition, writer.delete_before(offset))

    async def truncate(self, truncations: Mapping[Partition, Truncation]) -> dict[Partition, KafkaError]:
        """Cut the logs of these partitions, side by side; return the errors of those that were not.

        No sync and no compaction is under way there meanwhile, and no recovery point on the disk is behind a cut when
        it is made.
        """
        try:
            async with AsyncExitStack() as held:
                for partition in truncations:
                    await held.enter_async_context(partition.writer.rest)
                for partition in truncations:
                    await self.flusher.wait_idle(partition.writer)
                    await self.log_maintenance.log_cleaner.wait_idle(partition)
                failed = await self._lower_recovery_points(truncations)
                return await self._cut(truncations, failed)
        finally:
            for partition in truncations:
                self.flusher.request(partition.writer)

    async def _lower_recovery_points(self, truncations: Mapping[Partition, Truncation]) -> dict[PurePath, OSError]:
        """Lower those that are behind a cut, on the disk too; return the log directories where that failed."""
        points = {
            each: each.log.recovery_point for each, cut in truncations.items() if cut.offset < each.log.recovery_point
        }
        # What is on the disk is never more than what is in memory, so most cuts of page-cache mode end here.
        if not points:
            return {}
        for partition in points:
            partition.log.lower_recovery_point(truncations[partition].offset)
        failed = await self.log_maintenance.write_deletions()
        for partition, recovery_point in points.items():
            if partition.log.directory.parent in failed:
                partition.log.recovery_point = recovery_point
        return failed

    async def _cut(
        self, truncations: Mapping[Partition, Truncation], failed: Mapping[PurePath, OSError]
    ) -> dict[Partition, KafkaError]:
        refusals: dict[Partition, KafkaError] = {}

        async def cut(partition: Partition) -> None:
            try:
                await self._cut_one(partition, truncations[partition], failed.get(partition.log.directory.parent))
            except KafkaError as error:
                refusals[partition] = error.with_traceback(None)

        await side_by_side("truncation of logs", truncations, cut)
        return refusals

    async def _cut_one(self, partition: Partition, truncation: Truncation, failure: OSError | None) -> None:
        if failure is not None:
            raise self.failures.storage_failed(partition, failure)
        cut = partition.writer.truncate(
            truncation.offset,
            leader_epoch=truncation.leader_epoch,
            now_ms=self.clock.now_ms(),
            begins_anew=truncation.begins_anew,
        )
        await self.failures.changing(partition, cut)
