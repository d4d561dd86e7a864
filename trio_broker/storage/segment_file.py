"""The log file of a segment, and walks over its batches.

A damaged batch costs no other: every walk over batches goes on behind it with the next one that is whole, and a read of
its offsets is refused (docs/decisions/0049).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import PurePath
from threading import get_ident  # noqa: TID251 - starts no thread

from kafka_wire.limits import MAX_OFFSET_DELTA
from kafka_wire.records.batch import BatchHeader, RecordBatch
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.disk import Disk
from trio_broker.storage import batch_checks, batch_scan, file_names
from trio_broker.storage.batch_checks import BatchPlace
from trio_broker.storage.batch_scan import BatchSpan, LocatedHeader
from trio_broker.storage.log_file import LogFile

logger = logging.getLogger(__name__)


class SegmentFile:
    """A ``.log`` file. ``size`` is the length of its valid part, ``next_offset`` where it ends."""

    __slots__ = (
        "_damage",
        "base_offset",
        "config",
        "directory",
        "disk",
        "file",
        "file_suffix",
        "next_offset",
        "owner_thread",
        "size",
    )

    def __init__(
        self, disk: Disk, directory: PurePath, base_offset: int, config: LogConfig, *, size: int, file_suffix: str
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.file_suffix = file_suffix
        self.config = config
        # Bytes of whole batches; with ``preallocate`` the file is longer. Readers go no further than this.
        self.size = size
        self.next_offset = base_offset
        self.file = LogFile(disk, self.path(file_names.LOG_SUFFIX))
        # The thread whose segment this is; None while it is handed on, and for a private copy.
        self.owner_thread: int | None = None
        # Where damage was met, and the first offset that it may have taken. Logged once.
        self._damage: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<Segment {self.file.path.name}: {self.size} bytes up to {self.next_offset}>"

    def path(self, suffix: str) -> PurePath:
        """Return the path of the file of this segment with ``suffix``."""
        return file_names.segment_path(self.directory, self.base_offset, suffix + self.file_suffix)

    def assert_owner(self) -> None:
        """No thread changes what another one reads: a worker thread has a ``private_copy``."""
        assert self.owner_thread is None or self.owner_thread == get_ident(), f"{self!r} is changed by a worker thread"

    # --- Walking around damage ---

    def headers(self, position: int = 0) -> Iterator[LocatedHeader]:
        """Walk over the headers of all good batches from ``position`` on, where one begins.

        Raises:
            CorruptRecordBatch: the rest is damaged.
        """
        next_offset = self.base_offset
        while position < self.size:
            try:
                for located in batch_scan.headers(self.file, position, self.size):
                    header = located.header
                    self._check_offsets(position, next_offset, header.base_offset, header.last_offset)
                    yield located
                    position, next_offset = position + header.size_bytes, header.next_offset
                self._check_end(position, self.size)
            except CorruptRecordBatch as error:
                position = self._behind_damage(position, next_offset, self.size, error)

    def _spans(self, position: int, size: int, nowait: bool) -> Iterator[BatchSpan]:
        """As ``headers``, with the spans alone and up to ``size``.

        Raises:
            BlockingIOError: ``nowait``, and it would wait for the disk.
        """
        next_offset = self.base_offset
        while position < size:
            try:
                for span in batch_scan.spans(self.file, position, size, nowait=nowait):
                    self._check_offsets(position, next_offset, span.base_offset, span.last_offset)
                    yield span
                    position, next_offset = span.end, span.last_offset + 1
                self._check_end(position, size)
            except CorruptRecordBatch as error:
                if nowait:
                    raise BlockingIOError(f"{self.file.path}: the next good batch has to be looked for") from error
                position = self._behind_damage(position, next_offset, size, error)

    def _check_offsets(self, position: int, next_offset: int, base_offset: int, last_offset: int) -> None:
        """No checksum covers the base offset of a batch."""
        if not next_offset <= base_offset <= last_offset < self._end_offset:
            raise CorruptRecordBatch(f"{self.file.path}: offsets {base_offset} to {last_offset} at position {position}")

    def _check_end(self, position: int, size: int) -> None:
        if position != size:
            raise CorruptRecordBatch(f"{self.file.path}: no whole batch at position {position}")

    @property
    def _end_offset(self) -> int:
        """No batch ends at it or behind it. While the segment is being opened its end is not known."""
        return self.next_offset if self.next_offset > self.base_offset else self.base_offset + MAX_OFFSET_DELTA + 1

    def note_damage(self, position: int, first_offset: int) -> None:
        """Let every read end before the damage at ``position``, where ``first_offset`` or a later one is lost."""
        self._damage = {**self._damage, position: first_offset}

    def _behind_damage(self, position: int, next_offset: int, size: int, error: CorruptRecordBatch) -> int:
        """Return where the next good batch begins behind the bad one at ``position``; raise ``error`` for none."""
        place = BatchPlace(self.base_offset, next_offset, self._end_offset)
        found = batch_checks.good_batch_behind(self.file, position, size, place)
        if position not in self._damage:
            self.note_damage(position, next_offset)
            where = "nothing good follows" if found is None else f"the next good batch is at position {found}"
            logger.error("%s is damaged from position %d on (%s); %s", self.file.path, position, error, where)
        if found is None:
            raise error
        return found

    def batch_at(self, position: int, header: BatchHeader) -> RecordBatch:
        """Read the whole batch whose header stands at ``position``."""
        return RecordBatch(header, memoryview(self.file.read(header.size_bytes, position)))
