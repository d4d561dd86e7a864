"""The producer state of a log in a file, ``<offset>.snapshot``: so that a start need not read the whole log.

Layout, big-endian: int16 version 1, uint32 CRC-32C of all that follows the CRC, int32 count, then 46 bytes a
producer: producer id, epoch, last sequence, last offset, offset delta of the last batch, timestamp of the last entry,
coordinator epoch of the last marker, first offset of the open transaction; -1 stands for none. Only the last of the
five remembered batches is stored; ``producer_replay`` puts the others back from the log.

A snapshot that cannot be read is no loss: an older one is taken and the log read from there.

Source: Kafka's ProducerStateManager.writeSnapshot; docs/formats/producer-snapshot.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import PurePath

from kafka_wire.primitives import NO_OFFSET
from kafka_wire.records.batch import NO_SEQUENCE
from kafka_wire.records.crc import crc32c
from trio_broker.runtime.disk import Disk, OpenMode, names_in, write_all
from trio_broker.storage import file_names
from trio_broker.storage.errors import CorruptSnapshot
from trio_broker.storage.producer_state import BatchMetadata, ProducerEntry

SNAPSHOT_VERSION = 1
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhiqiqiq")


def encode(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the content of a snapshot file."""
    rows = []
    for entry in entries:
        last = entry.batches[-1] if entry.batches else None
        open_since = entry.transaction_first_offset
        rows.append(
            _PRODUCER.pack(
                entry.producer_id,
                entry.producer_epoch,
                last.last_sequence if last else NO_SEQUENCE,
                last.last_offset if last else NO_OFFSET,
                last.offset_delta if last else 0,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                open_since if open_since is not None else NO_OFFSET,
            )
        )
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _PREFIX.pack(SNAPSHOT_VERSION, crc32c(body)) + body


def decode(content: bytes, name: str) -> list[ProducerEntry]:
    """Return the producers of a snapshot file.

    Raises:
        CorruptSnapshot: another version, a wrong checksum, or not as many bytes as the count says.
    """
    if len(content) < _PREFIX.size + _COUNT.size:
        raise CorruptSnapshot(f"{name}: {len(content)} bytes are too few")
    version, checksum = _PREFIX.unpack_from(content)
    body = content[_PREFIX.size :]
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"{name}: version {version}, expected {SNAPSHOT_VERSION}")
    if crc32c(body) != checksum:
        raise CorruptSnapshot(f"{name}: checksum {crc32c(body):#010x}, expected {checksum:#010x}")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _PRODUCER.size:
        raise CorruptSnapshot(f"{name}: {count} producers in {len(body)} bytes")
    return [_entry(*row) for row in _PRODUCER.iter_unpack(body[_COUNT.size :])]


def is_whole(content: bytes) -> bool:
    """Whether the file is as long as its count of producers says."""
    if len(content) < _PREFIX.size + _COUNT.size:
        return False
    (count,) = _COUNT.unpack_from(content, _PREFIX.size)
    return bool(len(content) == _PREFIX.size + _COUNT.size + count * _PRODUCER.size)


def _entry(
    producer_id: int,
    producer_epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    transaction_first_offset: int,
) -> ProducerEntry:
    entry = ProducerEntry(producer_id, producer_epoch)
    if last_offset != NO_OFFSET:
        entry.batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp_ms))
    entry.last_timestamp_ms = timestamp_ms
    entry.coordinator_epoch = coordinator_epoch
    entry.transaction_first_offset = transaction_first_offset if transaction_first_offset != NO_OFFSET else None
    return entry


def write(disk: Disk, directory: PurePath, offset: int, entries: Iterable[ProducerEntry], *, sync: bool) -> PurePath:
    """Write the snapshot of the state at ``offset``; ``sync`` waits for the disk. Returns its path.

    A roll does not wait: a snapshot that a crash tore fails its checksum and an older one is used.
    """
    path = file_names.segment_path(directory, offset, file_names.SNAPSHOT_SUFFIX)
    file = disk.open(path, OpenMode.REPLACE)
    write_all(file, encode(entries), 0)
    if sync:
        file.sync()
    return path


def offsets(disk: Disk, directory: PurePath) -> list[int]:
    """Return the offsets for which the directory has snapshots, ascending."""
    names = names_in(disk.list_directory(directory))
    found = (file_names.offset_of(name, file_names.SNAPSHOT_SUFFIX) for name in names)
    return sorted(offset for offset in found if offset is not None)
