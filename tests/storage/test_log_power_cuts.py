"""What one log keeps through power cuts, case by case: each of these was lost once, found by ``test_power_cuts``."""

from __future__ import annotations

import errno
import random
from pathlib import PurePath

import attrs
import pytest

from tests.storage.compaction_harness import Round
from tests.storage.conftest import NOW_MS, TOPIC_ID, make_batch, make_marker
from tests.storage.followed_log import truncate
from tests.storage.log_content import found_records
from tests.storage.managed_logs import create_log, delete_logs, load_logs
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.disk_trace import DiskOperation, OperationKind
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_volume import ProcessEnded
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.errors import DataDirectoryError
from trio_broker.storage.log import Log
from trio_broker.storage.log_directory import LogDirectory
from trio_broker.storage.log_manager import LogManager
from trio_broker.storage.recovery import OpenedLog, open_log

PARTITION = TopicPartition("orders", 0)
DATA = PurePath("/data")
ORDERS = DATA / "orders-0"
CONFIG = LogConfig(segment_bytes=10_000, segment_index_bytes=800, index_interval_bytes=100)
COMPACTED = attrs.evolve(CONFIG, cleanup_policy=CleanupPolicy(compact=True, delete=False))
PREALLOCATED = LogConfig(segment_bytes=10_000, segment_index_bytes=800, preallocate=True)
CUTS = pytest.mark.parametrize(
    "seed", [*range(15), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(15, 40))]
)


class Machine:
    """A disk with one log, whose power goes by ``seed``."""

    def __init__(self, seed: int, config: LogConfig = CONFIG) -> None:
        self.config = config
        self.chance = random.Random(seed)
        self.disk = SimulatedDisk(ManualClock(), seed)
        LogDirectory(self.disk, DATA).open()
        self.log = self.open(recovery_point=0).log
        self.disk.sync_directory(DATA)

    def open(self, *, recovery_point: int, clean: bool = False) -> OpenedLog:
        return open_log(
            self.disk,
            ORDERS,
            PARTITION,
            TOPIC_ID,
            self.config,
            recovery_point=recovery_point,
            log_start_offset=0,
            clean=clean,
            now_ms=NOW_MS,
        )

    def cut_power(self, *, recovery_point: int, clean: bool = False) -> OpenedLog:
        """Cut the power and open the log again by an older checkpoint."""
        self.disk = self.disk.power_cut(self.chance)
        opened = self.open(recovery_point=recovery_point, clean=clean)
        self.log = opened.log
        return opened

    def append(self, value: bytes = b"value", epoch: int = 0) -> None:
        self.log.append(make_batch(value=value), leader_epoch=epoch, now_ms=NOW_MS)

    def values(self) -> list[bytes | None]:
        return [record.value for record in found_records(self.log).values()]


class Broker:
    """A disk with all the logs of a broker, of which there is one, and whose power goes by ``seed``."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimulatedDisk(ManualClock(), seed)
        self.manager = self.start()

    def start(self) -> LogManager:
        manager = LogManager([DATA], disk=self.disk, node_id=1, clock=ManualClock(), random=self.chance)
        manager.open()
        load_logs(manager, lambda partition, topic_id: CONFIG)
        return manager

    def create_log(self) -> Log:
        return create_log(self.manager, PARTITION, TOPIC_ID, CONFIG)

    def cut_power(self) -> Log:
        """Cut the power and start again."""
        self.disk = self.disk.power_cut(self.chance)
        self.manager = self.start()
        return self.manager.logs[PARTITION]


@CUTS
def test_an_end_that_recovery_cut_off_does_not_come_back_before_later_segments(seed: int):
    machine = Machine(seed)
    machine.append(b"first")
    machine.log.sync()
    machine.append(bytes(range(256)) * 8)
    machine.cut_power(recovery_point=1)
    machine.log.roll(NOW_MS)
    machine.append(b"last")
    machine.log.sync()
    machine.cut_power(recovery_point=0)
    assert machine.values()[0] == b"first"
    assert machine.values()[-1] == b"last"


@CUTS
def test_the_space_reserved_for_a_segment_does_not_come_back_before_later_segments(seed: int):
    machine = Machine(seed, PREALLOCATED)
    machine.append(b"first")
    machine.log.sync()
    machine.log.roll(NOW_MS)
    machine.append(b"last")
    machine.log.sync()
    machine.cut_power(recovery_point=0)
    assert machine.values() == [b"first", b"last"]


@CUTS
def test_a_log_with_reserved_space_that_was_closed_is_whole(seed: int):
    machine = Machine(seed, PREALLOCATED)
    machine.append()
    machine.log.sync()
    machine.log.close()
    opened = machine.cut_power(recovery_point=1, clean=True)
    assert (opened.report.recovered_segments, opened.report.problems) == (0, [])


@CUTS
def test_a_segment_that_was_sealed_where_the_recovery_point_is_keeps_its_indexes(seed: int):
    """An aborted transaction that was forgotten would show its records to committed readers."""
    machine = Machine(seed)
    log = machine.log
    aborted = make_batch(5, value=bytes(100), producer_id=7, producer_epoch=0, sequence=0, transactional=True)
    log.append(aborted, leader_epoch=0, now_ms=NOW_MS)
    marker = make_marker(7, committed=False)
    log.append(marker, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    end = log.sync()
    log.roll(NOW_MS)
    machine.append()
    machine.cut_power(recovery_point=end)
    assert [found.first_offset for found in machine.log.aborted_transactions(0, end)] == [0]
    answer = machine.log.offset_for_timestamp(NOW_MS + 4, end)
    assert answer is not None
    assert answer.offset == 4


@CUTS
def test_what_is_left_of_several_unsynced_segments_has_no_hole(seed: int):
    machine = Machine(seed)
    for value in range(6):
        machine.append(b"%d" % value + bytes(600))
        machine.log.roll(NOW_MS)
    machine.disk.sync_directory(ORDERS)
    machine.cut_power(recovery_point=0)
    offsets = list(found_records(machine.log))
    assert offsets == list(range(len(offsets)))
    assert machine.log.log_end_offset == len(offsets)


@CUTS
def test_segments_behind_a_deletion_that_was_cut_short_stay(seed: int):
    """The old names may go in any order, and what is behind them must not be taken for behind a hole."""
    machine = Machine(seed)
    for value in range(4):
        machine.append(b"%d" % value)
        machine.log.roll(NOW_MS)
    machine.log.sync()
    machine.log.advance_log_start(3)
    machine.log.delete_expired_segments(NOW_MS, 4)
    opened = machine.cut_power(recovery_point=0)
    assert machine.values()[-1] == b"3"
    assert not opened.report.kept_aside


@CUTS
def test_a_log_start_that_was_durable_stays_when_its_segments_go(seed: int):
    """Where the first segment says the start, the checkpoint does not: only once the old names are gone for good."""
    broker = Broker(seed)
    log = broker.create_log()
    for _ in range(4):
        log.append(make_batch(), leader_epoch=0, now_ms=NOW_MS)
        log.roll(NOW_MS)
    log.sync()
    log.advance_log_start(3)
    assert not broker.manager.checkpoints.write()
    log.delete_expired_segments(NOW_MS, 4)
    assert not broker.manager.checkpoints.write()
    assert broker.cut_power().log_start_offset == 3


@CUTS
def test_a_recovery_point_behind_the_end_of_a_log_that_was_cut_is_written_anew_at_the_start(seed: int):
    broker = Broker(seed)
    log = broker.create_log()
    for _ in range(4):
        log.append(make_batch(), leader_epoch=0, now_ms=NOW_MS)
    log.sync()
    assert not broker.manager.checkpoints.write()
    truncate(log, 1, NOW_MS)
    log = broker.cut_power()
    assert log.log_end_offset == 1
    for _ in range(4):
        log.append(make_batch(value=bytes(600)), leader_epoch=0, now_ms=NOW_MS)
        log.roll(NOW_MS)
    broker.disk.sync_directory(ORDERS)
    log = broker.cut_power()
    assert list(found_records(log)) == list(range(log.log_end_offset))


@CUTS
def test_a_truncation_is_durable_before_the_next_epoch(seed: int):
    machine = Machine(seed)
    for value in (b"kept", b"cut", b"cut too"):
        machine.append(value)
        machine.log.roll(NOW_MS)
    machine.log.sync()
    truncate(machine.log, 1, NOW_MS)
    machine.log.assign_epoch(5, 1)
    machine.cut_power(recovery_point=1)
    assert machine.values() == [b"kept"]


@CUTS
def test_beginning_anew_is_durable(seed: int):
    machine = Machine(seed)
    machine.append()
    machine.log.sync()
    truncate(machine.log, 50, NOW_MS, begins_anew=True)
    machine.cut_power(recovery_point=0)
    log: Log = machine.log
    assert (log.log_start_offset, log.log_end_offset) == (50, 50)


@CUTS
def test_a_data_directory_stays_whose_first_start_was_cut_short(seed: int):
    disk = SimulatedDisk(ManualClock(), seed)

    def before(operation: DiskOperation) -> None:
        if operation.kind is OperationKind.SYNC_DIRECTORY:
            disk.crash()

    disk.trace.before = before
    with pytest.raises(ProcessEnded):
        LogDirectory(disk, DATA / "logs").open()
    disk.trace.before = None
    disk = disk.another_process()
    LogDirectory(disk, DATA / "logs").open()
    assert disk.power_cut(random.Random(seed)).is_directory(DATA / "logs")


def test_a_new_partition_does_not_take_the_start_of_a_deleted_one_whose_checkpoint_could_not_be_written():
    broker = Broker(0)
    log = broker.create_log()
    log.append(make_batch(), leader_epoch=0, now_ms=NOW_MS)
    log.sync()
    log.advance_log_start(1)
    assert not broker.manager.checkpoints.write()
    broker.disk.faults.failing_syncs = 1.0
    delete_logs(broker.manager, [PARTITION])
    broker.disk.faults.failing_syncs = 0.0
    broker.create_log()
    broker.disk = broker.disk.crash()
    log = broker.start().logs[PARTITION]
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)


@CUTS
def test_indexes_that_a_start_made_anew_stay(seed: int):
    machine = Machine(seed)
    for _ in range(3):
        machine.append(bytes(100))
    machine.log.roll(NOW_MS)
    machine.append()
    machine.log.sync()
    machine.disk.unlink(ORDERS / "00000000000000000000.index")
    machine.disk.unlink(ORDERS / "00000000000000000000.timeindex")
    machine.disk.sync_directory(ORDERS)
    for _ in range(2):
        machine.cut_power(recovery_point=4)
        answer = machine.log.offset_for_timestamp(NOW_MS, 4)
        assert answer is not None
        assert answer.offset == 0
        machine.disk.sync_directory(ORDERS)


@CUTS
def test_records_behind_a_roll_for_which_there_was_no_room_stay(seed: int):
    machine = Machine(seed, PREALLOCATED)
    machine.append(b"first")
    free = machine.disk.space(DATA).usable_bytes
    machine.disk.faults.total_bytes -= free - 30  # enough for what seals the old segment
    with pytest.raises(OSError, match="No space"):
        machine.log.roll(NOW_MS)
    machine.append(b"last")
    machine.log.sync()
    machine.disk.faults.total_bytes += free
    opened = machine.cut_power(recovery_point=0)
    assert machine.values() == [b"first", b"last"]
    assert not opened.report.kept_aside


@CUTS
def test_what_was_cut_back_from_a_log_that_was_closed_does_not_come_back(seed: int):
    machine = Machine(seed)
    free = machine.disk.space(DATA).usable_bytes
    machine.log.assign_epoch(0, 0)
    machine.disk.faults.total_bytes -= free - 30  # enough for a part of the batch
    machine.disk.faults.short_writes = 1.0
    with pytest.raises(OSError, check=lambda error: error.errno == errno.ENOSPC):
        machine.append()
    machine.disk.faults.total_bytes += free
    machine.disk.faults.short_writes = 0.0
    machine.log.close()
    assert not machine.cut_power(recovery_point=0, clean=True).report.problems


@pytest.mark.parametrize(("number", "refuses"), [(errno.EACCES, False), (errno.EINVAL, False), (errno.EIO, True)])
def test_a_directory_above_that_cannot_be_synced_ends_the_start_only_when_its_disk_fails(monkeypatch, number, refuses):
    disk = SimulatedDisk(ManualClock())

    def sync_directory(path: PurePath) -> None:
        raise OSError(number, "refused", str(path))

    monkeypatch.setattr(disk, "sync_directory", sync_directory)
    directory = LogDirectory(disk, DATA)
    if refuses:
        with pytest.raises(DataDirectoryError):
            directory.open()
    else:
        directory.open()


@CUTS
def test_a_partition_that_a_kill_left_unsynced_stays(seed: int):
    broker = Broker(seed)

    def before(operation: DiskOperation) -> None:
        if operation.kind is OperationKind.SYNC_DIRECTORY and operation.path == DATA:
            broker.disk.crash()

    broker.disk.trace.before = before
    with pytest.raises(ProcessEnded):
        broker.create_log().append(make_batch(), leader_epoch=0, now_ms=NOW_MS)
    broker.disk.trace.before = None
    broker.disk = broker.disk.another_process()
    broker.manager = broker.start()
    log = broker.manager.logs[PARTITION]
    log.append(make_batch(), leader_epoch=0, now_ms=NOW_MS)
    log.sync()
    assert list(found_records(broker.cut_power())) == [0]


def test_the_names_of_a_compaction_s_output_are_durable_before_they_change():
    """A start would take an index that kept its new name alone, while its log lost both, for the rest of a swap."""
    machine = Machine(0, COMPACTED)
    for value in (b"old", b"new"):
        machine.append(value)
        machine.log.roll(NOW_MS)
    operations: list[DiskOperation] = []
    this_round = Round(machine.log, NOW_MS)
    machine.disk.trace.before = operations.append
    list(this_round.steps())
    kinds = [operation.kind for operation in operations]
    renamed = next(
        at for at, each in enumerate(operations) if each.target is not None and each.target.suffix == ".swap"
    )
    created = max(at for at, kind in enumerate(kinds[:renamed]) if kind is OperationKind.CREATE)
    assert OperationKind.SYNC_DIRECTORY in kinds[created:renamed]


def test_a_start_makes_a_commit_durable_before_it_removes_what_that_replaces():
    """After a kill the names of the commit may be in memory alone."""
    machine = Machine(0, COMPACTED)
    for value in (b"old", b"new"):
        machine.append(value)
        machine.log.roll(NOW_MS)
    for step in Round(machine.log, NOW_MS).steps():
        if step == "replace_segments":
            break
    machine.disk = machine.disk.crash()
    operations: list[DiskOperation] = []
    machine.disk.trace.before = operations.append
    machine.open(recovery_point=0)
    kinds = [operation.kind for operation in operations if operation.kind.changes]
    assert OperationKind.SYNC_DIRECTORY in kinds[: kinds.index(OperationKind.UNLINK)]
