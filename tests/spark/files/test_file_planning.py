"""How ranges become tasks over files."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import attrs
import pytest

from tests.spark.log_files import CountedManifests, LogFiles, numbered, read
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import DataLoss
from trio_broker.spark.files.file_planning import ByteMap, FileTask, plan_files
from trio_broker.spark.ranges import OffsetRange


@pytest.fixture
def log(tmp_path: Path) -> LogFiles:
    files = LogFiles.create(tmp_path, segment_bytes=600, index_interval_bytes=150)
    files.fill(30)
    return files


def sizes(tasks: list[FileTask]) -> list[int]:
    return [sum(len(chunk.data) for chunk in task.transport.chunks(task.offsets)) for task in tasks]


def check_covers(tasks: list[FileTask], start: int, end: int) -> None:
    assert tasks[0].offsets.start_offset == start
    assert tasks[-1].offsets.end_offset == end
    assert all(one.offsets.end_offset == next_one.offsets.start_offset for one, next_one in pairwise(tasks))
    assert [row for task in tasks for row in read(task.transport, task.offsets)] == numbered(start, end)


def test_a_range_is_one_task_with_its_own_segments(log: LogFiles) -> None:
    base_offsets = [segment.base_offset for segment in log.log.segments]
    [task] = plan_files([log.range(base_offsets[1], base_offsets[2])], CountedManifests(log))
    assert [each.base_offset for each in task.transport.log.segments] == base_offsets[1:2]
    check_covers([task], base_offsets[1], base_offsets[2])


def test_empty_ranges_have_no_tasks(log: LogFiles) -> None:
    manifests = CountedManifests(log)
    assert plan_files([log.range(4, 4)], manifests) == []
    assert plan_files([], manifests) == []
    assert manifests.asked == 0


@pytest.mark.parametrize("wanted", [1, 2, 3, 5, 8, 30, 200])
def test_ranges_are_cut_into_tasks_that_cover_them(log: LogFiles, wanted: int) -> None:
    tasks = plan_files([log.range(2, 89)], CountedManifests(log), min_partitions=wanted)
    check_covers(tasks, 2, 89)
    assert min(wanted, 8) - 1 <= len(tasks) <= max(wanted, 1)


def test_cuts_go_by_bytes_and_not_by_offsets(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path, segment_bytes=20_000, index_interval_bytes=100)
    files.fill(300)
    for _ in range(9):
        files.append(bytes(10_000))
    large = files.log.log_end_offset - 9
    tasks = plan_files([files.range()], CountedManifests(files), min_partitions=4)
    assert len(tasks) == 4
    assert tasks[0].offsets.end_offset == pytest.approx(large, abs=9)
    assert max(sizes(tasks)) < 2 * min(sizes(tasks))


def test_without_a_look_at_the_index_cuts_are_made_in_proportion(log: LogFiles) -> None:
    seen = ByteMap.of(log.plan(), ())
    unseen = ByteMap.of(attrs.evolve(log.plan(), log_directory="/not/here", active_positions=()), ())
    for bytes_of in (seen.bytes_of, unseen.bytes_of):
        assert bytes_of(log.range()) == log.log.size_bytes
        assert bytes_of(log.range(0, 45)) == pytest.approx(log.log.size_bytes / 2, rel=0.1)
    parts = unseen.cut(log.range(), 5)
    assert [part.offset_count for part in parts] == pytest.approx([18] * 5, abs=3)


def test_max_records_cuts_first(log: LogFiles) -> None:
    tasks = plan_files([log.range()], CountedManifests(log), max_records=20, min_partitions=3)
    assert [task.offsets.offset_count for task in tasks] == [18] * 5


def test_small_ranges_stay_whole_while_large_ones_are_cut(tmp_path: Path, log: LogFiles) -> None:
    small = LogFiles.create(tmp_path, TopicPartition("small", 0))
    small.fill(1)

    class Both:
        def topic_manifest(self, topic: str, partitions: object = ()) -> object:
            return (small if topic == "small" else log).manifest()

        def for_workers(self) -> None:
            return None

    tasks = plan_files([log.range(), small.range()], Both(), min_partitions=6)  # type: ignore[arg-type]
    assert [task.offsets for task in tasks if task.offsets.partition.topic == "small"] == [small.range()]
    assert 5 <= len(tasks) <= 7
    assert all(task.transport.manifests is None for task in tasks)


def test_a_topic_of_another_id_is_data_loss(log: LogFiles) -> None:
    manifests = CountedManifests(log)
    ids = {"orders": "AAAAAAAAAAAAAAAAAAAAAA"}
    with pytest.raises(DataLoss, match="deleted and created again"):
        plan_files([log.range()], manifests, topic_ids=ids)
    assert plan_files([log.range()], manifests, topic_ids=ids, fail_on_data_loss=False) == []
    assert len(plan_files([log.range()], manifests, topic_ids={"orders": log.plan().topic_id})) == 1
    assert len(plan_files([log.range()], manifests, topic_ids={"orders": ""})) == 1


def test_a_deleted_topic_is_data_loss(log: LogFiles) -> None:
    with pytest.raises(DataLoss, match="the topic was deleted"):
        plan_files([log.range()], CountedManifests(None))
    assert plan_files([log.range()], CountedManifests(None), fail_on_data_loss=False) == []


def test_a_segment_without_bytes_is_no_trouble(tmp_path: Path) -> None:
    files = LogFiles.create(tmp_path)
    files.fill(1)
    plan = files.plan()
    log_map = ByteMap.of(plan, ())
    assert log_map.cut(OffsetRange(plan.partition, 0, 3), 50)[-1].end_offset == 3
    assert log_map.bytes_of(OffsetRange(plan.partition, 1, 1)) == 0
