"""One partition's log as a broker left it on the disk: where it begins and ends, and what of it counts.

Nothing is changed, so that backups may be read-only; what a broker's start would repair is left out instead:

* After a clean stop files are taken as they are. After anything else the last segment may have a torn tail, which is
  left out. Nothing but that ends a log: what else is damaged stands in its middle, and is ``CorruptData`` for whoever
  reads it (``offline_end`` tells the two apart).
* The high watermark is what the checkpoint says, which lags behind by some seconds at most and is safe. Without an
  entry it is the log's end, as for a broker that has no followers.
* A compaction whose ``.swap`` files were committed counts as done, others as never begun.

Source: Kafka's LogLoader; trio_broker.storage.recovery and leftovers; docs/formats/segment.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Final

from trio_broker.spark.errors import SourceUnavailable
from trio_broker.spark.files.manifest import IndexEntry, LogSegment, PartitionLog, with_active_end
from trio_broker.spark.files.offline_batches import open_whole, read_batches
from trio_broker.spark.files.offline_end import Checkpoints, find_end
from trio_broker.spark.files.segment_files import topic_id_in
from trio_broker.storage import file_names
from trio_broker.storage.errors import CorruptCheckpoint
from trio_broker.storage.leader_epochs import LeaderEpochs
from trio_broker.topic_partition import TopicPartition

log = logging.getLogger(__name__)

UNKNOWN_EPOCH: Final = -1


def read_log(directory: Path, partition: TopicPartition, known: Checkpoints) -> PartitionLog:
    """Return the log in ``directory`` as a reader of uncommitted records sees it: nothing is said of transactions.

    Raises:
        SourceUnavailable: there are no segments, or they cannot be read.
    """
    try:
        paths = segment_paths(directory)
        if not paths:
            raise SourceUnavailable(f"{partition}: {directory} has no segments")
        row, behind_damage = _valid_row(partition, paths, known)
    except OSError as error:
        raise SourceUnavailable(f"{partition}: {directory}: {error.strerror}") from error
    end_offset = row[-1].next_offset
    log_start_offset = min(max(known.log_start_offset or 0, row[0].base_offset), end_offset)
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
        segments=row,
        active_positions=behind_damage,
    )


def segment_paths(directory: Path) -> dict[int, Path]:
    """Return the log files that make up the log, by their base offsets in order."""
    names = [entry.name for entry in os.scandir(directory)]
    paths = _with_suffix(directory, names, file_names.LOG_SUFFIX)
    cleaned = _with_suffix(directory, names, file_names.LOG_SUFFIX + file_names.CLEANED_SUFFIX)
    swapped = _with_suffix(directory, names, file_names.LOG_SUFFIX + file_names.SWAP_SUFFIX)
    # Files are renamed from the highest base down, so beside a ``.cleaned`` only those below it are complete.
    swapped = {base: path for base, path in swapped.items() if not cleaned or base < min(cleaned)}
    if swapped:
        first, end = min(swapped), max(_end_offset(base, path) for base, path in swapped.items())
        paths = {base: path for base, path in paths.items() if not first <= base < end}
    return dict(sorted({**paths, **swapped}.items()))


def _with_suffix(directory: Path, names: list[str], suffix: str) -> dict[int, Path]:
    offsets = {name: file_names.offset_of(name, suffix) for name in names}
    return {offset: directory / name for name, offset in offsets.items() if offset is not None}


def _end_offset(base_offset: int, path: Path) -> int:
    with open_whole(base_offset, path) as file:
        end_offset, position = base_offset, 0
        for read in read_batches(file, 0):
            if len(read.table):
                end_offset = int(read.table.last_offsets[-1]) + 1
            position = read.position + read.table.consumed_bytes
        if position < file.segment.size_bytes:
            reason = f"{path}@{position}: damaged, so that nobody can tell what this compaction has taken the place of"
            raise SourceUnavailable(reason)
    return end_offset


def _valid_row(
    partition: TopicPartition, paths: Mapping[int, Path], known: Checkpoints
) -> tuple[tuple[LogSegment, ...], tuple[IndexEntry, ...]]:
    """Return the segments up to where the log ends, with the sizes of their valid parts; and places behind damage."""
    bases = list(paths)
    row = [LogSegment(base, following, paths[base].stat().st_size) for base, following in pairwise(bases)]
    with open_whole(bases[-1], paths[bases[-1]]) as file:
        end = find_end(file, known)
    if end.problem is not None:
        log.info("%s ends at offset %d: %s in %s", partition, end.next_offset, end.problem, file.path)
    row.append(LogSegment(bases[-1], end.next_offset, end.position))
    return with_active_end(row), end.behind_damage


def _latest_epoch(directory: Path) -> int:
    """Return the newest leader epoch, or that it is not known: the check that it serves is then left out."""
    try:
        latest = LeaderEpochs.load(directory).latest_epoch
    except (CorruptCheckpoint, OSError):
        return UNKNOWN_EPOCH
    return UNKNOWN_EPOCH if latest is None else latest
