"""``trio-broker pipeline`` without Spark: options, what a dry run shows, and how a command ends."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.spark.topic_records import fill, numbers
from trio_broker.cli import main
from trio_broker.cli import pipeline_options as options_module
from trio_broker.cli.pipeline_options import SparkStart
from trio_broker.spark.pipelines.progress import Progress
from trio_broker.spark.tables import target as target_module
from trio_broker.testing import BrokerThread


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(num_partitions=2) as broker:
        fill(broker, "orders", numbers(0, 30))
        fill(broker, "orders", numbers(0, 5), partition=1, timestamp_ms=1_700_000_000_000)
        yield broker


def pipeline(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["pipeline", *arguments])


def dry(broker: BrokerThread, to: Path, *arguments: str, command: str = "export") -> Result:
    return pipeline(
        command, "--dry-run", "-b", broker.bootstrap_servers, "--topic", "orders", "--to", f"parquet:{to}", *arguments
    )


@pytest.mark.parametrize("command", ["export", "etl"])
def test_help_tells_the_options(command: str):
    result = pipeline(command, "--help")
    assert result.exit_code == 0
    for option in ("--bootstrap-server", "--topic", "--to", "--dry-run", "--checkpoint", "--codec", "--json"):
        assert option in result.output


def test_a_dry_run_shows_what_would_be_read(broker: BrokerThread, tmp_path: Path):
    result = dry(broker, tmp_path / "table", "--batch-records", "10")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["TOPIC", "PARTITION", "FROM", "TO", "OFFSETS"],
        ["orders", "0", "0", "30", "30"],
        ["orders", "1", "0", "5", "5"],
    ]
    assert lines[3].startswith("dry run: up to 35 records, about ")
    assert lines[3].endswith(" of log, batches: 4; nothing was written")
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_prints_json(broker: BrokerThread, tmp_path: Path):
    document = json.loads(dry(broker, tmp_path / "table", "--json").output)
    assert document.pop("log_bytes") > 100
    assert document == {
        "dry_run": True,
        "batches": 1,
        "partitions": [
            {"topic": "orders", "partition": 0, "start_offset": 0, "end_offset": 30, "offsets": 30},
            {"topic": "orders", "partition": 1, "start_offset": 0, "end_offset": 5, "offsets": 5},
        ],
    }


@pytest.mark.parametrize(("flag", "expected"), [("--until", [(1, 5)]), ("--from", [(0, 30)])])
def test_times_say_where_to_begin_and_to_end(
    broker: BrokerThread, tmp_path: Path, flag: str, expected: list[tuple[int, int]]
):
    """Also where a partition has no record as young."""
    document = json.loads(dry(broker, tmp_path / "t", "--json", flag, "2023-12-01").output)
    assert [(each["partition"], each["offsets"]) for each in document["partitions"]] == expected


def test_any_option_of_the_data_source_can_be_given(broker: BrokerThread, tmp_path: Path):
    result = dry(broker, tmp_path / "t", "--option", 'startingOffsets={"orders": {"0": 25, "1": -2}}')
    assert result.output.splitlines()[1].split() == ["orders", "0", "25", "30", "5"]


def test_an_etl_tells_the_same(broker: BrokerThread, tmp_path: Path):
    result = dry(broker, tmp_path / "t", "--schema", "id bigint", command="etl")
    assert "up to 35 records" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "csv:x"], "option 'to': 'csv:x' is not a table"),
        (["--to", "iceberg:a.b"], "an Iceberg table needs --warehouse DIR"),
        (["--to", "iceberg:a.b", "--warehouse", "w"], "option 'checkpoint': say where the job is to note what it did"),
        (["--to", "parquet:x", "--option", "subscribePattern=y"], "option 'subscribePattern'"),
        (["--to", "parquet:x", "--option", "startingOffset=latest"], "did you mean 'startingOffsets'?"),
        (["--to", "parquet:x", "--option", "columns=value"], "option 'columns': which columns are read is the job's"),
        (["--to", "parquet:x", "--until", "2030-01-01", "--continuous"], "a job that waits for more has no end"),
    ],
)
def test_a_wrong_option_is_one_line_and_exit_code_2(arguments: list[str], message: str):
    result = pipeline("export", "--topic", "t", "-b", "127.0.0.1:1", *arguments)
    assert result.exit_code == 2, result.output
    [line] = result.output.splitlines()
    assert line.startswith("trio-broker: ")
    assert message in line


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--to", "parquet:x", "-b", "nowhere:port"],
        ["--to", "parquet:x", "--from", "yesterday"],
        ["--to", "parquet:x", "--option", "no-value"],
        ["--to", "parquet:x", "--codec", "lzo"],
        ["--to", "iceberg:a.b", "--warehouse", "w", "--catalog", "c"],
    ],
)
def test_what_is_no_option_at_all_is_exit_code_2(arguments: list[str]):
    assert pipeline("export", "--topic", "t", *arguments).exit_code == 2


def test_a_schema_that_cannot_be_read_is_reported(tmp_path: Path):
    result = pipeline("etl", "--topic", "t", "--to", f"parquet:{tmp_path}/t", "--schema", "id number")
    assert (result.exit_code, result.output.splitlines()[0][:44]) == (2, "trio-broker: option 'schema': there is no ty")


def test_a_cluster_that_does_not_answer_is_one_line_and_exit_code_1(tmp_path: Path):
    result = pipeline(
        "export", "-b", "127.0.0.1:1", "--topic", "t", "--to", f"parquet:{tmp_path}/t", "--option",
        "fetchOffset.numRetries=1", "--option", "fetchOffset.retryIntervalMs=0",
    )  # fmt: skip
    assert result.exit_code == 1
    [line] = result.output.splitlines()
    assert "127.0.0.1:1" in line


def test_where_nothing_is_new_no_spark_is_started(
    broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuse(self: SparkStart, app_name: str, progress: Progress) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(SparkStart, "__call__", refuse)
    start = '{"orders": {"0": 30, "1": 5}}'
    result = pipeline(
        "export", "-b", broker.bootstrap_servers, "--topic", "orders", "--to", f"parquet:{tmp_path}/t",
        "--option", f"startingOffsets={start}",
    )  # fmt: skip
    assert (result.exit_code, result.output) == (0, "nothing new\n")


class FakeSession:
    stopped = 0

    def stop(self) -> None:
        self.stopped += 1


def interrupted_export(broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sessions: list[object]):
    """An export that Ctrl-C ends; ``sessions`` are the active ones of its beginning and its end."""

    def interrupt(self: SparkStart, app_name: str, progress: Progress) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SparkStart, "__call__", interrupt)
    monkeypatch.setattr(options_module, "active_spark", iter(sessions).__next__)
    return pipeline("export", "-b", broker.bootstrap_servers, "--topic", "orders", "--to", f"parquet:{tmp_path}/t")


def test_ctrl_c_is_exit_code_130(broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started = FakeSession()
    result = interrupted_export(broker, tmp_path, monkeypatch, [None, started])
    assert result.exit_code == 130
    assert result.output.startswith("interrupted; finished work is kept")
    assert started.stopped == 1


def test_a_session_that_ran_before_is_left_alone(broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    running = FakeSession()
    interrupted_export(broker, tmp_path, monkeypatch, [running, running])
    assert running.stopped == 0


@pytest.mark.parametrize("command", ["export", "etl", "replay", "restore", "stats"])
def test_without_the_extra_one_line_says_what_to_install(command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else find(name))
    given = {
        "export": ["--topic", "orders", "--to", f"parquet:{tmp_path}/t"],
        "etl": ["--topic", "orders", "--to", f"parquet:{tmp_path}/t", "--schema", "id bigint"],
        "replay": ["--topic", "orders", "--to-topic", "copies", "--checkpoint", str(tmp_path)],
        "restore": [str(tmp_path), "--to-topic", "copies", "--checkpoint", str(tmp_path)],
        "stats": ["--topic", "orders"],
    }
    result = pipeline(command, *given[command])
    assert (result.exit_code, result.output) == (
        1, "trio-broker: Spark's jobs need pyarrow: pip install 'trio-broker[spark]'\n",
    )  # fmt: skip


@pytest.mark.parametrize(("format", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
@pytest.mark.parametrize("command", ["export", "etl"])
def test_a_dry_run_to_a_format_names_the_extra_that_is_missing(
    command: str, format: str, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == package else find(name))
    monkeypatch.setattr(target_module, "find_spec", importlib.util.find_spec)
    result = pipeline(
        command, "--dry-run", "-b", "127.0.0.1:1", "--topic", "t", "--to", f"{format}:a.b",
        "--warehouse", str(tmp_path), "--checkpoint", str(tmp_path / "c"),
        *(["--schema", "id bigint"] if command == "etl" else []),
    )  # fmt: skip
    assert (result.exit_code, result.output) == (
        1, f"trio-broker: {format}:a.b: {package} is not installed: pip install 'trio-broker[{format}]'\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("command", "sections"),
    [
        ("export", ["Options", "Reading", "Writing", "Spark"]),
        ("replay", ["Options", "Reading", "Writing", "Spark"]),
        ("restore", ["Options", "Writing", "New topics", "Spark"]),
        ("stats", ["Options", "Reading", "Spark"]),
    ],
)
def test_help_groups_the_options_and_ends_with_an_example(command: str, sections: list[str]):
    output = pipeline(command, "--help").output
    assert re.findall(r"^([A-Z][\w ]+):$", output, re.MULTILINE) == sections
    assert f"Example: trio-broker pipeline {command} " in " ".join(output.split())


def test_the_flag_for_the_broker_and_the_option_are_the_same(broker: BrokerThread, tmp_path: Path):
    result = pipeline(
        "export", "--dry-run", "-b", "127.0.0.1:1", "--option", f"kafka.bootstrap.servers={broker.bootstrap_servers}",
        "--topic", "orders", "--to", f"parquet:{tmp_path}/t",
    )  # fmt: skip
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(("command", "section"), [("export", "## export:"), ("etl", "## etl:")])
def test_the_page_names_options_that_there_are(command: str, section: str):
    page = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text(encoding="utf-8")
    common, own = page.partition("## export:")[0], page.partition(section)[2].partition("\n## ")[0]
    named = set(re.findall(r"--[a-z]+(?:-[a-z]+)*", common + own))
    assert named - set(re.findall(r"--[a-z]+(?:-[a-z]+)*", pipeline(command, "--help").output)) == set()
