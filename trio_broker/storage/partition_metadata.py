"""``partition.metadata``: which topic, by id, a partition directory belongs to.

Names can be deleted and given again; the id cannot, so a directory whose id is not that of the topic of its name is a
stray and must not be served. The file is durable before the first record is written (``write_durably``), not before: a
directory in which a power cut left none, or half of one, has never had a record. Exactly two lines without a final
newline::

    version: 0
    topic_id: ABEiM0RVZneImaq7zN3u_w

Source: Kafka's PartitionMetadataFile; docs/formats/checkpoints.md.
"""

from __future__ import annotations

from pathlib import PurePath

from kafka_wire.primitives import parse_uuid, uuid_text
from kafka_wire.records.batch import BATCH_HEADER_BYTES
from trio_broker.runtime.disk import Disk, File, OpenMode, names_in, write_all
from trio_broker.storage import file_names
from trio_broker.storage.errors import CorruptCheckpoint

MAX_DAMAGED_BITS = 16
"""Two random ids that differ in so few bits do not occur; a character of the file stands for six."""


def encode(topic_id: bytes) -> bytes:
    """Return the content of the file."""
    return f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()


def decode(content: bytes, name: str) -> bytes:
    """Return the topic id.

    Raises:
        CorruptCheckpoint: another version, or no 16-byte id.
    """
    try:
        version, topic_id = content.decode().split("\n")[:2]
        if version != "version: 0":
            raise ValueError(f"{version!r} is not version 0")
        label, _, text = topic_id.partition(": ")
        if label != "topic_id":
            raise ValueError(f"{topic_id!r} is not a topic id")
        return parse_uuid(text)
    except (UnicodeDecodeError, ValueError) as error:
        raise CorruptCheckpoint(f"{name}: {error}") from error


def check_not_damaged(found: bytes, expected: bytes, *, is_anothers: bool) -> None:
    """Refuse the id in the directory of a topic if it cannot be that of an earlier topic of the name.

    It is a damaged one if it is nearly the topic's: ids are random, two differ in half their bits. ``is_anothers`` says
    that it is the id of a topic of another name.

    Raises:
        CorruptCheckpoint: it is neither the topic's nor an earlier one's.
    """
    bits = (int.from_bytes(found, "big") ^ int.from_bytes(expected, "big")).bit_count()
    if is_anothers or 0 < bits <= MAX_DAMAGED_BITS:
        raise CorruptCheckpoint(f"topic id {uuid_text(found)} is a damaged {uuid_text(expected)}")


def read(disk: Disk, directory: PurePath) -> bytes | None:
    """Return the topic id of a partition directory, None when the file is not there.

    Raises:
        CorruptCheckpoint: the file is there and is malformed.
    """
    path = directory / file_names.PARTITION_METADATA
    try:
        return decode(disk.read_file(path), str(path))
    except FileNotFoundError:
        return None


def topic_id_in(disk: Disk, directory: PurePath) -> bytes | None:
    """The topic id that a partition's directory names; None where it names none, or has had no use for one yet.

    Raises:
        CorruptCheckpoint: the file is damaged, and there are records.
    """
    try:
        return read(disk, directory)
    except CorruptCheckpoint:
        if not is_unused(disk, directory):
            raise
        return None


def write(disk: Disk, directory: PurePath, topic_id: bytes) -> File:
    """Write the file, without a wait for the disk."""
    file = disk.open(directory / file_names.PARTITION_METADATA, OpenMode.REPLACE)
    write_all(file, encode(topic_id), 0)
    return file


def write_durably(disk: Disk, directory: PurePath, topic_id: bytes) -> None:
    """Write the file again, and bring its content and the directory's own name to the disk.

    Again, since a sync that follows one that failed says nothing about what was written before. The names in the
    directory are for the caller to sync.
    """
    write(disk, directory, topic_id).sync()
    disk.sync_directory(directory.parent)


def is_unused(disk: Disk, directory: PurePath) -> bool:
    """Whether a partition's directory has never had a record.

    Leader epochs are written down after the topic's id and before the first record.
    """
    names = names_in(disk.list_directory(directory))
    return file_names.LEADER_EPOCH_CHECKPOINT not in names and not has_records(disk, directory)


def has_records(disk: Disk, directory: PurePath) -> bool:
    """Whether a partition's directory has a record. A log that was given its size in advance is all zeros."""
    names = names_in(disk.list_directory(directory))
    logs = [directory / name for name in names if name.endswith(file_names.LOG_SUFFIX)]
    return any(any(disk.open(path, OpenMode.READ).read(BATCH_HEADER_BYTES, 0)) for path in logs)
