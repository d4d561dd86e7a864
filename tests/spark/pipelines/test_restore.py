"""``restore`` writes the rows of Parquet files to a topic, in the order that they had."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result as Ended
from hypothesis import given
from hypothesis import strategies as st

from tests.spark.pipelines.broker_records import TIME_MS, Kept, kept, numbered, send
from tests.spark.pipelines.local_commands import run_here
from tests.spark.pipelines.local_task_runner import LocalTaskRunner
from tests.spark.producer.consumed_records import read_back, values_of
from trio_broker.client.address import parse_addresses
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import OptionError
from trio_broker.spark.options.option import Mode
from trio_broker.spark.options.read_options import read_options
from trio_broker.spark.pipelines.export.job import ExportSettings, run_export
from trio_broker.spark.pipelines.job_source import JobSource
from trio_broker.spark.pipelines.restore.job import RestoreReport, RestoreSettings, plan_restore, restore
from trio_broker.spark.pipelines.restore.parquet_parts import (
    Origin,
    RestoreError,
    RowGroupPart,
    find_files,
    group_parts,
    parts_of,
)
from trio_broker.spark.pipelines.restore.parquet_rows import rows_in_order
from trio_broker.spark.pipelines.rounds.target_topics import NewTopics, Partitions
from trio_broker.spark.pipelines.task_runner import Result, SparkTaskRunner, TasksDone
from trio_broker.spark.producer.row_ids import Deduplicator, find_row_id
from trio_broker.spark.producer.target_topic import TargetError
from trio_broker.spark.schema import COLUMNS, arrow_schema
from trio_broker.spark.tables.target import parse_target
from trio_broker.testing import BrokerThread, broker_in_thread

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with broker_in_thread() as broker:
        yield broker


@pytest.fixture
def settings(broker: BrokerThread, tmp_path: Path) -> RestoreSettings:
    """To a topic of the test's own, which is created."""
    target = ProducerSettings(parse_addresses(broker.bootstrap_servers))
    return RestoreSettings(target, tmp_path / "checkpoint", tmp_path.name, new=NewTopics(), with_row_ids=False)


def run(path: Path, settings: RestoreSettings) -> RestoreReport:
    return restore([path], settings, LocalTaskRunner)


def table(records: list[Kept], *, offsets: list[int] | None = None, partition: int = 0) -> pa.Table:
    """Rows as an export writes them, or anybody."""
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "topic": "orders",
            "partition": partition,
            "offset": offset,
            "timestamp": EPOCH + timedelta(milliseconds=record.timestamp_ms),
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in record.headers] or None,
        }
        for record, offset in zip(records, offsets or range(len(records)), strict=True)
    ]
    return pa.Table.from_pylist(rows, arrow_schema(COLUMNS))


RECORDS = [*numbered(40), Kept(None, None), Kept(b"", b"", (("h", None),))]


def shuffled(directory: Path, *, row_group_rows: int, files: int) -> None:
    """The records in files whose row groups have any of them, in any order."""
    order = list(range(len(RECORDS)))
    random.Random(7).shuffle(order)
    for number in range(files):
        mine = order[number::files]
        rows = table([RECORDS[index] for index in mine], offsets=mine)
        pq.write_table(rows, directory / f"{number}.parquet", row_group_size=row_group_rows)


@pytest.mark.parametrize("row_group_rows", [1, 5, 100])
def test_rows_come_in_the_order_of_offsets_whatever_files_they_are_in(
    tmp_path: Path, settings: RestoreSettings, broker: BrokerThread, row_group_rows: int
):
    shuffled(tmp_path, row_group_rows=row_group_rows, files=3)
    report = run(tmp_path, settings)
    assert (report.records, report.files, report.new_topics) == (42, 3, (settings.topic,))
    assert kept(broker, settings.topic or "") == RECORDS


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), min_size=1, max_size=5))
def test_any_parts_are_merged_in_order(tmp_path_factory: pytest.TempPathFactory, offsets: list[list[int]]):
    directory = tmp_path_factory.mktemp("parts")
    for number, some in enumerate(offsets):
        rows = pa.table({"value": [b""] * len(some), "partition": pa.array([0] * len(some)), "offset": some})
        pq.write_table(rows, directory / f"{number}.parquet")
    [group] = group_parts(part for path in find_files([directory]) for part in parts_of(path))
    merged = [offset for rows in rows_in_order(group) for offset in rows.column("offset").to_pylist()]
    assert merged == sorted(offset for some in offsets for offset in some)


def test_only_rows_that_others_may_come_before_are_held(tmp_path: Path):
    pq.write_table(table(numbered(1000)), tmp_path / "a.parquet", row_group_size=10)
    [group] = group_parts(parts_of(tmp_path / "a.parquet"))
    assert sum(rows.num_rows for rows in rows_in_order(group, max_held_bytes=0)) == 1000
    shuffled(tmp_path, row_group_rows=5, files=3)
    [group] = group_parts(part for name in "012" for part in parts_of(tmp_path / f"{name}.parquet"))
    with pytest.raises(RestoreError, match="too many rows of orders-0 overlap"):
        list(rows_in_order(group, max_held_bytes=0))


def test_one_row_group_may_hold_many_topics_and_partitions(tmp_path: Path):
    rows = {
        "value": [b"%d" % number for number in range(6)],
        "topic": pa.array(["b", "a", "b", "a", "b", "a"]).dictionary_encode(),
        "partition": [1, 0, 1, 2, 0, 0],
    }
    pq.write_table(pa.table(rows), tmp_path / "mixed.parquet")
    groups = group_parts(parts_of(tmp_path / "mixed.parquet"))
    assert [(str(group[0].origin), group[0].rows) for group in groups] == [
        ("a-0", 2),
        ("a-2", 1),
        ("b-0", 1),
        ("b-1", 2),
    ]
    values = [[v for rows in rows_in_order(group) for v in rows.column("value").to_pylist()] for group in groups]
    assert values == [[b"1", b"5"], [b"3"], [b"4"], [b"0", b"2"]]


def test_a_directory_may_name_the_topic(tmp_path: Path, settings: RestoreSettings, broker: BrokerThread):
    (tmp_path / "topic=from-directory" / "date=2026-09-21").mkdir(parents=True)
    rows = table(RECORDS).drop(["topic"])
    pq.write_table(rows, tmp_path / "topic=from-directory" / "date=2026-09-21" / "x.parquet")
    run(tmp_path, attrs.evolve(settings, topic=None))
    assert kept(broker, "from-directory") == RECORDS


def test_files_with_nothing_but_values_keep_the_order_within_each(
    tmp_path: Path, settings: RestoreSettings, broker: BrokerThread
):
    for name, values in (("b", ["3", "4"]), ("a", ["1", "2"])):
        pq.write_table(pa.table({"value": values, "other": [1.5, 2.5]}), tmp_path / f"{name}.parquet")
    assert run(tmp_path, settings).records == 4
    assert [record.value for record in kept(broker, settings.topic or "")] == [b"1", b"2", b"3", b"4"]


def test_keys_may_choose_partitions_anew(tmp_path: Path, settings: RestoreSettings, broker: BrokerThread):
    pq.write_table(table(numbered(40)), tmp_path / "a.parquet")
    run(tmp_path, attrs.evolve(settings, partitions=Partitions.KEY, new=NewTopics(partitions=2)))
    found = [{record.key for record in kept(broker, settings.topic or "", partition)} for partition in (0, 1)]
    assert len(found[0]) + len(found[1]) == 10
    assert min(map(len, found)) > 0


def test_a_missing_topic_is_created_only_when_asked_and_as_wide_as_needed(
    tmp_path: Path, settings: RestoreSettings, broker: BrokerThread
):
    pq.write_table(table(RECORDS, partition=2), tmp_path / "a.parquet")
    with pytest.raises(TargetError, match="does not exist"):
        run(tmp_path, attrs.evolve(settings, new=None))
    with pytest.raises(TargetError, match="has 2 partitions, and records of partition 2"):
        run(tmp_path, attrs.evolve(settings, new=NewTopics(partitions=2)))
    assert plan_restore([tmp_path], settings).new_topics == (settings.topic,)
    run(tmp_path, settings)
    assert kept(broker, settings.topic or "", 2) == RECORDS


def test_what_cannot_be_restored_is_reported_by_its_file(tmp_path: Path, settings: RestoreSettings):
    with pytest.raises(RestoreError, match="there are no Parquet files"):
        run(tmp_path, settings)
    with pytest.raises(RestoreError, match="nowhere does not exist"):
        run(tmp_path / "nowhere", settings)
    (tmp_path / "a.parquet").write_bytes(b"no such thing")
    with pytest.raises(RestoreError, match=r"a\.parquet: "):
        run(tmp_path, settings)
    pq.write_table(pa.table({"values": [b""]}), tmp_path / "a.parquet")
    with pytest.raises(RestoreError, match="has no column 'value'; it has values"):
        run(tmp_path, settings)
    pq.write_table(pa.table({"value": [b""], "offset": ["1"]}), tmp_path / "a.parquet")
    with pytest.raises(RestoreError, match="'offset' is of type string"):
        run(tmp_path, settings)
    pq.write_table(pa.table({"value": [b"", b""], "partition": [1, None]}), tmp_path / "a.parquet")
    with pytest.raises(RestoreError, match="partition must not be null"):
        run(tmp_path, settings)
    pq.write_table(pa.table({"value": [b""]}), tmp_path / "a.parquet")
    with pytest.raises(OptionError, match="says no topic"):
        run(tmp_path, attrs.evolve(settings, topic=None))


def test_a_file_that_changed_after_planning_is_noticed(tmp_path: Path):
    pq.write_table(table(RECORDS), tmp_path / "a.parquet")
    part = RowGroupPart(Origin("orders", 0), str(tmp_path / "a.parquet"), 0, 41, 0, 41)
    with pytest.raises(RestoreError, match="has changed"):
        list(rows_in_order([part]))


# --- There and back ---


def exported(broker: BrokerThread, topic: str, directory: Path) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    with JobSource.of(read_options(options, Mode.BATCH)) as source:
        run_export(source, ExportSettings(parse_target(f"parquet:{directory}")), LocalTaskRunner)


def with_late_days(count: int) -> list[Kept]:
    """Records of three days in turn."""
    return [
        attrs.evolve(record, timestamp_ms=TIME_MS + number % 3 * 86_400_000)
        for number, record in enumerate(numbered(count))
    ]


def test_an_export_restored_has_equal_records(tmp_path: Path, broker: BrokerThread, settings: RestoreSettings):
    broker.create_topic("exported", 2)
    records = [RECORDS, with_late_days(500)]
    for partition, some in enumerate(records):
        send(broker, "exported", some, partition=partition)
    exported(broker, "exported", tmp_path / "table")
    assert len(find_files([tmp_path / "table"])) > 3
    run(tmp_path / "table", settings)
    assert [kept(broker, settings.topic or "", partition) for partition in (0, 1)] == records


# --- Interruptions: see also test_restore_resume ---


class Interrupted(Exception):
    """The end of a process, seen from within."""


@attrs.define
class Interrupting:
    """Ends in its ``rounds``-th round, when the first task has written all of its slice."""

    rounds: int

    def parallelism(self) -> int:
        return 1

    def run(self, tasks: Sequence[Any], function: Any, on_done: TasksDone | None = None) -> list[list[Result]]:
        self.rounds -= 1
        if self.rounds:
            return LocalTaskRunner().run(tasks, function, on_done)
        function(0, tasks[0])
        raise Interrupted


def test_what_an_interrupted_run_wrote_can_be_recognised_by_its_row_ids(
    tmp_path: Path, settings: RestoreSettings, broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("trio_broker.spark.pipelines.rounds.slice_schedule.DEFAULT_SLICE_RECORDS", 10)
    shuffled(tmp_path, row_group_rows=5, files=3)
    settings = attrs.evolve(settings, with_row_ids=True)
    with pytest.raises(Interrupted):
        restore([tmp_path], settings, lambda: Interrupting(rounds=3))
    run(tmp_path, settings)
    records = kept(broker, settings.topic or "")
    assert len(records) > len(RECORDS)
    seen, place = Deduplicator(), TopicPartition("there", 0)
    once = []
    for record in records:
        row_id = find_row_id(record.headers)
        assert row_id is not None
        if seen.is_new(place, row_id):
            once.append(attrs.evolve(record, headers=record.headers[:-1]))
    assert once == RECORDS


def test_what_an_interrupted_run_wrote_in_transactions_is_there_once(
    tmp_path: Path, settings: RestoreSettings, broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("trio_broker.spark.pipelines.rounds.slice_schedule.DEFAULT_SLICE_RECORDS", 10)
    shuffled(tmp_path, row_group_rows=5, files=3)
    settings = attrs.evolve(settings, is_exactly_once=True)
    with pytest.raises(Interrupted):
        restore([tmp_path], settings, lambda: Interrupting(rounds=3))
    run(tmp_path, settings)

    [found] = read_back(broker.bootstrap_servers, settings.topic or "", 1).values()
    assert values_of(found) == [record.value for record in RECORDS]


# --- The command, and Spark ---


def command(monkeypatch: pytest.MonkeyPatch, path: Path, settings: RestoreSettings, *further: str) -> Ended:
    server = str(settings.target.bootstrap_servers[0])
    arguments = [str(path), "--to-topic", settings.topic or "", "--to-bootstrap-server", server]
    arguments += ["--checkpoint", str(settings.checkpoint), *further]
    return run_here(monkeypatch, "restore", *arguments)


def test_a_dry_run_tells_rows_and_makes_nothing(
    tmp_path: Path, settings: RestoreSettings, monkeypatch: pytest.MonkeyPatch
):
    pq.write_table(table(RECORDS), tmp_path / "a.parquet")
    result = command(monkeypatch, tmp_path, settings, "--create-topic", "--dry-run", "--max-records-per-second", "2")
    assert result.exit_code == 0, result.output
    assert "orders              0      1    42             0           41" in result.output
    assert f"topic {settings.topic}: would be created" in result.output
    assert "dry run: 42 records, in 21 s or more; nothing was written" in result.output
    assert not settings.checkpoint.exists()
    assert command(monkeypatch, tmp_path, settings, "--dry-run").exit_code == 1
    refused = command(monkeypatch, tmp_path, settings, "--topic-partitions", "3")
    assert refused.exit_code == 2


def test_the_command_restores(
    tmp_path: Path, settings: RestoreSettings, broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
):
    pq.write_table(table(RECORDS), tmp_path / "a.parquet")
    result = command(monkeypatch, tmp_path, settings, "--create-topic", "--no-row-ids", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["records"] == 42
    again = command(monkeypatch, tmp_path, settings, "--create-topic", "--no-row-ids")
    assert (again.exit_code, again.output) == (0, "nothing left to write\n")
    assert kept(broker, settings.topic or "") == RECORDS


@pytest.mark.spark
def test_spark_restores_in_its_tasks(tmp_path: Path, settings: RestoreSettings, broker: BrokerThread, spark):
    for partition in (0, 1):
        rows = table(numbered(50), partition=partition)
        pq.write_table(rows, tmp_path / f"{partition}.parquet")
    assert restore([tmp_path], settings, lambda: SparkTaskRunner(spark)).records == 100
    assert kept(broker, settings.topic or "", 1) == numbered(50)
