"""Who appends to a log, what becomes of it, and what is checked of batches that no client sent.

Nothing in a client's batch is trusted: ``validation`` checks the batch before it comes to the log, ``producer_state``
its place in the producer's sequence. A coordinator's batch (offsets, transaction markers, metadata) is the broker's
own and may hold control records. A leader's, which a follower copies (``Log.append_as_follower``), is a fact: offsets
and epochs stay as they are, and only order and checksum are verified. All checks come before the first change, so a
refusal leaves the log as it was.

The order on a leader, in ``Log.append_prepared``: check; record the leader epoch if it is new; stamp offset and epoch;
roll if due; write; move the log end; take note of the producer; index an aborted transaction.

Source: Kafka's UnifiedLog.append, AppendOrigin and LogAppendInfo; docs/formats/segment.md.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

import attrs

from kafka_wire.limits import MAX_OFFSET
from kafka_wire.records.batch import RecordBatch, read_batches
from kafka_wire.records.errors import CorruptRecordBatch
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.storage.errors import (
    FencedLeaderEpoch,
    OffsetsExhausted,
    RecordListTooLarge,
    UnexpectedAppendOffset,
    UnknownLeaderEpoch,
)
from trio_broker.storage.producer_state import BatchMetadata


class AppendOrigin(enum.Enum):
    """Who appends, which decides what is checked and who gives the offsets."""

    CLIENT = "a producer: everything is checked, offsets are given here"
    COORDINATOR = "the broker itself: control batches are allowed, offsets are given here"


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

    @classmethod
    def of_duplicate(cls, repeated: BatchMetadata, log_start_offset: int) -> AppendInfo:
        """Return the answer to a batch that repeats one in the log."""
        time_ms = repeated.timestamp_ms
        return cls(repeated.first_offset, repeated.last_offset, time_ms, time_ms, log_start_offset, 0, duplicate=True)


def batches_of(records: memoryview) -> list[RecordBatch]:
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


def check_order(
    topic_partition: TopicPartition,
    batches: Sequence[RecordBatch],
    log_end_offset: int,
    epoch: int | None,
    leader_epoch: int,
) -> None:
    """See that offsets and epochs go on from where a log ends, in ``epoch``, and never fall, and that no batch is of a
    later epoch than the leader that it was fetched from (KAFKA-18723).

    Raises:
        UnexpectedAppendOffset: an offset falls.
        FencedLeaderEpoch: an epoch does.
        UnknownLeaderEpoch: one is above ``leader_epoch``.
    """
    for header in (batch.header for batch in batches):
        # Only falling is wrong: a leader that compacts sends batches with gaps between them.
        if header.base_offset < log_end_offset:
            raise UnexpectedAppendOffset(
                f"{topic_partition}: batch at {header.base_offset}, the end is {log_end_offset}"
            )
        log_end_offset = header.next_offset
        if header.partition_leader_epoch < 0:
            continue
        if epoch is not None and header.partition_leader_epoch < epoch:
            raise FencedLeaderEpoch(f"{topic_partition}: epoch {header.partition_leader_epoch} after {epoch}")
        epoch = header.partition_leader_epoch
        if epoch > leader_epoch:
            raise UnknownLeaderEpoch(f"{topic_partition}: epoch {epoch}, the leader's is {leader_epoch}")


def check_offsets(log_end_offset: int, records: int) -> None:
    """Refuse what would need more offsets than are left behind ``log_end_offset``. A log ends at ``MAX_OFFSET`` at the
    latest: its last record has the offset before that.

    Raises:
        OffsetsExhausted: there are fewer than ``records``.
    """
    if records > MAX_OFFSET - log_end_offset:
        raise OffsetsExhausted(f"the log ends at {log_end_offset}, and offsets at {MAX_OFFSET}")


def check_fits(records: memoryview, config: LogConfig) -> None:
    """Refuse what no segment could hold.

    Raises:
        RecordListTooLarge: larger than ``segment.bytes``.
    """
    if len(records) > config.segment_size:
        raise RecordListTooLarge(f"{len(records)} bytes; segment.bytes is {config.segment_size}")
