"""Rows written for Spark's own Kafka sink become the same records with ours: only ``format(...)`` changes.

The same frame is written by both formats, to topics of their own, and read back. Keyed rows have to go to the same
partitions, since both mean Java's hash of the key; and what the one sink refuses, the other has to refuse, too. What
differs on purpose is in ``KNOWN_DIFFERENCES``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import attrs
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests.compat.spark_oracle import KAFKA, OURS, Row, Rows, needs_oracle, run_without_spark
from tests.compat.spark_topics import Cluster
from trio_broker.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, needs_oracle]

PARTITIONS: Final = 5

HEADERS: Final = "array<struct<key:string,value:binary>>"
ALL_COLUMNS: Final = f"key binary, value binary, headers {HEADERS}, topic string, partition int"

Values = tuple[Any, ...]


@pytest.fixture(scope="module")
def cluster(broker: BrokerProcess) -> Cluster:
    return Cluster(broker.bootstrap_servers)


@attrs.frozen
class WriteJob:
    """A frame and how it is written. In its values ``TOPIC`` is the topic, which is another one for each sink.

    ``names`` is what our error names, where the job is refused.
    """

    title: str
    schema: str
    rows: tuple[Values, ...]
    options: dict[str, str] = attrs.field(factory=dict)
    names: str = ""
    mode: str = "append"

    def __str__(self) -> str:
        return self.title.replace(" ", "-")


TOPIC: Final = "TOPIC"
"""Stands for the topic."""

TO_TOPIC: Final = {"topic": TOPIC}

KEYS: Final = ("", "k", "key", "grüße", *(f"key-{number}" for number in range(60)))

WRITTEN: Final = (
    WriteJob(
        "keys as text",
        "key string, value string",
        tuple((key, f"value of {key}") for key in KEYS),
        TO_TOPIC,
    ),
    WriteJob(
        "all columns",
        ALL_COLUMNS,
        tuple(
            (
                None if number % 4 == 0 else b"\xff%d" % number,
                None if number % 5 == 0 else b"v" * (number * 11),
                (None, [], [("a", b"1"), ("a", None), ("", b"")])[number % 3],
                TOPIC,
                number % PARTITIONS if number % 4 == 0 else None,
            )
            for number in range(1, 41)
        ),
    ),
    WriteJob(
        "an option that is stronger than the column",
        "key string, value string, topic string, more string",
        tuple((key, "v", "no-such-topic", "not written") for key in KEYS[:5]),
        TO_TOPIC,
    ),
    WriteJob(
        "compressed",
        "key string, value string",
        tuple((key, "v" * 100) for key in KEYS[:9]),
        {**TO_TOPIC, "kafka.compression.type": "lz4", "kafka.linger.ms": "5", "kafka.acks": "all"},
    ),
)

ONE: Final = (("v",),)

REFUSED: Final = (
    WriteJob("no value", "key string", ONE, TO_TOPIC, "'value'"),
    WriteJob("no topic", "value string", ONE, {}, "topic"),
    WriteJob("a topic of null", "value string, topic string", (("v", None),), {}, "topic"),
    WriteJob("a value of a wrong type", "value int", ((1,),), TO_TOPIC, "'value'.*int"),
    WriteJob("a key of a wrong type", "key double, value string", ((1.0, "v"),), TO_TOPIC, "'key'.*double"),
    WriteJob("a topic of a wrong type", "value string, topic int", (("v", 1),), {}, "'topic'.*int"),
    WriteJob("a partition of a wrong type", "value string, partition string", (("v", "1"),), TO_TOPIC, "'partition'"),
    WriteJob("headers of a wrong type", "value string, headers string", (("v", "h"),), TO_TOPIC, "'headers'.*string"),
    WriteJob(
        "a partition that is not there",
        "value string, partition int",
        (("v", 99),),
        {**TO_TOPIC, "kafka.max.block.ms": "2000"},
        "99.*TOPIC",
    ),
    WriteJob("a partition below none", "value string, partition int", (("v", -1),), TO_TOPIC, "-1"),
    WriteJob("a serializer", "value string", ONE, {**TO_TOPIC, "kafka.value.serializer": "a.B"}, "value.serializer"),
    WriteJob("no brokers", "value string", ONE, {**TO_TOPIC, "kafka.bootstrap.servers": ""}, "bootstrap.servers"),
    WriteJob("to replace what is there", "value string", ONE, TO_TOPIC, "append", mode="overwrite"),
    WriteJob("to write only if nothing is there", "value string", ONE, TO_TOPIC, "Append", mode="ignore"),
)


@attrs.frozen
class Difference:
    """A job that one of the two sinks refuses, and the reason."""

    job: WriteJob
    refused_by: str
    reason: str

    def __str__(self) -> str:
        return str(self.job)


KNOWN_DIFFERENCES: Final = (
    Difference(
        WriteJob("no mode", "value string", ONE, TO_TOPIC, "append", mode="errorifexists"),
        OURS,
        "without a mode Spark refuses to write to a source in Python, before it asks: mode('append') is to be said",
    ),
    Difference(
        WriteJob("a misspelt option", "value string", ONE, {**TO_TOPIC, "kafka.linger": "5"}, "kafka.linger"),
        OURS,
        "it is most likely misspelt, and would be ignored",
    ),
)


def write(spark: SparkSession, cluster: Cluster, kind: str, job: WriteJob, topic: str) -> str | None:
    """Write the frame of ``job`` and return the error, if there was one."""
    rows = [tuple(topic if value == TOPIC else value for value in row) for row in job.rows]
    frame: DataFrame = spark.createDataFrame(rows, job.schema).coalesce(1)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    options |= {name: topic if value == TOPIC else value for name, value in job.options.items()}
    try:
        frame.write.format(kind).options(**options).mode(job.mode).save()
    except (PySparkException, Py4JJavaError) as error:
        return str(error)
    return None


def read_back(cluster: Cluster, topic: str) -> list[Row]:
    """Return partition, key, value and headers of the records, as they lie there."""
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": topic, "includeHeaders": "true"}
    read = run_without_spark(options)
    assert isinstance(read, Rows), read
    return [(row[3], row[0], row[1], row[7]) for row in read.rows]


def topics_for(cluster: Cluster, topic: str) -> dict[str, str]:
    names = {KAFKA: f"{topic}-by-kafka", OURS: f"{topic}-by-ours"}
    for name in names.values():
        cluster.create(name, PARTITIONS)
    return names


@pytest.mark.parametrize("job", WRITTEN, ids=str)
def test_both_sinks_write_the_same_records(spark: SparkSession, cluster: Cluster, topic: str, job: WriteJob) -> None:
    topics = topics_for(cluster, topic)
    for kind, name in topics.items():
        assert write(spark, cluster, kind, job, name) is None
    assert len(read_back(cluster, topics[OURS])) == len(job.rows)
    assert read_back(cluster, topics[OURS]) == read_back(cluster, topics[KAFKA])


@pytest.mark.soak
@pytest.mark.parametrize("job", REFUSED, ids=str)
def test_what_the_one_sink_refuses_the_other_does_too(
    spark: SparkSession, cluster: Cluster, topic: str, job: WriteJob
) -> None:
    cluster.create(topic, PARTITIONS)
    theirs, ours = (write(spark, cluster, kind, job, topic) for kind in (KAFKA, OURS))
    assert theirs is not None
    assert ours is not None
    assert re.search(job.names.replace(TOPIC, topic), ours), ours
    assert read_back(cluster, topic) == []


@pytest.mark.soak
@pytest.mark.parametrize("difference", KNOWN_DIFFERENCES, ids=str)
def test_the_sinks_differ_as_is_known(
    spark: SparkSession, cluster: Cluster, topic: str, difference: Difference
) -> None:
    cluster.create(topic, PARTITIONS)
    errors = {kind: write(spark, cluster, kind, difference.job, topic) for kind in (KAFKA, OURS)}
    assert [kind for kind, error in errors.items() if error is not None] == [difference.refused_by]


@pytest.mark.soak
def test_headers_are_left_out_only_by_ours_and_only_if_configured(
    spark: SparkSession, cluster: Cluster, topic: str
) -> None:
    """``includeHeaders`` is an option of the source there, and nothing to the sink."""
    topics = topics_for(cluster, topic)
    schema, rows = f"value binary, headers {HEADERS}", ((b"v", [("h", b"1")]),)
    written = WriteJob("headers", schema, rows, {**TO_TOPIC, "includeHeaders": "false"})
    for kind, name in topics.items():
        assert write(spark, cluster, kind, written, name) is None
    assert {kind: read_back(cluster, name)[0][-1] for kind, name in topics.items()} == {
        KAFKA: (("h", b"1"),),
        OURS: None,
    }
