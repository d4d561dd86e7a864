"""The end of a compacted log: the gaps that compaction leaves in other segments do not make it uncertain."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kafka_wire.records.batch import LOG_OVERHEAD_BYTES
from tests.storage.compaction_harness import compact
from tests.storage.conftest import LogBench, make_batch
from trio_broker.config.log_config import CleanupPolicy
from trio_broker.storage.directory_check import PartitionTask
from trio_broker.storage.findings import FindingKind
from trio_broker.storage.partition_check import PartitionBounds, check_partition
from trio_broker.storage.partition_repair import accept_loss, rebuild

MakeLog = Callable[..., LogBench]
COMPACT = CleanupPolicy(delete=False, compact=True)


def starts_in(content: bytes) -> list[int]:
    """Where the batches of a file begin."""
    starts, at = [], 0
    while at < len(content):
        starts.append(at)
        at += LOG_OVERHEAD_BYTES + int.from_bytes(content[at + 8 : at + 12], "big")
    return starts


def write_base_offset(path: Path, number: int, offset: int) -> None:
    """Give a batch of a file another base offset, which no checksum covers."""
    content = bytearray(path.read_bytes())
    struct.pack_into(">q", content, starts_in(bytes(content))[number], offset)
    path.write_bytes(content)


def last_file(log: LogBench) -> Path:
    return log.file(f"{log.log.active_segment.base_offset:020d}.log")


@pytest.fixture
def log(make_log: MakeLog) -> LogBench:
    """A compacted log with gaps in all segments but the last one, in which there are two batches of two records.

    Of what was compacted only the last record is left.
    """
    log = make_log(segment_bytes=700, index_interval_bytes=200, cleanup_policy=COMPACT)
    while len(log.log.segments) < 4 or log.log.log_end_offset < log.log.active_segment.base_offset + 4:
        log.append(2, value=bytes(60))
    compact(log.log, log.now_ms)
    assert log.offsets()[0] == log.log.active_segment.base_offset - 1 > log.log.segments[-2].base_offset + 1
    return log


RECOVERY_POINTS: dict[str, Callable[[LogBench], int]] = {
    "lost": lambda log: 0,
    "of the compaction": lambda log: log.log.active_segment.base_offset,
    "of the batch before": lambda log: log.log.log_end_offset - 2,
    "of the end": lambda log: log.log.log_end_offset,
}
AT_ANY_RECOVERY_POINT = pytest.mark.parametrize("recovery_point", RECOVERY_POINTS.values(), ids=RECOVERY_POINTS)


@AT_ANY_RECOVERY_POINT
@pytest.mark.parametrize("bits", [1, 8, 9, 64, 1 << 22])
@pytest.mark.parametrize("is_alone", [False, True], ids=["behind another", "alone"])
def test_a_base_offset_that_has_grown_does_not_move_it(
    log: LogBench, recovery_point: Callable[[LogBench], int], bits: int, is_alone: bool
):
    if is_alone:
        log.log.roll(log.now_ms)
        log.append(2)
        log.log.sync()
    path, end, offsets = last_file(log), log.log.log_end_offset, log.offsets()
    good = path.read_bytes()
    assert not (end - 2) & bits
    write_base_offset(path, -1, end - 2 + bits)
    report = log.crash(recovery_point=recovery_point(log)).report
    assert path.read_bytes() == good
    assert (log.offsets(), log.log.log_end_offset) == (offsets, end)
    assert "is put right" in report.problems[0]
    assert log.crash().report.problems == []
    assert log.append().first_offset == end


def test_nor_does_it_after_a_clean_stop(log: LogBench):
    log.log.close()
    path, end = last_file(log), log.log.log_end_offset
    good = path.read_bytes()
    write_base_offset(path, -1, end + 1)
    report = log.reopen(clean=True).report
    assert (path.read_bytes(), log.log.log_end_offset) == (good, end)
    assert "is put right" in report.problems[-1]


@AT_ANY_RECOVERY_POINT
@pytest.mark.parametrize(("position", "bit"), [(6, 1), (7, 1), (10, 3), (12, 7), (13, 1), (16, 0)])
def test_a_damaged_header_at_it_is_put_right(
    log: LogBench, recovery_point: Callable[[LogBench], int], position: int, bit: int
):
    path, end = last_file(log), log.log.log_end_offset
    good = path.read_bytes()
    damaged = bytearray(good)
    damaged[starts_in(good)[-1] + position] ^= 1 << bit
    path.write_bytes(damaged)
    log.crash(recovery_point=recovery_point(log))
    assert (path.read_bytes(), log.log.log_end_offset) == (good, end)


@pytest.mark.parametrize("tail", [b"\0" * 10, b"\0" * 5000, b"\2" * 40])
def test_what_a_kill_leaves_behind_it_proves_no_gap(log: LogBench, tail: bytes):
    path, end = last_file(log), log.log.log_end_offset
    good = path.read_bytes()
    write_base_offset(path, -1, end + 62)
    path.write_bytes(path.read_bytes() + tail)
    log.crash()
    assert (path.read_bytes(), log.log.log_end_offset) == (good, end)


@AT_ANY_RECOVERY_POINT
def test_it_is_left_as_it_is_where_nothing_is_damaged(log: LogBench, recovery_point: Callable[[LogBench], int]):
    path, end = last_file(log), log.log.log_end_offset
    good = path.read_bytes()
    report = log.crash(recovery_point=recovery_point(log)).report
    assert (report.problems, path.read_bytes(), log.log.log_end_offset) == ([], good, end)


@pytest.mark.parametrize("is_stale", [True, False], ids=["of the compaction", "of the end"])
def test_without_the_file_of_the_last_segment_the_one_before_keeps_its_gap(log: LogBench, is_stale: bool):
    """What was compacted lies below the recovery point, in the checkpoint too."""
    base, end = log.log.active_segment.base_offset, log.log.log_end_offset
    compacted = Path(log.log.segments[-2].file.path)
    good = compacted.read_bytes()
    last_file(log).unlink()
    log.crash(recovery_point=base if is_stale else end)
    assert compacted.read_bytes() == good
    assert log.offsets() == [base - 1]


@pytest.mark.parametrize("repair", [rebuild, accept_loss])
def test_nor_does_fsck_close_that_gap(log: LogBench, repair: Callable[..., object]):
    base, end = log.log.active_segment.base_offset, log.log.log_end_offset
    compacted = Path(log.log.segments[-2].file.path)
    log.log.close()
    good = compacted.read_bytes()
    last_file(log).unlink()
    is_lost = repair is accept_loss
    bounds = PartitionBounds(was_clean=True, may_have_gaps=True, recovery_point=end if is_lost else base)
    task = PartitionTask(log.directory, log.log.topic_partition, bounds, 0)
    report = check_partition(log.disk, task.directory, task.topic_partition, bounds)
    assert (FindingKind.LOST_BATCHES in {each.kind for each in report.findings}) == is_lost
    repair(log.disk, task, report, log.now_ms)
    assert compacted.read_bytes() == good


def test_a_gap_that_comes_from_the_leader_lies_between_segments(make_log: MakeLog):
    """So that there is none within the last one, behind which nothing tells it from damage."""
    follower = make_log(cleanup_policy=COMPACT)
    copied = bytearray()
    for offset in (0, 2, 10, 12, 20):
        batch = make_batch(2)
        struct.pack_into(">q", batch, 0, offset)
        struct.pack_into(">i", batch, 12, 0)
        copied += batch
    follower.replicate(copied)
    assert [segment.base_offset for segment in follower.log.segments] == [0, 10, 20]
    offsets = follower.offsets()
    follower.crash(recovery_point=0)
    assert (follower.offsets(), follower.log.log_end_offset) == (offsets, 22)
