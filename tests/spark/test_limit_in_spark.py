"""A few rows of a large topic: they are right though their workers end early, and all columns are named once.

That no traceback is left is claimed by ``test_early_end.py``. Here it cannot be: on a busy machine PySpark's planners
print the same one, in which no code of ours has a part.
"""

from __future__ import annotations

import os
import sys

import pytest

from tests.spark.session_fixture import java_options
from tests.spark.topic_records import fill, numbers
from tests.waits import run_program
from trio_broker.spark.workarounds.column_hint import MIN_OFFSETS
from trio_broker.testing import BrokerThread

SECONDS = 300

JOB = """
import sys
from trio_broker.spark.session import spark_session

spark = spark_session("limits", master="local[2]", settings={"spark.driver.memory": "512m"})
reader = spark.read.format("trio_broker").option("kafka.bootstrap.servers", sys.argv[1]).option("subscribe", "large")
frame = reader.option("minPartitions", "4").load()
frame.show(5)
print(len(frame.limit(5).collect()), len(frame.select("offset").head(3)), len(frame.take(7)))
print(reader.load().limit(1).count())
spark.stop()
"""


@pytest.mark.soak
@pytest.mark.spark
def test_a_few_rows_are_right_and_reading_all_columns_leaves_one_line(
    kafka_broker_session: BrokerThread,
) -> None:
    kafka_broker_session.create_topic("large", 1)
    # Fewer than librdkafka queues.
    for start in range(0, MIN_OFFSETS, 50_000):
        fill(kafka_broker_session, "large", numbers(start, start + 50_000))
    ended = run_program(
        [sys.executable, "-c", JOB, kafka_broker_session.bootstrap_servers],
        SECONDS,
        env={**os.environ, "JDK_JAVA_OPTIONS": java_options()},
        capture_output=True,
        text=True,
    )

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[-2:] == ["5 3 7", "1"]
    assert ended.stderr.count("are read with all 7 columns") == 1
