"""A walk over the records of one partition, piece by piece, towards newer or older ones.

``load`` fetches a piece, on the event loop; ``advance`` inflates and walks over it, in a worker thread. Towards older
records a piece is a window of offsets before the position: its batches are kept as bytes, and inflated one by one from
the last. A piece is small at first, so that records are searched before all partitions have read much, and grows to
``piece_bytes``: that much of a window is kept at the most, or one batch that is larger.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

import trio

from broker_admin.messages.query import ScanRange
from broker_admin.views.cluster.messages import (
    BatchInfo,
    FetchedLogBatch,
    MessagesView,
    OwnFormat,
    PartitionBatches,
    UnreadableBatch,
)
from trio_broker.common.record_json import StoredRecord

FIRST_PIECE_BYTES = 64 * 1024
"""Of a partition before anything of it is searched; each piece is twice the one before."""

MAX_PIECES_READ = 4
"""As many pieces are read for a window at the most, where its batches turn out to be larger than those before."""

OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
"""Retention has taken what was to be read next."""


class PartitionScan:
    """One partition of a search.

    ``position`` is the first offset that is yet to be searched, or towards older records the one behind the last.
    ``record`` and ``batch`` are where the walk stands after ``advance``; ``taken`` moves the position past them.
    """

    def __init__(self, span: ScanRange, *, forward: bool, piece_bytes: int, first_window: int) -> None:
        self.partition = span.partition
        self.forward = forward
        self.position = span.start if forward else span.end
        self.error: str | None = None
        self.fetched_bytes = 0
        self.record: StoredRecord
        self.batch: BatchInfo
        self.own_format: Callable[[StoredRecord], OwnFormat | None] | None
        self.bytes_per_offset = span.bytes_per_offset
        self._bound = span.end if forward else span.start
        self._piece_bytes = min(piece_bytes, FIRST_PIECE_BYTES)
        self._max_piece_bytes = piece_bytes
        self._window = max(1, min(first_window, int(self._piece_bytes / span.bytes_per_offset)))
        self._batches: Iterator[FetchedLogBatch] = iter(())
        self._records: Iterator[StoredRecord] = iter(())
        self._has_batch = False

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to search, or nothing more can be read."""
        return self.error is not None or self.position == self._bound

    @property
    def left_offsets(self) -> int:
        """How many offsets are yet to be searched."""
        return 0 if self.error is not None else abs(self._bound - self.position)

    @property
    def order(self) -> tuple[int, int]:
        """Where the record stands in the merge: by timestamp, then partition; both descend towards older records."""
        sign = 1 if self.forward else -1
        return sign * self.record.timestamp, sign * self.partition

    # ---- on the event loop ----

    async def load(self, view: MessagesView, topic: str) -> None:
        """Fetch the next piece; the walk over what was loaded before must have ended."""
        if self.forward:
            fetched = await self._fetch(view, topic, self.position)
            self._batches = iter(()) if fetched is None else fetched.batches()
        else:
            await self._load_window(view, topic)
        self._piece_bytes = min(2 * self._piece_bytes, self._max_piece_bytes)

    async def _fetch(self, view: MessagesView, topic: str, offset: int) -> PartitionBatches | None:
        [fetched] = await view.fetch_batches(topic, {self.partition: offset}, max_bytes=self._piece_bytes)
        if fetched.error == OFFSET_OUT_OF_RANGE:
            await self._follow_retention(view, topic)
        elif fetched.error is not None:
            self.error = fetched.error
        elif not fetched.size_bytes and self.forward:
            # Nothing up to the end, though there are offsets: compaction has taken the last ones.
            self.position = self._bound
        self.fetched_bytes += fetched.size_bytes
        return fetched if fetched.size_bytes and not fetched.error else None

    async def _follow_retention(self, view: MessagesView, topic: str) -> None:
        """Go on where the log now begins."""
        now = {each.partition: each for each in await view.readable_partitions(topic) or ()}.get(self.partition)
        if now is None or now.error is not None or now.end_offset < self.position:
            self.error = "the partition is gone" if now is None else now.error or "the partition was truncated"
        elif self.forward:
            self._bound = max(self._bound, now.log_start_offset)
            self.position = max(self.position, now.log_start_offset)
        else:
            self._bound = min(max(self._bound, now.log_start_offset), self.position)

    async def _load_window(self, view: MessagesView, topic: str) -> None:
        start = max(self._bound, self.position - self._window)
        kept: deque[FetchedLogBatch] = deque()
        kept_bytes, read_bytes, offset = 0, 0, start
        while offset < self.position:
            fetched = await self._fetch(view, topic, offset)
            if fetched is None:
                break
            try:
                batches = await trio.to_thread.run_sync(list, fetched.batches())
            except UnreadableBatch as error:
                self.error = str(error)
                return
            for batch in batches:
                if batch.info.base_offset < self.position:
                    kept.append(batch)
                    kept_bytes += batch.info.size_bytes
                while len(kept) > 1 and kept_bytes > self._piece_bytes:
                    kept_bytes -= kept.popleft().info.size_bytes
            if not batches:
                break
            offset = batches[-1].info.last_offset + 1
            read_bytes += fetched.size_bytes
            if read_bytes > MAX_PIECES_READ * self._piece_bytes and self.position - offset > 1:
                # Only its last batches are kept, so the window begins anew, nearer to them.
                start = offset = self.position - max(1, (self.position - offset) // 8)
                kept.clear()
                kept_bytes = read_bytes = 0
        if kept:
            covered = self.position - kept[0].info.base_offset
            self._window = max(1, self._piece_bytes * covered // max(1, kept_bytes))
        else:
            self.position = max(start, self._bound)
            # Compaction has left nothing of it.
            self._window *= 2
        self._batches = iter(reversed(kept))

    # ---- in a worker thread ----

    def advance(self) -> bool:
        """Stand at the next record of what was loaded; False at its end, or when it cannot be read."""
        try:
            while True:
                for record in self._records:
                    if self._is_wanted(record.offset):
                        self.record = record
                        return True
                self._leave_batch()
                batch = next(self._batches, None)
                if batch is None:
                    return False
                self._enter_batch(batch)
        except UnreadableBatch as error:
            self.error = str(error)
            return False

    def taken(self) -> None:
        """The record at which the walk stands has been searched."""
        self.position = self.record.offset + 1 if self.forward else self.record.offset

    def _is_wanted(self, offset: int) -> bool:
        if self.forward:
            return self.position <= offset < self._bound
        return self._bound <= offset < self.position

    def _enter_batch(self, batch: FetchedLogBatch) -> None:
        self.batch, self.own_format = batch.info, batch.own_format
        self._has_batch = True
        # Inflated as a whole towards older records: a batch can be walked over in one direction only.
        self._records = batch.records() if self.forward else reversed(list(batch.records()))

    def _leave_batch(self) -> None:
        """Move the position past a batch whose last offsets, or first ones, compaction has taken."""
        if not self._has_batch:
            return
        self._has_batch = False
        if self.forward:
            self.position = min(max(self.position, self.batch.last_offset + 1), self._bound)
        else:
            self.position = max(min(self.position, self.batch.base_offset), self._bound)
