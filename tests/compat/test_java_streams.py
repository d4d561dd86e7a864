"""A Kafka Streams application with ``exactly_once_v2``, which is killed again and again, and so are its brokers.

The application is ``WordCount`` of ``tests/compat/java_streams``: a join with a table, a repartition topic, a store
with a changelog, two threads. It writes a record for each word that it has counted, with the count so far: a word that
was counted twice or not at all is a repetition or a gap in the row 1, 2, 3… of its key.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.checking.cluster_processes import lossy_cluster
from tests.compat.killable_application import (
    APPLICATION,
    BROKER,
    BROKER_SETTINGS,
    WAIT_SECONDS,
    CommittedReader,
    KillableApplication,
    KillableBroker,
)
from tests.compat.transaction_log import protocols_of_commits
from tests.java_programs import STREAMS, compiled_java
from tests.waits import flushed, within
from trio_broker.testing.process import BrokerProcess

PARTITIONS = 2
REGIONS = {f"person {number}": ("north", "south", "west")[number % 3] for number in range(10)}
WORDS = [f"word{number}" for number in range(20)]
WORDS_PER_LINE = 3
SECONDS_BETWEEN_LINES = 0.02

LONGEST_LIFE_SECONDS = 4.0
"""Of an application that is killed before it need have done anything: about as long as a start takes."""

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
        # With several requests in flight librdkafka sends some records twice (docs/client-compatibility.md).
        producer = Producer({
            "bootstrap.servers": self.servers, "enable.idempotence": True, "message.timeout.ms": 0,
            "max.in.flight.requests.per.connection": 1,
        })  # fmt: skip

        def delivered(error: KafkaError | None, _: Any) -> None:
            if error is not None:
                self.failures.append(error)

        while not self._stopping.wait(SECONDS_BETWEEN_LINES):
            person = chance.choice(list(REGIONS))
            words = chance.choices(WORDS, k=WORDS_PER_LINE)
            producer.produce("lines", " ".join(words), person, on_delivery=delivered)
            producer.poll(0)
            self.words.update(f"{REGIONS[person]}/{word}" for word in words)
        assert flushed(producer, WAIT_SECONDS)

    def stop(self) -> None:
        """Stop, and wait until all that was written is acknowledged."""
        self._stopping.set()
        self._thread.join()


@attrs.frozen
class WordCountOutcome:
    """What a run wrote, and what it should have written."""

    counts: Counts
    expected: Counts


def live_through(directory: Path, broker: KillableBroker, victims: Sequence[str]) -> WordCountOutcome:
    """Kill the ``victims`` one after the other while lines are written, and wait for all counts."""
    chance = random.Random(len(victims))
    with ExitStack() as stack:
        java = compiled_java(STREAMS)
        servers, stores = broker.bootstrap_servers, directory / "stores"
        prepare(servers)
        application = KillableApplication(java.class_path, ["WordCount", servers, str(stores)], directory)
        application.start()
        stack.callback(application.kill)
        feeder = LineFeeder(servers)
        feeder.start()
        reader = CommittedReader.of(servers, "counts", PARTITIONS)
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
                    shutil.rmtree(stores, ignore_errors=True)
                application.start()
        seen += see(1)
        feeder.stop()
        assert feeder.failures == []
        see(feeder.words.total() - seen)
        application.stop()
        counts: Counts = defaultdict(list)
        for key, value in CommittedReader.of(servers, "counts", PARTITIONS).read_to_the_end():
            counts[key.decode()].append(int(value))
        expected = {key: list(range(1, count + 1)) for key, count in feeder.words.items()}
        return WordCountOutcome(dict(counts), expected)


def prepare(servers: str) -> None:
    """Create the topics, and write the table of the regions."""
    topics = [NewTopic(name, PARTITIONS) for name in ("lines", "regions", "counts")]
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics(topics).values():
        within(created.result, WAIT_SECONDS)
    producer = Producer({"bootstrap.servers": servers})
    for person, region in REGIONS.items():
        producer.produce("regions", region, person)
    assert flushed(producer, WAIT_SECONDS)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "broker", overrides=BROKER_SETTINGS, has_admin=False) as running:
        yield running


def protocols(broker: BrokerProcess) -> set[int]:
    return set().union(*protocols_of_commits(broker.port).values())


def test_an_application_whose_broker_was_killed_has_counted_each_word_once(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    """Its transactions are of the second protocol."""
    outcome = live_through(tmp_path, broker, [BROKER])
    assert outcome.counts == outcome.expected
    assert protocols(broker) == {2}


@pytest.mark.soak
def test_an_application_that_died_twenty_times_has_counted_each_word_once(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    """So did its broker, ten times in between; each fourth death takes the application's stores with it."""
    victims = [APPLICATION] * 20 + [BROKER] * 10
    random.Random(1).shuffle(victims)
    outcome = live_through(tmp_path, broker, victims)
    assert outcome.counts == outcome.expected
    assert protocols(broker) == {2}


@pytest.mark.soak
def test_an_application_over_a_cluster_that_loses_brokers_has_counted_each_word_once(tmp_path: Path) -> None:
    """It dies in between. ``CHAOS_SEED`` repeats which brokers are lost and when."""
    victims = [BROKER] * 9 + [APPLICATION] * 3
    random.Random(1).shuffle(victims)
    with lossy_cluster(tmp_path / "cluster", BROKER_SETTINGS) as cluster:
        outcome = live_through(tmp_path, cluster, victims)
    assert outcome.counts == outcome.expected
