"""The log of one coordinator shard: a partition of the coordinator's internal topic.

Records are appended as batches of the broker's own, at once and without a checkpoint, so that nothing can happen
between a decision and its records. They are read once, when the shard is loaded: a worker thread reads one slice at a
time, so that a log of a million records does not hold the event loop.

Source: Kafka's CoordinatorLoaderImpl and CoordinatorPartitionWriter; docs/formats/consumer-offsets.md.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import partial

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import NO_PRODUCER_ID, RecordBatch, build_batch, read_batches
from kafka_wire.records.record import NewRecord
from trio_broker.coordinator.runtime.producer import NO_PRODUCER, ProducerIdAndEpoch
from trio_broker.coordinator.runtime.response_future import NO_REQUIRED_OFFSET
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.partition.transaction_end import TransactionEnd
from trio_broker.storage.log_reader import LogReader
from trio_broker.storage.producer_replay import read_transaction_marker
from trio_broker.storage.producer_state import TransactionMarker

LOAD_SLICE_BYTES = 256 * 1024
"""Read at a time: some three thousand commits, which the event loop then folds in turns."""


EncodedRecord = tuple[bytes, bytes | None]
"""Key and value as they stand in the log."""


@attrs.frozen
class LogBatch:
    """The records of one batch. With a producer they are part of its transaction; ``marker`` is the end of one."""

    records: list[EncodedRecord]
    producer_id: int = NO_PRODUCER_ID
    marker: TransactionMarker | None = None


@attrs.frozen
class LogSlice:
    """Batches in the order of the log, and the offset after them."""

    batches: list[LogBatch]
    next_offset: int


@attrs.define(eq=False)
class CoordinatorLog:
    """Appends and reads the records of one shard, as the leader of ``partition`` in ``leader_epoch`` alone."""

    partition: Partition
    replicas: ReplicaManager
    leader_epoch: int

    @property
    def is_led(self) -> bool:
        """Whether this broker leads the partition in the epoch."""
        state = self.partition.state
        return state.is_leader and state.leader_epoch == self.leader_epoch

    @property
    def max_batch_bytes(self) -> int:
        return self.partition.log.config.max_message_bytes

    @property
    def required_offset(self) -> int:
        """The high watermark at which all records appended so far are durable, or -1 if they are already."""
        end_offset = self.partition.log_end_offset
        return NO_REQUIRED_OFFSET if self.partition.high_watermark >= end_offset else end_offset

    def append(self, records: Sequence[NewRecord], producer: ProducerIdAndEpoch = NO_PRODUCER) -> None:
        """Append ``records`` as one batch, part of the transaction of ``producer`` if there is one: all or none.

        Raises:
            KafkaError: none was appended; ``coordinator_code`` has the code for clients.
        """
        # Checked before the batch is built, too: for an assignment of 90 MB that would take a second.
        size, max_bytes = 0, self.max_batch_bytes
        for record in records:
            size += len(record.key or b"") + len(record.value or b"")
        if size <= max_bytes:
            batch = build_batch(
                records,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transactional=producer is not NO_PRODUCER,
            )
            size = len(batch)
        if size > max_bytes:
            text = f"{self.partition.topic_partition}: {size} bytes, max.message.bytes is {max_bytes}"
            raise KafkaError(text, code=ErrorCode.RECORD_LIST_TOO_LARGE)
        self.replicas.appends.append_internal(self.partition, memoryview(batch), leader_epoch=self.leader_epoch)

    def end_transaction(self, end: TransactionEnd) -> None:
        """Append the marker; errors as ``append``."""
        self.replicas.appends.append_end(self.partition, end, leader_epoch=self.leader_epoch)

    async def ready_to_append(self) -> None:
        """Begin the leader epoch, if it has not begun; ``append`` needs it.

        Raises:
            KafkaError: it is not the partition's epoch, or the disk failed.
        """
        self.partition.require_leader(self.leader_epoch)
        await self.replicas.appends.ready_to_append(self.partition)

    async def slices(self) -> AsyncGenerator[LogSlice, None]:
        """All records, from the start of the log to its end at the time of the call.

        Raises:
            KafkaError, OSError: the log cannot be read.
        """
        offset, end_offset = self.partition.log_start_offset, self.partition.log_end_offset
        while offset < end_offset:
            read = partial(self.read_slice, offset, end_offset)
            part = await self.replicas.run_in_thread(self.partition, read)
            yield part
            if part.next_offset <= offset:
                # A batch whose header goes back would be read for ever.
                raise KafkaError(f"{self.partition}: the batch at {offset} ends at {part.next_offset}")
            offset = part.next_offset

    def read_slice(self, offset: int, end_offset: int, log: LogReader) -> LogSlice:
        """The records from ``offset`` on, a slice of them. Blocks: runs in a worker thread."""
        fetched = log.read(offset, LOAD_SLICE_BYTES, end_offset=end_offset)
        data = fetched.records if isinstance(fetched.records, bytes) else fetched.records.read()
        batches = list(read_batches(data))
        next_offset = batches[-1].header.next_offset if batches else end_offset
        return LogSlice([_read(batch) for batch in batches], next_offset)


def _read(batch: RecordBatch) -> LogBatch:
    header = batch.header
    if header.is_control:
        return LogBatch([], marker=read_transaction_marker(batch))
    # The first batch may begin before the start of the log. Its early records were superseded or deleted, so folding
    # them does no harm, and the offsets of a million records need not be looked at.
    records = [(key, value) for key, value in batch.keys_and_values() if key is not None]
    return LogBatch(records, header.producer_id if header.is_transactional else NO_PRODUCER_ID)


def coordinator_code(code: ErrorCode) -> ErrorCode:
    """The error code for a client when the coordinator's partition refuses an append.

    Source: Kafka's CoordinatorOperationExceptionHelper.
    """
    match code:
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE | ErrorCode.UNKNOWN_SERVER_ERROR:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case ErrorCode.NOT_ENOUGH_REPLICAS | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND | ErrorCode.REQUEST_TIMED_OUT:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.INVALID_PRODUCER_EPOCH | ErrorCode.INVALID_TXN_STATE:
            return code
        case _:
            return ErrorCode.NOT_COORDINATOR
