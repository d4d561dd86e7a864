"""The real commands ``export``, ``etl``, ``replay`` and ``restore``, whose driver or broker is killed in the middle.

The same command is run again until one ends by itself. Then each record is there as docs/pipelines.md promises.
``PIPELINE_KILL_SEEDS=0:20`` takes other moments to kill at.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.spark.pipelines.command_processes import SECONDS, pipeline_process, rows_in, wait_until
from tests.spark.pipelines.table_rows import read_table
from tests.spark.producer.consumed_records import new_values, read_back
from tests.waits import communicate, flushed, scaled, within
from trio_broker.spark.tables.target import Format, Target
from trio_broker.testing import BrokerProcess

# Soak: each test starts Spark two or three times.
pytestmark = [pytest.mark.spark, pytest.mark.soak]

SOURCE, WRITTEN = "given", "written"

PARTITIONS, ROWS = 6, 150
"""Of the topics that are replayed and restored. Two tasks run at once, so that there are three rounds."""

RATE = "100"
"""Records a second: three seconds for a round."""

VALUE_BYTES = 30_000
"""Of a record: a batch has no more than nine, so that a task that is killed has sent some."""

LETTERS, LETTERS_OF_A_BATCH = 8000, 200
"""Records of the topic that is written to tables: forty batches."""

KILLS = 2

EXACTLY_ONCE = ("--exactly-once",)

FIRST_SEED, END_SEED = (int(seed) for seed in os.environ.get("PIPELINE_KILL_SEEDS", "1:2").split(":"))

seeds = pytest.mark.parametrize("seed", range(FIRST_SEED, END_SEED))


@attrs.frozen
class Job:
    """A command. ``done`` returns a number that grows while it works, and ``check`` what it has left at its end."""

    words: tuple[str, ...]
    done: Callable[[], int]
    check: Callable[[], None]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker") as broker:
        yield broker


def values_of(partition: int) -> list[bytes]:
    """Numbers, in the order of the partition, padded with spaces."""
    return [(b"%d" % number).ljust(VALUE_BYTES) for number in range(partition * ROWS, (partition + 1) * ROWS)]


def create(broker: BrokerProcess, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    within(admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result, SECONDS)


def fill(broker: BrokerProcess, topic: str, partition: int, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert flushed(producer, SECONDS)


def export(broker: BrokerProcess, directory: Path) -> Job:
    source = letters(broker)
    target = Target(Format.PARQUET, str(directory / "rows"))

    def check() -> None:
        assert sorted(read_table(target)["value"].to_pylist()) == sorted(map(letter, range(LETTERS)))

    return Job(("export", *source, "--to", str(target)), lambda: rows_in(directory / "rows"), check)


def etl(broker: BrokerProcess, directory: Path) -> Job:
    source = letters(broker)
    rows, dead = (Target(Format.PARQUET, str(directory / name)) for name in ("rows", "rows_dead_letters"))

    def check() -> None:
        ids = read_table(rows)["id"].to_pylist()
        dead_letters = [int(value) for value in read_table(dead)["value"].to_pylist()]
        assert sorted(ids) == [n for n in range(LETTERS) if n % 4 != 3]
        assert sorted(dead_letters) == [n for n in range(LETTERS) if n % 4 == 3]

    words = ("etl", *source, "--schema", "id BIGINT NOT NULL", "--to", str(rows))
    return Job(words, lambda: rows_in(directory / "rows"), check)


def replay(broker: BrokerProcess, directory: Path, further: tuple[str, ...] = ()) -> Job:
    create(broker, SOURCE, PARTITIONS)
    for partition in range(PARTITIONS):
        fill(broker, SOURCE, partition, values_of(partition))
    return writing(broker, directory, "replay", "-b", broker.bootstrap_servers, "--topic", SOURCE, *further)


def restore(broker: BrokerProcess, directory: Path, further: tuple[str, ...] = ()) -> Job:
    """Of two files for each partition, in which its rows lie alternately."""
    files = directory / "files"
    files.mkdir()
    for partition in range(PARTITIONS):
        values = values_of(partition)
        for part in range(2):
            offsets = list(range(part, ROWS, 2))
            columns = {
                "value": pa.array([values[offset] for offset in offsets], pa.binary()),
                "partition": pa.array([partition] * len(offsets), pa.int32()),
                "offset": pa.array(offsets, pa.int64()),
            }
            pq.write_table(pa.table(columns), files / f"{partition}-{part}.parquet")
    return writing(
        broker, directory, "restore", str(files), "--to-bootstrap-server", broker.bootstrap_servers, *further
    )


def writing(broker: BrokerProcess, directory: Path, *words: str) -> Job:
    """A job that writes the values of each partition to a topic."""
    create(broker, WRITTEN, PARTITIONS)
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "t", "isolation.level": "read_uncommitted"}
    )

    def log_ends() -> int:
        places = [ConfluentPartition(WRITTEN, partition) for partition in range(PARTITIONS)]
        return sum(consumer.get_watermark_offsets(place, scaled(SECONDS))[1] for place in places)

    def check() -> None:
        consumer.close()
        found = read_back(broker.bootstrap_servers, WRITTEN, PARTITIONS)
        for partition in range(PARTITIONS):
            assert new_values(WRITTEN, found[partition]) == values_of(partition), partition
        if EXACTLY_ONCE[0] in words:
            assert sum(map(len, found.values())) == PARTITIONS * ROWS

    checkpoint = ("--checkpoint", str(directory / "checkpoint"))
    return Job((*words, "--to-topic", WRITTEN, *checkpoint, "--max-records-per-second", RATE), log_ends, check)


def letters(broker: BrokerProcess) -> tuple[str, ...]:
    """Fill a topic; return the words that say that it is read in many batches."""
    create(broker, SOURCE, 2)
    for partition in range(2):
        fill(broker, SOURCE, partition, [letter(number) for number in range(partition, LETTERS, 2)])
    return ("-b", broker.bootstrap_servers, "--topic", SOURCE, "--batch-records", str(LETTERS_OF_A_BATCH))


def letter(number: int) -> bytes:
    """JSON, but for every fourth record."""
    return b"%d" % number if number % 4 == 3 else b'{"id": %d}' % number


MakeJob = Callable[[BrokerProcess, Path], Job]

JOBS: Mapping[str, MakeJob] = {
    "export": export,
    "etl": etl,
    "replay": replay,
    "replay exactly-once": partial(replay, further=EXACTLY_ONCE),
    "restore": restore,
    "restore exactly-once": partial(restore, further=EXACTLY_ONCE),
}

jobs = pytest.mark.parametrize("make_job", JOBS.values(), ids=JOBS)


def run_to_the_end(job: Job) -> None:
    """Run a command until it ends by itself, and check what it has left."""
    with pipeline_process(*job.words) as process:
        output = communicate(process, SECONDS)[0]
    assert process.returncode == 0, output
    job.check()


@seeds
@jobs
def test_a_job_whose_driver_is_killed_goes_on_and_leaves_what_is_promised(
    broker: BrokerProcess, tmp_path: Path, make_job: MakeJob, seed: int
) -> None:
    chance = random.Random(seed)
    job = make_job(broker, tmp_path)
    with ExitStack() as lives:
        for _ in range(KILLS):
            process = lives.enter_context(pipeline_process(*job.words))
            known = job.done()
            wait_until(lambda known=known: job.done() > known, process)  # type: ignore[misc]
            time.sleep(chance.uniform(0, 1.5))
            process.kill()
            assert process.wait() == -signal.SIGKILL
        run_to_the_end(job)


@seeds
@jobs
def test_a_job_whose_broker_is_killed_survives_it_or_goes_on_and_leaves_what_is_promised(
    broker: BrokerProcess, tmp_path: Path, make_job: MakeJob, seed: int
) -> None:
    chance = random.Random(seed)
    job = make_job(broker, tmp_path)
    with ExitStack() as lives:
        process = lives.enter_context(pipeline_process(*job.words))
        wait_until(lambda: job.done() > 0, process)
        time.sleep(chance.uniform(0, 1.5))
        broker.kill()
        assert process.poll() is None
        time.sleep(chance.uniform(0, 1.0))
        broker.start()
        output = communicate(process, SECONDS)[0]
        assert process.returncode in (0, 1), output
        assert "Traceback" not in output
        run_to_the_end(job)
