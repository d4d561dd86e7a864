"""Transactions: listing and describing them, finding those that hang, and aborting them.

A transaction has two places. Its coordinator has its state and its partitions, by its transactional id; the leader of
each of the partitions has where it began in the log, by its producer id. It *hangs* in a partition if the leader has it
and the coordinator does not have the partition: no marker will ever end it there.

A transaction is aborted by its coordinator, as a whole. One that hangs is aborted in each of its partitions by a
marker, which is right only there: it would tear apart a transaction that the coordinator still knows.

Source: Kafka's ListTransactions, DescribeTransactions, DescribeProducers, InitProducerId and WriteTxnMarkers APIs;
TransactionsCommand, FenceProducersHandler; KIP-664.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Final

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from kafka_wire.messages.describe_transactions import DescribeTransactionsRequest
from kafka_wire.messages.init_producer_id import InitProducerIdRequest
from kafka_wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kafka_wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kafka_wire.stored.transactions import STATE_NAMES, TransactionStatus
from trio_broker.client.connection import BrokerConnection
from trio_broker.client.deadline import attempts
from trio_broker.client.errors import ClientError, Refused, check, only
from trio_broker.client.kafka_client import KafkaClient, Node
from trio_broker.client.leaders import ask_leaders
from trio_broker.common.topic_partition import TopicPartition, by_topic

FILTERS_DURATION_FROM: Final = 1
FILTERS_IDS_FROM: Final = 2
"""The versions of ListTransactions from which on it filters by duration (KIP-994) and by id (KIP-1152)."""

NAMES_PRODUCER_FROM: Final = 3
"""The version of InitProducerId from which on it names the producer that is to be fenced (KIP-360)."""

PARTITIONS_PER_REQUEST: Final = 500
"""Partitions of one DescribeProducers, as Kafka's tool has them: each may have thousands of producers."""

ONGOING: Final = STATE_NAMES[TransactionStatus.ONGOING]
PREPARED: Final = frozenset(
    {STATE_NAMES[TransactionStatus.PREPARE_COMMIT], STATE_NAMES[TransactionStatus.PREPARE_ABORT]}
)
"""The states of a transaction that is open, and of one whose markers are being written, as Kafka names them."""

NONE: Final = -1
"""In an answer: no such offset or time. As a duration in a request: any."""

OLDEST_COORDINATOR_EPOCH: Final = 0
"""The coordinator epoch for a producer that no marker has ended yet: no coordinator has an older one."""


@attrs.frozen(kw_only=True)
class TransactionListFilter:
    """Which transactions are listed; an empty part lets all pass. ``id_pattern`` is a regular expression of RE2."""

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int | None = None
    id_pattern: str | None = None


@attrs.frozen
class ListedTransaction:
    """One transactional id, the producer that has it, and the broker that coordinates it."""

    transactional_id: str
    coordinator_id: int
    producer_id: int
    state: str


@attrs.frozen
class TransactionDescription:
    """One transactional id and its newest transaction. ``start_ms`` is None if none has begun. ``partitions`` are those
    of the transaction that have no marker yet.
    """

    transactional_id: str
    coordinator: Node
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: tuple[TopicPartition, ...]

    @property
    def is_ending(self) -> bool:
        """Whether its end is decided, and a marker is still missing somewhere."""
        return self.state in PREPARED


@attrs.frozen
class ActiveProducer:
    """A producer as a partition remembers it. ``coordinator_epoch`` is that of its last marker, -1 before the first.

    ``transaction_start_offset`` is where its open transaction began, None if none is open.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int | None


@attrs.frozen
class OpenTransaction:
    """A transaction that is open in one partition."""

    partition: TopicPartition
    producer: ActiveProducer


# --- Coordinators ---


def list_transactions(client: KafkaClient, wanted: TransactionListFilter) -> list[ListedTransaction]:
    """Return the transactions of all brokers that pass the filter, sorted by transactional id.

    Raises:
        Refused: a broker could not list its transactions before the deadline, or the pattern is none.
        VersionNotServed: a broker is too old for a filter that was given.
        ClientError: a state of the filter is not known to a broker.
    """

    def ask() -> dict[str, ListedTransaction]:
        found: dict[str, ListedTransaction] = {}
        for node in client.brokers().nodes:
            response = _list_transactions(client, node, wanted)
            if response.unknown_state_filters:
                raise ClientError(f"broker {node.node_id} knows no state {response.unknown_state_filters[0]!r}")
            for each in response.transaction_states:
                # By id: while a transactional id changes its coordinator, two brokers may list it.
                found[each.transactional_id] = ListedTransaction(
                    each.transactional_id, node.node_id, each.producer_id, each.transaction_state
                )
        return found

    # All of them again after a failure: another broker lists the transactions of one that is lost.
    return sorted(client.attempt(ask).values(), key=lambda each: each.transactional_id)


def _list_transactions(client: KafkaClient, node: Node, wanted: TransactionListFilter) -> ListTransactionsResponse:
    at_least = 0
    if wanted.longer_than_ms is not None:
        at_least = FILTERS_DURATION_FROM
    if wanted.id_pattern is not None:
        at_least = FILTERS_IDS_FROM
    request = ListTransactionsRequest(
        state_filters=sorted(wanted.states),
        producer_id_filters=sorted(wanted.producer_ids),
        duration_filter=NONE if wanted.longer_than_ms is None else wanted.longer_than_ms,
        transactional_id_pattern=wanted.id_pattern,
    )
    response = client.ask(client.node(node.node_id), request, at_least=at_least)
    check(f"transactions of broker {node.node_id}", response.error_code)
    return response


def describe_transaction(client: KafkaClient, transactional_id: str) -> TransactionDescription:
    """Return one transactional id with its newest transaction.

    Raises:
        Refused: its coordinator does not know it (TRANSACTIONAL_ID_NOT_FOUND).
    """
    return client.attempt(lambda: _describe(client, transactional_id))


def _describe(client: KafkaClient, transactional_id: str) -> TransactionDescription:
    subject = f"transactional id {transactional_id!r}"
    coordinator = client.transaction_coordinator(transactional_id)
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    found = only(client.ask(coordinator, request).transaction_states, subject)
    check(subject, found.error_code)
    return TransactionDescription(
        transactional_id=transactional_id,
        coordinator=client.transaction_coordinator_node(transactional_id),
        state=found.transaction_state,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        timeout_ms=found.transaction_timeout_ms,
        start_ms=None if found.transaction_start_time_ms == NONE else found.transaction_start_time_ms,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, index) for topic in found.topics for index in topic.partitions)
        ),
    )


def abort_transaction(client: KafkaClient, transaction: TransactionDescription) -> TransactionDescription:
    """Let the coordinator abort an ongoing transaction, and fence its producer; return what is known of it afterwards:
    PrepareAbort if the markers were not all written before the deadline, which the coordinator goes on with.

    The request names the producer and is sent only while this transaction is ongoing, so that no other one is aborted.
    Of the older protocol, a producer that ends its transaction in that very moment is fenced all the same.

    Raises:
        Refused: it is not ongoing, or the producer is another one by now.
    """
    if transaction.state != ONGOING:
        raise Refused(
            f"transactional id {transaction.transactional_id!r}",
            ErrorCode.INVALID_TXN_STATE,
            f"it is {transaction.state}; only an ongoing transaction can be aborted",
        )
    # The first request decides the abort, and is answered with CONCURRENT_TRANSACTIONS: the markers are being written.
    client.attempt(lambda: _fence(client, transaction))
    for _ in attempts(client.deadline):
        now = describe_transaction(client, transaction.transactional_id)
        if not now.is_ending:
            break
    return now


def _fence(client: KafkaClient, transaction: TransactionDescription) -> None:
    """Fence the producer of a transaction, unless the transaction has ended."""
    now = _describe(client, transaction.transactional_id)
    if not _is_same(transaction, now):
        return
    request = InitProducerIdRequest(
        transactional_id=transaction.transactional_id,
        # A producer id has its producer's timeout, which the next transaction of a producer that goes on has too.
        transaction_timeout_ms=transaction.timeout_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
    )
    coordinator = client.transaction_coordinator(transaction.transactional_id)
    code = client.ask(coordinator, request, at_least=NAMES_PRODUCER_FROM).error_code
    # Of a transaction that is unchanged the code says that another transition was under way: the request is repeated.
    if code != ErrorCode.CONCURRENT_TRANSACTIONS or _is_same(
        transaction, _describe(client, transaction.transactional_id)
    ):
        check(f"transactional id {transaction.transactional_id!r}", code)


def _is_same(transaction: TransactionDescription, now: TransactionDescription) -> bool:
    """Whether a transaction is still ongoing: each one has a start and, of the newer protocol, an epoch of its own."""
    return (now.state, now.producer_id, now.producer_epoch, now.start_ms) == (
        ONGOING,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.start_ms,
    )


# --- Partitions ---


def describe_producers(
    client: KafkaClient, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, list[ActiveProducer] | Refused]:
    """Return the producers that each partition remembers, or the error that took their place."""

    def ask(
        leader: BrokerConnection, led: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[ActiveProducer] | Refused]:
        topics = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in by_topic(led).items()]
        found: dict[TopicPartition, list[ActiveProducer] | Refused] = {}
        for topic in client.ask(leader, DescribeProducersRequest(topics=topics)).topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                found[partition] = (
                    Refused(f"partition {partition}", each.error_code, each.error_message)
                    if each.error_code
                    else sorted(map(_producer, each.active_producers), key=lambda producer: producer.producer_id)
                )
        return found

    described: dict[TopicPartition, list[ActiveProducer] | Refused] = {}
    remaining = iter(partitions)
    while some := list(islice(remaining, PARTITIONS_PER_REQUEST)):
        described |= ask_leaders(client, some, ask)
    return described


def _producer(state: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        coordinator_epoch=state.coordinator_epoch,
        last_sequence=state.last_sequence,
        last_timestamp_ms=state.last_timestamp,
        transaction_start_offset=None if state.current_txn_start_offset == NONE else state.current_txn_start_offset,
    )


def open_transactions(
    described: Mapping[TopicPartition, list[ActiveProducer] | Refused],
) -> Iterator[OpenTransaction]:
    """Yield the transactions that are open in partitions which were described."""
    for partition, producers in described.items():
        if not isinstance(producers, Refused):
            for producer in producers:
                if producer.transaction_start_offset is not None:
                    yield OpenTransaction(partition, producer)


def hanging(client: KafkaClient, candidates: Collection[OpenTransaction]) -> list[OpenTransaction]:
    """Return those open transactions that no coordinator will end in their partition.

    Raises:
        ClientError: the coordinators could not be asked.
    """
    known = coordinated_partitions(client, {each.producer.producer_id for each in candidates})
    return [each for each in candidates if each.partition not in known.get(each.producer.producer_id, {})]


def coordinated_partitions(
    client: KafkaClient, producer_ids: Collection[int]
) -> dict[int, dict[TopicPartition, TransactionDescription]]:
    """Return, by producer id, the partitions in which a coordinator has yet to end the transaction of that producer.

    Raises:
        ClientError: the coordinators could not be asked.
    """
    if not producer_ids:
        return {}
    found: dict[int, dict[TopicPartition, TransactionDescription]] = {}
    for listed in list_transactions(client, TransactionListFilter(producer_ids=producer_ids)):
        try:
            described = describe_transaction(client, listed.transactional_id)
        except Refused as error:
            # It has expired since it was listed.
            if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                continue
            raise
        found.setdefault(described.producer_id, {}).update(dict.fromkeys(described.partitions, described))
    return found


def abort_in_partition(client: KafkaClient, transaction: OpenTransaction) -> None:
    """End a transaction in one partition by a marker that aborts it.

    The marker has the producer's epoch, so it cannot end a transaction of a later epoch.

    Raises:
        Refused: the partition has a later epoch of the producer or of the coordinator, or cannot be written.
    """
    partition, producer = transaction.partition, transaction.producer
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
        coordinator_epoch=max(producer.coordinator_epoch, OLDEST_COORDINATOR_EPOCH),
    )

    def ask(leader: BrokerConnection, led: Collection[TopicPartition]) -> dict[TopicPartition, int | Refused]:
        subject = f"partition {partition}"
        result = only(client.ask(leader, WriteTxnMarkersRequest(markers=[marker])).markers, subject)
        code = only(only(result.topics, subject).partitions, subject).error_code
        return {partition: Refused(subject, code) if code else code}

    # A marker that is written twice ends nothing the second time.
    outcome = ask_leaders(client, [partition], ask)[partition]
    if isinstance(outcome, Refused):
        raise outcome
