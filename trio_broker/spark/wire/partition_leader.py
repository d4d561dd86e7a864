"""The broker that leads a partition, from the view of a reader: find it, fetch from it, drop it.

A request may be sent long before its response is needed (``send_fetch`` and then ``receive``): the broker reads and the
bytes travel while the reader decodes earlier ones. Never more than one request is in flight, so that one response is
the most that waits, as far as it fits into the socket's buffers.

Nothing is retried here. Every failure is a ``ClientError``; after it ``disconnect`` and the next ``send_fetch`` start
from the beginning: leader, topic id, connection. No rack is sent, so that no broker refers the reader to a follower.

Source: Kafka's Fetch API; KIP-320 for leader epochs, KIP-516 for topic ids.
"""

from __future__ import annotations

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
from kafka_wire.schema import NEWEST
from trio_broker.client.connection import BrokerConnection
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import Refused, TopicReplaced, check, only
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.receive_buffer import ReceiveBuffer
from trio_broker.client.topics import PartitionDescription, TopicDescription, find_topics
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.chunk import AbortedTransactionStart
from trio_broker.spark.options.kafka_settings import KafkaSettings


@attrs.frozen
class Fetched:
    """One response about the partition. ``records`` are valid until the next response is received.

    Offsets are -1 where the broker does not send them. ``aborted`` are the transactions whose abort marker lies in the
    fetched records, or behind them.
    """

    broker: str
    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransactionStart, ...]


@attrs.frozen
class _LeaderConnection:
    """The connection, and what the requests on it say."""

    connection: BrokerConnection
    topic_id: bytes
    leader_epoch: int

    @property
    def version(self) -> int:
        newest = NAMES_UP_TO if self.topic_id == NO_UUID else NEWEST
        return self.connection.version_for(FetchRequest, at_most=newest)


class PartitionLeader:
    """Fetches records of ``partition``; ``topic_id`` is the id that its topic must have, ``NO_UUID`` for any.

    The first id that is seen then stays the required one.
    """

    def __init__(
        self,
        client: KafkaClient,
        partition: TopicPartition,
        kafka: KafkaSettings,
        *,
        read_committed: bool,
        topic_id: bytes = NO_UUID,
    ) -> None:
        self._client = client
        self._partition = partition
        self._kafka = kafka
        self._isolation_level = IsolationLevel.of(read_committed=read_committed)
        self._topic_id = topic_id
        self._leader: _LeaderConnection | None = None
        self._pending: InFlightRequest[FetchResponse] | None = None
        self._buffer = ReceiveBuffer()

    @property
    def is_waiting(self) -> bool:
        """Whether a request is in flight."""
        return self._pending is not None

    def disconnect(self) -> None:
        """Drop the leader, and the response that may be on its way."""
        if self._leader is not None:
            # The response on its way must not be taken for that of the next request.
            self._leader.connection.close()
        self._leader = None
        self._pending = None
        self._client.forget()

    def send_fetch(self, offset: int, max_bytes: int, deadline: Deadline) -> None:
        """Send a Fetch for about ``max_bytes`` of records from ``offset`` on; find the leader first if necessary.

        Raises:
            TopicReplaced: the topic has another id.
            ClientError: the leader is not known, not reachable, or does not accept the request.
        """
        self._client.deadline = deadline
        leader = self._leader or self._find()
        self._leader = leader
        version = leader.version
        partition = FetchPartition(
            partition=self._partition.partition,
            current_leader_epoch=leader.leader_epoch,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
        )
        request = FetchRequest(
            # A broker that waits for the whole of our deadline would answer too late.
            max_wait_ms=min(self._kafka.fetch_max_wait_ms, deadline.remaining_ms // 2),
            min_bytes=self._kafka.fetch_min_bytes,
            max_bytes=self._kafka.fetch_max_bytes,
            isolation_level=self._isolation_level,
            topics=[FetchTopic(topic=self._partition.topic, topic_id=leader.topic_id, partitions=[partition])],
        )
        self._pending = leader.connection.begin(request, deadline, version)

    def receive(self, deadline: Deadline) -> Fetched:
        """Wait for the response to ``send_fetch``.

        Raises:
            Refused: the broker answers with an error code.
            ClientError: no response came, or none that can be decoded.
        """
        leader, pending = self._leader, self._pending
        assert leader is not None
        assert pending is not None, f"nothing was asked about {self._partition}"
        self._pending = None
        # One batch comes whole even if it is larger than all limits, so that the frame may be larger, too (KIP-74).
        max_bytes = self._kafka.fetch_max_bytes + MAX_RESPONSE_BYTES
        response = leader.connection.finish(pending, deadline, buffer=self._buffer, max_bytes=max_bytes)
        subject = f"broker {leader.connection.address}: Fetch of {self._partition}"
        check(subject, response.error_code)
        data = only(only(response.responses, subject).partitions, subject)
        check(subject, data.error_code)
        return _fetched(str(leader.connection.address), data)

    def _find(self) -> _LeaderConnection:
        """Return the present leader, connected."""
        name = self._partition.topic
        topic = find_topics(self._client, [name])[name]
        if isinstance(topic, Refused):
            raise topic
        self._check_id(topic)
        described = _described(topic, self._partition)
        if described.leader_id < 0:
            raise Refused(f"partition {self._partition}", ErrorCode.LEADER_NOT_AVAILABLE)
        return _LeaderConnection(self._client.node(described.leader_id), topic.topic_id, described.leader_epoch)

    def _check_id(self, topic: TopicDescription) -> None:
        if topic.topic_id == NO_UUID:
            return
        if self._topic_id == NO_UUID:
            self._topic_id = topic.topic_id
        if self._topic_id != topic.topic_id:
            raise TopicReplaced(topic.name, self._topic_id, topic.topic_id)


def _described(topic: TopicDescription, partition: TopicPartition) -> PartitionDescription:
    for each in topic.partitions:
        if each.index == partition.partition:
            return each
    raise Refused(f"partition {partition}", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _fetched(broker: str, data: PartitionData) -> Fetched:
    return Fetched(
        broker=broker,
        records=memoryview(data.records or b""),
        high_watermark=data.high_watermark,
        last_stable_offset=data.last_stable_offset,
        log_start_offset=data.log_start_offset,
        aborted=tuple(
            AbortedTransactionStart(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
        ),
    )
