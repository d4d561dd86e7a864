"""Retention, removal, checkpoints and expiry, by an injected clock."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.leader_append import append_to_leader
from tests.partition.real_logs import add_topic, batch, make_replicas, sync
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency import yield_budget
from trio_broker.partition import log_maintenance
from trio_broker.runtime.expiry_clock import MAX_CLOCK_STEP_MS
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage import checkpoints
from trio_broker.storage.log import Log

WEEK_SECONDS = 7 * 86_400


@pytest.fixture
def replicas(tmp_path):
    made = make_replicas(tmp_path / "data", log_durability="page-cache", internal_segment_bytes="2000")
    yield made
    made.log_manager.close(clean=False)


async def fill(replicas, partition, batches=10):
    for _ in range(batches):
        await append_to_leader(replicas, partition, batch(b"v" * 500))


async def test_retention_removes_what_is_old_and_wakes_who_waits_there(replicas):
    [partition] = await add_topic(replicas, configs={"internal.segment.bytes": "2000"})
    await fill(replicas, partition)
    assert len(partition.log.segments) > 2
    await replicas.log_maintenance.apply_retention()
    assert partition.log_start_offset == 0
    replicas.clock.advance(WEEK_SECONDS + 1)
    await replicas.log_maintenance.apply_retention()
    assert partition.log_start_offset == partition.log_end_offset == 10
    directory = partition.log.directory
    assert list(Path(directory).glob("*.log.deleted"))
    replicas.clock.advance(61)
    await replicas.log_maintenance.remove_expired_files()
    assert not list(Path(directory).glob("*.deleted"))


async def test_right_after_the_clock_was_set_forward_nothing_is_retired(replicas, caplog):
    [partition] = await add_topic(replicas, configs={"internal.segment.bytes": "2000"})
    await fill(replicas, partition)
    replicas.clock.time_ms += 365 * 86_400_000
    await replicas.log_maintenance.apply_retention()
    assert partition.log_start_offset == 0
    assert caplog.text.count("the clock was set forward by 31536000 s") == 1
    replicas.clock.advance(600)
    await replicas.log_maintenance.apply_retention()
    assert partition.log_start_offset == 10
    assert caplog.text.count("the clock was set forward") == 1


async def test_a_clock_that_was_set_back_in_time_costs_no_records(replicas):
    [partition] = await add_topic(replicas, configs={"internal.segment.bytes": "2000"})
    await fill(replicas, partition)
    for step_ms in (365 * 86_400_000, -365 * 86_400_000):
        replicas.clock.time_ms += step_ms
        await replicas.log_maintenance.apply_retention()
        replicas.clock.advance(300)
    await replicas.log_maintenance.apply_retention()
    assert partition.log_start_offset == 0


async def test_a_clock_that_is_slewed_does_not_stop_retention(replicas):
    [partition] = await add_topic(replicas, configs={"internal.segment.bytes": "2000"})
    await fill(replicas, partition)
    replicas.clock.advance(WEEK_SECONDS)
    replicas.clock.time_ms += MAX_CLOCK_STEP_MS
    await replicas.log_maintenance.apply_retention()
    assert partition.log_start_offset == 10


async def test_what_is_too_large_is_retired_however_the_clock_was_set(replicas):
    [partition] = await add_topic(replicas, configs={"internal.segment.bytes": "2000", "retention.bytes": "2000"})
    await fill(replicas, partition)
    replicas.clock.time_ms += 365 * 86_400_000
    await replicas.log_maintenance.apply_retention()
    assert 0 < partition.log_start_offset < 10


async def test_a_disk_that_fails_in_retention_goes_offline_and_the_rest_goes_on(replicas, monkeypatch):
    [partition] = await add_topic(replicas)

    def fail(self, now_ms, high_watermark):
        raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(Log, "retire_segments", fail)
    await replicas.log_maintenance.apply_retention()
    assert partition.failure is not None


async def test_checkpoints_hold_recovery_points_and_high_watermarks(replicas):
    [partition] = await add_topic(replicas)
    await fill(replicas, partition, 3)
    sync(partition)
    await replicas.log_maintenance.write_checkpoints()
    await replicas.log_maintenance.write_high_watermarks()
    directory = partition.log.directory.parent
    key = TopicPartition("orders", 0)
    assert checkpoints.read_offsets(RealDisk(), directory / "recovery-point-offset-checkpoint")[key] == 3
    assert checkpoints.read_offsets(RealDisk(), directory / "replication-offset-checkpoint")[key] == 3


async def test_silent_producers_are_forgotten(replicas):
    [partition] = await add_topic(replicas)
    records = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    await append_to_leader(replicas, partition, records)
    assert 5 in partition.log.producers.producers
    replicas.clock.advance(86_400 + 1)
    await replicas.log_maintenance.expire_producers()
    assert 5 not in partition.log.producers.producers


async def test_right_after_the_clock_was_set_forward_no_producer_is_forgotten(replicas):
    [partition] = await add_topic(replicas)
    records = batch(b"a", producer_id=5, producer_epoch=0, base_sequence=0)
    await append_to_leader(replicas, partition, records)
    replicas.clock.time_ms += 8 * 86_400_000
    await replicas.log_maintenance.expire_producers()
    assert 5 in partition.log.producers.producers
    replicas.clock.advance(600)
    await replicas.log_maintenance.expire_producers()
    assert 5 not in partition.log.producers.producers


async def test_a_sealed_segment_moves_the_recovery_point_behind_the_back_of_clients(replicas, nursery):
    await nursery.start(replicas.run)
    [partition] = await add_topic(replicas, configs={"internal.segment.bytes": "2000"})
    await fill(replicas, partition)
    await replicas.flusher.wait_idle(partition.writer)
    assert partition.log.recovery_point > 0


def test_duties_have_kafkas_intervals(replicas):
    assert {task.name: task.interval_ms() for task in replicas.log_maintenance.tasks()} == {
        "retention": 300_000,
        "disk usage": 30_000,
        "removing deleted files": 30_000,
        "flushing": 2**63 - 1,
        "recovery points": 60_000,
        "high watermarks": 5_000,
        "producer expiry": 600_000,
    }


async def test_every_duty_can_be_done(replicas):
    [partition] = await add_topic(replicas)
    await fill(replicas, partition, 1)
    for task in replicas.log_maintenance.tasks():
        await task.run()
    assert partition.failure is None


@pytest.mark.parametrize("name", ["retention", "flushing", "high watermarks", "producer expiry"])
async def test_a_duty_in_all_partitions_gives_others_turns(replicas, monkeypatch, name):
    await add_topic(replicas, partitions=20)
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count_turns)
        [task] = [each for each in replicas.log_maintenance.tasks() if each.name == name]
        await task.run()
        nursery.cancel_scope.cancel()
    assert turns >= 20


async def test_a_scrubber_with_nothing_to_do_gives_others_turns_and_writes_in_a_worker_thread(replicas, monkeypatch):
    await add_topic(replicas, partitions=20)
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    threads = []
    write = replicas.log_manager.checkpoints.write_scrubber_positions

    def noted(positions):
        threads.append(threading.current_thread())
        return write(positions)

    monkeypatch.setattr(replicas.log_manager.checkpoints, "write_scrubber_positions", noted)
    with trio.testing.assert_checkpoints():
        await replicas.log_maintenance.log_scrubber.finish_pass()
    assert threads
    assert threading.main_thread() not in threads


async def test_upkeep_does_its_duties_while_it_runs(replicas, nursery, autojump_clock, monkeypatch):
    done = trio.Event()
    monkeypatch.setattr(
        replicas.log_manager.checkpoints, "write_high_watermarks", lambda offsets: trio.from_thread.run_sync(done.set)
    )
    replicas.log_maintenance.start(nursery)
    await done.wait()


async def test_what_finds_out_that_files_are_gone_does_not_wait_for_the_initial_delay(replicas):
    delays = {task.name: task.initial_delay_ms for task in replicas.log_maintenance.tasks()}
    assert delays.pop("high watermarks") == 0
    assert set(delays.values()) == {30_000}


async def test_a_checkpoint_that_meets_a_broken_disk_takes_its_directory_offline(replicas, monkeypatch):
    [partition] = await add_topic(replicas)
    failed = []
    replicas.failures.on_directory_failure = lambda directory, error: failed.append((directory, error.errno))

    def write(disk, path, offsets):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(checkpoints, "write_offsets", write)
    await replicas.log_maintenance.write_high_watermarks()
    await replicas.log_maintenance.write_high_watermarks()
    assert failed == [(partition.log.directory.parent, errno.EIO)]
    assert partition.failure is not None


async def test_only_partitions_that_were_appended_to_since_the_last_time_are_looked_for(replicas, monkeypatch):
    partitions = await add_topic(replicas, partitions=3)
    looked_at = []
    look = Log.require_in_place

    def noted(log):
        looked_at.append(log.topic_partition.partition)
        look(log)

    monkeypatch.setattr(Log, "require_in_place", noted)
    await replicas.log_maintenance.write_high_watermarks()
    for appended in ((), (1,), (), (0, 2), ()):
        for index in appended:
            await append_to_leader(replicas, partitions[index], batch(b"v"))
        looked_at.clear()
        await replicas.log_maintenance.write_high_watermarks()
        assert looked_at == list(appended)


async def test_files_that_change_their_names_by_a_command_are_not_taken_for_gone(replicas, monkeypatch):
    """Truncation and deletion rename files while a worker thread looks at them."""
    [partition, deleted] = await add_topic(replicas, partitions=2)
    for each in (partition, deleted):
        await append_to_leader(replicas, each, batch(b"v"))
    out_of_place = log_maintenance._out_of_place
    seen = []

    def meanwhile(appended):
        names = [each.log.active_segment.file.path for each in appended]
        for path in names:
            Path(path).rename(path.with_suffix(".renamed"))
        seen.extend(out_of_place(appended))
        for path in names:
            Path(path.with_suffix(".renamed")).rename(path)
        deleted.fail(KafkaError("deleted", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        return seen

    monkeypatch.setattr(log_maintenance, "_out_of_place", meanwhile)
    await replicas.log_maintenance.write_high_watermarks()
    assert seen == [partition, deleted]
    assert partition.failure is None
    assert deleted.log.failure is None
    await append_to_leader(replicas, partition, batch(b"v"))


async def test_checkpoints_without_room_are_one_line_for_all_and_cost_nothing(replicas, monkeypatch, caplog):
    [partition] = await add_topic(replicas)

    def write(disk, path, offsets):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "write_offsets", write)
    for _ in range(5):
        await replicas.log_maintenance.write_high_watermarks()
    assert caplog.text.count("replication-offset-checkpoint was not written") == 1
    assert partition.failure is None
