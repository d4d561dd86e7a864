"""``partition.metadata``: which topic, by id, a partition directory belongs to.

Names can be deleted and given again; the id cannot, so a directory whose id is not that of the topic of its name is a
stray and must not be served. The file is there before the first record is. Exactly two lines without a final
newline::

    version: 0
    topic_id: ABEiM0RVZneImaq7zN3u_w

Source: Kafka's PartitionMetadataFile; docs/formats/checkpoints.md.
"""

from __future__ import annotations

from pathlib import PurePath

from kafka_wire.primitives import parse_uuid, uuid_text
from trio_broker.runtime.disk import Disk, write_atomically
from trio_broker.storage import file_names
from trio_broker.storage.errors import CorruptCheckpoint


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


def write(disk: Disk, directory: PurePath, topic_id: bytes) -> None:
    """Write the file durably."""
    write_atomically(disk, directory / file_names.PARTITION_METADATA, encode(topic_id))
