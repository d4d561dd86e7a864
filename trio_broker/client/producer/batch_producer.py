"""A blocking producer of record batches, which are written when all in-sync replicas have acknowledged them.

Every batch carries the producer's id and the sequence number of its first record, which counts the records of each
partition. A batch whose answer was lost is sent again as the same bytes with the same sequence. A broker that has
appended it already recognises the sequence, and acknowledges the batch without appending it twice (KIP-98). Each broker
gets one request at a time, with at most one batch of each partition, so a later batch never overtakes one that failed.
This keeps the order of the records, and makes the next sequence certain. (Kafka's producer has up to five requests
under way and sorts the failed batches back into their order.)

Retriable errors are retried until ``delivery.timeout.ms``. Other errors end the producer at once, and so does a code
that says that broker and producer disagree about the sequence: to go on could lose or duplicate records unnoticed.
After an error a new producer has to be used. It gets a new id, so brokers cannot recognise batches of the old one.

In a transaction (``begin_transaction``) readers of committed records see nothing until the transaction is committed, by
whom ``TransactionClient`` serves: this producer never ends one. Each transaction has an epoch of its own, with
sequences from 0.

With any ``acks`` but all, a broker may lose records that it has acknowledged, and sequences could not prevent that.
Batches then carry no producer id, and a batch that may have been appended is not sent again.

Source: Kafka's Sender and TransactionManager; KIP-98, KIP-360.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final

import attrs

from kafka_wire.config_resources import ConfigResourceType
from kafka_wire.error_codes import RETRIABLE, ErrorCode
from kafka_wire.limits import MAX_SEQUENCE
from kafka_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_wire.messages.metadata import NO_LEADER
from kafka_wire.messages.produce import (
    ACKS_ALL,
    ACKS_NONE,
    ADDS_PARTITIONS_SINCE_VERSION,
    BY_ID_SINCE_VERSION,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kafka_wire.primitives import NO_UUID
from kafka_wire.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from kafka_wire.schema import NEWEST
from trio_broker.client.configs import Resource, describe_configs
from trio_broker.client.connection import BrokerConnection
from trio_broker.client.deadline import Deadline, pauses
from trio_broker.client.error_codes import PERHAPS_DONE, RETRIED_BY_PRODUCERS, SEQUENCE_LOST, TOO_LARGE
from trio_broker.client.errors import (
    ClientError,
    ConnectFailed,
    RecordTooLarge,
    Refused,
    TlsFailed,
    VersionNotServed,
    WriteFailed,
    error_name,
)
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.producer.producer_batch import ProducerBatch, UnsequencedBatch, encode_batch, halves
from trio_broker.client.producer.producer_metadata import ProducerMetadata
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.client.producer.transactions import Transaction, TransactionClient
from trio_broker.common.amounts import counted
from trio_broker.common.topic_partition import TopicPartition

MOST_LEADERS_AT_ONCE: Final = 16
"""The number of threads that wait for brokers. With more leaders, the remaining requests wait for a free thread."""

TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Kafka's default of ``transaction.timeout.ms``. Brokers ignore it without a transactional id."""

LIMIT_SECONDS: Final = 5.0
"""How long the lookup of a topic's size limit may take, which only serves the text of an error."""


@attrs.frozen
class Timer:
    """The producer's clock, in seconds; tests replace it."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def deadline(self, seconds: float) -> Deadline:
        return Deadline(seconds, self.now, self.sleep)


@attrs.define(eq=False)
class _InFlightBatch:
    """A batch with the state of its delivery. ``perhaps_appended`` says that an attempt had an unknown outcome."""

    batch: ProducerBatch
    pauses: Iterator[float]
    deadline: Deadline | None = None
    not_before: float = 0.0
    perhaps_appended: bool = False


@attrs.frozen
class _Failure:
    """Why an attempt was not acknowledged, and whether the broker may have appended the batch all the same."""

    reason: str
    perhaps_appended: bool


class BatchProducer:
    """The producer. Only one thread at a time may use it. Use it as a context manager, or call ``close``.

    ``is_usable`` is False after an error and after ``close``.
    """

    def __init__(self, settings: ProducerSettings, timer: Timer | None = None) -> None:
        self.settings = settings
        self.is_usable = True
        self._timer = timer or Timer()
        self._metadata = ProducerMetadata(
            connection=settings.connection,
            request_seconds=settings.request_timeout_ms / 1000,
            block_seconds=settings.max_block_ms / 1000,
            new_deadline=self._timer.deadline,
            option_name=settings.option_name,
            may_create_topics=self.settings.allow_auto_topic_creation,
        )
        self._connections: dict[int, BrokerConnection] = {}
        self._producer_id: int | None = None
        self._producer_epoch = 0
        self._sequences: dict[tuple[bytes, TopicPartition], int] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._threads: ThreadPoolExecutor | None = None
        self._transactions: TransactionClient | None = None
        self._transaction: Transaction | None = None
        self._added: set[TopicPartition] = set()

    def __enter__(self) -> BatchProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection. A delivery in another thread ends with an error at its next attempt."""
        self.is_usable = False
        # The threads first: they use the connections.
        if self._threads is not None:
            self._threads.shutdown()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._metadata.close()
        if self._transactions is not None:
            self._transactions.close()

    def begin(self) -> None:
        """Start a job: since the last one, topics may have been created again or got more partitions."""
        self._metadata.forget()
        self._topic_ids.clear()

    def partition_count(self, topic: str) -> int:
        """Return the number of a topic's partitions, which is requested once in a job.

        Raises:
            UnknownTopic: the topic does not exist.
            WriteFailed: it may not be used, or no broker answers.
        """
        known = self._metadata.topic(topic)
        # The first id in a job is kept, so that ``_look_again`` notices when the name stands for another topic.
        self._topic_ids.setdefault(topic, known.topic_id)
        return len(known.leaders)

    # --- Transactions ---

    @property
    def transaction_client(self) -> TransactionClient:
        """The client of this producer's transactions, which closes with it."""
        if self._transactions is None:
            self._transactions = TransactionClient(
                self.settings.connection,
                request_seconds=self.settings.request_timeout_ms / 1000,
                block_seconds=self.settings.max_block_ms / 1000,
                deadline_after=self._timer.deadline,
            )
        return self._transactions

    @property
    def transaction_partitions(self) -> frozenset[TopicPartition]:
        """The partitions of the transaction; without any it has not begun for the coordinator, and cannot be ended."""
        return frozenset(self._added)

    def begin_transaction(self, transactional_id: str) -> Transaction:
        """Write what follows in a new transaction of ``transactional_id``; one that it has open is aborted.

        Raises:
            WriteFailed: no coordinator answered in time, or it refuses.
        """
        assert self.is_usable, "the producer was used after an error"
        assert self.settings.acks == ACKS_ALL, "a transaction needs acks=all"
        try:
            transaction = self.transaction_client.begin(transactional_id, self.settings.transaction_timeout_ms)
        except ClientError as error:
            raise WriteFailed(self._begin_failed(error)) from None
        self.leave_transaction()
        self._transaction = transaction
        self._producer_id, self._producer_epoch = transaction.producer_id, transaction.producer_epoch
        return transaction

    def leave_transaction(self) -> None:
        """Write what follows outside of the transaction, which stays open; without one nothing changes."""
        if self._transaction is None:
            return
        self._transaction, self._producer_id = None, None
        self._sequences.clear()
        self._added.clear()

    def continue_with_next_transaction(self) -> None:
        """Write what follows in a new transaction with the same epoch, after the one before was ended."""
        self._added.clear()

    def _begin_failed(self, error: ClientError) -> str:
        if isinstance(error, Refused) and error.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            given, key = self.settings.transaction_timeout_ms, self.settings.option_name("transaction.timeout.ms")
            return f"no transaction was begun: {key} is {given}, and transaction.max.timeout.ms of the brokers is less"
        return f"no transaction was begun: {error}"

    def _add_to_transaction(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the transaction, if there is one, before anything is written to them.

        Raises:
            WriteFailed: the coordinator did not do so in time, or the transaction is not open any more.
        """
        if self._transaction is None or not (missing := set(partitions) - self._added):
            return
        try:
            self.transaction_client.add_partitions(self._transaction, missing)
        except ClientError as error:
            raise WriteFailed(f"nothing was written to {min(missing)}: {error}") from None
        self._added |= missing

    # --- Delivery ---

    def deliver(self, batches: Iterable[UnsequencedBatch]) -> dict[TopicPartition, int]:
        """Have the brokers append batches, in order within a partition; return the last offset of each partition.

        An offset is -1 if the broker does not know it any more, because the batch is an old duplicate.

        Raises:
            WriteFailed: a batch was refused, or not acknowledged in time. Others may have been appended.
        """
        assert self.is_usable, "the producer was used after an error"
        try:
            queues: dict[TopicPartition, deque[_InFlightBatch]] = defaultdict(deque)
            for batch in batches:
                queues[batch.partition].append(self._in_flight(self._encode(batch)))
            return self._empty(queues)
        # KeyboardInterrupt too: while an answer is outstanding, the broker's next sequence number is unknown.
        except BaseException:
            self.is_usable = False
            raise

    def _in_flight(self, batch: ProducerBatch, deadline: Deadline | None = None) -> _InFlightBatch:
        first_seconds = self.settings.retry_backoff_ms / 1000
        longest_seconds = max(first_seconds, self.settings.retry_backoff_max_ms / 1000)
        return _InFlightBatch(batch, pauses(first_seconds, longest_seconds), deadline)

    def _empty(self, queues: dict[TopicPartition, deque[_InFlightBatch]]) -> dict[TopicPartition, int]:
        """Send the batches of all queues. Each batch has a deadline and pauses of its own, and the others go on while
        one waits, so this loop is not ``retry``.
        """
        last_offsets: dict[TopicPartition, int] = {}
        while queues:
            if not self.is_usable:
                raise WriteFailed("writing was given up before everything was acknowledged")
            now = self._timer.now()
            # Only the first batch of each partition: a second one under way would overtake a first that has to be sent
            # again, and the broker would refuse it as OUT_OF_ORDER_SEQUENCE_NUMBER.
            heads = {partition: queue[0] for partition, queue in queues.items() if queue[0].not_before <= now}
            if not heads:
                self._timer.sleep(min(queue[0].not_before for queue in queues.values()) - now)
                continue
            self._add_to_transaction(heads)
            stale: set[str] = set()
            for partition, outcome in self._attempt(heads).items():
                sending = heads[partition]
                if isinstance(outcome, _Failure):
                    self._put_off(sending, outcome)
                    # Whatever the reason is: a leader that is cut off from the others lacks replicas, or gives no
                    # answer, while another broker leads.
                    stale.add(partition.topic)
                    continue
                queue = queues[partition]
                queue.popleft()
                if isinstance(outcome, int):
                    last_offsets[partition] = outcome
                else:
                    # The halves replace the batch at the head. ``extendleft`` reverses the order, hence ``reversed``.
                    # They keep the batch's deadline, so that splitting does not prolong the delivery.
                    queue.extendleft(self._in_flight(half, sending.deadline) for half in reversed(outcome))
                if not queue:
                    del queues[partition]
            if stale:
                self._look_again(stale)
        return last_offsets

    def _put_off(self, sending: _InFlightBatch, failure: _Failure) -> None:
        """Set the time of a batch's next attempt.

        Raises:
            WriteFailed: the next attempt would be after the deadline, or it could write the records twice.
        """
        # Never reset to False: an attempt that certainly failed says nothing about the attempts before it.
        sending.perhaps_appended |= failure.perhaps_appended
        assert sending.deadline is not None
        if failure.perhaps_appended and self.settings.acks != ACKS_ALL:
            state = f"{sending.batch.partition}: {_records(sending.batch)} perhaps written: {failure.reason}"
            raise WriteFailed(f"{state}; only acks=all can send again without writing twice")
        pause = next(sending.pauses)
        if pause >= sending.deadline.remaining_seconds:
            batch, seconds = sending.batch, sending.deadline.timeout_seconds
            state = "perhaps written" if sending.perhaps_appended else "not written"
            raise WriteFailed(
                f"{batch.partition}: {_records(batch)} {state}: not acknowledged within"
                f" {seconds:g} s ({self.settings.option_name('delivery.timeout.ms')}): {failure.reason}"
            )
        sending.not_before = self._timer.now() + pause

    def _look_again(self, topics: set[str]) -> None:
        """Look up the leaders of some topics again.

        Raises:
            WriteFailed: the name of a topic stands for another topic now.
        """
        try:
            self._metadata.refresh(topics)
        # Not an error yet: the next attempt goes to the known leader, and the batch's deadline limits the attempts.
        except ClientError:
            return
        for name in topics:
            before, now = self._topic_ids[name], self._metadata.topic(name).topic_id
            if before != now:
                raise WriteFailed(
                    f"topic {name!r} was deleted and created again while it was written to: what was written is gone"
                )

    # --- One attempt ---

    def _attempt(self, heads: dict[TopicPartition, _InFlightBatch]) -> dict[TopicPartition, _Outcome]:
        """Send one request to each leader, and return the outcome of every batch that was in one."""
        outcomes: dict[TopicPartition, _Outcome] = {}
        by_leader: dict[int, list[_InFlightBatch]] = defaultdict(list)
        for partition, sending in heads.items():
            # The time counts from the first attempt: a batch that waits behind others has not been tried yet.
            if sending.deadline is None:
                sending.deadline = self._timer.deadline(self.settings.delivery_timeout_ms / 1000)
            if sending.batch.size_bytes > self.settings.max_request_size:
                limit = f"{self.settings.max_request_size} bytes ({self.settings.option_name('max.request.size')})"
                # ``limit=limit`` binds this turn's text; the next turn of the loop assigns another.
                outcomes[partition] = _split(sending.batch, lambda limit=limit: limit)  # type: ignore[misc]
            elif (leader := self._metadata.leader(partition.topic, partition.partition)) == NO_LEADER:
                outcomes[partition] = _Failure("the partition has no leader now", perhaps_appended=False)
            else:
                by_leader[leader].append(sending)
        most_bytes = self.settings.max_request_size
        wanted = [(leader, _one_request(sendings, most_bytes)) for leader, sendings in by_leader.items()]
        for answered in self._at_once(wanted):
            outcomes |= answered
        return outcomes

    def _at_once(self, wanted: list[tuple[int, list[_InFlightBatch]]]) -> list[dict[TopicPartition, _Outcome]]:
        # With one leader, as in a cluster of one broker, this thread would only wait for another one: it asks itself.
        if len(wanted) < 2:
            return [self._ask_leader(*each) for each in wanted]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(MOST_LEADERS_AT_ONCE, thread_name_prefix="produce")
        return list(self._threads.map(lambda each: self._ask_leader(*each), wanted))

    def _ask_leader(self, leader: int, sendings: list[_InFlightBatch]) -> dict[TopicPartition, _Outcome]:
        try:
            answers = self._produce(leader, [sending.batch for sending in sendings])
        except (TlsFailed, VersionNotServed) as error:
            raise WriteFailed(str(error)) from None
        except ClientError as error:
            # Only a failed connection proves that nothing was sent; after any other error the broker may have the
            # batch.
            failure = _Failure(str(error), perhaps_appended=not isinstance(error, ConnectFailed))
            return {sending.batch.partition: failure for sending in sendings}
        unanswered = _Failure("the broker left it out of its answer", perhaps_appended=True)
        return {
            sending.batch.partition: self._outcome(sending.batch, answers[sending.batch.partition])
            if sending.batch.partition in answers
            else unanswered
            for sending in sendings
        }

    def _produce(self, leader: int, batches: list[ProducerBatch]) -> dict[TopicPartition, PartitionProduceResponse]:
        deadline = self._timer.deadline(self.settings.request_timeout_ms / 1000)
        connection = self._connected(leader, deadline)
        ids = {batch.partition.topic: self._topic_ids[batch.partition.topic] for batch in batches}
        at_most = BY_ID_SINCE_VERSION - 1 if NO_UUID in ids.values() else NEWEST
        if self._transaction is not None:
            at_most = ADDS_PARTITIONS_SINCE_VERSION - 1  # the first protocol; ``transactions`` tells why
        version = connection.version_for(ProduceRequest, at_most=at_most)
        by_topic: dict[str, list[PartitionProduceData]] = defaultdict(list)
        for batch in batches:
            data = PartitionProduceData(index=batch.partition.partition, records=memoryview(batch.data))
            by_topic[batch.partition.topic].append(data)
        request = ProduceRequest(
            transactional_id=None if self._transaction is None else self._transaction.transactional_id,
            acks=self.settings.acks,
            timeout_ms=self.settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=name, topic_id=ids[name], partition_data=data) for name, data in by_topic.items()
            ],
        )
        if self.settings.acks == ACKS_NONE:
            connection.tell(request, deadline, version)
            return {batch.partition: _assumed_written(batch) for batch in batches}
        response = connection.ask(request, deadline, version)
        # KIP-219: the broker answers at once and then mutes the connection for this long, so a request that is sent
        # earlier would only use up its timeout.
        if response.throttle_time_ms > 0:
            self._timer.sleep(response.throttle_time_ms / 1000)
        names, is_by_id = {topic_id: name for name, topic_id in ids.items()}, version >= BY_ID_SINCE_VERSION
        return {
            TopicPartition(names.get(topic.topic_id, "") if is_by_id else topic.name, answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }

    def _connected(self, leader: int, deadline: Deadline) -> BrokerConnection:
        """Return the connection to a broker. Threads do not share one: each thread asks another broker."""
        connection = self._connections.get(leader)
        address = self._metadata.address(leader)
        # A broker may have restarted at another address with the same id, as in containers.
        if connection is None or not connection.is_usable or connection.address != address:
            if connection is not None:
                connection.close()
            connection = self._connections[leader] = BrokerConnection.open(address, self.settings.connection, deadline)
        return connection

    def _outcome(self, batch: ProducerBatch, answer: PartitionProduceResponse) -> _Outcome:
        """Return the batch's last offset, the reason for another attempt, or the halves to send in its place.

        Raises:
            WriteFailed: the error is not retriable.
        """
        code = answer.error_code
        # A duplicate of one of the last five batches (ProducerStateEntry.NUM_BATCHES_TO_RETAIN in Kafka) is answered
        # here too, with the offset of the first append.
        if code == ErrorCode.NONE:
            return answer.base_offset + batch.record_count - 1 if answer.base_offset >= 0 else -1
        # The batch was appended by an earlier attempt, and the broker has dropped its offset since. Kafka's Sender
        # takes this code for success as well.
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return -1
        detail = f": {answer.error_message}" if answer.error_message else ""
        if code in TOO_LARGE:
            return _split(batch, lambda: self._topic_limit(batch.partition.topic) + detail)
        if code in RETRIABLE:
            return _Failure(error_name(code) + detail, code in PERHAPS_DONE)
        meaning = SEQUENCE_LOST.get(code)  # type: ignore[call-overload]
        if meaning is not None:
            raise WriteFailed(
                f"{batch.partition}: {error_name(code)} for {_records(batch)} from sequence"
                f" {batch.base_sequence} of producer {self._producer_id}: {meaning}; sending them again could write"
                f" them twice{detail}"
            )
        raise WriteFailed(f"{batch.partition}: {_records(batch)} refused: {error_name(code)}{detail}")

    def _topic_limit(self, topic: str) -> str:
        deadline = self._timer.deadline(LIMIT_SECONDS)
        return _topic_limit(KafkaClient(self.settings.connection, deadline), topic)

    # --- Sequences ---

    def _encode(self, batch: UnsequencedBatch) -> ProducerBatch:
        """Encode a batch with this producer's id and the partition's next sequence number."""
        # Called for its effect: ``_topic_ids`` has the topic afterwards.
        self.partition_count(batch.partition.topic)
        if self.settings.acks != ACKS_ALL:
            return encode_batch(batch, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
        if self._producer_id is None:
            given = self._metadata.retry("no producer id was given out", self._init_producer_id)
            self._producer_id, self._producer_epoch = given.producer_id, given.producer_epoch
        # It has the topic's id, because the partitions of a topic that was created again begin at sequence 0.
        key = (self._topic_ids[batch.partition.topic], batch.partition)
        sequence = self._sequences.get(key, 0)
        # Counted when the batch is encoded, not when it is acknowledged: every batch of one delivery needs its own.
        self._sequences[key] = (sequence + batch.record_count) & MAX_SEQUENCE
        is_transactional = self._transaction is not None
        return encode_batch(batch, self._producer_id, self._producer_epoch, sequence, is_transactional=is_transactional)

    def _init_producer_id(self, deadline: Deadline) -> InitProducerIdResponse:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        response = self._metadata.ask_any(request, deadline)
        if response.error_code in RETRIED_BY_PRODUCERS:
            raise ClientError(error_name(response.error_code))
        if response.error_code:
            raise WriteFailed(f"the brokers give out no producer id: {error_name(response.error_code)}")
        return response


def _assumed_written(batch: ProducerBatch) -> PartitionProduceResponse:
    """Return a result in place of the answer that ``acks=0`` does not get: without an error, and without an offset."""
    return PartitionProduceResponse(index=batch.partition.partition, base_offset=-1)


def _one_request(batches: Sequence[_InFlightBatch], most_bytes: int) -> list[_InFlightBatch]:
    """Return as many of the first batches as one request may have; the others are in the next request."""
    sizes = itertools.accumulate(each.batch.size_bytes for each in batches)
    # At least one: a batch that is too large for any request has been split before.
    return list(batches[: max(1, sum(size <= most_bytes for size in sizes))])


def _split(batch: ProducerBatch, limit: Callable[[], str]) -> tuple[ProducerBatch, ProducerBatch]:
    if batch.record_count == 1:
        raise RecordTooLarge(
            f"{batch.partition}: a record of {batch.size_bytes} bytes with its batch is too large: the limit is"
            f" {limit()}"
        )
    return halves(batch)


def _topic_limit(client: KafkaClient, topic: str) -> str:
    """Return a topic's size limit for the text of an error, or only the limit's name if the lookup fails."""
    resource = Resource(ConfigResourceType.TOPIC, topic)
    with client, contextlib.suppress(ClientError):
        for entry in describe_configs(client, [resource])[resource]:
            if entry.name == "max.message.bytes" and entry.value:
                return f"{entry.value} bytes (max.message.bytes of the topic)"
    return "the topic's max.message.bytes"


def _records(batch: ProducerBatch) -> str:
    return counted(batch.record_count, "record", thousands="")


_Outcome = int | _Failure | tuple[ProducerBatch, ProducerBatch]
"""The last offset of a batch that was appended, the reason why it was not, or the halves to send in its place."""
