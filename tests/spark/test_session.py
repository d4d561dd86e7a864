"""The session of the commands, where it is one of Spark Connect."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Self

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource

from tests.waits import run_program
from trio_broker.spark import session
from trio_broker.spark.errors import SparkJobError

SECONDS = 60

WITHOUT_GRPC = """
import sys
sys.modules["grpc"] = None      # so that its import fails
from trio_broker.spark.workarounds.java import SparkMissing
from trio_broker.spark.session import spark_session
try:
    spark_session(master="sc://127.0.0.1:1")
except SparkMissing as error:
    print(error)
"""


def test_what_spark_connect_lacks_is_named_with_the_extra_that_brings_it(tmp_path: Path) -> None:
    # A process, because no other kind of session may be in it; a file, because PySpark ends a program of "-c" silently.
    program = tmp_path / "without_grpc.py"
    program.write_text(WITHOUT_GRPC)
    ended = run_program([sys.executable, "-W", "ignore", str(program)], SECONDS, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    [message] = ended.stdout.splitlines()
    assert "grpcio" in message
    assert message.endswith("Spark Connect needs it: pip install 'trio-broker[spark-connect]'")


FOLLOWED = """
import os, sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from trio_broker.spark.session import spark_session

def chosen(self):
    self._validate_startup_urls()
    raise PySparkException(f"{self._options.get('spark.master')} {self._options.get('spark.remote')}")

SparkSession.Builder.getOrCreate = chosen
try:
    spark_session(master=sys.argv[1])
except Exception as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("master", "message"),
    [
        ("local[2]", "local[2] None"),
        ("sc://db:15002", "no session of Spark Connect at sc://db:15002: None sc://db:15002"),
    ],
)
def test_a_master_that_is_asked_for_stands_above_the_environment(master: str, message: str) -> None:
    """In a process, since it is of both kinds."""
    ended = run_program(
        [sys.executable, "-c", FOLLOWED, master],
        SECONDS,
        env={**os.environ, "MASTER": "local[3]", "SPARK_REMOTE": "sc://other:15002"},
        capture_output=True,
        text=True,
    )
    assert ended.stdout.splitlines() == [message], ended.stderr


class UnreachableServer:
    """A builder of sessions whose server does not answer."""

    def remote(self, url: str) -> Self:
        return self

    def config(self, key: str, value: str) -> Self:
        return self

    def getOrCreate(self) -> Any:
        raise PySparkException("UNAVAILABLE: connection refused\nwith more lines")


def test_a_server_that_cannot_be_reached_is_named_in_one_line() -> None:
    expected = r"^no session of Spark Connect at sc://db:15002: UNAVAILABLE: connection refused$"
    with pytest.raises(SparkJobError, match=expected):
        session._connect_session("sc://db:15002", UnreachableServer(), {})  # type: ignore[arg-type]


def test_a_master_in_the_environment_beside_a_server_is_reported_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER", "local[2]")
    expected = r"^no session of Spark Connect at sc://db:15002: .*Spark master \[local\[2\]\], Spark Connect \[sc://db"
    with pytest.raises(SparkJobError, match=expected):
        session._connect_session("sc://db:15002", SparkSession.Builder(), {})


def test_the_jvm_alone_has_one_thread_of_numpy_for_its_planners() -> None:
    environment: dict[str, str] = {}
    with session.one_thread_for_planners(environment):
        assert environment == {"OMP_NUM_THREADS": "1"}
    assert environment == {}


def test_a_number_of_threads_in_the_environment_stays() -> None:
    environment = {"OMP_NUM_THREADS": "4"}
    with session.one_thread_for_planners(environment):
        assert environment == {"OMP_NUM_THREADS": "4"}
    assert environment == {"OMP_NUM_THREADS": "4"}


def test_a_number_of_threads_that_was_not_set_is_taken_back_after_a_failure() -> None:
    environment: dict[str, str] = {}
    with pytest.raises(ValueError, match="no Java"), session.one_thread_for_planners(environment):
        raise ValueError("no Java")
    assert environment == {}


@pytest.mark.spark
def test_a_planner_loads_numpy_with_one_thread(spark: SparkSession) -> None:
    class Threads(DataSource):
        """The name of its column is the number of threads that numpy starts where it is planned."""

        @classmethod
        def name(cls) -> str:
            return "threads"

        def schema(self) -> str:
            return f"threads_{os.environ.get('OMP_NUM_THREADS')} int"

    spark.dataSource.register(Threads)
    # A number in the environment of the whole run stays.
    expected = os.environ.get("OMP_NUM_THREADS", "1")
    assert spark.read.format("threads").load().columns == [f"threads_{expected}"]
