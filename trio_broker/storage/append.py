"""The three ways in which batches come to a log, and what each of them may do.

A client's batch is checked like a stranger's: ``validation`` looks at the batch before it comes here,
``producer_state`` at its place in the producer's sequence. A coordinator's (offsets, transaction markers, metadata) is
our own and may hold control records. A leader's, which a follower copies, is a fact: offsets and epochs stay as they
are, and only order and checksum are verified. All checks come before the first change, so a refusal leaves the log as
it was.

The order on a leader: check; record the leader epoch if it is new; stamp offset and epoch; roll if due; write; move
the log end; take note of the producer; index an aborted transaction.

Source: Kafka's UnifiedLog.append and AppendOrigin; docs/formats/segment.md.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol

import attrs

from kafka_wire.records.batch import BatchHeader, RecordBatch, TimestampType, read_batches, stamp_batch
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.config.log_config import LogConfig
from trio_broker.storage import validation
from trio_broker.storage.errors import FencedLeaderEpoch, RecordListTooLarge, StorageFailed, UnexpectedAppendOffset
from trio_broker.storage.leader_epochs import EpochEntry, LeaderEpochs
from trio_broker.storage.producer_replay import read_transaction_marker
from trio_broker.storage.producer_state import BatchMetadata, ProducerStates, TransactionMarker
from trio_broker.storage.segment import Segment
from trio_broker.storage.transaction_index import AbortedTransaction
from trio_broker.topic_partition import TopicPartition


class AppendOrigin(enum.Enum):
    """Who appends, which decides what is checked and who gives the offsets."""

    CLIENT = "a producer: everything is checked, offsets are given here"
    COORDINATOR = "the broker itself: control batches are allowed, offsets are given here"
    REPLICATION = "copied from a leader: offsets and epochs are facts"


@attrs.define
class AppendInfo:
    """What became of an append. ``log_append_time_ms`` is -1 with CreateTime, as a Produce response has it.

    A ``duplicate`` was not appended: the offsets are those it got the first time, and the time is that of its records.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    log_start_offset: int
    appended_bytes: int
    duplicate: bool = False


class AppendTarget(Protocol):
    """What an append needs of the log it changes; ``Log`` has it."""

    topic_partition: TopicPartition
    log_start_offset: int
    log_end_offset: int
    epochs: LeaderEpochs
    producers: ProducerStates

    @property
    def config(self) -> LogConfig: ...

    @property
    def active_segment(self) -> Segment: ...

    @property
    def latest_epoch(self) -> int | None: ...

    def assign_epoch(self, epoch: int, start_offset: int) -> None: ...

    def write_batches(self, headers: Sequence[BatchHeader], data: memoryview, now_ms: int) -> AppendInfo: ...

    def fail(self, error: OSError) -> StorageFailed: ...


def from_client(log: AppendTarget, batch: RecordBatch, leader_epoch: int, now_ms: int) -> AppendInfo:
    """Append a producer's one batch, which ``validation`` has prepared; see ``Log.append_prepared`` for the errors."""
    producers, header = log.producers, batch.header
    if header.producer_id >= 0:
        # Before the sequence check, which a repeated batch would fail: the client has only missed the first answer.
        if repeated := producers.duplicate_of(header):
            return _answer_again(repeated, log.log_start_offset)
        producers.check_epoch(header)
        producers.check_sequence(header)
    records = batch.buffer
    _check_fits(log, records)
    stamps_time = log.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    if stamps_time:
        header = validation.stamp_append_time(batch, now_ms).header
    # Before the write: an epoch that has records but no entry would be attributed to its predecessor.
    log.assign_epoch(leader_epoch, log.log_end_offset)
    _stamp(header, records, log.log_end_offset, leader_epoch)
    info = log.write_batches((header,), records, now_ms)
    if stamps_time:
        info.log_append_time_ms = now_ms
    if header.producer_id >= 0:
        # Only now: a failed write must leave the sequence where it was, or the client's retry would be refused.
        producers.update(header)
    return info


def _answer_again(repeated: BatchMetadata, log_start_offset: int) -> AppendInfo:
    return AppendInfo(
        first_offset=repeated.first_offset,
        last_offset=repeated.last_offset,
        max_timestamp=repeated.timestamp_ms,
        log_append_time_ms=repeated.timestamp_ms,
        log_start_offset=log_start_offset,
        appended_bytes=0,
        duplicate=True,
    )


def from_coordinator(log: AppendTarget, records: memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
    """Append batches of the broker's own; see ``Log.append`` for the errors."""
    batches = _batches_of(records)
    _check_fits(log, records)
    for batch in batches:
        if batch.header.producer_id < 0:
            continue
        # No sequence check: the broker's own batches carry none.
        if not batch.header.is_control:
            log.producers.check_epoch(batch.header)
        elif marker := read_transaction_marker(batch):
            log.producers.check_marker(marker)
    log.assign_epoch(leader_epoch, log.log_end_offset)
    offset = log.log_end_offset
    for batch in batches:
        _stamp(batch.header, batch.buffer, offset, leader_epoch)
        offset = batch.header.next_offset
    info = log.write_batches([batch.header for batch in batches], records, now_ms)
    _note_producers(log, batches)
    return info


def from_leader(log: AppendTarget, records: memoryview, now_ms: int) -> AppendInfo:
    """Append what a follower was sent; see ``Log.append`` for the errors."""
    batches = _batches_of(records)
    _check_order(log, batches)
    _note_epochs(log, batches)
    # One write for all, unless together they are larger than a segment of this log may be.
    groups = [batches] if len(records) <= log.config.segment_size else [[batch] for batch in batches]
    position, infos = 0, []
    for group in groups:
        size = sum(batch.header.size_bytes for batch in group)
        data = records[position : position + size]
        infos.append(log.write_batches([batch.header for batch in group], data, now_ms))
        _note_producers(log, group)
        position += size
    return attrs.evolve(
        infos[-1],
        first_offset=infos[0].first_offset,
        max_timestamp=max(info.max_timestamp for info in infos),
        appended_bytes=position,
    )


def _batches_of(records: memoryview) -> list[RecordBatch]:
    """Return the batches that ``records`` consists of, with their checksums verified.

    Raises:
        CorruptRecordBatch: none, a wrong checksum, or bytes left over.
    """
    batches = list(read_batches(records))
    size = sum(batch.header.size_bytes for batch in batches)
    if not batches or size != len(records):
        raise CorruptRecordBatch(f"{len(records)} bytes hold {len(batches)} whole batches of {size} bytes")
    for batch in batches:
        batch.verify_crc()
    return batches


def _check_order(log: AppendTarget, batches: Sequence[RecordBatch]) -> None:
    """See that offsets and epochs go on from where the log ends and never fall."""
    expected, epoch = log.log_end_offset, log.latest_epoch
    for header in (batch.header for batch in batches):
        # Only falling is wrong: a leader that compacts sends batches with gaps between them.
        if header.base_offset < expected:
            raise UnexpectedAppendOffset(f"{log.topic_partition}: batch at {header.base_offset}, the end is {expected}")
        expected = header.next_offset
        if header.partition_leader_epoch < 0:
            continue
        if epoch is not None and header.partition_leader_epoch < epoch:
            raise FencedLeaderEpoch(f"{log.topic_partition}: epoch {header.partition_leader_epoch} after {epoch}")
        epoch = header.partition_leader_epoch


def _check_fits(log: AppendTarget, records: memoryview) -> None:
    if len(records) > log.config.segment_size:
        raise RecordListTooLarge(f"{len(records)} bytes; segment.bytes is {log.config.segment_size}")


def _stamp(header: BatchHeader, buffer: memoryview, offset: int, leader_epoch: int) -> None:
    # Both fields lie before the CRC and are not covered by it, so the checksum stays the client's.
    stamp_batch(buffer, base_offset=offset, partition_leader_epoch=leader_epoch)
    header.base_offset = offset
    header.partition_leader_epoch = leader_epoch


def _note_epochs(log: AppendTarget, batches: Sequence[RecordBatch]) -> None:
    """Record the epochs that begin in ``batches`` before the batches are written, with one wait for the disk."""
    headers = (batch.header for batch in batches)
    log.epochs.assign_all(
        EpochEntry(header.partition_leader_epoch, header.base_offset)
        for header in headers
        if header.partition_leader_epoch >= 0
    )


def _note_producers(log: AppendTarget, batches: Sequence[RecordBatch]) -> None:
    for batch in batches:
        if batch.header.producer_id < 0:
            continue
        if not batch.header.is_control:
            log.producers.update(batch.header)
        elif marker := read_transaction_marker(batch):
            _complete_transaction(log, marker)


def _complete_transaction(log: AppendTarget, marker: TransactionMarker) -> None:
    completed = log.producers.complete(marker)
    if completed is None or not completed.aborted:
        return
    aborted = AbortedTransaction(
        completed.producer_id,
        completed.first_offset,
        completed.last_offset,
        log.producers.last_stable_offset_after(completed),
    )
    try:
        log.active_segment.transaction_index.append(aborted)
    except OSError as error:
        # The marker is in the log and its offset given; a committed reader must not get past it without this entry.
        raise log.fail(error) from error
