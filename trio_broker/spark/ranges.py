"""Ranges of offsets: what a job reads, and what one task of it reads."""

from __future__ import annotations

import attrs

from trio_broker.common.topic_partition import TopicPartition


@attrs.frozen(order=True)
class OffsetRange:
    """The records of one partition from ``start_offset`` up to ``end_offset``, which is exclusive.

    Offsets are not records: compaction, transaction markers and aborted transactions leave gaps.
    """

    partition: TopicPartition
    start_offset: int
    end_offset: int

    def __attrs_post_init__(self) -> None:
        assert 0 <= self.start_offset <= self.end_offset, f"{self.partition}: {self.start_offset} to {self.end_offset}"

    @property
    def offset_count(self) -> int:
        """The number of offsets in the range; there may be fewer records."""
        return self.end_offset - self.start_offset

    def __str__(self) -> str:
        return f"{self.partition} [{self.start_offset}, {self.end_offset})"
