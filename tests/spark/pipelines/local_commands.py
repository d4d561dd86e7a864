"""Pipeline commands in this process: their tasks run right here, and the run's one Spark session is left alone."""

from __future__ import annotations

import pytest
from click.testing import CliRunner, Result

from tests.spark.pipelines.local_task_runner import LocalTaskRunner
from trio_broker.cli import main


def run_here(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """Run ``trio-broker pipeline`` with ``arguments``."""
    monkeypatch.setattr("trio_broker.cli.pipeline_options.SparkStart.__call__", lambda self, name, progress: None)
    monkeypatch.setattr("trio_broker.spark.pipelines.task_runner.SparkTaskRunner", lambda session: LocalTaskRunner())
    return CliRunner().invoke(main, ["pipeline", *arguments])
