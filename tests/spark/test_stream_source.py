"""``spark.readStream.format("trio_broker")`` in a real session: triggers, checkpoints, restarts, progress."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from tests.spark.topic_records import fill, numbers
from tests.waits import terminated, within
from trio_broker.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

ENDS_WITHIN_SECONDS = 60


@attrs.frozen
class Job:
    """A streaming query over one topic, run again and again on the same checkpoint. Rows are their values."""

    spark: SparkSession
    broker: BrokerThread
    topic: str
    directory: Path

    @property
    def checkpoint(self) -> Path:
        return self.directory / "checkpoint"

    def frame(self, **options: str | None) -> DataFrame:
        given: dict[str, str | None] = {
            "kafka.bootstrap.servers": self.broker.bootstrap_servers,
            "subscribe": self.topic,
            "startingOffsets": "earliest",
            **options,
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        return self.spark.readStream.format("trio_broker").options(**chosen).load()

    def run(self, **options: str | None) -> StreamingQuery:
        """Append what is there to Parquet files, and return the query, which has ended. None takes an option away."""
        query = (
            self.frame(**options)
            .selectExpr("CAST(value AS STRING) AS value", "partition", "offset")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start(str(self.directory / "rows"))
        )
        assert terminated(query, ENDS_WITHIN_SECONDS)
        return query

    def rows(self) -> list[bytes]:
        """The values in the files, in the order of partition and offset."""
        frame = self.spark.read.parquet(str(self.directory / "rows"))
        return [row.value.encode() for row in frame.orderBy("partition", "offset").collect()]

    def offsets(self, batch: int) -> Any:
        """What the checkpoint says of the end of a micro-batch."""
        return json.loads((self.checkpoint / "offsets" / str(batch)).read_text().splitlines()[2])


@pytest.fixture
def job(spark: SparkSession, kafka_broker_session: BrokerThread, tmp_path: Path, request: pytest.FixtureRequest) -> Job:
    """A job over a topic of its own with two partitions, which holds nothing yet."""
    topic = "stream-" + request.node.originalname.removeprefix("test_")[:60].replace("_", "-")
    kafka_broker_session.create_topic(topic, 2)
    return Job(spark, kafka_broker_session, topic, tmp_path)


def sizes(query: StreamingQuery) -> list[int]:
    """How many rows each micro-batch had."""
    return [progress.numInputRows for progress in query.recentProgress]


def test_a_query_goes_on_where_it_ended_also_from_sparks_own_source_and_with_new_topics(job: Job) -> None:
    fill(job.broker, job.topic, numbers(0, 5))
    assert sizes(job.run()) == [5]
    # Spark's own source writes the same, but for the spaces.
    file = job.checkpoint / "offsets" / "0"
    file.write_text(file.read_text().replace('": ', '":').replace(", ", ","))
    file.with_name(".0.crc").unlink(missing_ok=True)
    job.broker.create_topic(f"{job.topic}-more")
    fill(job.broker, job.topic, numbers(5, 8), partition=1)
    fill(job.broker, f"{job.topic}-more", numbers(8, 10))
    assert sizes(job.run(subscribe=None, subscribePattern=f"{job.topic}.*")) == [5]
    assert sorted(job.rows()) == numbers(0, 10)
    assert job.offsets(1) == {job.topic: {"0": 5, "1": 3}, f"{job.topic}-more": {"0": 2}}


def test_a_job_that_begins_at_latest_and_runs_now_and_then_misses_nothing_in_between(job: Job) -> None:
    fill(job.broker, job.topic, numbers(100, 105))
    job.run(startingOffsets="latest")
    fill(job.broker, job.topic, numbers(0, 4))
    job.run(startingOffsets="latest")
    assert job.rows() == numbers(0, 4)


def test_micro_batches_are_as_small_as_asked_and_the_backlog_is_reported(job: Job) -> None:
    fill(job.broker, job.topic, numbers(0, 8))
    fill(job.broker, job.topic, numbers(8, 12), partition=1)
    query = job.run(maxOffsetsPerTrigger="6")
    assert sizes(query) == [6, 6]
    first = query.recentProgress[0].sources[0]
    assert json.loads(first.endOffset)[job.topic] == {"0": 4, "1": 2}
    assert json.loads(first.latestOffset) == {job.topic: {"0": 8, "1": 4}}
    assert job.rows() == numbers(0, 12)


def test_a_micro_batch_that_failed_is_read_again_as_it_was(job: Job) -> None:
    fill(job.broker, job.topic, numbers(0, 5))
    seen: list[tuple[int, list[bytes]]] = []

    def write(frame: DataFrame, batch_id: int) -> None:
        seen.append((batch_id, sorted(bytes(row.value) for row in frame.select("value").collect())))
        if len(seen) == 1:
            raise RuntimeError("the sink is full")

    def start() -> StreamingQuery:
        writer = job.frame().writeStream.foreachBatch(write).option("checkpointLocation", str(job.checkpoint))
        return writer.trigger(availableNow=True).start()

    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException, match="the sink is full"):
        terminated(start(), ENDS_WITHIN_SECONDS)
    fill(job.broker, job.topic, numbers(5, 9))
    assert terminated(start(), ENDS_WITHIN_SECONDS)
    assert seen == [(0, numbers(0, 5)), (0, numbers(0, 5)), (1, numbers(5, 9))]


def failing(job: Job, **options: str | None) -> None:
    """Run until the first micro-batch, which is planned, but whose sink fails."""
    from pyspark.errors import StreamingQueryException

    def fail(frame: DataFrame, batch_id: int) -> None:
        raise RuntimeError("the sink is full")

    writer = job.frame(**options).writeStream.foreachBatch(fail).option("checkpointLocation", str(job.checkpoint))
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        terminated(writer.trigger(availableNow=True).start(), ENDS_WITHIN_SECONDS)


def test_a_first_micro_batch_that_failed_is_read_again_though_the_restart_would_begin_elsewhere(job: Job) -> None:
    """The default of a stream is latest."""
    fill(job.broker, job.topic, numbers(0, 5))
    failing(job)
    fill(job.broker, job.topic, numbers(5, 9))
    assert sizes(job.run(startingOffsets=None)) == [5, 4]
    assert job.rows() == numbers(0, 9)


def test_records_of_a_first_micro_batch_that_were_deleted_before_the_restart_are_a_loss(job: Job) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient
    from pyspark.errors import StreamingQueryException

    fill(job.broker, job.topic, numbers(0, 5))
    failing(job)
    admin, below = AdminClient({"bootstrap.servers": job.broker.bootstrap_servers}), TopicPartition(job.topic, 0, 3)
    within(admin.delete_records([below])[below].result, ENDS_WITHIN_SECONDS)
    with pytest.raises(StreamingQueryException, match=f"DataLoss: {job.topic}-0 at offset 0: the records are gone"):
        job.run()
    assert sizes(job.run(failOnDataLoss="false")) == [2]


def test_a_running_query_takes_what_comes_and_survives_a_restart_of_the_broker(
    spark: SparkSession, tmp_path: Path
) -> None:
    with BrokerThread(tmp_path / "data") as broker:
        broker.create_topic("lively", 2)
        job = Job(spark, broker, "lively", tmp_path)
        writer = job.frame().selectExpr("CAST(value AS STRING) AS value").writeStream.format("memory")
        query = writer.queryName("lively").trigger(processingTime="0 seconds").start()
        try:
            for start in (0, 10, 20):
                fill(broker, "lively", numbers(start, start + 10), partition=start // 10 % 2)
                query.processAllAvailable()
                broker.restart()
            values = sorted(int(row.value) for row in spark.table("lively").collect())
        finally:
            query.stop()
    assert values == list(range(30))


def test_records_that_are_gone_end_the_query_or_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    with BrokerThread(tmp_path / "data") as broker:
        broker.create_topic("short", internal_segment_bytes=4096, retention_bytes=4096)
        for part in range(5):
            fill(broker, "short", [b"%d" % part * 500] * 4)
        broker.advance_clock(600)
        job = Job(spark, broker, "short", tmp_path)
        beginning = '{"short": {"0": 1}}'
        with pytest.raises(StreamingQueryException, match="DataLoss: short-0 at offset 1: the records are gone"):
            job.run(startingOffsets=beginning)
        [rest] = sizes(job.run(startingOffsets=beginning, failOnDataLoss="false"))
        assert 0 < rest < 19
        assert len(job.rows()) == rest


def test_errors_of_a_stream_say_what_is_wrong(job: Job) -> None:
    from pyspark.errors import StreamingQueryException

    with pytest.raises(StreamingQueryException, match=r"option 'endingOffsets': a streaming query has no end"):
        job.run(endingOffsets="latest")
