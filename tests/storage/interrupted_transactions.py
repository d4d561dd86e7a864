"""Logs of transactions on a simulated disk, through power cuts, kills and stops, beside the history of each.

As ``InterruptedLogs``, with a plain and a compacted log that have transactions of several producers and of both
protocols, and rounds of compaction during which all of that goes on. With ``syncs`` (``log.durability=fsync``) a
last stable offset counts as far as the log is synced, without as far as it goes. After each start and each round

* what was synced is there, and everything after a kill or a stop;
* a reader of committed records gets no record of an aborted or open transaction, and all of each committed one, or of a
  compacted log the newest record of each key;
* last stable offset, open transactions, ``.txnindex`` and producers are those of the batches before the end of the log;
* markers stay as long as they are needed, and then until their delete horizon.
"""

from __future__ import annotations

import attrs

from kafka_wire.records.batch import build_batch
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.record import NewRecord
from tests.storage.compaction_harness import Round, planned
from tests.storage.interrupted_logs import COMPACTED, LEGAL_PROBLEMS, PLAIN, DiskFailed, End, InterruptedLogs
from tests.storage.managed_logs import create_log
from tests.storage.transaction_history import Appended, Outcome, TransactionHistory
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.log import Log

PRODUCERS = (1, 2, 3)
SECOND_PROTOCOL = 3
"""The producer that raises its epoch with each end."""
KEYS = 4
DELETE_RETENTION_MS = 4000
LONG_AGO_MS = 10**12
CONFIGS = {
    TopicPartition("plain", 0): attrs.evolve(PLAIN, retention_bytes=-1),
    TopicPartition("compacted", 0): attrs.evolve(COMPACTED, delete_retention_ms=DELETE_RETENTION_MS),
}
WEIGHTS_IN_A_ROUND = 0.15
"""How likely something else happens before each step of a round."""


class InterruptedTransactions(InterruptedLogs):
    """See the head of the file."""

    def __init__(self, seed: int, *, cut_before: int | None = None, syncs: bool = True) -> None:
        super().__init__(seed, cut_before=cut_before, syncs=syncs)
        self.histories = {
            partition: TransactionHistory(partition, number.to_bytes(16, "big"), config)
            for number, (partition, config) in enumerate(CONFIGS.items(), 1)
        }

    def _config_for(self, partition: TopicPartition, topic_id: bytes) -> LogConfig | None:
        return CONFIGS[partition]

    def _stop(self) -> None:
        assert self._manager.close()
        for history in self.histories.values():
            history.durable_end = history.end

    # --- What the logs do ---

    def _step(self) -> None:
        self.clock.advance(self.chance.choice((0.001, 0.1, 3.0)))
        missing = [history for history in self.histories.values() if not history.is_created]
        if missing:
            create_log(self._manager, missing[0].partition, missing[0].topic_id, missing[0].config)
            missing[0].is_created = True
            return
        history = self.chance.choice(list(self.histories.values()))
        self._change(history, self._manager.logs[history.partition], may_compact=history.is_compacted)

    def _change(self, history: TransactionHistory, log: Log, *, may_compact: bool) -> None:
        steps = {
            "write": 6.0,
            "write in a transaction": 9.0,
            "end": 5.0,
            "roll": 2.0,
            "sync": 5.0 if self._syncs else 1.0,
            "end during a sync": 1.0,
            "checkpoints": 1.0,
            "forget producers": 0.3 if history.is_compacted else 0.0,
        }
        if may_compact:
            steps["compact"] = 4.0
        (step,) = self.chance.choices(tuple(steps), weights=tuple(steps.values()))
        self.story.append(f"{log}: {step}")
        match step:
            case "write":
                self._write(history, log, -1)
            case "write in a transaction":
                self._write(history, log, self.chance.choice(PRODUCERS))
            case "end":
                self._end(history, log)
            case "roll":
                log.roll(self.clock.now_ms())
            case "sync":
                log.sync()
                history.durable_end = history.end
            case "end during a sync":
                synced = log.sync_files()
                self._end(history, log)
                history.durable_end = max(history.durable_end, log.note_synced(synced))
            case "checkpoints":
                self._checkpoint()
            case "forget producers":
                log.producers.remove_expired(self.clock.now_ms() + LONG_AGO_MS, 1)
            case "compact":
                self._compact_in_turns(history, log)

    def _write(self, history: TransactionHistory, log: Log, producer_id: int) -> None:
        records = tuple(
            (b"k%d" % self.chance.randrange(KEYS), self._next_value()) for _ in range(self.chance.choice((1, 1, 2, 4)))
        )
        epoch = sequence = -1
        if producer_id >= 0:
            epoch, sequence = self._next_in_line(history, log, producer_id)
        data = build_batch(
            [NewRecord(self.clock.now_ms(), key, value) for key, value in records],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=producer_id >= 0,
        )
        last_sequence = sequence + len(records) - 1 if producer_id >= 0 else -1
        history.batches.append(Appended(history.end, records, producer_id, epoch, last_sequence))
        info = log.append(bytearray(data), leader_epoch=0, now_ms=self.clock.now_ms())
        assert info.last_offset + 1 == history.end

    def _next_in_line(self, history: TransactionHistory, log: Log, producer_id: int) -> tuple[int, int]:
        """The epoch of a producer and its next sequence, as the log knows them: it may have forgotten the producer."""
        entry = log.producers.producers.get(producer_id)
        if entry is None:
            return Outcome.of(history.batches).last.get(producer_id, (0, -1))[0], 0
        return entry.producer_epoch, entry.last_sequence + 1

    def _end(self, history: TransactionHistory, log: Log) -> None:
        """Let a coordinator end a transaction, in some turns one that it does not know to be ended."""
        transactions = Outcome.of(history.batches).open
        producer_id = self.chance.choice(list(transactions) or PRODUCERS)
        epoch = self._next_in_line(history, log, producer_id)[0] + (producer_id == SECOND_PROTOCOL)
        committed = self.chance.random() < 0.5
        marker = EndTransactionMarker(committed, 0)
        now_ms = self.clock.now_ms()
        data = build_control_batch(marker, timestamp=now_ms, producer_id=producer_id, producer_epoch=epoch)
        history.batches.append(Appended(history.end, (), producer_id, epoch, committed=committed))
        log.append(bytearray(data), leader_epoch=0, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)

    def _checkpoint(self) -> None:
        if self._manager.checkpoints.write():
            raise DiskFailed

    def _compact_in_turns(self, history: TransactionHistory, log: Log) -> None:
        now_ms = self.clock.now_ms()
        visible = log.recovery_point if self._syncs else log.log_end_offset
        stable = log.producers.transactions.last_stable_offset(visible)
        if not planned(log, now_ms, stable, sync=False).dirty_bytes:
            return
        this_round = Round(log, now_ms, stable_offset=stable, sync=False)
        history.note_round(this_round.compacted.end_offset, now_ms)
        for step in this_round.steps():
            if step == "rewrite":
                # As the cleaner does before a record goes: a start takes gaps behind the recovery point for damage.
                self._checkpoint()
            if self.chance.random() < WEIGHTS_IN_A_ROUND:
                self._change(history, log, may_compact=False)
        history.check(log, now_ms)

    # --- What must be left ---

    def check(self, end: End) -> None:
        """Compare the logs with their histories, which then end where the logs do."""
        report = self._manager.load_report
        assert not report.failures, report.failures
        for problem in (problem for item in report.recovered for problem in item.problems):
            assert any(each in problem for each in LEGAL_PROBLEMS), f"no power cut leaves this: {problem}"
        self.story.append(f"started after {end.value}: {self._manager.logs}")
        for history in self.histories.values():
            log = self._manager.logs.get(history.partition)
            if log is None:
                assert not history.durable_end, f"{history.partition} is gone"
                history.cut_to(0)
                history.is_created = False
                continue
            history.is_created = True
            assert log.log_end_offset >= history.durable_end, f"{log}: {history.durable_end} was synced"
            assert end is End.POWER_CUT or log.log_end_offset == history.end, f"{log}: lost by a {end.value}"
            history.cut_to(log.log_end_offset)
            history.check(log, self.clock.now_ms())
            if end is End.POWER_CUT:
                history.durable_end = history.end
