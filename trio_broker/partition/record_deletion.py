"""Deletion of records by offset, as DeleteRecords and the admin API ask for it.

Source: Kafka's ReplicaManager.deleteRecords; KIP-107.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.changes.change import ChangeAction, ChangedResource, MadeChange
from trio_broker.changes.change_log import ChangeLog
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.config.entries import ValueChange
from trio_broker.partition.log_dir_failures import LogDirFailures
from trio_broker.partition.log_maintenance import LogMaintenance
from trio_broker.partition.partition import Partition

HIGH_WATERMARK = -1
"""The offset in DeleteRecords that stands for everything a consumer can see."""


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

    async def delete(self, offsets: Mapping[Partition, int]) -> dict[Partition, int | KafkaError]:
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


def deletion_of_records(partition: Partition, start_offset: int) -> MadeChange:
    """The change that is recorded of a log that began at ``start_offset``, and begins later now."""
    topic_partition = partition.topic_partition
    moved = ValueChange(str(topic_partition), str(start_offset), str(partition.log_start_offset))
    return MadeChange(ChangeAction.RECORDS_DELETED, ChangedResource.TOPIC, topic_partition.topic, (moved,))
