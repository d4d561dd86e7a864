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
from collections.abc import Iterable
from pathlib import PurePath

from trio_broker.runtime.disk import Disk, names_in
from trio_broker.storage import batch_scan, file_names
from trio_broker.storage.log_file import LogFile

logger = logging.getLogger(__name__)


def finish(disk: Disk, directory: PurePath) -> set[int]:
    """Leave no file with a passing suffix in the directory, nor an index without a log.

    Returns the base offsets of the segments of which there were only indexes.
    """
    names = remove_deleted(disk, directory)
    cleaned = [name for name in names if name.endswith(file_names.CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(file_names.SWAP_SUFFIX)]
    committed = committed_swaps(names)
    unfinished = [name for name in swaps if name not in committed]
    # What says that the others were not finished goes last.
    for name in (*unfinished, *cleaned):
        _remove(disk, directory / name)
    if committed:
        # After a kill the commit may be in memory only. The old names go next, and a power cut must not take it alone.
        disk.sync_directory(directory)
    if cleaned or swaps:
        _swap_in(disk, directory, sorted(committed))
        disk.sync_directory(directory)
    return _remove_orphaned_indexes(disk, directory)


def remove_deleted(disk: Disk, directory: PurePath) -> list[str]:
    """Remove the files of deleted segments; return the names of the others."""
    names = names_in(disk.list_directory(directory))
    for name in names:
        if name.endswith(file_names.DELETED_SUFFIX):
            _remove(disk, directory / name)
    return [name for name in names if not name.endswith(file_names.DELETED_SUFFIX)]


def _remove(disk: Disk, path: PurePath) -> None:
    logger.info("removing %s", path)
    disk.unlink(path)


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


def _swap_in(disk: Disk, directory: PurePath, swaps: list[str]) -> None:
    logs = [name for name in swaps if name.endswith(file_names.LOG_SUFFIX + file_names.SWAP_SUFFIX)]
    if logs:
        bases = {_base_of(name) for name in logs}
        first, end = min(bases), max(_end_offset(disk, directory / name) for name in logs)
        for name in names_in(disk.list_directory(directory)):
            base = _base_of(name)
            # The base of one that was left without any batch is in no range.
            if name.endswith(file_names.SEGMENT_SUFFIXES) and (base in bases or first <= base < end):
                logger.info("removing %s, replaced by compaction", directory / name)
                disk.unlink(directory / name)
        disk.sync_directory(directory)
    for name in swaps:
        disk.rename(directory / name, directory / name.removesuffix(file_names.SWAP_SUFFIX))


def _end_offset(disk: Disk, path: PurePath) -> int:
    """Return the offset behind the last batch of a log file; its base offset if it is empty."""
    end_offset = _base_of(path.name)
    for span in batch_scan.spans(LogFile(disk, path, read_only=True), 0, disk.status(path).size_bytes):
        end_offset = span.last_offset + 1
    return end_offset


def _remove_orphaned_indexes(disk: Disk, directory: PurePath) -> set[int]:
    orphans = set()
    names = dict.fromkeys(names_in(disk.list_directory(directory)))  # keeps their order
    for suffix in file_names.SEGMENT_SUFFIXES[1:]:
        for name in names:
            offset = file_names.offset_of(name, suffix)
            if offset is not None and name.removesuffix(suffix) + file_names.LOG_SUFFIX not in names:
                logger.warning("removing %s, which has no log", directory / name)
                disk.unlink(directory / name)
                orphans.add(offset)
    return orphans
