"""Whether the leader epochs of a log are those of its batches: a digit of their file may be another one.

An epoch begins with the first batch that has it. The batch before is of an older one.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import attrs

from kafka_wire.records.batch import BatchHeader
from trio_broker.storage.batch_headers import good_headers, header_at
from trio_broker.storage.leader_epochs import EpochEntry
from trio_broker.storage.segment import Segment


@attrs.frozen
class EpochRange:
    """Batches from ``start_offset`` up to ``end_offset``, exclusive, of which none can be of a newer epoch than
    ``leader_epoch``, the metadata's; None where nothing says so."""

    segments: Sequence[Segment]
    start_offset: int
    end_offset: int
    leader_epoch: int | None

    def problem_with(self, entries: Sequence[EpochEntry]) -> str | None:
        """Return which entry contradicts the batches, None when none does. Reads two or three headers for each.

        Raises:
            CorruptRecordBatch: a batch that would tell is damaged.
        """
        beginning = header_at(self.segments, self.start_offset)
        if beginning is not None and beginning.partition_leader_epoch >= 0 and beginning.base_offset < self.end_offset:
            first_offset = max(self.start_offset, beginning.base_offset)
            if not entries or first_offset < entries[0].start_offset:
                return f"leader epoch {beginning.partition_leader_epoch} begins at {first_offset}, which its file lacks"
        ends = (entry.start_offset for entry in (*entries[1:], EpochEntry(0, self.end_offset)))
        for entry, end in zip(entries, ends, strict=False):
            if entry.start_offset >= self.end_offset:
                break
            first = max(entry.start_offset, self.start_offset)
            # Of an epoch that goes on behind the range, the last batch in it tells whether the next one begins earlier.
            if problem := self._problem_with(entry, first, min(end, self.end_offset)):
                return problem
        return None

    def _problem_with(self, entry: EpochEntry, first: int, end: int) -> str | None:
        """Compare the first and the last batch of an epoch."""
        for offset in (first, end - 1):
            header = header_at(self.segments, offset)
            # Compaction may have taken all batches of an epoch, or those at its ends.
            if header is None or header.base_offset >= end or header.partition_leader_epoch == entry.epoch:
                continue
            if self._may_be_right(header):
                return f"leader epoch {entry.epoch} at {offset}, where a batch has {header.partition_leader_epoch}"
        return None

    def entries(self) -> list[EpochEntry]:
        """Return the leader epochs of the batches, by their headers."""
        headers = (located.header for segment in self.segments for located in good_headers(segment))
        inside = (
            header
            for header in headers
            if header.last_offset >= self.start_offset and header.base_offset < self.end_offset
        )
        entries: list[EpochEntry] = []
        for header, following in itertools.pairwise((*inside, None)):
            assert header is not None
            epoch = header.partition_leader_epoch
            if epoch > (entries[-1].epoch if entries else -1) and not self._is_too_new(epoch, following):
                entries.append(EpochEntry(epoch, max(header.base_offset, self.start_offset)))
        return entries

    def _may_be_right(self, header: BatchHeader) -> bool:
        """Whether the epoch of a batch is between those around it: no checksum covers it."""
        before = header_at(self.segments, header.base_offset - 1)
        is_older = before is not None and before.base_offset < header.base_offset
        if before is not None and is_older and before.partition_leader_epoch > header.partition_leader_epoch:
            return False
        return not self._is_too_new(header.partition_leader_epoch, header_at(self.segments, header.next_offset))

    def _is_too_new(self, epoch: int, following: BatchHeader | None) -> bool:
        if self.leader_epoch is not None and epoch > self.leader_epoch:
            return True
        return following is not None and 0 <= following.partition_leader_epoch < epoch
