"""A restore that is killed, whenever, and run again: without repeated rows each is there once, and in order."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from tests.property_examples import examples
from tests.spark.pipelines.crash_points import Crash, crashing
from tests.spark.pipelines.local_commands import run_here
from tests.spark.pipelines.local_task_runner import LocalTaskRunner
from trio_broker.client.address import parse_addresses
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.pipelines.commit_log import CommitLogError
from trio_broker.spark.pipelines.restore import job as restore_module
from trio_broker.spark.pipelines.restore.group_positions import GroupPositions
from trio_broker.spark.pipelines.restore.job import RestoreReport, RestoreSettings, restore
from trio_broker.spark.pipelines.restore.parquet_parts import Origin, RestoreError, RowGroupPart
from trio_broker.spark.pipelines.rounds import slice_schedule
from trio_broker.spark.pipelines.rounds.target_topics import Partitions
from trio_broker.spark.producer import record_writer
from trio_broker.spark.producer.record_writer import DeliveryReport
from trio_broker.spark.producer.row_ids import Deduplicator, RowId, TaskId

SERVER = "nowhere:1"
TARGET = ProducerSettings(parse_addresses(SERVER))


@attrs.define
class Cluster:
    """Topics in memory: what was written to each partition, with row ids, in the order of writing."""

    logs: dict[TopicPartition, list[tuple[RowId | None, bytes]]] = attrs.field(factory=dict)
    crash: Crash = attrs.field(factory=lambda: Crash(None))

    def once(self) -> dict[TopicPartition, list[bytes]]:
        """What a consumer keeps that drops repeated rows."""
        kept = {}
        for partition, records in self.logs.items():
            seen = Deduplicator()
            kept[partition] = [value for row_id, value in records if row_id is None or seen.is_new(partition, row_id)]
        return kept

    @property
    def count(self) -> int:
        return sum(map(len, self.logs.values()))


class MemoryWriter:
    """Writes into a ``Cluster`` as ``RecordWriter`` does into a real one; each row is a moment to die before."""

    def __init__(
        self,
        cluster: Cluster,
        target: ProducerSettings,
        *,
        topic: str,
        task_id: TaskId | None,
        first_partition: int,
        producer: object,
    ) -> None:
        self.cluster, self.topic, self.task_id, self.first_partition = cluster, topic, task_id, first_partition
        self.written = DeliveryReport()

    def __enter__(self) -> MemoryWriter:
        return self

    def __exit__(self, *error: object) -> None:
        """Everything was written at once."""

    def write(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            self.cluster.crash.tick("row")
            row_id = None if self.task_id is None else RowId(self.task_id, self.written.record_count)
            place = TopicPartition(self.topic, row.get("partition", 0))
            self.cluster.logs.setdefault(place, []).append((row_id, row["value"]))
            self.written.record_count += 1


@attrs.frozen
class Tasks(LocalTaskRunner):
    """So many of a round, one after the other."""

    count: int

    def parallelism(self) -> int:
        return self.count


@contextmanager
def writing_to(cluster: Cluster, slice_rows: int) -> Iterator[None]:
    """Let restores write to ``cluster``, slices of so many rows at a time."""

    def prepare(servers: object, needed: Mapping[str, int], **options: object) -> list[str]:
        return []

    with (
        patch.object(record_writer, "RecordWriter", functools.partial(MemoryWriter, cluster)),
        patch.object(restore_module, "prepare_topics", prepare),
        patch.object(slice_schedule, "DEFAULT_SLICE_RECORDS", slice_rows),
    ):
        yield


@attrs.frozen
class Row:
    """Where a row was; its number among all rows is its value."""

    partition: int
    offset: int


@attrs.define
class Job:
    """A restore of files in ``directory``, which can be run several times."""

    directory: Path
    slice_rows: int = 10
    tasks: int = 2
    cluster: Cluster = attrs.field(factory=Cluster)
    with_row_ids: bool = True
    partitions: Partitions = Partitions.KEEP
    moments: list[str] = attrs.field(factory=list)

    @property
    def files(self) -> Path:
        return self.directory / "files"

    def run(self, at: int | None = None) -> RestoreReport | None:
        """Run it, and let it die at a moment; None then."""
        settings = RestoreSettings(
            TARGET, self.directory / "checkpoint", "out", self.partitions, with_row_ids=self.with_row_ids
        )
        report = None
        with writing_to(self.cluster, self.slice_rows), crashing(at) as crash:
            self.cluster.crash = crash
            report = restore([self.files], settings, lambda: Tasks(self.tasks))
        self.cluster.crash, self.moments = Crash(None), crash.names
        return report

    def write(
        self, name: str, rows: Sequence[tuple[int, Row]], *, with_offsets: bool = True, group_rows: int = 3
    ) -> None:
        columns: dict[str, Any] = {
            "value": [b"%d" % number for number, _ in rows],
            "partition": pa.array([row.partition for _, row in rows], pa.int32()),
        }
        if with_offsets:
            columns["offset"] = pa.array([row.offset for _, row in rows], pa.int64())
        self.files.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), self.files / f"{name}.parquet", row_group_size=group_rows)


rows_of_files = st.lists(
    st.lists(
        st.builds(Row, st.integers(0, 2), st.one_of(st.integers(0, 40), st.integers(2**40, 2**40 + 9))),
        min_size=1,
        max_size=12,
    ),
    min_size=1,
    max_size=4,
)


@examples(Fraction(1, 2))
@given(files=rows_of_files, deaths=st.lists(st.integers(0, 60), max_size=6), data=st.data())
def test_killed_at_any_point_and_resumed_each_row_is_there_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[Row]], deaths: list[int], data: st.DataObject
):
    directory = tmp_path_factory.mktemp("restore")
    job = Job(directory, slice_rows=data.draw(st.integers(1, 8)))
    numbered, number = [], 0
    for index, rows in enumerate(files):
        mine = list(enumerate(rows, number))
        number += len(rows)
        numbered += mine
        job.write(str(index), mine)
    for death in deaths:
        # What may change between two runs of a job: how many tasks run at once, and how large slices are.
        job.tasks, job.slice_rows = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 8))
        job.run(death)
    assert job.run() is not None
    kept = job.cluster.once()
    assert sorted(int(value) for values in kept.values() for value in values) == list(range(number))
    places = dict(numbered)
    for partition, values in kept.items():
        origins = [places[int(value)] for value in values]
        assert {origin.partition for origin in origins} == {partition.partition}
        assert [origin.offset for origin in origins] == sorted(origin.offset for origin in origins)
    report = job.run()
    assert report is not None
    assert (report.records, report.rounds) == (0, 0)
    shutil.rmtree(directory)


def two_partitions(job: Job) -> None:
    """Files a and b, in which two partitions' rows lie in turn; 60 rows."""
    rows = [(number, Row(number % 2, number)) for number in range(60)]
    job.write("a", rows[:30], group_rows=8)
    job.write("b", rows[30:], group_rows=8)


def test_a_kill_at_each_moment_in_turn_is_survived(tmp_path: Path):
    whole = Job(tmp_path, slice_rows=12)
    two_partitions(whole)
    whole.run()
    names = whole.moments
    # Of the rows some, of what changes the disk every single one.
    moments = [number for number, name in enumerate(names) if name != "row" or number % 10 == 0]
    assert {"touch", "replace", "row"} <= {names[moment] for moment in moments}
    for moment in moments:
        directory = tmp_path / str(moment)
        directory.mkdir()
        job = Job(directory, slice_rows=12)
        shutil.copytree(whole.files, job.files)
        assert job.run(moment) is None
        job.run()
        kept = job.cluster.once()
        assert [[int(value) for value in kept[TopicPartition("out", each)]] for each in (0, 1)] == [
            list(range(0, 60, 2)),
            list(range(1, 60, 2)),
        ], names[moment]
        assert job.cluster.count <= 60 + 24, "only the last round is done again"


@pytest.mark.parametrize("with_offsets", [True, False])
def test_files_without_offsets_are_cut_by_rows(tmp_path: Path, with_offsets: bool):
    job = Job(tmp_path, slice_rows=7)
    job.write("a", [(number, Row(0, number)) for number in range(50)], with_offsets=with_offsets, group_rows=20)
    job.run(40)
    assert job.cluster.count < 50
    job.run()
    assert [int(value) for value in job.cluster.once()[TopicPartition("out", 0)]] == list(range(50))


def test_slices_are_about_as_large_as_wanted_and_end_with_row_groups():
    parts = tuple(RowGroupPart(Origin("t", 0), "a", each, 10, 100 + 10 * each, 109 + 10 * each) for each in range(10))
    group = GroupPositions(parts)
    assert group.slice_end(100, 35) == 130
    assert group.expected_rows(100, 130) == 30
    assert [part.row_group for part in group.parts_between(100, 130)] == [0, 1, 2]
    assert group.slice_end(130, 4) == 134
    assert group.slice_end(134, 1000) == group.end == 200


def test_wide_gaps_between_offsets_cost_no_rounds():
    parts = (RowGroupPart(Origin(), "a", 0, 5, 0, 4), RowGroupPart(Origin(), "a", 1, 2, 10, 2**62))
    assert GroupPositions(parts).slice_end(0, 100) == 2**62 + 1


# --- Refusals ---


@pytest.mark.parametrize("when", ["interrupted", "finished"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("grown", r"a\.parquet has \d+ bytes, not \d+"),
        ("gone", r"b\.parquet is gone"),
        ("new", r"c\.parquet was not there"),
        ("rewritten", "their row groups are others"),
    ],
)
def test_other_files_under_the_same_checkpoint_are_refused(tmp_path: Path, when: str, change: str, message: str):
    job = Job(tmp_path)
    two_partitions(job)
    job.run(30 if when == "interrupted" else None)
    before = job.cluster.count
    a, b = job.files / "a.parquet", job.files / "b.parquet"
    if change == "grown":
        job.write("a", [(0, Row(0, 0))] * 70)
    elif change == "gone":
        b.unlink()
    elif change == "new":
        shutil.copy(a, job.files / "c.parquet")
    else:
        size = a.stat().st_size
        job.write("a", [(number, Row(1, number)) for number in range(30)], group_rows=30)
        padded_to(a, size)
    with pytest.raises(RestoreError, match=f"the files have changed since this restore began: .*{message}") as error:
        job.run()
    assert "\n" not in str(error.value)
    assert job.cluster.count == before


def padded_to(path: Path, size: int) -> None:
    """Let a Parquet file have exactly that size: bytes between its data and its footer mean nothing."""
    content = path.read_bytes()
    footer = int.from_bytes(content[-8:-4], "little") + 8
    path.write_bytes(content[:-footer] + bytes(size - len(content)) + content[-footer:])


def test_another_job_s_checkpoint_is_refused(tmp_path: Path):
    job = Job(tmp_path)
    two_partitions(job)
    job.run()
    job.partitions = Partitions.KEY
    with pytest.raises(CommitLogError, match="another job: its partitions is 'keep', not 'key'"):
        job.run()


def test_what_is_wrong_from_the_start_leaves_no_checkpoint(tmp_path: Path):
    job = Job(tmp_path)
    job.files.mkdir()
    (job.files / "a.parquet").write_bytes(b"odd")
    with pytest.raises(RestoreError):
        job.run()
    assert not (tmp_path / "checkpoint").exists()


def test_a_note_of_the_files_that_is_damaged_is_reported(tmp_path: Path):
    job = Job(tmp_path)
    two_partitions(job)
    job.run()
    note = tmp_path / "checkpoint" / "inputs.json"
    note.write_text("{}")
    with pytest.raises(RestoreError, match=r"inputs\.json: damaged"):
        job.run()
    note.write_text('{"version": 2}')
    with pytest.raises(RestoreError, match=r"inputs\.json: version 2, expected 1"):
        job.run()


# --- The command ---


def command(job: Job, monkeypatch: pytest.MonkeyPatch) -> Result:
    words = ["--to-topic", "out", "--checkpoint", str(job.directory / "checkpoint"), "--to-bootstrap-server", SERVER]
    with writing_to(job.cluster, 10):
        return run_here(monkeypatch, "restore", str(job.files), *words)


def test_the_command_goes_on_where_it_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    job = Job(tmp_path)
    two_partitions(job)
    job.run(30)
    assert 0 < job.cluster.count < 60
    result = command(job, monkeypatch)
    assert result.exit_code == 0, result.output
    assert "records out of 2 files" in result.output
    assert sum(map(len, job.cluster.once().values())) == 60
    (job.files / "b.parquet").unlink()
    refused = command(job, monkeypatch)
    assert refused.exit_code == 1
    assert len(refused.output.splitlines()) == 1
    assert "b.parquet is gone" in refused.output


def test_the_command_wants_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    result = run_here(monkeypatch, "restore", str(tmp_path), "--to-topic", "out")
    assert result.exit_code == 2
    assert "Missing option '--checkpoint'" in result.output
