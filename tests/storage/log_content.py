"""What is in a log, read as a consumer reads it, and whether all that the log knows besides is right for it."""

from __future__ import annotations

import itertools
import random

import attrs

from kafka_wire.records.batch import BatchHeader, RecordBatch, read_batches
from trio_broker.storage.log import Log
from trio_broker.storage.producer_replay import read_transaction_marker
from trio_broker.storage.segment import FetchedRecords


@attrs.frozen
class Written:
    """A record as it was written, or is found."""

    key: bytes | None
    value: bytes | None
    epoch: int


def fetched_data(fetched: FetchedRecords) -> bytes | bytearray | memoryview:
    """The bytes of what a read has found, in a file or in memory."""
    return fetched.records if isinstance(fetched.records, bytes) else fetched.records.read()


def found_batches(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> list[RecordBatch]:
    """All batches of a log from ``offset`` or its start on, read as a consumer reads, and checked."""
    batches: list[RecordBatch] = []
    position = log.log_start_offset if offset is None else offset
    while (fetched := log.read(position, max_bytes, end_offset=log.log_end_offset)).size:
        data = fetched_data(fetched)
        found = list(read_batches(data))
        assert sum(each.header.size_bytes for each in found) == len(data), "a read gives whole batches"
        for batch in found:
            batch.verify_crc()
            assert not batches or batch.header.base_offset > batches[-1].header.last_offset
            batches.append(batch)
        position = fetched.next_offset
    assert not batches or batches[-1].header.last_offset < log.log_end_offset
    return batches


def found_values(log: Log) -> list[bytes]:
    """The values of all records of a log; none is null."""
    return [record.value or b"" for batch in found_batches(log) for record in batch.records()]


def found_records(log: Log) -> dict[int, Written]:
    """All records of a log from its start on, by offset."""
    return {
        record.offset: Written(record.key, record.value, batch.header.partition_leader_epoch)
        for batch in found_batches(log)
        for record in batch.records()
        if record.offset >= log.log_start_offset
    }


def check_epochs(log: Log, batches: list[RecordBatch], start: int) -> None:
    """The epochs of the log are those of its batches from ``start`` on."""
    entries = log.epochs.entries
    for before, after in itertools.pairwise(entries):
        assert before.epoch < after.epoch
        assert before.start_offset < after.start_offset
    assert not entries or entries[-1].start_offset <= log.log_end_offset
    for batch in batches:
        offset = max(batch.header.base_offset, start)
        if offset > batch.header.last_offset:
            continue
        known = log.epochs.epoch_for_offset(offset)
        assert known == batch.header.partition_leader_epoch, (
            f"{log}: epoch {known} at {offset}, not {batch.header.partition_leader_epoch}: {entries}"
        )


def check_producers(log: Log, batches: list[RecordBatch], start: int) -> None:
    """Last sequences, open and aborted transactions are those of the batches, where all of them are there."""
    last: dict[int, BatchHeader] = {}
    open_since: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for batch in batches:
        header = batch.header
        if header.producer_id < 0:
            continue
        if header.is_control:
            marker = read_transaction_marker(batch)
            assert marker is not None
            first = open_since.pop(header.producer_id, None)
            if first is not None and marker.aborted:
                aborted.append((header.producer_id, first, header.last_offset))
            continue
        last[header.producer_id] = header
        if header.is_transactional:
            open_since.setdefault(header.producer_id, header.base_offset)
    is_compacted = log.config.cleanup_policy.compact
    for producer_id, header in last.items():
        known = log.producers.producers[producer_id].last_sequence
        # A newer one may have been compacted, when a still newer one was not lost yet, or deleted.
        may_be_newer = is_compacted or header.base_offset < start
        assert known == header.last_sequence or (may_be_newer and known > header.last_sequence), f"{log}: {header}"
    for entry in log.producers.producers.values():
        assert not entry.batches or entry.batches[-1].last_offset < log.log_end_offset
    if start == 0:
        undecided = {first: producer_id for producer_id, first in open_since.items()}
        assert log.producers.transactions.undecided == undecided, f"{log}: {undecided}"
        found = log.aborted_transactions(0, log.log_end_offset)
        assert [(item.producer_id, item.first_offset, item.last_offset) for item in found] == aborted


def check_reads(log: Log, found: dict[int, Written], chance: random.Random) -> None:
    """Indexes lead to the records."""
    for offset in chance.sample(sorted(found), min(3, len(found))):
        fetched = log.read(offset, 1, end_offset=log.log_end_offset)
        (batch,) = read_batches(fetched_data(fetched))
        assert batch.header.base_offset <= offset <= batch.header.last_offset
        timestamp = next(record.timestamp for record in batch.records() if record.offset == offset)
        answer = log.offset_for_timestamp(timestamp, log.log_end_offset)
        assert answer is not None
        assert answer.offset <= offset
        assert answer.timestamp_ms == timestamp
