"""The transactional ids of this process. No other process begins a transaction with them, so none can abort one.

An id is used again once its transaction has ended: the driver begins a batch only after the one before it was
committed, so an id that was used in an earlier batch of a job is free. Within a batch each attempt of each task has its
own.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import attrs

from trio_broker.client.errors import ClientError
from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.client.producer.transactions import Transaction
from trio_broker.spark.exactly_once.committer import ID_PREFIX
from trio_broker.spark.exactly_once.decision import TaskTransaction

MOST_JOBS: Final = 100
"""Jobs of which ids are kept; those of the oldest are forgotten, and their next tasks use new ones."""


@attrs.define
class TransactionalIds:
    """The ids, and the last batch in which each was used, by job."""

    _used: dict[str, dict[str, int]] = attrs.field(factory=lambda: defaultdict(dict))

    def take(self, job: str, batch: int) -> str:
        """Return an id that no open transaction of the job has."""
        used = self._used[job]
        free = next((each for each, last in used.items() if last < batch), None)
        name = free or f"{ID_PREFIX}{job}.{uuid.uuid4().hex}"
        used[name] = batch
        if len(self._used) > MOST_JOBS:
            del self._used[next(iter(self._used))]
        return name


IDS: Final = TransactionalIds()
"""Those of this process; empty in every worker when it starts, since the process that forks workers never writes."""


@contextmanager
def in_transaction(producer: BatchProducer, job: str | None, batch: int) -> Iterator[Transaction | None]:
    """Have the block write in a transaction of ``job``, which stays open behind it, and is aborted after an error.

    Without a job the block writes outside of transactions.
    """
    if job is None:
        yield None
        return
    begun = producer.begin_transaction(IDS.take(job, batch))
    try:
        yield begun
    except Exception:
        # Readers need not wait for the timeout. What this does not reach, the next commit of the job aborts.
        if producer.transaction_partitions:
            with suppress(ClientError):
                producer.transaction_client.end(begun, commit=False)
        raise


def written_in(
    producer: BatchProducer, begun: Transaction | None, task: int, record_count: int
) -> TaskTransaction | None:
    """Return what a task has written in its transaction, for the driver; None if that is nothing, or without one."""
    partitions = producer.transaction_partitions
    return TaskTransaction(begun, task, record_count, min(partitions)) if begun and partitions else None
