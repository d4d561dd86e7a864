"""A partition's offsets, who sees what, and who is told when it changes."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from tests.partition.real_logs import NOW_MS, batch, make_log
from trio_broker.config.log_config import LogConfig
from trio_broker.partition.delayed_operations import DelayedFetch, DelayedProduce, ExpirationReaper
from trio_broker.partition.partition import Durability, IsolationLevel, Partition
from trio_broker.storage.append import AppendOrigin


class Requests(list[Any]):
    """The partitions that asked for a sync, in order."""

    def __call__(self, partition: Partition) -> None:
        self.append(partition)


@pytest.fixture
def asked():
    return Requests()


@pytest.fixture
def log(tmp_path):
    made = make_log(tmp_path)
    yield made
    made.release()


def lead(log, durability, asked, leader_epoch=0) -> Partition:
    partition = Partition(log, leader_epoch=leader_epoch, durability=durability, sync_soon=asked)
    partition.epoch_entry_written(partition.write_epoch_entry())
    return partition


@pytest.fixture
def cached(log, asked):
    return lead(log, Durability.PAGE_CACHE, asked)


@pytest.fixture
def synced(log, asked):
    return lead(log, Durability.FSYNC, asked)


def sync(partition) -> None:
    partition.durable_up_to(partition.sync())


def test_in_page_cache_mode_a_record_is_visible_at_once_and_nothing_is_synced(cached, asked):
    info = cached.append(batch(b"a", b"b"), now_ms=NOW_MS)
    assert (info.first_offset, info.last_offset) == (0, 1)
    assert (cached.high_watermark, cached.last_stable_offset, cached.log_end_offset) == (2, 2, 2)
    assert asked == []


def test_in_fsync_mode_a_record_is_visible_when_it_is_durable(synced, asked):
    synced.append(batch(b"a", b"b"), now_ms=NOW_MS)
    assert (synced.high_watermark, synced.log_end_offset) == (0, 2)
    assert asked == [synced]
    assert synced.needs_sync
    sync(synced)
    assert synced.high_watermark == 2
    assert not synced.needs_sync


def test_every_append_in_fsync_mode_asks_for_a_sync_whatever_its_acks(synced, asked):
    for _ in range(3):
        synced.append(batch(), now_ms=NOW_MS)
    assert asked == [synced] * 3


def test_in_page_cache_mode_a_sealed_segment_is_flushed_behind(tmp_path, asked):
    log = make_log(tmp_path, config=LogConfig(segment_bytes=2000))
    partition = lead(log, Durability.PAGE_CACHE, asked)
    while log.active_segment.base_offset == 0:
        assert asked == []
        partition.append(batch(b"v" * 500), now_ms=NOW_MS)
    assert asked == [partition]
    sync(partition)
    asked.clear()
    partition.append(batch(b"v" * 500), now_ms=NOW_MS)
    assert asked == []
    log.release()


def test_in_page_cache_mode_one_flush_is_one_sync_however_fast_appends_come(tmp_path, asked):
    log = make_log(tmp_path, config=LogConfig(flush_messages=2))
    partition = lead(log, Durability.PAGE_CACHE, asked)
    for _ in range(2):
        partition.append(batch(), now_ms=NOW_MS)
    assert partition.needs_sync
    durable = partition.sync()
    partition.append(batch(), now_ms=NOW_MS)
    partition.durable_up_to(durable)
    assert not partition.needs_sync
    log.release()


def test_in_page_cache_mode_flush_messages_asks_for_a_sync(tmp_path, asked):
    log = make_log(tmp_path, config=LogConfig(flush_messages=2))
    partition = lead(log, Durability.PAGE_CACHE, asked)
    partition.append(batch(), now_ms=NOW_MS)
    assert asked == []
    partition.append(batch(), now_ms=NOW_MS)
    assert asked == [partition]
    log.release()


def test_flush_ms_counts_from_the_oldest_unsynced_record(tmp_path, asked):
    log = make_log(tmp_path, config=LogConfig(flush_ms=1000))
    partition = lead(log, Durability.PAGE_CACHE, asked)
    partition.flush_if_due(NOW_MS + 5000)
    partition.append(batch(), now_ms=NOW_MS)
    partition.append(batch(), now_ms=NOW_MS + 900)
    partition.flush_if_due(NOW_MS + 999)
    assert asked == []
    partition.flush_if_due(NOW_MS + 1000)
    assert asked == [partition]
    sync(partition)
    partition.flush_if_due(NOW_MS + 9000)
    assert asked == [partition]
    log.release()


def test_a_duplicate_gets_its_old_offsets_and_moves_nothing(synced, asked):
    first = synced.append(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0), now_ms=NOW_MS)
    asked.clear()
    again = synced.append(batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0), now_ms=NOW_MS)
    assert again.duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert asked == []
    assert synced.log_end_offset == 1


def test_an_append_without_its_leader_epoch_on_disk_is_our_bug(log, asked):
    partition = Partition(log, leader_epoch=3, durability=Durability.PAGE_CACHE, sync_soon=asked)
    assert partition.needs_epoch_entry
    with pytest.raises(AssertionError):
        partition.append(batch(), now_ms=NOW_MS)
    partition.epoch_entry_written(partition.write_epoch_entry())
    partition.append(batch(), now_ms=NOW_MS)
    assert log.latest_epoch == 3


def test_an_epoch_that_begins_while_the_last_one_is_written_down_needs_its_own_entry(log, asked):
    partition = Partition(log, leader_epoch=3, durability=Durability.PAGE_CACHE, sync_soon=asked)
    written = partition.write_epoch_entry()
    partition.begin_leader_epoch(4)
    partition.epoch_entry_written(written)
    assert partition.needs_epoch_entry


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


def test_a_leader_epoch_never_goes_back(log, asked):
    partition = lead(log, Durability.PAGE_CACHE, asked, leader_epoch=5)
    with pytest.raises(AssertionError):
        partition.begin_leader_epoch(4)


def test_more_min_in_sync_replicas_than_there_are_refuse(cached):
    cached.require_in_sync_replicas()
    cached.min_in_sync_replicas = 2
    with pytest.raises(KafkaError) as refused:
        cached.require_in_sync_replicas()
    assert refused.value.code == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_a_produce_is_told_when_its_own_offset_is_durable(synced, autojump_clock):
    synced.append(batch(b"a"), now_ms=NOW_MS)
    early, late = DelayedProduce(30, ExpirationReaper()), DelayedProduce(30, ExpirationReaper())
    completed: list[str] = []
    early.when_complete(lambda: completed.append("early"))
    late.when_complete(lambda: completed.append("late"))
    synced.add_delayed_produce(2, late)
    synced.add_delayed_produce(1, early)
    sync(synced)
    assert completed == ["early"]
    synced.append(batch(b"b"), now_ms=NOW_MS)
    sync(synced)
    assert completed == ["early", "late"]
    assert synced.delayed_produces == 0


async def test_a_failure_tells_everyone_and_stands(synced, autojump_clock):
    synced.append(batch(), now_ms=NOW_MS)
    produce, fetch = DelayedProduce(30, ExpirationReaper()), DelayedFetch(1)
    failures: list[KafkaError | None] = []
    produce.when_complete(lambda: failures.append(synced.failure))
    synced.add_delayed_produce(1, produce)
    synced.add_delayed_fetch(fetch)
    synced.fail(KafkaError("the disk is gone", code=ErrorCode.KAFKA_STORAGE_ERROR))
    synced.fail(KafkaError("deleted", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert failures == [synced.failure]
    assert await fetch.wait(0)
    assert not synced.needs_sync
    with pytest.raises(KafkaError) as refused:
        synced.require_leader()
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_fetch_is_told_of_exactly_the_bytes_that_became_visible(synced, autojump_clock):
    first = synced.append(batch(b"a" * 100), now_ms=NOW_MS)
    second_batch = batch(b"b" * 100)
    fetch = DelayedFetch(bytes_missing=first.appended_bytes + 1)
    synced.add_delayed_fetch(fetch)
    durable = synced.sync()
    synced.append(second_batch, now_ms=NOW_MS)  # appended during the sync: not covered by it
    synced.durable_up_to(durable)
    assert fetch.bytes_missing == 1
    assert not await fetch.wait(0)
    sync(synced)
    assert await fetch.wait(0)
    synced.remove_delayed_fetch(fetch)
    assert synced.delayed_fetches == 0


def transactional(*values: bytes, sequence: int = 0) -> memoryview:
    return batch(*values, producer_id=9, producer_epoch=0, base_sequence=sequence, transactional=True)


def end_transaction(partition, *, commit: bool) -> None:
    """Write a marker as a coordinator would, and let the partition take note."""
    marker = build_control_batch(
        EndTransactionMarker(committed=commit, coordinator_epoch=0), timestamp=NOW_MS, producer_id=9, producer_epoch=0
    )
    partition.append(memoryview(bytearray(marker)), now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)


def test_the_last_stable_offset_is_the_high_watermark_without_transactions(cached):
    cached.append(batch(b"a", b"b"), now_ms=NOW_MS)
    assert (
        cached.fetch_upper_bound(IsolationLevel.READ_COMMITTED)
        == cached.fetch_upper_bound(IsolationLevel.READ_UNCOMMITTED)
        == 2
    )


async def test_the_last_stable_offset_stops_at_an_open_transaction(cached, autojump_clock):
    cached.append(batch(b"plain"), now_ms=NOW_MS)
    cached.append(transactional(b"open"), now_ms=NOW_MS)
    cached.append(batch(b"plain"), now_ms=NOW_MS)
    assert cached.high_watermark == 3
    assert cached.fetch_upper_bound(IsolationLevel.READ_COMMITTED) == 1
    fetch = DelayedFetch(bytes_missing=10_000, reads_committed=True)
    cached.add_delayed_fetch(fetch)
    end_transaction(cached, commit=True)
    assert cached.fetch_upper_bound(IsolationLevel.READ_COMMITTED) == 4
    assert await fetch.wait(0), "the marker is small and uncovers all that waited behind the open transaction"


async def test_the_last_stable_offset_moves_with_the_high_watermark_and_wakes_committed_readers(synced, autojump_clock):
    """Nobody looks at the partition in between: the sync of the marker is what releases the records."""
    synced.append(transactional(b"open" * 100), now_ms=NOW_MS)
    sync(synced)
    fetch = DelayedFetch(bytes_missing=300, reads_committed=True)
    synced.add_delayed_fetch(fetch)
    synced.append(batch(b"plain" * 100), now_ms=NOW_MS)
    sync(synced)
    assert (synced.last_stable_offset, synced.high_watermark) == (0, 2)
    assert not await fetch.wait(0), "nothing that is committed has come"
    end_transaction(synced, commit=True)
    assert synced.last_stable_offset == 0
    sync(synced)
    assert synced.last_stable_offset == 3
    assert await fetch.wait(0)


async def test_a_transaction_whose_beginning_is_deleted_holds_back_what_is_left(cached):
    cached.append(transactional(b"a"), now_ms=NOW_MS)
    cached.append(transactional(b"b", sequence=1), now_ms=NOW_MS)
    cached.log.advance_log_start(1)
    cached.log_start_moved()
    assert (cached.log_start_offset, cached.last_stable_offset, cached.high_watermark) == (1, 1, 2)
    cached.append(batch(b"plain"), now_ms=NOW_MS)
    assert cached.last_stable_offset == 1


async def test_a_deletion_of_records_lets_waiting_fetches_look_again(cached, autojump_clock):
    cached.append(batch(b"a", b"b"), now_ms=NOW_MS)
    fetch = DelayedFetch(1)
    cached.add_delayed_fetch(fetch)
    cached.require_may_delete_before(2)
    cached.log.advance_log_start(2)
    cached.log_start_moved()
    assert await fetch.wait(0)
    assert cached.log_start_offset == 2
    for offset in (3, -2):
        with pytest.raises(KafkaError) as refused:
            cached.require_may_delete_before(offset)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
