"""The logs of a broker on a simulated disk, through power cuts, kills and stops, beside a model of what must be left.

Everything follows from a seed: what is appended, synced, retired, cut and compacted, where the power goes, and what
survives of what was not synced. After each start the logs are compared with the model:

* what was synced is there, with the offsets it got, in one row; so is everything after a kill or a clean stop;
* what is there was written, at this offset and in this epoch, and not cut before the last sync;
* leader epochs, producers and open and aborted transactions are those of the records that are there;
* the log start offset lies between the last one that was durable and the last one asked for;
* of a compacted log the newest record of each key is there;
* a cut during a start changes nothing of this.
"""

from __future__ import annotations

import enum
import errno
import random
from collections.abc import Callable
from pathlib import PurePath

import attrs

from kafka_wire.records.batch import build_batch, read_batches
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from kafka_wire.records.record import NewRecord
from tests.storage.compaction_harness import Round, planned
from tests.storage.followed_log import truncate_log
from tests.storage.log_content import (
    Written,
    check_epochs,
    check_producers,
    check_reads,
    found_batches,
    found_records,
)
from tests.storage.managed_logs import create_log, delete_logs, load_logs, remove_expired_files
from tests.storage.partition_model import PartitionModel
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.disk_trace import DiskOperation
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_volume import ProcessEnded
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.log import Log
from trio_broker.storage.log_manager import LogManager

DATA = PurePath("/data")
KEYS = 6
PLAIN = LogConfig(
    internal_segment_bytes=900,
    segment_index_bytes=80,
    index_interval_bytes=150,
    retention_bytes=4000,
    retention_ms=-1,
    file_delete_delay_ms=1000,
)
COMPACTED = attrs.evolve(
    PLAIN, retention_bytes=-1, cleanup_policy=CleanupPolicy(delete=False, compact=True), delete_retention_ms=10_000
)
PLENTY = 1 << 40
LONGEST_LIFE = 250
"""Operations that change the disk, of a life that a power cut ends."""


LEGAL_PROBLEMS = ("cut ", "the log now ends at", "was torn and is put right", "which its file lacks")
"""What a start may say of what a power cut has left: torn tails, holes in what was never synced, torn headers of
batches that are whole otherwise, and leader epochs that are ahead of the log start. All else is said of damage."""


class End(enum.Enum):
    """How a life ended."""

    POWER_CUT = "power cut"
    KILL = "kill"
    STOP = "stop"


class DiskFailed(Exception):
    """The disk failed so that the broker would give up the data directory. The process is ended then."""


class InterruptedLogs:
    """See the head of the file. ``cut_before`` cuts the first life before the operation of that number.

    With ``faults`` the disk also fails: what is written and synced, and the names, and it is full now and then. A full
    disk must leave a log as it was. After any other error the process is killed, or the power cut. Without ``syncs``
    nobody asks a log to sync what it appended, as a broker of ``log.durability=page-cache`` does not.
    """

    def __init__(self, seed: int, *, cut_before: int | None = None, faults: bool = False, syncs: bool = True) -> None:
        self.chance, self.ids = random.Random(seed), random.Random(seed)
        self.clock = ManualClock()
        self.disk = SimulatedDisk(self.clock, seed)
        self.disk.make_directory(DATA.parent)
        self.models: dict[TopicPartition, PartitionModel] = {}
        self.manager: LogManager | None = None
        self.changes = 0
        """Operations that changed the disk in this life."""
        self.story: list[str] = []
        self._cut_before = cut_before
        self._has_faults = faults
        self._syncs = syncs
        self._was_hit = False
        self._power_left: int | None = None
        self._values = 0
        self._survivor: SimulatedDisk | None = None
        self._topics = 0
        self.disk.trace.before = self._observe

    # --- Lives ---

    def run(self, lives: int = 3, steps: int = 25) -> None:
        """Live several lives, and check what each leaves to the next."""
        self._power_left = self._cut_before
        end = End.POWER_CUT
        for life in range(lives):
            if life or self._interrupted(self._open):
                self._start_again(end)
            if life or self._cut_before is None:
                self._power_left = self.chance.randrange(LONGEST_LIFE)
            end = self._live(steps)
        self._start_again(end)

    def _live(self, steps: int) -> End:
        if self._has_faults:
            self._begin_faults()
        try:
            for _ in range(steps):
                if self._interrupted(self._step):
                    return End.POWER_CUT
        except DiskFailed:
            self._power_left = None
            self._was_hit = True
            return self._kill() if self.chance.random() < 0.5 else self._cut_power()
        self._end_faults()
        end = self.chance.choice(tuple(End))
        self.story.append(f"ends by {end.value}")
        match end:
            case End.STOP:
                if self._interrupted(self._stop):
                    return End.POWER_CUT
                # What a clean stop leaves must not depend on the power either.
                if self.chance.random() < 0.5:
                    self._take_over(self.disk.power_cut(self.chance))
            case End.KILL:
                self._kill()
            case End.POWER_CUT:
                self._cut_power()
        return end

    def _kill(self) -> End:
        self._take_over(self.disk.crash())
        return End.KILL

    def _cut_power(self) -> End:
        self._take_over(self.disk.power_cut(self.chance))
        return End.POWER_CUT

    def _begin_faults(self) -> None:
        faults, chance = self.disk.faults, self.chance
        faults.short_writes = chance.choice((0.0, 0.3))
        faults.failing_writes = chance.choice((0.0, 0.0, 0.01))
        faults.failing_names = chance.choice((0.0, 0.0, 0.01))
        faults.failing_syncs = chance.choice((0.0, 0.02, 0.1))
        faults.failing_directory_syncs = chance.choice((0.0, 0.0, 0.05))
        if chance.random() < 0.3:
            used = faults.total_bytes - self.disk.space(DATA).usable_bytes
            faults.total_bytes = used + chance.randrange(20_000)

    def _end_faults(self) -> None:
        faults = self.disk.faults
        faults.short_writes = faults.failing_writes = faults.failing_names = 0.0
        faults.failing_syncs = faults.failing_directory_syncs = 0.0
        faults.total_bytes = PLENTY

    def _start_again(self, end: End) -> None:
        """Open the logs, in some lives after cuts during the start, and compare."""
        while self.chance.random() < 0.4:
            self._power_left = self.chance.randrange(40)
            if self._interrupted(self._open):
                self.story.append("power cut during the start")
                end = End.POWER_CUT
                continue
            self._power_left = None
            self.check(end)
            self._take_over(self.disk.power_cut(self.chance))
            self.story.append("power cut after the start")
            end = End.POWER_CUT
        self._power_left = None
        self._open()
        self.check(end)

    def _interrupted(self, act: Callable[[], None]) -> bool:
        """Do something; return whether the power was cut meanwhile."""
        try:
            act()
        except ProcessEnded:
            assert self._survivor is not None
            self._take_over(self._survivor)
            return True
        return False

    def _take_over(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self._end_faults()
        self._survivor = None
        self._power_left = None
        self.manager = None

    def _observe(self, operation: DiskOperation) -> None:
        if not operation.kind.changes:
            return
        if self._power_left == 0:
            self.story.append(f"power cut before {operation.kind.value} {operation.path} {operation.target or ''}")
            self._survivor = self.disk.power_cut(self.chance)
            return
        self.changes += 1
        if self._power_left is not None:
            self._power_left -= 1

    def _open(self) -> None:
        manager = LogManager([DATA], disk=self.disk, node_id=1, clock=self.clock, cluster_id="cluster", random=self.ids)
        self.manager = manager
        manager.open()
        load_logs(manager, self._config_for)

    def _config_for(self, partition: TopicPartition, topic_id: bytes) -> LogConfig | None:
        model = self.models.get(partition)
        return model.config if model is not None and model.topic_id == topic_id else None

    def _stop(self) -> None:
        manager = self._manager
        assert manager.close()
        for model in self.models.values():
            model.synced(model.end)
            model.durable_start = model.start

    @property
    def _manager(self) -> LogManager:
        assert self.manager is not None
        return self.manager

    # --- What the logs do ---

    def _step(self) -> None:
        self.clock.advance(self.chance.choice((0.001, 0.1, 2.0)))
        created = [model for model in self.models.values() if model.is_created]
        if len(created) < 2:
            try:
                self._create()
            except OSError as error:
                raise DiskFailed from error
            return
        model = self.chance.choice(created)
        steps = self._compacted_steps if model.is_compacted else self._plain_steps
        (step,) = self.chance.choices(tuple(steps), weights=tuple(steps.values()))
        if step is InterruptedLogs._sync and not self._syncs:
            return
        self.story.append(f"{model.partition}: {step.__name__.strip('_')}")
        log = self._manager.logs[model.partition]
        try:
            step(self, model, log)
        except OSError as error:
            self.story.append(f"{error!r}")
            is_harmless = error.errno == errno.ENOSPC and step in self._undone_steps
            if not is_harmless or log.failure is not None:
                raise DiskFailed from error
            assert log.log_end_offset == model.end, f"{log}: the append that did not fit is there"

    def _create(self) -> None:
        name = "plain" if self.models.get(TopicPartition("plain", 0)) is None else "compacted"
        partition = TopicPartition(name, 0)
        waiting = next((model for model in self.models.values() if not model.is_created), None)
        if waiting is None:
            self._topics += 1
            config = COMPACTED if name == "compacted" else attrs.evolve(PLAIN, preallocate=self.chance.random() < 0.3)
            waiting = PartitionModel(partition, self._topics.to_bytes(16, "big"), config)
            self.models[partition] = waiting
        self.story.append(f"{waiting.partition}: create")
        create_log(self._manager, waiting.partition, waiting.topic_id, waiting.config)
        waiting.is_created = True

    def _append(self, model: PartitionModel, log: Log) -> None:
        producer_id = self.chance.choice((-1, -1, 1, 2))
        # Producer 2 writes in transactions, which compaction would make hard to follow.
        transactional = producer_id == 2 and not model.is_compacted
        self._append_batch(model, log, producer_id, transactional)

    def _append_batch(self, model: PartitionModel, log: Log, producer_id: int, transactional: bool) -> None:
        epoch = model.epoch
        records = [
            NewRecord(self.clock.now_ms(), b"k%d" % self.chance.randrange(KEYS), self._next_value())
            for _ in range(self.chance.choice((1, 1, 2, 5)))
        ]
        sequence = model.sequences.get(producer_id, -1) + 1 if producer_id >= 0 else -1
        data = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        written = [Written(record.key, record.value, epoch) for record in records]
        model.may_append(model.end, written)
        info = log.append(bytearray(data), leader_epoch=epoch, now_ms=self.clock.now_ms())
        model.appended(info.first_offset, written)
        if producer_id >= 0:
            model.sequences[producer_id] = sequence + len(records) - 1

    def _next_value(self) -> bytes:
        self._values += 1
        return b"%06d" % self._values + bytes(self.chance.choice((0, 20, 100)))

    def _end_transaction(self, model: PartitionModel, log: Log) -> None:
        if 2 not in model.sequences:
            return
        epoch = model.epoch
        marker = EndTransactionMarker(self.chance.random() < 0.5, 0)
        data = build_control_batch(marker, timestamp=self.clock.now_ms(), producer_id=2, producer_epoch=0)
        (record,) = next(iter(read_batches(data))).records()
        written = [Written(record.key, record.value, epoch)]
        model.may_append(model.end, written)
        now_ms = self.clock.now_ms()
        info = log.append(bytearray(data), leader_epoch=epoch, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)
        model.appended(info.first_offset, written)

    def _begin_epoch(self, model: PartitionModel, log: Log) -> None:
        model.epoch += self.chance.randrange(1, 3)
        log.assign_epoch(model.epoch, log.log_end_offset)

    def _sync(self, model: PartitionModel, log: Log) -> None:
        model.synced(log.sync())

    def _roll(self, model: PartitionModel, log: Log) -> None:
        log.roll(self.clock.now_ms())

    def _delete_records(self, model: PartitionModel, log: Log) -> None:
        # A client may ask for what is below the high watermark, which is what a power cut cannot take.
        offset = self.chance.randint(model.start, max(model.start, log.recovery_point))
        model.ask_start(offset)
        log.advance_log_start(offset)
        log.epochs.write()
        if self.chance.random() < 0.5:
            self._retain(model, log)

    def _retain(self, model: PartitionModel, log: Log) -> None:
        # The log start moves with the segments, and so before a cut that happens in between.
        model.ask_start(log.recovery_point)
        log.delete_expired_segments(self.clock.now_ms(), log.recovery_point)
        model.start = log.log_start_offset

    def _remove_files(self, model: PartitionModel, log: Log) -> None:
        remove_expired_files(self._manager, self.clock.now_ms())

    def _write_checkpoints(self, model: PartitionModel, log: Log) -> None:
        if self._manager.checkpoints.write():
            raise DiskFailed
        for each in self.models.values():
            if each.is_created:
                each.durable_start = each.start

    def _write_high_watermarks(self, model: PartitionModel, log: Log) -> None:
        if self._manager.checkpoints.write_high_watermarks({model.partition: model.end}):
            raise DiskFailed

    def _truncate(self, model: PartitionModel, log: Log) -> None:
        # Never into a batch: leaders write whole ones.
        bases = (batch.header.base_offset for batch in found_batches(log))
        offsets = [offset for offset in bases if offset >= model.start]
        if not offsets:
            return
        offset = self.chance.choice(offsets)
        model.durable_end = min(model.durable_end, offset)
        model.has_been_cut = True
        truncate_log(self._manager, model.partition, offset, self.clock.now_ms())
        model.cut(log.log_end_offset)
        self._learn_sequences(model, log)

    def _compact(self, model: PartitionModel, log: Log) -> None:
        log.sync()
        model.synced(model.end)
        if planned(log, self.clock.now_ms(), sync=False).dirty_bytes:
            self._write_checkpoints(model, log)
            for _ in Round(log, self.clock.now_ms(), sync=False).steps():
                pass
            found = found_records(log)
            model.records = found
            for offset in [offset for offset in model.possible if offset not in found]:
                model.possible[offset].add(model.possible[offset].pop())

    def _delete_partition(self, model: PartitionModel, log: Log) -> None:
        # The metadata comes first: from now on a start takes it for a stray.
        del self.models[model.partition]
        delete_logs(self._manager, [model.partition])

    def _release_and_read(self, model: PartitionModel, log: Log) -> None:
        for segment in log.segments[:-1]:
            segment.evict()
        check_reads(log, found_records(log), self.chance)

    _plain_steps = {
        _append: 14,
        _end_transaction: 2,
        _sync: 5,
        _roll: 1,
        _begin_epoch: 1,
        _delete_records: 1,
        _retain: 1,
        _remove_files: 1,
        _write_checkpoints: 2,
        _write_high_watermarks: 0.3,
        _truncate: 0.7,
        _delete_partition: 0.3,
        _release_and_read: 0.5,
    }
    _undone_steps = (_append, _end_transaction, _roll, _begin_epoch)
    """Those that leave the log as it was where the disk is full."""
    _compacted_steps = {
        _append: 14,
        _sync: 3,
        _roll: 1,
        _begin_epoch: 1,
        _compact: 3,
        _remove_files: 1,
        _write_checkpoints: 1,
        _delete_partition: 0.2,
        _release_and_read: 0.5,
    }

    # --- What must be left ---

    def check(self, end: End) -> None:
        """Compare the logs with the model, which then goes on from what there is."""
        report = self._manager.load_report
        assert not report.failures, report.failures
        for problem in (problem for item in report.recovered for problem in item.problems):
            assert any(each in problem for each in LEGAL_PROBLEMS), f"no power cut leaves this: {problem}"
        self.story.append(f"started after {end.value}: {self._manager.logs}")
        for model in list(self.models.values()):
            log = self._manager.logs.get(model.partition)
            if log is None:
                # It may go with the power, also after a stop, as long as no record in it is durable: the metadata has
                # it, and it is made again.
                may_go = (self._has_faults or end is not End.KILL) and not model.durable_end
                assert not model.is_created or may_go, f"{model.partition} is gone"
                self.models[model.partition] = PartitionModel(model.partition, model.topic_id, model.config)
                continue
            self._check_log(model, log, end)
        self._was_hit = False
        assert self._manager.logs.keys() <= self.models.keys()
        if end is End.STOP:
            assert all(item.was_clean and not item.recovered_segments for item in report.recovered), report

    def _check_log(self, model: PartitionModel, log: Log, end: End) -> None:
        found = found_records(log)
        where = f"{model.partition} {log.log_start_offset} to {log.log_end_offset}"
        for offset, record in found.items():
            assert record in model.possible.get(offset, ()), f"{where}: {record} at {offset} was never written there"
        assert model.durable_start <= log.log_start_offset <= model.start, (
            f"{where}: the start was {model.durable_start} to {model.start}"
        )
        assert log.log_end_offset >= model.durable_end, f"{where}: {model.durable_end} was synced"
        if end is not End.POWER_CUT and not self._was_hit:
            assert log.log_end_offset == model.end, f"{where}: lost by a {end.value}, was {model.end}"
        newest_found = {record.key: offset for offset, record in sorted(found.items())}
        expected = {offset for offset in model.records if model.start <= offset < model.durable_end}
        if model.is_compacted:
            expected = {
                offset for key, offset in model.newest(model.durable_end).items() if newest_found.get(key, -1) < offset
            }
        missing = [offset for offset in sorted(expected) if offset not in found]
        assert not missing, f"{where}: {missing} are missing"
        if not model.is_compacted and not model.has_been_cut:
            row = range(max(log.log_start_offset, model.asked_start), log.log_end_offset)
            missing = [offset for offset in row if offset not in found]
            assert not missing, f"{where}: a hole at {missing}"
        batches = found_batches(log)
        check_epochs(log, batches, model.asked_start)
        check_producers(log, batches, model.asked_start)
        check_reads(log, found, self.chance)
        if end is End.POWER_CUT:
            model.ruled_out_all_but(found)
            model.durable_end = log.log_end_offset
            model.has_been_cut = False
        model.records, model.end = found, log.log_end_offset
        model.is_created = True
        model.start = log.log_start_offset
        self._learn_sequences(model, log)
        if self._has_faults:
            # As the broker does: of what is read now, a sync that failed may have left nothing on the disk.
            log.sync_after_crash()
            model.synced(log.log_end_offset)

    def _learn_sequences(self, model: PartitionModel, log: Log) -> None:
        model.sequences = {
            producer_id: entry.last_sequence
            for producer_id, entry in log.producers.producers.items()
            if entry.last_sequence >= 0
        }
