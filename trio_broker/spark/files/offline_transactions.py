"""Which records of a log without a broker are committed.

Two sources name aborted transactions: the transaction indexes, and the markers in the log itself. Indexes cover what a
broker has written. The batches behind the newest producer snapshot are read as well: they say which transactions are
still open, and which aborted ones a crash kept from the index. Without a snapshot all of the log is read.

A transaction is decided once its marker lies below the high watermark. The last stable offset is the first offset of
the first transaction that is not.

Source: Kafka's ProducerStateManager; docs/formats/indexes.md, docs/formats/producer-snapshot.md.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import attrs

from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, RecordBatch, read_batch_header
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.spark.chunk import Chunk
from trio_broker.spark.errors import CorruptData
from trio_broker.spark.files.manifest import AbortedRange, PartitionLog
from trio_broker.spark.files.offline_log import find_batch
from trio_broker.spark.files.segment_files import OpenSegment, open_file, start_position
from trio_broker.spark.files.transport import SegmentReader
from trio_broker.spark.ranges import OffsetRange
from trio_broker.storage import file_names, producer_snapshot
from trio_broker.storage.errors import CorruptIndex, CorruptSnapshot
from trio_broker.storage.producer_replay import read_transaction_marker
from trio_broker.storage.producer_state import ProducerStates
from trio_broker.storage.transaction_index import TransactionIndex

log = logging.getLogger(__name__)


def with_transactions(found: PartitionLog, directory: Path, paths: Mapping[int, Path]) -> PartitionLog:
    """Return the log with its last stable offset and its aborted transactions.

    Raises:
        CorruptData: a transaction marker cannot be read, or a transaction is open where the log is damaged.
        OSError: a file cannot be read.
    """
    indexed = _indexed(found, paths)
    states = ProducerStates()
    states.end_offset = found.log_start_offset
    if indexed is not None:
        _restore_snapshot(states, found, directory)
    aborted = (indexed or set()) | _replay(states, found, paths)
    undecided = states.transactions.first_undecided_offset
    stable = found.high_watermark if undecided is None else min(undecided, found.high_watermark)
    stable = max(stable, found.log_start_offset)
    whole = attrs.evolve(found, last_stable_offset=stable, aborted=tuple(aborted))
    return attrs.evolve(whole, aborted=whole.aborted_between(found.log_start_offset, stable))


def _indexed(found: PartitionLog, paths: Mapping[int, Path]) -> set[AbortedRange] | None:
    """Return the aborted transactions of all transaction indexes; None if one of them is damaged."""
    aborted: set[AbortedRange] = set()
    for segment in found.segments:
        path = paths[segment.base_offset]
        name = path.name.replace(file_names.LOG_SUFFIX, file_names.TRANSACTION_INDEX_SUFFIX)
        try:
            entries = TransactionIndex(RealDisk(), path.with_name(name)).transactions
        except CorruptIndex as error:
            log.warning("%s: %s; all of its log is read instead", found.partition, error)
            return None
        # Behind the high watermark an entry may be of a marker that a crash has cut from the log.
        aborted |= {
            AbortedRange(each.producer_id, each.first_offset, each.last_offset)
            for each in entries
            if each.last_offset < found.high_watermark
        }
    return aborted


def _restore_snapshot(states: ProducerStates, found: PartitionLog, directory: Path) -> None:
    """Restore the newest good snapshot that is not behind the high watermark; without one ``states`` stay as they are.

    Unlike ``storage.producer_replay`` this removes no damaged snapshot: the directory may be a backup.
    """
    for offset in reversed(producer_snapshot.offsets(RealDisk(), directory)):
        if found.log_start_offset <= offset <= found.high_watermark:
            path = file_names.segment_path(directory, offset, file_names.SNAPSHOT_SUFFIX)
            try:
                states.restore(producer_snapshot.decode(path.read_bytes(), str(path)), offset)
                return
            except CorruptSnapshot as error:
                log.warning("%s: an older producer snapshot is taken: %s", found.partition, error)


def _replay(states: ProducerStates, found: PartitionLog, paths: Mapping[int, Path]) -> set[AbortedRange]:
    """Bring ``states`` up to the high watermark, and return the transactions that were aborted on the way.

    Damage is skipped, for the reader of the records to meet, unless a transaction is open there: its marker may be in
    the damaged bytes.
    """
    offsets = OffsetRange(found.partition, states.end_offset, found.high_watermark)
    aborted: set[AbortedRange] = set()
    for segment in found.segments_between(offsets.start_offset, offsets.end_offset):
        with open_file(segment, paths[segment.base_offset]) as file:
            start: int | None = start_position(file, offsets.start_offset, ())
            while start is not None:
                start = _replay_file(states, file, offsets, start, aborted)
    return aborted


def _replay_file(
    states: ProducerStates, file: OpenSegment, offsets: OffsetRange, start: int, aborted: set[AbortedRange]
) -> int | None:
    """Replay the batches from ``start`` on; return where to continue behind damage, None at the end.

    Raises:
        CorruptData: a transaction is open where the log is damaged.
    """
    reader = SegmentReader(file, offsets.partition)
    try:
        for chunk in reader.chunks(offsets, start):
            _apply(states, chunk, offsets, aborted)
    except CorruptData:
        if states.transactions.first_undecided_offset is not None:
            raise
        behind = find_batch(file, reader.position + 1, reader.next_offset)
        return None if behind is None else behind.position
    return None


def _apply(states: ProducerStates, chunk: Chunk, offsets: OffsetRange, aborted: set[AbortedRange]) -> None:
    table = chunk.table
    for row in (table.attributes & TRANSACTIONAL_BIT).nonzero()[0].tolist():
        base_offset, start = int(table.base_offsets[row]), int(table.positions[row])
        if base_offset < offsets.start_offset:
            continue
        data = chunk.data[start : start + int(table.sizes[row])]
        header = read_batch_header(data)
        if not table.attributes[row] & CONTROL_BIT:
            states.update(header)
            continue
        try:
            marker = read_transaction_marker(RecordBatch(header, data))
        except KafkaError as error:
            reason = f"a transaction marker cannot be read: {error}"
            raise CorruptData(offsets.partition, base_offset, reason) from error
        ended = states.complete(marker) if marker is not None else None
        if ended is not None:
            aborted.add(AbortedRange(ended.producer_id, ended.first_offset, ended.last_offset))
