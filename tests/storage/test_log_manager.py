"""All logs of a broker: opened, made, deleted and closed together."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trio_broker.clock import ManualClock
from trio_broker.storage import DataDirectoryError, Log, LogConfig, LogManager, StorageFailed
from trio_broker.topic_partition import TopicPartition

ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("other", 3)
ID_A, ID_B = bytes(range(16)), bytes(range(1, 17))
CONFIG = LogConfig()

Batch = Callable[..., bytearray]
Manager = Callable[..., LogManager]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def start(tmp_path: Path, clock: ManualClock) -> Iterator[Manager]:
    """Open a manager on one directory, or on those named; all are let go at the end."""
    opened: list[LogManager] = []

    def make(*names: str, load: bool = True, **kwargs: object) -> LogManager:
        settings = {"node_id": 1, "clock": clock, **kwargs}
        manager = LogManager([tmp_path / name for name in names or ("data",)], **settings)  # type: ignore[arg-type]
        manager.open()
        opened.append(manager)
        if load:
            manager.load(lambda partition, topic_id: CONFIG)
        return manager

    yield make
    for manager in opened:
        manager.close(clean=False)


def append(log: Log, data: bytearray, clock: ManualClock) -> int:
    return log.append(memoryview(data), leader_epoch=0, now_ms=clock.now_ms()).first_offset


def test_a_clean_stop_and_start(start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path):
    manager = start()
    log = manager.create_log(ORDERS, ID_A, CONFIG)
    append(log, batch(3), clock)
    cluster_id = manager.cluster_id
    assert manager.close(high_watermarks={ORDERS: 3}, broker_epoch=5)
    data = tmp_path / "data"
    assert (data / "recovery-point-offset-checkpoint").read_bytes() == b"0\n1\norders 0 3\n"
    assert (data / "replication-offset-checkpoint").read_bytes() == b"0\n1\norders 0 3\n"
    assert (data / "log-start-offset-checkpoint").read_bytes() == b"0\n0\n"
    assert (data / ".kafka_cleanshutdown").exists()

    manager = start(load=False)
    report = manager.load(lambda partition, topic_id: CONFIG if (partition, topic_id) == (ORDERS, ID_A) else None)
    assert manager.cluster_id == cluster_id
    assert [item.was_clean for item in report.recovered] == [True]
    assert (report.failures, report.strays) == ({}, [])
    assert manager.logs[ORDERS].log_end_offset == 3
    assert manager.high_watermark_of(ORDERS) == 3
    assert not (data / ".kafka_cleanshutdown").exists()


def test_a_kill_and_start(start: Manager, batch: Batch, clock: ManualClock):
    manager = start()
    append(manager.create_log(ORDERS, ID_A, CONFIG), batch(3), clock)
    manager.close(clean=False)
    manager = start(load=False)
    (report,) = manager.load(lambda partition, topic_id: CONFIG).recovered
    assert not report.was_clean
    assert manager.logs[ORDERS].log_end_offset == 3


def test_unknown_partitions_become_strays(start: Manager, tmp_path: Path):
    manager = start()
    manager.create_log(ORDERS, ID_A, CONFIG)
    manager.create_log(OTHER, ID_B, CONFIG)
    manager.close()
    manager = start(load=False)
    report = manager.load(lambda partition, topic_id: CONFIG if topic_id == ID_B else None)
    assert set(manager.logs) == {OTHER}
    (stray,) = report.strays
    assert stray.name.startswith("orders-0.")
    assert stray.name.endswith("-stray")
    manager.close()
    assert start().logs.keys() == {OTHER}


def test_a_log_that_cannot_be_opened_does_not_keep_the_others(start: Manager, tmp_path: Path):
    manager = start()
    manager.create_log(ORDERS, ID_A, CONFIG)
    manager.create_log(OTHER, ID_B, CONFIG)
    manager.close()
    (tmp_path / "data/orders-0/partition.metadata").write_bytes(b"nonsense")
    manager = start(load=False)
    report = manager.load(lambda partition, topic_id: CONFIG)
    assert set(report.failures) == {ORDERS}
    assert set(manager.logs) == {OTHER}


def test_the_metadata_log_is_opened_on_request_and_left_out_of_the_rest(
    start: Manager, batch: Batch, clock: ManualClock
):
    manager = start(load=False)
    opened = manager.open_cluster_metadata(CONFIG)
    append(opened.log, batch(), clock)
    manager.close()
    manager = start()
    assert manager.logs == {}
    opened = manager.open_cluster_metadata(CONFIG)
    assert opened.report.was_clean
    assert opened.log.log_end_offset == 1


def test_a_deleted_partition_is_renamed_and_removed_later(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start()
    log = manager.create_log(ORDERS, ID_A, CONFIG)
    append(log, batch(), clock)
    fetched = log.read(0, 100, end_offset=1).records
    manager.delete_log(ORDERS)
    manager.delete_log(ORDERS)
    (renamed,) = (tmp_path / "data").glob("orders-0.*-delete")
    assert not (tmp_path / "data/orders-0").exists()
    assert manager.remove_expired_files(clock.now_ms() + 59_999) == 0
    assert manager.remove_expired_files(clock.now_ms() + 60_000) == 1
    assert not renamed.exists()
    assert len(fetched) > 61
    assert manager.create_log(ORDERS, ID_B, CONFIG).log_end_offset == 0


def test_a_deletion_cut_short_is_completed_at_the_next_start(start: Manager, clock: ManualClock, tmp_path: Path):
    manager = start()
    manager.create_log(ORDERS, ID_A, CONFIG)
    manager.delete_log(ORDERS)
    manager.close(clean=False)
    manager = start()
    assert manager.logs == {}
    assert manager.remove_expired_files(clock.now_ms()) == 1
    assert not list((tmp_path / "data").glob("*-delete"))


def test_a_new_partition_inherits_nothing_from_one_of_the_same_name(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start()
    log = manager.create_log(ORDERS, ID_A, CONFIG)
    append(log, batch(10), clock)
    log.sync()
    log.advance_log_start(7)
    manager.write_checkpoints()
    assert b"orders 0 7" in (tmp_path / "data/log-start-offset-checkpoint").read_bytes()
    manager.delete_log(ORDERS)
    append(manager.create_log(ORDERS, ID_B, CONFIG), batch(2), clock)
    manager.close(clean=False)
    manager = start()
    assert (manager.logs[ORDERS].log_start_offset, manager.logs[ORDERS].log_end_offset) == (0, 2)


def test_the_log_start_survives_a_kill_once_written(start: Manager, batch: Batch, clock: ManualClock):
    manager = start()
    log = manager.create_log(ORDERS, ID_A, CONFIG)
    append(log, batch(10), clock)
    log.advance_log_start(7)
    manager.write_checkpoints()
    manager.close(clean=False)
    assert start().logs[ORDERS].log_start_offset == 7


def test_directories_of_another_node_or_cluster_are_refused(start: Manager):
    start(cluster_id="one").close()
    with pytest.raises(DataDirectoryError, match="belongs to node 1, this is node 2"):
        start(node_id=2)
    with pytest.raises(DataDirectoryError, match="belongs to cluster one, expected two"):
        start(cluster_id="two")
    assert start().cluster_id == "one"


def test_after_a_refusal_nothing_stays_locked(start: Manager):
    start("a").close()
    with pytest.raises(DataDirectoryError):
        start("a", "b", node_id=9)
    start("a", "b")


def test_directories_of_different_clusters_are_refused(start: Manager):
    start("a").close()
    start("b").close()
    with pytest.raises(DataDirectoryError, match="belongs to cluster"):
        start("a", "b")


def test_a_second_manager_is_refused(start: Manager):
    start()
    with pytest.raises(DataDirectoryError, match="in use"):
        start()


def test_new_partitions_are_spread_over_the_directories(start: Manager, tmp_path: Path):
    manager = start("a", "b")
    for partition in range(4):
        manager.create_log(TopicPartition("orders", partition), ID_A, CONFIG)
    assert len(list((tmp_path / "a").glob("orders-*"))) == 2
    manager.close()
    assert len(start("a", "b").logs) == 4


def test_a_log_that_fails_to_close_keeps_its_directory_from_being_called_clean(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start("a", "b")
    for partition in range(2):
        log = manager.create_log(TopicPartition("orders", partition), ID_A, CONFIG)
        append(log, batch(), clock)
    manager.logs[ORDERS].fail(OSError(errno.EIO, "gone"))
    assert not manager.close()
    assert [(tmp_path / name / ".kafka_cleanshutdown").exists() for name in "ab"] == [False, True]


def test_a_failed_disk_takes_its_logs_offline(start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path):
    manager = start("a", "b")
    for partition in range(2):
        manager.create_log(TopicPartition("orders", partition), ID_A, CONFIG)
    assert manager.take_offline(tmp_path / "a", OSError(errno.EIO, "gone")) == [ORDERS]
    with pytest.raises(StorageFailed):
        append(manager.logs[ORDERS], batch(), clock)
    append(manager.logs[TopicPartition("orders", 1)], batch(), clock)


def test_retention_and_expiry_run_over_all_logs(start: Manager, batch: Batch, clock: ManualClock):
    manager = start()
    config = LogConfig(retention_ms=1000, producer_id_expiration_ms=1000)
    log = manager.create_log(ORDERS, ID_A, config)
    append(log, batch(producer_id=1, producer_epoch=0, sequence=0), clock)
    clock.advance(2)
    (retired,) = manager.delete_retired_segments(clock.now_ms(), lambda log: log.log_end_offset)
    assert (retired.topic_partition, len(retired.segments)) == (ORDERS, 1)
    assert manager.remove_expired_producers(clock.now_ms()) == 1


def test_fifty_idle_partitions_hold_few_descriptors(start: Manager):
    import os

    manager = start()
    for partition in range(50):
        manager.create_log(TopicPartition("orders", partition), ID_A, CONFIG)
    manager.close()
    before = len(os.listdir("/proc/self/fd"))
    manager = start()
    assert len(manager.logs) == 50
    assert len(os.listdir("/proc/self/fd")) - before <= 2
