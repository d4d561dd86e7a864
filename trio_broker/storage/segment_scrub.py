"""The check of one sealed segment while its log is served: every batch, without its records being decoded.

Source: trio_broker/partition/log_scrubber.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.storage import batch_checks, batch_scan
from trio_broker.storage.batch_checks import BatchPlace
from trio_broker.storage.log_file import LogFile

WINDOW_BYTES = 1 << 20
"""Read at a time; also what is asked of the page cache, and given back to it, at once."""


@attrs.define
class SegmentScrub:
    """``steps`` reads the segment; then ``problem`` says what is wrong at ``position``, None when nothing is.

    ``end_offset`` is where the next segment begins.
    """

    file: LogFile
    base_offset: int
    end_offset: int
    size: int
    problem: str | None = None
    position: int = 0
    next_offset: int = 0
    last_epoch: int = -1

    def steps(self) -> Iterator[int]:
        """Check batch after batch; yields the bytes of each. Blocks: runs in a worker thread.

        What was not in the page cache is given back, so that a pass over all logs drives out nothing that clients use.

        Raises:
            OSError: the file cannot be read.
        """
        self.next_offset = self.base_offset
        file = self.file.opened()
        while self.position < self.size and self.problem is None:
            start = self.position
            is_cold = not file.region(start, self.size - start).is_cached(start, min(WINDOW_BYTES, self.size - start))
            yield from self._window(start + WINDOW_BYTES)
            if is_cold:
                file.forget(start, self.position - start)
            if self.position == start and self.problem is None:
                self.problem = "the last batch is cut short"

    def _window(self, end: int) -> Iterator[int]:
        """Check the batches that begin before ``end``."""
        try:
            for located in batch_scan.whole_batches(self.file, self.position, self.size, chunk_bytes=WINDOW_BYTES):
                if located.position >= end:
                    return
                header = located.header
                place = BatchPlace(self.base_offset, self.next_offset, self.end_offset, self.last_epoch)
                self.problem = batch_checks.problem_with(header, located.buffer, place)
                if self.problem is not None:
                    return
                self.next_offset = header.next_offset
                self.last_epoch = max(self.last_epoch, header.partition_leader_epoch)
                self.position = located.position + header.size_bytes
                yield header.size_bytes
        except CorruptRecordBatch as error:
            self.problem = str(error)
