"""Requests of transactional producers with what most conversations say in them, and the batches that they write.

Kafka has two transaction protocols, and a broker serves both: in the first, a producer names each partition and each
group before it writes to it; in the second (KIP-890) its writes do, and every transaction ends with a raised epoch.
Which of the two a request belongs to, its version says.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafka_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafka_wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from kafka_wire.messages.describe_transactions import DescribeTransactionsRequest
from kafka_wire.messages.end_txn import EndTxnRequest
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.init_producer_id import InitProducerIdRequest
from kafka_wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafka_wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kafka_wire.primitives import NO_UUID
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.compat.scenario_client import ANSWER_SECONDS, PAUSE_SECONDS, ScenarioClient
from tests.waits import TimeLeft

TIMEOUT_MS = 60_000
RECORD_TIMESTAMP_MS = 1_700_000_000_000

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3

TopicName = str | bytes
"""A topic by its name, or by its id."""


@attrs.frozen
class Protocol:
    """A transaction protocol, as the newest versions in which its requests still mean it."""

    produce: int
    commit_offsets: int
    end: int
    adds_by_itself: bool

    def __str__(self) -> str:
        return "the second protocol" if self.adds_by_itself else "the first protocol"


FIRST = Protocol(produce=11, commit_offsets=4, end=4, adds_by_itself=False)
SECOND = Protocol(produce=12, commit_offsets=5, end=5, adds_by_itself=True)
PROTOCOLS = (FIRST, SECOND)

NEWEST_OF_THE_FIRST_ADD = 3
"""Of AddPartitionsToTxn: from version 4 on it is a broker's own."""


@attrs.frozen
class Producer:
    """What a producer knows of itself. Without a transactional id it is idempotent, without a producer id neither."""

    transactional_id: str | None
    producer_id: int = -1
    producer_epoch: int = -1

    def at_epoch(self, producer_epoch: int) -> Producer:
        return attrs.evolve(self, producer_epoch=producer_epoch)

    def next(self, epochs: int = 1) -> Producer:
        return self.at_epoch(self.producer_epoch + epochs)

    def with_id(self, producer_id: int) -> Producer:
        return attrs.evolve(self, producer_id=producer_id)

    def called(self, transactional_id: str | None) -> Producer:
        return attrs.evolve(self, transactional_id=transactional_id)

    @property
    def known_id(self) -> str:
        assert self.transactional_id is not None
        return self.transactional_id


# --- Requests ---


def init(
    transactional_id: str | None, *, timeout_ms: int = TIMEOUT_MS, producer_id: int = -1, producer_epoch: int = -1
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def init_again(producer: Producer, *, timeout_ms: int = TIMEOUT_MS) -> InitProducerIdRequest:
    """A request of a producer that says who it was (KIP-360)."""
    return init(
        producer.transactional_id,
        timeout_ms=timeout_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
    )


def add_partitions(producer: Producer, topics: Mapping[str, list[int]]) -> AddPartitionsToTxnRequest:
    """The request of a client, up to version 3."""
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.known_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=_topics(topics),
    )


def transaction(
    producer: Producer, topics: Mapping[str, list[int]], *, verify_only: bool = False
) -> AddPartitionsToTxnTransaction:
    """One of the transactions of a request from version 4 on."""
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.known_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        verify_only=verify_only,
        topics=_topics(topics),
    )


def _topics(topics: Mapping[str, list[int]]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=name, partitions=partitions) for name, partitions in topics.items()]


def add_offsets(producer: Producer, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=producer.known_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=group,
    )


def commit_offsets(
    producer: Producer,
    group: str,
    topics: Mapping[str, Mapping[int, int]],
    *,
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    metadata: str | None = "",
) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=producer.known_id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=name,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=metadata
                    )
                    for partition, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )


def end(producer: Producer, *, committed: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=producer.known_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=committed,
    )


def batch(producer: Producer, sequence: int = 0, *, records: int = 1, transactional: bool = True) -> bytes:
    """A batch of ``producer``; outside a transaction without ``transactional``."""
    return build_batch(
        [NewRecord(RECORD_TIMESTAMP_MS, b"key", b"value")] * records,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=sequence if producer.producer_id >= 0 else -1,
        transactional=transactional,
    )


def produce(
    producer: Producer,
    topic: TopicName,
    records: bytes | Mapping[int, bytes],
    *,
    acks: int = -1,
) -> ProduceRequest:
    """Append one batch to partition 0, or one to each of several."""
    batches = records if isinstance(records, Mapping) else {0: records}
    partitions = [PartitionProduceData(index=index, records=memoryview(each)) for index, each in batches.items()]
    name, topic_id = (topic, NO_UUID) if isinstance(topic, str) else ("", topic)
    return ProduceRequest(
        transactional_id=producer.transactional_id,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name=name, topic_id=topic_id, partition_data=partitions)],
    )


def fetch(
    topic: TopicName,
    partitions: list[int],
    *,
    isolation_level: int = READ_UNCOMMITTED,
    offset: int = 0,
    max_bytes: int = 2**20,
) -> FetchRequest:
    """Whatever is there from ``offset`` on, at once."""
    name, topic_id = (topic, NO_UUID) if isinstance(topic, str) else ("", topic)
    wanted = [
        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        for partition in partitions
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=wanted)],
    )


def list_offsets(
    topic: str, timestamp: int, *, partitions: int = 1, isolation_level: int = READ_UNCOMMITTED
) -> ListOffsetsRequest:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in range(partitions)]
    return ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(name=topic, partitions=wanted)]
    )


def marker(
    producer: Producer,
    topics: Mapping[str, list[int]],
    *,
    committed: bool = False,
    coordinator_epoch: int = -1,
    transaction_version: int = 0,
) -> WriteTxnMarkersRequest:
    """The end of one transaction, as an administrator asks for it."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                transaction_result=committed,
                topics=[
                    WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()
                ],
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
            )
        ]
    )


def describe(*transactional_ids: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=list(transactional_ids))


def describe_producers(topics: Mapping[str, list[int]]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=partitions) for name, partitions in topics.items()]
    )


# --- Steps ---


def started(
    client: ScenarioClient, transactional_id: str | None, *, timeout_ms: int = TIMEOUT_MS, version: int = 5
) -> Producer:
    """Get a producer id, saying nothing."""
    answer = client.quietly_in_turn(init(transactional_id, timeout_ms=timeout_ms), version)
    assert answer.error_code == 0, answer
    return Producer(transactional_id, answer.producer_id, answer.producer_epoch)


def written(
    client: ScenarioClient,
    protocol: Protocol,
    producer: Producer,
    topic: str,
    *,
    partition: int = 0,
    sequence: int = 0,
    records: int = 1,
) -> None:
    """Write a batch in the producer's transaction, which begins with it if none is open, saying nothing."""
    if not protocol.adds_by_itself:
        added = client.quietly_in_turn(add_partitions(producer, {topic: [partition]}), NEWEST_OF_THE_FIRST_ADD)
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0, added
    request = produce(producer, topic, {partition: batch(producer, sequence, records=records)})
    answer = client.quietly_in_turn(request, protocol.produce)
    assert answer.responses[0].partition_responses[0].error_code == 0, answer


def begun(client: ScenarioClient, protocol: Protocol, transactional_id: str, topic: str) -> Producer:
    """Start a producer that has written one record in a transaction, saying nothing."""
    producer = started(client, transactional_id)
    written(client, protocol, producer, topic)
    return producer


def ended(client: ScenarioClient, protocol: Protocol, producer: Producer, *, committed: bool) -> Producer:
    """End a transaction, wait until its markers are written, and return who the producer is now; saying nothing."""
    answer = client.quietly_in_turn(end(producer, committed=committed), protocol.end)
    assert answer.error_code == 0, answer
    wait_for_the_end(client, producer)
    if protocol.adds_by_itself:
        return Producer(producer.transactional_id, answer.producer_id, answer.producer_epoch)
    return producer


def wait_for_the_end(client: ScenarioClient, producer: Producer) -> None:
    """Wait until all markers of the producer's transaction are written."""
    wait_for_state(client, producer.known_id, "CompleteCommit", "CompleteAbort")


def wait_for_state(client: ScenarioClient, transactional_id: str, *states: str) -> None:
    time_left = TimeLeft(ANSWER_SECONDS)
    while (answer := client.quietly(describe(transactional_id), 0)).transaction_states[
        0
    ].transaction_state not in states:
        assert answer.transaction_states[0].error_code in (0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), answer
        assert not time_left.is_over, answer
        time.sleep(PAUSE_SECONDS)
