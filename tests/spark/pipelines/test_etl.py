"""ETL without Spark: each record is a row or a dead letter, once, however often the job is killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_wire.records.record import NewRecord
from tests.spark.pipelines.crash_points import Crash, crashing
from tests.spark.pipelines.local_task_runner import LocalTaskRunner
from tests.spark.pipelines.memory_topics import NOON_MS, MemorySource, Topics
from tests.spark.pipelines.table_rows import read_table, target_in
from trio_broker.spark.errors import OptionError
from trio_broker.spark.pipelines.commit_log import CommitLogError
from trio_broker.spark.pipelines.etl.job import EtlSettings, etl_settings, run_etl
from trio_broker.spark.pipelines.table_jobs.micro_batches import JobReport
from trio_broker.spark.pipelines.table_jobs.trigger import Trigger
from trio_broker.spark.tables.target import Format, Target

SCHEMA = "id bigint not null, name string"


def letters(start: int, end: int) -> list[NewRecord]:
    """Records of which every fourth fits no schema."""
    return [
        NewRecord(
            NOON_MS + number,
            b"k%d" % number,
            b"broken %d" % number if number % 4 == 3 else json.dumps({"id": number, "name": f"n{number}"}).encode(),
        )
        for number in range(start, end)
    ]


def mixed() -> Topics:
    topics = Topics()
    topics.add("orders", letters(0, 14))
    topics.add("orders", letters(14, 20), partition=1)
    return topics


def settings_in(directory: Path, format: Format = Format.PARQUET, schema: str = SCHEMA) -> EtlSettings:
    return etl_settings(
        schema,
        target_in(directory, format),
        trigger=Trigger(batch_records=12),
        checkpoint=directory / "checkpoint",
        with_origin=True,
    )


def run(source: MemorySource, settings: EtlSettings) -> JobReport:
    with source:
        return run_etl(source, settings, LocalTaskRunner)


def ids_of(settings: EtlSettings) -> tuple[list[int], list[int]]:
    """The numbers of all rows and all dead letters, sorted, those that are there twice twice."""
    rows = read_table(settings.target)["id"].to_pylist()
    dead = read_table(settings.dead_letters)["value"].to_pylist()
    return sorted(rows), sorted(int(value.removeprefix(b"broken ")) for value in dead)


def expected(end: int) -> tuple[list[int], list[int]]:
    return [n for n in range(end) if n % 4 != 3], [n for n in range(end) if n % 4 == 3]


@pytest.mark.parametrize("format", Format)
def test_each_record_is_a_row_or_a_dead_letter(tmp_path: Path, format: Format):
    settings = settings_in(tmp_path, format)
    report = run(mixed().source(), settings)
    assert ids_of(settings) == expected(20)
    assert report.rows == {"rows": 15, "dead_letters": 5}


def test_a_row_has_its_columns_and_where_it_is_from(tmp_path: Path):
    settings = settings_in(tmp_path)
    run(mixed().source(), settings)
    table = read_table(settings.target)
    [row] = [each for each in table.to_pylist() if each["id"] == 16]
    assert row.pop("kafka_timestamp").timestamp() * 1000 == NOON_MS + 16
    assert row == {"id": 16, "name": "n16", "kafka_topic": "orders", "kafka_partition": 1, "kafka_offset": 2}


def test_a_dead_letter_is_the_record_and_the_reason(tmp_path: Path):
    settings = settings_in(tmp_path)
    topics = Topics()
    topics.add("orders", [NewRecord(NOON_MS, b"k", b'{"id": "7"}'), NewRecord(NOON_MS, None, None)])
    run(topics.source(), settings)
    first, second = read_table(settings.dead_letters).sort_by("offset").to_pylist()
    assert first.pop("timestamp").timestamp() * 1000 == NOON_MS
    assert first == {
        "topic": "orders",
        "partition": 0,
        "offset": 0,
        "key": b"k",
        "value": b'{"id": "7"}',
        "error": 'id: BIGINT is expected, not "7"',
    }
    assert (second["value"], second["error"]) == (None, "the value is null")


def crash_and_restart(directory: Path, format: Format, at: int) -> Crash:
    settings, topics = settings_in(directory, format), mixed()
    with crashing(at) as crash:
        run(topics.source(), settings)
    topics.add("orders", letters(20, 21))
    run(topics.source(), settings)
    assert ids_of(settings) == expected(21), f"killed at moment {at}"
    return crash


@pytest.mark.parametrize(("format", "every"), [(Format.PARQUET, 5), (Format.DELTA, 13)])
def test_whenever_it_is_killed_each_record_is_in_one_table_once(tmp_path: Path, format: Format, every: int):
    for at in range(0, 1000, every):
        if crash_and_restart(tmp_path / str(at), format, at).moments < at:
            return
    raise AssertionError("it never came to an end")


@pytest.mark.soak
@pytest.mark.parametrize("format", Format)
def test_so_it_is_at_every_moment(tmp_path: Path, format: Format):
    for at in range(1000):
        if crash_and_restart(tmp_path / str(at), format, at).moments < at:
            return
    raise AssertionError("it never came to an end")


def test_the_two_tables_may_be_of_different_formats(tmp_path: Path):
    settings = etl_settings(
        SCHEMA,
        target_in(tmp_path, Format.DELTA),
        dead_letters=target_in(tmp_path, Format.PARQUET, "dead"),
        checkpoint=tmp_path / "checkpoint",
    )
    run(mixed().source(), settings)
    assert ids_of(settings) == expected(20)


@pytest.mark.parametrize("format", Format)
def test_tables_hold_all_types(tmp_path: Path, format: Format):
    schema = (
        "a boolean, b int, c float, d double, e decimal(12, 3), f string, g binary, h date, i timestamp,"
        " j array<struct<x: int>>, k map<string, bigint>, l struct<y: string>"
    )
    settings = settings_in(tmp_path, format, schema)
    topics = Topics()
    values = {"a": True, "b": 1, "c": 0.5, "d": 2.5, "e": "1.125", "f": "ü" * 5000, "g": "aGk=", "h": "2026-01-31"}
    values |= {"i": "2026-01-31T12:00:00Z", "j": [{"x": 1}, None], "k": {"z": 5}, "l": {"y": "w"}}
    topics.add("orders", [NewRecord(NOON_MS, None, json.dumps(each).encode()) for each in (values, {})])
    run(topics.source(), settings)
    rows = read_table(settings.target).sort_by("kafka_offset").to_pylist()
    assert [rows[0][name] for name in "abcdfgjl"] == [
        True, 1, 0.5, 2.5, "ü" * 5000, b"hi", [{"x": 1}, None], {"y": "w"}
    ]  # fmt: skip
    assert (str(rows[0]["e"]), rows[0]["k"], str(rows[0]["h"])) == ("1.125", [("z", 5)], "2026-01-31")
    # In Iceberg's files nested values are null as well, but pyiceberg reads some of them as empty ones.
    assert all(rows[1][name] is None for name in ("abcdefghi" if format is Format.ICEBERG else "abcdefghijkl"))


@pytest.mark.parametrize(
    ("schema", "dead_letters", "message"),
    [
        ("id", None, "option 'schema': a type is expected"),
        ("kafka_offset bigint", None, "option 'schema': kafka_offset: so the columns are called"),
        ("id int", "parquet:t", "option 'dead-letters': parquet:t is the table of the rows as well"),
    ],
)
def test_settings_that_make_no_sense_are_refused(schema: str, dead_letters: str | None, message: str):
    target = Target(Format.PARQUET, "t")
    with pytest.raises(OptionError, match=message):
        etl_settings(schema, target, dead_letters=target if dead_letters else None, with_origin=True)


def test_another_schema_needs_another_checkpoint(tmp_path: Path):
    run(mixed().source(), settings_in(tmp_path))
    with pytest.raises(CommitLogError, match="its schema is '`id` BIGINT NOT NULL, `name` STRING'"):
        run(mixed().source(), settings_in(tmp_path, schema="id bigint"))
