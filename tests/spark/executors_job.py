"""A Spark application of two executors, one of which is killed in each job: a scan, a stream, a sink, and pipelines.

Arguments: the address of a broker with the topics below, and a directory. Run as a module, from the root of the
repository. Prints what it found as one line of JSON.

The worker of a task kills the executor that it belongs to, and goes on, as one does whose driver has given it up.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

import attrs
import pyarrow as pa

from tests.spark.session_fixture import start_session
from trio_broker.client.address import parse_addresses
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.spark.options.option import Mode
from trio_broker.spark.options.read_options import read_options
from trio_broker.spark.pipelines.etl.job import etl_settings, run_etl
from trio_broker.spark.pipelines.export.job import ExportSettings, read_job_options, run_export
from trio_broker.spark.pipelines.job_source import JobSource
from trio_broker.spark.pipelines.replay.job import ReplaySettings, replay
from trio_broker.spark.pipelines.restore.job import RestoreSettings, restore
from trio_broker.spark.pipelines.table_jobs.trigger import Trigger
from trio_broker.spark.pipelines.task_runner import Result, SparkTaskRunner, T, TaskFunction, TasksDone
from trio_broker.spark.tables.target import parse_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

SOURCE: Final = "killed-source"
JSON_SOURCE: Final = "killed-json"
SINK: Final = "killed-sink"

GUARANTEES: Final = {"at-least-once": False, "exactly-once": True}
"""Whether a replay and a restore write in transactions, by the name that ends those of their topics."""

JOBS: Final = (
    "scan",
    "stream",
    "sink",
    "export",
    "etl",
    *(f"replay-{each}" for each in GUARANTEES),
    *(f"restore-{each}" for each in GUARANTEES),
)
"""Each job leaves a file of its name in the directory when it kills an executor."""

ROWS_OF_A_BATCH: Final = 600
ROWS_OF_A_SLICE: Final = 250

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
    """The function of a pipeline's tasks, one of which kills its executor when everything is written."""

    function: TaskFunction[Any]
    mark: Path

    def __call__(self, number: int, task: Any) -> list[Result]:
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
        self, tasks: Sequence[T], function: TaskFunction[T], on_done: TasksDone | None = None
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


def export_rows(source: JobSource, runner: SparkTaskRunner, directory: Path) -> dict[str, int]:
    settings = ExportSettings(parse_target(f"parquet:{directory / 'table'}"), trigger=Trigger(ROWS_OF_A_BATCH))
    return dict(run_export(source, settings, lambda: KillingRunner(runner, directory / "export")).rows)


def etl_rows(source: JobSource, runner: SparkTaskRunner, directory: Path) -> dict[str, int]:
    target = parse_target(f"parquet:{directory / 'typed'}")
    settings = etl_settings("id BIGINT NOT NULL", target, trigger=Trigger(ROWS_OF_A_BATCH))
    return dict(run_etl(source, settings, lambda: KillingRunner(runner, directory / "etl")).rows)


def write_again(options: dict[str, str], runner: SparkTaskRunner, directory: Path, guarantee: str) -> list[int]:
    """Replay the source, and restore its export; return how many rounds each has taken."""
    target = ProducerSettings(parse_addresses(options["kafka.bootstrap.servers"]))
    replayed, restored = f"replay-{guarantee}", f"restore-{guarantee}"
    is_exactly_once = GUARANTEES[guarantee]
    # Several rounds of few records. The option that makes rounds so small makes the job slow as well.
    with (
        patch("trio_broker.spark.pipelines.rounds.slice_schedule.DEFAULT_SLICE_RECORDS", ROWS_OF_A_SLICE),
        JobSource.of(read_options(options, Mode.BATCH)) as source,
    ):
        replay_settings = ReplaySettings(
            target,
            directory / f"{replayed}-job",
            replayed,
            with_row_ids=not is_exactly_once,
            is_exactly_once=is_exactly_once,
        )
        restore_settings = RestoreSettings(
            target,
            directory / f"{restored}-job",
            restored,
            with_row_ids=not is_exactly_once,
            is_exactly_once=is_exactly_once,
        )
        return [
            replay(source, replay_settings, options, lambda: KillingRunner(runner, directory / replayed)).rounds,
            restore(
                [directory / "table"], restore_settings, lambda: KillingRunner(runner, directory / restored)
            ).rounds,
        ]


def main(servers: str, directory_name: str) -> None:
    directory = Path(directory_name)
    # Executors write their logs there, and else beside Spark's own files.
    os.environ["SPARK_WORKER_DIR"] = str(directory / "work")
    spark = start_session(directory / "session", master=MASTER, settings=CLUSTER)
    runner = SparkTaskRunner(spark)
    options = {"kafka.bootstrap.servers": servers, "subscribe": SOURCE}
    many_tasks = {"minPartitions": "8"}
    read = scan(spark, {**options, **many_tasks}, directory)
    results: dict[str, object] = {"scan": read, "stream": stream(spark, {**options, **many_tasks}, directory)}
    sink(spark, servers, SINK, len(read), directory)
    with JobSource.of(read_job_options({**options, **many_tasks}, Trigger())) as source:
        results["export"] = export_rows(source, runner, directory)
    with JobSource.of(read_job_options({**options, **many_tasks, "subscribe": JSON_SOURCE}, Trigger())) as source:
        results["etl"] = etl_rows(source, runner, directory)
    results["rounds"] = [write_again(options, runner, directory, guarantee) for guarantee in GUARANTEES]
    print(json.dumps(results))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
