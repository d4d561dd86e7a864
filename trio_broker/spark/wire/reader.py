"""Reading one range of one partition from its leader, whatever happens to the leader meanwhile.

A loop around three questions. What came? Whole batches, which are passed on; or nothing, or an error. Is it worth
asking again? A leader that moved, restarts, or is not there yet is, until there was no progress for the poll timeout.
Is something lost? Records that retention, ``DeleteRecords``, a truncation or the deletion of the topic took away never
come, so that the task ends at once, or goes on behind the hole where the job does not mind.

Aborted transactions are told with every answer anew, as it names them: those whose marker comes in it or later. What an
earlier answer named counts no more. Its marker was seen, or is gone, since compaction took it with the last record of
the transaction, or retention did; to wait for it would be to drop what the producer committed afterwards.

Source: Kafka's Fetcher and CompletedFetch; Spark's KafkaDataConsumer.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.primitives import NO_UUID, parse_uuid
from trio_broker.client.deadline import RetryDeadline
from trio_broker.client.errors import ClientError, ConnectFailed, ConnectionLost, NotKafka, Refused, TimedOut
from trio_broker.client.kafka_client import NOT_NOW, PERHAPS_DONE, KafkaClient
from trio_broker.client.offsets import LogRange, find_ranges
from trio_broker.spark.decoder.batch_table import BatchTable, scan_batches
from trio_broker.spark.errors import CorruptData, DataLoss, SourceUnavailable
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.tasks import Chunk
from trio_broker.spark.wire.cluster import identity
from trio_broker.spark.wire.partition_leader import Fetched, PartitionLeader, TopicReplaced

if TYPE_CHECKING:
    from trio_broker.spark.wire.transport import WireTransport

log = logging.getLogger(__name__)

MISSING_ROUNDS: Final = 5
"""How often in a row a topic must be told missing before it is believed: about a second and a half. A broker that has
just started, or has not heard of a new topic yet, says so for a moment."""

LEAST_FETCH_BYTES: Final = 64 * 1024
"""The least that is asked for: less saves nothing, and an estimate may be wrong."""

GUESSED_RECORD_BYTES: Final = 1024
"""What an offset is taken to cost before the first answer. A task that reads a hundred records out of a million is not
to fetch 8 MiB for them; where records are larger, it asks once more."""

ESTIMATE_SLACK: Final = 1.25
"""The rest of a range is asked for with a quarter more than the offsets before it cost, so that it comes at once."""


class FailureKind(enum.Enum):
    """What a failure says about going on."""

    NOT_NOW = enum.auto()
    MISSING = enum.auto()
    REPLACED = enum.auto()
    OUT_OF_RANGE = enum.auto()
    CORRUPT = enum.auto()
    HOPELESS = enum.auto()


FAILURE_KINDS: Final = {
    **dict.fromkeys(NOT_NOW | PERHAPS_DONE, FailureKind.NOT_NOW),
    ErrorCode.BROKER_NOT_AVAILABLE: FailureKind.NOT_NOW,
    ErrorCode.KAFKA_STORAGE_ERROR: FailureKind.NOT_NOW,
    ErrorCode.UNKNOWN_SERVER_ERROR: FailureKind.NOT_NOW,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: FailureKind.MISSING,
    ErrorCode.UNKNOWN_TOPIC_ID: FailureKind.MISSING,
    ErrorCode.INCONSISTENT_TOPIC_ID: FailureKind.MISSING,
    ErrorCode.OFFSET_OUT_OF_RANGE: FailureKind.OUT_OF_RANGE,
    ErrorCode.CORRUPT_MESSAGE: FailureKind.CORRUPT,
}


def failure_kind(error: ClientError) -> FailureKind:
    """Return what a failed question means. Codes that are not listed, such as a missing permission, are hopeless."""
    match error:
        case TopicReplaced():
            return FailureKind.REPLACED
        case Refused():
            return FAILURE_KINDS.get(error.code, FailureKind.HOPELESS)  # type: ignore[call-overload,no-any-return]
        case ConnectFailed() | ConnectionLost() | TimedOut() | NotKafka():
            # Not Kafka: while a broker restarts, something else may answer at its address.
            return FailureKind.NOT_NOW
    return FailureKind.HOPELESS


class WireReader:
    """Reads ``offsets`` as ``transport`` says. ``close`` it; ``now`` and ``sleep`` are replaced by tests.

    ``ask_ahead`` is whether the next answer is asked for before the last one is passed on.
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
        self._client = KafkaClient(
            kafka.bootstrap_servers,
            identity(kafka),
            self._retry_deadline.within(0),
            receive_buffer_bytes=kafka.receive_buffer_bytes,
        )
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
        """Let go of the connections."""
        self._client.close()

    def chunks(self) -> Generator[Chunk, None, None]:
        """Yield what ``WireTransport.chunks`` says, with its errors."""
        while self._offset < self._end:
            # What those who took the last chunk did with it has cost none of our patience.
            self._retry_deadline.renew()
            chunk = self._next_chunk()
            if chunk is None:
                return
            if self._ask_ahead and self._offset < self._end:
                self._ask_for_more()
            yield chunk

    def _next_chunk(self) -> Chunk | None:
        """Return the next batches, or None when there are no more of the range because they are lost."""
        while self._offset < self._end:
            try:
                fetched = self._fetch()
            except ClientError as error:
                self._leader.forget()
                self._settle(error)
                continue
            self._missing_rounds = 0
            table = scan_batches(fetched.records)
            if table.next_offset is None or table.next_offset <= self._offset:
                self._settle_nothing(fetched, table)
            elif fetched.log_start_offset > self._offset < table.base_offsets[0]:
                self._lose(fetched.log_start_offset, f"the log begins at offset {fetched.log_start_offset} now")
            else:
                return self._taken(fetched, table)
        return None

    # --- Asking ---

    def _fetch(self) -> Fetched:
        deadline = self._retry_deadline.left_for(self._kafka.request_timeout_ms / 1000)
        if not self._leader.is_asked:
            self._leader.ask(self._offset, self._wanted_bytes(), deadline)
        return self._leader.answer(deadline)

    def _ask_for_more(self) -> None:
        """Ask for what comes next. Should that fail, it is for the next turn to find out and to try again."""
        try:
            self._leader.ask(
                self._offset, self._wanted_bytes(), self._retry_deadline.within(self._kafka.request_timeout_ms / 1000)
            )
        except ClientError:
            self._leader.forget()

    def _wanted_bytes(self) -> int:
        """Return about how many bytes the rest of the range has, within the limits."""
        per_offset = self._received_bytes / self._received_offsets if self._received_offsets else GUESSED_RECORD_BYTES
        wanted = int((self._end - self._offset) * per_offset * ESTIMATE_SLACK)
        return min(self._kafka.max_partition_fetch_bytes, max(LEAST_FETCH_BYTES, wanted))

    def _taken(self, fetched: Fetched, table: BatchTable) -> Chunk:
        """Move on behind the batches that came, and return them."""
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

    # --- What else may come ---

    def _settle(self, error: ClientError) -> None:
        """Return when it is time to ask again, or to go on behind what is lost.

        Raises:
            SparkJobError: the task cannot go on.
        """
        match failure_kind(error):
            case FailureKind.NOT_NOW:
                self._wait_or_give_up(str(error))
            case FailureKind.MISSING:
                self._missing_rounds += 1
                if self._missing_rounds >= MISSING_ROUNDS or not self._retry_deadline.pause():
                    self._lose(self._end, str(error))
            case FailureKind.REPLACED:
                self._lose(self._end, str(error))
            case FailureKind.OUT_OF_RANGE:
                self._settle_out_of_range(error)
            case FailureKind.CORRUPT:
                raise CorruptData(self._partition, self._offset, str(error)) from None
            case FailureKind.HOPELESS:
                raise SourceUnavailable(f"{self._partition} at offset {self._offset}: {error}") from None

    def _settle_out_of_range(self, error: ClientError) -> None:
        """Find out on which side the log does not reach the wanted offset. By now it may reach it again."""
        there: LogRange | None = None
        with contextlib.suppress(ClientError):
            self._client.deadline = self._retry_deadline.left_for(self._kafka.request_timeout_ms / 1000)
            found = find_ranges(self._client, [self._partition])[self._partition]
            there = None if isinstance(found, Refused) else found
        if there is not None and self._offset < there.earliest:
            self._lose(there.earliest, f"the log begins at offset {there.earliest} now and ends at {there.latest}")
        elif there is not None and self._offset > there.latest:
            self._lose(self._end, f"the log was cut: it begins at offset {there.earliest} and ends at {there.latest}")
        else:
            self._wait_or_give_up(str(error))

    def _settle_nothing(self, fetched: Fetched, table: BatchTable) -> None:
        """Nothing came that goes on at the wanted offset, although the range was planned up to what was there."""
        if table.damage is not None:
            raise CorruptData(self._partition, self._offset, f"broker {fetched.broker}: {table.damage}")
        bound = "last stable offset" if self._read_committed else "high watermark"
        reached = fetched.last_stable_offset if self._read_committed else fetched.high_watermark
        if self._retry_deadline.pause():
            return
        if 0 <= reached < self._end:
            self._lose(self._end, f"the log was cut: its {bound} is {reached}, and {self._end} was planned with")
        else:
            self._give_up(f"broker {fetched.broker} answers without records, although its {bound} is {reached}")

    def _wait_or_give_up(self, reason: str) -> None:
        if not self._retry_deadline.pause():
            self._give_up(reason)

    def _give_up(self, reason: str) -> None:
        raise SourceUnavailable(
            f"{self._partition} at offset {self._offset}: no progress for {self._retry_deadline.seconds:g} s: {reason}"
        ) from None

    def _lose(self, offset: int, reason: str) -> None:
        """Go on at ``offset``, or behind the range, unless losing records is an error.

        Raises:
            DataLoss: it is.
        """
        if self._fail_on_data_loss:
            raise DataLoss(self._partition, self._offset, reason) from None
        next_offset = min(self._end, offset)
        log.warning("%s: skipping offsets %d to %d: %s", self._partition, self._offset, next_offset - 1, reason)
        self._offset = next_offset
