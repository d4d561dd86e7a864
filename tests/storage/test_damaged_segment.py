"""A damaged batch header inside a segment: it costs what is in its batch, not indexes, not the log behind it."""

from __future__ import annotations

import os
import struct
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_wire.records.errors import CorruptRecordBatch
from tests.storage.conftest import NOW_MS, LogBench
from tests.storage.log_content import fetched_data
from trio_broker.storage.segment import Segment
from trio_broker.storage.time_index import TimestampOffset

BATCHES = 50


@pytest.fixture
def log(make_log: Callable[..., LogBench]) -> LogBench:
    """Fifty batches of one record in one segment, about every third of them in the index."""
    bench = make_log(index_interval_bytes=200)
    for number in range(BATCHES):
        bench.append(timestamp=NOW_MS + number)
    return bench


def damage(log: LogBench, offset: int) -> Segment:
    """Let the batch at ``offset`` have a magic that does not exist; nothing is remembered of where batches are."""
    segment = log.log.active_segment
    span = segment.find(offset)
    assert span is not None
    with Path(segment.file.path).open("r+b") as file:
        os.pwrite(file.fileno(), b"\x77", span.position + 16)
    segment.position_cache = {}
    # As after a start: entries that this process made itself are not looked at again.
    segment.offset_index.is_from_file = True
    return segment


def indexed(log: LogBench) -> list[int]:
    return [entry.offset for entry in log.log.active_segment.offset_index.entries]


def read(log: LogBench, offset: int) -> int:
    """The base offset of the batch that a read from ``offset`` begins with."""
    fetched = log.log.read(offset, 1, end_offset=log.log.log_end_offset)
    return int.from_bytes(fetched_data(fetched)[:8], "big")


@pytest.mark.parametrize("at_an_index_entry", [True, False])
def test_indexes_are_made_anew_at_most_once_however_often_it_is_read(
    log: LogBench, caplog: pytest.LogCaptureFixture, at_an_index_entry: bool
):
    entries = indexed(log)
    offset = entries[4] + (0 if at_an_index_entry else 1)
    damage(log, offset)
    for _ in range(5):
        with pytest.raises(CorruptRecordBatch, match=f"offset {offset} is damaged, up to {offset + 1}"):
            read(log, offset)
    assert caplog.text.count("rebuilding the indexes") == (1 if at_an_index_entry else 0)
    assert caplog.text.count("is damaged from position") == 1


@pytest.mark.parametrize("at_an_index_entry", [True, False])
def test_every_other_batch_is_read(log: LogBench, at_an_index_entry: bool):
    offset = indexed(log)[4] + (0 if at_an_index_entry else 1)
    segment = damage(log, offset)
    for readable in (*range(offset), *range(offset + 1, BATCHES)):
        segment.position_cache = {}
        assert read(log, readable) == readable
        found = log.log.offset_for_timestamp(NOW_MS + readable, BATCHES)
        assert found is not None
        assert found.offset == readable


def test_a_read_ends_before_it(log: LogBench):
    segment = damage(log, 20)
    span = segment.find(18)
    assert span is not None
    with pytest.raises(CorruptRecordBatch):
        read(log, 20)
    fetched = log.log.read(18, 10 * span.size, end_offset=BATCHES)
    assert (fetched.size, fetched.next_offset) == (2 * span.size, 20)


def test_a_length_that_leads_into_the_next_batch_ends_no_read_there(log: LogBench):
    offset = indexed(log)[4]  # which an index entry leads to, past the damage
    segment = log.log.active_segment
    span = segment.find(offset - 1)
    assert span is not None
    with Path(segment.file.path).open("r+b") as file:
        os.pwrite(file.fileno(), struct.pack(">i", span.end - span.position - 12 + 20), span.position + 8)
    segment.position_cache = {}
    for _ in range(2):
        fetched = log.log.read(offset, 1, end_offset=BATCHES)
        assert (fetched.next_offset, fetched.size) == (offset + 1, span.end - span.position)
        assert offset not in {located.header.base_offset for located in segment.headers()}


def test_a_clean_stop_keeps_what_is_behind_it(log: LogBench):
    offset = indexed(log)[4]
    damage(log, offset)
    log.restart()
    assert log.log.log_end_offset == BATCHES
    with pytest.raises(CorruptRecordBatch):
        read(log, offset)
    assert read(log, offset + 1) == offset + 1


def test_an_index_that_is_wrong_before_it_as_well_is_made_anew(log: LogBench, caplog: pytest.LogCaptureFixture):
    entries = indexed(log)
    segment = damage(log, entries[4])
    positions = segment.offset_index._positions
    positions[:] = array(positions.typecode, (position + 1 for position in positions))
    assert read(log, BATCHES - 1) == BATCHES - 1
    assert entries[4] not in indexed(log)
    assert indexed(log)[:4] == entries[:4]
    assert caplog.text.count("rebuilding the indexes") == 1


def overwrite_index(log: LogBench, entry: int, position: int) -> None:
    """Stop the broker, and let one entry of the offset index lead to ``position``."""
    log.log.close()
    path = log.log.active_segment.path(".index")
    content = bytearray(Path(path).read_bytes())
    struct.pack_into(">i", content, 8 * entry + 4, position)
    Path(path).write_bytes(content)
    log.reopen(clean=True)


@pytest.mark.parametrize("position", [-1, -(2**31), 2**31 - 1, 1], ids=["-1", "smallest", "largest", "falling"])
def test_an_index_with_an_impossible_position_is_made_anew(
    log: LogBench, caplog: pytest.LogCaptureFixture, position: int
):
    before = indexed(log)
    overwrite_index(log, 4, position)
    for offset in range(BATCHES):
        found = log.log.offset_for_timestamp(NOW_MS + offset, BATCHES)
        assert found is not None
        assert found.offset == offset
        assert read(log, offset) == offset
    assert caplog.text.count("rebuilding the indexes") == 1
    assert indexed(log) == before


def test_a_lookup_by_time_makes_an_index_anew_that_leads_into_a_batch(log: LogBench, caplog: pytest.LogCaptureFixture):
    entry = log.log.active_segment.offset_index.entries[4]
    overwrite_index(log, 4, entry.position + 7)
    found = log.log.offset_for_timestamp(NOW_MS + entry.offset + 1, BATCHES)
    assert found is not None
    assert found.offset == entry.offset + 1
    assert caplog.text.count("rebuilding the indexes") == 1


@pytest.mark.parametrize("entries", range(17))
def test_a_time_index_that_has_lost_entries_is_made_anew(log: LogBench, entries: int):
    # Late records: what lies behind the last index entry is older than the entries that are lost.
    for _ in range(10):
        log.append(timestamp=NOW_MS)
    log.log.close()
    path = Path(log.log.active_segment.path(".timeindex"))
    whole = path.read_bytes()
    assert len(whole) == 17 * 12
    path.write_bytes(whole[: entries * 12])
    log.reopen(clean=True)
    assert log.log.active_segment.largest_timestamp_offset_pair() == TimestampOffset(NOW_MS + 49, 49)
    found = log.log.offset_for_timestamp(NOW_MS + 45, log.log.log_end_offset)
    assert found is not None
    assert found.offset == 45
    log.log.close()
    assert path.read_bytes() == whole
