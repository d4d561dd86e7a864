"""``write`` and ``writeStream`` with ``format("trio_broker")`` in a real session, one of whose tasks dies halfway."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark.errors import PySparkException

from tests.spark.producer.consumed_records import headers_of, read_back
from tests.spark.topic_records import fill
from tests.waits import terminated, within
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.producer.row_ids import Deduplicator, RowId, find_row_id
from trio_broker.spark.session import make_active, spark_session
from trio_broker.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ENDS_WITHIN_SECONDS = 60
PARTITIONS = 3
_numbers = itertools.count()


@attrs.frozen
class Place:
    """A topic to write to."""

    broker: BrokerThread
    topic: str

    @property
    def options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.broker.bootstrap_servers, "topic": self.topic}

    def read(self) -> dict[int, list[Message]]:
        return read_back(self.broker.bootstrap_servers, self.topic, PARTITIONS)


@pytest.fixture
def place(kafka_broker_session: BrokerThread) -> Place:
    topic = f"sink-{next(_numbers)}"
    kafka_broker_session.create_topic(topic, PARTITIONS)
    return Place(kafka_broker_session, topic)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def values(messages: dict[int, list[Message]]) -> list[bytes | None]:
    return [message.value() for part in messages.values() for message in part]


def test_a_frame_is_written_with_all_its_columns(spark: SparkSession, place: Place) -> None:
    frame = spark.sql(
        "SELECT 'k' AS key, CAST('ä' AS BINARY) AS value, 2 AS partition, timestamp_millis(1600000000123) AS timestamp,"
        " array(named_struct('key', 'h', 'value', CAST('x' AS BINARY))) AS headers, 'ignored' AS more"
    )
    frame.write.format("trio_broker").options(**place.options, includeTimestamp="true").mode("append").save()

    [message] = place.read()[2]
    assert (message.key(), message.value(), message.timestamp()[1]) == (b"k", "ä".encode(), 1_600_000_000_123)
    assert message.headers() == [("h", b"x")]


@pytest.mark.parametrize("column", ["timestamp_millis(1600000000123)", "'a text'"])
def test_the_column_timestamp_is_ignored_as_by_sparks_own_sink(spark: SparkSession, place: Place, column: str) -> None:
    frame = spark.sql(f"SELECT 'v' AS value, 0 AS partition, {column} AS timestamp")
    began_ms = now_ms()
    frame.write.format("trio_broker").options(**place.options).mode("append").save()

    [message] = place.read()[0]
    assert began_ms <= message.timestamp()[1] <= now_ms()


def test_the_format_with_a_hyphen_is_an_error_that_names_the_right_one(spark: SparkSession, place: Place) -> None:
    frame = spark.createDataFrame([("v",)], "value string")
    jobs = [
        lambda: spark.read.format("trio-broker").options(**place.options).load(),
        lambda: spark.readStream.format("trio-broker").options(**place.options).load(),
        lambda: frame.write.format("trio-broker").options(**place.options).mode("append").save(),
    ]
    for job in jobs:
        with pytest.raises(PySparkException, match="the format is called 'trio_broker', with an underscore"):
            job()


@pytest.mark.parametrize("activate", [make_active, lambda _: spark_session()], ids=["make_active", "spark_session"])
def test_a_thread_that_is_not_the_main_one_writes_once_the_session_is_active_there(
    spark: SparkSession, place: Place, tmp_path: Path, activate: Callable[[SparkSession], object]
) -> None:
    def write() -> None:
        activate(spark)
        frame = spark.createDataFrame([("batch",)], "value string")
        frame.write.format("trio_broker").options(**place.options).mode("append").save()
        lines = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        stream = lines.selectExpr("'stream' AS value").writeStream.format("trio_broker").options(**place.options)
        query = stream.option("checkpointLocation", str(tmp_path)).trigger(once=True).start()
        assert terminated(query, ENDS_WITHIN_SECONDS)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()
    assert sorted(value or b"" for value in values(place.read())) == [b"batch", b"stream"]


def test_a_frame_of_several_tasks_is_written_once_and_each_task_in_order(spark: SparkSession, place: Place) -> None:
    frame = spark.range(0, 30_000, 1, 3).selectExpr("CAST(id % 10 AS STRING) AS key", "CAST(id AS STRING) AS value")
    frame.write.format("trio_broker").options(**place.options, deduplicationHeader="true").mode("append").save()

    found = place.read()
    assert sorted(int(value or b"") for value in values(found)) == list(range(30_000))
    for messages in found.values():
        ids = [row_id(message) for message in messages]
        for task in range(3):
            rows = [each.row for each in ids if each.task_id.task == task]
            assert rows == sorted(rows)
    assert {row_id(message).task_id.task for messages in found.values() for message in messages} == {0, 1, 2}


@pytest.mark.parametrize(
    ("mode", "frame", "text"),
    [
        ("overwrite", "SELECT 'v' AS value", "a topic is only ever appended to: write with mode('append')"),
        ("append", "SELECT 'v' AS payload", "there is no column 'value', which becomes the records' value"),
        ("append", "SELECT 'v' AS value, 9 AS partition", "column 'partition' of row 0 of the task is 9; topic"),
    ],
)
def test_errors_reach_the_user_in_words(spark: SparkSession, place: Place, mode: str, frame: str, text: str) -> None:
    writer = spark.sql(frame).write.format("trio_broker").options(**place.options).mode(mode)

    with pytest.raises(Exception) as raised:  # noqa: PT011 (which class it is differs between driver and task)
        writer.save()
    assert text in str(raised.value)


def test_an_unknown_option_is_reported(spark: SparkSession, place: Place) -> None:
    writer = spark.range(1).selectExpr("'v' AS value").write.format("trio_broker").options(**place.options)

    with pytest.raises(Exception, match=r"did you mean 'kafka\.compression\.type'"):
        writer.option("kafka.compression.typ", "zstd").mode("append").save()


def topics_of(place: Place) -> set[str]:
    return set(AdminClient({"bootstrap.servers": place.broker.bootstrap_servers}).list_topics().topics)


def test_a_misspelt_topic_ends_the_job_before_any_task(spark: SparkSession, place: Place) -> None:
    misspelt = place.topic.replace("sink", "snik")
    writer = spark.range(1).selectExpr("'v' AS value").write.format("trio_broker").options(**place.options)

    with pytest.raises(Exception, match="does not exist; did you mean") as raised:
        writer.option("topic", misspelt).mode("append").save()
    assert f"topic {misspelt!r} does not exist; did you mean {place.topic!r}" in str(raised.value)
    assert "Job aborted" not in str(raised.value)
    assert misspelt not in topics_of(place)


def test_a_topic_is_created_where_createtopics_says_so(spark: SparkSession, place: Place) -> None:
    frame = spark.sql("SELECT 'v' AS value")
    options = {**place.options, "topic": f"{place.topic}-new", "createTopics": "true"}
    frame.write.format("trio_broker").options(**options).mode("append").save()

    assert f"{place.topic}-new" in topics_of(place)


# --- Streams ---


def row_id(message: Message) -> RowId:
    found = find_row_id(headers_of(message))
    assert found is not None
    return found


def deduplicated(topic: str, found: dict[int, list[Message]]) -> dict[int, list[bytes | None]]:
    """What a consumer keeps that follows docs/spark-sink.md."""
    deduplicator = Deduplicator()
    return {
        number: [
            message.value()
            for message in messages
            if deduplicator.is_new(TopicPartition(topic, number), row_id(message))
        ]
        for number, messages in found.items()
    }


@attrs.frozen
class Stream:
    """A query from one topic to another, run again and again on one checkpoint."""

    spark: SparkSession
    source: str
    place: Place
    checkpoint: Path

    def run(self, condition: str = "true", **options: str) -> None:
        """Write what is there and meets the condition.

        Raises:
            StreamingQueryException: a task failed.
        """
        given = {
            "kafka.bootstrap.servers": self.place.broker.bootstrap_servers,
            "subscribe": self.source,
            "startingOffsets": "earliest",
        }
        frame = (
            self.spark.readStream.format("trio_broker").options(**given).load().select("key", "value").where(condition)
        )
        query = (
            frame.writeStream.format("trio_broker")
            .options(**{**self.place.options, **options})
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert terminated(query, ENDS_WITHIN_SECONDS)


@pytest.fixture
def stream(spark: SparkSession, place: Place, tmp_path: Path) -> Stream:
    source = f"{place.topic}-from"
    place.broker.create_topic(source, 2)
    return Stream(spark, source, place, tmp_path / "checkpoint")


def allow_records_of(place: Place, max_bytes: int) -> None:
    """What an operator does when a job fails with a record that is too large."""
    entry = ConfigEntry("max.message.bytes", str(max_bytes), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, place.topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": place.broker.bootstrap_servers})
    within(admin.incremental_alter_configs([resource])[resource].result, ENDS_WITHIN_SECONDS)


def test_a_task_that_dies_and_a_restart_leave_each_row_once_for_those_who_deduplicate(
    stream: Stream, place: Place
) -> None:
    """One row in the middle of a task is too large for the topic: what was sent before it stays there."""
    rows = [b"%d" % each for each in range(2000)]
    rows[1200] = b"1200".ljust(50_000)
    for number in range(2):
        fill(place.broker, stream.source, rows[number::2], partition=number)
    small = {"kafka.batch.size": "2000"}
    allow_records_of(place, 10_000)

    with pytest.raises(Exception, match=r"a record of \d+ bytes with its batch is too large: the limit is 10000 bytes"):
        stream.run(**small)
    left_behind = len(values(place.read()))
    allow_records_of(place, 100_000)
    stream.run(**small)

    found = place.read()
    kept = deduplicated(place.topic, found)
    assert left_behind > 0
    # The task beside the one that died may have gone on for a moment.
    assert 2000 + left_behind <= len(values(found)) <= 3000 + left_behind
    assert sorted(int(value or b"") for part in kept.values() for value in part) == list(range(2000))
    for part in kept.values():
        for number in range(2):
            of_one_task = [int(value or b"") for value in part if int(value or b"") % 2 == number]
            assert of_one_task == sorted(of_one_task)


def test_a_stream_in_transactions_has_each_row_once_though_a_task_died_halfway(stream: Stream, place: Place) -> None:
    """As above; but what the task sent before it died is in a transaction that was aborted."""
    rows = [b"%d" % each for each in range(2000)]
    rows[1200] = b"1200".ljust(50_000)
    for number in range(2):
        fill(place.broker, stream.source, rows[number::2], partition=number)
    options = {"kafka.batch.size": "2000", "deliveryGuarantee": "exactly-once"}
    allow_records_of(place, 10_000)

    with pytest.raises(Exception, match=r"a record of \d+ bytes with its batch is too large: the limit is 10000 bytes"):
        stream.run(**options)
    assert values(place.read()) == []
    allow_records_of(place, 100_000)
    stream.run(**options)
    fill(place.broker, stream.source, [b"2000"])
    stream.run(**options)

    assert sorted(int(value or b"") for value in values(place.read())) == list(range(2001))


def test_a_stream_to_a_misspelt_topic_ends_with_its_name(stream: Stream, place: Place) -> None:
    fill(place.broker, stream.source, [b"v"])
    misspelt = place.topic.replace("sink", "snik")

    with pytest.raises(Exception, match=f"topic '{misspelt}' does not exist; did you mean '"):
        stream.run(topic=misspelt)
    assert misspelt not in topics_of(place)
    stream.run(topic=misspelt, createTopics="true")
    assert misspelt in topics_of(place)


@pytest.mark.parametrize("condition", ["false", "value IS NULL"])
def test_a_stream_in_transactions_may_have_no_rows(stream: Stream, place: Place, condition: str) -> None:
    """Spark plans a condition that is never true as a frame without partitions."""
    fill(place.broker, stream.source, [b"v"])
    stream.run(deliveryGuarantee="exactly-once", condition=condition)

    assert values(place.read()) == []


def test_a_batch_with_a_name_is_written_once(spark: SparkSession, place: Place) -> None:
    for _ in range(2):
        frame = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS value")
        options = {**place.options, "deliveryGuarantee": "exactly-once", "writeId": place.topic}
        frame.write.format("trio_broker").options(**options).mode("append").save()

    assert sorted(int(value or b"") for value in values(place.read())) == list(range(100))


def test_the_header_can_be_turned_off(stream: Stream, place: Place) -> None:
    fill(place.broker, stream.source, [b"v"])
    stream.run(deduplicationHeader="false")

    [[message]] = [part for part in place.read().values() if part]
    assert message.headers() is None


def test_complete_mode_appends_the_whole_result_each_time(stream: Stream, place: Place) -> None:
    given: dict[str, Any] = {
        "kafka.bootstrap.servers": place.broker.bootstrap_servers,
        "subscribe": stream.source,
        "startingOffsets": "earliest",
    }
    fill(place.broker, stream.source, [b"a", b"b"])
    for _ in range(2):
        frame = stream.spark.readStream.format("trio_broker").options(**given).load()
        query = (
            frame.groupBy().count().selectExpr("CAST(count AS STRING) AS value")
            .writeStream.format("trio_broker").outputMode("complete").options(**place.options)
            .option("checkpointLocation", str(stream.checkpoint)).trigger(availableNow=True).start()
        )  # fmt: skip
        assert terminated(query, ENDS_WITHIN_SECONDS)
        fill(place.broker, stream.source, [b"c"])

    assert sorted(value or b"" for value in values(place.read())) == [b"2", b"3"]
