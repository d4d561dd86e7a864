"""A stream is killed, its broker is killed and restarted, old segments go behind it, and records come all the while.

In the end the files hold every acknowledged record exactly once. The query is a process of its own and ended with
SIGKILL at a random moment; so is the broker. Its last life is in the session of this test run, and reads to the end.
By default all of it happens in that session, where a query can only be stopped: another JVM takes its time.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

import attrs
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from tests.spark.streaming_job import writer
from tests.waits import MOST_TIMES, eventually, flushed, scaled, terminated, within
from trio_broker.testing import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Life: TypeAlias = Callable[[], bool]
"""Tells whether a query is alive."""

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parent.parent.parent
TOPIC = "lives"
PARTITIONS = 3
SEGMENT_BYTES = 32 * 1024
WAIT_SECONDS = 180.0
"""For a session to start and get something done beside everything else that a test machine does."""

RECORDS_AT_ONCE = 100
PAUSE_SECONDS = 0.05


class Sender:
    """Sends numbered records in a thread of its own, and knows which of them were acknowledged."""

    def __init__(self, servers: str) -> None:
        self.acknowledged: list[str] = []
        self.failures: list[str] = []
        self._may_send = threading.Event()
        self._is_over = False
        self._producer = Producer(
            {
                "bootstrap.servers": servers,
                "enable.idempotence": True,
                "message.timeout.ms": MOST_TIMES * 300_000,
                "linger.ms": 5,
                "batch.size": SEGMENT_BYTES // 2,
            }
        )
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._may_send.set()
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over:
            self._may_send.wait()
            for _ in range(RECORDS_AT_ONCE):
                self._send(number)
                number += 1
            self._producer.poll(PAUSE_SECONDS)
            time.sleep(PAUSE_SECONDS)

    def _send(self, number: int) -> None:
        """Send a record, once there is room for it: while the broker is away, the queue may be full."""
        while not self._is_over:
            try:
                self._producer.produce(TOPIC, f"{number:012d}", partition=number % PARTITIONS, on_delivery=self._note)
            except BufferError:
                self._producer.poll(PAUSE_SECONDS)
            else:
                return

    def _note(self, error: object, message: object) -> None:
        if error is None:
            self.acknowledged.append(message.value().decode())  # type: ignore[attr-defined]
        else:
            self.failures.append(str(error))

    @contextmanager
    def silence(self) -> Iterator[None]:
        """Send nothing for a while; everything sent before is acknowledged."""
        self._may_send.clear()
        # What the thread is in the middle of it may finish.
        time.sleep(5 * PAUSE_SECONDS)
        assert flushed(self._producer, WAIT_SECONDS)
        yield
        self._may_send.set()

    def end(self) -> None:
        self.__exit__()
        assert flushed(self._producer, WAIT_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Send no more, also where a test has failed: the thread would go on in the next one, without a broker."""
        self._is_over = True
        self._may_send.set()
        within(self._thread.join, WAIT_SECONDS)


@attrs.define
class Trial:
    """One topic, one query on one checkpoint, and those who make trouble."""

    spark: SparkSession
    broker: BrokerProcess
    directory: Path
    chance: random.Random

    def create_topic(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        topic = NewTopic(TOPIC, PARTITIONS, 1, config={"internal.segment.bytes": str(SEGMENT_BYTES)})
        for done in admin.create_topics([topic]).values():
            within(done.result, WAIT_SECONDS)

    # --- The query ---

    @contextmanager
    def process(self) -> Iterator[Life]:
        """The query in a process, until the end of the block, when it is killed with all that it started."""
        arguments = (self.broker.bootstrap_servers, TOPIC, str(self.directory))
        with (self.directory / "query.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.streaming_job", *arguments],
                cwd=ROOT,
                start_new_session=True,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            )
            try:
                yield lambda: process.poll() is None
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    @contextmanager
    def query(self) -> Iterator[Life]:
        """The query in the session of this test run, until the end of the block, when it is stopped."""
        servers = self.broker.bootstrap_servers
        query = writer(self.spark, servers, TOPIC, self.directory).trigger(processingTime="0 seconds").start()
        try:
            yield lambda: query.isActive
        finally:
            query.stop()

    def last_committed(self) -> int:
        """The last micro-batch that is done, or -1. Their count says nothing: Spark keeps the last hundred."""
        names = (path.name for path in (self.directory / "checkpoint" / "commits").glob("*"))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def read_up_to(self) -> dict[str, int]:
        """Where the last micro-batch that is done ended, by partition."""
        done = self.last_committed()
        if done < 0:
            return {}
        text = (self.directory / "checkpoint" / "offsets" / str(done)).read_text()
        offsets: dict[str, int] = json.loads(text.splitlines()[2])[TOPIC]
        return offsets

    def wait_for_progress(self, is_alive: Life, micro_batches: int) -> None:
        aim = self.last_committed() + micro_batches
        eventually(
            lambda: self.last_committed() >= aim or not is_alive(), WAIT_SECONDS, f"{micro_batches} micro-batches"
        )
        assert is_alive(), "the query has ended; its process leaves a log"

    # --- Trouble ---

    def bounds(self) -> dict[str, tuple[int, int]]:
        """Where each partition begins and ends."""
        consumer = Consumer({"bootstrap.servers": self.broker.bootstrap_servers, "group.id": "watch"})
        try:
            return {
                str(number): consumer.get_watermark_offsets(TopicPartition(TOPIC, number), timeout=scaled(WAIT_SECONDS))
                for number in range(PARTITIONS)
            }
        finally:
            consumer.close()

    def set_retention_bytes(self, size: int) -> None:
        entry = ConfigEntry("retention.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        for done in admin.incremental_alter_configs([resource]).values():
            within(done.result, WAIT_SECONDS)

    def has_rolled(self) -> bool:
        """Whether some partition has a segment that is not the active one, and so can be deleted."""
        directories = (self.broker.data_directory / f"{TOPIC}-{number}" for number in range(PARTITIONS))
        return any(len(list(directory.glob("*.log"))) > 1 for directory in directories)

    def delete_what_was_read(self, sender: Sender) -> None:
        """Let retention take all segments but the active ones, once the query has read them."""
        eventually(self.has_rolled, WAIT_SECONDS, "a second segment")
        with sender.silence():
            ends = {number: end for number, (_, end) in self.bounds().items()}
            eventually(lambda: self.read_up_to() == ends, WAIT_SECONDS, "the query to read everything")
            before = self.bounds()
            self.set_retention_bytes(1)
            eventually(
                lambda: any(self.bounds()[number][0] > start for number, (start, _) in before.items()),
                WAIT_SECONDS,
                "retention",
            )
            self.set_retention_bytes(-1)

    def live_once(self, life: AbstractContextManager[Life], sender: Sender) -> None:
        """One life of the query, with all that can happen to it."""
        with life as is_alive:
            self.wait_for_progress(is_alive, 2)
            self.broker.kill()
            self.broker.start()
            self.delete_what_was_read(sender)
            self.broker.stop()
            self.broker.start()
            self.wait_for_progress(is_alive, 1)
            time.sleep(self.chance.uniform(0, 1))

    def end(self, sender: Sender) -> None:
        """Read to the end, and compare."""
        sender.end()
        assert not sender.failures
        last = (
            writer(self.spark, self.broker.bootstrap_servers, TOPIC, self.directory).trigger(availableNow=True).start()
        )
        assert terminated(last, WAIT_SECONDS)
        frame = self.spark.read.parquet(str(self.directory / "rows")).select("value")
        values = [row.value for row in frame.collect()]
        twice = [value for value, count in Counter(values).items() if count > 1]
        assert not twice, f"{len(twice)} records are there twice: {sorted(twice)[:5]}"
        missing, extra = set(sender.acknowledged) - set(values), set(values) - set(sender.acknowledged)
        assert not missing, f"{len(missing)} acknowledged records are not there: {sorted(missing)[:5]}"
        assert not extra, f"{len(extra)} records are there that were never acknowledged: {sorted(extra)[:5]}"


@pytest.fixture
def make_trial(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[int], Trial]]:
    """Makes the trial with a seed, whose broker runs until the end of the test."""
    settings = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "0"}
    (tmp_path / "query").mkdir()
    with BrokerProcess(tmp_path / "data", settings) as broker:

        def make(seed: int) -> Trial:
            trial = Trial(spark, broker, tmp_path / "query", random.Random(seed))
            trial.create_topic()
            return trial

        yield make


def test_a_stream_stopped_in_the_middle_writes_every_record_exactly_once(make_trial: Callable[[int], Trial]) -> None:
    trial = make_trial(4)
    with Sender(trial.broker.bootstrap_servers) as sender:
        trial.live_once(trial.query(), sender)
        trial.end(sender)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_a_stream_killed_again_and_again_writes_every_record_exactly_once(
    make_trial: Callable[[int], Trial], seed: int
) -> None:
    trial = make_trial(seed)
    with Sender(trial.broker.bootstrap_servers) as sender:
        for _ in range(5):
            trial.live_once(trial.process(), sender)
        trial.end(sender)
