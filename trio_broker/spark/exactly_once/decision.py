"""What the driver has decided about a batch of a job: which transactions are committed and which must be aborted."""

from __future__ import annotations

import json
from typing import Final

import attrs

from trio_broker.client.producer.transactions import Transaction
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import SparkJobError

VERSION: Final = 1
"""The version of a decision's bytes; other versions are refused."""


@attrs.frozen
class TaskTransaction:
    """The open transaction that a task has written; ``partition`` is one of its partitions."""

    transaction: Transaction
    task: int
    record_count: int
    partition: TopicPartition


@attrs.frozen
class Decision:
    """The newest decision of a job. ``is_done`` says that every transaction in it has been ended.

    ``condemned`` are transactional ids whose open transactions no decision may have any more.
    """

    batch: int
    committed: tuple[TaskTransaction, ...]
    condemned: tuple[str, ...] = ()
    is_done: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether there is no transaction to end."""
        return not self.committed and not self.condemned

    @property
    def done(self) -> Decision:
        """The decision once it is carried out; nothing is condemned any more."""
        return attrs.evolve(self, condemned=(), is_done=True)

    def to_bytes(self) -> bytes:
        """Return the value of the record."""
        committed = [
            [
                *attrs.astuple(each.transaction),
                each.task,
                each.record_count,
                each.partition.topic,
                each.partition.partition,
            ]
            for each in self.committed
        ]
        document = {
            "version": VERSION,
            "batch": self.batch,
            "done": self.is_done,
            "committed": committed,
            "condemned": list(self.condemned),
        }
        return json.dumps(document).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Decision:
        """Parse what ``to_bytes`` returned.

        Raises:
            SparkJobError: it is damaged, or of another version.
        """
        try:
            found = json.loads(value)
            if found["version"] != VERSION:
                raise ValueError(f"version {found['version']!r}, expected {VERSION}")
            committed = tuple(
                TaskTransaction(Transaction(name, producer, epoch), task, records, TopicPartition(topic, partition))
                for name, producer, epoch, task, records, topic, partition in found["committed"]
            )
            return cls(found["batch"], committed, tuple(found["condemned"]), found["done"])
        except (KeyError, TypeError, ValueError) as error:
            raise SparkJobError(f"a decision about a batch cannot be read: {error!r}") from error
