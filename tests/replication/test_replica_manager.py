"""The replica manager over real logs: finding, appending, waiting, and disks that fail."""

from __future__ import annotations

import errno

import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.replication.real_logs import NOW_MS, TOPIC_ID, add_topic, batch, make_replicas
from trio_broker.config.topic_config import resolve
from trio_broker.replication.hosted_topics import TopicAssignment
from trio_broker.replication.replica_manager import AwaitedOffset
from trio_broker.storage.errors import StorageFailed
from trio_broker.storage.log import Log
from trio_broker.topic_partition import TopicPartition

OTHER_ID = bytes(range(16, 32))


class Parking:
    """Counts how often a handler gave its slot back."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


@pytest.fixture
def park():
    return Parking()


@pytest.fixture
async def cached(tmp_path, nursery):
    replicas = make_replicas(tmp_path / "data", log_durability="page-cache")
    await nursery.start(replicas.run)
    yield replicas
    replicas.log_manager.close(clean=False)


@pytest.fixture
async def synced(tmp_path, nursery):
    replicas = make_replicas(tmp_path / "data")
    await nursery.start(replicas.run)
    yield replicas
    replicas.log_manager.close(clean=False)


async def produce(replicas, partition, *values):
    return await replicas.append(partition, batch(*values), produce_version=9)


def refusal_of(raised) -> ErrorCode:
    return raised.value.code


async def test_topics_are_found_by_name_and_by_id(cached):
    [partition] = await add_topic(cached)
    assert cached.topic("orders").partition(0) is partition
    assert cached.topic_by_id(TOPIC_ID).partition(0) is partition


async def test_trap_18_an_unknown_id_and_an_unknown_name_have_codes_of_their_own(cached):
    await add_topic(cached)
    with pytest.raises(KafkaError) as unknown_name:
        cached.topic("nothing")
    assert refusal_of(unknown_name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as unknown_id:
        cached.topic_by_id(OTHER_ID)
    assert refusal_of(unknown_id) == ErrorCode.UNKNOWN_TOPIC_ID
    with pytest.raises(KafkaError) as unknown_partition:
        cached.topic("orders").partition(1)
    assert refusal_of(unknown_partition) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_first_append_of_an_epoch_has_its_entry_on_disk_before(cached):
    [partition] = await add_topic(cached, leader_epoch=4)
    assert partition.needs_epoch_entry
    info = await produce(cached, partition, b"a")
    assert info.first_offset == 0
    assert "4 0" in (partition.log.directory / "leader-epoch-checkpoint").read_text()
    await add_topic(cached, leader_epoch=7)
    await produce(cached, partition, b"b")
    assert "7 1" in (partition.log.directory / "leader-epoch-checkpoint").read_text()


async def test_appends_that_come_together_in_a_new_epoch_all_wait_for_its_entry(cached):
    [partition] = await add_topic(cached)
    offsets = []

    async def append() -> None:
        offsets.append((await produce(cached, partition, b"a")).first_offset)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(append)
    assert sorted(offsets) == [0, 1, 2, 3, 4]


async def test_acks_all_waits_for_the_disk_in_fsync_mode(synced, park):
    [partition] = await add_topic(synced)
    info = await produce(synced, partition, b"a")
    assert partition.high_watermark == 0
    codes = await synced.wait_until_replicated([AwaitedOffset(partition, 1)], timeout_seconds=30, park=park)
    assert codes == [ErrorCode.NONE]
    assert (info.last_offset, partition.high_watermark, park.calls) == (0, 1, 1)


async def test_acks_all_does_not_wait_for_what_is_already_there(cached, park):
    [partition] = await add_topic(cached)
    await produce(cached, partition, b"a")
    assert await cached.wait_until_replicated([AwaitedOffset(partition, 1)], timeout_seconds=30, park=park) == [
        ErrorCode.NONE
    ]
    assert park.calls == 0


async def test_acks_all_over_several_partitions_waits_for_the_last(synced, park):
    partitions = await add_topic(synced, partitions=3)
    awaited = []
    for partition in partitions:
        info = await produce(synced, partition, b"a")
        awaited.append(AwaitedOffset(partition, info.last_offset + 1))
    codes = await synced.wait_until_replicated(awaited, timeout_seconds=30, park=park)
    assert codes == [ErrorCode.NONE] * 3
    assert [partition.high_watermark for partition in partitions] == [1, 1, 1]


async def test_acks_all_that_is_not_safe_in_time_is_told_so_and_forgotten(tmp_path, park, autojump_clock):
    replicas = make_replicas(tmp_path / "data")  # its flusher does not run
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")
    codes = await replicas.wait_until_replicated([AwaitedOffset(partition, 1)], timeout_seconds=1.5, park=park)
    assert codes == [ErrorCode.REQUEST_TIMED_OUT]
    assert partition.parked_produces == 0
    replicas.log_manager.close(clean=False)


def fail_with(error):
    def fail(self, *arguments, **keywords):
        raise error

    return fail


async def test_a_failed_sync_takes_the_whole_directory_offline_and_answers_storage_error(synced, park, monkeypatch):
    first, second = await add_topic(synced, partitions=2)
    await produce(synced, first, b"a")
    await synced.wait_until_replicated([AwaitedOffset(first, 1)], timeout_seconds=30, park=park)
    monkeypatch.setattr(Log, "sync", fail_with(StorageFailed(errno.EIO, "the disk is gone")))
    await produce(synced, first, b"b")
    codes = await synced.wait_until_replicated([AwaitedOffset(first, 2)], timeout_seconds=30, park=park)
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert first.high_watermark == 1
    for partition in (first, second):
        with pytest.raises(KafkaError) as refused:
            partition.require_leader()
        assert refusal_of(refused) == ErrorCode.KAFKA_STORAGE_ERROR
    assert synced.statistics().offline_partitions == 2


async def test_a_failed_write_takes_the_directory_offline(cached, monkeypatch):
    first, second = await add_topic(cached, partitions=2)
    await produce(cached, first, b"a")
    monkeypatch.setattr(Log, "append", fail_with(OSError(errno.EIO, "the disk is gone")))
    with pytest.raises(KafkaError) as refused:
        await produce(cached, first, b"b")
    assert refusal_of(refused) == ErrorCode.KAFKA_STORAGE_ERROR
    assert second.failure is not None


async def test_a_full_disk_refuses_and_recovers(cached, monkeypatch):
    [partition] = await add_topic(cached)
    with monkeypatch.context() as full:
        full.setattr(Log, "append", fail_with(OSError(errno.ENOSPC, "no space left on device")))
        with pytest.raises(KafkaError) as refused:
            await produce(cached, partition, b"a")
        assert refusal_of(refused) == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.failure is None
    assert (await produce(cached, partition, b"b")).first_offset == 0


async def test_a_full_disk_is_logged_now_and_then_whatever_comes(cached, monkeypatch, caplog):
    [partition] = await add_topic(cached)
    monkeypatch.setattr(Log, "append", fail_with(OSError(errno.ENOSPC, "no space left on device")))
    for _ in range(100):
        with pytest.raises(KafkaError):
            await produce(cached, partition, b"a")
    assert caplog.text.count("no space left") == 1
    cached.clock.advance(11)
    with pytest.raises(KafkaError):
        await produce(cached, partition, b"a")
    assert caplog.text.count("no space left") == 2


async def test_an_error_on_a_deleted_topic_harms_no_other(cached):
    deleted, other = (await add_topic(cached))[0], (await add_topic(cached, "other", topic_id=OTHER_ID))[0]
    await cached.delete_topic("orders")
    told = cached.storage_failed(deleted, OSError(errno.EIO, "its files are gone"))
    assert told.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert other.failure is None


async def test_a_lookup_that_lost_its_segment_to_retention_looks_again(cached):
    [partition] = await add_topic(cached)
    await produce(cached, partition, b"a", b"b")
    looks = []

    def look():
        looks.append(partition.log_start_offset)
        if len(looks) == 1:
            partition.log.advance_log_start(1)
            raise FileNotFoundError(errno.ENOENT, "retired")
        return "found"

    assert await cached.run_in_thread(partition, look) == "found"
    assert looks == [0, 1]
    assert partition.failure is None


async def test_a_log_that_cannot_be_opened_is_the_trouble_of_its_partition_alone(cached, monkeypatch):
    open_one = cached.log_manager.create_log

    def create_log(partition, topic_id, config):
        if partition.partition == 1:
            raise OSError(errno.EACCES, "not yours")
        return open_one(partition, topic_id, config)

    monkeypatch.setattr(cached.log_manager, "create_log", create_log)
    config = resolve({}, cached.config)
    await cached.apply_topic(TopicAssignment("orders", TOPIC_ID, {0: 0, 1: 0, 2: 0}, config))
    hosted = cached.topic("orders")
    assert sorted(hosted.partitions) == [0, 2]
    with pytest.raises(KafkaError) as refused:
        hosted.partition(1)
    assert refusal_of(refused) == ErrorCode.KAFKA_STORAGE_ERROR


async def test_applying_a_topic_again_changes_nothing_and_more_partitions_are_added(cached):
    [first] = await add_topic(cached)
    await produce(cached, first, b"a")
    again, second = await add_topic(cached, partitions=2)
    assert again is first
    assert again.log_end_offset == 1
    assert second.log_end_offset == 0


async def test_new_settings_reach_the_log_and_the_min_in_sync_replicas(cached):
    [partition] = await add_topic(cached)
    cached.update_config("orders", resolve({"retention.ms": "1234", "min.insync.replicas": "2"}, cached.config))
    assert partition.log.config.retention_ms == 1234
    assert partition.min_in_sync_replicas == 2
    cached.update_config("nothing", resolve({}, cached.config))


async def test_deleting_a_topic_tells_who_waits_and_removes_the_files_later(synced, park):
    [partition] = await add_topic(synced)
    directory = partition.log.directory
    await produce(synced, partition, b"a")
    await synced.delete_topic("orders")
    assert await synced.wait_until_replicated([AwaitedOffset(partition, 9)], timeout_seconds=9, park=park) == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]
    assert not directory.exists()
    assert list(directory.parent.glob("*-delete"))
    synced.clock.advance(61)
    await synced.upkeep.remove_expired_files()
    assert not list(directory.parent.glob("*-delete"))
    with pytest.raises(KafkaError):
        synced.topic_by_id(TOPIC_ID)


async def test_a_topic_created_again_under_its_name_begins_empty(cached):
    [old] = await add_topic(cached)
    await produce(cached, old, b"a")
    [new] = await add_topic(cached, topic_id=OTHER_ID)
    assert new is not old
    assert new.log_end_offset == 0
    assert old.failure is not None
    assert cached.topic_by_id(OTHER_ID).partition(0) is new
    with pytest.raises(KafkaError):
        cached.topic_by_id(TOPIC_ID)


async def test_a_log_of_another_topic_of_that_name_is_removed_at_the_start(tmp_path):
    replicas = make_replicas(tmp_path / "data")
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")
    replicas.log_manager.close(clean=False)
    restarted = make_replicas(tmp_path / "data")
    [new] = await add_topic(restarted, topic_id=OTHER_ID)
    assert new.log_end_offset == 0
    restarted.log_manager.close(clean=False)


async def test_after_a_crash_the_high_watermark_does_not_go_back_in_fsync_mode(tmp_path):
    """Readers may have seen all records; so they are synced before anybody asks."""
    replicas = make_replicas(tmp_path / "data")
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a", b"b")
    replicas.log_manager.close(clean=False)
    restarted = make_replicas(tmp_path / "data")
    [again] = await add_topic(restarted, leader_epoch=1)
    assert (again.high_watermark, again.durable_offset, again.log_end_offset) == (2, 2, 2)
    restarted.log_manager.close(clean=False)


async def test_a_clean_stop_and_start_keeps_offsets_and_high_watermarks(tmp_path):
    replicas = make_replicas(tmp_path / "data")
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a", b"b")
    assert replicas.log_manager.close(high_watermarks=replicas.high_watermarks())
    restarted = make_replicas(tmp_path / "data")
    [again] = await add_topic(restarted)
    assert (again.log_start_offset, again.high_watermark) == (0, 2)
    restarted.log_manager.close(clean=False)


async def test_deleted_records_stay_deleted_after_a_crash(tmp_path, nursery):
    replicas = make_replicas(tmp_path / "data", log_durability="page-cache")
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a", b"b", b"c")
    assert await replicas.delete_records(partition, 2) == 2
    assert await replicas.delete_records(partition, 1) == 2
    replicas.log_manager.close(clean=False)
    restarted = make_replicas(tmp_path / "data", log_durability="page-cache")
    [again] = await add_topic(restarted)
    assert (again.log_start_offset, again.high_watermark) == (2, 3)
    restarted.log_manager.close(clean=False)


async def test_statistics_count_what_was_appended(cached):
    [partition] = await add_topic(cached)
    info = await produce(cached, partition, b"a", b"b")
    statistics = cached.statistics()
    assert (statistics.topics, statistics.partitions, statistics.offline_partitions) == (1, 1, 0)
    assert (statistics.appended_batches, statistics.appended_records) == (1, 2)
    assert statistics.appended_bytes == info.appended_bytes
    assert cached.high_watermarks() == {TopicPartition("orders", 0): 2}


async def test_num_io_threads_bounds_the_syncs_and_is_live(synced):
    synced.io_limiter.total_tokens = 1
    partitions = await add_topic(synced, partitions=4)
    for partition in partitions:
        await produce(synced, partition, b"a")
    for partition in partitions:
        await synced.flusher.settle(partition)
    assert [partition.high_watermark for partition in partitions] == [1] * 4
    assert synced.clock.now_ms() == NOW_MS
