"""Which records of a log are committed, from what is on the disk.

Two sources tell of aborted transactions: the transaction indexes, and the markers in the log itself. Indexes cover what
a broker has written; the batches behind the newest producer snapshot are read as well, which says what transactions are
still open and what a crash may have kept from the index. Without a snapshot all of the log is read.

A transaction is decided once its marker lies below the high watermark. The last stable offset is the beginning of the
first that is not.

Source: Kafka's ProducerStateManager; docs/formats/indexes.md, docs/formats/producer-snapshot.md.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import RecordBatch, read_batch_header
from trio_broker.spark.errors import CorruptData, SourceUnavailable
from trio_broker.spark.files.manifest import AbortedRange, PartitionLog
from trio_broker.spark.files.offline_batches import ReadBatches, find_batch, open_whole, read_all_batches
from trio_broker.spark.files.segment_files import OpenSegment, start_position
from trio_broker.storage import file_names, producer_snapshot
from trio_broker.storage.errors import CorruptIndex, CorruptSnapshot
from trio_broker.storage.producer_replay import read_transaction_marker
from trio_broker.storage.transaction_index import TransactionIndex

log = logging.getLogger(__name__)

_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20


@attrs.define
class Transactions:
    """Transactions up to ``offset``: the first offsets of those that are open, by producer id, and those aborted."""

    offset: int
    open: dict[int, int] = attrs.field(factory=dict)
    aborted: set[AbortedRange] = attrs.field(factory=set)


def with_transactions(found: PartitionLog, directory: Path, paths: Mapping[int, Path]) -> PartitionLog:
    """Return the log with its last stable offset and its aborted transactions.

    Raises:
        SourceUnavailable: a file cannot be read.
        CorruptData: a transaction marker cannot be read, or a transaction is open where the log is damaged.
    """
    try:
        aborted, gap = _indexed(found, paths)
        transactions = _snapshot(found, directory) if not gap else Transactions(found.log_start_offset)
        _replay(transactions, found, paths)
    except OSError as error:
        raise SourceUnavailable(f"{found.partition}: {directory}: {error.strerror}") from error
    last_stable_offset = min([found.high_watermark, *transactions.open.values()])
    last_stable_offset = max(last_stable_offset, found.log_start_offset)
    log_with = attrs.evolve(
        found,
        last_stable_offset=last_stable_offset,
        aborted=tuple(sorted(aborted | transactions.aborted, key=lambda each: each.last_offset)),
    )
    return attrs.evolve(log_with, aborted=log_with.aborted_between(found.log_start_offset, last_stable_offset))


def _indexed(found: PartitionLog, paths: Mapping[int, Path]) -> tuple[set[AbortedRange], bool]:
    """Return what the transaction indexes say, and whether one of them is no good."""
    aborted: set[AbortedRange] = set()
    for segment in found.segments:
        log_path = paths[segment.base_offset]
        name = log_path.name.replace(file_names.LOG_SUFFIX, file_names.TRANSACTION_INDEX_SUFFIX)
        try:
            entries = TransactionIndex(log_path.with_name(name)).transactions
        except CorruptIndex as error:
            log.warning("%s: %s; all of its log is read instead", found.partition, error)
            return set(), True
        # What a crash has cut from the log may still have an entry.
        aborted |= {
            AbortedRange(each.producer_id, each.first_offset, each.last_offset)
            for each in entries
            if each.last_offset < found.high_watermark
        }
    return aborted, False


def _snapshot(found: PartitionLog, directory: Path) -> Transactions:
    """Return what the newest good snapshot says that is not of later than the high watermark."""
    for offset in reversed(producer_snapshot.offsets(directory)):
        if found.log_start_offset <= offset <= found.high_watermark:
            path = file_names.segment_path(directory, offset, file_names.SNAPSHOT_SUFFIX)
            try:
                entries = producer_snapshot.decode(path.read_bytes(), str(path))
            except CorruptSnapshot as error:
                log.warning("%s: an older producer snapshot is taken: %s", found.partition, error)
                continue
            begun = {each.producer_id: each.transaction_first_offset for each in entries}
            return Transactions(offset, {key: first for key, first in begun.items() if first is not None})
    return Transactions(found.log_start_offset)


def _replay(transactions: Transactions, found: PartitionLog, paths: Mapping[int, Path]) -> None:
    """Take note of all batches up to the high watermark.

    What is damaged is left to who reads it, unless a transaction is open there: it may have ended in the damage.
    """
    for segment in found.segments_between(transactions.offset, found.high_watermark):
        with open_whole(segment.base_offset, paths[segment.base_offset]) as file:
            file.segment = segment
            start: int | None = start_position(file, transactions.offset, ())
            while start is not None:
                start = _replay_file(transactions, found, file, start)


def _replay_file(transactions: Transactions, found: PartitionLog, file: OpenSegment, start: int) -> int | None:
    """Take note of the batches from ``start`` on; return where to go on behind damage, None at the end.

    Raises:
        CorruptData: it may be the end of a transaction that is damaged.
    """
    damaged_at, next_offset = start, file.segment.base_offset
    try:
        for read in read_all_batches(file, start, found.partition):
            _note(transactions, read, found)
            damaged_at = read.position + read.table.consumed_bytes
            next_offset = int(read.table.last_offsets[-1]) + 1
    except CorruptData:
        if transactions.open and next_offset < found.high_watermark:
            raise
        behind = find_batch(file, damaged_at + 1, next_offset)
        return None if behind is None else behind.position
    return None


def _note(transactions: Transactions, read: ReadBatches, found: PartitionLog) -> None:
    table = read.table
    for row in (table.attributes & _TRANSACTIONAL).nonzero()[0].tolist():
        base_offset, producer_id = int(table.base_offsets[row]), int(table.producer_ids[row])
        if base_offset < transactions.offset:
            continue
        if base_offset >= found.high_watermark:
            return
        if not table.attributes[row] & _CONTROL:
            transactions.open.setdefault(producer_id, base_offset)
            continue
        start = int(table.positions[row])
        aborted = _is_abort(read.view[start : start + int(table.sizes[row])], found, base_offset)
        first_offset = transactions.open.pop(producer_id, None) if aborted is not None else None
        if aborted and first_offset is not None:
            transactions.aborted.add(AbortedRange(producer_id, first_offset, base_offset))


def _is_abort(data: memoryview, found: PartitionLog, offset: int) -> bool | None:
    """Return whether a control batch aborts its producer's transaction; None where it does not end one."""
    try:
        marker = read_transaction_marker(RecordBatch(read_batch_header(data), data))
    except KafkaError as error:
        raise CorruptData(found.partition, offset, f"a transaction marker cannot be read: {error}") from error
    return None if marker is None else marker.aborted
