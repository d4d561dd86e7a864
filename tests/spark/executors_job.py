"""A Spark application of two executors, one of which is killed in each job: a scan, a stream, a sink, an export.

Arguments: the address of a broker, the topic to read, the topic to write, a directory. Run as a module, from the root
of the repository. Prints what it found as one line of JSON.

The worker of a task kills the executor that it belongs to, and goes on, as one does whose driver has given it up.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import pyarrow as pa

from tests.spark.session_fixture import start_session
from trio_broker.spark.pipelines.export import ExportSettings, read_job_options, run_export
from trio_broker.spark.pipelines.job_source import JobSource
from trio_broker.spark.pipelines.task_runner import Result, SparkTaskRunner, TaskFunction, TasksDone
from trio_broker.spark.pipelines.trigger import Trigger
from trio_broker.spark.tables.target import parse_target
from trio_broker.spark.tasks import ReadTask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

MASTER: Final = "local-cluster[2,1,512]"

CLUSTER: Final = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
}


def kill_executor(mark: Path) -> None:
    """Kill the JVM that this worker of PySpark belongs to, unless ``mark`` says that it was done."""
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return
    # The parent is PySpark's daemon, and its parent the JVM: the second field behind the name (proc(5)).
    stat = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8")
    os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)


def with_a_kill(frame: DataFrame, mark: Path) -> DataFrame:
    """``frame``, one of whose tasks kills its executor behind its first rows."""

    def function(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            kill_executor(mark)

    return frame.mapInArrow(function, frame.schema)


@attrs.frozen
class KillBehind:
    """The function of an export's tasks, one of which kills its executor when its files are written."""

    function: TaskFunction
    mark: Path

    def __call__(self, number: int, task: ReadTask) -> list[Result]:
        results = self.function(number, task)
        kill_executor(self.mark)
        return results


@attrs.frozen
class KillingRunner:
    """Runs tasks in Spark, one of which kills its executor."""

    runner: SparkTaskRunner
    mark: Path

    def parallelism(self) -> int:
        return self.runner.parallelism()

    def run(
        self, tasks: Sequence[ReadTask], function: TaskFunction, on_done: TasksDone | None = None
    ) -> list[list[Result]]:
        return self.runner.run(tasks, KillBehind(function, self.mark), on_done)


def scan(spark: SparkSession, options: dict[str, str], directory: Path) -> list[int]:
    frame = spark.read.format("trio_broker").schema("value BINARY").options(**options).load()
    return sorted(int(row.value) for row in with_a_kill(frame, directory / "scan").collect())


def stream(spark: SparkSession, options: dict[str, str], directory: Path) -> list[int]:
    source = spark.readStream.format("trio_broker").options(**options, startingOffsets="earliest")
    frame = with_a_kill(source.option("maxOffsetsPerTrigger", "400").load().select("value"), directory / "stream")
    writer = frame.writeStream.format("parquet").option("path", str(directory / "rows"))
    query = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return sorted(int(row.value) for row in spark.read.parquet(str(directory / "rows")).collect())


def sink(spark: SparkSession, servers: str, topic: str, count: int, directory: Path) -> None:
    frame = with_a_kill(spark.range(0, count, 1, 4).selectExpr("CAST(id AS STRING) AS value"), directory / "sink")
    options = {"kafka.bootstrap.servers": servers, "topic": topic, "deliveryGuarantee": "exactly-once"}
    # Small batches, so that some were sent when the executor dies.
    frame.write.format("trio_broker").options(**options).option("kafka.batch.size", "500").mode("append").save()


def exported(spark: SparkSession, options: dict[str, str], directory: Path) -> dict[str, int]:
    settings = ExportSettings(parse_target(f"parquet:{directory / 'table'}"), trigger=Trigger(batch_records=600))
    runner = KillingRunner(SparkTaskRunner(spark), directory / "export")
    with JobSource.of(read_job_options(options, settings.trigger)) as source:
        return dict(run_export(source, settings, lambda: runner).rows)


def main(servers: str, topic: str, written: str, directory: str) -> None:
    # Executors write their logs there, and else beside Spark's own files.
    os.environ["SPARK_WORKER_DIR"] = str(Path(directory) / "work")
    spark = start_session(Path(directory) / "session", master=MASTER, settings=CLUSTER)
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "minPartitions": "8"}
    read = scan(spark, options, Path(directory))
    told = {
        "scan": read,
        "stream": stream(spark, options, Path(directory)),
        "exported": exported(spark, options, Path(directory)),
    }
    sink(spark, servers, written, len(read), Path(directory))
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
