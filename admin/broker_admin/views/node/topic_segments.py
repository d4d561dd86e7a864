"""The files of a partition's replica on a broker, and what retention takes of them when."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import attrs

S = TypeVar("S")


@attrs.frozen(kw_only=True)
class SegmentDetail:
    """One segment of a log, its offsets with the end exclusive.

    ``newest_record_at_ms`` is the largest timestamp, by which retention goes; ``index_entries`` are those of the offset
    index. ``is_compacted`` says that compaction has gone over it. ``retention_reason`` is set when retention takes it
    at its next check; ``retention_due_at_ms`` is when its time is over, ``retention_due_after_bytes`` how much has to
    be written before the limit of size takes it. Each is None where there is no such limit.
    """

    base_offset: int
    next_offset: int
    size_bytes: int
    is_active: bool
    newest_record_at_ms: int | None
    index_entries: int | None
    is_compacted: bool
    retention_reason: str | None
    retention_due_at_ms: int | None
    retention_due_after_bytes: int | None


@attrs.frozen(kw_only=True)
class PartitionSegments(Generic[S]):
    """The files of one partition: all of them, or a page of them.

    Retention is checked every ``retention_check_interval_ms``. ``compacted_up_to`` is None for a log that is never
    compacted; ``dirty_ratio`` is the share of bytes that compaction has not gone over.
    """

    partition: int
    log_directory: str
    retention_check_interval_ms: int
    compacted_up_to: int | None
    dirty_ratio: float | None
    segments: S


class TopicSegmentsView(Protocol):
    """The files of partitions, as the admin app sees them."""

    async def of_partition(self, name: str, partition: int) -> PartitionSegments[tuple[SegmentDetail, ...]] | None:
        """The files of one partition, oldest first; None if there is no such partition.

        Raises:
            TopicRefused: its disk failed.
        """
        ...
