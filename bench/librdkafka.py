"""Bulk loads as librdkafka makes them: records of 100 B and 1 KB, produced, also compressed, and consumed by
confluent-kafka.

librdkafka decides how many records go into a batch and how much a Fetch asks for, as it does for its users. So frames
are smaller than in the loads of raw bytes, and there are more of them. One producer and one consumer live through all
rounds. The client shares the cores with the server and takes one of them: rates are mostly the client's own, the
server's CPU is not.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import cycle, islice
from typing import Any, TypeAlias

import attrs
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.bulk import Moved, measured
from bench.machine import forget_contents
from bench.outcome import Options
from bench.subject import Peer
from bench.wire import MIB, TIMEOUT_MS, BenchError, create_topic

RECORD_BYTES = (100, 1000)
"""Of a record's value; it has no key."""

PRODUCE_RECORDS = {100: 80_000, 1000: 16_000}
"""Sent per round, 8 and 15 MiB; what a round wrote is given back at once, as in ``bench.bulk``."""

CONSUME_RECORDS = {100: 320_000, 1000: 64_000}
"""Read per round from the beginning, 31 and 61 MiB."""

CONSUME_AT_ONCE = 10_000
"""How many records a call of the consumer may return."""

CODECS = ("gzip", "snappy", "lz4", "zstd")

COMPRESSED_VALUES = 1_000
"""Different values of compressed loads: more than the window of any codec but zstd holds of 1 KB."""

SECONDS = TIMEOUT_MS / 1000
"""What a flush, or the next record, may take before the benchmark ends."""

QUIET = {"log_level": 0}

Settings: TypeAlias = Mapping[str, Any]
"""Of librdkafka, by its own names."""

NO_SETTINGS: Settings = {}


@attrs.define
class Sender:
    """Sends records with these values, of one size, in turn to each partition of a topic of its own."""

    topic: str
    values: Sequence[bytes]
    producer: Producer
    server: str
    partitions: int = 1
    failures: list[KafkaError] = attrs.field(factory=list)

    @classmethod
    def to(
        cls, bootstrap_servers: str, topic: str, values: Sequence[bytes], partitions: int = 1, **settings: Any
    ) -> Sender:
        """Make the producer, which waits 5 ms for a batch of 1 MB; keys of ``settings`` have underscores for dots."""
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        # The callback of the whole producer is called for failures alone.
        always = {"bootstrap.servers": bootstrap_servers, "delivery.report.only.error": True, "on_delivery": delivered}
        asked = {key.replace("_", "."): value for key, value in settings.items()}
        config = {**always, **QUIET, **asked}
        return cls(topic, values, Producer(config), config["bootstrap.servers"], partitions, failures)

    def send(self, count: int) -> None:
        """Send ``count`` records and wait until all are acknowledged.

        Raises:
            BenchError: one of them is not.
        """
        produce, topic = self.producer.produce, self.topic
        for value, partition in zip(islice(cycle(self.values), count), cycle(range(self.partitions)), strict=False):
            while True:
                try:
                    produce(topic, value, partition=partition)
                    break
                except BufferError:
                    self.producer.poll(0.01)
        left = self.producer.flush(SECONDS)
        if left or self.failures:
            failed = f"{len(self.failures)} failed: {self.failures[:1]}"
            raise BenchError(f"{self.topic} of {self.server}: {left} records were not acknowledged, {failed}")

    def mib(self, count: int) -> float:
        """What ``count`` records hold."""
        return count * len(self.values[0]) / MIB


def sender_to(
    process: Peer, topic: str, values: Sequence[bytes], codec: str = "none", client: Settings = NO_SETTINGS
) -> Sender:
    """Create ``topic`` and a sender, acks=1 as in the other loads."""
    create_topic(process.port, topic, 1, retention_ms="-1")
    return Sender.to(f"127.0.0.1:{process.port}", topic, values, acks=1, compression_type=codec, **client)


def sending_round(process: Peer, sender: Sender, count: int) -> Moved:
    """Send ``count`` records, see what it costs, and give their memory back."""
    moved = measured(process.pid, sender.mib(count), lambda: sender.send(count))
    forget_topic(process, sender.topic)
    return moved


def forget_topic(process: Peer, topic: str) -> None:
    """Give the memory of the topic's log back."""
    for path in process.data_directory.glob(f"{topic}-*/*.log"):
        forget_contents(path)


@attrs.define
class Reader:
    """Reads the ``count`` records of a topic again and again."""

    process: Peer
    place: TopicPartition
    count: int
    record_bytes: int
    consumer: Consumer

    @classmethod
    def of(cls, process: Peer, topic: str, count: int, record_bytes: int, client: Settings = NO_SETTINGS) -> Reader:
        """Make a consumer in no group."""
        # The poll at the end of the log, in which a round ends, would hold up the first Fetch of the next one.
        settings = {
            "bootstrap.servers": f"127.0.0.1:{process.port}",
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 10,
        }
        return cls(process, TopicPartition(topic, 0, 0), count, record_bytes, Consumer({**settings, **QUIET, **client}))

    def read(self) -> None:
        """Read all records from the first on.

        Raises:
            BenchError: one is missing, or has another size.
        """
        self.consumer.assign([self.place])
        left = self.count
        while left > 0:
            messages = self.consumer.consume(min(left, CONSUME_AT_ONCE), timeout=SECONDS)
            if not messages:
                raise BenchError(f"{left} of {self.count} records did not come")
            for message in (messages[0], messages[-1]):
                if message.error() is not None or len(message.value() or b"") != self.record_bytes:
                    raise BenchError(f"not a record of {self.record_bytes} bytes: {message.error()}")
            left -= len(messages)
        self.consumer.unassign()

    def round(self) -> Moved:
        """Read everything once and see what it costs."""
        return measured(self.process.pid, self.count * self.record_bytes / MIB, self.read)


@contextmanager
def librdkafka_rounds(
    process: Peer,
    options: Options,
    sizes: Sequence[int] = RECORD_BYTES,
    client: Settings = NO_SETTINGS,
    topics: str = "",
) -> Iterator[Mapping[tuple[str, int], Callable[[], Moved]]]:
    """Write what will be read, and yield a round of every load on ``process`` by its name and the bytes of a record.

    ``client`` has settings of the clients above the usual ones; the names of topics begin with ``topics``.
    """
    rounds: dict[tuple[str, int], Callable[[], Moved]] = {}
    for size in sizes:
        sender = sender_to(process, f"{topics}sent-{size}", plain_values(size), client=client)
        # With its second batch Kafka reads the first one's time, which must not have been forgotten by then.
        for _ in range(2):
            sender.send(1)
        rounds["produce", size] = partial(sending_round, process, sender, options.volume(PRODUCE_RECORDS[size]))
    with ExitStack() as stack:
        for size in sizes:
            count = options.volume(CONSUME_RECORDS[size])
            topic = f"{topics}read-{size}"
            sender_to(process, topic, plain_values(size), client=client).send(count)
            reader = Reader.of(process, topic, count, size, client)
            stack.callback(reader.consumer.close)
            rounds["consume", size] = reader.round
        yield rounds


def compressed_rounds(process: Peer, options: Options) -> dict[tuple[str, int], Callable[[], Moved]]:
    """A round of producing by each codec on ``process``, by the codec and the bytes of a record before it."""
    rounds: dict[tuple[str, int], Callable[[], Moved]] = {}
    for size in RECORD_BYTES:
        values = json_values(size)
        for codec in CODECS:
            sender = sender_to(process, f"{codec}-{size}", values, codec)
            for _ in range(2):
                sender.send(1)
            rounds[codec, size] = partial(sending_round, process, sender, options.volume(PRODUCE_RECORDS[size]))
    return rounds


def plain_values(size: int) -> list[bytes]:
    return [bytes(range(100)) * (size // 100)]


def json_values(size: int) -> list[bytes]:
    """The first ``size`` bytes of JSON objects with words and numbers that differ."""
    chance = random.Random(size)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(3, 9))) for _ in range(500)]

    def value(number: int) -> bytes:
        event = {"id": number, "at": 1_700_000_000_000 + chance.randrange(10**9)}
        while len(text := json.dumps(event)) < size:
            event[chance.choice(words)] = chance.randrange(10**6)
        return text[:size].encode()

    return [value(number) for number in range(COMPRESSED_VALUES)]
