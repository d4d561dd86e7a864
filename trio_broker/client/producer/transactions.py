"""Transactions of producers, as requests to their coordinator; every request is repeated until it is answered.

A transaction is one transactional id with one producer id and epoch. It is begun by InitProducerId, which raises the
epoch, so each transaction has an epoch of its own, and every process that knows the three values can end it: one may
begin a transaction and another one end it. That is the first transaction protocol (KIP-98), which every broker from
0.11 on serves, beside the second one; in the second the epoch is raised by the end, which only one process would learn.

EndTxn may be repeated: a coordinator that has carried it out says so again for as long as the epoch is the same.

Source: Kafka's TransactionManager; KIP-98, KIP-360, KIP-664.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, TypeVar

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.add_partitions_to_txn import (
    BATCHED_SINCE_VERSION,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kafka_wire.messages.end_txn import EPOCH_BUMP_SINCE_VERSION, EndTxnRequest
from kafka_wire.messages.init_producer_id import InitProducerIdRequest
from kafka_wire.messages.list_transactions import ListTransactionsRequest
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.deadline import Deadline, pauses, retry
from trio_broker.client.error_codes import is_retried_by_producers
from trio_broker.client.errors import check
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.client.transactions import ONGOING
from trio_broker.common.topic_partition import TopicPartition, by_topic

T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 0.02
"""Before a request is repeated for the first time: the end of a transaction, which it most often waits for, takes a few
milliseconds. Kafka's TransactionManager.ADD_PARTITIONS_RETRY_BACKOFF_MS."""

ENDED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
"""Codes that say that the transaction is not open any more: it timed out, its id was taken over, or it was ended."""


@attrs.frozen(order=True)
class Transaction:
    """A transaction: its transactional id, and the producer that has it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionClient:
    """Asks the coordinators of transactions. Use it as a context manager, or call ``close``.

    An answer is waited for ``request_seconds``; a request is repeated for ``block_seconds``. ``deadline_after`` starts
    a deadline by the clock of its user.
    """

    def __init__(
        self,
        connection: ConnectionSettings,
        *,
        request_seconds: float,
        block_seconds: float,
        deadline_after: Callable[[float], Deadline] = Deadline,
    ) -> None:
        self._request_seconds = request_seconds
        self._block_seconds = block_seconds
        self._deadline_after = deadline_after
        self.client = KafkaClient(connection, deadline_after(request_seconds))

    def __enter__(self) -> TransactionClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; transactions that are open stay open."""
        self.client.close()

    def begin(self, transactional_id: str, timeout_ms: int) -> Transaction:
        """Return a new transaction, once the one that ``transactional_id`` had before is ended: aborted if it was open.

        Raises:
            ClientError: no coordinator answered in time, or it refuses.
        """

        def ask() -> Transaction:
            request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
            response = self.client.ask(self.client.transaction_coordinator(transactional_id), request)
            check(f"transactional id {transactional_id!r}", response.error_code)
            return Transaction(transactional_id, response.producer_id, response.producer_epoch)

        return self.retry(ask)

    def add_partitions(self, transaction: Transaction, partitions: Collection[TopicPartition]) -> None:
        """Make partitions part of an open transaction; nothing changes for those that are part of it already.

        Raises:
            Refused: the transaction is not open any more (``ENDED``), or a partition does not exist or is not allowed.
            ClientError: no coordinator answered in time.
        """
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transaction.transactional_id,
            v3_and_below_producer_id=transaction.producer_id,
            v3_and_below_producer_epoch=transaction.producer_epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic(partitions).items()
            ],
        )

        def ask() -> None:
            coordinator = self.client.transaction_coordinator(transaction.transactional_id)
            response = self.client.ask(coordinator, request, at_most=BATCHED_SINCE_VERSION - 1)
            codes = {
                TopicPartition(topic.name, each.partition_index): each.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for each in topic.results_by_partition
            }
            # Last those that were not looked at because another one was refused, which says more.
            for partition in sorted(partitions, key=lambda each: codes.get(each) == ErrorCode.OPERATION_NOT_ATTEMPTED):
                # A partition that the broker left out of its answer counts as UNKNOWN_SERVER_ERROR.
                code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
                check(f"{partition} in the transaction of {transaction.transactional_id!r}", code)

        self.retry(ask)

    def end(self, transaction: Transaction, *, commit: bool) -> None:
        """Commit or abort; the decision is durable when this returns. A transaction that has ended so may be ended
        again.

        Raises:
            Refused: it has ended otherwise, or its id has begun another one (``ENDED``).
            ClientError: no coordinator answered in time.
        """
        request = EndTxnRequest(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            committed=commit,
        )

        def ask() -> None:
            coordinator = self.client.transaction_coordinator(transaction.transactional_id)
            response = self.client.ask(coordinator, request, at_most=EPOCH_BUMP_SINCE_VERSION - 1)
            check(f"transaction of {transaction.transactional_id!r}", response.error_code)

        self.retry(ask)

    def open_ids(self, prefix: str) -> list[str]:
        """Return the transactional ids that begin with ``prefix`` and have an open transaction, in order.

        Raises:
            VersionNotServed: a broker is too old to list them, before Kafka 3.0.
            ClientError: a broker did not answer in time.
        """

        def ask() -> list[str]:
            found: set[str] = set()
            request = ListTransactionsRequest(state_filters=[ONGOING], producer_id_filters=[])
            for node in self.client.brokers().nodes:
                response = self.client.ask(self.client.node(node.node_id), request)
                check(f"transactions of broker {node.node_id}", response.error_code)
                found.update(each.transactional_id for each in response.transaction_states)
            return sorted(each for each in found if each.startswith(prefix))

        return self.retry(ask)

    def retry(self, ask: Callable[[], T]) -> T:
        """Return what ``ask`` returns, and call it again until then while another attempt may help.

        Raises:
            ClientError: its last error.
        """
        deadline = self._deadline_after(self._block_seconds)

        def attempt() -> T:
            self.client.deadline = deadline.within(self._request_seconds)
            return ask()

        return retry(
            attempt, deadline, is_retried_by_producers, lambda _: self.client.forget(), pauses(FIRST_PAUSE_SECONDS)
        )
