"""The transport over the wire: a task fetches its range from the broker that leads the partition.

Works with any Kafka (Fetch from version 4 on) and needs one connection. A response holds record batches as they lie in
the log; they go to the decoder without a copy. The next Fetch is sent before the decoder gets the last response, so the
broker reads while the task decodes; never more than one request is in flight. Memory is one response of
``max.partition.fetch.bytes``, or one batch where that is larger, and what the socket buffers.

The default of that size is 8 MiB, eight times that of Kafka's consumer: fewer and larger responses cost both sides
less, and a task reads a single partition.

A reader does one of three things with each response. Whole batches are passed on. A failure that another attempt may
overcome (the leader moved or restarts) is retried until there was no progress for the poll timeout. Records that
retention, DeleteRecords, a truncation or the deletion of the topic removed will never come: the task fails, or
continues behind the hole without ``failOnDataLoss``.

Every response has its own list of aborted transactions: those whose abort marker lies in it or later. What an earlier
response named no longer counts. Its marker has been read, or is gone because compaction or retention removed it;
waiting for such a marker would drop what the producer committed afterwards.

Source: Kafka's Fetcher and CompletedFetch; Spark's KafkaDataConsumer for ``failOnDataLoss`` and the poll timeout.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Generator
from contextlib import closing
from typing import TYPE_CHECKING, Final

import attrs

from kafka_wire.primitives import NO_UUID, parse_uuid
from trio_broker.client.deadline import MISSING_ROUNDS, RetryDeadline
from trio_broker.client.errors import ClientError, Refused
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.offsets import find_ranges
from trio_broker.common.log_range import LogRange
from trio_broker.spark.chunk import Chunk
from trio_broker.spark.errors import CorruptData, DataLoss, SourceUnavailable
from trio_broker.spark.options.kafka_settings import KafkaSettings
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.wire.failure_kind import FailureKind, failure_kind

if TYPE_CHECKING:
    from trio_broker.spark.batch_table import BatchTable
    from trio_broker.spark.wire.partition_leader import Fetched

log = logging.getLogger(__name__)

DEFAULT_POLL_TIMEOUT_MS: Final = 120_000
"""``kafkaConsumer.pollTimeoutMs`` of Spark's own source."""

LEAST_FETCH_BYTES: Final = 64 * 1024
"""The smallest fetch size: less saves nothing, and the estimate may be wrong."""

GUESSED_RECORD_BYTES: Final = 1024
"""The size assumed for one offset before the first response. A task that reads a hundred records out of a million
should not fetch 8 MiB for them; where records are larger, one more request is needed."""

ESTIMATE_SLACK: Final = 1.25
"""The rest of a range is fetched with a quarter more bytes than the offsets before it took, so that one request is
likely to be enough."""


@attrs.frozen
class WireTransport:
    """Fetches from a cluster. Picklable; every task connects for itself.

    ``poll_timeout_ms`` is the longest time without progress, whatever the reason. ``topic_id`` is the topic's id when
    the task was planned, in Kafka's text form, ``""`` where it was not known: then the reader notices a topic that is
    created again while the task runs, but not one that was created again before.
    """

    kafka: KafkaSettings
    read_committed: bool = True
    poll_timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS
    fail_on_data_loss: bool = True
    topic_id: str = ""

    def chunks(self, offsets: OffsetRange) -> Generator[Chunk, None, None]:
        """Yield chunks in the order of their offsets until ``offsets`` is covered; closing the generator frees all.

        Without ``fail_on_data_loss`` lost records are skipped with a warning in the log.

        Raises:
            DataLoss: the range begins before the log does, the log ends within it, or the topic is not the same.
            SourceUnavailable: there was no progress for ``poll_timeout_ms``.
            CorruptData: the bytes are no record batches, or the broker reports that its own are not.
        """
        with closing(WireReader(self, offsets)) as reader:
            yield from reader.chunks()


class WireReader:
    """Reads ``offsets`` by the settings of ``transport``. Must be closed; tests replace ``now`` and ``sleep``.

    With ``ask_ahead`` the next request is sent before the last response is passed on.
    """

    def __init__(
        self,
        transport: WireTransport,
        offsets: OffsetRange,
        *,
        ask_ahead: bool = True,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        # The processes that plan import this module and read nothing; they go without what reads and its messages.
        from trio_broker.spark.wire.partition_leader import PartitionLeader

        kafka = transport.kafka
        self._kafka = kafka
        self._read_committed = transport.read_committed
        self._fail_on_data_loss = transport.fail_on_data_loss
        self._partition = offsets.partition
        self._offset = offsets.start_offset
        self._end = offsets.end_offset
        self._ask_ahead = ask_ahead
        self._retry_deadline = RetryDeadline(
            transport.poll_timeout_ms / 1000,
            first_pause_seconds=kafka.retry_backoff_ms / 1000,
            longest_pause_seconds=kafka.retry_backoff_max_ms / 1000,
            now=now,
            sleep=sleep,
        )
        self._client = KafkaClient(kafka.connection, self._retry_deadline.within(0))
        self._leader = PartitionLeader(
            self._client,
            self._partition,
            kafka,
            read_committed=transport.read_committed,
            topic_id=parse_uuid(transport.topic_id) if transport.topic_id else NO_UUID,
        )
        self._missing_rounds = 0
        self._received_bytes = 0
        self._received_offsets = 0

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def chunks(self) -> Generator[Chunk, None, None]:
        """Yield the chunks of ``WireTransport.chunks``, with its errors."""
        while self._offset < self._end:
            # The time that the caller spent on the last chunk does not count as time without progress.
            self._retry_deadline.renew()
            chunk = self._next_chunk()
            if chunk is None:
                return
            if self._ask_ahead and self._offset < self._end:
                self._send_ahead()
            yield chunk

    def _next_chunk(self) -> Chunk | None:
        """Return the next batches, or None when the rest of the range is lost."""
        # As in ``__init__``: the checksum's module and numpy.
        from trio_broker.spark.batch_table import scan_batches

        while self._offset < self._end:
            try:
                fetched = self._fetch()
            except ClientError as error:
                self._leader.disconnect()
                self._handle_error(error)
                continue
            self._missing_rounds = 0
            table = scan_batches(fetched.records)
            if table.next_offset is None or table.next_offset <= self._offset:
                self._handle_no_progress(fetched, table)
            elif fetched.log_start_offset > self._offset < table.base_offsets[0]:
                self._skip(fetched.log_start_offset, f"the log begins at offset {fetched.log_start_offset} now")
            else:
                return self._chunk_of(fetched, table)
        return None

    # --- Requests ---

    def _fetch(self) -> Fetched:
        deadline = self._retry_deadline.left_for(self._kafka.request_timeout_ms / 1000)
        if not self._leader.is_waiting:
            self._leader.send_fetch(self._offset, self._wanted_bytes(), deadline)
        return self._leader.receive(deadline)

    def _send_ahead(self) -> None:
        """Send the next Fetch. A failure is dropped here: the next call of ``_fetch`` meets it again and retries."""
        deadline = self._retry_deadline.within(self._kafka.request_timeout_ms / 1000)
        try:
            self._leader.send_fetch(self._offset, self._wanted_bytes(), deadline)
        except ClientError:
            self._leader.disconnect()

    def _wanted_bytes(self) -> int:
        """Return the estimated size of the rest of the range in bytes, within the limits."""
        per_offset = self._received_bytes / self._received_offsets if self._received_offsets else GUESSED_RECORD_BYTES
        wanted = int((self._end - self._offset) * per_offset * ESTIMATE_SLACK)
        return min(self._kafka.max_partition_fetch_bytes, max(LEAST_FETCH_BYTES, wanted))

    def _chunk_of(self, fetched: Fetched, table: BatchTable) -> Chunk:
        """Return the batches of a response, and move the position behind them."""
        next_offset = table.next_offset
        assert next_offset is not None, f"no batches of {self._partition}"
        self._received_bytes += table.consumed_bytes
        self._received_offsets += next_offset - self._offset
        wanted_offset, self._offset = self._offset, next_offset
        return Chunk(
            data=fetched.records,
            table=table,
            origin=f"broker {fetched.broker}",
            aborted=fetched.aborted,
            resumes_at=wanted_offset,
        )

    # --- Failures ---

    def _handle_error(self, error: ClientError) -> None:
        """Return when the request may be sent again, or when the position was moved behind lost records.

        Raises:
            SparkJobError: the task cannot go on.
        """
        match failure_kind(error):
            case FailureKind.RETRIABLE:
                self._pause_or_fail(str(error))
            case FailureKind.MISSING:
                self._missing_rounds += 1
                if self._missing_rounds >= MISSING_ROUNDS or not self._retry_deadline.pause():
                    self._skip(self._end, str(error))
            case FailureKind.REPLACED:
                self._skip(self._end, str(error))
            case FailureKind.OUT_OF_RANGE:
                self._handle_out_of_range(error)
            case FailureKind.CORRUPT:
                raise CorruptData(self._partition, self._offset, str(error)) from None
            case FailureKind.FATAL:
                raise SourceUnavailable(f"{self._partition} at offset {self._offset}: {error}") from None

    def _handle_out_of_range(self, error: ClientError) -> None:
        """Find out whether the log begins after the position or ends before it; it may contain it again by now."""
        there: LogRange | None = None
        with contextlib.suppress(ClientError):
            self._client.deadline = self._retry_deadline.left_for(self._kafka.request_timeout_ms / 1000)
            found = find_ranges(self._client, [self._partition])[self._partition]
            there = None if isinstance(found, Refused) else found
        if there is not None and self._offset < there.earliest:
            self._skip(there.earliest, f"the log begins at offset {there.earliest} now and ends at {there.latest}")
        elif there is not None and self._offset > there.latest:
            self._skip(self._end, f"the log was cut: it begins at offset {there.earliest} and ends at {there.latest}")
        else:
            self._pause_or_fail(str(error))

    def _handle_no_progress(self, fetched: Fetched, table: BatchTable) -> None:
        """Handle a response without a batch at the position, although the plan says that the log reaches further."""
        if table.damage is not None:
            raise CorruptData(self._partition, self._offset, f"broker {fetched.broker}: {table.damage}")
        bound = "last stable offset" if self._read_committed else "high watermark"
        reached = fetched.last_stable_offset if self._read_committed else fetched.high_watermark
        # Another broker may lead by now, of which one that is cut off from the others knows nothing.
        self._leader.disconnect()
        if self._retry_deadline.pause():
            return
        if 0 <= reached < self._end:
            self._skip(self._end, f"the log was cut: its {bound} is {reached}, and {self._end} was planned with")
        else:
            self._fail(f"broker {fetched.broker} answers without records, although its {bound} is {reached}")

    def _pause_or_fail(self, reason: str) -> None:
        if not self._retry_deadline.pause():
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        raise SourceUnavailable(
            f"{self._partition} at offset {self._offset}: no progress for {self._retry_deadline.seconds:g} s: {reason}"
        ) from None

    def _skip(self, offset: int, reason: str) -> None:
        """Continue at ``offset``, at most at the end of the range; what lies before it is lost.

        Raises:
            DataLoss: the job has ``failOnDataLoss``.
        """
        if self._fail_on_data_loss:
            raise DataLoss(self._partition, self._offset, reason) from None
        next_offset = min(self._end, offset)
        log.warning("%s: skipping offsets %d to %d: %s", self._partition, self._offset, next_offset - 1, reason)
        self._offset = next_offset
