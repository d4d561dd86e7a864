"""Topics with everything in them that a record can have and a log can lack, for jobs that read them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import attrs
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.waits import eventually, flushed, within
from trio_broker.testing.process import BrokerProcess

SECONDS: Final = 60.0
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS: Final = 1_700_000_000_000
"""The time of the first record."""

STEP_MS: Final = 1000
"""Between two records of a partition."""

ALL_CODECS: Final = "all-codecs"
APPEND_TIME: Final = "append-time"
SHORTENED: Final = "shortened"
COMPACTED: Final = "compacted"
EMPTY: Final = "empty"
TRANSACTIONS: Final = "transactions"

PER_CODEC: Final = (8, 4, 2)
"""Records of each codec in the partitions of ``ALL_CODECS``, which so are 40, 20 and 10 offsets long."""

SHORTENED_LENGTH: Final = 20
SHORTENED_START: Final = 12
"""Partition 0 of ``SHORTENED`` has lost what was before; partition 1 has all."""

KEYS: Final[tuple[bytes | None, ...]] = (None, b"", b"k", b"\xff\x00key")
VALUES: Final[tuple[bytes | None, ...]] = (b"v", None, b"", bytes(range(256)), b"text" * 50)
HEADERS: Final[tuple[list[tuple[str, bytes | None]], ...]] = (
    [],
    [("one", b"1")],
    [("null", None), ("empty", b""), ("", b"no name")],
    [("twice", b"1"), ("twice", b"2"), ("gr\u00fc\u00dfe \U0001f600", b"\xff")],
)


@attrs.frozen
class Record:
    """What is sent."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int = START_MS


@attrs.frozen
class Cluster:
    """Makes topics and fills them."""

    bootstrap_servers: str
    admin: AdminClient = attrs.field(init=False, eq=False, repr=False)

    producers: dict[str, Producer] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    @admin.default
    def _connect(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap_servers})

    def create(self, topic: str, partitions: int, **configs: str) -> None:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        # Records as old as these would not stay long.
        settings.setdefault("retention.ms", "-1")
        within(self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result, SECONDS)

    def add_partitions(self, topic: str, total: int) -> None:
        within(self.admin.create_partitions([NewPartitions(topic, total)])[topic].result, SECONDS)
        # A producer does not look again for minutes.
        self.close()

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        wanted = TopicPartition(topic, partition, before)
        within(self.admin.delete_records([wanted])[wanted].result, SECONDS)

    def send(self, topic: str, partition: int, records: Iterable[Record], codec: str = "none") -> None:
        """Send ``records`` in one batch, or a few, and wait until they are there."""
        produce(self._producer(codec), topic, partition, records)

    def close(self) -> None:
        """Let go of all producers, which would otherwise look for the broker when it is gone."""
        self.producers.clear()

    def _producer(self, codec: str) -> Producer:
        """Return the producer of a codec; each is kept, since the first record takes half a second."""
        if codec not in self.producers:
            settings = {"bootstrap.servers": self.bootstrap_servers, "compression.type": codec, "linger.ms": 10}
            self.producers[codec] = Producer(settings)
        return self.producers[codec]


def produce(producer: Producer, topic: str, partition: int, records: Iterable[Record]) -> None:
    """Send ``records`` and wait until they are there."""
    failures: list[object] = []
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition,
            headers=list(record.headers) or None,
            timestamp=record.timestamp_ms,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert flushed(producer, SECONDS)
    assert not failures


def values(start: int, end: int) -> list[Record]:
    """Records whose values are the decimal texts of numbers."""
    return [Record(b"%d" % number, timestamp_ms=START_MS + STEP_MS * number) for number in range(start, end)]


def everything(start: int, end: int) -> list[Record]:
    """Records with every kind of key, value and headers."""
    return [
        Record(
            VALUES[number % len(VALUES)],
            KEYS[number % len(KEYS)],
            HEADERS[number // 2 % len(HEADERS)],
            START_MS + STEP_MS * number,
        )
        for number in range(start, end)
    ]


def fill(cluster: Cluster) -> None:
    """Make all the topics of this page but ``COMPACTED``."""
    cluster.create(ALL_CODECS, len(PER_CODEC))
    for partition, count in enumerate(PER_CODEC):
        for number, codec in enumerate(CODECS):
            cluster.send(ALL_CODECS, partition, everything(count * number, count * (number + 1)), codec)
    cluster.create(APPEND_TIME, 1, message_timestamp_type="LogAppendTime")
    for codec in CODECS:
        cluster.send(APPEND_TIME, 0, everything(0, 3), codec)
    cluster.create(SHORTENED, 2)
    for partition in range(2):
        cluster.send(SHORTENED, partition, values(0, SHORTENED_LENGTH))
    cluster.delete_records(SHORTENED, 0, SHORTENED_START)
    cluster.create(EMPTY, 2)


def compact(cluster: Cluster, broker: BrokerProcess) -> None:
    """Make ``COMPACTED`` and wait until there are gaps in it, also at its beginning."""
    cluster.create(
        COMPACTED, 1, cleanup_policy="compact", internal_segment_bytes="1024", min_cleanable_dirty_ratio="0.01"
    )
    for number in range(12):
        cluster.send(COMPACTED, 0, [Record(b"%d" % number, b"key-%d" % (key % (number + 2))) for key in range(9)])
    checkpoint = broker.data_directory / "cleaner-offset-checkpoint"
    logs = broker.data_directory / f"{COMPACTED}-0"

    def is_compacted() -> bool:
        written = checkpoint.read_text() if checkpoint.exists() else ""
        done = re.search(rf"^{COMPACTED} 0 (\d+)$", written, re.MULTILINE)
        return done is not None and int(done[1]) == max(int(path.stem) for path in logs.glob("*.log"))

    eventually(is_compacted, SECONDS)


def fill_with_transactions(cluster: Cluster) -> Producer:
    """Make ``TRANSACTIONS``: committed ones, aborted ones and plain records, one in the other, and an open one with
    plain records behind it, which stays open as long as the producer that is returned lives."""
    cluster.create(TRANSACTIONS, 2)
    writers = [transactional(cluster, f"writer-{number}") for number in range(2)]
    for number in range(12):
        partition = number % 2
        for index, writer in enumerate(writers):
            writer.begin_transaction()
            produce(writer, TRANSACTIONS, partition, everything(10 * number + index, 10 * number + index + 3))
        cluster.send(
            TRANSACTIONS, partition, everything(10 * number + 5, 10 * number + 7), CODECS[number % len(CODECS)]
        )
        for index, writer in enumerate(writers):
            (writer.commit_transaction if (number + index) % 3 else writer.abort_transaction)(SECONDS)
    writers[0].begin_transaction()
    produce(writers[0], TRANSACTIONS, 0, everything(120, 123))
    cluster.send(TRANSACTIONS, 0, everything(125, 127))
    return writers[0]


def transactional(cluster: Cluster, name: str) -> Producer:
    writer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "linger.ms": 5})
    writer.init_transactions(SECONDS)
    return writer
