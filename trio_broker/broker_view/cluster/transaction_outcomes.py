"""What has become of the transactions in a part of a log, for the admin app: as its leader knows it, or as it says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from broker_admin.views.cluster.messages import BatchOutcome
from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import BatchHeader
from trio_broker.partition.fetch_operation import FetchedPartition, FetchTarget
from trio_broker.storage.transaction_index import AbortedTransaction


class Outcomes(Protocol):
    """Asked for each batch of a part of a log, in their order."""

    def of(self, header: BatchHeader) -> BatchOutcome | None:
        """What has become of the transaction of a batch; None for one that is in none, and for a marker."""
        ...


@attrs.frozen
class TransactionOutcomes:
    """What has become of the transactions in a part of a log: which were aborted, by producer, and where those that are
    open began.
    """

    aborted: Mapping[int, Sequence[AbortedTransaction]] = attrs.field(factory=dict)
    open_since: Mapping[int, int] = attrs.field(factory=dict)

    def of(self, header: BatchHeader) -> BatchOutcome | None:
        if not header.is_transactional or header.is_control:
            return None
        if any(each.has(header) for each in self.aborted.get(header.producer_id, ())):
            return BatchOutcome.ABORTED
        first_offset = self.open_since.get(header.producer_id)
        if first_offset is not None and header.base_offset >= first_offset:
            return BatchOutcome.OPEN
        return BatchOutcome.COMMITTED


class NamedOutcomes:
    """The same as a Fetch of another broker's says it: from where on the batches of a producer are of an aborted
    transaction, up to its next marker, and up to where all is decided."""

    def __init__(self, aborted_from: Sequence[tuple[int, int]], last_stable_offset: int) -> None:
        """``aborted_from`` has offsets and producer ids, in order."""
        self._aborted_from = list(reversed(aborted_from))
        self._last_stable_offset = last_stable_offset
        self._aborting: set[int] = set()

    def of(self, header: BatchHeader) -> BatchOutcome | None:
        while self._aborted_from and self._aborted_from[-1][0] <= header.base_offset:
            self._aborting.add(self._aborted_from.pop()[1])
        if header.is_control:
            self._aborting.discard(header.producer_id)
            return None
        if not header.is_transactional:
            return None
        if header.base_offset >= self._last_stable_offset:
            return BatchOutcome.OPEN
        return BatchOutcome.ABORTED if header.producer_id in self._aborting else BatchOutcome.COMMITTED


NO_TRANSACTIONS = TransactionOutcomes()


def outcomes_of(target: FetchTarget, result: FetchedPartition) -> TransactionOutcomes:
    """What is known of the transactions in the records that were fetched."""
    if not result.size_bytes or isinstance(target.found, KafkaError):
        return NO_TRANSACTIONS
    log = target.found.log
    aborted: dict[int, list[AbortedTransaction]] = defaultdict(list)
    for each in log.aborted_transactions(target.fetch_offset, target.fetch_offset + result.record_count):
        aborted[each.producer_id].append(each)
    undecided = log.producers.transactions.undecided
    return TransactionOutcomes(aborted, {producer_id: offset for offset, producer_id in undecided.items()})
