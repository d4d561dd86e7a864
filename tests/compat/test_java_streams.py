"""A Kafka Streams application with ``exactly_once_v2``, which is killed again and again, and so is its broker.

The application is ``WordCount`` of ``tests/compat/java_streams``: a join with a table, a repartition topic, a store
with a changelog, two threads. It writes a record for each word that it has counted, with the count so far: a word that
was counted twice or not at all is a repetition or a gap in the row 1, 2, 3… of its key.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.transaction_log import protocols_of_commits
from tests.java_programs import QUICK_START, STREAMS, Java, compiled_java
from trio_broker.testing.process import BrokerProcess

SETTINGS = {
    "log.durability": "page-cache",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "transaction.state.log.num.partitions": "1",
}

PARTITIONS = 2
REGIONS = {f"person {number}": ("north", "south", "west")[number % 3] for number in range(10)}
WORDS = [f"word{number}" for number in range(20)]
WORDS_PER_LINE = 3
SECONDS_BETWEEN_LINES = 0.02

PATIENCE_SECONDS = 120.0
"""How long the application may take until a word comes out of it. A start takes some five seconds; one whose stores are
lost waits for the transaction of the one before to time out, which takes ten."""

LONGEST_LIFE_SECONDS = 4.0
"""Of an application that is killed before it need have done anything: about as long as a start takes."""

APPLICATION, BROKER = "application", "broker"

Counts = dict[str, list[int]]
"""What was written under each key, in order."""


@attrs.define
class LineFeeder:
    """Writes lines of random words until it is stopped, through restarts of the broker."""

    servers: str
    words: Counter[str] = attrs.field(factory=Counter)
    """How often each region's word was written."""
    failures: list[KafkaError] = attrs.field(factory=list)
    _stopping: threading.Event = attrs.field(factory=threading.Event)
    _thread: threading.Thread = attrs.field(init=False)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="line feeder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        chance = random.Random(1)
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "message.timeout.ms": 0})

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                self.failures.append(error)

        while not self._stopping.wait(SECONDS_BETWEEN_LINES):
            person = chance.choice(list(REGIONS))
            words = chance.choices(WORDS, k=WORDS_PER_LINE)
            producer.produce("lines", " ".join(words), person, on_delivery=delivered)
            producer.poll(0)
            self.words.update(f"{REGIONS[person]}/{word}" for word in words)
        assert producer.flush(PATIENCE_SECONDS) == 0

    def stop(self) -> None:
        """Stop, and wait until all that was written is acknowledged."""
        self._stopping.set()
        self._thread.join()


@attrs.define
class StreamsApplication:
    """The application's process, which can be started again."""

    java: Java
    servers: str
    directory: Path
    started: int = 0
    _process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> Path:
        return self.directory / f"application-{self.started}.txt"

    @property
    def state_directory(self) -> Path:
        return self.directory / "state"

    def start(self) -> None:
        self.started += 1
        command = ["java", *QUICK_START, "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        command += ["-cp", self.java.class_path, "WordCount", self.servers, str(self.state_directory)]
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def check_alive(self) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.output.read_text()[-4000:]

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End it cleanly: it commits what it has done."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(PATIENCE_SECONDS)


@attrs.frozen
class CountReader:
    """Reads what is committed of the output; a new one begins at its beginning."""

    consumer: Consumer

    @classmethod
    def of(cls, servers: str) -> CountReader:
        consumer = Consumer({
            "bootstrap.servers": servers, "group.id": "none", "enable.auto.commit": False,
            "isolation.level": "read_committed", "enable.partition.eof": True,
        })  # fmt: skip
        consumer.assign([TopicPartition("counts", index, OFFSET_BEGINNING) for index in range(PARTITIONS)])
        return cls(consumer)

    def wait_for(self, records: int, while_true: Callable[[], None]) -> None:
        """Read ``records`` more."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while records > 0:
            while_true()
            assert time.monotonic() < deadline, f"{records} records never came"
            message = self.consumer.poll(0.2)
            records -= message is not None and message.error() is None

    def read_to_the_end(self) -> Counts:
        found: Counts = defaultdict(list)
        ended: set[int | None] = set()
        while len(ended) < PARTITIONS:
            message = self.consumer.poll(PATIENCE_SECONDS)
            assert message is not None
            key, value, error = message.key(), message.value(), message.error()
            if error is None:
                assert key is not None
                assert value is not None
                found[key.decode()].append(int(value))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return dict(found)


@attrs.frozen
class Outcome:
    """What a run wrote, what it should have written, and in which versions of the protocol it committed."""

    counts: Counts
    expected: Counts
    protocols: set[int]


def live_through(directory: Path, victims: Sequence[str]) -> Outcome:
    """Kill the ``victims`` one after the other while lines are written, and wait for all counts."""
    chance = random.Random(len(victims))
    with ExitStack() as stack:
        java = compiled_java(STREAMS)
        broker = stack.enter_context(BrokerProcess(directory / "broker", overrides=SETTINGS))
        servers = broker.bootstrap_servers
        prepare(servers)
        application = StreamsApplication(java, servers, directory)
        stack.callback(application.kill)
        application.start()
        feeder = LineFeeder(servers)
        feeder.start()
        reader = CountReader.of(servers)
        stack.callback(reader.consumer.close)
        seen = 0

        def see(records: int) -> int:
            reader.wait_for(records, application.check_alive)
            return records

        for number, victim in enumerate(victims):
            if victim == APPLICATION and number % 3 == 2:
                time.sleep(chance.uniform(0, LONGEST_LIFE_SECONDS))
            else:
                seen += see(chance.randint(1, 300))
            application.check_alive()
            if victim == BROKER:
                broker.kill()
                broker.start()
            else:
                application.kill()
                if number % 4 == 3:
                    shutil.rmtree(application.state_directory, ignore_errors=True)
                application.start()
        seen += see(1)
        feeder.stop()
        assert feeder.failures == []
        see(feeder.words.total() - seen)
        application.stop()
        counts = CountReader.of(servers).read_to_the_end()
        expected = {key: list(range(1, count + 1)) for key, count in feeder.words.items()}
        return Outcome(counts, expected, set().union(*protocols_of_commits(broker.port).values()))


def prepare(servers: str) -> None:
    """Create the topics, and write the table of the regions."""
    topics = [NewTopic(name, PARTITIONS, 1) for name in ("lines", "regions", "counts")]
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics(topics).values():
        created.result(PATIENCE_SECONDS)
    producer = Producer({"bootstrap.servers": servers})
    for person, region in REGIONS.items():
        producer.produce("regions", region, person)
    assert producer.flush(PATIENCE_SECONDS) == 0


def test_an_application_whose_broker_was_killed_has_counted_each_word_once(tmp_path: Path) -> None:
    """Its transactions are of the second protocol."""
    outcome = live_through(tmp_path, [BROKER])
    assert outcome.counts == outcome.expected
    assert outcome.protocols == {2}


@pytest.mark.soak
def test_an_application_that_died_twenty_times_has_counted_each_word_once(tmp_path: Path) -> None:
    """So did its broker, ten times in between; each fourth death takes the application's stores with it."""
    victims = [APPLICATION] * 20 + [BROKER] * 10
    random.Random(1).shuffle(victims)
    outcome = live_through(tmp_path, victims)
    assert outcome.counts == outcome.expected
    assert outcome.protocols == {2}
