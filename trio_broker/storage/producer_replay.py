"""Producer state from what is on disk: the newest good snapshot, and the batches behind it.

A snapshot keeps only the last of a producer's five remembered batches. After a restart a client may repeat any of the
five it had in flight, so the headers just before the snapshot are read as well and put back what it left out; Kafka
does not do this, and forgets.

Source: Kafka's ProducerStateManager and UnifiedLog.rebuildProducerState; docs/formats/producer-snapshot.md.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from heapq import nlargest
from pathlib import PurePath

import attrs

from kafka_wire.records.batch import BatchHeader, RecordBatch
from kafka_wire.records.control import EndTransactionMarker, read_control_record
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.runtime.disk import Disk
from trio_broker.storage import file_names, producer_snapshot
from trio_broker.storage.batch_headers import good_headers, header_at
from trio_broker.storage.errors import CorruptSnapshot
from trio_broker.storage.offset_index import OffsetIndex
from trio_broker.storage.producer_state import REMEMBERED_BATCHES, ProducerEntry, ProducerStates, TransactionMarker
from trio_broker.storage.segment import Segment
from trio_broker.storage.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)

REFILL_INDEX_ENTRIES = REMEMBERED_BATCHES
"""How far before a snapshot headers are read: at least so many large batches, or about 20 KiB of small ones."""


CHECKED_PRODUCERS = 4
"""Producers of a snapshot that are compared with their batches, the newest: each costs a look into the log."""


def read_transaction_marker(batch: RecordBatch) -> TransactionMarker | None:
    """Return the transaction marker in a control batch, None when it is another control record.

    Raises:
        CorruptRecordBatch: the batch holds no readable record.
    """
    for record in batch.records():
        control = read_control_record(record)
        if isinstance(control, EndTransactionMarker):
            header = batch.header
            return TransactionMarker(
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                coordinator_epoch=control.coordinator_epoch,
                offset=record.offset,
                timestamp_ms=record.timestamp,
                aborted=not control.committed,
            )
    return None


@attrs.frozen
class Expiration:
    """Which producers count as silent at ``now_ms``, as ``ProducerStates.remove_expired`` has it."""

    now_ms: int
    expiration_ms: int


def load_producer_states(
    disk: Disk,
    directory: PurePath,
    segments: Sequence[Segment],
    end_offset: int,
    log_start_offset: int,
    expiration: Expiration | None = None,
) -> ProducerStates:
    """Return the producer state of the log up to ``end_offset``, exclusive. Bad snapshots are removed on the way.

    Producers of a snapshot that are silent by ``expiration`` are left out, those of the batches behind it never: their
    records may have been written a moment ago with timestamps of years ago, and be sent again in the next.
    """
    states = ProducerStates()
    states.end_offset = log_start_offset
    for offset in reversed(producer_snapshot.offsets(disk, directory)):
        if offset > end_offset:
            continue
        path = file_names.segment_path(directory, offset, file_names.SNAPSHOT_SUFFIX)
        try:
            entries = producer_snapshot.decode(disk.read_file(path), str(path))
            before = _headers_before(segments, offset) if entries else []
            _check_snapshot(entries, before, segments, offset, str(path))
            states.restore(entries, offset)
        except CorruptSnapshot as error:
            logger.warning("removing a producer snapshot, an older one is taken: %s", error)
            disk.unlink(path)
            continue
        if expiration is not None:
            states.remove_expired(expiration.now_ms, expiration.expiration_ms)
        for header in before:
            states.remember_older(header)
        break
    replay(states, segments, end_offset)
    return states


def replay(states: ProducerStates, segments: Sequence[Segment], end_offset: int) -> None:
    """Bring ``states`` from its own end offset up to ``end_offset`` with the batches in between."""
    start_offset = states.end_offset
    for segment in segments:
        if segment.next_offset <= start_offset or segment.base_offset >= end_offset:
            continue
        position = segment.indexed_position(partial(_number_for, start_offset))
        for located in good_headers(segment, position):
            header = located.header
            if header.base_offset >= end_offset:
                break
            if header.producer_id < 0 or header.last_offset < start_offset:
                continue
            # The header says it all, but for a marker's: only those batches are read.
            if header.is_control:
                apply(states, segment.batch_at(located.position, header))
            else:
                states.update(header)
    states.end_offset = max(end_offset, start_offset)


def apply(states: ProducerStates, batch: RecordBatch) -> AbortedTransaction | None:
    """Take note of a batch of a producer that is in the log. Returns the transaction that it aborts, if it does."""
    return note(states, batch.header, read_transaction_marker(batch) if batch.header.is_control else None)


def note(states: ProducerStates, header: BatchHeader, marker: TransactionMarker | None) -> AbortedTransaction | None:
    """As ``apply``, where the marker of the batch has been read."""
    if marker is not None:
        return states.complete(marker)
    if header.producer_id >= 0 and not header.is_control:
        states.update(header)
    return None


def _headers_before(segments: Sequence[Segment], offset: int) -> list[BatchHeader]:
    """Return the headers of some producers' batches just before ``offset``, newest first."""
    for segment in reversed(segments):
        if segment.base_offset >= offset or not segment.size:
            continue
        position = segment.indexed_position(partial(_number_before, offset))
        headers = [item.header for item in good_headers(segment, position) if item.header.base_offset < offset]
        return [header for header in reversed(headers) if header.producer_id >= 0 and not header.is_control]
    return []


def _last_offset(entry: ProducerEntry) -> int:
    return entry.batches[-1].last_offset


def _check_snapshot(
    entries: Sequence[ProducerEntry],
    before: Sequence[BatchHeader],
    segments: Sequence[Segment],
    offset: int,
    name: str,
) -> None:
    """Compare the producers of a snapshot with their batches, ``before`` it and elsewhere: it may be another's.

    Raises:
        CorruptSnapshot: it does not know a batch before it, or knows one that is not there.
    """
    known = {entry.producer_id: _last_offset(entry) for entry in entries if entry.batches}
    for header in before:
        if known.get(header.producer_id, header.last_offset) < header.last_offset:
            raise CorruptSnapshot(f"{name}: producer {header.producer_id} has written {header.last_offset} as well")
    newest = nlargest(CHECKED_PRODUCERS, (entry for entry in entries if entry.batches), key=_last_offset)
    for entry in newest:
        last_offset = _last_offset(entry)
        if last_offset >= offset:
            raise CorruptSnapshot(f"{name}: producer {entry.producer_id} has written {last_offset}")
        try:
            is_kept = bool(segments) and last_offset >= segments[0].base_offset
            found = header_at(segments, last_offset) if is_kept else None
        except CorruptRecordBatch:
            continue
        # Compaction may have taken the batch.
        is_there = found is not None and found.base_offset <= last_offset < offset
        if found is not None and is_there and found.producer_id != entry.producer_id:
            raise CorruptSnapshot(f"{name}: producer {entry.producer_id} has not written {last_offset}")


def _number_for(offset: int, index: OffsetIndex) -> int:
    return index.number_for(offset)


def _number_before(offset: int, index: OffsetIndex) -> int:
    return index.number_for(offset) - REFILL_INDEX_ENTRIES
