"""A batch written for Spark's own Kafka source reads the same with ours: only ``format(...)`` changes.

Jobs with options of every kind, and with everything that can be wrong with one, are given to both sources, which read
one broker of ours, and then a Kafka with transactions. Both must read the same rows, in as many tasks where the options
say how many, or both must fail; then our error has to name the option or the partition. What differs on purpose is
listed in ``spark_read_jobs.KNOWN_DIFFERENCES``.

Our source runs without Spark here, which is how it would run there but quicker; some jobs go through Spark, and with
``-m soak`` all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import attrs
import pytest

from tests.compat.kafka_process import KafkaProcess
from tests.compat.spark_oracle import (
    KAFKA,
    OURS,
    Failure,
    Rows,
    needs_oracle,
    run,
    run_without_spark,
)
from tests.compat.spark_read_jobs import (
    ANSWERED,
    KNOWN_DIFFERENCES,
    REFUSED,
    Difference,
    ReadJob,
    at,
    by_partition,
    job,
)
from tests.compat.spark_topics import ALL_CODECS, TRANSACTIONS, Cluster, compact, fill, fill_with_transactions
from trio_broker.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, needs_oracle]

THROUGH_SPARK: Final = (
    "all codecs with headers",
    "few records and many tasks",
    "lost records, taken as they are",
    "lost records",
    "offsets of one partition only",
    "a reset",
)
"""Jobs of which the way through Spark is different: rows, no rows, failures of all three steps."""

JOBS: Final = {job.title: job for job in (*ANSWERED, *REFUSED)}

BY_NIGHT: Final = {
    "a pattern for a part of the name",
    "a pattern for whole names",
    "a pattern that nothing matches",
    "a topic named twice",
    "an empty topic",
    "nothing between the ends",
    "offsets of assigned partitions",
    "a time between two records",
    "times without records, at the latest offset",
    "an end after all records",
    "times of a log that has lost its beginning",
    "times are stronger than offsets",
    "fewer tasks than partitions",
    "more tasks than offsets",
    "options in other letters",
    "options of streams, which do nothing",
    "a group of one's own",
    "all of it lost, taken as it is",
}
"""Answered jobs that differ little from another one, which is done by day."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with all the topics."""
    settings = {"log.durability": "page-cache", "log.cleaner.backoff.ms": "20"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), overrides=settings) as broker:
        fill(Cluster(broker.bootstrap_servers))
        compact(Cluster(broker.bootstrap_servers), broker)
        yield broker.bootstrap_servers


def by_kafka(spark: SparkSession, servers: str, job: ReadJob) -> Rows | Failure:
    return run(spark, KAFKA, {"kafka.bootstrap.servers": servers, **job.options})


def by_ours(servers: str, job: ReadJob) -> Rows | Failure:
    return run_without_spark({"kafka.bootstrap.servers": servers, **job.options})


def by_ours_through_spark(spark: SparkSession, servers: str, job: ReadJob) -> Rows | Failure:
    return run(spark, OURS, {"kafka.bootstrap.servers": servers, **job.options})


def assert_same(job: ReadJob, kafka: Rows | Failure, ours: Rows | Failure) -> None:
    assert isinstance(kafka, Rows), kafka
    assert isinstance(ours, Rows), ours
    assert ours.rows == kafka.rows
    if job.sets_tasks:
        assert ours.tasks == kafka.tasks


def assert_refused(job: ReadJob, ours: Rows | Failure) -> None:
    assert isinstance(ours, Failure)
    assert re.search(job.names, ours.text), ours.text


@pytest.mark.parametrize(
    "job",
    [pytest.param(job, marks=[pytest.mark.soak] if job.title in BY_NIGHT else []) for job in ANSWERED],
    ids=str,
)
def test_both_sources_read_the_same_rows(spark: SparkSession, servers: str, job: ReadJob) -> None:
    assert_same(job, by_kafka(spark, servers, job), by_ours(servers, job))


@pytest.mark.parametrize("job", REFUSED, ids=str)
def test_what_the_one_refuses_the_other_does_too(spark: SparkSession, servers: str, job: ReadJob) -> None:
    assert isinstance(by_kafka(spark, servers, job), Failure)
    assert_refused(job, by_ours(servers, job))


@pytest.mark.parametrize("difference", KNOWN_DIFFERENCES, ids=str)
def test_the_sources_differ_as_is_known(spark: SparkSession, servers: str, difference: Difference) -> None:
    theirs, ours = by_kafka(spark, servers, difference.job), by_ours(servers, difference.job)
    assert (str(theirs), str(ours)) == (difference.kafka, difference.ours)
    if isinstance(ours, Failure):
        assert_refused(difference.job, ours)


@pytest.mark.parametrize("title", THROUGH_SPARK)
def test_jobs_come_through_spark_as_they_are(spark: SparkSession, servers: str, title: str) -> None:
    assert_same_through_spark(spark, servers, JOBS[title])


@pytest.mark.soak
@pytest.mark.parametrize("job", JOBS.values(), ids=str)
def test_all_jobs_come_through_spark_as_they_are(spark: SparkSession, servers: str, job: ReadJob) -> None:
    assert_same_through_spark(spark, servers, job)


def assert_same_through_spark(spark: SparkSession, servers: str, job: ReadJob) -> None:
    through_spark, direct = by_ours_through_spark(spark, servers, job), by_ours(servers, job)
    if isinstance(direct, Failure):
        assert_refused(job, through_spark)
    else:
        assert isinstance(through_spark, Rows), through_spark
        assert through_spark.rows == direct.rows
        # Where there is nothing to read, PySpark makes up a task.
        assert through_spark.tasks == max(direct.tasks, 1)


def test_the_columns_have_the_same_types(spark: SparkSession, servers: str) -> None:
    schemas = {
        (kind, headers): spark.read.format(kind)
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": ALL_CODECS, "includeHeaders": headers})
        .load()
        .schema
        for kind in (KAFKA, OURS)
        for headers in ("true", "false")
    }
    for headers in ("true", "false"):
        assert schemas[OURS, headers] == schemas[KAFKA, headers]


# --- Kafka itself, with transactions ---

TRANSACTION_SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "auto.create.topics.enable": "false",
}

IN_TRANSACTIONS: Final = (
    job("all of it", subscribe=TRANSACTIONS, includeHeaders="true"),
    job("cut into many tasks", subscribe=TRANSACTIONS, minPartitions="23"),
    job("from within transactions", subscribe=TRANSACTIONS, startingOffsets=by_partition(transactions={0: 2, 1: 20})),
    job("up to within transactions", subscribe=TRANSACTIONS, endingOffsets=by_partition(transactions={0: 14, 1: 31})),
    job("by time", subscribe=TRANSACTIONS, startingTimestamp=str(at(41))),
    job("all of a cluster", subscribePattern="."),
)


@pytest.fixture(scope="module")
def kafka_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Kafka with transactions, one of them open."""
    with KafkaProcess(tmp_path_factory.mktemp("kafka"), overrides=TRANSACTION_SETTINGS) as kafka:
        open_transaction = fill_with_transactions(Cluster(kafka.bootstrap_servers))
        yield kafka.bootstrap_servers
        del open_transaction


@pytest.mark.soak
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("job", IN_TRANSACTIONS, ids=str)
def test_both_sources_read_the_same_of_transactions(
    spark: SparkSession, kafka_servers: str, job: ReadJob, isolation: str
) -> None:
    job = attrs.evolve(job, options={**job.options, "kafka.isolation.level": isolation})
    ours = by_ours(kafka_servers, job)
    assert_same(job, by_kafka(spark, kafka_servers, job), ours)
    assert isinstance(ours, Rows)
    assert ours.rows


@pytest.mark.soak
def test_isolation_is_what_it_is_called_and_ours_by_default_is_the_stricter(
    spark: SparkSession, kafka_servers: str
) -> None:
    lengths = {}
    for kind in (KAFKA, OURS):
        options = {"kafka.bootstrap.servers": kafka_servers, "subscribe": TRANSACTIONS}
        lengths[kind] = [
            spark.read.format(kind).options(**options, **isolation).load().count()
            for isolation in (
                {},
                {"kafka.isolation.level": "read_uncommitted"},
                {"kafka.isolation.level": "read_committed"},
            )
        ]
    default, uncommitted, committed = lengths[KAFKA]
    assert default == uncommitted > committed
    assert lengths[OURS] == [committed, uncommitted, committed]


@pytest.mark.soak
def test_a_topic_of_kafkas_own_is_refused_and_not_just_empty(spark: SparkSession, kafka_servers: str) -> None:
    """Who names such a topic wants something that does not come, and Spark's own source does not say so."""
    own = job("a topic of Kafka's own", "__transaction_state", subscribe="__transaction_state")
    assert str(by_kafka(spark, kafka_servers, own)) == "0 rows in 0 tasks"
    assert_refused(own, by_ours(kafka_servers, own))
