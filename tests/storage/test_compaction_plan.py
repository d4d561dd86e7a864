"""Which log is compacted next, how far, and which segments become one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from tests.storage.conftest import NOW_MS
from trio_broker.config.log_config import CleanupPolicy
from trio_broker.storage.compaction_plan import (
    MAX_GROUP_SEGMENTS,
    CompactionRange,
    compaction_range,
    dirtiest,
    group_segments,
)

MakeLog = Callable[..., Any]
COMPACT = CleanupPolicy(delete=False, compact=True)
DAY_MS = 86_400_000


@pytest.fixture
def bench(make_log: MakeLog) -> Any:
    """Ten batches, two a segment; the last two segments hold one each."""
    made = make_log(segment_bytes=170, cleanup_policy=COMPACT)
    for index in range(9):
        made.append(timestamp=NOW_MS + index)
    made.log.roll(NOW_MS)
    made.append(timestamp=NOW_MS + 100)
    made.log.sync()
    assert [segment.base_offset for segment in made.log.segments] == [0, 2, 4, 6, 8, 9]
    return made


def planned(bench: Any, *, stable: int = 10, now_ms: int = NOW_MS, dirty: int | None = None) -> CompactionRange:
    bench.log.first_dirty_offset = dirty
    return compaction_range(bench.log, stable_offset=stable, now_ms=now_ms)


def test_everything_but_the_active_segment_is_dirty_at_first(bench: Any) -> None:
    compacted = planned(bench)
    assert (compacted.first_dirty_offset, compacted.end_offset) == (0, 9)
    assert compacted.clean_bytes == 0
    assert compacted.dirty_bytes == sum(segment.size for segment in bench.log.segments[:-1])
    assert compacted.dirty_ratio == 1
    assert compacted.is_due


@pytest.mark.parametrize(("stable", "end"), [(10, 9), (9, 9), (8, 8), (7, 6), (6, 6), (1, 0), (0, 0)])
def test_only_whole_segments_below_the_last_stable_offset_are_compacted(bench: Any, stable: int, end: int) -> None:
    assert planned(bench, stable=stable).end_offset == end


def test_what_a_power_cut_could_take_is_not_compacted(bench: Any) -> None:
    bench.log.durable_stable_offset = 5
    assert planned(bench).end_offset == 4


def test_the_clean_part_is_up_to_the_checkpoint(bench: Any) -> None:
    sizes = [segment.size for segment in bench.log.segments]
    compacted = planned(bench, dirty=6)
    assert (compacted.first_dirty_offset, compacted.end_offset) == (6, 9)
    assert compacted.clean_bytes == sum(sizes[:3])
    assert compacted.dirty_bytes == sum(sizes[3:5])


def test_nothing_is_due_where_everything_is_clean(bench: Any) -> None:
    compacted = planned(bench, dirty=9)
    assert (compacted.dirty_bytes, compacted.dirty_ratio, compacted.is_due) == (0, 0, False)


def test_an_empty_log_is_not_due(make_log: MakeLog) -> None:
    empty = make_log(cleanup_policy=COMPACT)
    compacted = planned(empty, stable=0)
    assert (compacted.clean_bytes, compacted.dirty_ratio, compacted.is_due) == (0, 0, False)


@pytest.mark.parametrize("checkpoint", [11, 10_000, None])
def test_a_checkpoint_outside_the_log_counts_as_none(bench: Any, checkpoint: int | None) -> None:
    assert planned(bench, dirty=checkpoint).first_dirty_offset == 0


def test_a_checkpoint_before_the_log_start_moves_there(bench: Any) -> None:
    bench.log.advance_log_start(5)
    compacted = planned(bench, dirty=3)
    assert (compacted.first_dirty_offset, compacted.end_offset) == (5, 9)


@pytest.mark.parametrize(("ratio", "due"), [(0.3, True), (0.5, False), (0.99, False)])
def test_a_log_is_due_above_its_ratio(bench: Any, ratio: float, due: bool) -> None:
    bench.log.config = attrs.evolve(bench.log.config, min_cleanable_dirty_ratio=ratio)
    compacted = planned(bench, dirty=6)
    assert 0.3 < compacted.dirty_ratio < 0.5
    assert compacted.is_due is due


def test_young_records_and_all_behind_them_wait(bench: Any) -> None:
    bench.log.config = attrs.evolve(bench.log.config, min_compaction_lag_ms=1000)
    assert planned(bench, now_ms=NOW_MS + 1004).end_offset == 4, "5 has the timestamp of a second ago, less one"
    assert planned(bench, now_ms=NOW_MS + 2000).end_offset == 9
    assert planned(bench, now_ms=NOW_MS).end_offset == 0


def test_records_that_are_too_old_are_due_however_little_is_won(bench: Any) -> None:
    bench.log.config = attrs.evolve(
        bench.log.config, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0, segment_ms=DAY_MS
    )
    assert not planned(bench, now_ms=NOW_MS + 500, dirty=6).is_due
    assert planned(bench, now_ms=NOW_MS + 1007, dirty=6).is_due
    assert not planned(bench, now_ms=NOW_MS + 1007, dirty=9).is_due, "there is nothing to compact"


def test_looking_at_timestamps_leaves_cold_segments_cold(bench: Any) -> None:
    bench.log.config = attrs.evolve(bench.log.config, max_compaction_lag_ms=DAY_MS, min_compaction_lag_ms=1)
    for segment in bench.log.segments[:-1]:
        segment.evict()
    planned(bench, now_ms=NOW_MS + 5000)
    assert not any(segment.file.is_open for segment in bench.log.segments[:-1])


def a_range(log: Any, clean: int, dirty: int, *, overdue: bool = False) -> CompactionRange:
    return CompactionRange(log, 0, 10, clean, dirty, overdue)


def test_the_dirtiest_of_those_that_are_due_comes_first(bench: Any) -> None:
    log = bench.log
    low, high, overdue = a_range(log, 40, 60), a_range(log, 10, 90), a_range(log, 99, 1, overdue=True)
    assert dirtiest([low, high, overdue]) is high
    assert dirtiest([a_range(log, 60, 40), overdue]) is overdue
    assert dirtiest([a_range(log, 60, 40), a_range(log, 0, 0)]) is None
    assert dirtiest([]) is None


def bases(groups: Any) -> list[list[int]]:
    return [[segment.base_offset for segment in group] for group in groups]


def test_neighbours_become_one_segment_as_long_as_that_is_not_too_large(bench: Any) -> None:
    sealed = bench.log.segments[:-1]
    assert bases(group_segments(sealed, bench.log.config, 9)) == [[0], [2], [4], [6], [8]]
    roomy = attrs.evolve(bench.log.config, segment_bytes=sealed[0].size * 2)
    assert bases(group_segments(sealed, roomy, 9)) == [[0, 2], [4, 6], [8]]
    assert bases(group_segments(sealed, attrs.evolve(roomy, segment_bytes=1 << 20), 9)) == [[0, 2, 4, 6, 8]]


def test_a_group_stays_within_what_an_index_can_hold(bench: Any) -> None:
    sealed = bench.log.segments[:-1]
    config = attrs.evolve(bench.log.config, segment_bytes=1 << 20)
    far = sealed[0].base_offset + 2**31 + 1
    assert bases(group_segments(sealed, config, far)) == [[0, 2, 4, 6], [8]]
    entry_bytes = sealed[0].path(".timeindex").stat().st_size
    small_indexes = attrs.evolve(config, segment_index_bytes=3 * entry_bytes)
    assert bases(group_segments(sealed, small_indexes, 9)) == [[0, 2, 4], [6, 8]]


def test_a_group_has_so_few_segments_that_all_of_them_may_be_open(make_log: MakeLog) -> None:
    bench = make_log(segment_bytes=80, cleanup_policy=COMPACT)
    for _ in range(MAX_GROUP_SEGMENTS + 2):
        bench.append()
    config = attrs.evolve(bench.log.config, segment_bytes=1 << 20)
    groups = group_segments(bench.log.segments[:-1], config, MAX_GROUP_SEGMENTS + 1)
    assert [len(group) for group in groups] == [MAX_GROUP_SEGMENTS, 1]
