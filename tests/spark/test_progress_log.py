"""What is logged of a stream: rows, backlog and rates of each micro-batch."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.topic_records import fill, numbers
from trio_broker.spark.progress_log import ProgressLog, backlog
from trio_broker.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "trio_broker.spark.progress_log"


def source(end: str, latest: str) -> Any:
    return SimpleNamespace(
        endOffset=end, latestOffset=latest, numInputRows=7, inputRowsPerSecond=2.5, processedRowsPerSecond=14.04
    )


def event(*sources: Any, name: str | None = "orders") -> Any:
    return SimpleNamespace(progress=SimpleNamespace(name=name, id="0a-1b", batchId=3, sources=sources))


@pytest.mark.parametrize(
    ("end", "latest", "expected"),
    [
        ('{"orders": {"0": 10, "1": 5}}', '{"orders": {"0": 12, "1": 5}}', 2),
        ('{"begins at {}": {}, "orders": {"0": 10}}', '{"orders": {"0": 12}}', 2),
        ('{"orders": {"0": 10}}', '{"orders": {"0": 10, "1": 4}}', 4),
        ('{"orders": {"0": 10}}', '{"orders": {"0": 3}}', 0),
        ('{"orders": {"0": 10}}', "None", None),
        ("0", "1", None),
        ("null", "null", None),
    ],
    ids=[
        "behind",
        "the first",
        "a new partition",
        "a log that is shorter",
        "nothing known",
        "a rate source",
        "no ends",
    ],
)
def test_the_backlog_is_what_lies_between_the_offsets_of_a_progress(end, latest, expected):
    assert backlog(source(end, latest)) == expected


@pytest.mark.parametrize(("name", "shown"), [("orders", "orders"), (None, "0a-1b")])
def test_each_source_of_a_micro_batch_is_a_line(caplog, name, shown):
    ours = source('{"orders": {"0": 10}}', '{"orders": {"0": 12}}')
    with caplog.at_level(logging.INFO, logger=NAME):
        ProgressLog().onQueryProgress(event(ours, source("5", "6"), name=name))
    [line] = caplog.messages
    assert line == (
        f"{shown}: micro-batch 3 read 7 rows, 2 offsets are left; 2.5 rows a second came, 14.0 were processed"
    )


@pytest.mark.spark
def test_a_query_is_logged_with_what_it_left(
    spark: SparkSession, kafka_broker_session: BrokerThread, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_broker_session.create_topic("logged", 1)
    fill(kafka_broker_session, "logged", numbers(0, 5))
    frame = spark.readStream.format("trio_broker").option("subscribe", "logged").option("maxOffsetsPerTrigger", "3")
    frame = frame.option("kafka.bootstrap.servers", kafka_broker_session.bootstrap_servers)
    writer = frame.option("startingOffsets", "earliest").load().writeStream.format("noop").queryName("counted")
    listener = ProgressLog()
    spark.streams.addListener(listener)
    try:
        with caplog.at_level(logging.INFO, logger=NAME):
            query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
            assert query.awaitTermination(60)
            # Listeners are called by a thread of Spark's, in order.
            spark._jsparkSession.sparkContext().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    assert [line.partition(";")[0] for line in caplog.messages] == [
        "counted: micro-batch 0 read 3 rows, 2 offsets are left",
        "counted: micro-batch 1 read 2 rows, 0 offsets are left",
    ]
