"""The files of a partition's segments, opened to be read up to a planned end.

All files of a stretch are opened before the first byte is read, since an open descriptor keeps a file that retention
or compaction removes. ``FilesChanged`` means that a file is not as planned, and that a new plan is needed: it is gone,
is another one under the old name, which is what compaction leaves, is shorter than planned, or sealed and longer.

Everything is read with ``pread``. A process that reads a mapped file which is cut at that moment is killed (SIGBUS).

Source: docs/formats/segment.md, docs/formats/indexes.md; docs/formats/segment-manifest.md for the duties of readers.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final

import attrs

from kafka_wire.primitives import uuid_text
from kafka_wire.records.batch import MAGIC, MIN_BATCH_LENGTH
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.spark.errors import SourceUnavailable
from trio_broker.spark.files.manifest import IndexEntry, LogSegment, PartitionLog
from trio_broker.storage import file_names, index_file, partition_metadata
from trio_broker.storage.batch_scan import SPAN, SPAN_BYTES
from trio_broker.storage.errors import CorruptCheckpoint, CorruptIndex, ForeignDirectory
from trio_broker.storage.log_directory import MetaProperties
from trio_broker.storage.offset_index import OffsetIndex

MAX_OPEN_SEGMENTS: Final = 256
"""Files open at once in one task, since a process may usually have 1,024. Longer stretches are read in several
steps."""

MAX_INDEX_BYTES: Final = 64 * 1024 * 1024
"""Six times ``segment.index.bytes``; a longer file is no index."""

NO_TOPIC_ID: Final = ""


def data_directories(log: PartitionLog, paths: Sequence[str]) -> list[Path]:
    """Return the data directories that may hold ``log``: ``paths``, or the broker's own, as far as they exist.

    Of several brokers each may have a directory of the partition; only that of the log's broker counts.
    """
    return [root for root in map(Path, paths or (log.log_directory,)) if root.is_dir() and _may_have(root, log)]


def _may_have(root: Path, log: PartitionLog) -> bool:
    found = properties_in(root)
    return found is None or log.node_id in (None, found.node_id)


def properties_in(root: Path) -> MetaProperties | None:
    """Return whose data directory ``root`` is, None where that is not known: a backup may have left it out."""
    try:
        return MetaProperties.decode((root / file_names.META_PROPERTIES).read_bytes(), str(root))
    except (ForeignDirectory, OSError):
        return None


def partition_directory(log: PartitionLog, roots: Sequence[Path]) -> Path:
    """Return the directory of ``log`` under the first of ``roots`` that has it, under the first one where none has."""
    found = [root / log.directory_name for root in roots if (root / log.directory_name).is_dir()]
    return found[0] if found else roots[0] / log.directory_name


class FilesChanged(Exception):
    """A file is not as planned; the text says which and how. The transport handles it."""


@attrs.define
class OpenSegment:
    """One open file; ``segment`` is its plan."""

    segment: LogSegment
    path: Path
    descriptor: int

    def __enter__(self) -> OpenSegment:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self.descriptor)

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill ``buffer`` from ``position`` on; return the number of bytes, fewer only at the end of the file.

        Raises:
            FilesChanged: the server of a network file system has removed the file.
            SourceUnavailable: the disk cannot be read.
        """
        filled = 0
        while filled < len(buffer):
            try:
                count = os.preadv(self.descriptor, [buffer[filled:]], position + filled)
            except OSError as error:
                if error.errno == errno.ESTALE:
                    raise FilesChanged(f"{self.path}: {error.strerror}") from None
                raise SourceUnavailable(f"{self.path} at byte {position + filled}: {error.strerror}") from error
            if not count:
                break
            filled += count
        return filled

    def prefetch(self, position: int, size: int) -> None:
        """Let the system read bytes from the disk in the background, while the caller works on others."""
        if size > 0:
            os.posix_fadvise(self.descriptor, position, size, os.POSIX_FADV_WILLNEED)


def open_file(segment: LogSegment, path: Path) -> OpenSegment:
    """Open the log file at ``path`` as ``segment``.

    Raises:
        OSError: it does not exist, or may not be read.
    """
    return OpenSegment(segment, path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))


@contextmanager
def opened(log: PartitionLog, directory: Path, segments: Sequence[LogSegment]) -> Iterator[list[OpenSegment]]:
    """Open the files of ``segments`` in ``directory``, and close them at the end of the block.

    Raises:
        FilesChanged: one does not exist, or is not as planned; or the directory is that of another topic of the name.
        SourceUnavailable: one may not be read.
    """
    with ExitStack() as stack:
        _check_topic_id(log, directory)
        files = [stack.enter_context(_open(directory, segment)) for segment in segments]
        for file in files:
            _check_is_still_there(file)
        yield files


def _check_topic_id(log: PartitionLog, directory: Path) -> None:
    found = topic_id_in(directory)
    if found and log.topic_id and found != log.topic_id:
        raise FilesChanged(f"{directory} belongs to another topic of that name: its id is {found}, not {log.topic_id}")


def topic_id_in(directory: Path) -> str:
    """Return the topic id in a partition's directory, the empty string where there is none."""
    try:
        stored = partition_metadata.read(RealDisk(), directory)
    except (CorruptCheckpoint, OSError):
        return NO_TOPIC_ID
    return NO_TOPIC_ID if stored is None else uuid_text(stored)


def _open(directory: Path, segment: LogSegment) -> OpenSegment:
    # The swap that ends a compaction takes the old name away some moments before the new file gets it. After a crash
    # both names may exist; the inode decides which file was planned, or the size where it is not known.
    problem: FilesChanged | None = None
    for suffix in ("", file_names.SWAP_SUFFIX):
        path = file_names.segment_path(directory, segment.base_offset, file_names.LOG_SUFFIX + suffix)
        try:
            file = open_file(segment, path)
        except FileNotFoundError:
            problem = problem or FilesChanged(f"{path} is not there")
            continue
        except OSError as error:
            raise SourceUnavailable(f"{path}: {error.strerror}") from error
        mismatch = _mismatch(file)
        if mismatch is None:
            os.posix_fadvise(file.descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            return file
        os.close(file.descriptor)
        problem = problem or mismatch
    assert problem is not None, f"{segment} was not looked for"
    raise problem


def _mismatch(file: OpenSegment) -> FilesChanged | None:
    """Return how a file differs from its plan, None where it does not."""
    found, segment = os.fstat(file.descriptor), file.segment
    size, planned = found.st_size, segment.size_bytes
    if segment.inode not in (None, found.st_ino):
        return FilesChanged(f"{file.path} is file {found.st_ino}, not {segment.inode}: it was compacted")
    if size < planned:
        return FilesChanged(f"{file.path} has {size} bytes, not {planned}: it was cut or compacted")
    if size > planned and not segment.is_active:
        return FilesChanged(f"{file.path} has {size} bytes, not {planned}, though it was sealed")
    return None


def _check_is_still_there(file: OpenSegment) -> None:
    """Compare inodes once all files are open: only then do they belong to one state of the log, and not to two."""
    mine = os.fstat(file.descriptor)
    for path in (file.path, file.path.with_suffix("")):
        try:
            named = os.stat(path)
        except FileNotFoundError:
            continue
        if (named.st_ino, named.st_dev) == (mine.st_ino, mine.st_dev):
            return
        break
    raise FilesChanged(f"{file.path} was replaced or removed while its neighbours were opened")


# --- Where to begin ---


def start_position(file: OpenSegment, offset: int, known: Sequence[IndexEntry]) -> int:
    """Return the position of a batch before which no batch ends at ``offset`` or behind it.

    It comes from ``known`` entries and from the segment's index file, if a batch lies where they say; else it is 0,
    where the first batch begins.
    """
    if offset <= file.segment.base_offset:
        return 0
    candidates = [*_around(known, offset), *_around(index_entries(file.path, file.segment), offset)]
    for entry in sorted(candidates, key=lambda each: each.position, reverse=True):
        base_offset = _base_offset_at(file, entry)
        if base_offset is not None and (entry.offset <= offset or base_offset <= offset):
            return entry.position
    return 0


def _around(entries: Sequence[IndexEntry], offset: int) -> list[IndexEntry]:
    """Return the last entry at ``offset`` or before it, and the next one, whose batch may hold it."""
    index = bisect_right(entries, offset, key=lambda each: each.offset)
    return [entries[each] for each in (index - 1, index) if 0 <= each < len(entries)]


def _base_offset_at(file: OpenSegment, entry: IndexEntry) -> int | None:
    """Return the base offset of the batch at the entry's position, None unless there is one with the entry's last
    offset."""
    if not 0 <= entry.position <= file.segment.size_bytes - SPAN_BYTES:
        return None
    head = bytearray(SPAN_BYTES)
    if file.read_into(memoryview(head), entry.position) < len(head):
        return None
    base_offset, length, magic, last_delta = SPAN.unpack(head)
    if magic != MAGIC or length < MIN_BATCH_LENGTH or last_delta < 0 or base_offset < file.segment.base_offset:
        return None
    return int(base_offset) if base_offset + last_delta == entry.offset else None


def index_entries(path: Path, segment: LogSegment) -> Sequence[IndexEntry]:
    """Return the entries of the index file beside the log file at ``path``, up to the first that does not grow.

    Empty where there is no good file. Behind the last entry a Kafka that was killed leaves zeros, since it preallocates
    the file.
    """
    try:
        index = path.with_name(path.name.replace(file_names.LOG_SUFFIX, file_names.INDEX_SUFFIX))
        if index.stat().st_size > MAX_INDEX_BYTES:
            return ()
        content = index_file.read_index_file(RealDisk(), index, OffsetIndex.ENTRY.size)
    except (CorruptIndex, OSError):
        return ()
    return IndexColumns(content, segment.base_offset)


class IndexColumns(Sequence[IndexEntry]):
    """The good part of an index file, one entry at a time: there may be a million, of which few are used."""

    def __init__(self, content: bytes, base_offset: int) -> None:
        import numpy as np

        columns = np.frombuffer(content, ">i4").reshape(-1, 2)
        falls = (np.diff(columns, axis=0) <= 0).any(axis=1)
        self._columns = columns[: int(falls.argmax()) + 1] if falls.any() else columns
        self._base_offset = base_offset

    def __len__(self) -> int:
        return len(self._columns)

    def __getitem__(self, index: int) -> IndexEntry:  # type: ignore[override]
        relative, position = self._columns[index]
        return IndexEntry(self._base_offset + int(relative), int(position))
