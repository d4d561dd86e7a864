"""One partition's log as a broker left it on the disk: where it begins and ends, and what of it counts.

Nothing is changed, so that backups may be read-only. What a broker's start would repair is left out instead:

* A compaction whose ``.swap`` files were committed counts as done, others as never begun.
* The high watermark is what the checkpoint says, which lags behind by some seconds at most and is safe. Without an
  entry it is the log's end, as for a broker without followers.
* After a clean stop files are taken as they are. After anything else the last segment may have a torn tail, which is
  left out.

Only the last segment has an end to be found; what is wrong in another one is in the middle of the log. In the last one
a broker's start cuts the first damage and all behind it. For a reader of a backup that would silently drop records that
were acknowledged and are still there. So the log ends at damage only if

* the broker did not stop cleanly, and everything below the recovery point, which was synced, is there; and
* it is a torn tail: a batch that the end of the file cuts, or zeros, and no batch behind; or it lies behind the high
  watermark, where no consumer has read.

All other damage stays in the log and is ``CorruptData`` for its reader. The batches behind it are looked for, so that
the log's end is known, and readers that may skip damage find them even if no index leads there: a broker that rebuilds
an index ends it before damage.

Source: Kafka's LogLoader, and LogSegment.recover for torn tails; docs/formats/segment.md, docs/formats/checkpoints.md.
"""

from __future__ import annotations

import logging
import os
from itertools import pairwise
from pathlib import Path
from typing import Final

import attrs

from kafka_wire.limits import MAX_OFFSET
from kafka_wire.records.batch import BATCH_HEADER_BYTES, MAGIC, MAGIC_POSITION
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.spark.errors import CorruptData, SourceUnavailable
from trio_broker.spark.files.manifest import UNKNOWN_EPOCH, IndexEntry, LogSegment, PartitionLog, with_active_end
from trio_broker.spark.files.segment_files import OpenSegment, open_file, start_position, topic_id_in
from trio_broker.spark.files.transport import READ_BYTES, SegmentReader
from trio_broker.spark.ranges import OffsetRange
from trio_broker.storage import file_names
from trio_broker.storage.errors import CorruptCheckpoint
from trio_broker.storage.interrupted_swaps import committed_swaps
from trio_broker.storage.leader_epochs import LeaderEpochs

log = logging.getLogger(__name__)

_LENGTH_POSITION: Final = 8
_LENGTH_FOLLOWED_FROM: Final = 12


@attrs.frozen
class Checkpoints:
    """What a data directory's checkpoints say of one partition; None where they say nothing.

    ``recovery_point`` is the offset below which everything was synced; ``was_clean`` makes it count for everything.
    """

    was_clean: bool = False
    recovery_point: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None


def read_log(directory: Path, partition: TopicPartition, known: Checkpoints) -> PartitionLog:
    """Return the log in ``directory`` for a reader of uncommitted records; ``offline_transactions`` adds the rest.

    Raises:
        SourceUnavailable: there are no segments, or they cannot be read.
    """
    paths = segment_paths(directory, partition)
    if not paths:
        raise SourceUnavailable(f"{partition}: {directory} has no segments")
    segments = [LogSegment(base, following, paths[base].stat().st_size) for base, following in pairwise(paths)]
    last, behind_damage = _last_segment(partition, *list(paths.items())[-1], known)
    segments.append(last)
    end_offset = last.next_offset
    log_start_offset = min(max(known.log_start_offset or 0, segments[0].base_offset), end_offset)
    high_watermark = end_offset if known.high_watermark is None else min(known.high_watermark, end_offset)
    high_watermark = max(high_watermark, log_start_offset)
    return PartitionLog(
        partition=partition,
        topic_id=topic_id_in(directory),
        log_directory=str(directory.parent.absolute()),
        directory_name=directory.name,
        leader_epoch=_latest_epoch(directory),
        log_start_offset=log_start_offset,
        last_stable_offset=high_watermark,
        high_watermark=high_watermark,
        segments=with_active_end(segments),
        active_positions=behind_damage,
    )


def _latest_epoch(directory: Path) -> int:
    try:
        latest = LeaderEpochs.load(RealDisk(), directory).latest_epoch
    except (CorruptCheckpoint, OSError):
        return UNKNOWN_EPOCH
    return UNKNOWN_EPOCH if latest is None else latest


# --- Which files ---


def segment_paths(directory: Path, partition: TopicPartition) -> dict[int, Path]:
    """Return the log files that make up the log, by their base offsets in order.

    Raises:
        SourceUnavailable: the output of a compaction is damaged.
    """
    names = os.listdir(directory)
    paths = _with_suffix(directory, names, file_names.LOG_SUFFIX)
    swapped = _with_suffix(directory, committed_swaps(names), file_names.LOG_SUFFIX + file_names.SWAP_SUFFIX)
    if swapped:
        first, end = min(swapped), max(_end_offset(partition, base, path) for base, path in swapped.items())
        paths = {base: path for base, path in paths.items() if not first <= base < end}
    return dict(sorted({**paths, **swapped}.items()))


def _with_suffix(directory: Path, names: list[str] | set[str], suffix: str) -> dict[int, Path]:
    offsets = {name: file_names.offset_of(name, suffix) for name in names}
    return {offset: directory / name for name, offset in offsets.items() if offset is not None}


def _end_offset(partition: TopicPartition, base_offset: int, path: Path) -> int:
    with _open_last(base_offset, path) as file:
        reader = SegmentReader(file, partition)
        try:
            for _ in reader.chunks(OffsetRange(partition, 0, MAX_OFFSET)):
                pass
        except CorruptData as error:
            raise SourceUnavailable(f"{error}; it is unknown which segments this compaction replaces") from None
        return reader.next_offset


def _open_last(base_offset: int, path: Path) -> OpenSegment:
    """Open a log file to all of its bytes; the offset behind it is not known yet."""
    return open_file(LogSegment(base_offset, base_offset, path.stat().st_size, is_active=True), path)


# --- Where the last segment ends ---


@attrs.frozen
class Stop:
    """Where the batches of a file end; ``problem`` says why that is not the end of the file.

    ``is_torn`` if the problem may be a torn tail: a batch that is cut by the end of the file, or zeros.
    """

    position: int
    next_offset: int
    problem: str | None = None
    is_torn: bool = False


def _last_segment(
    partition: TopicPartition, base_offset: int, path: Path, known: Checkpoints
) -> tuple[LogSegment, tuple[IndexEntry, ...]]:
    """Return the valid part of the last segment, and the first batch behind each damage in it.

    After a clean stop the walk starts at the last index entry and does not compare checksums; after anything else it
    starts at the recovery point and does.
    """
    recovery_point, high_watermark = known.recovery_point or 0, known.high_watermark or 0
    behind_damage: list[IndexEntry] = []
    with _open_last(base_offset, path) as file:
        reader = SegmentReader(file, partition)
        start = start_position(file, MAX_OFFSET if known.was_clean else recovery_point, ())
        while True:
            stop = _walk(reader, start, check_crcs=not known.was_clean)
            end_position, end_offset = stop.position, stop.next_offset
            if stop.problem is None:
                break
            found = find_batch(file, stop.position + 1, stop.next_offset)
            if _is_end(stop, known, is_last=found is None):
                log.info("%s ends at offset %d: %s", partition, end_offset, stop.problem)
                if end_offset < high_watermark:
                    text = "%s: torn at byte %d, offset %d, though the high watermark was %d"
                    log.warning(text, path, end_position, end_offset, high_watermark)
                break
            if found is None:
                # How many offsets the rest has is not known; with one more than the end a reader meets the damage.
                end_position = file.segment.size_bytes
                end_offset = max(stop.next_offset + 1, recovery_point, high_watermark)
                break
            behind_damage.append(found)
            start, reader.next_offset = found.position, stop.next_offset
    return LogSegment(base_offset, end_offset, end_position), tuple(behind_damage)


def _is_end(stop: Stop, known: Checkpoints, *, is_last: bool) -> bool:
    """Return whether the log ends at a problem, by the rules in the head of this file."""
    if known.was_clean or stop.next_offset < (known.recovery_point or 0):
        return False
    return (stop.is_torn and is_last) or stop.next_offset >= (known.high_watermark or 0)


def _walk(reader: SegmentReader, start: int, *, check_crcs: bool) -> Stop:
    """Read from batch to batch, from the position ``start`` to the first problem or the end of the file."""
    try:
        for chunk in reader.chunks(OffsetRange(reader.partition, 0, MAX_OFFSET), start):
            table = chunk.table
            bad = next(table.wrong_crcs(chunk.data), None) if check_crcs else None
            if bad is not None:
                next_offset = int(table.last_offsets[bad - 1]) + 1 if bad else reader.next_offset
                problem = f"a batch at offset {table.base_offsets[bad]} with a wrong checksum"
                return Stop(reader.position + int(table.positions[bad]), next_offset, problem)
    except CorruptData as error:
        return Stop(reader.position, reader.next_offset, error.reason, _is_torn(reader.file, reader.position))
    return Stop(reader.position, reader.next_offset)


def _is_torn(file: OpenSegment, position: int) -> bool:
    from trio_broker.spark.batch_table import scan_batches

    left = file.segment.size_bytes - position
    table = scan_batches(_read(file, position, min(left, BATCH_HEADER_BYTES)))
    if table.damage is None:
        return not len(table) and not 0 < table.needed_bytes <= left
    # What a file system leaves that lost power before it wrote the data.
    return all(not any(_read(file, at, READ_BYTES)) for at in range(position, file.segment.size_bytes, READ_BYTES))


def _read(file: OpenSegment, position: int, size: int) -> memoryview:
    view = memoryview(bytearray(min(size, file.segment.size_bytes - position)))
    return view[: file.read_into(view, position)]


# --- Batches behind damage ---


def find_batch(file: OpenSegment, position: int, least_offset: int) -> IndexEntry | None:
    """Return the first batch at ``position`` or behind it that is certainly one of this log.

    Its checksum is right, its offsets are ``least_offset`` or more, and another batch or the end of the file follows:
    a batch that the value of a record holds is not taken for one of the log.
    """
    size = file.segment.size_bytes
    while position + BATCH_HEADER_BYTES <= size:
        view = _read(file, position, READ_BYTES)
        if len(view) < BATCH_HEADER_BYTES:
            return None
        for at in _candidates(view, size - position):
            found = _batch_at(file, position + at, least_offset)
            if found is not None:
                return found
        # The last bytes of the view may be the first of a header.
        position += len(view) - BATCH_HEADER_BYTES + 1
    return None


def _candidates(view: memoryview, left: int) -> list[int]:
    """Return where in ``view`` a header may begin, by its magic and by a length that fits into what is ``left``.

    Vectorised: damage may be followed by gigabytes, every byte of which is tried.
    """
    import numpy as np

    data = np.frombuffer(view, np.uint8)
    starts = np.flatnonzero(data[MAGIC_POSITION : len(data) - BATCH_HEADER_BYTES + 1 + MAGIC_POSITION] == MAGIC)
    lengths = np.zeros(len(starts), np.int64)
    for index in range(_LENGTH_POSITION, _LENGTH_FOLLOWED_FROM):
        lengths = lengths << 8 | data[starts + index]
    ends = starts + _LENGTH_FOLLOWED_FROM + lengths
    found: list[int] = starts[(lengths >= BATCH_HEADER_BYTES - _LENGTH_FOLLOWED_FROM) & (ends <= left)].tolist()
    return found


def _batch_at(file: OpenSegment, position: int, least_offset: int) -> IndexEntry | None:
    """Return the batch that begins at ``position`` if there is a good one."""
    from trio_broker.spark.batch_table import scan_batches

    head = _read(file, position, _LENGTH_FOLLOWED_FROM)
    base_offset = int.from_bytes(head[:_LENGTH_POSITION], "big", signed=True)
    if base_offset < least_offset or not 0 <= base_offset - file.segment.base_offset < 2**31:
        return None
    size = _LENGTH_FOLLOWED_FROM + int.from_bytes(head[_LENGTH_POSITION:], "big")
    view = _read(file, position, size + BATCH_HEADER_BYTES)
    table = scan_batches(view)
    if not len(table) or int(table.sizes[0]) != size or any(table.wrong_crcs(view, slice(1))):
        return None
    is_followed = len(view) == size or (table.damage is None and len(view) == size + BATCH_HEADER_BYTES)
    return IndexEntry(int(table.last_offsets[0]), position) if is_followed else None
