"""Reads the records of partitions from their leaders, in rounds of one Fetch request to each leader.

``Fetcher`` has the next offset of each partition; ``PartitionRecords`` are the records of one partition in an answer. A
round sends all requests before it waits for the first answer, so the leaders work at the same time. After a retriable
error (a leader has moved, restarts or is not elected yet) the round is repeated, until no round has succeeded for
the time that ``client.deadline`` gives. An error that cannot pass, such as a deleted topic, ends the reading.

Fetch sessions (KIP-227) are not used: they save work where a request names many partitions, which is not the case here.

Source: Kafka's Fetcher, FetchCollector and CompletedFetch; KIP-74 for the first batch, KIP-516 for topic ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import attrs

from kafka_wire.client_connection import InFlightRequest
from kafka_wire.error_codes import ErrorCode
from kafka_wire.framing import MAX_RESPONSE_BYTES
from kafka_wire.isolation_level import IsolationLevel
from kafka_wire.messages.fetch import (
    NAMES_UP_TO,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kafka_wire.primitives import NO_UUID
from kafka_wire.records.batch import RecordBatch, TimestampType, read_batches
from kafka_wire.records.compression import MAX_DECOMPRESSED_BYTES
from kafka_wire.records.control import EndTransactionMarker, read_control_record
from kafka_wire.records.errors import CorruptRecordBatch, InvalidRecord
from kafka_wire.records.record import Record
from kafka_wire.schema import NEWEST
from trio_broker.client.connection import BrokerConnection
from trio_broker.client.deadline import MISSING_ROUNDS, retry
from trio_broker.client.error_codes import MISSING_TOPIC, RETRIED_BY_READERS
from trio_broker.client.errors import (
    ConnectFailed,
    ConnectionLost,
    DamagedRecords,
    Refused,
    TimedOut,
    TopicReplaced,
    check,
)
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.offsets import find_ranges
from trio_broker.client.receive_buffer import ReceiveBuffer
from trio_broker.client.topics import describe_topics
from trio_broker.common.topic_partition import TopicPartition

MAX_WAIT_MS: Final = 500
"""How long a broker waits for new records before it sends an empty answer; Kafka's default ``fetch.max.wait.ms``."""

FETCH_BYTES: Final = 16 * 1024 * 1024
"""About the largest size of one answer: enough for 16 full partitions, and a third of Kafka's default, because a
command holds an answer of every leader at the same time."""

PARTITION_BYTES: Final = 1024 * 1024
"""About the most bytes of one partition in an answer; Kafka's default ``max.partition.fetch.bytes``."""


@attrs.frozen
class FetchedBatch:
    """The records of one batch that the reader gets; none for a control batch or a batch of an aborted transaction.

    ``next_offset`` is the offset after the batch, which the reader passes even if it gets no record.
    """

    records: list[Record]
    timestamp_type: TimestampType
    next_offset: int


@attrs.frozen
class PartitionRecords:
    """The records of one partition in an answer, from ``fetch_offset`` on. ``data`` is valid until the next round.

    ``aborted`` has the first offset and the producer id of each aborted transaction in it.
    """

    partition: TopicPartition
    fetch_offset: int
    data: memoryview
    aborted: tuple[tuple[int, int], ...]

    def batches(self) -> Iterator[FetchedBatch]:
        """Yield the batches in order, after checking their checksums.

        Raises:
            DamagedRecords: a batch is damaged, or in a format before version 2.
        """
        # In reverse order, because the next transaction to begin is popped from the end.
        waiting = sorted(self.aborted, reverse=True)
        aborted: set[int] = set()
        next_offset = self.fetch_offset
        try:
            for batch in read_batches(self.data):
                batch.verify_crc()
                header = batch.header
                # By the batch's last offset: an aborted transaction may begin inside the batch's offset range when
                # compaction has removed records before it. The same as CompletedFetch.consumeAbortedTransactionsUpTo.
                while waiting and waiting[-1][0] <= header.last_offset:
                    aborted.add(waiting.pop()[1])
                if header.is_control:
                    # After the marker, records of this producer belong to its next transaction.
                    if is_abort_marker(batch):
                        aborted.discard(header.producer_id)
                    records: list[Record] = []
                elif header.is_transactional and header.producer_id in aborted:
                    records = []
                else:
                    # A batch may begin before the offset that was asked for (KIP-74).
                    all_records = batch.records(max_bytes=MAX_DECOMPRESSED_BYTES)
                    records = [record for record in all_records if record.offset >= self.fetch_offset]
                next_offset = header.next_offset
                yield FetchedBatch(records, header.timestamp_type, next_offset)
        except (CorruptRecordBatch, InvalidRecord) as error:
            raise DamagedRecords(f"{self.partition}: {error}") from None
        # An incomplete last batch is ignored, as in Kafka; one that is also the first would be fetched again for ever.
        if next_offset <= self.fetch_offset:
            raise DamagedRecords(f"{self.partition}: no whole batch came from offset {self.fetch_offset} on")


def is_abort_marker(batch: RecordBatch) -> bool:
    """Return whether a control batch says that its producer's transaction was aborted."""
    markers = [read_control_record(record) for record in batch.records()]
    return any(isinstance(marker, EndTransactionMarker) and not marker.committed for marker in markers)


@attrs.frozen
class _LeaderAndEpoch:
    """The broker that leads a partition, its leader epoch, and the topic's id."""

    node_id: int
    topic_id: bytes
    leader_epoch: int


@attrs.frozen
class _PendingFetch:
    """A Fetch request that was sent to one leader and is not yet answered."""

    connection: BrokerConnection
    partitions: Mapping[TopicPartition, int]
    topic_names: Mapping[bytes, str]
    pending: InFlightRequest[FetchResponse]
    buffer: ReceiveBuffer


class Fetcher:
    """Reads the partitions in ``positions`` from the offsets there; the caller removes a partition to stop reading it.

    The timeout of ``client.deadline`` limits the wait for one answer, and the time without any successful round.
    ``on_lost`` is called with one line of text when retention has deleted records that were not read yet.
    """

    def __init__(
        self,
        client: KafkaClient,
        positions: Mapping[TopicPartition, int],
        *,
        read_committed: bool,
        on_lost: Callable[[str], None],
    ) -> None:
        self.positions = dict(positions)
        self._client = client
        self._isolation_level = IsolationLevel.of(read_committed=read_committed)
        self._on_lost = on_lost
        self._leaders: dict[TopicPartition, _LeaderAndEpoch] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._buffers: dict[int, ReceiveBuffer] = defaultdict(ReceiveBuffer)
        self._missing_rounds = 0
        self._deadline = client.deadline

    def fetch(self) -> list[PartitionRecords]:
        """Run one round and return its records, which may be none.

        The caller moves ``positions`` to the offset after the last batch that it has used.

        Raises:
            Refused: a partition does not exist any more, or may not be read.
            ClientError: no round succeeded in time, or an answer is not Kafka's.
        """
        self._client.deadline = self._deadline.restarted()
        return retry(self._round, self._client.deadline, self._is_retriable, self._forget)

    def _is_retriable(self, error: Exception) -> bool:
        match error:
            # Before ``Refused``, its base class: the code is retriable, but waiting never restores the old topic.
            case TopicReplaced():
                return False
            case Refused(code=code) if code in MISSING_TOPIC:
                self._missing_rounds += 1
                return self._missing_rounds < MISSING_ROUNDS
            case Refused(code=code):
                return code in RETRIED_BY_READERS
        return isinstance(error, (ConnectFailed, ConnectionLost, TimedOut))

    def _forget(self, _: Exception) -> None:
        # All leaders, not only that of the failed partition: a broker that stops moves many at once, and one Metadata
        # request finds all of them again.
        self._leaders.clear()
        self._client.forget()

    # --- One round ---

    def _round(self) -> list[PartitionRecords]:
        sent: list[_PendingFetch] = []
        fetched: list[PartitionRecords] = []
        try:
            for node_id, partitions in self._by_leader().items():
                sent.append(self._ask(node_id, partitions))
            while sent:
                fetched += self._answer(sent[0])
                # Removed only after its answer was read, so that a connection whose answer failed is closed below too.
                sent.pop(0)
        finally:
            for fetch in sent:
                # The answer is still under way, and the next request on this connection would receive it as its own.
                fetch.connection.close()
        self._missing_rounds = 0
        self._rotate(fetched)
        return fetched

    def _by_leader(self) -> dict[int, dict[TopicPartition, int]]:
        if unknown := [partition for partition in self.positions if partition not in self._leaders]:
            self._find_leaders(unknown)
        by_leader: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for partition, offset in self.positions.items():
            by_leader[self._leaders[partition].node_id][partition] = offset
        return by_leader

    def _find_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Look up the leaders of some partitions.

        Raises:
            Refused: one of them has no leader at the moment, or does not exist.
            TopicReplaced: the name stands for another topic now.
        """
        wanted = set(partitions)
        for name, topic in describe_topics(self._client, sorted({each.topic for each in wanted})).items():
            # The first id of a topic is kept for the whole reading. A topic that was deleted and created again is
            # noticed by its new id only: its offsets mean other records.
            known_id = self._topic_ids.setdefault(name, topic.topic_id)
            if known_id != topic.topic_id:
                raise TopicReplaced(name, known_id, topic.topic_id)
            for each in topic.partitions:
                if each.leader_id >= 0:
                    leader = _LeaderAndEpoch(each.leader_id, topic.topic_id, each.leader_epoch)
                    self._leaders[TopicPartition(name, each.index)] = leader
                elif TopicPartition(name, each.index) in wanted:
                    raise Refused(f"partition {TopicPartition(name, each.index)}", ErrorCode.LEADER_NOT_AVAILABLE)
        for partition in wanted:
            if partition not in self._leaders:
                raise Refused(f"partition {partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _ask(self, node_id: int, partitions: Mapping[TopicPartition, int]) -> _PendingFetch:
        connection = self._client.node(node_id)
        topics: dict[str, FetchTopic] = {}
        for partition, offset in partitions.items():
            leader = self._leaders[partition]
            topic = topics.setdefault(
                partition.topic, FetchTopic(topic=partition.topic, topic_id=leader.topic_id, partitions=[])
            )
            topic.partitions.append(
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=leader.leader_epoch,
                    fetch_offset=offset,
                    partition_max_bytes=PARTITION_BYTES,
                )
            )
        deadline = self._client.deadline
        request = FetchRequest(
            # Half of what the answer may take at the most: a broker that waits until that is over answers too late.
            max_wait_ms=min(MAX_WAIT_MS, deadline.remaining_ms // 4),
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            isolation_level=self._isolation_level,
            topics=list(topics.values()),
        )
        by_name = any(topic.topic_id == NO_UUID for topic in topics.values())
        version = connection.version_for(FetchRequest, at_most=NAMES_UP_TO if by_name else NEWEST)
        names = {} if version <= NAMES_UP_TO else {topic.topic_id: name for name, topic in topics.items()}
        pending = connection.begin(request, deadline, version)
        return _PendingFetch(connection, partitions, names, pending, self._buffers[node_id])

    def _answer(self, fetch: _PendingFetch) -> list[PartitionRecords]:
        deadline = self._client.deadline
        response = fetch.connection.finish(
            fetch.pending,
            # Half of the time at the most: where a leader hangs, another one can be asked in the other half.
            deadline.within(deadline.timeout_seconds / 2),
            buffer=fetch.buffer,
            # The first batch is sent whole even if it is larger than both limits of the request (KIP-74).
            max_bytes=FETCH_BYTES + MAX_RESPONSE_BYTES,
        )
        check(f"broker {fetch.connection.address}: Fetch", response.error_code)
        fetched: list[PartitionRecords] = []
        for topic in response.responses:
            name = fetch.topic_names.get(topic.topic_id, topic.topic)
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                # A partition that was not requested is ignored: it has no position, so its records have no reader.
                if partition in fetch.partitions:
                    fetched += self._taken(partition, fetch.partitions[partition], data)
        return fetched

    def _taken(self, partition: TopicPartition, offset: int, data: PartitionData) -> list[PartitionRecords]:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._move_into_range(partition, offset)
            return []
        check(f"partition {partition}", data.error_code)
        if not data.records:
            return []
        aborted = tuple((each.first_offset, each.producer_id) for each in data.aborted_transactions or ())
        return [PartitionRecords(partition, offset, memoryview(data.records), aborted)]

    def _move_into_range(self, partition: TopicPartition, offset: int) -> None:
        """Move a position to the beginning of the log, if the log begins after it by now.

        Raises:
            Refused: the log ends before the position, so records were lost; the reader must not begin again silently.
        """
        log = find_ranges(self._client, [partition])[partition]
        if isinstance(log, Refused):
            raise log
        if offset > log.latest:
            reason = f"offset {offset} was to be read, and the log ends at {log.latest}"
            raise Refused(f"partition {partition}", ErrorCode.OFFSET_OUT_OF_RANGE, reason)
        # A position that is within the range by now stays: the next round reads there.
        if offset < log.earliest:
            self._on_lost(f"{partition}: offsets {offset} to {log.earliest - 1} are gone; the log begins behind them")
            self.positions[partition] = log.earliest

    def _rotate(self, fetched: Iterable[PartitionRecords]) -> None:
        """Move the partitions that returned records behind the others.

        A broker fills an answer in the order of the request, so without this the last partitions could wait for ever.
        """
        for each in fetched:
            # A dict keeps the order of insertion, so an entry that is removed and added again becomes the last.
            if each.partition in self.positions:
                self.positions[each.partition] = self.positions.pop(each.partition)
