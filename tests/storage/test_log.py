"""The log: appending, rolling, reading, times, epochs, retention, durability."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from kafka_wire.limits import MAX_OFFSET
from kafka_wire.records.batch import RecordBatch, TimestampType, build_batch, read_batches
from kafka_wire.records.record import NewRecord
from tests.storage.compaction_harness import compact
from tests.storage.followed_log import truncate
from tests.storage.log_content import fetched_data, found_batches
from trio_broker.config.log_config import CleanupPolicy, LogConfig
from trio_broker.runtime.real_disk import RealDisk, RealFileRegion
from trio_broker.storage import producer_snapshot
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.errors import FencedLeaderEpoch, LogClosed, OffsetOutOfRange, OffsetsExhausted, StorageFailed
from trio_broker.storage.leader_epochs import EpochEndOffset
from trio_broker.storage.offset_index import OffsetIndex
from trio_broker.storage.segment import Segment
from trio_broker.storage.time_index import TimestampOffset
from trio_broker.storage.transaction_index import AbortedTransaction

MakeLog = Callable[..., Any]
LogBench = Any


def files(bench: LogBench) -> list[str]:
    return sorted(path.name for path in bench.directory.iterdir())


def fetch(bench: LogBench, offset: int, max_bytes: int, end_offset: int | None = None, **kwargs: bool) -> list[int]:
    """The base offsets of the batches one read gives."""
    end = bench.log.log_end_offset if end_offset is None else end_offset
    data = fetched_data(bench.log.read(offset, max_bytes, end_offset=end, **kwargs))
    found = list(read_batches(data))
    assert sum(batch.header.size_bytes for batch in found) == len(data)
    return [batch.header.base_offset for batch in found]


# --- Appending ---


def test_offsets_and_epoch_are_stamped(bench: LogBench):
    first = bench.append(3)
    second = bench.append(2)
    assert (first.first_offset, first.last_offset, second.first_offset, second.last_offset) == (0, 2, 3, 4)
    assert (first.log_append_time_ms, first.duplicate) == (-1, False)
    assert [batch.header.base_offset for batch in bench.batches()] == [0, 3]
    assert [batch.header.partition_leader_epoch for batch in bench.batches()] == [0, 0]
    for batch in bench.batches():
        batch.verify_crc()
    assert bench.offsets() == [0, 1, 2, 3, 4]


def test_records_given_as_read_only_bytes_are_taken_too(bench: LogBench, batch: Callable[..., bytearray], now_ms: int):
    data = bytes(batch())
    assert bench.log.append(data, leader_epoch=4, now_ms=now_ms).first_offset == 0
    assert bench.log.latest_epoch == 4


def test_a_repeated_batch_is_answered_with_its_old_offsets(bench: LogBench):
    for sequence in range(7):
        bench.append(producer_id=9, producer_epoch=0, sequence=sequence)
    again = bench.append(producer_id=9, producer_epoch=0, sequence=4)
    assert (again.duplicate, again.first_offset, again.appended_bytes) == (True, 4, 0)
    assert bench.log.log_end_offset == 7


def test_log_append_time_is_the_answer_and_in_the_file(make_log: MakeLog, now_ms: int):
    bench = make_log(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    info = bench.append(2, timestamp=5)
    assert (info.log_append_time_ms, info.max_timestamp) == (now_ms, now_ms)
    assert bench.batches()[0].header.max_timestamp == now_ms


def test_a_full_disk_changes_nothing_and_passes(bench: LogBench, monkeypatch: pytest.MonkeyPatch):
    bench.append(producer_id=1, producer_epoch=0, sequence=0)
    real = os.pwrite

    def full(fd: int, data: bytes, position: int) -> int:
        if len(data) > 10:
            return real(fd, bytes(data)[:10], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    size = bench.file("00000000000000000000.log").stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", full)
        with pytest.raises(OSError, match="No space"):
            bench.append(value=bytes(3), producer_id=1, producer_epoch=0, sequence=1)
    assert bench.file("00000000000000000000.log").stat().st_size == size
    assert bench.append(producer_id=1, producer_epoch=0, sequence=1).first_offset == 1
    assert bench.offsets() == [0, 1]


@pytest.mark.parametrize("full_file", [".txnindex", ".log"])
def test_a_disk_that_is_full_when_a_transaction_is_aborted_changes_nothing_and_passes(
    bench: LogBench, full_file: str, monkeypatch: pytest.MonkeyPatch
):
    """The marker and its entry in the index of aborted transactions go into two files, of which either may be full."""
    bench.append(producer_id=5, producer_epoch=0, sequence=0, transactional=True)
    real = os.pwrite
    name = f"00000000000000000000{full_file}"

    def full(fd: int, data: bytes, position: int) -> int:
        if os.path.realpath(f"/proc/self/fd/{fd}") != str(bench.file(name)):
            return real(fd, data, position)
        if len(data) > 10:
            return real(fd, bytes(data)[:10], position)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.pwrite", full)
        with pytest.raises(OSError, match="No space"):
            bench.end_transaction(5, committed=False)
    assert bench.log.producers.has_open_transaction(5, 0)
    assert bench.log.aborted_transactions(0, 1) == []
    bench.end_transaction(5, committed=False)
    assert bench.log.aborted_transactions(0, 2) == [AbortedTransaction(5, 0, 1, 2)]
    bench.restart()
    assert bench.log.aborted_transactions(0, 2) == [AbortedTransaction(5, 0, 1, 2)]


# --- Rolling ---


def test_a_batch_never_crosses_a_segment(make_log: MakeLog):
    bench = make_log(segment_bytes=200)
    for _ in range(4):
        bench.append(value=bytes(30))
    assert [segment.base_offset for segment in bench.log.segments] == [0, 1, 2, 3]
    assert "00000000000000000003.snapshot" in files(bench)
    assert bench.offsets() == [0, 1, 2, 3]


def test_a_segment_rolls_by_message_time(make_log: MakeLog, now_ms: int):
    bench = make_log(segment_ms=1000)
    bench.append(timestamp=now_ms)
    bench.append(timestamp=now_ms + 1000)
    assert len(bench.log.segments) == 1
    bench.append(timestamp=now_ms + 1001)
    assert len(bench.log.segments) == 2


def test_jitter_spreads_the_rolls_of_segments_and_is_the_same_after_a_start(make_log: MakeLog, now_ms: int):
    bench = make_log(segment_ms=100_000, segment_jitter_ms=50_000, segment_bytes=200)
    for _ in range(12):
        bench.append(value=bytes(30), timestamp=now_ms)
    jitters = [segment.roll_jitter_ms for segment in bench.log.segments]
    assert len(set(jitters)) == len(jitters) == 12
    assert all(0 <= jitter < 50_000 for jitter in jitters)
    assert [segment.roll_jitter_ms for segment in bench.restart().log.segments] == jitters


def test_without_timestamps_a_segment_rolls_by_the_clock(make_log: MakeLog):
    bench = make_log(segment_ms=1000)
    bench.append(timestamp=-1)
    bench.now_ms += 1001
    bench.append(timestamp=-1)
    assert len(bench.log.segments) == 2


def test_a_compacted_topic_rolls_in_time_to_be_cleaned(make_log: MakeLog, now_ms: int):
    bench = make_log(max_compaction_lag_ms=10, cleanup_policy=CleanupPolicy(compact=True))
    bench.append(timestamp=now_ms)
    bench.append(timestamp=now_ms + 11)
    assert len(bench.log.segments) == 2


def test_a_full_index_rolls(make_log: MakeLog):
    bench = make_log(segment_index_bytes=24, index_interval_bytes=0)
    for _ in range(4):
        bench.append()
    assert len(bench.log.segments) > 1
    assert bench.offsets() == [0, 1, 2, 3]


def test_an_index_that_was_cut_has_room_again(make_log: MakeLog, now_ms: int):
    bench = make_log(segment_index_bytes=36, index_interval_bytes=0)
    for number in range(4):
        bench.append(timestamp=now_ms + number)
    assert [segment.base_offset for segment in bench.log.segments] == [0, 3]
    truncate(bench.log, 1, now_ms)
    for number in range(1, 4):
        bench.append(timestamp=now_ms + number)
    assert [segment.base_offset for segment in bench.log.segments] == [0, 3]


def test_offsets_that_do_not_fit_the_index_roll(bench: LogBench, batch: Callable[..., bytearray]):
    bench.append()
    far = batch()
    far[0:8] = (2**31).to_bytes(8, "big")
    bench.replicate(far)
    assert [segment.base_offset for segment in bench.log.segments] == [0, 2**31]


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_a_log_at_the_end_of_the_offsets_refuses_what_has_no_place_and_takes_what_has(
    bench: LogBench, batch: Callable[..., bytearray], origin: AppendOrigin
):
    far = batch()
    far[0:8] = (MAX_OFFSET - 3).to_bytes(8, "big")
    bench.replicate(far)
    before = bench.log.active_segment.size
    for count in (3, 4, 1000):
        with pytest.raises(OffsetsExhausted):
            bench.append_bytes(batch(count=count), origin)
        assert (bench.log.log_end_offset, bench.log.active_segment.size) == (MAX_OFFSET - 2, before)
    bench.append_bytes(batch(count=2), origin)
    assert bench.log.log_end_offset == MAX_OFFSET
    with pytest.raises(OffsetsExhausted):
        bench.append_bytes(batch(), origin)
    assert bench.restart().log.log_end_offset == MAX_OFFSET
    assert bench.offsets() == [MAX_OFFSET - 3, MAX_OFFSET - 2, MAX_OFFSET - 1]


def test_only_a_roll_for_which_there_is_room_is_logged(
    bench: LogBench, now_ms: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    def full(*arguments: Any, **named: Any) -> Any:
        raise OSError(errno.ENOSPC, "no space")

    caplog.set_level(logging.INFO)
    bench.append()
    with monkeypatch.context() as patched:
        patched.setattr(Segment, "create", full)
        with pytest.raises(OSError, match="no space"):
            bench.log.roll(now_ms)
    assert not caplog.messages
    bench.log.roll(now_ms)
    assert caplog.messages == ["rolled orders-0 at 1: asked to"]


def test_rolling_an_empty_segment_keeps_it(bench: LogBench, now_ms: int):
    bench.log.roll(now_ms)
    assert len(bench.log.segments) == 1
    bench.append()
    bench.log.roll(now_ms)
    assert [segment.base_offset for segment in bench.log.segments] == [0, 1]


def test_sealed_indexes_are_trimmed_and_end_with_the_largest_time(make_log: MakeLog, now_ms: int):
    bench = make_log(index_interval_bytes=100)
    for index in range(5):
        bench.append(timestamp=now_ms + index)
    bench.log.roll(now_ms)
    size = bench.log.segments[0].size // 5
    index = bench.file("00000000000000000000.index").read_bytes()
    assert index == b"".join(n.to_bytes(4, "big") + (n * size).to_bytes(4, "big") for n in (2, 4))
    assert bench.file("00000000000000000000.timeindex").read_bytes()[-4:] == b"\0\0\0\4"


# --- Reading ---


def test_reading_begins_with_the_batch_that_holds_the_offset(bench: LogBench):
    for _ in range(3):
        bench.append(10)
    assert fetch(bench, 15, 1 << 20) == [10, 20]
    assert fetch(bench, 20, 1 << 20) == [20]
    assert fetch(bench, 30, 1 << 20) == []


def test_first_batch_comes_whole_however_small_the_limit(bench: LogBench):
    bench.append(value=bytes(1000))
    bench.append()
    assert fetch(bench, 0, 1) == [0]
    assert fetch(bench, 0, 0) == [0]
    assert fetch(bench, 0, 1, minimum_one=False) == []


def test_after_the_first_batch_the_limit_holds(bench: LogBench):
    size = bench.append().appended_bytes
    for _ in range(9):
        bench.append()
    assert fetch(bench, 0, 3 * size) == [0, 1, 2]
    assert fetch(bench, 0, 4 * size - 1) == [0, 1, 2]
    assert fetch(bench, 2, 3 * size, 4) == [2, 3]


def test_the_end_offset_is_exclusive(bench: LogBench):
    for _ in range(5):
        bench.append(2)
    assert fetch(bench, 0, 1 << 20, 6) == [0, 2, 4]
    assert fetch(bench, 6, 1 << 20, 6) == []
    assert fetch(bench, 0, 1 << 20, 5) == [0, 2]


def test_offsets_outside_the_log_are_refused(make_log: MakeLog):
    bench = make_log(log_start_offset=10)
    bench.append()
    for offset in (9, 12):
        with pytest.raises(OffsetOutOfRange):
            bench.log.read(offset, 100, end_offset=11)
    assert fetch(bench, 11, 100) == []


def test_reading_in_a_gap_starts_at_the_next_batch(make_log: MakeLog):
    bench = make_log(cleanup_policy=CleanupPolicy(delete=False, compact=True))
    for count, key in ((2, b"a"), (8, b"b"), (2, b"c"), (8, b"b"), (2, b"d")):
        bench.append(count, key=key)
    bench.log.roll(bench.now_ms)
    compact(bench.log, bench.now_ms)
    assert fetch(bench, 0, 1 << 20) == [0, 10, 12, 20]
    assert fetch(bench, 5, 1 << 20) == [10, 12, 20]
    assert fetch(bench, 5, 1, minimum_one=True) == [10]


def test_reading_in_a_gap_at_the_end_of_a_segment_goes_on_in_the_next(bench: LogBench, batch: Callable[..., bytearray]):
    bench.append()
    bench.log.roll(bench.now_ms)
    data = batch()
    data[0:8] = (50).to_bytes(8, "big")
    bench.replicate(data)
    assert fetch(bench, 1, 1 << 20) == [50]


def test_every_offset_is_found_in_every_segment_with_and_without_hints(make_log: MakeLog):
    bench = make_log(segment_bytes=3000, index_interval_bytes=300)
    for index in range(120):
        bench.append(1 + index % 3)
    for _ in range(2):
        for offset in range(bench.log.log_end_offset):
            first = bench.log.read(offset, 500, end_offset=bench.log.log_end_offset).records
            assert 0 < len(first) <= 500
        for segment in bench.log.segments:
            segment.position_cache = {}
    assert bench.offsets() == list(range(bench.log.log_end_offset))
    opened = [segment for segment in bench.log.segments if segment.file.is_open]
    assert len(opened) <= 3


@pytest.mark.parametrize("minimum_one", [True, False])
def test_a_small_read_ends_behind_the_last_batch_that_fits(bench: LogBench, minimum_one: bool):
    for index in range(12):
        bench.append(1 + index % 3)
    batches = found_batches(bench.log)
    for index, first in enumerate(batches):
        for max_bytes in range(1, 800, 13):
            kept: list[RecordBatch] = []
            left = max_bytes
            for batch in batches[index:]:
                if left < batch.header.size_bytes and (kept or not minimum_one):
                    break
                kept.append(batch)
                left -= batch.header.size_bytes
            for offset in range(first.header.base_offset, first.header.next_offset):
                found = bench.log.read(
                    offset, max_bytes, end_offset=bench.log.log_end_offset, minimum_one=minimum_one, nowait=True
                )
                assert fetched_data(found) == b"".join(bytes(batch.buffer) for batch in kept)
                assert found.next_offset == (kept[-1].header.next_offset if kept else offset)


def test_a_read_looks_at_a_few_kilobytes_only(bench: LogBench, monkeypatch: pytest.MonkeyPatch):
    for _ in range(200):
        bench.append(10, value=bytes(900))
    end = bench.log.log_end_offset
    for segment in bench.log.segments:
        segment.position_cache = {}
    read = []
    real = os.pread

    def noted(fd: int, size: int, at: int) -> bytes:
        read.append(size)
        return real(fd, size, at)

    monkeypatch.setattr("os.pread", noted)
    assert len(fetch(bench, 1234, 1 << 20, end - 100)) > 60
    read.pop()  # the records themselves
    assert sum(read) < 20_000


def test_a_read_that_would_load_an_index_says_so_when_it_may_not_wait(make_log: MakeLog):
    bench = make_log(segment_bytes=400)
    for _ in range(10):
        bench.append()
    bench.log.segments[0].evict()
    with pytest.raises(BlockingIOError):
        fetch(bench, 1, 100, nowait=True)
    assert fetch(bench, 1, 100) == [1]
    assert fetch(bench, 1, 100, nowait=True) == [1]


def test_regions_outlive_the_segment(make_log: MakeLog):
    bench = make_log(segment_bytes=100, retention_ms=0)
    bench.append()
    bench.append()
    fetched = bench.log.read(0, 100, end_offset=1)
    assert isinstance(fetched.records, RealFileRegion)
    before = fetched.records.read()
    bench.now_ms += 10
    bench.log.delete_expired_segments(bench.now_ms + 10, 2)
    bench.log.remove_deleted_files(bench.now_ms + 10**9)
    bench.log.close()
    assert fetched.records.read() == before


def test_a_stale_index_gives_the_same_answers(make_log: MakeLog):
    bench = make_log(segment_bytes=1500, index_interval_bytes=300)
    for _ in range(100):
        bench.append(2)
    for segment in bench.log.segments:
        segment.seal()
        segment.evict()
    names = [f"{segment.base_offset:020d}.index" for segment in bench.log.segments[:4]]
    bench.file(names[0]).unlink()
    bench.file(names[1]).write_bytes(bytes(4096))
    bench.file(names[2]).write_bytes(b"\0\0\0\1\0\0\0\x55" + b"\0\0\0\2\0\0\1\x11")
    bench.file(names[3]).write_bytes(bench.file(names[3]).read_bytes()[:-3])
    for offset in range(80):
        assert fetch(bench, offset, 1) == [offset // 2 * 2]


# --- Times ---


def test_the_first_record_at_least_as_young_is_found(make_log: MakeLog, now_ms: int):
    bench = make_log(segment_bytes=2000, index_interval_bytes=200)
    for index in range(60):
        bench.append(2, timestamp=now_ms + index * 10)
    end = bench.log.log_end_offset
    for delay, offset in ((-5, 0), (0, 0), (1, 1), (2, 2), (300, 60), (301, 61), (590, 118), (591, 119)):
        found = bench.log.offset_for_timestamp(now_ms + delay, end)
        assert found is not None
        assert found.offset == offset, delay
    assert bench.log.offset_for_timestamp(now_ms + 592, end) is None
    assert bench.log.offset_for_timestamp(now_ms + 301, 61) is None


def test_lookup_by_time_respects_the_log_start(bench: LogBench, now_ms: int):
    for index in range(4):
        bench.append(timestamp=now_ms + index)
    bench.log.advance_log_start(2)
    assert bench.log.offset_for_timestamp(now_ms, 4) == TimestampOffset(now_ms + 2, 2)


def test_the_record_with_the_largest_timestamp(bench: LogBench, now_ms: int):
    assert bench.log.max_timestamp_offset() is None
    bench.append(3, timestamp=now_ms)
    bench.append(timestamp=now_ms + 1)
    bench.append(timestamp=now_ms - 9)
    assert bench.log.max_timestamp_offset() == TimestampOffset(now_ms + 2, 2)


def test_times_inside_a_compressed_batch(bench: LogBench, now_ms: int):
    from kafka_wire.records.compression import Codec

    bench.append(50, timestamp=now_ms, codec=Codec.ZSTD)
    assert bench.log.offset_for_timestamp(now_ms + 33, 50) == TimestampOffset(now_ms + 33, 33)


@pytest.mark.parametrize("batches", [1, 2, 3, 5])
def test_a_read_says_where_its_reader_goes_on(bench: LogBench, batches: int):
    sizes = {bench.append(3).appended_bytes for _ in range(5)}
    (size,) = sizes
    fetched = bench.log.read(1, batches * size + 1, end_offset=15)
    assert (fetched.size, fetched.next_offset) == (batches * size, batches * 3)
    assert bench.log.read(1, 5 * size, end_offset=6).next_offset == 6


def test_a_read_that_gives_nothing_goes_on_where_it_began(bench: LogBench):
    bench.append(3)
    assert bench.log.read(3, 100, end_offset=3).next_offset == 3
    assert bench.log.read(1, 0, end_offset=3, minimum_one=False).next_offset == 1
    assert bench.log.read(1, 0, end_offset=3).next_offset == 3


def test_a_read_of_a_sealed_segment_ends_where_the_next_one_begins(make_log: MakeLog):
    bench = make_log(segment_bytes=200)
    for _ in range(6):
        bench.append(3)
    ends = []
    offset = 0
    while offset < bench.log.log_end_offset:
        offset = bench.log.read(offset, 1 << 20, end_offset=bench.log.log_end_offset).next_offset
        ends.append(offset)
    assert ends == [*(segment.base_offset for segment in bench.log.segments[1:]), bench.log.log_end_offset]


# --- Transactions ---


def test_the_last_stable_offset_stops_at_an_open_transaction(bench: LogBench):
    bench.append()
    assert bench.log.producers.transactions.last_stable_offset(1) == 1
    bench.append(2, producer_id=5, producer_epoch=0, sequence=0, transactional=True)
    bench.append()
    assert bench.log.producers.transactions.first_unstable_offset == 1
    assert bench.log.producers.transactions.last_stable_offset(4) == 1
    bench.end_transaction(5, committed=True)
    assert bench.log.producers.transactions.last_stable_offset(4) == 1
    assert bench.log.producers.transactions.last_stable_offset(5) == 5
    assert bench.log.aborted_transactions(0, 5) == []


def test_aborted_transactions_are_reported_across_segments(make_log: MakeLog):
    bench = make_log(segment_bytes=400)
    bench.append(2, producer_id=5, producer_epoch=0, sequence=0, transactional=True)
    for _ in range(10):
        bench.append()
    bench.end_transaction(5, committed=False)
    assert len(bench.log.segments) > 2
    aborted = AbortedTransaction(5, 0, 12, 13)
    assert bench.log.aborted_transactions(0, 13) == [aborted]
    assert bench.log.aborted_transactions(5, 6) == [aborted]
    assert bench.log.aborted_transactions(13, 14) == []
    bench.restart()
    assert bench.log.aborted_transactions(0, 13) == [aborted]


# --- Epochs ---


def test_a_new_epoch_is_on_disk_before_its_first_batch(bench: LogBench):
    assert bench.log.needs_epoch_entry(3)
    bench.append_bytes(_one(), epoch=3)
    assert not bench.log.needs_epoch_entry(3)
    bench.append_bytes(_one(), epoch=5)
    assert bench.file("leader-epoch-checkpoint").read_bytes() == b"0\n2\n3 0\n5 1\n"
    assert bench.log.end_offset_for_epoch(3) == EpochEndOffset(3, 1)
    assert bench.log.end_offset_for_epoch(5) == EpochEndOffset(5, 2)


def test_a_leader_that_was_replaced_cannot_append(bench: LogBench, batch: Callable[..., bytearray]):
    bench.append_bytes(_one(), epoch=3)
    with pytest.raises(FencedLeaderEpoch):
        bench.append_bytes(_one(), epoch=2)
    copied = batch()
    copied[0:8], copied[12:16] = (1).to_bytes(8, "big"), (2).to_bytes(4, "big")
    with pytest.raises(FencedLeaderEpoch):
        bench.replicate(copied)
    assert bench.log.log_end_offset == 1


def _one() -> bytearray:
    return bytearray(build_batch([NewRecord(0, None, b"v")]))


# --- Retention and truncation ---


def test_retired_segments_are_renamed_and_removed_later(make_log: MakeLog, now_ms: int):
    bench = make_log(segment_bytes=100, retention_ms=1000, file_delete_delay_ms=60)
    for index in range(4):
        bench.append(timestamp=now_ms + index * 1000)
    retired = bench.log.delete_expired_segments(now_ms + 2001, 4)
    assert [segment.base_offset for segment in retired] == [0, 1]
    assert (bench.log.log_start_offset, bench.log.segments[0].base_offset) == (2, 2)
    assert "00000000000000000000.log.deleted" in files(bench)
    assert "00000000000000000001.snapshot" not in files(bench)
    assert bench.log.remove_deleted_files(now_ms + 2001 + 59) == 0
    bench.log.remove_deleted_files(now_ms + 2001 + 60)
    assert not [name for name in files(bench) if name.endswith(".deleted")]
    with pytest.raises(OffsetOutOfRange):
        bench.log.read(1, 100, end_offset=4)


def test_when_all_is_retired_an_empty_segment_follows(bench: LogBench, now_ms: int):
    bench.append(3)
    bench.log.config = attrs.evolve(bench.log.config, retention_ms=5)
    retired = bench.log.delete_expired_segments(now_ms + 100, 3)
    assert [segment.base_offset for segment in retired] == [0]
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (3, 3)
    assert bench.append().first_offset == 3
    assert bench.log.delete_expired_segments(now_ms, 4) == []


def test_without_timestamps_retention_goes_by_the_file(bench: LogBench):
    bench.append(timestamp=-1)
    path = bench.file("00000000000000000000.log")
    os.utime(path, (1000, 1000))
    bench.log.config = LogConfig(retention_ms=5)
    assert bench.log.delete_expired_segments(1_000_005, 1) == []
    assert len(bench.log.delete_expired_segments(1_000_006, 1)) == 1


@pytest.mark.parametrize("largest", [-1, 0])
@pytest.mark.parametrize("count", [3, 200])
def test_records_of_a_header_without_their_time_are_found_by_it_and_stay_as_long_as_others(
    bench: LogBench, batch: Callable[..., bytearray], now_ms: int, largest: int, count: int
):
    data = batch(count)
    only = next(read_batches(data))
    only.amend(attributes=0, max_timestamp=largest)
    bench.append_bytes(data)
    found = bench.log.offset_for_timestamp(now_ms + 2, count)
    assert found == TimestampOffset(now_ms + 2, 2)
    bench.log.config = LogConfig(retention_ms=5)
    os.utime(bench.file("00000000000000000000.log"), (1000, 1000))
    assert bench.log.delete_expired_segments(now_ms + count + 4, count) == []
    assert len(bench.log.delete_expired_segments(now_ms + count + 5, count)) == 1


def test_the_log_start_moves_inside_a_segment(bench: LogBench, now_ms: int):
    bench.append(10)
    assert bench.log.advance_log_start(4)
    assert not bench.log.advance_log_start(3)
    assert bench.log.log_start_offset == 4
    with pytest.raises(OffsetOutOfRange):
        bench.log.advance_log_start(11)
    with pytest.raises(OffsetOutOfRange):
        bench.log.read(3, 100, end_offset=10)
    assert fetch(bench, 4, 100) == [0]


def test_truncation_cuts_batches_epochs_and_producers(make_log: MakeLog, now_ms: int):
    bench = make_log(segment_bytes=300, index_interval_bytes=100)
    for sequence in range(12):
        record = NewRecord(now_ms + sequence, b"k", b"v")
        data = build_batch([record], producer_id=4, producer_epoch=0, base_sequence=sequence)
        bench.append_bytes(bytearray(data), epoch=sequence // 4)
    truncate(bench.log, 6, now_ms)
    assert bench.log.log_end_offset == 6
    assert bench.offsets() == list(range(6))
    assert bench.log.latest_epoch == 1
    assert bench.log.max_timestamp_offset() == TimestampOffset(now_ms + 5, 5)
    bench.leader_epoch = 1
    assert bench.append(producer_id=4, producer_epoch=0, sequence=5).duplicate
    assert bench.append(producer_id=4, producer_epoch=0, sequence=6).first_offset == 6
    bench.crash(recovery_point=0)
    assert bench.offsets() == list(range(7))


@pytest.mark.parametrize(("offset", "kept"), [(2, [1, 2]), (1, [1]), (0, [])])
def test_producer_snapshots_behind_a_cut_go_with_it(make_log: MakeLog, now_ms: int, offset: int, kept: list[int]):
    """One would be taken for true as soon as the log has grown past it again."""
    bench = make_log()
    for sequence in range(4):
        bench.append(producer_id=4, producer_epoch=0, sequence=sequence)
        bench.log.roll(now_ms)
    truncate(bench.log, offset, now_ms)
    assert sorted(producer_snapshot.offsets(bench.disk, bench.log.directory)) == kept


def test_a_log_can_begin_anew_at_an_offset(bench: LogBench, now_ms: int):
    bench.append(5, producer_id=4, producer_epoch=0, sequence=0)
    truncate(bench.log, 100, now_ms, begins_anew=True)
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (100, 100)
    assert bench.log.latest_epoch is None
    assert bench.append(producer_id=4, producer_epoch=0, sequence=77).first_offset == 100
    bench.restart()
    assert bench.offsets() == [100]


# --- Durability ---


def test_sync_returns_the_durable_offset(bench: LogBench):
    assert bench.log.sync() == 0
    bench.append(3)
    assert bench.log.recovery_point == 0
    assert bench.log.sync() == 3
    assert bench.log.recovery_point == 3


def test_sync_covers_sealed_segments_and_the_directory_once(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch):
    bench = make_log(segment_bytes=100)
    bench.append()
    bench.append()
    bench.append()
    synced: list[str] = []
    real = os.fdatasync

    def note(fd: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        real(fd)

    monkeypatch.setattr("os.fdatasync", note)
    bench.log.sync()
    assert {"00000000000000000000.log", "00000000000000000000.index", "00000000000000000002.log"} <= set(synced)
    synced.clear()
    bench.append()
    bench.log.sync()
    assert "00000000000000000000.log" not in synced
    bench.log.sync()
    assert synced.count("00000000000000000003.log") == 1


def test_an_append_during_a_sync_is_not_taken_for_durable(bench: LogBench, monkeypatch: pytest.MonkeyPatch):
    bench.append()
    real = os.fdatasync

    def append_meanwhile(fd: int) -> None:
        real(fd)
        bench.append()

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", append_meanwhile)
        assert bench.log.sync() == 1
    assert bench.log.recovery_point == 1
    assert bench.log.sync() == 2


def test_a_failed_sync_is_final(bench: LogBench, monkeypatch: pytest.MonkeyPatch):
    bench.append()

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", broken)
        with pytest.raises(StorageFailed):
            bench.log.sync()
    for attempt in (bench.log.sync, bench.append, bench.log.close):
        with pytest.raises(StorageFailed):
            attempt()
    assert fetch(bench, 0, 100) == [0]


def test_sync_and_read_are_safe_beside_appends(make_log: MakeLog):
    bench = make_log(segment_bytes=20_000)
    stop = threading.Event()
    problems: list[BaseException] = []

    def read_and_sync() -> None:
        position = 0
        try:
            while not stop.is_set():
                end = bench.log.log_end_offset
                durable = bench.log.sync()
                assert durable >= min(end, durable)
                for base in fetch(bench, position, 5000, end):
                    assert base == position
                    position += 1
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=read_and_sync)
    thread.start()
    for _ in range(1500):
        bench.append()
    stop.set()
    thread.join()
    assert problems == []
    assert bench.offsets() == list(range(1500))


def test_closing_trims_and_leaves_a_snapshot_at_the_end(bench: LogBench):
    bench.append(2, producer_id=3, producer_epoch=0, sequence=0)
    bench.log.close()
    assert files(bench) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "00000000000000000002.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert bench.file("00000000000000000000.index").read_bytes() == b""
    assert len(bench.file("00000000000000000000.timeindex").read_bytes()) == 12


def test_a_new_configuration_counts_from_the_next_append(bench: LogBench):
    bench.append()
    bench.log.config = LogConfig(segment_bytes=100)
    bench.append()
    assert len(bench.log.segments) == 2


def test_preallocated_files_are_trimmed_at_the_end(make_log: MakeLog):
    bench = make_log(preallocate=True, segment_bytes=1 << 16)
    size = bench.append().appended_bytes
    path = bench.file("00000000000000000000.log")
    assert path.stat().st_size == 1 << 16
    report = bench.crash().report
    assert report.kept_aside == []
    assert bench.offsets() == [0]
    bench.restart()
    assert path.stat().st_size == size


def test_a_closed_log_answers_nothing(bench: LogBench):
    bench.append()
    bench.log.close()
    for attempt in (bench.append, bench.log.sync, bench.log.close, lambda: fetch(bench, 0, 100)):
        with pytest.raises(LogClosed):
            attempt()


def test_deleting_a_log_during_a_sync_is_no_disk_failure(bench: LogBench, monkeypatch: pytest.MonkeyPatch):
    bench.append()

    def delete_meanwhile(fd: int) -> None:
        bench.log.release()
        raise OSError(errno.EBADF, "Bad file descriptor")

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", delete_meanwhile)
        with pytest.raises(LogClosed):
            bench.log.sync()
    assert bench.log.failure is None


def test_a_retired_segment_can_still_be_read_by_who_holds_it(make_log: MakeLog):
    bench = make_log(segment_bytes=100)
    for _ in range(3):
        bench.append()
    held = bench.log.segments[0]
    bench.log.advance_log_start(1)
    bench.log.delete_expired_segments(bench.now_ms, 3)
    bench.log.remove_deleted_files(bench.now_ms + 10**9)
    held.sync()
    assert held.find(0) is not None
    assert not held.file.path.exists()


def test_retention_during_a_sync_is_no_disk_failure(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch):
    bench = make_log(segment_bytes=100)
    for _ in range(4):
        bench.append()
    for segment in bench.log.segments[:-1]:
        segment.evict()
    real = os.fdatasync

    def retire_meanwhile(fd: int) -> None:
        real(fd)
        monkeypatch.setattr("os.fdatasync", real)  # retention syncs too
        bench.log.advance_log_start(3)
        bench.log.delete_expired_segments(bench.now_ms, 4)

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", retire_meanwhile)
        assert bench.log.sync() == 4
    assert bench.offsets() == [3]


# --- Index files of the active segment ---


def index_files(bench: LogBench) -> dict[str, bytes]:
    return {path.suffix: path.read_bytes() for path in sorted(bench.directory.glob("*index"))}


def test_index_files_of_the_active_segment_have_its_entries_and_no_more(make_log: Callable[..., LogBench]):
    bench = make_log(index_interval_bytes=100, segment_index_bytes=1000)
    assert index_files(bench) == {".index": b"", ".timeindex": b""}
    for number in range(40):
        bench.append(timestamp=bench.now_ms + number)
    segment = bench.log.active_segment
    live = index_files(bench)
    segment.seal()
    for suffix, content in index_files(bench).items():
        # Sealing adds the entries that were not written yet.
        assert live[suffix]
        assert content.startswith(live[suffix])
        assert len(content) > len(live[suffix])


def test_the_first_entry_is_in_the_file_at_once_and_later_ones_come_together(make_log: Callable[..., LogBench]):
    bench = make_log(index_interval_bytes=1)
    index = bench.log.active_segment.offset_index
    written = []
    for _ in range(200):
        bench.append()
        written.append(OffsetIndex.load(RealDisk(), index.path, 0, 1 << 20, 1 << 30, is_active=True).entries)
    assert len(written[1]) == 1
    assert all(each == index.entries[: len(each)] for each in written)
    assert {len(each) for each in written if each} == {1, 3, 7, 15, 31, *range(63, 200, 32)}


def test_a_sync_writes_no_index_entries(make_log: Callable[..., LogBench]):
    bench = make_log(index_interval_bytes=1)
    for _ in range(11):
        bench.append()
    before = index_files(bench)
    bench.log.sync()
    assert index_files(bench) == before


def test_an_index_that_cannot_be_written_fails_no_append(bench: LogBench, caplog: pytest.LogCaptureFixture):
    bench.log.active_segment.path(".index").unlink()
    for _ in range(3):
        bench.append(1, value=bytes(5000))
    assert "index entries are not written" in caplog.text
    assert bench.offsets() == [0, 1, 2]


def test_after_a_kill_the_zeros_behind_the_entries_are_no_entries(make_log: Callable[..., LogBench]):
    bench = make_log(index_interval_bytes=100)
    for _ in range(40):
        bench.append()
    before = bench.log.active_segment.offset_index.entries
    bench.crash()
    assert bench.log.active_segment.offset_index.entries == before
    assert bench.offsets() == list(range(40))
    bench.restart()
    assert bench.log.active_segment.offset_index.entries == before
