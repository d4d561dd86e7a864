"""The offset index: Kafka's bytes, and lookups in both of its columns."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.errors import CorruptIndex
from trio_broker.storage.offset_index import OffsetIndex, OffsetPosition

GOLDEN = bytes.fromhex("000000030000005e00000006000000f2")


@pytest.fixture
def index(tmp_path: Path) -> OffsetIndex:
    index = OffsetIndex(RealDisk(), tmp_path / "00000000000000000100.index", 100, 80)
    index.append(103, 94)
    index.append(106, 242)
    return index


def test_file_equals_the_golden_vector(index: OffsetIndex):
    index.flush()
    assert Path(index.path).read_bytes() == GOLDEN


def test_golden_vector_reads_as_it_was_meant(tmp_path: Path):
    path = tmp_path / "index"
    path.write_bytes(GOLDEN)
    index = OffsetIndex.load(RealDisk(), path, 100, 1024, 300)
    assert index.entries == [OffsetPosition(103, 94), OffsetPosition(106, 242)]


@pytest.mark.parametrize(("offset", "number"), [(100, -1), (102, -1), (103, 0), (105, 0), (106, 1), (9999, 1)])
def test_the_entry_for_an_offset_is_the_last_one_not_above(index: OffsetIndex, offset: int, number: int):
    assert index.number_for(offset) == number


@pytest.mark.parametrize(("limit", "number"), [(0, -1), (93, -1), (94, 0), (241, 0), (242, 1), (9999, 1)])
def test_the_entry_at_a_position_is_the_last_one_not_behind(index: OffsetIndex, limit: int, number: int):
    assert index.number_at(limit) == number


def test_flushing_twice_writes_only_what_is_new_and_pads_nothing(index: OffsetIndex):
    index.flush()
    index.append(110, 400)
    index.flush()
    assert Path(index.path).read_bytes() == GOLDEN + bytes.fromhex("0000000a00000190")


def test_truncation_drops_later_entries_from_the_file_too(index: OffsetIndex):
    index.flush()
    index.truncate_to(106)
    assert Path(index.path).read_bytes() == GOLDEN[:8]


def test_a_file_of_another_length_is_cut_at_the_next_flush(index: OffsetIndex):
    Path(index.path).write_bytes(bytes(4000))
    index.flush()
    assert Path(index.path).read_bytes() == GOLDEN


def test_full_when_no_entry_fits(tmp_path: Path):
    index = OffsetIndex(RealDisk(), tmp_path / "index", 0, 17)
    index.append(0, 0)
    assert not index.is_full
    index.append(1, 100)
    assert index.is_full


@pytest.mark.parametrize(
    "content",
    [GOLDEN[:-1], GOLDEN + bytes(8), GOLDEN + bytes(80), bytes(16), GOLDEN[8:] + GOLDEN[:8], b"\xff" * 8],
    ids=["torn", "one zero entry", "zero padded", "all zeros", "backwards", "negative"],
)
def test_an_index_that_contradicts_itself_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "index"
    path.write_bytes(content)
    with pytest.raises(CorruptIndex):
        OffsetIndex.load(RealDisk(), path, 100, 1024, 300)


def test_an_index_that_points_behind_the_log_is_refused(tmp_path: Path):
    path = tmp_path / "index"
    path.write_bytes(GOLDEN)
    with pytest.raises(CorruptIndex):
        OffsetIndex.load(RealDisk(), path, 100, 1024, 242)
    with pytest.raises(CorruptIndex):
        OffsetIndex.load(RealDisk(), tmp_path / "none", 100, 1024, 242)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 99, 100, 1000])
def test_some_entries_are_reported_at_even_distances(tmp_path: Path, count: int):
    index = OffsetIndex(RealDisk(), tmp_path / "index", 0, 8000)
    for number in range(100):
        index.append(10 * number, 100 * number)
    entries = index.spread(count)
    assert min(count, 100) / 2 < len(entries) + 1
    assert len(entries) <= count
    assert set(entries) <= set(index.entries)
    assert len({after.offset - before.offset for before, after in itertools.pairwise(entries)}) <= 1
