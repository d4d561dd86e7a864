"""The loading of all logs at a start, in threads, and how far it is meanwhile."""

from __future__ import annotations

import random
import threading
from pathlib import Path, PurePath

import attrs
import pytest

from tests.partition.real_logs import NOW_MS, batch
from tests.storage.managed_logs import create_log, load_logs
from tests.waits import scaled
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.log_config import LogConfig
from trio_broker.partition.log_loader import LoadStopped, LogLoader
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.disk import Disk
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.runtime.real_workers import RealWorkers
from trio_broker.runtime.simulated_clock import SimulatedClock
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_workers import SimulatedWorkers
from trio_broker.runtime.workers import Workers
from trio_broker.storage.log_loading import known_as_none
from trio_broker.storage.log_manager import LoadReport, LogManager
from trio_broker.storage.recovery_progress import DirectoryRecovery, RecoveryProgress, progress_text

A, B = PurePath("/a"), PurePath("/b")
TOPIC_ID = bytes(range(16))
CONFIG = LogConfig()
WAIT_SECONDS = 20.0
RECORDS_BYTES = len(batch(b"value"))


def managed(
    disk: Disk, *directories: PurePath, clock: SimulatedClock | ManualClock, sync_recovered: bool = False
) -> LogManager:
    chance = random.Random(1)
    paths = directories or (A, B)
    manager = LogManager(paths, disk=disk, random=chance, node_id=1, clock=clock, sync_recovered=sync_recovered)
    manager.open()
    return manager


def write_logs(manager: LogManager, count: int = 4) -> list[TopicPartition]:
    """Leave ``count`` logs of one record each, in turn in the directories, as a kill does."""
    load_logs(manager, lambda partition, topic_id: CONFIG)
    partitions = [TopicPartition("orders", index) for index in range(count)]
    for partition in partitions:
        log = create_log(manager, partition, TOPIC_ID, CONFIG)
        log.append(batch(b"value"), leader_epoch=0, now_ms=NOW_MS)
    manager.close(clean=False)
    return partitions


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def disk(clock: ManualClock) -> SimulatedDisk:
    return SimulatedDisk(clock)


async def load(
    manager: LogManager,
    *,
    workers: Workers | None = None,
    loader: LogLoader | None = None,
    threads: int = 2,
    config_for=lambda partition, topic_id: CONFIG,
) -> LoadReport:
    workers = workers or SimulatedWorkers(random.Random(1))
    loader = loader or LogLoader()
    return await loader.load(manager, config_for, known_as_none, workers=workers, threads=threads)


def loaded(report: LoadReport) -> list[TopicPartition]:
    return [each.topic_partition for each in report.recovered]


async def test_all_logs_are_loaded_in_the_order_of_the_directories_whichever_thread_was_first(
    disk, clock, autojump_clock
):
    write_logs(managed(disk, clock=clock))
    expected = [entry.name for path in (A, B) for entry in disk.list_directory(path) if entry.is_directory]
    assert sorted(expected) == ["orders-0", "orders-1", "orders-2", "orders-3"]
    for seed in range(5):
        manager = managed(disk, clock=clock)
        report = await load(manager, workers=SimulatedWorkers(random.Random(seed)))
        assert list(map(str, loaded(report))) == list(map(str, manager.logs)) == expected
        manager.close(clean=False)


async def test_the_failure_of_one_log_is_named_and_keeps_no_other_from_being_loaded(disk, clock, autojump_clock):
    write_logs(managed(disk, A, clock=clock))
    manager = managed(disk, A, clock=clock)

    def refuse_two(partition: TopicPartition, topic_id: bytes) -> LogConfig | None:
        if partition.partition == 1:
            raise OSError(5, "broken")
        return CONFIG if partition.partition != 2 else None

    report = await load(manager, config_for=refuse_two)
    assert {str(partition): str(error) for partition, error in report.failures.items()} == {
        "orders-1": "[Errno 5] broken"
    }
    assert [path.name.partition(".")[0] for path in report.strays] == ["orders-2"]
    assert [str(each) for each in loaded(report)] == ["orders-0", "orders-3"]


async def test_a_mistake_of_the_code_is_no_failure_of_a_log(disk, clock, autojump_clock):
    write_logs(managed(disk, A, clock=clock))

    def mistaken(partition: TopicPartition, topic_id: bytes) -> LogConfig:
        raise LookupError(str(partition))

    with pytest.raises(LookupError):
        await load(managed(disk, A, clock=clock), config_for=mistaken)


@attrs.define
class CountingWorkers(RealWorkers):
    """Real threads, of which queues were asked for by ``threads``."""

    threads: list[int] = attrs.field(factory=list)

    def queue(self, work, ended, *, threads):
        self.threads.append(threads)
        return super().queue(work, ended, threads=threads)


async def test_each_directory_has_its_own_threads(tmp_path: Path):
    """Four logs wait for each other: they are opened at the same time, or never."""
    clock, paths = ManualClock(), (tmp_path / "a", tmp_path / "b")
    write_logs(managed(RealDisk(), *paths, clock=clock))
    together = threading.Barrier(4, timeout=scaled(WAIT_SECONDS))

    def wait_for_all(partition: TopicPartition, topic_id: bytes) -> LogConfig:
        together.wait()
        return CONFIG

    workers = CountingWorkers()
    report = await load(managed(RealDisk(), *paths, clock=clock), workers=workers, config_for=wait_for_all)
    assert not report.failures
    assert len(report.recovered) == 4
    assert workers.threads == [2, 2]


async def test_progress_counts_logs_segments_and_bytes_by_directory(disk, clock, autojump_clock):
    write_logs(managed(disk, clock=clock), 6)
    loader = LogLoader()
    assert progress_text(loader.progress()) == "the broker is starting"
    seen: list[RecoveryProgress] = []

    def look(partition: TopicPartition, topic_id: bytes) -> LogConfig:
        clock.advance(1.0)
        seen.append(loader.progress())
        return CONFIG

    await load(managed(disk, clock=clock), loader=loader, threads=1, config_for=look)
    first, last = seen[0], loader.progress()
    size = RECORDS_BYTES
    assert first.directories == (
        DirectoryRecovery("/a", False, 3, 0, 3, 0, 3 * size, 0),
        DirectoryRecovery("/b", False, 3, 0, 3, 0, 3 * size, 0),
    )
    assert not first.is_over
    totals = [sum(each.loaded_logs for each in progress.directories) for progress in seen]
    assert totals == [0, 1, 2, 3, 4, 5]
    assert last.directories == tuple(
        DirectoryRecovery(path, False, 3, 3, 3, 3, 3 * size, 3 * size) for path in ("/a", "/b")
    )
    assert (last.is_over, last.seconds) == (True, 6.0)
    clock.advance(1.0)
    assert loader.progress() == last


async def test_a_large_log_counts_while_it_is_read(clock, autojump_clock):
    disk = SimulatedDisk(clock)
    manager = managed(disk, A, clock=clock)
    load_logs(manager, lambda partition, topic_id: CONFIG)
    log = create_log(manager, TopicPartition("orders", 0), TOPIC_ID, CONFIG)
    for _ in range(3):
        log.append(batch(b"value"), leader_epoch=0, now_ms=NOW_MS)
        log.roll(NOW_MS)
    manager.close(clean=False)
    loader, seen = LogLoader(), []

    def note(operation) -> None:
        if loader.progress().directories:
            seen.append(loader.progress().directories[0].recovered_segments)

    disk.trace.before = note
    await load(managed(disk, A, clock=clock), loader=loader)
    assert sorted({*seen}) == [0, 1, 2, 3, 4]


async def test_after_a_clean_stop_nothing_is_to_be_read(disk, clock, autojump_clock):
    manager = managed(disk, A, clock=clock)
    load_logs(manager, lambda partition, topic_id: CONFIG)
    create_log(manager, TopicPartition("orders", 0), TOPIC_ID, CONFIG)
    manager.close()
    loader = LogLoader()
    await load(managed(disk, A, clock=clock), loader=loader)
    assert loader.progress().directories == (DirectoryRecovery("/a", True, 1, 1, 0, 0, 0, 0),)


async def test_a_start_that_takes_long_says_how_far_it_is(autojump_clock, caplog):
    clock = SimulatedClock(autojump_clock)
    disk = SimulatedDisk(clock)
    write_logs(managed(disk, A, clock=clock), 12)

    def slowly(partition: TopicPartition, topic_id: bytes) -> LogConfig:
        autojump_clock.jump(2.0)
        return CONFIG

    with caplog.at_level("INFO"):
        await load(managed(disk, A, clock=clock), threads=1, config_for=slowly)
    lines = [record.getMessage() for record in caplog.records if record.name.endswith("log_loader")]
    assert [line.partition(",")[0] for line in lines] == [f"recovering {count} of 12 logs" for count in (3, 6, 9, 12)]


def test_the_text_says_what_is_done_of_how_much():
    reading = DirectoryRecovery("/a", False, 4000, 100, 5000, 90, 30 << 30, 800 << 20)
    clean = DirectoryRecovery("/b", True, 1000, 20, 0, 0, 0, 0)
    progress = RecoveryProgress((reading, clean), 12.3)
    assert progress_text(progress) == "recovering 120 of 5,000 logs, 800 of 30,720 MiB read, after 12 s"
    assert progress_text(RecoveryProgress((clean,), 0.4)) == "loading 20 of 1,000 logs, after 0 s"
    assert progress_text(attrs.evolve(progress, is_over=True)) == "the broker is starting: 5,000 logs are loaded"


async def test_a_stop_ends_the_loading_after_the_logs_that_have_begun(disk, clock, autojump_clock):
    write_logs(managed(disk, A, clock=clock))
    loader, begun = LogLoader(), []

    def stop_soon(partition: TopicPartition, topic_id: bytes) -> LogConfig:
        begun.append(partition.partition)
        loader.stop()
        return CONFIG

    manager = managed(disk, A, clock=clock)
    with pytest.raises(LoadStopped, match=r"^stopped while it was recovering 2 of 4 logs"):
        await load(manager, loader=loader, threads=1, config_for=stop_soon)
    assert begun == [0, 1]
    assert not manager.logs
    manager.close(clean=False)
    assert len((await load(managed(disk, A, clock=clock))).recovered) == 4


@pytest.mark.parametrize("synced", [True, False])
async def test_where_consumers_see_only_what_is_durable_all_that_is_found_is_made_so(
    disk, clock, synced, autojump_clock
):
    partitions = write_logs(managed(disk, A, clock=clock))
    manager = managed(disk, A, clock=clock, sync_recovered=synced)
    await load(manager)
    assert {manager.logs[each].recovery_point for each in partitions} == {int(synced)}
    survivor = managed(disk.power_cut(random.Random(3)), A, clock=clock)
    await load(survivor)
    if synced:
        assert {log.log_end_offset for log in survivor.logs.values()} == {1}
