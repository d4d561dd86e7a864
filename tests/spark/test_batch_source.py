"""``spark.read.format("trio_broker")`` in a real session: what only Spark can show."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.topic_records import fill, numbers
from trio_broker.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(scope="module")
def filled(kafka_broker_session: BrokerThread) -> BrokerThread:
    """A broker with 1,000 records in two partitions of ``batch-source``."""
    kafka_broker_session.create_topic("batch-source", 2)
    fill(kafka_broker_session, "batch-source", numbers(0, 900), key=b"k", headers=[("h", b"1")])
    fill(kafka_broker_session, "batch-source", numbers(900, 1000), partition=1)
    return kafka_broker_session


@pytest.fixture
def load(spark: SparkSession, filled: BrokerThread) -> Loader:
    return Loader(spark, filled)


class Loader:
    """Loads frames of the topic ``batch-source``."""

    def __init__(self, spark: SparkSession, broker: BrokerThread) -> None:
        self.spark = spark
        self.options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "batch-source"}

    def __call__(self, schema: str | None = None, **options: str) -> DataFrame:
        reader = self.spark.read.format("trio_broker").options(**{**self.options, **options})
        return (reader if schema is None else reader.schema(schema)).load()


def test_a_frame_has_sparks_types_and_every_record(load: Loader) -> None:
    frame = load(includeHeaders="true")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = frame.orderBy("partition", "offset").collect()
    assert [bytes(row.value) for row in rows] == numbers(0, 1000)
    assert [(header.key, bytes(header.value)) for header in rows[0].headers] == [("h", b"1")]
    assert rows[-1].headers is None
    assert rows[-1].key is None


def test_a_schema_chooses_what_is_decoded(load: Loader) -> None:
    frame = load("offset LONG, value BINARY")
    assert frame.columns == ["offset", "value"]
    assert frame.selectExpr("sum(offset)", "sum(length(value))").first() == (899 * 450 + 99 * 50, 2890)
    assert load(columns="partition").groupBy("partition").count().orderBy("partition").collect() == [(0, 900), (1, 100)]


def test_sql_reads_a_view(load: Loader) -> None:
    options = ", ".join(f"'{name}' '{value}'" for name, value in load.options.items())
    load.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW records USING trio_broker OPTIONS ({options})")
    query = "SELECT max(CAST(CAST(value AS STRING) AS INT)) AS most FROM records WHERE partition = 0"
    assert load.spark.sql(query).first() == (899,)
    load.spark.catalog.dropTempView("records")


@pytest.mark.parametrize("is_on", ["true", "false"])
def test_a_filter_of_one_query_does_not_stay_with_the_frame(load: Loader, is_on: str) -> None:
    """The fault of PySpark that keeps us from taking filters: each of these had lost rows."""
    load.spark.conf.set(PUSHDOWN, is_on)
    try:
        frame = load(columns="offset,partition").where("partition = 0")
        late, later = frame.where("offset >= 100"), frame.where("offset >= 500")
        assert late.count() == 800
        assert frame.count() == 900
        assert late.unionAll(frame).count() == 1700
        assert late.unionAll(later).count() == 1200
    finally:
        load.spark.conf.unset(PUSHDOWN)


def test_a_frame_stands_for_what_was_there_when_it_was_first_used(
    spark: SparkSession, kafka_broker_session: BrokerThread
) -> None:
    kafka_broker_session.create_topic("grows")
    fill(kafka_broker_session, "grows", numbers(0, 3))
    reader = spark.read.format("trio_broker").option("kafka.bootstrap.servers", kafka_broker_session.bootstrap_servers)
    frame = reader.option("subscribe", "grows").load()
    assert frame.count() == 3
    fill(kafka_broker_session, "grows", numbers(3, 5))
    assert frame.count() == 3
    assert reader.option("subscribe", "grows").load().count() == 5


def test_nothing_to_read_is_a_frame_without_rows(load: Loader) -> None:
    end = '{"batch-source": {"0": 5, "1": 5}}'
    frame = load(startingOffsets=end, endingOffsets=end)
    assert frame.count() == 0
    assert frame.collect() == []


def test_partitions_are_cut_into_tasks(load: Loader) -> None:
    frame = load(minPartitions="5", columns="offset")
    assert frame.rdd.getNumPartitions() == 5
    assert frame.count() == 1000


def test_files_and_wire_give_equal_frames(spark: SparkSession, tmp_path: Path) -> None:
    with BrokerThread(tmp_path, admin=True) as broker:
        broker.create_topic("both", 2)
        fill(broker, "both", numbers(0, 50), headers=[("h", b"1")], key=b"k")
        fill(broker, "both", numbers(50, 60), partition=1)
        options = {"subscribe": "both", "kafka.bootstrap.servers": broker.bootstrap_servers, "includeHeaders": "true"}
        reader = spark.read.format("trio_broker").options(**options).option("adminUrl", str(broker.admin_url))
        wire, files = reader.load(), reader.option("transport", "files").load()
        assert wire.count() == files.count() == 60
        assert wire.exceptAll(files).count() == files.exceptAll(wire).count() == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOfsets": "earliest"}, "option 'startingofsets': there is no such option; did you mean"),
        ({"startingOffsets": "latest"}, "option 'startingOffsets': a batch query cannot begin at the latest offset"),
        (
            {"endingOffsets": '{"batch-source": {"0": 9999, "1": 1}}'},
            "batch-source-0 at offset 900: records up to 9999",
        ),
    ],
)
def test_errors_of_a_job_say_what_is_wrong_in_their_last_line(
    load: Loader, options: dict[str, str], words: str
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as raised:
        load(**options).count()
    text = str(raised.value)
    last_line = text.split(" SQLSTATE")[0].rstrip().splitlines()[-1]
    assert words in last_line
    assert last_line.startswith("trio_broker.spark.errors.")
    # Spark's own line, one frame of ours with its source, and the error itself.
    assert len(text.splitlines()) < 10, text


def test_what_is_gone_when_a_task_comes_to_read_it_ends_the_query(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    with BrokerThread() as broker:
        broker.create_topic("short", internal_segment_bytes=4096, retention_bytes=4096)
        for _ in range(5):
            fill(broker, "short", [bytes(500)] * 4)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "short"}
        reader = spark.read.format("trio_broker").options(**options)
        strict, lenient = reader.load(), reader.option("failOnDataLoss", "false").load()
        for frame in (strict, lenient):
            assert frame.count() == 20
        broker.advance_clock(600)
        with pytest.raises(PySparkException, match="DataLoss: short-0 at offset 0"):
            strict.count()
        assert 0 < lenient.count() < 20
