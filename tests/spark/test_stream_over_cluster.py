"""A stream over a cluster that loses brokers and is restarted: each record is written once, by wire and from files.

It is judged by a reader of committed records that was not written here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from tests.compat.cluster_clients import (
    TRANSACTION_STATE,
    WAIT_SECONDS,
    committed_numbers,
    create_topics,
    in_sync,
    kill_leader,
    restart,
    write_numbers,
)
from tests.waits import eventually
from trio_broker.spark.options.write_options import COMMIT_TOPIC
from trio_broker.testing.broker_thread import ADMIN_ON_ANY_PORT
from trio_broker.testing.cluster_thread import ClusterThread, cluster_in_thread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

STEP = 50
"""How many records are written with each thing that happens to the cluster."""


@attrs.define
class Job:
    """A query that copies a topic, and the cluster that it reads and writes."""

    spark: SparkSession
    cluster: ClusterThread
    checkpoint: Path
    transport: str = "wire"
    guarantee: str = "exactly-once"
    written: int = 0

    @property
    def source(self) -> dict[str, str]:
        urls = [str(self.cluster.admin_url_of(each)) for each in self.cluster.broker_ids]
        options = {"kafka.bootstrap.servers": self.cluster.bootstrap_servers, "subscribe": "orders"}
        return options | {"transport": self.transport, "adminUrl": ",".join(urls)}

    def start(self) -> StreamingQuery:
        """Start the query; it goes on where the last one was stopped."""
        stream = self.spark.readStream.format("trio_broker").options(**self.source, startingOffsets="earliest")
        target = {"kafka.bootstrap.servers": self.cluster.bootstrap_servers, "topic": "invoices"}
        writer = stream.load().select("value").writeStream.format("trio_broker").options(**target)
        writer = writer.option("deliveryGuarantee", self.guarantee).option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(processingTime="0 seconds").start()

    def lose(self, query: StreamingQuery, happens: Callable[[], object]) -> None:
        """Write records, let something happen to the cluster while they are copied, and wait until they are."""
        write_numbers(self.cluster, "orders", range(self.written, self.written + STEP))
        self.written += STEP
        happens()
        query.processAllAvailable()

    def check(self) -> None:
        found = committed_numbers(self.cluster, "invoices")
        assert (found if self.guarantee == "exactly-once" else sorted(set(found))) == list(range(self.written))


@pytest.fixture
def cluster() -> Iterator[ClusterThread]:
    """Its coordinators have one partition each: its leader is the coordinator."""
    with cluster_in_thread(
        admin_listener=ADMIN_ON_ANY_PORT, offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1
    ) as running:
        create_topics(running, "orders", "invoices")
        yield running


def test_a_copy_in_transactions_goes_on_when_a_leader_and_the_coordinator_die_and_files_have_the_same(
    spark: SparkSession, cluster: ClusterThread, tmp_path: Path
) -> None:
    job = Job(spark, cluster, tmp_path)
    query = job.start()
    try:
        job.lose(query, lambda: None)
        dead = cluster.leader_of(TRANSACTION_STATE)
        job.lose(query, lambda: cluster.kill(dead))
        restart(cluster, dead)
        job.lose(query, lambda: kill_leader(cluster, "orders"))
    finally:
        query.stop()
    job.check()

    files = spark.read.format("trio_broker").options(**job.source | {"transport": "files"}).load()
    assert sorted(int(row.value) for row in files.select("value").collect()) == list(range(job.written))


# Soak: thirty micro-batches, each of which waits for what happens to the cluster.
@pytest.mark.soak
@pytest.mark.parametrize("transport", ["wire", "files"])
def test_a_copy_in_transactions_goes_on_through_each_loss_and_a_rolling_restart(
    spark: SparkSession, cluster: ClusterThread, tmp_path: Path, transport: str
) -> None:
    lose_each(
        Job(spark, cluster, tmp_path, transport),
        (TRANSACTION_STATE, "orders", COMMIT_TOPIC.required_default, "invoices"),
    )


# Soak: the default run kills a broker under the same producer, in test_producer_broker_crash.
@pytest.mark.soak
def test_a_copy_without_transactions_lacks_nothing_after_each_loss_and_a_rolling_restart(
    spark: SparkSession, cluster: ClusterThread, tmp_path: Path
) -> None:
    lose_each(Job(spark, cluster, tmp_path, guarantee="at-least-once"), ("invoices", "orders", "invoices"))


def lose_each(job: Job, topics: Sequence[str]) -> None:
    """Lose the leaders of ``topics``, then the network of another one, and at last each broker in turn, under a job."""
    cluster = job.cluster
    query = job.start()
    job.lose(query, lambda: None)
    for topic in topics:
        dead = cluster.leader_of(topic)
        job.lose(query, lambda broker=dead: cluster.kill(broker))  # type: ignore[misc]
        restart(cluster, dead)
        # Another life of the query, on its checkpoint.
        query.stop()
        query = job.start()
    # One that its clients still reach, and that answers with what it knew.
    alone = cluster.leader_of("orders")
    job.lose(query, lambda: cluster.partition({alone}, set(cluster.broker_ids) - {alone}))
    cluster.heal()
    eventually(lambda: in_sync(cluster), WAIT_SECONDS)
    for broker_id in cluster.broker_ids:
        job.lose(query, lambda broker=broker_id: cluster.stop_broker(broker))  # type: ignore[misc]
        restart(cluster, broker_id)
    query.stop()
    job.check()
