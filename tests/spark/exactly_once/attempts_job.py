"""A Spark application of several executors, in which attempts of tasks fail, and are slow and overtaken by others.

Arguments: the address of a broker, ``batch`` or ``stream``, the topic to write, a directory. Run as a module, from the
root of the repository. A session of its own, because ``local[n]`` neither repeats tasks nor speculates.

Task 0 fails when all of its rows are on their way, and is run again. Task 1 waits for another attempt of itself, which
Spark starts because this one is slow; then both go on. Each attempt leaves a file in the directory.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tests.spark.session_fixture import start_session
from tests.waits import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TASKS: Final = 3
ROWS_OF_A_TASK: Final = 400
PIECES: Final = 4
WAIT_SECONDS: Final = 60.0

CLUSTER: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
}


def interfered(directory: str, task: int, attempt: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in pieces, with what happens to its attempt."""
    mark = Path(directory) / f"task-{task}-attempt-{attempt}"
    mark.touch()
    for number, batch in enumerate(batches):
        yield batch
        if task == 1 and attempt == 0 and number == 1:
            eventually(mark.with_name("task-1-attempt-1").exists, WAIT_SECONDS)
    if task == 0 and attempt == 0:
        raise ValueError("the first attempt of task 0 fails behind its last row")


def with_interference(frame: DataFrame, directory: str) -> DataFrame:
    def function(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        return interfered(directory, context.partitionId(), context.attemptNumber(), batches)

    return frame.mapInArrow(function, "value string")


def main(servers: str, kind: str, topic: str, directory: str) -> None:
    # Executors write their logs there, and else beside Spark's own files.
    os.environ["SPARK_WORKER_DIR"] = str(Path(directory) / "work")
    spark = start_session(Path(directory) / "session", master="local-cluster[2,2,512]", settings=CLUSTER)
    options = {
        "kafka.bootstrap.servers": servers,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        # Small, so that most rows were sent when the attempt fails.
        "kafka.batch.size": "500",
    }
    rows = TASKS * ROWS_OF_A_TASK
    if kind == "batch":
        frame = spark.range(0, rows, 1, TASKS).selectExpr("CAST(id AS STRING) AS value")
        writer = with_interference(frame, directory).write.format("trio_broker").options(**options)
        writer.mode("append").save()
        spark.stop()
        return
    source = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=rows, numPartitions=TASKS).load()
    frame = with_interference(source.selectExpr("CAST(value AS STRING) AS value"), directory)
    query = (
        frame.writeStream.format("trio_broker").options(**options)
        .option("checkpointLocation", str(Path(directory) / "checkpoint")).start()
    )  # fmt: skip
    while query.isActive and not query.recentProgress:
        time.sleep(0.1)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
