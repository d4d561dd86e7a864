"""Deletion of records by offset, as DeleteRecords and the admin API ask for it.

The leader moves its log start, and followers move theirs when they read of it in the answers to their fetches. A
deletion has been made when the logs of all replicas begin at the offset, as far as their brokers are alive: the *low
watermark* has reached it.

Source: Kafka's ReplicaManager.deleteRecords; KIP-107.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.changes.change import ChangeAction, ChangedResource, MadeChange
from trio_broker.changes.change_log import ChangeLog
from trio_broker.common.request_phase import ReleaseHandler, RequestPhase, ignore_release
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.entries import ValueChange
from trio_broker.partition.delayed_operations import DelayedDeleteRecords
from trio_broker.partition.log_dir_failures import LogDirFailures
from trio_broker.partition.log_maintenance import LogMaintenance
from trio_broker.partition.partition import Partition

HIGH_WATERMARK = -1
"""The offset in DeleteRecords that stands for everything a consumer can see."""


REPLICATION_SECONDS = 30.0
"""How long other replicas are waited for where the client does not say it: Kafka's default of its request timeout."""


@attrs.define(eq=False)
class PartitionDeletion:
    """A deletion that the leader of ``leader_epoch`` has made. ``outcome`` is the low watermark, or why it was not
    reached; None while it is waited for."""

    partition: Partition
    required_offset: int
    leader_epoch: int
    outcome: int | KafkaError | None = None

    def look(self) -> bool:
        """Look whether the low watermark was reached, or never will be; return whether it is still waited for."""
        if self.outcome is None:
            self.outcome = self._outcome()
        return self.outcome is None

    def _outcome(self) -> int | KafkaError | None:
        state, partition = self.partition.state, self.partition.topic_partition
        if state.failure is not None:
            return KafkaError(str(state.failure), code=state.failure.code)
        if not state.has_led_since(self.leader_epoch):
            return KafkaError(f"{partition} is no longer led here", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        low_watermark = self.partition.low_watermark
        return low_watermark if low_watermark >= self.required_offset else None


@attrs.frozen
class RecordDeletion:
    """See the head of the file."""

    failures: LogDirFailures
    log_maintenance: LogMaintenance
    changes: ChangeLog

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

    async def delete(
        self,
        offsets: Mapping[Partition, int],
        *,
        timeout_seconds: float = REPLICATION_SECONDS,
        release_handler: ReleaseHandler = ignore_release,
    ) -> dict[Partition, int | KafkaError]:
        """Move the log start of each partition up to its offset, -1 for the high watermark, and write all down at once;
        then wait for other replicas, before which ``release_handler`` gives the handler slot back.

        Returns each low watermark, or the error of ``require_deletable`` or of the disk. Where only the writing failed,
        the start has moved, and may go back at a start after a kill. After ``REQUEST_TIMED_OUT`` the other replicas
        delete when they can.
        """
        outcomes: dict[Partition, int | KafkaError] = {}
        made: list[PartitionDeletion] = []
        moved = []
        async for partition, offset in InTurns(offsets.items()):
            try:
                required_offset, leader_epoch = self.require_deletable(partition, offset), partition.leader_epoch
                if await self._delete_before(partition, required_offset):
                    moved.append(partition)
                made.append(PartitionDeletion(partition, required_offset, leader_epoch))
                made[-1].look()
            except KafkaError as error:
                outcomes[partition] = error.with_traceback(None)
        failed = await self._write_down(moved)
        pending = [each async for each in InTurns(made) if each.partition not in failed and each.look()]
        if pending:
            release_handler(RequestPhase.PURGATORY)
            await self._until_deleted(pending, trio.current_time() + timeout_seconds)
        async for each in InTurns(made):
            outcomes[each.partition] = each.outcome if each.outcome is not None else timed_out(each.partition)
        return outcomes | failed

    async def _write_down(self, moved: Sequence[Partition]) -> dict[Partition, KafkaError]:
        """Make the new log starts durable; return the errors of those that are not."""
        if not moved:
            return {}
        # First: it makes the room that the checkpoints take.
        await self.log_maintenance.remove_deleted_segments(moved)
        failed = await self.log_maintenance.write_deletions()
        return {
            each: KafkaError(
                f"{each.topic_partition}: the new log start offset could not be written down",
                code=ErrorCode.KAFKA_STORAGE_ERROR,
            )
            for each in moved
            if each.log.directory.parent in failed
        }

    async def _until_deleted(self, pending: Sequence[PartitionDeletion], deadline: float) -> None:
        """Wait until all have an outcome, or until ``deadline``."""
        delayed, waiting = DelayedDeleteRecords(), pending
        for each in pending:
            each.partition.delayed.deletions[delayed] = None
        try:
            while waiting := [each async for each in InTurns(waiting) if each.look()]:
                if not await delayed.wait_until(deadline):
                    break
        finally:
            for each in pending:
                del each.partition.delayed.deletions[delayed]

    async def _delete_before(self, partition: Partition, end_offset: int) -> bool:
        """Move one log start; return whether it has moved."""
        start_offset = partition.log_start_offset
        if not await self.failures.changing(partition, partition.writer.delete_before(end_offset)):
            return False
        self.changes.record(deletion_of_records(partition, start_offset))
        return True


def timed_out(partition: Partition) -> KafkaError:
    """The error of a partition of which a replica has not deleted in time."""
    text = f"{partition.topic_partition}: not every replica has deleted in time"
    return KafkaError(text, code=ErrorCode.REQUEST_TIMED_OUT)


def deletion_of_records(partition: Partition, start_offset: int) -> MadeChange:
    """The change that is recorded of a log that began at ``start_offset``, and begins later now."""
    topic_partition = partition.topic_partition
    moved = ValueChange(str(topic_partition), str(start_offset), str(partition.log_start_offset))
    return MadeChange(ChangeAction.RECORDS_DELETED, ChangedResource.TOPIC, topic_partition.topic, (moved,))
