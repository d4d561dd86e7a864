"""What a log of transactions was given, and what must be found of it when its end is lost and it is compacted."""

from __future__ import annotations

from bisect import bisect_right

import attrs

from kafka_wire.records.batch import RecordBatch
from tests.storage.committed_records import committed_view
from tests.storage.log_content import found_batches
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.storage.log import Log
from trio_broker.storage.producer_replay import read_transaction_marker
from trio_broker.storage.transaction_index import AbortedTransaction


@attrs.frozen
class Appended:
    """A batch: of a producer's transaction, outside of all (``producer_id`` -1), or with ``committed`` a marker."""

    base_offset: int
    records: tuple[tuple[bytes, bytes], ...]
    producer_id: int = -1
    producer_epoch: int = -1
    last_sequence: int = -1
    committed: bool | None = None

    @property
    def next_offset(self) -> int:
        return self.base_offset + max(len(self.records), 1)


@attrs.define(eq=False)
class Transaction:
    """``stable_offset`` is the last stable offset once its marker is there."""

    producer_id: int
    first_offset: int
    marker_offset: int | None = None
    committed: bool = False
    stable_offset: int = -1

    def as_aborted(self) -> AbortedTransaction:
        assert self.marker_offset is not None
        return AbortedTransaction(self.producer_id, self.first_offset, self.marker_offset, self.stable_offset)


@attrs.define
class Outcome:
    """What the batches of a log come to."""

    transactions: list[Transaction] = attrs.field(factory=list)
    open: dict[int, Transaction] = attrs.field(factory=dict)
    batch_transactions: dict[int, Transaction] = attrs.field(factory=dict)
    """By the base offset of each batch that is in one."""
    last: dict[int, tuple[int, int]] = attrs.field(factory=dict)
    """By producer id: its epoch, and its last sequence there."""

    @classmethod
    def of(cls, batches: list[Appended]) -> Outcome:
        outcome = cls()
        for batch in batches:
            outcome._add(batch)
        return outcome

    def _add(self, batch: Appended) -> None:
        producer_id = batch.producer_id
        if producer_id < 0:
            return
        if batch.committed is None:
            transaction = self.open.get(producer_id)
            if transaction is None:
                transaction = self.open[producer_id] = Transaction(producer_id, batch.base_offset)
                self.transactions.append(transaction)
            self.batch_transactions[batch.base_offset] = transaction
            self.last[producer_id] = (batch.producer_epoch, batch.last_sequence)
            return
        epoch, sequence = self.last.get(producer_id, (-1, -1))
        self.last[producer_id] = (batch.producer_epoch, sequence if epoch == batch.producer_epoch else -1)
        if (ended := self.open.pop(producer_id, None)) is not None:
            ended.marker_offset, ended.committed = batch.base_offset, batch.committed
            first_open = (each.first_offset for each in self.open.values())
            ended.stable_offset = min(first_open, default=batch.next_offset)


@attrs.define(eq=False)
class TransactionHistory:
    """One log: all that is in it, in order, unless the end was lost."""

    partition: TopicPartition
    topic_id: bytes
    config: LogConfig
    is_created: bool = False
    batches: list[Appended] = attrs.field(factory=list)
    durable_end: int = 0
    horizons: dict[int, int] = attrs.field(factory=dict)
    """When the marker at an offset may go at the earliest, in milliseconds, of those that a round has gone over."""

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else 0

    @property
    def is_compacted(self) -> bool:
        return self.config.cleanup_policy.compact

    def note_round(self, end_offset: int, now_ms: int) -> None:
        """A round of compaction begins that goes over what lies before ``end_offset``."""
        for batch in self.batches:
            if batch.committed is not None and batch.base_offset < end_offset:
                self.horizons.setdefault(batch.base_offset, now_ms + self.config.delete_retention_ms)

    def cut_to(self, end_offset: int) -> None:
        """The log ends there now."""
        self.batches = [batch for batch in self.batches if batch.next_offset <= end_offset]
        assert self.end == end_offset, f"{self.partition}: half a batch is left before {end_offset}"
        self.horizons = {offset: horizon for offset, horizon in self.horizons.items() if offset < end_offset}

    # --- What must be found ---

    def check(self, log: Log, now_ms: int) -> None:
        """Compare with the log, which ends where this does."""
        outcome = Outcome.of(self.batches)
        stable = min((each.first_offset for each in outcome.open.values()), default=self.end)
        transactions = log.producers.transactions
        undecided = {each.first_offset: each.producer_id for each in outcome.open.values()}
        assert transactions.undecided == undecided, f"{log}: {transactions.undecided} are open, not {undecided}"
        assert transactions.last_stable_offset(self.end) == stable, f"{log}: {stable} is the last stable offset"
        assert log.durable_stable_offset <= stable, f"{log}: what is open may be compacted"
        self._check_committed(log, outcome, stable)
        self._check_index(log, outcome)
        self._check_markers(log, outcome, now_ms)
        if not self.is_compacted:
            known = {
                producer_id: (entry.producer_epoch, entry.last_sequence)
                for producer_id, entry in log.producers.producers.items()
            }
            assert known == outcome.last, f"{log}: producers"

    def _check_committed(self, log: Log, outcome: Outcome, stable: int) -> None:
        """A reader of committed records gets all of each transaction or nothing, and of a compacted log the newest."""
        visible: dict[int, tuple[bytes, bytes]] = {}
        for batch in self.batches:
            transaction = outcome.batch_transactions.get(batch.base_offset)
            if batch.next_offset <= stable and (transaction is None or transaction.committed):
                visible |= dict(enumerate(batch.records, batch.base_offset))
        found = {each.offset: (each.key, each.value) for each in committed_view(log).records}
        assert found.items() <= visible.items(), f"{log}: {found.items() - visible.items()} were never committed"
        newest = {key: offset for offset, (key, _) in visible.items()}
        missing = (set(newest.values()) if self.is_compacted else visible.keys()) - found.keys()
        assert not missing, f"{log}: {sorted(missing)} were committed"

    def _check_index(self, log: Log, outcome: Outcome) -> None:
        aborted = [each for each in outcome.transactions if each.marker_offset is not None and not each.committed]
        expected = sorted((each.as_aborted() for each in aborted), key=lambda each: each.last_offset)
        indexed = log.aborted_transactions(0, log.log_end_offset)
        if not self.is_compacted:
            assert indexed == expected, f"{log}: the index has {indexed}, not {expected}"
        # Made anew after compaction, an entry may begin later and hold less back: what it leaves out is gone.
        known = {(each.producer_id, each.last_offset): each for each in expected}
        for entry in indexed:
            whole = known.get((entry.producer_id, entry.last_offset))
            assert whole is not None, f"{log}: {entry} was not aborted"
            assert entry.first_offset >= whole.first_offset, f"{log}: {entry}, not {whole}"
            assert entry.last_stable_offset >= whole.last_stable_offset, f"{log}: {entry}, not {whole}"

    def _check_markers(self, log: Log, outcome: Outcome, now_ms: int) -> None:
        """A marker, and the index of what it aborts, stay as long as any batch, and then until the horizon."""
        batches = found_batches(log)
        markers = {batch.header.base_offset for batch in batches if has_marker(batch)}
        indexed = {each.last_offset for each in log.aborted_transactions(0, log.log_end_offset)}
        bases = [batch.base_offset for batch in self.batches]
        for batch in batches:
            if batch.header.is_control or not batch.header.is_transactional:
                continue
            transaction = outcome.batch_transactions[bases[bisect_right(bases, batch.header.last_offset) - 1]]
            if transaction.marker_offset is not None:
                assert transaction.marker_offset in markers, f"{log}: {transaction} has a batch and no marker"
                assert transaction.committed or transaction.marker_offset in indexed, f"{log}: no entry: {transaction}"
        for appended in self.batches:
            if appended.committed is not None and appended.base_offset not in markers:
                horizon = self.horizons.get(appended.base_offset)
                assert self.is_compacted, f"{log}: {appended} is missing"
                assert horizon is not None, f"{log}: {appended} is missing, and no round has gone over it"
                assert now_ms >= horizon, f"{log}: {appended} is gone before its time"


def has_marker(batch: RecordBatch) -> bool:
    return batch.header.is_control and bool(batch.header.record_count) and read_transaction_marker(batch) is not None
