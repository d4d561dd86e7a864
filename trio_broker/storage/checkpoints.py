"""Small text files that survive a crash: they are replaced as a whole or not at all.

A checkpoint is UTF-8 text: a version line ``0``, a line with the number of entries, then one entry a line. The offset
checkpoints of a data directory hold ``topic partition offset``. An empty file reads as no entries; anything else that
does not add up is ``CorruptCheckpoint``, because a half-read recovery point would be a wrong one.

Written to ``<name>.tmp``, fsynced, renamed over the old file, and the directory fsynced: after a power cut either the
old or the new content is there.

Source: Kafka's CheckpointFile and OffsetCheckpointFile; docs/formats/checkpoints.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePath

from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.disk import Disk, sync_file, write_atomically
from trio_broker.storage.errors import CorruptCheckpoint

CHECKPOINT_VERSION = "0"

DAMAGED_SUFFIX = ".corrupt"
"""Of a checkpoint that was found damaged; one is kept, the last."""


def encode_checkpoint(entries: Iterable[str]) -> bytes:
    """Return a checkpoint file's content for entries that are already text, one a line."""
    lines = list(entries)
    return "".join(f"{line}\n" for line in (CHECKPOINT_VERSION, str(len(lines)), *lines)).encode()


def decode_checkpoint(content: bytes, name: str) -> list[str]:
    """Return the entry lines of a checkpoint file.

    Raises:
        CorruptCheckpoint: not UTF-8, another version, or not as many lines as the file says.
    """
    if not content:
        return []
    try:
        lines = content.decode().splitlines()
        if lines[0].strip() != CHECKPOINT_VERSION:
            raise CorruptCheckpoint(f"{name}: version {lines[0]!r}, expected {CHECKPOINT_VERSION}")
        count = int(lines[1])
    except (UnicodeDecodeError, ValueError, IndexError) as error:
        raise CorruptCheckpoint(f"{name}: no version and count at its beginning: {error}") from error
    entries = [line for line in lines[2:] if line]
    if len(entries) != count:
        raise CorruptCheckpoint(f"{name}: says {count} entries and holds {len(entries)}")
    return entries


def read_checkpoint(disk: Disk, path: PurePath) -> list[str]:
    """Return the entry lines of the checkpoint at ``path``; a file that is not there has none.

    Raises:
        CorruptCheckpoint: as ``decode_checkpoint``.
    """
    try:
        content = disk.read_file(path)
    except FileNotFoundError:
        return []
    return decode_checkpoint(content, str(path))


def keep_damaged(disk: Disk, path: PurePath) -> PurePath:
    """Copy a checkpoint of which a part is damaged, durably, before it is written anew; return the copy."""
    target = path.with_name(path.name + DAMAGED_SUFFIX)
    disk.copy(path, target)
    sync_file(disk, target)
    return target


def read_offsets(disk: Disk, path: PurePath) -> dict[TopicPartition, int]:
    """Return the offsets of an offset checkpoint.

    Raises:
        CorruptCheckpoint: as ``decode_checkpoint``, or an entry is not ``topic partition offset``.
    """
    offsets = {}
    for line in read_checkpoint(disk, path):
        try:
            topic, partition, offset = line.split()
            # ``int`` alone takes signs, underscores and the digits of other scripts as well.
            if not (offset.isascii() and offset.isdecimal()):
                raise ValueError(offset)
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise CorruptCheckpoint(f"{path}: {line!r} is not a topic, a partition and an offset") from error
    return offsets


def write_offsets(disk: Disk, path: PurePath, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint. Sorted, so that two of them can be compared by eye."""
    # As tuples, which compare in C: the broker writes ten thousand every few seconds.
    rows = sorted([(partition.topic, partition.partition, offset) for partition, offset in offsets.items()])
    lines = (f"{topic} {partition} {offset}" for topic, partition, offset in rows)
    write_atomically(disk, path, encode_checkpoint(lines))
