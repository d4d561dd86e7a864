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
from pathlib import PurePath

import attrs

from kafka_wire.records.batch import RecordBatch
from kafka_wire.records.control import EndTransactionMarker, read_control_record
from trio_broker.runtime.disk import Disk
from trio_broker.storage import batch_scan, file_names, producer_snapshot
from trio_broker.storage.errors import CorruptSnapshot
from trio_broker.storage.offset_index import OffsetIndex
from trio_broker.storage.producer_state import REMEMBERED_BATCHES, ProducerStates, TransactionMarker
from trio_broker.storage.segment import Segment
from trio_broker.storage.transaction_index import AbortedTransaction

logger = logging.getLogger(__name__)

REFILL_INDEX_ENTRIES = REMEMBERED_BATCHES
"""How far before a snapshot headers are read: at least so many large batches, or about 20 KiB of small ones."""


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
            states.restore(producer_snapshot.decode(disk.read_file(path), str(path)), offset)
        except CorruptSnapshot as error:
            logger.warning("removing a producer snapshot, an older one is taken: %s", error)
            disk.unlink(path)
            continue
        if expiration is not None:
            states.remove_expired(expiration.now_ms, expiration.expiration_ms)
        _remember_batches_before(states, segments, offset)
        break
    replay(states, segments, end_offset)
    return states


def replay(states: ProducerStates, segments: Sequence[Segment], end_offset: int) -> None:
    """Bring ``states`` from its own end offset up to ``end_offset`` with the batches in between."""
    start_offset = states.end_offset
    for segment in segments:
        if segment.next_offset <= start_offset or segment.base_offset >= end_offset:
            continue
        span = segment.find(start_offset)
        if span is None:
            continue
        for located in batch_scan.headers(segment.file, span.position, segment.size):
            header = located.header
            if header.base_offset >= end_offset:
                break
            if header.producer_id < 0:
                continue
            # The header says it all, but for a marker's: only those batches are read.
            if header.is_control:
                apply(states, segment.batch_at(located.position, header))
            else:
                states.update(header)
    states.end_offset = max(end_offset, start_offset)


def apply(states: ProducerStates, batch: RecordBatch) -> AbortedTransaction | None:
    """Take note of a batch of a producer that is in the log. Returns the transaction that it aborts, if it does."""
    if not batch.header.is_control:
        states.update(batch.header)
        return None
    marker = read_transaction_marker(batch)
    return None if marker is None else states.complete(marker)


def _remember_batches_before(states: ProducerStates, segments: Sequence[Segment], offset: int) -> None:
    if not states.producers:
        return
    for segment in reversed(segments):
        if segment.base_offset >= offset or not segment.size:
            continue
        span = segment.find(offset)
        end = segment.size if span is None else span.position
        start = segment.indexed_position(partial(_number_before, end))
        located = list(batch_scan.headers(segment.file, start, end))
        for item in reversed(located):
            if item.header.producer_id >= 0 and not item.header.is_control:
                states.remember_older(item.header)
        return


def _number_before(end: int, index: OffsetIndex) -> int:
    return index.number_at(end) - REFILL_INDEX_ENTRIES
