"""A data directory of a real Kafka that was killed, read without it: the rows are those its own consumers got.

Transactions of confluent-kafka's producers that were committed, aborted, and left open, in several segments, some of
them over more than one; and records of no transaction between them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.kafka_process import KafkaProcess
from tests.consumed_messages import consumed
from tests.waits import eventually, flushed, within
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.spark.chunk import Decoding
from trio_broker.spark.errors import OptionError
from trio_broker.spark.files.file_planning import plan_files
from trio_broker.spark.files.offline import OfflineLogs
from trio_broker.spark.options.selection import Subscribe
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.tasks import ReadTask, read_task
from trio_broker.storage import checkpoints, file_names

pytestmark = pytest.mark.soak

TOPIC = "ledger"
LEDGER = TopicPartition(TOPIC, 0)
SEGMENT_BYTES = 1024 * 1024
"""The least that Kafka 4 takes."""

VALUE_BYTES = 30_000
ROUNDS = 40
CHECKPOINT_SECONDS = 30.0
"""Kafka writes high watermarks five times a second here; machines may be slow."""

Row = tuple[int, bytes | None, bytes | None, int]


@attrs.frozen
class Left:
    """What Kafka left, and the rows that its consumers got before: of committed records, and of all."""

    directory: Path
    committed: list[Row]
    everything: list[Row]
    refusal: str


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    directory = tmp_path_factory.mktemp("kafka")
    overrides = {
        "replica.high.watermark.checkpoint.interval.ms": "200",
        "log.index.interval.bytes": "1024",
        "transaction.state.log.num.partitions": "1",
    }
    with KafkaProcess(directory, overrides) as kafka:
        create_topic(kafka.bootstrap_servers)
        unfinished = write_transactions(kafka.bootstrap_servers)
        committed = rows_consumed(kafka.bootstrap_servers, "read_committed")
        everything = rows_consumed(kafka.bootstrap_servers, "read_uncommitted")
        # All but the marker of a control batch are records; the last one of all is, so its offset tells the end.
        wait_for_checkpoint(directory / "data", everything[-1][0] + 1)
        with pytest.raises(OptionError) as refused:
            OfflineLogs([str(directory / "data")])
    del unfinished
    return Left(directory / "data", committed, everything, str(refused.value))


def create_topic(bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    topic = NewTopic(TOPIC, 1, 1, config={"segment.bytes": str(SEGMENT_BYTES)})
    within(admin.create_topics([topic])[TOPIC].result, 30)


def write_transactions(bootstrap_servers: str) -> Producer:
    """Fill the topic. Return the producer whose transaction is open: it would abort it if it went."""

    def producer(name: str) -> Producer:
        made = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": name, "linger.ms": 0})
        made.init_transactions(30)
        return made

    short, long = producer("short"), producer("long")
    plain = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})

    def write(writer: Producer, key: str) -> None:
        writer.produce(TOPIC, key=key.encode(), value=key.encode().ljust(VALUE_BYTES, b"."), partition=0)
        assert flushed(writer, 30)

    for number in range(ROUNDS):
        if number % 10 == 0:
            long.begin_transaction()
        short.begin_transaction()
        write(short, f"short {number}")
        write(long, f"long {number}")
        write(plain, f"plain {number}")
        write(short, f"short {number} again")
        (short.abort_transaction if number % 3 == 0 else short.commit_transaction)(30)
        if number % 10 == 9:
            (long.abort_transaction if number % 20 == 9 else long.commit_transaction)(30)
    short.begin_transaction()
    write(short, "open")
    write(plain, "behind what is open")
    return short


def rows_consumed(bootstrap_servers: str, isolation_level: str) -> list[Row]:
    rows: list[Row] = []
    for message in consumed(bootstrap_servers, [(TOPIC, 0)], start=0, isolation_level=isolation_level):
        offset = message.offset()
        assert offset is not None
        rows.append((offset, message.key(), message.value(), message.timestamp()[1]))
    return rows


def wait_for_checkpoint(directory: Path, offset: int) -> None:
    path = directory / file_names.HIGH_WATERMARK_CHECKPOINT
    eventually(lambda: checkpoints.read_offsets(RealDisk(), path).get(LEDGER) == offset, CHECKPOINT_SECONDS)


@pytest.fixture
def backup(left: Left, tmp_path: Path) -> Iterator[Path]:
    """A copy to damage."""
    copied = tmp_path / "backup"
    shutil.copytree(left.directory, copied, ignore=shutil.ignore_patterns("__*"))
    yield copied
    shutil.rmtree(copied)


def read_rows(directory: Path, *, read_committed: bool = True, tasks: int | None = None) -> list[Row]:
    logs = OfflineLogs([str(directory)], read_committed=read_committed)
    [partition] = logs.partitions(Subscribe((TOPIC,)))
    offsets = OffsetRange(partition, logs.earliest([partition])[partition], logs.latest([partition])[partition])
    decoding = Decoding(("offset", "key", "value", "timestamp"), read_committed=read_committed)
    rows: list[Row] = []
    for task in plan_files([offsets], logs, min_partitions=tasks):
        for batch in read_task(ReadTask(task.offsets, task.transport, decoding)):
            times = [round(each.timestamp() * 1000) for each in batch["timestamp"].to_pylist()]
            columns = (batch[name].to_pylist() for name in ("offset", "key", "value"))
            rows += zip(*columns, times, strict=True)
    return rows


def test_there_is_something_to_tell_apart(left: Left) -> None:
    assert len(left.committed) < len(left.everything)
    assert len(list((left.directory / "ledger-0").glob("*.log"))) > 3
    assert list((left.directory / "ledger-0").glob("*.txnindex"))
    assert not (left.directory / file_names.CLEAN_SHUTDOWN_MARKER).exists()


def test_while_kafka_runs_its_directory_is_refused(left: Left) -> None:
    assert "name it by kafka.bootstrap.servers" in left.refusal


@pytest.mark.parametrize("tasks", [None, 7])
def test_rows_are_those_of_kafkas_consumers(left: Left, tasks: int | None) -> None:
    assert read_rows(left.directory, tasks=tasks) == left.committed
    assert read_rows(left.directory, tasks=tasks, read_committed=False) == left.everything


@pytest.mark.parametrize(
    "lost",
    ["*.snapshot", "*.index", "*.timeindex", "leader-epoch-checkpoint", "partition.metadata"],
)
def test_rows_are_the_same_without_the_files_that_only_help(left: Left, backup: Path, lost: str) -> None:
    gone = list((backup / "ledger-0").glob(lost))
    assert gone
    for path in gone:
        path.unlink()
    assert read_rows(backup) == left.committed


def test_rows_are_the_same_without_checkpoints(left: Left, backup: Path) -> None:
    for path in backup.glob("*-checkpoint"):
        path.unlink()
    assert read_rows(backup) == left.committed


def test_damaged_transaction_indexes_are_made_up_for_by_the_log(left: Left, backup: Path) -> None:
    for path in (backup / "ledger-0").glob("*.txnindex"):
        path.write_bytes(b"damaged")
    assert read_rows(backup) == left.committed


def test_times_are_found_as_kafka_finds_them(left: Left) -> None:
    logs = OfflineLogs([str(left.directory)], read_committed=False)
    for offset, _, _, time_ms in left.everything[::7]:
        [found] = logs.for_times({LEDGER: time_ms}).values()
        assert found is not None
        assert found <= offset
        assert min(row[0] for row in left.everything if row[3] >= time_ms) >= found
