"""A batch's reader and the data source around it, asked as PySpark asks them, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader, InputPartition
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.spark.topic_records import fill, numbers
from trio_broker.spark.batch_reader import BatchReader
from trio_broker.spark.errors import DataLoss, OptionError, SourceUnavailable
from trio_broker.spark.schema import default_columns
from trio_broker.spark.source import TrioBrokerDataSource
from trio_broker.testing import BrokerThread

NOBODY = {"kafka.bootstrap.servers": "nobody.invalid:9092"}


def source(broker: BrokerThread | None = None, **options: str) -> TrioBrokerDataSource:
    """The data source as PySpark makes it; without a broker, one that cannot be reached."""
    servers = NOBODY if broker is None else {"kafka.bootstrap.servers": broker.bootstrap_servers}
    return TrioBrokerDataSource(CaseInsensitiveDict({**servers, **options}))


TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType().add("key", StringType()).add("value", BinaryType())),
}


def schema_of(*names: str) -> StructType:
    """The schema that a user would give for these columns."""
    return StructType([StructField(name, TYPES[name]) for name in names])


VALUES = schema_of("value")


def read(reader: BatchReader) -> list[dict[str, Any]]:
    """All rows, read by a copy of the reader, as PySpark's workers have it."""
    copy = pickle.loads(pickle.dumps(reader))
    partitions = [pickle.loads(pickle.dumps(each)) for each in reader.partitions()]
    return [row for each in partitions for batch in copy.read(each) for row in batch.to_pylist()]


def values(reader: BatchReader) -> list[bytes]:
    return [row["value"] for row in read(reader)]


@pytest.fixture(scope="module")
def filled(kafka_broker_session: BrokerThread) -> BrokerThread:
    """A broker with 30 records in three partitions of ``batch-reader``, and an empty topic."""
    kafka_broker_session.create_topic("batch-reader", 3)
    kafka_broker_session.create_topic("batch-empty")
    for partition in range(3):
        start = partition * 10
        fill(
            kafka_broker_session,
            "batch-reader",
            numbers(start, start + 10),
            partition=partition,
            key=b"k",
            headers=[("n", b"1"), ("none", None)],
            timestamp_ms=1_700_000_000_000 + partition,
        )
    return kafka_broker_session


# --- What a frame is, before anybody is asked ---


def test_a_frame_has_the_columns_of_sparks_own_kafka_source() -> None:
    assert source(subscribe="a").schema() == (
        "`key` BINARY, `value` BINARY, `topic` STRING, `partition` INT, `offset` BIGINT, `timestamp` TIMESTAMP_LTZ,"
        " `timestampType` INT"
    )
    assert str(source(subscribe="a", includeHeaders="true").schema()).endswith(
        "`headers` ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )


def test_columns_may_be_chosen_by_an_option() -> None:
    assert source(subscribe="a", columns="offset, value").schema() == "`offset` BIGINT, `value` BINARY"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "'subscribe': nothing says what to read"),
        ({"subscribe": "a", "subscribePattern": "b"}, "'subscribe' is given, too"),
        ({"subscribe": "a", "startingOfsets": "earliest"}, "did you mean 'startingOffsets'"),
        ({"subscribe": "a", "startingOffsets": '{"a": 3}'}, "option 'startingOffsets'"),
        ({"subscribe": "a", "columns": "valeu"}, "'valeu' is no column; did you mean value"),
        ({"subscribe": "a", "kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset"),
    ],
)
def test_what_is_wrong_for_batches_and_streams_is_reported_when_a_frame_is_loaded(
    options: dict[str, Any], words: str
) -> None:
    with pytest.raises(OptionError, match=words):
        source(**options).schema()


def test_what_is_wrong_for_one_of_them_is_reported_by_its_reader() -> None:
    stream_only = source(subscribe="a", startingOffsets="latest")
    batch_only = source(subscribe="a", endingOffsets="latest")
    for frame in (stream_only, batch_only):
        frame.schema()
    with pytest.raises(OptionError, match="a batch query cannot begin at the latest offset"):
        stream_only.reader(schema=VALUES)
    with pytest.raises(OptionError, match="a streaming query has no end"):
        batch_only.streamReader(schema=VALUES)


def test_a_stream_is_not_warned_of_what_has_no_effect_in_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    frame = source(subscribe="a", maxOffsetsPerTrigger="5")
    frame.schema()
    frame.streamReader(schema=VALUES)
    assert caplog.text == ""


def test_a_table_for_writing_alone_need_not_say_what_to_read() -> None:
    assert source(topic="a").schema()
    with pytest.raises(OptionError, match="nothing says what to read"):
        source(topic="a").reader(schema=VALUES)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (StructType().add("Value", BinaryType()), "did you mean value"),
        (StructType().add("value", StringType()), "value is of type binary, not string"),
        (StructType(), "names no column"),
    ],
)
def test_a_schema_that_is_no_choice_of_columns_is_refused(schema: StructType, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        source(subscribe="a").reader(schema=schema)


def test_readers_are_made_without_asking_anybody_and_travel() -> None:
    frame = pickle.loads(pickle.dumps(source(subscribe="a")))
    pickle.dumps(frame.reader(schema=VALUES))
    pickle.dumps(frame.streamReader(schema=VALUES))


def test_errors_reach_spark_with_one_frame_of_ours_and_no_cause() -> None:
    with pytest.raises(OptionError) as raised:
        source().schema()
    assert [entry.name for entry in raised.traceback] == [
        "test_errors_reach_spark_with_one_frame_of_ours_and_no_cause",
        "call",
    ]
    assert raised.value.__suppress_context__


def test_there_is_no_filter_push_down() -> None:
    """While PySpark keeps one query's filter for the next, a reader that took any would lose rows."""
    assert BatchReader.pushFilters is DataSourceReader.pushFilters


# --- What it reads ---


def test_every_record_is_a_row_with_all_of_its_columns(filled: BrokerThread) -> None:
    rows = read(
        source(filled, subscribe="batch-reader").reader(schema=schema_of(*default_columns(include_headers=False)))
    )
    assert [row["value"] for row in rows] == numbers(0, 30)
    last = rows[-1]
    assert last["timestamp"].timestamp() == 1_700_000_000.002
    assert {**last, "timestamp": None} == {
        "key": b"k",
        "value": b"29",
        "topic": "batch-reader",
        "partition": 2,
        "offset": 9,
        "timestamp": None,
        "timestampType": 0,
    }


def test_a_schema_chooses_columns_in_its_order(filled: BrokerThread) -> None:
    row = read(source(filled, subscribe="batch-reader").reader(schema=schema_of("offset", "headers")))[7]
    assert list(row) == ["offset", "headers"]
    assert row == {"offset": 7, "headers": [{"key": "n", "value": b"1"}, {"key": "none", "value": None}]}


def test_a_batch_reads_from_the_start_to_the_end_that_are_named(filled: BrokerThread) -> None:
    frame = source(
        filled,
        assign='{"batch-reader": [0, 2]}',
        startingOffsets='{"batch-reader": {"0": 8, "2": -2}}',
        endingOffsets='{"batch-reader": {"0": -1, "2": 1}}',
    )
    assert values(frame.reader(schema=VALUES)) == [b"8", b"9", b"20"]


def test_tasks_are_as_many_as_asked_for(filled: BrokerThread) -> None:
    reader = source(filled, subscribe="batch-reader", minPartitions="6").reader(schema=VALUES)
    assert len(reader.partitions()) == 6
    assert values(reader) == numbers(0, 30)
    assert len(source(filled, subscribe="batch-reader", maxRecordsPerPartition="4").reader(VALUES).partitions()) == 9


def test_an_empty_topic_has_no_tasks_and_the_one_that_spark_makes_up_has_no_rows(filled: BrokerThread) -> None:
    reader = source(filled, subscribe="batch-empty").reader(schema=VALUES)
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


def test_rows_come_in_batches_of_the_size_asked_for(filled: BrokerThread) -> None:
    reader = source(filled, subscribe="batch-reader", batchRows="4").reader(schema=VALUES)
    [first, *_] = reader.partitions()
    assert [batch.num_rows for batch in reader.read(first)] == [4, 4, 2]


# --- What can go wrong when it is planned ---


def test_records_deleted_by_retention_are_an_error_unless_it_does_not_matter(kafka_broker: BrokerThread) -> None:
    kafka_broker.create_topic("short", internal_segment_bytes=4096, retention_bytes=4096)
    for part in range(5):
        fill(kafka_broker, "short", [bytes(500)] * 3 + [b"%d" % part])
    kafka_broker.advance_clock(600)
    options = {"subscribe": "short", "startingOffsets": '{"short": {"0": 0}}', "columns": "value"}
    with pytest.raises(DataLoss, match="short-0 at offset 0: the records are gone, the log begins at"):
        source(kafka_broker, **options).reader(schema=VALUES).partitions()
    rest = values(source(kafka_broker, **options, failOnDataLoss="false").reader(schema=VALUES))
    assert 0 < len(rest) < 20
    assert rest[-1] == b"4"


def test_a_topic_that_is_not_there_is_named(filled: BrokerThread) -> None:
    with pytest.raises(OptionError, match="'subscribe': there is no topic 'nothing'"):
        source(filled, subscribe="nothing").reader(schema=VALUES).partitions()


def test_nobody_at_the_address_is_an_error_that_names_it() -> None:
    once: dict[str, Any] = {"fetchOffset.numRetries": "1"}
    reader = source(subscribe="a", **once).reader(schema=VALUES)
    with pytest.raises(SourceUnavailable, match=r"nobody\.invalid:9092"):
        reader.partitions()


# --- Files ---


@pytest.fixture
def with_admin() -> Iterator[BrokerThread]:
    """A broker that tells of its files, with 30 records in three partitions of ``on-disk``."""
    with BrokerThread(admin=True) as broker:
        broker.create_topic("on-disk", 3)
        for partition in range(3):
            fill(broker, "on-disk", numbers(partition * 10, partition * 10 + 10), partition=partition)
        yield broker


def test_files_give_the_rows_that_the_wire_gives(with_admin: BrokerThread) -> None:
    admin = {"adminUrl": str(with_admin.admin_url)}
    path = {"path": str(with_admin.data_directory)}
    for options in ({"transport": "files", **admin}, {**path, **admin}, {"transport": "wire", **path}):
        reader = source(with_admin, subscribe="on-disk", **options).reader(schema=VALUES)
        assert values(reader) == numbers(0, 30)


def test_files_of_a_stopped_broker_are_read_without_it(with_admin: BrokerThread) -> None:
    with_admin.stop()
    options = {"path": str(with_admin.data_directory), "subscribePattern": "on-.*"}
    frame = TrioBrokerDataSource(CaseInsensitiveDict(options))
    assert values(frame.reader(schema=VALUES)) == numbers(0, 30)


def test_files_of_a_running_broker_are_refused_without_it(with_admin: BrokerThread) -> None:
    frame = TrioBrokerDataSource(CaseInsensitiveDict({"path": str(with_admin.data_directory), "subscribe": "on-disk"}))
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        frame.reader(schema=VALUES).partitions()
