"""Putting a compacted segment into the place of those it was made from, so that a crash at any moment loses nothing.

In five steps. Those that wait for the disk run in a worker thread, those that change the row of segments run where
appends run; nobody else may change the row of sealed segments in between.

1. ``commit`` (thread): everything of the new segment is synced under ``.cleaned`` names, then renamed to ``.swap``, the
   log first, and the directory synced. Before this counts, a start removes what is there; afterwards it completes it.
2. ``replace_segments`` (loop): the old files are renamed to ``.deleted``, and the row has the new segment.
3. ``sync`` (thread): the old names are gone from the disk too. An old segment that came back beside a new one that
   covers its offsets would not be a log.
4. ``finish_rename`` (loop): the new files lose their suffix.
5. ``sync`` (thread): durably.

Kafka names several new segments from the highest base offset down, so that a start can tell an unfinished renaming.
Here it is one at a time, so its log comes first for the same reason: a ``.swap`` beside a ``.cleaned`` of its base is
not finished.

Names change owners here: ``<base>.log`` was the old segment's and becomes the new one's. Readers hold objects, not
names: both are held open while names are in motion, and the old ones for as long as any reader has them. Bytes that are
being sent from an old file stay, for the sender holds its descriptor.

Source: Kafka's LocalLog.replaceSegments, Cleaner.cleanSegments; docs/formats/segment.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from trio_broker.storage import file_names
from trio_broker.storage.errors import StorageFailed
from trio_broker.storage.log import Log
from trio_broker.storage.segment import Segment

logger = logging.getLogger(__name__)


class SegmentSwap:
    """See the head of the file. ``read`` are neighbours in the row of ``log``, or copies of such, and ``new`` was made
    from them."""

    def __init__(self, log: Log, read: Sequence[Segment], new: Segment) -> None:
        assert new.base_offset == read[0].base_offset, f"{new} for {read[0]}"
        self.log = log
        self.read = tuple(read)
        bases = {segment.base_offset for segment in read}
        self.old = tuple(segment for segment in log.segments if segment.base_offset in bases)
        self.new = new

    @property
    def is_possible(self) -> bool:
        """Whether the old segments are still where they were: nobody retired or cut them while they were read."""
        row = self.log.segments
        if self.log.is_closed or [each.size for each in self.old] != [each.size for each in self.read]:
            return False
        if self.old[0] not in row:
            return False
        first = row.index(self.old[0])
        return row[first : first + len(self.old)] == self.old

    def commit(self) -> None:
        """Step 1. If it raises, nothing has changed that counts; ``Cleaning``'s files are removed by the caller.

        Raises:
            OSError: the disk refused.
            StorageFailed: it failed in the middle of the renaming, and what a start would make of that is open.
        """
        new = self.new
        # Before any name moves: afterwards their names lead to the new segment's files, or to none.
        for segment in self.read:
            segment.load()
        # All content is on the disk before the rename: a start takes a ``.swap`` file for whole without looking.
        new.seal()
        new.sync()
        new.sync_indexes()
        self._keep_modification_time()
        new.hold_open()
        # The names too: where the log's new name is lost, its old one tells a start that the others are not committed.
        self.sync()
        try:
            new.rename(file_names.SWAP_SUFFIX)
        except OSError as error:
            raise self._failed(error) from error
        self.sync()

    def _keep_modification_time(self) -> None:
        """Make the new files as old as the last of the old ones: retention goes by it where there are no timestamps."""
        disk = self.log.disk
        modified_ns = disk.status(self.old[-1].file.path).modified_ns
        for suffix in (file_names.LOG_SUFFIX, file_names.INDEX_SUFFIX, file_names.TIME_INDEX_SUFFIX):
            disk.set_modified(self.new.path(suffix), modified_ns)

    def replace_segments(self, now_ms: int) -> None:
        """Step 2. The old files are removed ``file.delete.delay.ms`` from ``now_ms``.

        Raises:
            StorageFailed: a file could not be renamed; the next start completes the swap.
        """
        # From here on a thread may open one segment by the name of another, and has to look again.
        self.log.name_changes += 1
        for segment, copy in zip(self.old, self.read, strict=True):
            if copy is not segment:
                segment.adopt(copy, keep_open=True)
            segment.hold_open()
        try:
            self.log.replace_segments(self.old, self.new, now_ms)
        except OSError as error:
            raise self._failed(error) from error

    def sync(self) -> None:
        """Steps 3 and 5: make the names durable.

        Raises:
            StorageFailed: the disk does not say that they are.
        """
        try:
            self.log.disk.sync_directory(self.log.directory)
        except OSError as error:
            raise self._failed(error) from error

    def finish_rename(self) -> None:
        """Step 4.

        Raises:
            StorageFailed: a file could not be renamed; the next start does it.
        """
        try:
            self.new.rename("")
        except OSError as error:
            raise self._failed(error) from error
        self.new.stop_holding_open()
        self.new.evict()
        old = ", ".join(str(segment.base_offset) for segment in self.old)
        logger.info(
            "%s: compacted segments %s from %d to %d bytes",
            self.log.topic_partition,
            old,
            sum(segment.size for segment in self.old),
            self.new.size,
        )

    def _failed(self, error: OSError) -> StorageFailed:
        """The error that costs the log: for the owner to hand to ``Log.fail``, since this may be another thread."""
        if isinstance(error, StorageFailed):
            return error
        return StorageFailed(error.errno, f"{self.log.topic_partition}: {error.strerror}", str(self.log.directory))
