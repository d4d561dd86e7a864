"""Export without Spark: what is in the table, each record exactly once."""

from __future__ import annotations

import io
import itertools
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_wire.records.record import NewRecord
from tests.spark.pipelines.crash_points import Crash, crashing
from tests.spark.pipelines.local_task_runner import LocalTaskRunner
from tests.spark.pipelines.memory_topics import NOON_MS, MemorySource, Topics, numbered, two_topics
from tests.spark.pipelines.table_rows import read_table, rows_of, target_in
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import DataLoss, OptionError
from trio_broker.spark.pipelines.commit_log import CommitLogError
from trio_broker.spark.pipelines.export.job import ExportSettings, read_job_options, run_export
from trio_broker.spark.pipelines.progress import Progress
from trio_broker.spark.pipelines.table_jobs import micro_batches
from trio_broker.spark.pipelines.table_jobs.dry_run import plan_job
from trio_broker.spark.pipelines.table_jobs.micro_batches import JobReport
from trio_broker.spark.pipelines.table_jobs.trigger import Trigger
from trio_broker.spark.pipelines.task_runner import TaskFailed
from trio_broker.spark.tables.table import TableError
from trio_broker.spark.tables.target import Format, Target

SMALL_BATCHES = Trigger(batch_records=16)


def settings_of(target: Target, directory: Path, trigger: Trigger = SMALL_BATCHES) -> ExportSettings:
    return ExportSettings(target, trigger=trigger, checkpoint=directory / "checkpoint")


def run(source: MemorySource, settings: ExportSettings) -> JobReport:
    with source:
        return run_export(source, settings, LocalTaskRunner)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return target_in(tmp_path, Format.PARQUET)


@pytest.fixture
def settings(target: Target, tmp_path: Path) -> ExportSettings:
    return settings_of(target, tmp_path)


# --- What is in the table ---


@pytest.mark.parametrize("format", Format)
def test_every_record_is_in_the_table_once(tmp_path: Path, format: Format):
    topics, target = two_topics(), target_in(tmp_path, format)
    report = run(topics.source(), settings_of(target, tmp_path))
    assert rows_of(target) == sorted(topics.rows())
    assert (report.offsets, report.rows, report.batches) == (31, {"rows": 31}, 2)


@pytest.mark.parametrize("format", Format)
def test_another_run_adds_what_is_new(tmp_path: Path, format: Format):
    topics, target = two_topics(), target_in(tmp_path, format)
    settings = settings_of(target, tmp_path)
    run(topics.source(), settings)
    assert run(topics.source(), settings).batches == 0
    topics.add("orders", numbered(17, 20))
    topics.add("orders", numbered(0, 3), partition=2)
    report = run(topics.source(), settings)
    assert rows_of(target) == sorted(topics.rows())
    assert report.offsets == 6


def test_rows_have_all_columns_as_they_were_sent(target: Target, settings: ExportSettings):
    run(two_topics().source(), settings)
    table = read_table(target).sort_by([("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")])
    rows = table.to_pylist()
    assert rows[0].pop("timestamp").timestamp() * 1000 == NOON_MS + 86_400_000
    assert rows[0] == {
        "key": b"k",
        "value": b"0",
        "partition": 0,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "n", "value": b"1"}, {"key": "empty", "value": None}],
        "topic": "clicks",
        "date": "2023-11-15",
    }
    assert rows[1]["headers"] is None
    assert table.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")


def test_tombstones_and_records_without_key_are_null(target: Target, settings: ExportSettings):
    topics = Topics()
    topics.add("orders", [NewRecord(timestamp=NOON_MS, key=b"", value=None), NewRecord(NOON_MS, None, b"")])
    run(topics.source(), settings)
    table = read_table(target)
    assert (table["key"].to_pylist(), table["value"].to_pylist()) == ([b"", None], [None, b""])


def test_files_lie_by_topic_and_day(target: Target, settings: ExportSettings):
    run(two_topics().source(), settings)
    directories = {path.parent.relative_to(target.name) for path in Path(target.name).glob("topic=*/**/*.parquet")}
    assert {str(each) for each in directories} == {
        "topic=orders/date=2023-11-14",
        "topic=orders/date=2023-11-15",
        "topic=clicks/date=2023-11-15",
    }


def test_a_timestamp_beyond_all_calendars_has_no_date(target: Target, settings: ExportSettings):
    topics = Topics()
    topics.add("orders", [NewRecord(400_000_000_000_000, None, b"late"), NewRecord(NOON_MS, None, b"now")])
    run(topics.source(), settings)
    directories = {path.parent.name for path in Path(target.name).glob("topic=*/**/*.parquet")}
    assert directories == {"date=__HIVE_DEFAULT_PARTITION__", "date=2023-11-14"}
    assert sorted(read_table(target)["date"].to_pylist(), key=str) == ["2023-11-14", None]


def test_nothing_is_left_in_staging(target: Target, settings: ExportSettings):
    run(two_topics().source(), settings)
    assert list(Path(target.name, "_trio_broker").rglob("*.parquet")) == []


def test_nothing_runs_where_there_is_nothing_to_read(target: Target, settings: ExportSettings):
    topics = Topics()
    topics.add("orders", [])

    def no_spark() -> LocalTaskRunner:
        raise AssertionError("Spark was started")

    assert run_export(topics.source(), settings, no_spark).batches == 0


# --- Where it begins and ends ---


def test_options_about_the_start_are_for_the_first_run(target: Target, settings: ExportSettings):
    topics = Topics()
    topics.add("orders", numbered(0, 10))
    start = '{"orders": {"0": 4}}'
    run(topics.source(startingOffsets=start), settings)
    topics.add("orders", numbered(10, 12))
    run(topics.source(startingOffsets=start), settings)
    assert [offset for _, _, offset, _ in rows_of(target)] == list(range(4, 12))


def test_a_partition_that_was_empty_at_the_start_is_read_from_where_it_began(target: Target, settings: ExportSettings):
    """Not from 0, which would be a loss where retention has been."""
    topics = Topics(first_offsets={TopicPartition("orders", 0): 6})
    topics.add("orders", numbered(0, 6))
    run(topics.source(), settings)
    topics.add("orders", numbered(6, 8))
    run(topics.source(), settings)
    assert [offset for _, _, offset, _ in rows_of(target)] == [6, 7]


def test_an_end_is_kept_to_and_passed_by_a_later_run(target: Target, settings: ExportSettings):
    topics = Topics()
    topics.add("orders", numbered(0, 10))
    for end, expected in ((4, 4), (2, 4), (7, 7)):
        run(topics.source(endingOffsets=f'{{"orders": {{"0": {end}}}}}'), settings)
        assert len(rows_of(target)) == expected


def test_what_retention_took_before_it_was_read_is_a_loss(target: Target, settings: ExportSettings):
    topics = two_topics()
    run(topics.source(), settings)
    topics.add("orders", numbered(17, 30))
    topics.first_offsets[TopicPartition("orders", 0)] = 25
    with pytest.raises(DataLoss, match="orders-0 at offset 17"):
        run(topics.source(), settings)
    run(topics.source(failOnDataLoss="false"), settings)
    lost = {row for row in topics.rows() if row[:2] == ("orders", 0) and 17 <= row[2] < 25}
    assert rows_of(target) == sorted(topics.rows() - lost)


def test_a_topic_that_was_made_anew_is_a_loss_and_then_read_from_its_beginning(
    target: Target, settings: ExportSettings
):
    topics = two_topics()
    run(topics.source(), settings)
    before = topics.rows()
    topics.ids["clicks"] = "another-id"
    topics.records[TopicPartition("clicks", 0)] = numbered(500, 503)
    with pytest.raises(DataLoss, match="deleted and created again: its id was id-of-clicks"):
        run(topics.source(), settings)
    run(topics.source(failOnDataLoss="false"), settings)
    assert rows_of(target) == sorted([*before, *(row for row in topics.rows() if row[0] == "clicks")])
    assert run(topics.source(), settings).batches == 0


def test_topics_may_be_added_later(target: Target, settings: ExportSettings):
    topics = two_topics()
    run(topics.source(subscribe="orders"), settings)
    run(topics.source(), settings)
    run(topics.source(subscribe="clicks"), settings)
    assert rows_of(target) == sorted(topics.rows())


# --- Exactly once ---


def crash_points(format: Format) -> tuple[tuple[Any, str], ...]:
    """The commits of a format, by those who make them."""
    match format:
        case Format.PARQUET:
            return ((pq.ParquetWriter, "close"),)
        case Format.DELTA:
            from deltalake import DeltaTable

            return ((DeltaTable, "create_write_transaction"),)
        case Format.ICEBERG:
            from pyiceberg.catalog.sql import SqlCatalog

            return ((SqlCatalog, "commit_table"),)


def crash_and_restart(directory: Path, format: Format, at: int, again: int | None = None) -> Crash:
    """Run an export that dies ``at`` a moment, perhaps one that dies ``again``, and one to the end."""
    topics, target = two_topics(), target_in(directory, format)
    settings = settings_of(target, directory)
    with crashing(at, *crash_points(format)) as crash:
        run(topics.source(), settings)
    if again is not None:
        with crashing(again, *crash_points(format)):
            run(topics.source(), settings)
    topics.add("orders", numbered(17, 18))
    run(topics.source(), settings)
    assert rows_of(target) == sorted(topics.rows()), f"killed at moment {at}, then {again}"
    files = list(directory.rglob("*.parquet"))
    assert len(files) == len(committed_files(target)), f"killed at moment {at}: leftovers"
    return crash


def committed_files(target: Target) -> list[Any]:
    """The files that readers see."""
    match target.format:
        case Format.PARQUET:
            return list(Path(target.name).glob("topic=*/**/*.parquet"))
        case Format.DELTA:
            from deltalake import DeltaTable

            return DeltaTable(target.name).file_uris()
        case Format.ICEBERG:
            from pyiceberg.catalog import load_catalog

            assert target.catalog is not None
            catalog = load_catalog(target.catalog.name, **target.catalog.all_properties())
            return list(catalog.load_table(target.name).scan().plan_files())


def moments_of(directory: Path, format: Format) -> Crash:
    """The moments of an export that is not killed."""
    with crashing(None, *crash_points(format)) as crash:
        run(two_topics().source(), settings_of(target_in(directory, format), directory))
    return crash


@pytest.mark.parametrize("format", Format)
def test_when_it_is_killed_around_a_commit_each_record_is_in_the_table_exactly_once(tmp_path: Path, format: Format):
    commits = ("replace", "create_write_transaction", "commit_table", "touch")
    moments = moments_of(tmp_path / "whole", format).around(*commits)
    # The first ones belong to the job's own file and to its beginning, before there is anything in the table.
    assert len(moments) > 12
    for at in moments[5 :: 1 if format is Format.PARQUET else 3]:
        crash_and_restart(tmp_path / str(at), format, at)


@pytest.mark.parametrize(("format", "every"), [(Format.PARQUET, 5), (Format.DELTA, 31), (Format.ICEBERG, 17)])
def test_whenever_it_is_killed_each_record_is_in_the_table_exactly_once(tmp_path: Path, format: Format, every: int):
    for at in range(0, moments_of(tmp_path / "whole", format).moments + 1, every):
        crash_and_restart(tmp_path / str(at), format, at)


@pytest.mark.soak
@pytest.mark.parametrize("again", [None, 0, 3, 6, 9, 12])
@pytest.mark.parametrize("format", Format)
def test_so_it_is_at_every_moment_and_when_it_is_killed_again_while_it_recovers(
    tmp_path: Path, format: Format, again: int | None
):
    for at in range(moments_of(tmp_path / "whole", format).moments + 1):
        crash_and_restart(tmp_path / str(at), format, at, again)


def test_files_of_attempts_that_nobody_named_are_not_in_the_table(tmp_path: Path, target: Target):
    """Spark may run a task twice; the first attempt's files are there, its result is not."""

    class Twice(LocalTaskRunner):
        def run(self, tasks: Any, function: Any, on_done: Any = None) -> Any:
            super().run(tasks, function)
            return super().run(tasks, function, on_done)

    topics, settings = two_topics(), settings_of(target, tmp_path)
    run_export(topics.source(), settings, Twice)
    assert rows_of(target) == sorted(topics.rows())
    assert list(Path(target.name, "_trio_broker").rglob("*.parquet")) == []


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_task_of_a_failed_run_that_ends_during_the_next_run_leaves_no_file(tmp_path: Path, format: Format, when: str):
    """A job of Spark ends with its first failed task. Its other tasks may still be writing when the next run starts."""
    late: list[tuple[Any, Any]] = []

    class FailsAtOnce(LocalTaskRunner):
        def run(self, tasks: Any, function: Any, on_done: Any = None) -> Any:
            late.append((function, tasks[-1]))
            raise TaskFailed("another task failed")

    class WithLateTask(LocalTaskRunner):
        def run(self, tasks: Any, function: Any, on_done: Any = None) -> Any:
            results = super().run(tasks, function, on_done) if when == "behind" else None
            for late_function, task in late:
                with suppress(OSError, TableError):
                    late_function(1, task)
            return results or super().run(tasks, function, on_done)

    topics, target = two_topics(), target_in(tmp_path, format)
    settings = settings_of(target, tmp_path)
    with pytest.raises(TaskFailed):
        run_export(topics.source(), settings, FailsAtOnce)
    run_export(topics.source(), settings, WithLateTask)
    assert rows_of(target) == sorted(topics.rows())
    assert len(list(tmp_path.rglob("*.parquet"))) == len(committed_files(target))


# --- Refusals ---


def test_a_committed_file_that_somebody_removed_is_reported(tmp_path: Path, target: Target):
    topics, settings = two_topics(), settings_of(target, tmp_path)
    for at in range(1000):
        with crashing(at):
            run(topics.source(), settings)
        staged = list(Path(target.name, "_trio_broker", "staging").rglob("*.parquet"))
        commits = list((tmp_path / "checkpoint" / "commits").glob("*1.json"))
        if commits and staged:
            break
    staged[0].unlink()
    with pytest.raises(TableError, match="is gone: it was committed, and removed later"):
        run(topics.source(), settings)


def test_a_checkpoint_of_another_table_is_refused(tmp_path: Path, settings: ExportSettings):
    run(two_topics().source(), settings)
    with pytest.raises(CommitLogError, match="is of another job: its table is"):
        run(two_topics().source(), settings_of(target_in(tmp_path, Format.PARQUET, "other"), tmp_path))


def test_parquet_files_are_not_put_into_a_delta_table(tmp_path: Path):
    delta, parquet = target_in(tmp_path, Format.DELTA), target_in(tmp_path, Format.PARQUET)
    run(two_topics().source(), settings_of(delta, tmp_path / "1"))
    with pytest.raises(TableError, match="is a Delta table"):
        run(two_topics().source(), settings_of(parquet, tmp_path / "2"))


def test_a_delta_table_is_not_made_of_other_files(tmp_path: Path):
    delta, parquet = target_in(tmp_path, Format.DELTA), target_in(tmp_path, Format.PARQUET)
    run(two_topics().source(), settings_of(parquet, tmp_path / "1"))
    with pytest.raises(TableError, match="it is no Delta table"):
        run(two_topics().source(), settings_of(delta, tmp_path / "2"))


@pytest.mark.parametrize(("name", "value"), [("columns", "value"), ("includeHeaders", "false")])
def test_columns_are_not_chosen(name: str, value: str):
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", name: value}
    with pytest.raises(OptionError, match="the job's own business"):
        read_job_options(options, Trigger())


def test_an_export_that_goes_on_has_no_end():
    options = {"kafka.bootstrap.servers": "b:1", "subscribe": "t", "endingTimestamp": "1"}
    with pytest.raises(OptionError, match="has no end"):
        read_job_options(options, Trigger(interval_seconds=1))


def test_an_iceberg_table_needs_a_checkpoint(tmp_path: Path):
    with pytest.raises(OptionError, match="say where the job is to note what it did"):
        _ = ExportSettings(target_in(tmp_path, Format.ICEBERG)).checkpoint_directory


# --- Going on, and looking ahead ---


def test_a_continuous_export_looks_again_after_its_interval(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    topics = Topics()
    topics.add("orders", numbered(0, 3))
    source = topics.source()
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        topics.add("orders", numbered(len(pauses) * 10, len(pauses) * 10 + 2))
        later = topics.source()
        source.offset_source.logs.update(later.offset_source.logs)  # type: ignore[attr-defined]
        source.transports.update(later.transports)  # type: ignore[attr-defined]
        if len(pauses) == 3:
            raise KeyboardInterrupt

    settings = settings_of(target, tmp_path, Trigger(interval_seconds=5))
    monkeypatch.setattr(micro_batches, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        run(source, settings)
    assert len(rows_of(target)) == 7
    assert all(0 < each <= 5 for each in pauses)


def test_progress_is_reported_of_each_task_and_each_batch(settings: ExportSettings):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    with (
        two_topics().source() as source,
        Progress("export", stream=terminal, clock=itertools.count().__next__, tick_seconds=None) as progress,
    ):
        run_export(source, settings, LocalTaskRunner, progress=progress)
    shown = terminal.getvalue()
    phases = re.findall(r"export: (\w+)", shown)
    assert [phase for phase, _ in itertools.groupby(phases)] == ["planning", *["reading", "committing"] * 2]
    done = [int(count) for count in re.findall(r"(\d+) of 31", shown)]
    assert done == sorted(done)
    assert {17, 31} < set(done)


def test_a_dry_run_tells_what_would_be_read_and_changes_nothing(tmp_path: Path, settings: ExportSettings):
    topics = two_topics()
    plan = plan_job(topics.source(), settings.checkpoint_directory, settings.trigger)
    assert [str(each) for each in plan.ranges] == ["clicks-0 [0, 9)", "orders-0 [0, 17)", "orders-1 [0, 5)"]
    assert (plan.offset_count, plan.batches) == (31, 2)
    assert plan.log_bytes is not None
    assert 500 < plan.log_bytes < 5000
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_goes_on_from_what_was_committed(settings: ExportSettings):
    topics = two_topics()
    run(topics.source(), settings)
    topics.add("orders", numbered(17, 19))
    plan = plan_job(topics.source(), settings.checkpoint_directory, settings.trigger)
    assert [str(each) for each in plan.ranges] == ["orders-0 [17, 19)"]
