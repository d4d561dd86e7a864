"""All logs of a broker: opened, made, deleted and closed together."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePath
from random import SystemRandom
from typing import Any

import pytest

from kafka_wire.primitives import NO_BROKER_EPOCH, uuid_text
from tests.storage.managed_logs import create_log, delete_logs, load_logs, remove_expired_files
from trio_broker.common.log_throttle import LOG_INTERVAL_SECONDS
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.disk import DirectoryEntry, Disk
from trio_broker.runtime.real_disk import RealDisk, RealFile
from trio_broker.storage import checkpoints
from trio_broker.storage.errors import DataDirectoryError, LogUnusable, StorageFailed
from trio_broker.storage.log import Log
from trio_broker.storage.log_directory import LogDirectory, MetaProperties, clean_shutdown_epoch
from trio_broker.storage.log_loading import KnownPartition
from trio_broker.storage.log_manager import LogManager

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
        settings = {"disk": RealDisk(), "random": SystemRandom(), "node_id": 1, "clock": clock, **kwargs}
        manager = LogManager([tmp_path / name for name in names or ("data",)], **settings)  # type: ignore[arg-type]
        manager.open()
        opened.append(manager)
        if load:
            load_logs(manager, lambda partition, topic_id: CONFIG)
        return manager

    yield make
    for manager in opened:
        manager.close(clean=False)


def append(log: Log, data: bytearray, clock: ManualClock) -> int:
    return log.append(memoryview(data), leader_epoch=0, now_ms=clock.now_ms()).first_offset


def fail_with(error: OSError) -> Callable[..., None]:
    def fail(*arguments: object) -> None:
        raise error

    return fail


def test_a_clean_stop_and_start(start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path):
    manager = start()
    log = create_log(manager, ORDERS, ID_A, CONFIG)
    append(log, batch(3), clock)
    cluster_id = manager.cluster_id
    assert manager.close(high_watermarks={ORDERS: 3}, broker_epoch=5)
    data = tmp_path / "data"
    assert (data / "recovery-point-offset-checkpoint").read_bytes() == b"0\n1\norders 0 3\n"
    assert (data / "replication-offset-checkpoint").read_bytes() == b"0\n1\norders 0 3\n"
    assert (data / "log-start-offset-checkpoint").read_bytes() == b"0\n0\n"
    assert (data / ".kafka_cleanshutdown").exists()

    manager = start(load=False)
    report = load_logs(manager, lambda partition, topic_id: CONFIG if (partition, topic_id) == (ORDERS, ID_A) else None)
    assert manager.cluster_id == cluster_id
    assert [item.was_clean for item in report.recovered] == [True]
    assert (report.failures, report.strays) == ({}, [])
    assert manager.logs[ORDERS].log_end_offset == 3
    assert not (data / ".kafka_cleanshutdown").exists()


def test_a_start_lists_each_data_directory_once(start: Manager, monkeypatch: pytest.MonkeyPatch):
    manager = start("one", "two", load=False)
    listed: list[str] = []
    list_directory = RealDisk.list_directory

    def note(disk: RealDisk, path: PurePath) -> list[DirectoryEntry]:
        listed.append(path.name)
        return list_directory(disk, path)

    monkeypatch.setattr(RealDisk, "list_directory", note)
    load_logs(manager, lambda partition, topic_id: CONFIG)
    assert listed == ["one", "two"]


def test_a_kill_and_start(start: Manager, batch: Batch, clock: ManualClock):
    manager = start()
    append(create_log(manager, ORDERS, ID_A, CONFIG), batch(3), clock)
    manager.close(clean=False)
    manager = start(load=False)
    (report,) = load_logs(manager, lambda partition, topic_id: CONFIG).recovered
    assert not report.was_clean
    assert manager.logs[ORDERS].log_end_offset == 3


def test_no_leader_epoch_beyond_the_metadatas_is_believed(start: Manager, batch: Batch, clock: ManualClock):
    manager = start()
    log = create_log(manager, ORDERS, ID_A, CONFIG)
    log.append(memoryview(batch(3)), leader_epoch=900, now_ms=clock.now_ms())
    manager.close(clean=False)
    manager = start(load=False)
    load_logs(manager, lambda partition, topic_id: CONFIG, {ORDERS: KnownPartition(ID_A, 6)}.get)
    assert manager.logs[ORDERS].append(memoryview(batch(1)), leader_epoch=6, now_ms=clock.now_ms()).first_offset == 3


@pytest.mark.parametrize("clean", [True, False])
def test_a_partition_whose_directory_is_lost_goes_on_behind_its_records(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture, clean: bool
):
    manager = start()
    append(create_log(manager, ORDERS, ID_A, CONFIG), batch(3), clock)
    manager.logs[ORDERS].sync()
    manager.checkpoints.write()
    manager.close(clean=clean)
    shutil.rmtree(tmp_path / "data/orders-0")
    known = {ORDERS: KnownPartition(ID_A, 6)}.get
    for _ in range(2):
        caplog.clear()
        manager = start(load=False)
        report = load_logs(manager, lambda partition, topic_id: CONFIG if topic_id == ID_A else None, known)
        assert (report.failures, report.strays) == ({}, [])
        log = manager.logs[ORDERS]
        assert (log.log_start_offset, log.log_end_offset, log.topic_id) == (3, 3, ID_A)
        manager.close(clean=False)
    assert not caplog.records, "what the first start has said holds for the second"
    manager = start()
    assert append(manager.logs[ORDERS], batch(1), clock) == 3


def test_a_lost_directory_of_a_topic_that_nobody_knows_leaves_nothing_to_a_new_one(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start()
    append(create_log(manager, ORDERS, ID_A, CONFIG), batch(3), clock)
    manager.close()
    shutil.rmtree(tmp_path / "data/orders-0")
    manager = start()
    assert manager.logs == {}
    assert (tmp_path / "data/recovery-point-offset-checkpoint").read_bytes() == b"0\n0\n"
    assert append(create_log(manager, ORDERS, ID_B, CONFIG), batch(1), clock) == 0


def test_unknown_partitions_become_strays(start: Manager, tmp_path: Path):
    manager = start()
    create_log(manager, ORDERS, ID_A, CONFIG)
    create_log(manager, OTHER, ID_B, CONFIG)
    manager.close()
    manager = start(load=False)
    report = load_logs(manager, lambda partition, topic_id: CONFIG if topic_id == ID_B else None)
    assert set(manager.logs) == {OTHER}
    (stray,) = report.strays
    assert stray.name.startswith("orders-0.")
    assert stray.name.endswith("-stray")
    manager.close()
    assert start().logs.keys() == {OTHER}


def test_a_log_that_cannot_be_opened_does_not_keep_the_others(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start()
    append(create_log(manager, ORDERS, ID_A, CONFIG), batch(1), clock)
    create_log(manager, OTHER, ID_B, CONFIG)
    manager.close()
    (tmp_path / "data/orders-0/partition.metadata").write_bytes(b"nonsense")
    manager = start(load=False)
    report = load_logs(manager, lambda partition, topic_id: CONFIG)
    assert set(report.failures) == {ORDERS}
    assert set(manager.logs) == {OTHER}


def test_an_unclean_directory_with_a_log_that_could_not_be_opened_gets_no_marker(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    """The next start would believe that log to be what a clean stop has left."""
    manager = start()
    append(create_log(manager, ORDERS, ID_A, CONFIG), batch(1), clock)
    manager.close(clean=False)
    metadata = tmp_path / "data/orders-0/partition.metadata"
    content = metadata.read_bytes()
    metadata.write_bytes(b"nonsense")
    assert not start().close()
    metadata.write_bytes(content)
    manager = start()
    assert [item.was_clean for item in manager.load_report.recovered] == [False]
    assert manager.close()


def unopenable(directory: Path) -> None:
    (directory / "partition.metadata").write_bytes(b"nonsense")


def test_a_partition_that_could_not_be_opened_is_not_begun_anew_anywhere(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start("a", "b")
    append(create_log(manager, ORDERS, ID_A, CONFIG), batch(3), clock)
    manager.close()
    unopenable(tmp_path / "a/orders-0")
    manager = start("a", "b")
    for _ in range(2):
        with pytest.raises(LogUnusable, match="a/orders-0 could not be opened"):
            create_log(manager, ORDERS, ID_A, CONFIG)
    assert not (tmp_path / "b/orders-0").exists()
    assert create_log(manager, OTHER, ID_B, CONFIG).log_end_offset == 0


def test_a_partition_that_could_not_be_opened_may_be_deleted_and_made_again(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start()
    append(create_log(manager, ORDERS, ID_A, CONFIG), batch(1), clock)
    manager.close()
    unopenable(tmp_path / "data/orders-0")
    manager = start()
    delete_logs(manager, [ORDERS])
    assert len(list((tmp_path / "data").glob("orders-0.*-delete"))) == 1
    assert create_log(manager, ORDERS, ID_B, CONFIG).log_end_offset == 0


@pytest.mark.parametrize("content", [b"", b"version: 0\ntop", None])
def test_a_directory_that_a_power_cut_left_without_its_topic_s_id_and_records_is_made_again(
    start: Manager, tmp_path: Path, content: bytes | None
):
    manager = start()
    create_log(manager, ORDERS, ID_A, CONFIG)
    manager.close(clean=False)
    path = tmp_path / "data/orders-0/partition.metadata"
    path.unlink() if content is None else path.write_bytes(content)
    manager = start()
    assert not manager.load_report.failures
    assert not manager.load_report.strays
    create_log(manager, ORDERS, ID_A, CONFIG)
    assert path.read_bytes().endswith(uuid_text(ID_A).encode())


def test_a_log_is_made_without_a_sync_and_its_first_record_waits_for_its_names(
    start: Manager, batch: Batch, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    manager = start()
    synced: list[str] = []

    def sync_directory(disk: RealDisk, path: PurePath) -> None:
        synced.append(path.name)

    monkeypatch.setattr(RealDisk, "sync_directory", sync_directory)
    monkeypatch.setattr(RealFile, "sync", lambda file: synced.append(file.path.name))
    log = create_log(manager, ORDERS, ID_A, CONFIG)
    assert synced == []
    append(log, batch(1), clock)
    assert synced == ["partition.metadata", "data", "leader-epoch-checkpoint.tmp", "orders-0"]


def test_a_stop_writes_nothing_about_logs_that_are_as_they_were(
    start: Manager, batch: Batch, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    manager = start()
    append(create_log(manager, OTHER, ID_B, CONFIG), batch(1), clock)
    manager.close()
    manager = start()
    create_log(manager, ORDERS, ID_A, CONFIG)
    opened: list[PurePath] = []
    open_file = RealDisk.open

    def note(disk: RealDisk, path: PurePath, *arguments: Any, **settings: Any) -> RealFile:
        opened.append(path)
        return open_file(disk, path, *arguments, **settings)

    monkeypatch.setattr(RealDisk, "open", note)
    manager.close()
    assert not [path for path in opened if path.parent.name in (str(ORDERS), str(OTHER))]


def test_a_creation_that_was_cut_short_goes_on_in_its_directory(
    start: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    manager = start("a", "b")
    create_log(manager, OTHER, ID_B, CONFIG)
    with monkeypatch.context() as full:
        full.setattr(RealDisk, "open", fail_with(OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            create_log(manager, ORDERS, ID_A, CONFIG)
    create_log(manager, TopicPartition("more", 0), ID_B, CONFIG)
    assert create_log(manager, ORDERS, ID_A, CONFIG).directory == tmp_path / "b/orders-0"
    assert not (tmp_path / "a/orders-0").exists()


def test_batches_that_nobody_can_read_are_the_trouble_of_their_partition_alone(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start()
    log = create_log(manager, ORDERS, ID_A, CONFIG)
    for sequence in range(3):
        append(log, batch(producer_id=1, producer_epoch=0, sequence=sequence), clock)
    create_log(manager, OTHER, ID_B, CONFIG)
    manager.close()
    data = bytearray((tmp_path / "data/orders-0/00000000000000000000.log").read_bytes())
    data[len(data) // 3 + 16] = 1  # the second batch is of magic 1
    (tmp_path / "data/orders-0/00000000000000000000.log").write_bytes(data)
    for snapshot in (tmp_path / "data/orders-0").glob("*.snapshot"):
        snapshot.unlink()
    manager = start(load=False)
    report = load_logs(manager, lambda partition, topic_id: CONFIG)
    assert set(manager.logs) | set(report.failures) == {ORDERS, OTHER}
    assert OTHER in manager.logs


def test_the_metadata_log_is_left_alone(start: Manager, tmp_path: Path):
    (tmp_path / "data/__cluster_metadata-0").mkdir(parents=True)
    (tmp_path / "data/meta.properties").write_bytes(MetaProperties("cluster", 1, "AAAAAAAAAAAAAAAAAAAABw").encode())
    manager = start()
    assert manager.logs == {}
    assert manager.close()
    assert (tmp_path / "data/recovery-point-offset-checkpoint").read_bytes() == b"0\n0\n"
    assert list((tmp_path / "data/__cluster_metadata-0").iterdir()) == []


def test_a_deleted_partition_is_renamed_and_removed_later(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start()
    log = create_log(manager, ORDERS, ID_A, CONFIG)
    append(log, batch(), clock)
    fetched = log.read(0, 100, end_offset=1).records
    delete_logs(manager, [ORDERS])
    delete_logs(manager, [ORDERS])
    (renamed,) = (tmp_path / "data").glob("orders-0.*-delete")
    assert not (tmp_path / "data/orders-0").exists()
    assert remove_expired_files(manager, clock.now_ms() + 59_999) == 0
    assert remove_expired_files(manager, clock.now_ms() + 60_000) == 1
    assert not renamed.exists()
    assert len(fetched) > 61
    assert create_log(manager, ORDERS, ID_B, CONFIG).log_end_offset == 0


def test_a_deletion_cut_short_is_completed_at_the_next_start(start: Manager, clock: ManualClock, tmp_path: Path):
    manager = start()
    create_log(manager, ORDERS, ID_A, CONFIG)
    delete_logs(manager, [ORDERS])
    manager.close(clean=False)
    manager = start()
    assert manager.logs == {}
    assert remove_expired_files(manager, clock.now_ms() + 59_999) == 0
    assert remove_expired_files(manager, clock.now_ms() + 60_000) == 1
    assert not list((tmp_path / "data").glob("*-delete"))


def test_a_long_delay_of_one_partition_does_not_hold_up_the_removal_of_another(
    start: Manager, clock: ManualClock, tmp_path: Path
):
    manager = start()
    create_log(manager, ORDERS, ID_A, LogConfig(file_delete_delay_ms=3_600_000))
    create_log(manager, OTHER, ID_B, LogConfig(file_delete_delay_ms=1000))
    delete_logs(manager, [ORDERS, OTHER])
    assert remove_expired_files(manager, clock.now_ms() + 1000) == 1
    assert [path.name.split(".")[0] for path in (tmp_path / "data").glob("*-delete")] == ["orders-0"]
    assert remove_expired_files(manager, clock.now_ms() + 3_600_000) == 1


def test_a_new_partition_inherits_nothing_from_one_of_the_same_name(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start()
    log = create_log(manager, ORDERS, ID_A, CONFIG)
    append(log, batch(10), clock)
    log.sync()
    log.advance_log_start(7)
    log.epochs.write()
    manager.checkpoints.write()
    assert b"orders 0 7" in (tmp_path / "data/log-start-offset-checkpoint").read_bytes()
    delete_logs(manager, [ORDERS])
    append(create_log(manager, ORDERS, ID_B, CONFIG), batch(2), clock)
    manager.close(clean=False)
    manager = start()
    assert (manager.logs[ORDERS].log_start_offset, manager.logs[ORDERS].log_end_offset) == (0, 2)


def test_the_log_start_survives_a_kill_once_written(start: Manager, batch: Batch, clock: ManualClock):
    manager = start()
    log = create_log(manager, ORDERS, ID_A, CONFIG)
    append(log, batch(10), clock)
    log.advance_log_start(7)
    log.epochs.write()
    manager.checkpoints.write()
    manager.close(clean=False)
    assert start().logs[ORDERS].log_start_offset == 7


def test_a_log_start_is_not_written_before_the_leader_epochs_say_it(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start()
    log = create_log(manager, ORDERS, ID_A, CONFIG)
    append(log, batch(10), clock)
    log.sync()
    log.advance_log_start(7)
    manager.checkpoints.write()
    assert (tmp_path / "data/log-start-offset-checkpoint").read_bytes() == b"0\n0\n"
    log.epochs.write()
    manager.checkpoints.write()
    assert (tmp_path / "data/log-start-offset-checkpoint").read_bytes() == b"0\n1\norders 0 7\n"


def test_where_there_are_recovery_points_there_are_log_starts(
    start: Manager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    manager = start()
    write = checkpoints.write_offsets
    written: list[str] = []

    def once(disk: Disk, path: PurePath, offsets: Mapping[TopicPartition, int]) -> None:
        if written:
            raise OSError(errno.EIO, "no more")
        write(disk, path, offsets)
        written.append(path.name)

    monkeypatch.setattr(checkpoints, "write_offsets", once)
    manager.checkpoints.write()
    assert written == ["log-start-offset-checkpoint"]


def test_records_without_the_topics_id_are_refused_and_a_log_without_a_record_is_a_stray(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start()
    config = LogConfig(preallocate=True, internal_segment_bytes=4096)
    append(create_log(manager, ORDERS, ID_A, config), batch(2), clock)
    create_log(manager, OTHER, ID_B, config).assign_epoch(0, 0)
    manager.close(clean=False)
    for name in ("orders-0", "other-3"):
        (tmp_path / "data" / name / "partition.metadata").unlink()
    manager = start()
    assert list(manager.load_report.failures) == [ORDERS]
    assert (tmp_path / "data/orders-0").is_dir()
    assert [path.name[:7] for path in manager.load_report.strays] == ["other-3"]


def test_what_the_checkpoints_say_of_a_partition_that_could_not_be_opened_stays(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start()
    log = create_log(manager, ORDERS, ID_A, CONFIG)
    append(log, batch(10), clock)
    log.advance_log_start(7)
    log.first_dirty_offset = 8
    manager.close(high_watermarks={ORDERS: 10})
    data = tmp_path / "data"
    names = ("recovery-point-offset", "log-start-offset", "cleaner-offset", "replication-offset")
    before = [(data / f"{name}-checkpoint").read_bytes() for name in names]
    assert all(b"orders 0 " in content for content in before)
    metadata = data / "orders-0/partition.metadata"
    good = metadata.read_bytes()
    metadata.write_bytes(b"damaged")
    manager = start()
    assert list(manager.load_report.failures) == [ORDERS]
    manager.close()
    assert [(data / f"{name}-checkpoint").read_bytes() for name in names] == before
    metadata.write_bytes(good)
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
    start("a", "b", allow_new=True)


def test_an_empty_directory_beside_used_ones_is_taken_for_a_disk_that_is_not_mounted(start: Manager, tmp_path: Path):
    start("a", "b").close()
    (tmp_path / "b").rename(tmp_path / "elsewhere")
    with pytest.raises(DataDirectoryError, match=r"b is empty while .*a has been in use: is its disk mounted"):
        start("a", "b")
    assert not (tmp_path / "b" / "meta.properties").exists()
    start("a", "b", allow_new=True).close()
    start("a", "b")


def replaced_by_a_file(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.rename(directory.with_name("aside"))
    directory.touch()


def unmounted(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.rename(directory.with_name("aside"))


def unreadable(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = LogDirectory.begin

    def fail(begun: LogDirectory) -> None:
        if begun.path == directory:
            raise OSError(errno.EIO, "Input/output error", str(directory))
        begin(begun)

    monkeypatch.setattr(LogDirectory, "begin", fail)


@pytest.mark.parametrize("lose", [replaced_by_a_file, unmounted, unreadable])
def test_one_of_several_brokers_starts_without_a_directory_and_makes_nothing_anew_that_may_lie_there(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path, lose
):
    manager = start("a", "b")
    manager.prefer(ORDERS, manager.directories[1])
    append(create_log(manager, ORDERS, ID_A, CONFIG), batch(3), clock)
    kept, lost = manager.directory_ids().values()
    manager.close(broker_epoch=5)
    directory = tmp_path / "b"
    with pytest.MonkeyPatch.context() as monkeypatch:
        lose(directory, monkeypatch)
        with pytest.raises((DataDirectoryError, OSError), match="b"):
            start("a", "b")
        manager = start("a", "b", is_one_of_several=True, load=False)
        assert not manager.is_online(directory)
        assert kept not in manager.offline_directory_ids()
        manager.expect(ORDERS)
        load_logs(manager, lambda partition, topic_id: CONFIG, {ORDERS: KnownPartition(ID_A, 6, lost)}.get)
        with pytest.raises(LogUnusable, match="b/orders-0 could not be opened"):
            create_log(manager, ORDERS, ID_A, CONFIG)
        assert create_log(manager, OTHER, ID_B, CONFIG).directory == tmp_path / "a/other-3"
        assert not manager.close(broker_epoch=6)
        assert clean_shutdown_epoch(RealDisk(), [tmp_path / "a", directory]) == NO_BROKER_EPOCH
        assert clean_shutdown_epoch(RealDisk(), [tmp_path / "a"]) == 6
    if (tmp_path / "aside").exists():
        directory.unlink() if directory.is_file() else shutil.rmtree(directory)
        (tmp_path / "aside").rename(directory)
    manager = start("a", "b", is_one_of_several=True)
    assert {name: log.log_end_offset for name, log in manager.logs.items()} == {ORDERS: 3, OTHER: 0}


def test_a_partition_that_was_deleted_meanwhile_may_be_made_while_its_directory_is_offline(
    start: Manager, tmp_path: Path
):
    start("a", "b").close()
    (tmp_path / "b").rename(tmp_path / "aside")
    manager = start("a", "b", is_one_of_several=True, load=False)
    manager.expect(ORDERS)
    delete_logs(manager, [ORDERS])
    assert create_log(manager, ORDERS, ID_B, CONFIG).directory == tmp_path / "a/orders-0"


def test_of_two_logs_of_a_partition_the_one_counts_whose_directory_is_known(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    """A replica was taken away and came back while a directory was offline."""
    manager = start("a", "b", "c")
    manager.prefer(ORDERS, manager.directories[1])
    append(create_log(manager, ORDERS, ID_A, CONFIG), batch(3), clock)
    _, _, known = manager.directory_ids().values()
    manager.close()
    (tmp_path / "b").rename(tmp_path / "aside")
    manager = start("a", "b", "c", is_one_of_several=True)
    manager.prefer(ORDERS, manager.directories[2])
    append(create_log(manager, ORDERS, ID_A, CONFIG), batch(1), clock)
    manager.close()
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "aside").rename(tmp_path / "b")
    manager = start("a", "b", "c", load=False)
    load_logs(manager, lambda partition, topic_id: CONFIG, {ORDERS: KnownPartition(ID_A, 6, known)}.get)
    assert manager.logs[ORDERS].directory == tmp_path / "c/orders-0"
    assert (tmp_path / "b/orders-0").exists()


@pytest.mark.parametrize(("name", "number"), [("a", errno.EIO), ("b", errno.EMFILE)])
def test_no_broker_starts_without_its_first_directory_or_enough_descriptors(
    start: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
):
    start("a", "b").close()
    take_lock = LogDirectory._take_lock

    def fail(directory: LogDirectory) -> None:
        if directory.path.name == name:
            raise OSError(number, "no")
        take_lock(directory)

    monkeypatch.setattr(LogDirectory, "_take_lock", fail)
    with pytest.raises(DataDirectoryError, match=f"{name}: no"):
        start("a", "b", is_one_of_several=True)


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
        create_log(manager, TopicPartition("orders", partition), ID_A, CONFIG)
    assert len(list((tmp_path / "a").glob("orders-*"))) == 2
    manager.close()
    assert len(start("a", "b").logs) == 4


def test_a_log_that_fails_to_close_keeps_its_directory_from_being_called_clean(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path
):
    manager = start("a", "b")
    for partition in range(2):
        log = create_log(manager, TopicPartition("orders", partition), ID_A, CONFIG)
        append(log, batch(), clock)
    manager.logs[ORDERS].fail(OSError(errno.EIO, "gone"))
    assert not manager.close()
    assert [(tmp_path / name / ".kafka_cleanshutdown").exists() for name in "ab"] == [False, True]


def test_a_failed_disk_takes_its_logs_offline(start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path):
    manager = start("a", "b")
    for partition in range(2):
        create_log(manager, TopicPartition("orders", partition), ID_A, CONFIG)
    assert manager.take_offline(tmp_path / "a", OSError(errno.EIO, "gone")) == [ORDERS]
    with pytest.raises(StorageFailed):
        append(manager.logs[ORDERS], batch(), clock)
    append(manager.logs[TopicPartition("orders", 1)], batch(), clock)


@pytest.mark.parametrize("refused", ["recovery-point-offset-checkpoint", "replication-offset-checkpoint"])
def test_a_directory_that_cannot_be_written_does_not_keep_the_others_from_a_clean_stop(
    start: Manager, batch: Batch, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
):
    manager = start("a", "b")
    for partition in range(2):
        append(create_log(manager, TopicPartition("orders", partition), ID_A, CONFIG), batch(), clock)
    write = checkpoints.write_offsets

    def write_offsets(disk: Disk, path: PurePath, offsets: Mapping[TopicPartition, int]) -> None:
        if path == tmp_path / "a" / refused:
            raise OSError(errno.EIO, "gone")
        write(disk, path, offsets)

    monkeypatch.setattr(checkpoints, "write_offsets", write_offsets)
    assert {*manager.checkpoints.write(), *manager.checkpoints.write_high_watermarks({})} == {tmp_path / "a"}
    assert not manager.close(high_watermarks={ORDERS: 1, TopicPartition("orders", 1): 1})
    assert [(tmp_path / name / ".kafka_cleanshutdown").exists() for name in "ab"] == [False, True]
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert (tmp_path / "b" / name).read_bytes() == b"0\n1\norders 1 1\n"


def test_a_marker_that_cannot_be_written_does_not_keep_the_others_from_theirs(
    start: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    manager = start("a", "b")
    monkeypatch.setattr(manager.directories[0], "write_clean_shutdown_marker", fail_with(OSError(errno.EIO, "gone")))
    assert not manager.close()
    assert [(tmp_path / name / ".kafka_cleanshutdown").exists() for name in "ab"] == [False, True]


def test_a_directory_whose_disk_failed_gets_no_new_partitions_and_no_checkpoints(
    start: Manager, clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    manager = start("a", "b")
    manager.take_offline(tmp_path / "a", OSError(errno.EIO, "gone"))
    for partition in range(2):
        log = create_log(manager, TopicPartition("orders", partition), ID_A, CONFIG)
        assert log.directory.parent == tmp_path / "b"
    assert set(manager.checkpoints.write()) == {tmp_path / "a"}
    assert "checkpoints were not written" not in caplog.text


def test_checkpoints_that_fail_are_a_line_for_each_directory_and_reason_with_a_count_every_ten_seconds(
    start: Manager, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    manager = start("a", "b")
    numbers = {"a": errno.ENOSPC, "b": errno.EDQUOT}

    def refuse(disk: Disk, path: PurePath, offsets: Mapping[TopicPartition, int]) -> None:
        raise OSError(numbers[path.parent.name], os.strerror(numbers[path.parent.name]))

    def lines() -> list[str]:
        found = [f"{each.getMessage()}" for each in caplog.records if each.levelname == "ERROR"]
        caplog.clear()
        return [each.replace(str(manager.directories[0].path.parent), "") for each in found]

    monkeypatch.setattr(checkpoints, "write_offsets", refuse)
    for _ in range(3):
        failed = manager.checkpoints.write_high_watermarks({})
        assert [failed[each.path].errno for each in manager.directories] == [errno.ENOSPC, errno.EDQUOT]
    name = "replication-offset-checkpoint was not written"
    assert lines() == [
        f"/a: {name}: [Errno 28] No space left on device",
        f"/b: {name}: [Errno 122] Disk quota exceeded",
    ]
    numbers["b"] = errno.EIO
    manager.checkpoints.write_high_watermarks({})
    assert lines() == [f"/b: {name}: [Errno 5] Input/output error"], "another reason is not held back"
    assert list(manager.checkpoints.take_failures()) == [manager.directories[1].path], "no space is no broken disk"
    clock.advance(LOG_INTERVAL_SECONDS)
    manager.checkpoints.write_high_watermarks({})
    assert lines() == [
        f"/a: {name}: [Errno 28] No space left on device (3 more like it since the last line)",
        f"/b: {name}: [Errno 5] Input/output error",
    ]


def test_a_new_partition_waits_until_the_checkpoints_have_forgotten_the_old_one(
    start: Manager, batch: Batch, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
):
    manager = start()
    log = create_log(manager, ORDERS, ID_A, CONFIG)
    append(log, batch(10), clock)
    log.advance_log_start(7)
    manager.close()
    manager = start()
    with monkeypatch.context() as broken:
        broken.setattr(checkpoints, "write_offsets", fail_with(OSError(errno.EIO, "gone")))
        delete_logs(manager, [ORDERS])
        with pytest.raises(OSError, match="checkpoints"):
            create_log(manager, ORDERS, ID_B, CONFIG)


def test_fifty_idle_partitions_hold_few_descriptors(start: Manager):
    import os

    manager = start()
    for partition in range(50):
        create_log(manager, TopicPartition("orders", partition), ID_A, CONFIG)
    manager.close()
    before = len(os.listdir("/proc/self/fd"))
    manager = start()
    assert len(manager.logs) == 50
    assert len(os.listdir("/proc/self/fd")) - before <= 2
