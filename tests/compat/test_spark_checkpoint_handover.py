"""A streaming query written for Spark's own Kafka source goes on with ours, from the same checkpoint, and back again.

Both sources cut the same micro-batches, and keep offsets in the checkpoint in the same form. So a query may be stopped,
or fail in the middle of a micro-batch, and be continued by the other source: nothing is lost and nothing comes twice.

One thing is asked for: the first micro-batch is completed by the source that has planned it. Where that begins is in
its end with ours, and in a file of its own (``sources/0/0``) with Spark's. Ours refuses an end that does not say it.
Spark's own finds no such file and begins where its options say: with the same options that is the same at the earliest
offset, while at the latest it lies behind the end of the micro-batch, which it takes for a loss and refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import StreamingQueryException

from tests.compat.spark_oracle import KAFKA, OURS, needs_oracle
from tests.compat.spark_stream_jobs import StreamJob
from tests.compat.spark_topics import Cluster, everything, values
from trio_broker.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, needs_oracle]

BOTH_WAYS: Final = ((KAFKA, OURS), (OURS, KAFKA))
both_ways = pytest.mark.parametrize(("first", "second"), BOTH_WAYS, ids=["to ours", "from ours"])

LENGTHS: Final = (40, 20, 10)
"""Records in the partitions of a new topic: not all alike, so that shares differ."""

JobOf = Callable[..., StreamJob]


@pytest.fixture(scope="module")
def cluster(broker: BrokerProcess) -> Iterator[Cluster]:
    cluster = Cluster(broker.bootstrap_servers)
    yield cluster
    cluster.close()


@pytest.fixture
def job_of(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> JobOf:
    """A function that makes a query with a checkpoint of its own."""

    def make(topic: str, **options: str) -> StreamJob:
        checkpoint = tmp_path / f"checkpoint-{len(list(tmp_path.iterdir()))}"
        checkpoint.mkdir()
        servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
        return StreamJob(spark, checkpoint, {**servers, "subscribe": topic, "startingOffsets": "earliest", **options})

    return make


def fill(cluster: Cluster, topic: str) -> str:
    cluster.create(topic, len(LENGTHS))
    for partition, length in enumerate(LENGTHS):
        cluster.send(topic, partition, everything(0, length))
    return topic


def more(cluster: Cluster, topic: str, partitions: int, *, start: int = 0, count: int = 7) -> None:
    for partition in range(partitions):
        cluster.send(topic, partition, values(start, start + count))


def all_places(topic: str, *ends: int) -> list[tuple[str, int, int]]:
    return [(topic, partition, offset) for partition, end in enumerate(ends) for offset in range(end)]


def after_the_first(topic: str, *ends: int) -> list[tuple[str, int, int]]:
    """What came after ``fill``."""
    return [place for place in all_places(topic, *ends) if place[2] >= LENGTHS[place[1]]]


@pytest.mark.soak
def test_both_sources_cut_the_same_micro_batches(cluster: Cluster, job_of: JobOf, topic: str) -> None:
    """With a limit, over a restart, with a partition that came meanwhile and with nothing new in one."""
    fill(cluster, topic)
    jobs = {kind: job_of(topic, maxOffsetsPerTrigger="30", includeHeaders="true") for kind in (KAFKA, OURS)}
    for kind, job in jobs.items():
        job.run(kind)
    cluster.add_partitions(topic, 4)
    for partition, count in ((0, 2), (1, 9), (3, 33)):
        cluster.send(topic, partition, values(0, count))
    for kind, job in jobs.items():
        job.run(kind)
    assert jobs[OURS].planned() == jobs[KAFKA].planned()
    assert jobs[OURS].rows == jobs[KAFKA].rows
    assert jobs[OURS].places() == all_places(topic, 42, 29, 10, 33)
    assert len(jobs[OURS].planned()) == 5


@both_ways
def test_a_query_goes_on_with_the_other_source(
    cluster: Cluster, job_of: JobOf, topic: str, first: str, second: str
) -> None:
    fill(cluster, topic)
    job = job_of(topic)
    job.run_and_stop(first)
    more(cluster, topic, 3)
    cluster.add_partitions(topic, 4)
    job.run(second, maxOffsetsPerTrigger="15")
    more(cluster, topic, 4, start=7)
    job.run_and_stop(first)
    assert job.places() == all_places(topic, 54, 34, 24, 7)
    assert job.done() == len(job.planned())


@pytest.mark.soak
@both_ways
def test_a_micro_batch_that_failed_with_one_source_is_done_by_the_other(
    cluster: Cluster, job_of: JobOf, topic: str, first: str, second: str
) -> None:
    """The very same one, although there is more to read by then."""
    fill(cluster, topic)
    job = job_of(topic, maxOffsetsPerTrigger="30")
    job.fail_in(1, first)
    [_, planned] = job.planned()
    was = job.rows[1]
    more(cluster, topic, 3)
    job.run(second)
    assert job.planned()[1] == planned
    assert job.rows[1] == was
    assert job.places() == all_places(topic, 47, 27, 17)


@pytest.mark.soak
def test_a_first_micro_batch_of_ours_from_the_earliest_offset_is_done_by_kafkas(
    cluster: Cluster, job_of: JobOf, topic: str
) -> None:
    fill(cluster, topic)
    job = job_of(topic, maxOffsetsPerTrigger="30")
    job.fail_in(0, OURS)
    more(cluster, topic, 3)
    job.run(KAFKA)
    assert job.places() == all_places(topic, 47, 27, 17)


@pytest.mark.soak
@both_ways
def test_a_query_that_began_at_the_latest_offset_goes_on_with_the_other_source(
    cluster: Cluster, job_of: JobOf, topic: str, first: str, second: str
) -> None:
    fill(cluster, topic)
    job = job_of(topic, startingOffsets="latest")
    job.run_and_stop(first)
    assert job.places() == []
    more(cluster, topic, 3)
    job.run(second)
    assert job.places() == after_the_first(topic, 47, 27, 17)


@pytest.mark.soak
@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_a_first_micro_batch_of_kafkas_is_refused_by_ours_and_completed_by_kafkas(
    cluster: Cluster, job_of: JobOf, topic: str, starting: str
) -> None:
    fill(cluster, topic)
    job = job_of(topic, startingOffsets=starting)
    job.fail_in(0, KAFKA)
    more(cluster, topic, 3)
    with pytest.raises(StreamingQueryException, match="the end of the first micro-batch without its beginning"):
        job.run(OURS)
    job.run(KAFKA)
    more(cluster, topic, 3, start=7)
    job.run(OURS)
    everything_since = all_places if starting == "earliest" else after_the_first
    assert job.places() == everything_since(topic, 54, 34, 24)


@pytest.mark.soak
def test_a_first_micro_batch_of_ours_from_the_latest_offset_is_refused_by_kafkas(
    cluster: Cluster, job_of: JobOf, topic: str
) -> None:
    """Nothing is lost by that: ours goes on, and so does the other once an option says that nothing is missing."""
    fill(cluster, topic)
    job = job_of(topic, startingOffsets="latest")
    job.fail_in(0, OURS)
    more(cluster, topic, 3)
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        job.run(KAFKA)
    job.run(KAFKA, failOnDataLoss="false")
    assert job.places() == after_the_first(topic, 47, 27, 17)


@pytest.mark.soak
@both_ways
def test_a_loss_is_reported_by_the_other_source(
    cluster: Cluster, job_of: JobOf, topic: str, first: str, second: str
) -> None:
    """Records that are deleted while a query rests are missed by whichever source goes on, or skipped if it may."""
    fill(cluster, topic)
    job = job_of(topic)
    job.run(first)
    more(cluster, topic, 1)
    cluster.delete_records(topic, 0, 43)
    with pytest.raises(StreamingQueryException, match="failOnDataLoss"):
        job.run(second)
    job.run(second, failOnDataLoss="false")
    lost = {(topic, 0, offset) for offset in (40, 41, 42)}
    assert job.places() == [place for place in all_places(topic, 47, 20, 10) if place not in lost]
