"""With the switch off nothing of PySpark is touched."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator
from pathlib import Path

import pytest

from trio_broker.config.static_settings import CLIENT_VARIABLES
from trio_broker.spark.errors import OptionError
from trio_broker.spark.workarounds import early_end, worker_memory
from trio_broker.spark.workarounds.column_hint import MIN_OFFSETS, SPARK_LOCAL_DIRS, ColumnHint
from trio_broker.spark.workarounds.jvm_output import STANDARD_ERROR, jvm_lines_shown_by
from trio_broker.spark.workarounds.switch import VARIABLE, are_workarounds_on


class Ended(Exception):
    """Stands for ``os._exit``."""


@pytest.fixture(autouse=True)
def off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch is off, in a process that passes for a worker of PySpark."""

    def end(code: int) -> None:
        raise Ended

    monkeypatch.setenv(VARIABLE, "off")
    monkeypatch.setattr(os, "_exit", end)
    for module in (early_end, worker_memory):
        monkeypatch.setattr(module, "is_worker", lambda: True)


def test_workarounds_are_on_unless_the_variable_says_off():
    assert are_workarounds_on({})
    assert are_workarounds_on({VARIABLE: "on"})
    assert not are_workarounds_on({VARIABLE: "off"})
    with pytest.raises(OptionError, match=f"{VARIABLE}.*is on or off, not 'no'"):
        are_workarounds_on({VARIABLE: "no"})


def test_a_broker_takes_the_variable_for_none_of_its_own():
    assert VARIABLE in CLIENT_VARIABLES


def test_a_worker_is_not_ended_by_a_reader():
    def rows() -> Generator[int, None, None]:
        with early_end.ending_quietly():
            yield 1

    reading = rows()
    next(reading)
    try:
        raise BrokenPipeError
    except BrokenPipeError:
        reading.close()


def test_the_process_that_plans_a_stream_is_not_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(early_end, "main_module", lambda: worker_memory.STREAM_PLANNER)
    try:
        raise EOFError
    except EOFError:
        early_end.end_with_the_query()


@pytest.mark.parametrize("main_module", [worker_memory.DAEMON, worker_memory.STREAM_PLANNER])
def test_the_garbage_collector_is_left_alone(monkeypatch: pytest.MonkeyPatch, main_module: str):
    monkeypatch.setattr(worker_memory, "main_module", lambda: main_module)
    before = gc.get_freeze_count()
    with worker_memory.keeping_loaded("a kind of its own"):
        pass
    assert gc.get_freeze_count() == before


def test_no_hint_is_logged_and_no_file_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setenv(SPARK_LOCAL_DIRS, str(tmp_path))
    with caplog.at_level(logging.WARNING):
        ColumnHint(("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"), False).count(
            MIN_OFFSETS
        )
    assert caplog.messages == []
    assert list(tmp_path.iterdir()) == []


def test_standard_error_stays_that_of_the_process():
    before = os.fstat(STANDARD_ERROR)
    shown: list[str] = []
    with jvm_lines_shown_by(shown.append, from_the_start=True):
        assert os.path.samestat(os.fstat(STANDARD_ERROR), before)
    assert shown == []


def test_a_session_gets_the_environment_as_it_is(monkeypatch: pytest.MonkeyPatch):
    """The session itself is not made: its builder ends the call."""
    pyspark_sql = pytest.importorskip("pyspark.sql")
    from trio_broker.spark import session

    class Built(Exception):
        """The end of the call."""

    def build(*given: object) -> None:
        raise Built

    names = ("JAVA_HOME", "SPARK_HOME", "PYSPARK_PYTHON", session.THREADS_OF_NUMPY)
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_LOCAL_IP", session.LOOPBACK)
    monkeypatch.setattr(pyspark_sql.SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(session, "_configured", build)
    with pytest.raises(Built):
        session.spark_session(master="local[1]")
    assert not {*names} & os.environ.keys()
