"""Compaction against a list: whatever is appended, ended, rolled, compacted, stopped, killed and lost to a power cut,
the newest committed value of each key is there, at its offset, and tombstones live as long as they must.
"""

from __future__ import annotations

import shutil
import tempfile
from fractions import Fraction
from pathlib import Path
from typing import TypeAlias

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.compression import Codec
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.record import NewRecord, Record
from tests.property_examples import examples
from tests.storage.committed_records import committed_view
from tests.storage.compaction_harness import Round
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage import file_names
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.log import Log
from trio_broker.storage.offset_map import SLOT_BYTES
from trio_broker.storage.recovery import open_log

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("model", 0)
DELETE_RETENTION_MS = 1000
FOREVER_MS = 10**15

Records: TypeAlias = list[tuple[bytes, bytes | None]]

BATCHES = st.lists(
    st.lists(
        st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.none() | st.binary(max_size=40)), min_size=1, max_size=4
    ),
    min_size=1,
    max_size=4,
)


def made_of(records: Records) -> list[NewRecord]:
    return [NewRecord(NOW_MS, key, value) for key, value in records]


@attrs.define(eq=False)
class Transaction:
    producer_id: int
    marker_offset: int | None = None
    committed: bool = False


@attrs.define(eq=False)
class Written:
    """A record the model knows of."""

    offset: int
    key: bytes
    value: bytes | None
    transaction: Transaction | None
    horizon_ms: int = FOREVER_MS

    @property
    def is_committed(self) -> bool:
        return self.transaction is None or self.transaction.committed


class CompactedLogMachine(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.sampled_from([300, 700, 100_000]), index_interval_bytes=st.sampled_from([0, 100, 4096])
    )
    def begin(self, segment_bytes: int, index_interval_bytes: int) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.generation = 0
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            cleanup_policy=CleanupPolicy(delete=False, compact=True),
            delete_retention_ms=DELETE_RETENTION_MS,
        )
        self.now_ms = NOW_MS
        self.written: list[Written] = []
        self.open: list[Transaction] = []
        self.transactions = 0
        self.older_checkpoint: int | None = None
        self.producer_id = 0
        self.begin_producer()
        self.log = self.opened(clean=False, recovery_point=0)

    def begin_producer(self) -> None:
        self.producer_id += 1
        self.sequence = 0
        self.last_batch = b""

    @property
    def directory(self) -> Path:
        return self.root / str(self.generation)

    def opened(self, *, clean: bool, recovery_point: int) -> Log:
        found = open_log(
            RealDisk(),
            self.directory,
            PARTITION,
            bytes(range(16)),
            self.config,
            recovery_point=recovery_point,
            log_start_offset=0,
            clean=clean,
            now_ms=NOW_MS,
        )
        assert (found.report.problems, found.report.cut_bytes) == ([], 0)
        return found.log

    # --- What happens to the log

    def note(self, offset: int, records: Records, transaction: Transaction | None) -> None:
        self.written += [Written(offset + index, key, value, transaction) for index, (key, value) in enumerate(records)]

    @rule(batches=BATCHES, codec=st.sampled_from([Codec.NONE, Codec.GZIP]))
    def append(self, batches: list[Records], codec: Codec) -> None:
        for records in batches:
            info = self.log.append(build_batch(made_of(records), codec=codec), leader_epoch=0, now_ms=NOW_MS)
            self.note(info.first_offset, records, None)

    @rule(batches=BATCHES)
    def append_idempotently(self, batches: list[Records]) -> None:
        for records in batches:
            self.last_batch = build_batch(
                made_of(records), producer_id=self.producer_id, producer_epoch=0, base_sequence=self.sequence
            )
            info = self.log.append(self.last_batch, leader_epoch=0, now_ms=NOW_MS)
            self.sequence += len(records)
            self.note(info.first_offset, records, None)

    @rule(batches=BATCHES, end=st.sampled_from(["commit", "abort", "abort", "later"]))
    def append_in_transaction(self, batches: list[Records], end: str) -> None:
        self.end_transactions(committed=True)
        self.transactions += 1
        transaction = Transaction(1000 + self.transactions)
        sequence = 0
        for records in batches:
            batch = build_batch(
                made_of(records),
                producer_id=transaction.producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
            info = self.log.append(batch, leader_epoch=0, now_ms=NOW_MS)
            sequence += len(records)
            self.note(info.first_offset, records, transaction)
        self.open.append(transaction)
        if end != "later":
            self.end_transactions(committed=end == "commit")

    def end_transactions(self, *, committed: bool) -> None:
        for transaction in self.open:
            producer_id = transaction.producer_id
            marker = build_control_batch(
                EndTransactionMarker(committed, 0), timestamp=NOW_MS, producer_id=producer_id, producer_epoch=0
            )
            info = self.log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
            transaction.marker_offset, transaction.committed = info.first_offset, committed
        self.open.clear()

    @rule(
        rolls=st.sampled_from([True, True, False]),
        map_bytes=st.sampled_from([1 << 16, 1 << 16, SLOT_BYTES * 5]),
        sync=st.sampled_from([True, True, False]),
    )
    def compact(self, rolls: bool, map_bytes: int, sync: bool) -> None:
        if rolls:
            self.log.roll(NOW_MS)
        self.older_checkpoint = self.log.first_dirty_offset
        this_round = Round(self.log, self.now_ms, map_bytes=map_bytes, sync=sync)
        end_offset = self.log.log_end_offset
        for _ in this_round.steps():
            pass
        assert self.log.log_end_offset == end_offset
        rewritten = max(
            (each.next_offset for each in self.log.segments if each.base_offset < this_round.cleaning.end_offset),
            default=0,
        )
        for written in self.written:
            if written.value is None and written.offset < rewritten:
                written.horizon_ms = min(written.horizon_ms, self.now_ms + DELETE_RETENTION_MS)

    @rule(step_ms=st.sampled_from([1, DELETE_RETENTION_MS - 1, DELETE_RETENTION_MS]))
    def time_passes(self, step_ms: int) -> None:
        self.now_ms += step_ms

    @rule(
        what=st.sampled_from(
            ["restart", "kill", "older checkpoint", "no snapshots", "no snapshots", "power cut", "forget", "sync"]
        )
    )
    def something_happens(self, what: str) -> None:
        match what:
            case "restart":
                checkpoint = self.log.first_dirty_offset
                self.log.close()
                self.log = self.opened(clean=True, recovery_point=self.log.log_end_offset)
                self.log.first_dirty_offset = checkpoint
            case "kill":
                self.reopen_copy()
            case "older checkpoint":
                self.log.first_dirty_offset = self.older_checkpoint
                self.reopen_copy()
            case "no snapshots":
                for path in self.directory.glob("*.snapshot"):
                    path.unlink()
                self.reopen_copy()
            case "power cut":
                self.cut_the_power()
            case "forget":
                self.log.producers.remove_expired(NOW_MS + FOREVER_MS, 1)
                self.begin_producer()
            case "sync":
                self.log.sync()

    def cut_the_power(self) -> None:
        """Nothing is left of what had not been synced."""
        recovery_point = self.log.recovery_point
        self.reopen_copy(cut_at=recovery_point)
        self.written = [each for each in self.written if each.offset < recovery_point]
        for transaction in {each.transaction for each in self.written if each.transaction}:
            if transaction.marker_offset is not None and transaction.marker_offset >= recovery_point:
                transaction.marker_offset, transaction.committed = None, False
                self.open.append(transaction)
        kept = {each.transaction for each in self.written}
        self.open = [each for each in self.open if each in kept]
        self.begin_producer()

    def reopen_copy(self, cut_at: int | None = None) -> None:
        """The files as they are, or as far as they were synced, opened without a word from the old log."""
        checkpoint, recovery_point = self.log.first_dirty_offset, self.log.recovery_point
        old, self.generation = self.directory, self.generation + 1
        shutil.copytree(old, self.directory)
        for segment in self.log.segments:
            if cut_at is not None and segment.next_offset > cut_at:
                self.cut(segment.base_offset, cut_at)
        self.log.release()
        self.log = self.opened(clean=False, recovery_point=recovery_point)
        self.log.first_dirty_offset = checkpoint

    def cut(self, base_offset: int, end_offset: int) -> None:
        """Leave of a copied segment what lies before ``end_offset``."""
        path = file_names.segment_path(self.directory, base_offset, ".log")
        kept = [batch for batch in read_batches(path.read_bytes()) if batch.header.last_offset < end_offset]
        path.write_bytes(b"".join(bytes(batch.buffer) for batch in kept))

    # --- What must be true

    @invariant()
    def the_newest_values_are_there(self) -> None:
        if not hasattr(self, "log"):
            return
        view = committed_view(self.log)
        stable = self.log.producers.transactions.last_stable_offset(self.log.log_end_offset)
        assert stable == min(
            (each.offset for each in self.written if each.transaction in self.open), default=self.log.log_end_offset
        )
        visible = [each for each in self.written if each.is_committed and each.offset < stable]
        by_offset = {each.offset: each for each in visible}
        for record in view.records:
            assert self.same(record, by_offset[record.offset])
        newest = {each.key: each for each in visible}
        assert view.values == {key: (each.offset, each.value) for key, each in newest.items() if each.value is not None}
        there = {record.offset for record in view.records}
        for written in newest.values():
            if written.value is None and self.now_ms < written.horizon_ms:
                assert written.offset in there, "a tombstone went before its time"

    @staticmethod
    def same(record: Record, written: Written) -> bool:
        return (record.key, record.value, record.timestamp) == (written.key, written.value, NOW_MS)

    @invariant()
    def the_last_batch_of_a_producer_is_known(self) -> None:
        if getattr(self, "last_batch", b""):
            assert self.log.append(self.last_batch, leader_epoch=0, now_ms=NOW_MS).duplicate

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.release()
            shutil.rmtree(self.root)


TestCompactedLogModel = CompactedLogMachine.TestCase
TestCompactedLogModel.settings = settings(examples(Fraction(1, 2)), stateful_step_count=30)
