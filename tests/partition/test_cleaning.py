"""The cleaner at work on partitions: what it chooses, whom it lets go on, and what it leaves when something fails."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.leader_append import append_to_leader
from tests.partition.real_logs import add_topic, delete_topics, make_replicas
from tests.storage.log_content import found_batches
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.config.entries import ConfigScope
from trio_broker.config.log_manager_config import LogManagerConfig
from trio_broker.config.resource_config import topic_config
from trio_broker.partition.compaction_pace import BytesPerSecond, Slice, run_slice
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage import checkpoints
from trio_broker.storage.cleaner import Cleaning
from trio_broker.storage.log_file import LogFile
from trio_broker.storage.segment_swap import SegmentSwap

COMPACT = {"cleanup.policy": "compact", "internal.segment.bytes": "2000"}


@pytest.fixture
def cleaner(replicas):
    return replicas.log_maintenance.log_cleaner


def keyed_batch(key, value):
    return memoryview(bytearray(build_batch([NewRecord(1_700_000_000_000, key, value)])))


async def fill(replicas: ReplicaManager, partition, batches=12, keys_count=3):
    """Some sealed segments, all of it synced."""
    for number in range(batches):
        data = keyed_batch(b"k%d" % (number % keys_count), b"%03d" % number + b"v" * 500)
        await append_to_leader(replicas, partition, data)
    partition.log.sync()


def left(partition):
    return [record.offset for each in found_batches(partition.log) for record in each.records()]


async def until(condition):
    """Let seconds of the test's clock go by until ``condition`` holds; threads take real time meanwhile."""
    for _ in iter(condition, True):
        await trio.sleep(1)


async def rounds_of_the_loop(cleaner, count=5):
    """Let the cleaner look for work so many times more."""
    looks, original = [], cleaner.choose

    async def counted():
        looks.append(1)
        return await original()

    cleaner.choose = counted
    await until(lambda: len(looks) >= count)


async def clean_once(cleaner):
    chosen = await cleaner.choose()
    assert chosen is not None, "nothing is due"
    await cleaner.compact(*chosen)


async def test_a_round_keeps_the_newest_of_each_key_and_writes_down_how_far_it_came(replicas, cleaner):
    [partition] = await add_topic(replicas, configs=COMPACT)
    await fill(replicas, partition)
    active = partition.log.active_segment.base_offset
    await clean_once(cleaner)
    assert left(partition) == [active - 3, active - 2, active - 1, *range(active, 12)]
    assert partition.log.first_dirty_offset == active
    path = partition.log.directory.parent / "cleaner-offset-checkpoint"
    assert Path(path).read_text() == f"0\n1\norders 0 {active}\n"
    assert await cleaner.choose() is None, "it is clean now"
    figures = cleaner.statistics()
    assert (figures.rounds, figures.records_kept, figures.uncleanable) == (1, 3, ())


async def test_threads_that_share_less_than_a_byte_of_the_buffer_compact_all_the_same(replicas, cleaner):
    replicas.config.set_dynamic(ConfigScope.BROKER, {"log.cleaner.threads": "64", "log.cleaner.io.buffer.size": "100"})
    [partition] = await add_topic(replicas, configs=COMPACT)
    await fill(replicas, partition)
    await clean_once(cleaner)
    assert partition.log.first_dirty_offset == partition.log.active_segment.base_offset


async def test_the_checkpoint_is_read_at_the_next_start_and_forgotten_with_the_topic(replicas, cleaner, tmp_path):
    [partition] = await add_topic(replicas, configs=COMPACT)
    await fill(replicas, partition)
    await clean_once(cleaner)
    active = partition.log.first_dirty_offset
    replicas.log_manager.close()
    again = make_replicas(tmp_path / "data", log_durability="page-cache")
    [partition] = await add_topic(again, configs=COMPACT)
    assert partition.log.first_dirty_offset == active
    await delete_topics(again, "orders")
    path = tmp_path / "data" / "cleaner-offset-checkpoint"
    assert checkpoints.read_offsets(RealDisk(), path) == {}
    [partition] = await add_topic(again, configs=COMPACT, topic_id=bytes(16))
    assert partition.log.first_dirty_offset is None
    again.log_manager.close(clean=False)


async def test_the_cleaner_compacts_what_is_due_and_looks_again_when_its_time_has_come(
    replicas, cleaner, nursery, autojump_clock
):
    [partition] = await add_topic(replicas, configs=COMPACT)
    nursery.start_soon(cleaner.run)
    await rounds_of_the_loop(cleaner)
    assert partition.log.first_dirty_offset is None
    for rounds in (1, 2):
        await fill(replicas, partition)
        await until(lambda done=rounds: cleaner.statistics().rounds == done)
        assert partition.log.first_dirty_offset == partition.log.active_segment.base_offset


async def test_topics_that_are_not_compacted_are_left_alone(replicas, cleaner):
    [partition] = await add_topic(replicas, configs={"internal.segment.bytes": "2000"})
    await fill(replicas, partition)
    assert await cleaner.choose() is None
    replicas.local_partitions.update_config("orders", topic_config(COMPACT, replicas.config))
    assert (await cleaner.choose())[0] is partition


async def test_the_dirtiest_partition_comes_first(replicas, cleaner):
    [clean] = await add_topic(replicas, "clean", configs=COMPACT)
    [dirty] = await add_topic(replicas, "dirty", configs=COMPACT, topic_id=bytes(16))
    await fill(replicas, clean, keys_count=12)
    await clean_once(cleaner)
    await fill(replicas, clean, 30)
    await fill(replicas, dirty)
    partition, compacted = await cleaner.choose()
    assert partition is dirty
    assert cleaner.statistics().max_dirty_ratio == compacted.dirty_ratio == 1


async def test_a_log_that_is_not_dirty_enough_waits(replicas, cleaner):
    [partition] = await add_topic(replicas, configs={**COMPACT, "min.cleanable.dirty.ratio": "0.9"})
    await fill(replicas, partition, 40, keys_count=40)
    await clean_once(cleaner)
    await fill(replicas, partition, 8)
    assert await cleaner.choose() is None
    assert 0 < cleaner.statistics().max_dirty_ratio < 0.9


async def test_what_is_not_known_to_be_on_the_disk_is_synced_and_then_compacted(replicas, cleaner, nursery):
    [partition] = await add_topic(replicas, configs=COMPACT)
    await fill(replicas, partition)
    partition.log.lower_recovery_point(0)
    partition.writer.state.durable_offset = 0
    assert await cleaner.choose() is None
    await nursery.start(replicas.flusher.run)
    await replicas.flusher.wait_idle(partition.writer)
    assert await cleaner.choose() is not None


async def test_producers_and_consumers_go_on_between_the_slices(replicas, cleaner, monkeypatch):
    [partition] = await add_topic(replicas, configs=COMPACT)
    await fill(replicas, partition, 40)
    monkeypatch.setattr("trio_broker.partition.log_cleaner.run_slice", lambda work, clock: run_slice(work, clock, 0.0))
    ends = []

    async def produce():
        while True:
            await append_to_leader(replicas, partition, keyed_batch(b"new", b"v"))
            ends.append(len(left(partition)))
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(produce)
        await clean_once(cleaner)
        nursery.cancel_scope.cancel()
    assert len(ends) > 10
    assert min(ends) < max(ends)


async def test_right_after_the_clock_was_set_forward_nothing_is_old_enough_to_be_compacted(replicas, cleaner):
    [partition] = await add_topic(replicas, configs={**COMPACT, "min.compaction.lag.ms": "86400000"})
    await fill(replicas, partition)
    replicas.clock.time_ms += 8 * 86_400_000
    assert await cleaner.choose() is None
    replicas.clock.advance(600)
    assert await cleaner.choose() is not None


async def test_right_after_the_clock_was_set_forward_tombstones_are_kept(replicas, cleaner):
    [partition] = await add_topic(replicas, configs=COMPACT)
    await append_to_leader(replicas, partition, keyed_batch(b"k", None))
    await fill(replicas, partition, batches=8)
    await clean_once(cleaner)  # from now on the tombstone has a day
    assert left(partition)[0] == 0
    await fill(replicas, partition, batches=8)
    replicas.clock.time_ms += 8 * 86_400_000
    await clean_once(cleaner)
    assert left(partition)[0] == 0


async def test_retention_passes_over_a_partition_that_is_being_compacted(replicas, cleaner, nursery, monkeypatch):
    [partition] = await add_topic(replicas, configs={**COMPACT, "cleanup.policy": "compact,delete"})
    await fill(replicas, partition, keys_count=12)  # an emptied segment would be as young as its file
    replicas.clock.advance(8 * 86_400)
    under_way, go_on = trio.Event(), trio.Event()

    async def pause(self, size_bytes):
        under_way.set()
        await go_on.wait()

    monkeypatch.setattr(BytesPerSecond, "pay", pause)
    nursery.start_soon(cleaner.run)
    await under_way.wait()
    await replicas.log_maintenance.apply_retention()
    assert partition.log_start_offset == 0
    assert cleaner.statistics().under_way == (TopicPartition("orders", 0),)
    go_on.set()
    while cleaner.statistics().under_way:
        await trio.testing.wait_all_tasks_blocked()
    await replicas.log_maintenance.apply_retention()
    assert partition.log_start_offset == 12


async def test_a_deleted_topic_does_not_wait_for_its_round(replicas, cleaner, nursery, monkeypatch):
    [partition] = await add_topic(replicas, configs=COMPACT)
    await fill(replicas, partition)
    under_way = trio.Event()

    async def wait_for_ever(self, size_bytes):
        under_way.set()
        await trio.sleep_forever()

    monkeypatch.setattr(BytesPerSecond, "pay", wait_for_ever)
    nursery.start_soon(cleaner.run)
    await under_way.wait()
    await delete_topics(replicas, "orders")
    assert cleaner.statistics().under_way == ()
    [directory] = Path(partition.log.directory.parent).glob("*-delete")
    assert not list(directory.glob("*.cleaned"))


async def test_a_round_that_is_cancelled_leaves_nothing_and_one_in_its_swap_completes_that(
    replicas, cleaner, monkeypatch
):
    [partition] = await add_topic(replicas, configs=COMPACT)
    await fill(replicas, partition)
    partition_, compacted = await cleaner.choose()
    with trio.CancelScope() as scope:

        async def cancel(self, size_bytes):
            scope.cancel()
            await trio.lowlevel.checkpoint()

        with monkeypatch.context() as patched:
            patched.setattr(BytesPerSecond, "pay", cancel)
            await cleaner.compact(partition_, compacted)
    directory = partition.log.directory
    assert len(left(partition)) == 12
    with trio.CancelScope() as scope:
        original = SegmentSwap.replace_segments

        def replace_segments(self, now_ms):
            scope.cancel()
            original(self, now_ms)

        with monkeypatch.context() as patched:
            patched.setattr(SegmentSwap, "replace_segments", replace_segments)
            await cleaner.compact(partition_, compacted)
    assert scope.cancelled_caught
    assert not [path for path in Path(directory).iterdir() if path.suffix in (".cleaned", ".swap")]
    assert len(list(Path(directory).glob("*.log.deleted"))) == 1
    assert len(left(partition)) < 12
    assert partition.log.first_dirty_offset is None


async def test_a_damaged_partition_is_left_as_it_is_and_reported_and_the_others_are_compacted(
    replicas, cleaner, nursery, autojump_clock, caplog
):
    [bad] = await add_topic(replicas, "bad", configs=COMPACT)
    [good] = await add_topic(replicas, "good", configs=COMPACT, topic_id=bytes(16))
    for partition in (bad, good):
        await fill(replicas, partition)
    path = bad.log.segments[1].file.path
    damaged = bytearray(Path(path).read_bytes())
    damaged[100] ^= 1
    Path(path).write_bytes(damaged)
    nursery.start_soon(cleaner.run)
    await rounds_of_the_loop(cleaner)
    [uncleanable] = cleaner.statistics().uncleanable
    assert uncleanable.topic_partition == TopicPartition("bad", 0)
    assert "CRC" in uncleanable.reason
    assert caplog.text.count("bad-0 cannot be compacted and is left as it is from now on") == 1
    assert Path(path).read_bytes() == damaged
    assert bad.failure is None
    assert good.log.first_dirty_offset == good.log.active_segment.base_offset
    await delete_topics(replicas, "bad")
    await rounds_of_the_loop(cleaner)
    assert cleaner.statistics().uncleanable == ()


async def test_our_own_error_costs_one_partition_its_compaction_and_nothing_else(
    replicas, cleaner, nursery, autojump_clock, monkeypatch, caplog
):
    [partition] = await add_topic(replicas, configs=COMPACT)
    await fill(replicas, partition)

    def fail(self):
        raise ZeroDivisionError("a bug")
        yield

    monkeypatch.setattr(Cleaning, "index", fail)
    nursery.start_soon(cleaner.run)
    await rounds_of_the_loop(cleaner)
    assert [each.reason for each in cleaner.statistics().uncleanable] == ["a bug"]
    assert "ZeroDivisionError" in caplog.text
    assert partition.failure is None
    await fill(replicas, partition, 1)


async def test_a_full_disk_is_tried_again(replicas, cleaner, nursery, autojump_clock, monkeypatch):
    [partition] = await add_topic(replicas, configs=COMPACT)
    await fill(replicas, partition)
    original = LogFile.append

    def refuse(file, data, position):
        if file.path.suffix == ".cleaned":
            raise OSError(errno.ENOSPC, "full")
        original(file, data, position)

    with monkeypatch.context() as patched:
        patched.setattr(LogFile, "append", refuse)
        nursery.start_soon(cleaner.run)
        await rounds_of_the_loop(cleaner)
        await until(lambda: not cleaner.statistics().under_way)
        assert partition.log.first_dirty_offset is None
        assert partition.failure is None
        assert cleaner.statistics().uncleanable == ()
        assert not list(Path(partition.log.directory).glob("*.cleaned"))
    await until(lambda: partition.log.first_dirty_offset is not None)


async def test_the_recovery_point_is_on_the_disk_before_a_record_goes(replicas, cleaner, monkeypatch):
    [partition] = await add_topic(replicas, configs=COMPACT)
    await fill(replicas, partition)
    path, points = Path(partition.log.directory.parent) / "recovery-point-offset-checkpoint", []
    original = SegmentSwap.commit

    def commit(self):
        points.append(checkpoints.read_offsets(RealDisk(), path)[partition.topic_partition])
        original(self)

    monkeypatch.setattr(SegmentSwap, "commit", commit)
    _, compacted = await cleaner.choose()
    await cleaner.compact(partition, compacted)
    assert min(points) >= compacted.end_offset


async def test_nothing_is_compacted_while_the_recovery_point_cannot_be_written(
    replicas, cleaner, nursery, autojump_clock, monkeypatch
):
    [partition] = await add_topic(replicas, configs=COMPACT)
    await fill(replicas, partition)

    def refuse(disk, path, offsets):
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "write_offsets", refuse)
        nursery.start_soon(cleaner.run)
        await rounds_of_the_loop(cleaner)
        await until(lambda: not cleaner.statistics().under_way)
        assert len(left(partition)) == 12
        assert partition.failure is None
        assert cleaner.statistics().uncleanable == ()
    await until(lambda: partition.log.first_dirty_offset is not None)


async def test_a_disk_that_fails_in_the_swap_takes_its_directory_offline(
    replicas, cleaner, nursery, autojump_clock, monkeypatch
):
    [partition] = await add_topic(replicas, configs=COMPACT)
    await fill(replicas, partition)

    original = RealDisk.rename

    def fail(disk, path, target):
        if target.suffix == ".swap":
            raise OSError(errno.EIO, "broken")
        original(disk, path, target)

    with monkeypatch.context() as patched:
        patched.setattr(RealDisk, "rename", fail)
        nursery.start_soon(cleaner.run)
        await until(lambda: partition.failure is not None)
        await rounds_of_the_loop(cleaner)
    with pytest.raises(KafkaError, match="broken"):
        partition.require_leader()
    assert cleaner.statistics().under_way == ()


async def test_without_the_cleaner_nothing_is_compacted_and_the_log_says_so(tmp_path, caplog):
    replicas = make_replicas(tmp_path / "data", log_durability="page-cache", log_cleaner_enable="false")
    await replicas.log_maintenance.log_cleaner.run()
    assert "nothing is compacted" in caplog.text
    replicas.log_manager.close(clean=False)


async def test_as_many_rounds_run_at_a_time_as_there_are_threads_and_that_may_change(
    replicas, cleaner, nursery, monkeypatch
):
    partitions = await add_topic(replicas, partitions=4, configs=COMPACT)
    for partition in partitions:
        await fill(replicas, partition)
    go_on = trio.Event()

    async def pause(self, size_bytes):
        await go_on.wait()

    async def under_way(count):
        while len(cleaner.statistics().under_way) != count:
            await trio.testing.wait_all_tasks_blocked()

    monkeypatch.setattr(BytesPerSecond, "pay", pause)
    nursery.start_soon(cleaner.run)
    await under_way(1)
    replicas.config.set_dynamic(ConfigScope.BROKER, {"log.cleaner.threads": "2"})
    cleaner.reconfigure(replicas.config)
    await under_way(2)
    go_on.set()
    for _ in iter(lambda: cleaner.statistics().rounds, len(partitions)):
        await trio.testing.wait_all_tasks_blocked()


async def test_a_rate_is_kept_by_all_together(autojump_clock):
    pace = BytesPerSecond(lambda: 1000.0)

    async def spend():
        for _ in range(5):
            await pace.pay(500)

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(spend)
    assert trio.current_time() - began == pytest.approx(10)


async def test_no_rate_is_no_wait(autojump_clock):
    pace = BytesPerSecond(lambda: LogManagerConfig().log_cleaner_io_max_bytes_per_second)
    began = trio.current_time()
    for _ in range(10):
        await pace.pay(10**12)
    assert trio.current_time() - began < 0.001


def test_a_slice_ends_when_its_time_is_over_or_the_work_is():
    clock = ManualClock()

    def work() -> Iterator[int]:
        for size_bytes in (1, 2, 4, 8):
            clock.advance(1)
            yield size_bytes

    assert run_slice(work(), clock, 10) == Slice(15, is_last=True)
    steps = work()
    assert run_slice(steps, clock, 2) == Slice(3, is_last=False)
    assert run_slice(steps, clock, 2) == Slice(12, is_last=False)
    assert run_slice(steps, clock, 2) == Slice(0, is_last=True)


async def test_a_row_that_was_cut_meanwhile_ends_the_round(replicas, cleaner, monkeypatch):
    [partition] = await add_topic(replicas, configs=COMPACT)
    await fill(replicas, partition)
    monkeypatch.setattr(SegmentSwap, "is_possible", False)
    await clean_once(cleaner)
    assert len(left(partition)) == 12
    assert partition.log.first_dirty_offset is None
    assert not list(Path(partition.log.directory).glob("*.cleaned"))
