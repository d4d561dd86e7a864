"""What a deletion or a compaction left half done in a partition's directory, completed or undone at start.

The suffixes say how far it came. ``.deleted``: on its way out, removed. ``.cleaned``: the output of a compaction that
had not been committed, removed. ``.swap``: committed, but not yet in the place of the segments it replaces.
Compaction renames ``.cleaned`` to ``.swap`` from the highest base offset down, and in a segment the log first; so a
``.swap`` at or above the lowest ``.cleaned`` belongs to a renaming that was not finished, and is removed with it. The
other ``.swap`` files replace every ordinary segment that begins in the range they cover.

The removed names are synced before the new ones come: an old segment that came back beside the one that replaced it
would not be a log. If this itself is cut short, the next start goes on with it.

Source: Kafka's LogLoader; docs/formats/segment.md.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from pathlib import Path

from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage import batch_scan, checkpoints, file_names
from trio_broker.storage.log_file import LogFile

logger = logging.getLogger(__name__)


def finish(directory: Path) -> None:
    """Leave no file with a passing suffix in the directory, nor an index without a log."""
    names = [entry.name for entry in os.scandir(directory)]
    cleaned = [name for name in names if name.endswith(file_names.CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(file_names.SWAP_SUFFIX)]
    committed = committed_swaps(names)
    unfinished = [name for name in swaps if name not in committed]
    deleted = [name for name in names if name.endswith(file_names.DELETED_SUFFIX)]
    # What says that the others were not finished goes last.
    for name in (*deleted, *unfinished, *cleaned):
        logger.info("removing %s", directory / name)
        (directory / name).unlink()
    if cleaned or swaps:
        _swap_in(directory, sorted(committed))
        checkpoints.sync_directory(directory)
    _remove_orphaned_indexes(directory)


def committed_swaps(names: Iterable[str]) -> set[str]:
    """Return those of ``names`` that are ``.swap`` files of a renaming that was finished: below every ``.cleaned``."""
    names = list(names)
    lowest_cleaned = min((_base_of(name) for name in names if name.endswith(file_names.CLEANED_SUFFIX)), default=None)
    swaps = {name for name in names if name.endswith(file_names.SWAP_SUFFIX)}
    return swaps if lowest_cleaned is None else {name for name in swaps if _base_of(name) < lowest_cleaned}


def _base_of(name: str) -> int:
    """Return the base offset in ``<20 digits>.log.swap`` and its like; -1 where there is none."""
    digits = name.split(".")[0]
    return int(digits) if digits.isdecimal() else -1


def _swap_in(directory: Path, swaps: list[str]) -> None:
    logs = [name for name in swaps if name.endswith(file_names.LOG_SUFFIX + file_names.SWAP_SUFFIX)]
    if logs:
        bases = {_base_of(name) for name in logs}
        first, end = min(bases), max(_end_offset(directory / name) for name in logs)
        for entry in list(os.scandir(directory)):
            base = _base_of(entry.name)
            # The base of one that was left without any batch is in no range.
            if entry.name.endswith(file_names.SEGMENT_SUFFIXES) and (base in bases or first <= base < end):
                logger.info("removing %s, replaced by compaction", entry.path)
                os.unlink(entry.path)
        checkpoints.sync_directory(directory)
    for name in swaps:
        (directory / name).rename(directory / name.removesuffix(file_names.SWAP_SUFFIX))


def _end_offset(path: Path) -> int:
    """Return the offset behind the last batch of a log file; its base offset if it is empty."""
    end_offset = _base_of(path.name)
    for span in batch_scan.spans(LogFile(RealDisk(), path, read_only=True), 0, path.stat().st_size):
        end_offset = span.last_offset + 1
    return end_offset


def _remove_orphaned_indexes(directory: Path) -> None:
    for suffix in file_names.SEGMENT_SUFFIXES[1:]:
        for path in directory.glob(f"*{suffix}"):
            offset = file_names.offset_of(path.name, suffix)
            if offset is not None and not file_names.segment_path(directory, offset, file_names.LOG_SUFFIX).exists():
                logger.warning("removing %s, which has no log", path)
                path.unlink()
