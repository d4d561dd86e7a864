"""What the sink decides in the driver, and what it makes of the context of a task; without a session."""

from __future__ import annotations

import pickle
from uuid import UUID

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tests.client.producer.scripted_logs import ScriptedLogs
from tests.fakes.scripted_kafka import Cluster, ScriptedKafka
from tests.spark.exactly_once.job import COMMITS, Job
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark import sink
from trio_broker.spark.errors import OptionError, SparkJobError
from trio_broker.spark.producer.errors import UnwritableRow
from trio_broker.spark.producer.producer_pool import PRODUCERS
from trio_broker.spark.producer.row_ids import NO_BATCH, RowId, TaskId, find_row_id
from trio_broker.spark.sink import batch_writer, stream_task_id, stream_writer
from trio_broker.testing import BrokerThread

QUERY = UUID("12345678-1234-5678-1234-567812345678")
HEADERS = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))


class FakeContext(TaskContext):
    """What a task's context says."""

    def __new__(cls, *_: object) -> FakeContext:
        """Another one each time: there is one real context to a process."""
        return object.__new__(cls)

    def __init__(self, partition: int = 3, properties: dict[str, str] | None = None) -> None:
        self.partition = partition
        self.properties = properties or {}

    def partitionId(self) -> int:
        return self.partition

    def getLocalProperty(self, key: str) -> str | None:
        return self.properties.get(key)


def in_micro_batch(batch_id: int, partition: int = 3) -> FakeContext:
    return FakeContext(partition, {"sql.streaming.queryId": str(QUERY), "streaming.sql.batchId": str(batch_id)})


def schema(**columns: DataType) -> StructType:
    kind = StructType()
    for name, column in columns.items():
        kind = kind.add(name, column)
    return kind


VALUE = schema(value=StringType())


def options(topic: str | None = "orders", servers: str = "127.0.0.1:9", **more: str) -> CaseInsensitiveDict:
    """As PySpark hands them over: names in lower case."""
    given = {"kafka.bootstrap.servers": servers, **more}
    return CaseInsensitiveDict(given if topic is None else {"topic": topic, **given})


# --- Columns and modes ---


def test_all_columns_of_all_their_types_are_taken():
    kinds = {"topic": StringType(), "partition": IntegerType(), "headers": HEADERS}
    for text in (StringType(), BinaryType()):
        for time in (TimestampType(), DoubleType()):
            batch_writer(
                options(None, includeTimestamp="true"),
                schema(key=text, value=text, timestamp=time, **kinds),
                overwrite=False,
            )


@pytest.mark.parametrize("make", [batch_writer, stream_writer])
def test_a_column_timestamp_may_be_of_any_type_unless_it_is_asked_for(make):
    make(options(), schema(value=StringType(), timestamp=StringType()), overwrite=False)


@pytest.mark.parametrize("make", [batch_writer, stream_writer])
@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"key": StringType()}, "there is no column 'value', which becomes the records' value"),
        ({"Value": StringType()}, "there is no column 'value', which becomes the records' value"),
        ({"value": LongType()}, "column 'value' is of type bigint; it must be string or binary"),
        ({"key": HEADERS}, "column 'key' is of type array<struct<key:string,value:binary>>; it must be string or"),
        ({"partition": LongType()}, "column 'partition' is of type bigint; it must be int"),
        ({"timestamp": TimestampNTZType()}, "column 'timestamp' is of type timestamp_ntz; it must be timestamp or dou"),
        (
            {"headers": ArrayType(StringType())},
            "column 'headers' is of type array<string>; it must be array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_columns_that_cannot_be_written_are_refused_in_the_driver(make, columns: dict[str, DataType], complaint: str):
    kind = schema(**columns) if "key" in columns or "Value" in columns else schema(**{"value": StringType(), **columns})
    if columns == {"key": HEADERS}:
        kind = schema(value=StringType(), **columns)

    with pytest.raises(UnwritableRow) as raised:
        make(options(includeTimestamp="true"), kind, overwrite=False)
    assert str(raised.value).startswith(complaint)


def test_a_topic_must_be_named_somewhere():
    with pytest.raises(UnwritableRow, match="neither an option 'topic' nor a column 'topic'"):
        batch_writer(options(None), VALUE, overwrite=False)
    batch_writer(options(None), schema(value=StringType(), topic=StringType()), overwrite=False)


def test_the_topic_column_is_not_looked_at_where_the_option_beats_it():
    batch_writer(options("orders"), schema(value=StringType(), topic=LongType()), overwrite=False)


def test_other_columns_are_left_alone():
    batch_writer(options(), schema(value=StringType(), offset=LongType(), payload=HEADERS), overwrite=False)


def test_a_topic_is_never_overwritten():
    with pytest.raises(SparkJobError, match=r"a topic is only ever appended to: write with mode\('append'\)"):
        batch_writer(options(), VALUE, overwrite=True)


def test_a_stream_in_complete_mode_appends_its_results_as_sparks_own_sink_does():
    assert stream_writer(options(), VALUE, overwrite=True).options.topic == "orders"


def test_options_are_read_in_the_driver():
    with pytest.raises(OptionError, match=r"kafka\.acks"):
        stream_writer(options(**{"kafka.acks": "5"}), VALUE, overwrite=False)


@pytest.mark.parametrize("make", [batch_writer, stream_writer])
def test_writers_travel_to_the_workers(make):
    writer = make(options(), VALUE, overwrite=False)

    assert pickle.loads(pickle.dumps(writer)).options == writer.options


# --- Tasks ---


def test_a_task_is_known_by_query_micro_batch_and_number():
    assert stream_task_id(in_micro_batch(8)) == TaskId(QUERY, 8, 3)


def test_a_task_of_no_query_cannot_be_distinguished():
    with pytest.raises(SparkJobError, match="the task does not know its query and micro-batch"):
        stream_task_id(FakeContext())


def test_writing_outside_a_task_is_an_error():
    with pytest.raises(SparkJobError, match="rows are written by tasks of Spark, and this is none"):
        stream_writer(options(), VALUE, overwrite=False).write(iter([]))


@pytest.fixture
def server():
    with ScriptedKafka() as server:
        yield server
        PRODUCERS.close()


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


def run_task(writer, context: FakeContext, *batches: pa.RecordBatch, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    return writer.write(iter(batches))


def test_each_attempt_of_a_task_writes_the_same_row_ids(server: ScriptedKafka, monkeypatch: pytest.MonkeyPatch):
    logs = ScriptedLogs(Cluster([server], {"orders": [1]}))
    writer = stream_writer(options(servers=server.address), VALUE, overwrite=False)

    for cut in (1, 2):
        values = [b"a", b"b", b"c"]
        report = run_task(writer, in_micro_batch(8), rows(*values[:cut]), rows(*values[cut:]), monkeypatch=monkeypatch)

    found = [find_row_id(record.headers) for record in logs.logs["orders", 0].records]
    assert found == [RowId(TaskId(QUERY, 8, 3), row) for row in (0, 1, 2)] * 2
    assert report == sink.TaskReport(3, {TopicPartition("orders", 0): 5})


def test_a_batch_has_row_ids_of_its_own_if_asked_for(server: ScriptedKafka, monkeypatch: pytest.MonkeyPatch):
    logs = ScriptedLogs(Cluster([server], {"orders": [1]}))
    writer = batch_writer(options(servers=server.address, deduplicationHeader="true"), VALUE, overwrite=False)

    for _ in range(2):
        run_task(pickle.loads(pickle.dumps(writer)), FakeContext(), rows(b"a"), monkeypatch=monkeypatch)

    found = [find_row_id(record.headers) for record in logs.logs["orders", 0].records]
    assert found == [RowId(TaskId(writer.job_id, NO_BATCH, 3), 0)] * 2


def test_a_batch_has_no_header_unless_asked_for(server: ScriptedKafka, monkeypatch: pytest.MonkeyPatch):
    logs = ScriptedLogs(Cluster([server], {"orders": [1]}))

    run_task(
        batch_writer(options(servers=server.address), VALUE, overwrite=False),
        FakeContext(),
        rows(b"a"),
        monkeypatch=monkeypatch,
    )
    assert logs.logs["orders", 0].records[0].headers == ()


def test_small_micro_batches_go_to_one_partition_after_the_other(
    server: ScriptedKafka, monkeypatch: pytest.MonkeyPatch
):
    logs = ScriptedLogs(Cluster([server], {"orders": [1, 1, 1]}))
    writer = stream_writer(options(servers=server.address), VALUE, overwrite=False)

    for batch_id in range(3):
        run_task(writer, in_micro_batch(batch_id, partition=0), rows(b"%d" % batch_id), monkeypatch=monkeypatch)

    assert [logs.logs["orders", number].values for number in range(3)] == [[b"0"], [b"1"], [b"2"]]


def test_tasks_of_one_worker_share_a_producer(server: ScriptedKafka, monkeypatch: pytest.MonkeyPatch):
    from kafka_wire.messages.init_producer_id import InitProducerIdRequest

    logs = ScriptedLogs(Cluster([server], {"orders": [1]}))
    writer = stream_writer(options(servers=server.address), VALUE, overwrite=False)

    for batch_id in range(3):
        run_task(writer, in_micro_batch(batch_id), rows(b"v"), monkeypatch=monkeypatch)

    assert len(server.requests(InitProducerIdRequest)) == 1
    assert len(logs.logs["orders", 0].values) == 3


def test_a_micro_batch_that_was_decided_is_committed_though_its_repetition_has_no_rows(
    kafka_broker_session: BrokerThread, monkeypatch: pytest.MonkeyPatch
):
    """The driver knows the query by the reports of the tasks alone."""
    kafka_broker_session.create_topic("decided", 1)
    job = Job(kafka_broker_session.bootstrap_servers, "decided", f"stream-{QUERY}")
    job.decide(8, job.write(8, b"a"))
    given = options("decided", job.servers, deliveryGuarantee="exactly-once", commitTopic=COMMITS)
    writer = stream_writer(given, VALUE, overwrite=False)

    report = run_task(writer, in_micro_batch(8), rows(), monkeypatch=monkeypatch)
    PRODUCERS.close()
    writer.commit([report], 8)

    assert job.read() == [b"a"]
