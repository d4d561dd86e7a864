"""A worker thread reads a log without changing what its owner reads, and the owner takes over what it found."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from operator import methodcaller
from typing import Any, TypeVar

import pytest

from trio_broker.storage.log import Log
from trio_broker.storage.log_reader import LogReader
from trio_broker.storage.segment import Segment

T = TypeVar("T")


@pytest.fixture
def log(make_log: Any) -> Log:
    """A log of several segments, cold but for the active one, that this thread owns."""
    bench = make_log(segment_bytes=400)
    for _ in range(12):
        bench.append()
    for segment in bench.log.segments[:-1]:
        segment.seal()
        segment.evict()
    bench.log.bind_to_thread()
    log: Log = bench.log
    return log


def in_thread(work: Any) -> Any:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(work).result()


def seen_by_owner(segment: Segment) -> tuple[Any, ...]:
    """What a look in a thread must leave as it is."""
    cached = dict(segment.position_cache)
    return segment._offset_index, segment._time_index, segment.file.is_open, segment._knows_timestamps, cached


def read_first(reader: LogReader) -> int:
    return reader.read(0, 1, end_offset=reader.log_end_offset).next_offset


def test_a_read_in_a_thread_changes_nothing_until_the_owner_takes_it_over(log: Log):
    first = log.segments[0]
    before = seen_by_owner(first)
    look = in_thread(lambda: log.read_with(read_first))
    assert look.result == 1
    assert seen_by_owner(first) == before
    log.adopt(look.reader)
    assert log.read(0, 1, end_offset=log.log_end_offset, nowait=True).next_offset == 1
    assert first.file.is_open


def test_what_was_looked_up_for_another_purpose_is_known_and_not_kept_open(log: Log):
    first = log.segments[0]
    largest = first.private_copy().largest_timestamp_offset_pair()
    look = in_thread(lambda: log.read_with(LogReader.max_timestamp_offset))
    log.adopt(look.reader)
    assert first._knows_timestamps
    assert first.largest_timestamp_offset_pair() == largest
    assert not first.file.is_open
    assert first._offset_index is None


def test_an_index_that_a_thread_made_anew_is_written_by_the_owner(log: Log):
    first = log.segments[0]
    whole = first.private_copy().time_index.entries
    path = first.path(".timeindex")
    first.disk.unlink(path)
    look = in_thread(lambda: log.read_with(methodcaller("offset_for_timestamp", 0, log.log_end_offset)))
    assert not first.disk.exists(path)
    log.adopt(look.reader)
    assert first.disk.exists(path)
    assert first.private_copy().time_index.entries == whole


def test_a_look_is_repeated_when_names_have_moved_meanwhile(log: Log):
    looks: list[int] = []

    def work(reader: LogReader) -> int:
        looks.append(reader.log_start_offset)
        if len(looks) == 1:
            end = log.segments[1].base_offset
            log.advance_log_start(end)
            assert log.delete_expired_segments(0, log.log_end_offset)
        return read_first_left(reader)

    look = log.read_with(work)
    assert looks == [0, log.log_start_offset]
    assert look.result > log.log_start_offset


def read_first_left(reader: LogReader) -> int:
    return reader.read(reader.log_start_offset, 1, end_offset=reader.log_end_offset).next_offset


def test_what_was_learned_under_names_that_have_moved_since_is_forgotten(log: Log):
    look = in_thread(lambda: log.read_with(read_first))
    log.advance_log_start(log.segments[1].base_offset)
    assert log.delete_expired_segments(0, log.log_end_offset)
    row = [seen_by_owner(segment) for segment in log.segments]
    log.adopt(look.reader)
    assert [seen_by_owner(segment) for segment in log.segments] == row


def test_an_error_of_the_look_is_the_callers(log: Log):
    def fail(reader: LogReader) -> None:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="gone"):
        log.read_with(fail)


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.read(0, 1, end_offset=log.log_end_offset),
        lambda log: log.roll(0),
        lambda log: log.advance_log_start(1),
        lambda log: log.fail(OSError(5, "gone")),
        lambda log: log.segments[0].rebuild_indexes("a test"),
    ],
)
def test_a_thread_that_changes_what_the_owner_reads_is_our_bug(log: Log, change: Any):
    with pytest.raises(AssertionError, match="worker thread"):
        in_thread(lambda: change(log))
