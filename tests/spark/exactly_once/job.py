"""A job that writes exactly once, without Spark: its tasks are calls, and its drivers come and go."""

from __future__ import annotations

from uuid import uuid4

import attrs
import pyarrow as pa

from tests.spark.producer.consumed_records import read_back, values_of
from trio_broker.client.address import parse_addresses
from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.client.producer.settings import DEFAULT_TRANSACTION_TIMEOUT_MS, ProducerSettings
from trio_broker.spark.exactly_once.committer import ID_PREFIX, Committer
from trio_broker.spark.exactly_once.decision import Decision, TaskTransaction
from trio_broker.spark.exactly_once.decision_log import DecisionLog
from trio_broker.spark.exactly_once.lost_transactions import LostTransactions
from trio_broker.spark.exactly_once.task_transactions import TransactionalIds
from trio_broker.spark.producer.record_writer import RecordWriter

COMMITS = "commits"


@attrs.define
class Job:
    """A job that writes to a topic of one partition; its tasks are calls of ``write``."""

    servers: str
    topic: str
    name: str = attrs.field(factory=lambda: f"stream-{uuid4()}")
    ids: TransactionalIds = attrs.field(factory=TransactionalIds)
    timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS

    @property
    def settings(self) -> ProducerSettings:
        servers = parse_addresses(self.servers)
        return ProducerSettings(servers, transaction_timeout_ms=self.timeout_ms)

    @property
    def driver(self) -> Committer:
        return Committer(self.settings, COMMITS, self.name)

    def driver_with(self, lost_transactions: LostTransactions) -> Committer:
        return attrs.evolve(self.driver, lost_transactions=lost_transactions)

    def write(self, batch: int, *values: bytes, task: int = 0) -> TaskTransaction:
        with BatchProducer(self.settings) as producer:
            transaction = producer.begin_transaction(self.ids.take(self.name, batch))
            with RecordWriter(self.settings, topic=self.topic, producer=producer) as writer:
                writer.write(pa.record_batch({"value": pa.array(values, pa.binary())}))
            [partition] = producer.transaction_partitions
        return TaskTransaction(transaction, task, len(values), partition)

    def decisions(self) -> DecisionLog:
        """A driver's access to its decisions; its exit closes it."""
        return DecisionLog(self.settings, COMMITS, ID_PREFIX + self.name)

    def decide(self, batch: int, *written: TaskTransaction) -> None:
        """As a driver that dies between its decision and the end of the first transaction."""
        with self.decisions() as decisions:
            decisions.take_over()
            decisions.write(Decision(batch, written))

    def abort(self, written: TaskTransaction) -> None:
        """As the broker does when a transaction has timed out."""
        with BatchProducer(self.settings) as producer:
            producer.begin_transaction(written.transaction.transactional_id)

    def open_ids(self) -> list[str]:
        """The ids of the transactions that tasks have left open."""
        with BatchProducer(self.settings) as producer:
            return producer.transaction_client.open_ids(f"{ID_PREFIX}{self.name}.")

    def read(self) -> list[bytes | None]:
        """What is committed; it must be everything that is not aborted, so nothing may be open."""
        return values_of(read_back(self.servers, self.topic, 1)[0])
