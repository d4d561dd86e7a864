"""A client of Spark Connect: a process, because no other kind of session may be in it.

Arguments: the address of the server, that of a broker, a topic, a directory. Prints what it found as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException

from tests.waits import terminated
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import DataLoss
from trio_broker.spark.pipelines.export.job import export
from trio_broker.spark.pipelines.task_runner import Result, SparkTaskRunner, TaskFailed
from trio_broker.spark.session import spark_session


def lose(number: int, task: None) -> list[Result]:
    raise DataLoss(TopicPartition("orders", 0), 1, "the segment is gone")


def number_of(number: int, task: str) -> list[Result]:
    return [{"task": number, "of": task}]


def failure(runner: SparkTaskRunner) -> str:
    try:
        # Which task fails does not matter, nor what it would read.
        runner.run([None], lose)
    except TaskFailed as error:
        return str(error)
    return ""


def main(server: str, servers: str, topic: str, directory: str) -> None:
    spark = spark_session(master=server)
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    view = ", ".join(f"'{name}' '{value}'" for name, value in options.items())
    spark.sql(f"CREATE TEMPORARY VIEW records USING trio_broker OPTIONS ({view})")
    stream = spark.readStream.format("trio_broker").options(**options, startingOffsets="earliest").load()
    query = stream.writeStream.format("memory").queryName("copy").trigger(availableNow=True).start()
    terminated(query, 120)
    try:
        spark.read.format("trio_broker").options(**options, startingOffsets="latest").load().count()
        error = ""
    except PySparkException as raised:
        error = str(raised)
    batch = spark.read.format("trio_broker").options(**options)
    runner = SparkTaskRunner(spark)
    done: list[int] = []
    report = export(spark, options, f"parquet:{Path(directory) / 'table'}")
    results = {
        "session": type(spark).__module__,
        "count": batch.load().count(),
        "values": sorted(bytes(row.value).decode() for row in batch.schema("value BINARY").load().collect()),
        "view": spark.sql("SELECT count(*) FROM records WHERE offset >= 2").collect()[0][0],
        "stream": spark.table("copy").count(),
        "error": error,
        "exported": report.rows,
        "parallelism": runner.parallelism(),
        "results": runner.run(["a", "b", "c"], number_of, done.append),
        "done": max(done, default=0),
        "failure": failure(runner),
    }
    print(json.dumps(results))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
