"""The time index: Kafka's bytes, growing timestamps, lookups."""

from __future__ import annotations

from pathlib import Path

import pytest

from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.errors import CorruptIndex
from trio_broker.storage.time_index import TimeIndex, TimestampOffset

BASE_MS = 1_700_000_000_000
GOLDEN = bytes.fromhex("0000018bcfe5680a000000030000018bcfe5681f00000006")


@pytest.fixture
def index(tmp_path: Path) -> TimeIndex:
    index = TimeIndex(RealDisk(), tmp_path / "00000000000000000100.timeindex", 100, 48)
    index.maybe_append(BASE_MS + 10, 103)
    index.maybe_append(BASE_MS + 31, 106)
    return index


def test_file_equals_the_golden_vector(index: TimeIndex):
    index.flush()
    assert Path(index.path).read_bytes() == GOLDEN


def test_golden_vector_reads_as_it_was_meant(tmp_path: Path):
    path = tmp_path / "index"
    path.write_bytes(GOLDEN)
    index = TimeIndex.load(RealDisk(), path, 100, 1024)
    assert index.entries == [TimestampOffset(BASE_MS + 10, 103), TimestampOffset(BASE_MS + 31, 106)]
    assert index.last_entry == TimestampOffset(BASE_MS + 31, 106)


def test_only_larger_timestamps_are_entered(index: TimeIndex):
    index.maybe_append(BASE_MS + 31, 109)
    index.maybe_append(BASE_MS, 110)
    assert len(index) == 2


def test_a_segment_without_timestamps_has_no_entry(tmp_path: Path):
    index = TimeIndex(RealDisk(), tmp_path / "index", 100, 48)
    index.maybe_append(-1, 100)
    assert len(index) == 0
    assert index.last_entry == TimestampOffset(-1, 100)


@pytest.mark.parametrize(("after_ms", "offset"), [(0, 100), (9, 100), (10, 103), (30, 103), (31, 106), (99, 106)])
def test_lookup_gives_the_last_entry_not_younger(index: TimeIndex, after_ms: int, offset: int):
    assert index.lookup(BASE_MS + after_ms).offset == offset


def test_one_slot_is_kept_free_for_the_roll(index: TimeIndex):
    assert not index.is_full
    index.maybe_append(BASE_MS + 40, 108)
    assert index.is_full


def test_truncation_drops_later_entries(index: TimeIndex):
    index.flush()
    index.truncate_to(104)
    assert Path(index.path).read_bytes() == GOLDEN[:12]


@pytest.mark.parametrize("content", [GOLDEN[:-1], GOLDEN[12:] + GOLDEN[:12], GOLDEN + bytes(12)])
def test_an_index_that_contradicts_itself_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "index"
    path.write_bytes(content)
    with pytest.raises(CorruptIndex):
        TimeIndex.load(RealDisk(), path, 100, 1024)
