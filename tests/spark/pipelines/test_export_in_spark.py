"""Export and ETL in Spark from a broker over the wire: the table is byte-equal to what the producers sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from tests.spark.pipelines.memory_log import PARTITION, InMemory, with_wrong_checksum
from tests.spark.pipelines.memory_topics import two_topics
from tests.spark.pipelines.produced_records import check, send_all
from tests.spark.pipelines.table_rows import read_table, rows_of, target_in
from tests.spark.topic_records import fill
from trio_broker.spark.pipelines.etl.job import etl
from trio_broker.spark.pipelines.export.job import ExportSettings, export, run_export
from trio_broker.spark.pipelines.table_jobs.trigger import Trigger
from trio_broker.spark.pipelines.task_runner import SparkTaskRunner, TaskFailed
from trio_broker.spark.schema import COLUMNS
from trio_broker.spark.tables.target import Format, Target
from trio_broker.testing import BrokerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

TOPICS = ("orders", "clicks")


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with BrokerThread(num_partitions=2) as broker:
        yield broker


def options_of(broker: BrokerThread, *topics: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": ",".join(topics)}


def test_an_export_is_byte_equal_to_what_the_producers_sent(spark: SparkSession, broker: BrokerThread, tmp_path: Path):
    """Two producers, two topics, in batches that cut through the producers' own; Spark reads the same table."""
    send_all(broker.bootstrap_servers, TOPICS, 2, 1500)
    target = Target(Format.PARQUET, str(tmp_path / "table"))
    report = export(spark, options_of(broker, *TOPICS), target, trigger=Trigger(batch_records=1700))
    assert (report.rows, report.batches) == ({"rows": 3000}, 2)
    check(read_table(target), TOPICS, 2, 1500)
    frame = spark.read.parquet(target.name)
    assert frame.count() == 3000
    assert set(frame.columns) == {*COLUMNS, "date"}


@pytest.mark.soak
def test_an_export_of_a_million_records_is_byte_equal_to_what_the_producers_sent(spark: SparkSession, tmp_path: Path):
    topics = ("a", "b", "c")
    with BrokerThread(num_partitions=3) as broker:
        send_all(broker.bootstrap_servers, topics, 5, 200_000)
        target = Target(Format.PARQUET, str(tmp_path / "table"))
        report = export(spark, options_of(broker, *topics), target, trigger=Trigger(batch_records=300_000))
    assert report.rows == {"rows": 1_000_000}
    check(read_table(target), topics, 5, 200_000)


@pytest.mark.soak
@pytest.mark.parametrize("format", [Format.DELTA, Format.ICEBERG])
def test_so_is_one_to_other_formats(spark: SparkSession, broker: BrokerThread, tmp_path: Path, format: Format):
    topics = (f"to-{format.value}",)
    send_all(broker.bootstrap_servers, topics, 5, 2000)
    target = target_in(tmp_path, format)
    export(spark, options_of(broker, *topics), target, checkpoint=tmp_path / "checkpoint")
    table = read_table(target)
    assert table.num_rows == 10_000
    assert len(set(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))) == 10_000


def test_json_becomes_rows_and_dead_letters(spark: SparkSession, broker: BrokerThread, tmp_path: Path):
    fill(broker, "events", [b'{"id": %d}' % number for number in range(50)] + [b"?", None])
    target = Target(Format.PARQUET, str(tmp_path / "events"))
    report = etl(spark, options_of(broker, "events"), "id bigint", target)
    assert report.rows == {"rows": 50, "dead_letters": 2}
    assert sorted(read_table(target)["id"].to_pylist()) == list(range(50))
    assert read_table(target.dead_letters)["value"].to_pylist() == [b"?", None]


def test_a_corrupt_batch_in_one_task_leaves_nothing_in_the_table(spark: SparkSession, tmp_path: Path):
    """The other tasks may still be writing when the job fails. The next run removes what no commit names."""
    target = Target(Format.PARQUET, str(tmp_path / "table"))
    settings = ExportSettings(target)
    whole = two_topics().source(tasks=6)
    log = whole.transports[PARTITION]
    damaged = InMemory((*log.batches[:-1], with_wrong_checksum(log.batches[-1])))
    source = attrs.evolve(whole, transports={**whole.transports, PARTITION: damaged})
    with pytest.raises(TaskFailed, match=r"orders-0 at offset 16: .*CRC"):
        run_export(source, settings, lambda: SparkTaskRunner(spark))
    assert list(Path(target.name).glob("topic=*")) == []
    run_export(whole, settings, lambda: SparkTaskRunner(spark))
    assert rows_of(target) == sorted(two_topics().rows())
    assert list(Path(target.name, "_trio_broker").rglob("*.parquet")) == []
