"""A partition's offsets, who sees what, and who is notified when it changes."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.isolation_level import IsolationLevel
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from tests.partition.real_logs import NOW_MS, batch, followed, led, make_log, make_partition, sync, write_epoch_entry
from trio_broker.config.log_config import LogConfig
from trio_broker.partition.delayed_operations import DelayedFetch, DelayedProduce, ExpirationReaper
from trio_broker.partition.partition import Durability, Partition
from trio_broker.partition.writer import PartitionWriter
from trio_broker.storage.append import AppendOrigin


class Requests(list[Any]):
    """The writers that asked for a sync, in order."""

    def __call__(self, writer: PartitionWriter) -> None:
        self.append(writer)


@pytest.fixture
def asked():
    return Requests()


@pytest.fixture
def log(tmp_path):
    made = make_log(tmp_path)
    yield made
    made.release()


def lead(log, durability, asked, leader_epoch=0) -> Partition:
    partition = make_partition(log, durability, leader_epoch=leader_epoch, sync_soon=asked)
    write_epoch_entry(partition)
    return partition


@pytest.fixture
def cached(log, asked):
    return lead(log, Durability.PAGE_CACHE, asked)


@pytest.fixture
def synced(log, asked):
    return lead(log, Durability.FSYNC, asked)


def test_in_page_cache_mode_a_record_is_visible_at_once_and_nothing_is_synced(cached, asked):
    info = cached.writer.append(batch(b"a", b"b"), now_ms=NOW_MS)
    assert (info.first_offset, info.last_offset) == (0, 1)
    assert (cached.high_watermark, cached.last_stable_offset, cached.log_end_offset) == (2, 2, 2)
    assert asked == []


def test_in_fsync_mode_a_record_is_visible_when_it_is_durable(synced, asked):
    synced.writer.append(batch(b"a", b"b"), now_ms=NOW_MS)
    assert (synced.high_watermark, synced.log_end_offset) == (0, 2)
    assert asked == [synced.writer]
    assert synced.writer.needs_sync
    sync(synced)
    assert synced.high_watermark == 2
    assert not synced.writer.needs_sync


def test_every_append_in_fsync_mode_asks_for_a_sync_whatever_its_acks(synced, asked):
    for _ in range(3):
        synced.writer.append(batch(), now_ms=NOW_MS)
    assert asked == [synced.writer] * 3


def test_in_page_cache_mode_a_sealed_segment_is_flushed_behind(tmp_path, asked):
    log = make_log(tmp_path, config=LogConfig(segment_bytes=2000))
    partition = lead(log, Durability.PAGE_CACHE, asked)
    while log.active_segment.base_offset == 0:
        assert asked == []
        partition.writer.append(batch(b"v" * 500), now_ms=NOW_MS)
    assert asked == [partition.writer]
    sync(partition)
    asked.clear()
    partition.writer.append(batch(b"v" * 500), now_ms=NOW_MS)
    assert asked == []
    log.release()


def test_in_page_cache_mode_one_flush_is_one_sync_however_fast_appends_come(tmp_path, asked):
    log = make_log(tmp_path, config=LogConfig(flush_messages=2))
    partition = lead(log, Durability.PAGE_CACHE, asked)
    for _ in range(2):
        partition.writer.append(batch(), now_ms=NOW_MS)
    assert partition.writer.needs_sync
    note_synced = partition.writer.sync()
    partition.writer.append(batch(), now_ms=NOW_MS)
    note_synced()
    assert not partition.writer.needs_sync
    log.release()


def test_in_page_cache_mode_flush_messages_asks_for_a_sync(tmp_path, asked):
    log = make_log(tmp_path, config=LogConfig(flush_messages=2))
    partition = lead(log, Durability.PAGE_CACHE, asked)
    partition.writer.append(batch(), now_ms=NOW_MS)
    assert asked == []
    partition.writer.append(batch(), now_ms=NOW_MS)
    assert asked == [partition.writer]
    log.release()


def test_flush_ms_counts_from_the_oldest_unsynced_record(tmp_path, asked):
    log = make_log(tmp_path, config=LogConfig(flush_ms=1000))
    partition = lead(log, Durability.PAGE_CACHE, asked)
    partition.writer.flush_if_due(NOW_MS + 5000)
    partition.writer.append(batch(), now_ms=NOW_MS)
    partition.writer.append(batch(), now_ms=NOW_MS + 900)
    partition.writer.flush_if_due(NOW_MS + 999)
    assert asked == []
    partition.writer.flush_if_due(NOW_MS + 1000)
    assert asked == [partition.writer]
    sync(partition)
    partition.writer.flush_if_due(NOW_MS + 9000)
    assert asked == [partition.writer]
    log.release()


def test_a_duplicate_gets_its_old_offsets_and_moves_nothing(synced, asked):
    first = synced.writer.append(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0), now_ms=NOW_MS)
    asked.clear()
    again = synced.writer.append(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0), now_ms=NOW_MS)
    assert again.duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert asked == []
    assert synced.log_end_offset == 1


def test_an_append_without_its_leader_epoch_on_disk_is_our_bug(log, asked):
    partition = make_partition(log, leader_epoch=3, sync_soon=asked)
    assert partition.writer.needs_epoch_entry
    with pytest.raises(AssertionError):
        partition.writer.append(batch(), now_ms=NOW_MS)
    write_epoch_entry(partition)
    partition.writer.append(batch(), now_ms=NOW_MS)
    assert log.latest_epoch == 3


async def test_an_epoch_that_begins_while_the_last_one_is_written_down_comes_behind_it(log, asked):
    partition = make_partition(log, leader_epoch=3, sync_soon=asked)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partition.writer.ready_to_append)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(partition.writer.make_leader, led(4), 0.0)
    assert partition.leader_epoch == 4
    assert partition.writer.needs_epoch_entry


def test_an_older_leader_epoch_is_fenced_a_newer_one_unknown_and_minus_one_unchecked(log, asked):
    partition = lead(log, Durability.PAGE_CACHE, asked, leader_epoch=5)
    partition.require_leader()
    partition.require_leader(-1)
    partition.require_leader(5)
    with pytest.raises(KafkaError) as fenced:
        partition.require_leader(4)
    assert fenced.value.code == ErrorCode.FENCED_LEADER_EPOCH
    with pytest.raises(KafkaError) as unknown:
        partition.require_leader(6)
    assert unknown.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_partition_that_is_not_led_here_refuses_clients(cached):
    cached.writer.make_follower(followed(1))
    with pytest.raises(KafkaError) as refused:
        cached.require_leader()
    assert refused.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cached.state.require_online()


async def test_a_leadership_that_was_lost_while_it_waited_does_not_begin(log, asked):
    partition = lead(log, Durability.PAGE_CACHE, asked, leader_epoch=5)
    partition.writer.make_follower(followed(7))
    await partition.writer.make_leader(led(6), 0.0)
    assert (partition.state.is_leader, partition.leader_epoch) == (False, 7)


async def test_a_produce_is_completed_when_its_own_offset_is_durable(synced, autojump_clock):
    synced.writer.append(batch(b"a"), now_ms=NOW_MS)
    early, late = DelayedProduce(30, ExpirationReaper()), DelayedProduce(30, ExpirationReaper())
    completed: list[str] = []
    early.when_complete(lambda: completed.append("early"))
    late.when_complete(lambda: completed.append("late"))
    synced.delayed.add_produce(2, late)
    synced.delayed.add_produce(1, early)
    sync(synced)
    assert completed == ["early"]
    synced.writer.append(batch(b"b"), now_ms=NOW_MS)
    sync(synced)
    assert completed == ["early", "late"]
    assert not synced.delayed.produces


async def test_a_failure_tells_everyone_and_stands(synced, autojump_clock):
    synced.writer.append(batch(), now_ms=NOW_MS)
    produce, fetch = DelayedProduce(30, ExpirationReaper()), DelayedFetch(1)
    failures: list[KafkaError | None] = []
    produce.when_complete(lambda: failures.append(synced.failure))
    synced.delayed.add_produce(1, produce)
    synced.delayed.add_fetch(fetch)
    synced.fail(KafkaError("the disk is gone", code=ErrorCode.KAFKA_STORAGE_ERROR))
    synced.fail(KafkaError("deleted", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert failures == [synced.failure]
    assert await fetch.wait(0)
    assert not synced.writer.needs_sync
    with pytest.raises(KafkaError) as refused:
        synced.require_leader()
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_fetch_counts_exactly_the_bytes_that_became_visible(synced, autojump_clock):
    first = synced.writer.append(batch(b"a" * 100), now_ms=NOW_MS)
    second_batch = batch(b"b" * 100)
    fetch = DelayedFetch(min_bytes=first.appended_bytes + 1)
    synced.delayed.add_fetch(fetch)
    note_synced = synced.writer.sync()
    synced.writer.append(second_batch, now_ms=NOW_MS)  # appended during the sync: not covered by it
    note_synced()
    assert fetch.bytes_missing == 1
    assert not await fetch.wait(0)
    sync(synced)
    assert await fetch.wait(0)
    synced.delayed.remove_fetch(fetch)
    assert not synced.delayed.fetches


def transactional(*values: bytes, sequence: int = 0) -> memoryview:
    return batch(*values, producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True)


def end_transaction(partition, *, commit: bool) -> None:
    """Write a marker as a coordinator would, and let the partition take note."""
    marker = build_control_batch(
        EndTransactionMarker(committed=commit, coordinator_epoch=0), timestamp=NOW_MS, producer_id=9, producer_epoch=0
    )
    partition.writer.append(memoryview(bytearray(marker)), now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


def test_the_last_stable_offset_is_the_high_watermark_without_transactions(cached):
    cached.writer.append(batch(b"a", b"b"), now_ms=NOW_MS)
    assert (
        cached.fetch_upper_bound(IsolationLevel.READ_COMMITTED)
        == cached.fetch_upper_bound(IsolationLevel.READ_UNCOMMITTED)
        == 2
    )


async def test_the_last_stable_offset_stops_at_an_open_transaction(cached, autojump_clock):
    cached.writer.append(batch(b"plain"), now_ms=NOW_MS)
    cached.writer.append(transactional(b"open"), now_ms=NOW_MS)
    cached.writer.append(batch(b"plain"), now_ms=NOW_MS)
    assert cached.high_watermark == 3
    assert cached.fetch_upper_bound(IsolationLevel.READ_COMMITTED) == 1
    fetch = DelayedFetch(min_bytes=10_000, reads_committed=True)
    cached.delayed.add_fetch(fetch)
    end_transaction(cached, commit=True)
    assert cached.fetch_upper_bound(IsolationLevel.READ_COMMITTED) == 4
    assert await fetch.wait(0), "the marker is small and uncovers all that waited behind the open transaction"


async def test_the_last_stable_offset_moves_with_the_high_watermark_and_wakes_committed_readers(synced, autojump_clock):
    """Nobody looks at the partition in between: the sync of the marker is what releases the records."""
    synced.writer.append(transactional(b"open" * 100), now_ms=NOW_MS)
    sync(synced)
    fetch = DelayedFetch(min_bytes=300, reads_committed=True)
    synced.delayed.add_fetch(fetch)
    synced.writer.append(batch(b"plain" * 100), now_ms=NOW_MS)
    sync(synced)
    assert (synced.last_stable_offset, synced.high_watermark) == (0, 2)
    assert not await fetch.wait(0), "nothing that is committed has come"
    end_transaction(synced, commit=True)
    assert synced.last_stable_offset == 0
    sync(synced)
    assert synced.last_stable_offset == 3
    assert await fetch.wait(0)


async def test_a_transaction_whose_beginning_is_deleted_holds_back_what_is_left(cached):
    cached.writer.append(transactional(b"a"), now_ms=NOW_MS)
    cached.writer.append(transactional(b"b", sequence=1), now_ms=NOW_MS)
    assert await cached.writer.delete_before(1)
    assert (cached.log_start_offset, cached.last_stable_offset, cached.high_watermark) == (1, 1, 2)
    cached.writer.append(batch(b"plain"), now_ms=NOW_MS)
    assert cached.last_stable_offset == 1


async def test_a_deletion_of_records_lets_waiting_fetches_look_again(cached, autojump_clock):
    cached.writer.append(batch(b"a", b"b"), now_ms=NOW_MS)
    fetch = DelayedFetch(1)
    cached.delayed.add_fetch(fetch)
    cached.require_may_delete_before(2)
    assert await cached.writer.delete_before(2)
    assert await fetch.wait(0)
    assert cached.log_start_offset == 2
    for offset in (3, -2):
        with pytest.raises(KafkaError) as refused:
            cached.require_may_delete_before(offset)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
