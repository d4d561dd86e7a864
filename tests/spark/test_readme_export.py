"""The export of the README writes a table: its line, as it stands there, in the session of the tests.

A command leaves a session that it finds as it is. By night ``tests/docs/test_readme.py`` gives the line a process and
a JVM of its own.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from tests.docs.test_readme import INSTALLED_HERE, blocks, commands
from tests.spark.topic_records import fill
from trio_broker.cli import main
from trio_broker.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def _log_level_of_the_session(spark: SparkSession) -> Iterator[None]:
    """The command has the session print nothing of a failed task."""
    yield
    spark.sparkContext.setLogLevel("ERROR")


@pytest.mark.usefixtures("_log_level_of_the_session")
def test_the_export_writes_a_table(
    spark: SparkSession, kafka_broker: BrokerThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka_broker.create_topic("greetings", 1)
    fill(kafka_broker, "greetings", [b"hello 0", b"hello 1"])
    install, export = commands(*blocks("With Spark", "sh"))
    assert install in INSTALLED_HERE
    program, *words = shlex.split(export)
    assert program == "trio-broker"
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [*words, "--bootstrap-server", kafka_broker.bootstrap_servers])
    assert result.exit_code == 0, result.output
    assert spark.read.parquet(str(tmp_path / "greetings-table")).count() == 2
