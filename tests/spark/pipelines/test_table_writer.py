"""Files of one task: which rows go to which, when one ends, and what is left when something fails."""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trio_broker.spark.pipelines.export.job import OPAQUE
from trio_broker.spark.schema import COLUMNS, arrow_schema
from trio_broker.spark.tables import table_writer
from trio_broker.spark.tables.local_files import LocalFiles
from trio_broker.spark.tables.parquet_directory import staged_files
from trio_broker.spark.tables.table import DataFile, Partitioning, TableError, TableFiles, TableShape
from trio_broker.spark.tables.table_writer import FileSettings, ParquetCodec, TableWriter, day_name, split_by_day

DAY = datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)
SHAPE = TableShape(arrow_schema(COLUMNS), Partitioning.TOPIC_AND_DATE, OPAQUE)


def rows(times: Sequence[datetime.datetime | None], value: bytes = b"v" * 100) -> pa.RecordBatch:
    count = len(times)
    columns = [
        pa.nulls(count, pa.binary()),
        pa.array([value] * count),
        pa.array(["orders"] * count),
        pa.array([0] * count, pa.int32()),
        pa.array(range(count), pa.int64()),
        pa.array(times, pa.timestamp("us", tz="UTC")),
        pa.array([0] * count, pa.int32()),
        pa.nulls(count, SHAPE.schema.field("headers").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SHAPE.schema)


def files_in(directory: Path) -> TableFiles:
    return staged_files(LocalFiles(str(directory), "job", "run"), SHAPE, 3)


def written(directory: Path, batches: Sequence[pa.RecordBatch], settings: FileSettings | None = None) -> list[DataFile]:
    with TableWriter(files_in(directory), settings or FileSettings(), 7, "orders") as writer:
        for batch in batches:
            writer.write(batch)
        return writer.finish()


def staged(directory: Path) -> list[Path]:
    return sorted(directory.rglob("*.parquet"))


def test_rows_of_one_day_are_one_file(tmp_path: Path):
    [file] = written(tmp_path, [rows([DAY, DAY]), rows([DAY])])
    assert (file.rows, file.topic, file.date) == (3, "orders", "2026-01-31")
    assert file.name.startswith("run/job-00000003-run-00007-")
    assert file.path == f"topic=orders/date=2026-01-31/{file.name.removeprefix('run/')}"
    [path] = staged(tmp_path)
    assert file.size_bytes == path.stat().st_size


def test_rows_of_several_days_keep_their_order_within_each(tmp_path: Path):
    late, early = DAY + datetime.timedelta(hours=23), DAY - datetime.timedelta(microseconds=1)
    found = {
        file.date: pq.read_table(tmp_path / "_trio_broker" / "staging" / "job" / file.name)["offset"].to_pylist()
        for file in written(tmp_path, [rows([DAY, early, late, None, early])])
    }
    assert found == {"2026-01-31": [0, 2], "2026-01-30": [1, 4], None: [3]}


def test_days_before_1970_are_days_as_well():
    [(day, _)] = split_by_day(rows([datetime.datetime(1969, 12, 31, 23, tzinfo=datetime.UTC)]))
    assert day == "1969-12-31"


@pytest.mark.parametrize(
    ("day", "name"), [(0, "1970-01-01"), (2932896, "9999-12-31"), (2932897, None), (-719163, None)]
)
def test_years_have_four_digits(day: int, name: str | None):
    assert day_name(day) == name


def test_a_file_that_has_reached_its_size_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table_writer, "ROW_GROUP_BYTES", 10_000)
    batches = [rows([DAY] * 100, bytes([number]) * 100) for number in range(40)]
    found = written(tmp_path, batches, FileSettings(ParquetCodec.NONE, target_bytes=50_000))
    assert len(found) > 5
    assert sum(file.rows for file in found) == 4000
    assert len({file.name for file in found}) == len(found)


def test_row_groups_have_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table_writer, "ROW_GROUP_ROWS", 250)
    written(tmp_path, [rows([DAY] * 100)] * 7)
    metadata = pq.read_metadata(staged(tmp_path)[0])
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [300, 300, 100]


@pytest.mark.parametrize(
    ("codec", "name"),
    [(ParquetCodec.SNAPPY, "SNAPPY"), (ParquetCodec.ZSTD, "ZSTD"), (ParquetCodec.NONE, "UNCOMPRESSED")],
)
def test_pages_are_compressed_as_asked(tmp_path: Path, codec: ParquetCodec, name: str):
    written(tmp_path, [rows([DAY])], FileSettings(codec))
    assert pq.read_metadata(staged(tmp_path)[0]).row_group(0).column(1).compression == name


def test_values_have_neither_dictionary_nor_bounds(tmp_path: Path):
    written(tmp_path, [rows([DAY] * 10)])
    group = pq.read_metadata(staged(tmp_path)[0]).row_group(0)
    columns = {group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)}
    assert not columns["value"].has_dictionary_page
    assert not columns["value"].is_stats_set
    assert columns["offset"].statistics.max == 9
    assert "topic" not in columns


def test_no_more_than_so_many_files_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table_writer, "MAX_OPEN_FILES", 3)
    days = [DAY + datetime.timedelta(days=number % 5) for number in range(10)]
    found = written(tmp_path, [rows([day]) for day in days])
    assert sum(file.rows for file in found) == 10
    assert len(found) == 10


def test_the_fullest_file_is_written_to_when_memory_gets_tight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table_writer, "MAX_HELD_BYTES", 5000)
    other = DAY + datetime.timedelta(days=1)
    found = written(tmp_path, [rows([DAY] * 30), rows([other]), rows([other] * 30)])
    groups = {
        file.date: pq.read_metadata(tmp_path / "_trio_broker" / "staging" / "job" / file.name).num_row_groups
        for file in found
    }
    assert groups == {"2026-01-31": 1, "2026-02-01": 1}
    assert sum(file.rows for file in found) == 61


def test_an_error_leaves_no_file(tmp_path: Path):
    def fail() -> None:
        with TableWriter(files_in(tmp_path), FileSettings(), 0, "orders") as writer:
            writer.write(rows([DAY, DAY + datetime.timedelta(days=1)]))
            assert len(staged(tmp_path)) == 2
            raise OSError("the network is gone")

    with pytest.raises(OSError, match="the network is gone"):
        fail()
    assert staged(tmp_path) == []


def test_a_file_that_cannot_be_closed_leaves_no_other_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As on the full disk that the task fails for."""

    close = pq.ParquetWriter.close
    closed = []

    def full(writer: pq.ParquetWriter) -> None:
        close(writer)
        closed.append(writer)
        raise OSError("no space for a footer")

    writer = TableWriter(files_in(tmp_path), FileSettings(), 0, "orders")
    writer.write(rows([DAY, DAY + datetime.timedelta(days=1)]))
    monkeypatch.setattr(pq.ParquetWriter, "close", full)
    with pytest.raises(OSError, match="no space for a footer"):
        writer.abort()
    assert staged(tmp_path) == []
    assert len(closed) == 2


def test_a_task_that_does_not_see_the_directory_of_the_driver_says_so(tmp_path: Path):
    files = files_in(tmp_path)
    shutil.rmtree(tmp_path / "_trio_broker")
    expected = f"driver and executors must see {tmp_path} under this path"
    with TableWriter(files, FileSettings(), 7, "orders") as writer, pytest.raises(TableError, match=expected):
        writer.write(rows([DAY]))


def test_no_rows_are_no_file(tmp_path: Path):
    assert written(tmp_path, [rows([])]) == []
    assert staged(tmp_path) == []


def test_two_attempts_of_a_task_write_different_files(tmp_path: Path):
    [first], [second] = written(tmp_path, [rows([DAY])]), written(tmp_path, [rows([DAY])])
    assert first.name != second.name
    assert len(staged(tmp_path)) == 2
