"""Small text files that survive a crash: they are replaced as a whole or not at all.

A checkpoint is UTF-8 text: a version line ``0``, a line with the number of entries, then one entry a line. The offset
checkpoints of a data directory hold ``topic partition offset``. An empty file reads as no entries; anything else that
does not add up is ``CorruptCheckpoint``, because a half-read recovery point would be a wrong one.

Written to ``<name>.tmp``, fsynced, renamed over the old file, and the directory fsynced: after a power cut either the
old or the new content is there.

Source: Kafka's CheckpointFile and OffsetCheckpointFile; docs/formats/checkpoints.md.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from trio_broker.storage.errors import CorruptCheckpoint
from trio_broker.topic_partition import TopicPartition

CHECKPOINT_VERSION = "0"


def sync_directory(directory: Path) -> None:
    """Make the names in ``directory`` durable: created, renamed and removed files."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | memoryview, position: int) -> None:
    """Write all of ``data`` at ``position``, however little the system takes at a time."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        position += written
        view = view[written:]


def write_atomically(path: Path, content: bytes) -> None:
    """Replace the content of ``path`` so that a crash at any moment leaves either the old or the new one."""
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        write_all(descriptor, content, 0)
        # Before the rename: a power cut could otherwise leave the name with an empty file behind it.
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(temporary, path)
    sync_directory(path.parent)


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


def read_checkpoint(path: Path) -> list[str]:
    """Return the entry lines of the checkpoint at ``path``; a file that is not there has none.

    Raises:
        CorruptCheckpoint: as ``decode_checkpoint``.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    return decode_checkpoint(content, str(path))


def read_offsets(path: Path) -> dict[TopicPartition, int]:
    """Return the offsets of an offset checkpoint.

    Raises:
        CorruptCheckpoint: as ``decode_checkpoint``, or an entry is not ``topic partition offset``.
    """
    offsets = {}
    for line in read_checkpoint(path):
        try:
            topic, partition, offset = line.split()
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise CorruptCheckpoint(f"{path}: {line!r} is not a topic, a partition and an offset") from error
    return offsets


def write_offsets(path: Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace an offset checkpoint. Sorted, so that two of them can be compared by eye."""
    # As tuples, which compare in C: the broker writes ten thousand every few seconds.
    rows = sorted([(partition.topic, partition.partition, offset) for partition, offset in offsets.items()])
    write_atomically(path, encode_checkpoint(f"{topic} {partition} {offset}" for topic, partition, offset in rows))
