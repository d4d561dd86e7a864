"""Reading over the wire from Kafka itself: transactions of all ends, compaction, append time, the Java producer.

The oracle is librdkafka's consumer: the same rows have to come from the same broker, in every size of answers and
however a range is cut into tasks. What our own broker cannot have yet, transactions, is read here.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import attrs
import pytest
from confluent_kafka import OFFSET_BEGINNING, Message, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.kafka_process import KafkaProcess
from tests.consumed_messages import consumed
from tests.java_programs import Java
from tests.waits import TimeLeft, eventually, flushed, within
from trio_broker.client.address import parse_addresses
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.chunk import Decoding
from trio_broker.spark.decoder import Engine, available_engine, decode
from trio_broker.spark.errors import DataLoss
from trio_broker.spark.options.kafka_settings import KafkaSettings
from trio_broker.spark.options.selection import Subscribe, SubscribePattern
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.schema import COLUMNS
from trio_broker.spark.wire.cluster import KafkaCluster
from trio_broker.spark.wire.transport import WireTransport

SECONDS: Final = 60.0
SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "50",
    "log.retention.ms": "-1",  # the records' times are long ago
    "auto.create.topics.enable": "false",
}
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
FETCH_BYTES: Final = (1, 700, 8 * 1024 * 1024)
"""One batch in each answer, some, and all of them in one."""

CUTS: Final = (1, 7)
"""Into how many tasks a range is cut."""

SHORT_SEGMENT_MS: Final = "5"
"""By the time of the records, so that every few batches, and every marker, begin a segment. Kafka takes no smaller
segments by bytes than of a megabyte."""

TRANSACTIONS: Final = 30
TRANSACTIONAL_PRODUCERS: Final = 3

OPEN_MS: Final = 600_000
"""Below ``transaction.max.timeout.ms``, a quarter of an hour."""

Row = dict[str, Any]
every_isolation = pytest.mark.parametrize("read_committed", [True, False], ids=["committed", "uncommitted"])
ENGINES: Final = tuple(dict.fromkeys((Engine.PLAIN, available_engine())))
every_engine = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.value)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    with KafkaProcess(tmp_path_factory.mktemp("kafka"), overrides=SETTINGS) as process:
        yield process


# --- Writing and the oracle ---


def create(kafka: KafkaProcess, topic: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    within(admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result, SECONDS)


def producer_of(kafka: KafkaProcess, **settings: Any) -> Producer:
    return Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0, "enable.idempotence": True}
        | {key.replace("_", "."): value for key, value in settings.items()}
    )


def rows_consumed(kafka: KafkaProcess, topic: str, *, read_committed: bool, start: int = OFFSET_BEGINNING) -> list[Row]:
    """The rows of a topic as librdkafka sees them."""
    isolation = "read_committed" if read_committed else "read_uncommitted"
    # The end of a partition is known after an empty answer.
    quickly = {"fetch_wait_max_ms": 20}
    return [
        row_of(message)
        for message in consumed(
            kafka.bootstrap_servers, [(topic, 0)], start=start, isolation_level=isolation, **quickly
        )
    ]


def row_of(message: Message) -> Row:
    timestamp_type, timestamp_ms = message.timestamp()
    headers = list[Any](message.headers() or [])
    return {
        "key": message.key(),
        "value": message.value(),
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp_ms,
        "timestampType": timestamp_type - 1,  # librdkafka counts from 1
        "headers": [{"key": key, "value": value} for key, value in headers] if headers else None,
    }


# --- Reading ---


@attrs.frozen
class Reader:
    """Reads a topic as tasks do."""

    kafka: KafkaProcess
    read_committed: bool
    engine: Engine

    @property
    def settings(self) -> KafkaSettings:
        return KafkaSettings(parse_addresses(self.kafka.bootstrap_servers))

    def cluster(self) -> KafkaCluster:
        return KafkaCluster(self.settings, read_committed=self.read_committed, retries=3, retry_interval_ms=10)

    def whole(self, topic: str) -> OffsetRange:
        cluster = self.cluster()
        [partition] = cluster.partitions(Subscribe((topic,)))
        offsets = OffsetRange(
            partition, cluster.earliest([partition])[partition], cluster.latest([partition])[partition]
        )
        cluster.close()
        return offsets

    def rows(self, offsets: OffsetRange, max_bytes: int = FETCH_BYTES[-1], **options: Any) -> list[Row]:
        kafka = attrs.evolve(self.settings, max_partition_fetch_bytes=max_bytes)
        transport = WireTransport(kafka, read_committed=self.read_committed, poll_timeout_ms=20_000, **options)
        decoding = Decoding(columns=COLUMNS, read_committed=self.read_committed)
        batches = decode(transport.chunks(offsets), offsets, decoding, engine=self.engine)
        rows = [row for batch in batches for row in batch.to_pylist()]
        for row in rows:
            row["timestamp"] = round(row["timestamp"].timestamp() * 1000)
        return rows

    def in_tasks(self, whole: OffsetRange, tasks: int, max_bytes: int) -> list[Row]:
        return [row for part in cut(whole, tasks) for row in self.rows(part, max_bytes)]


def cut(whole: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    bounds = [whole.start_offset + whole.offset_count * part // parts for part in range(parts + 1)]
    for start, end in pairwise(bounds):
        yield OffsetRange(whole.partition, start, end)


def assert_same_rows(reader: Reader, topic: str, *, cuts: Sequence[int] = CUTS) -> list[Row]:
    """Every size of answers, in however many tasks, gives the rows that librdkafka's consumer gets; returns them."""
    wanted = rows_consumed(reader.kafka, topic, read_committed=reader.read_committed)
    assert wanted, "the test has something to read"
    whole = reader.whole(topic)
    assert whole.start_offset <= wanted[0]["offset"]
    assert wanted[-1]["offset"] < whole.end_offset
    for tasks in cuts:
        for max_bytes in FETCH_BYTES:
            assert reader.in_tasks(whole, tasks, max_bytes) == wanted, f"{tasks} tasks, {max_bytes} bytes"
    return wanted


# --- Transactions ---


@pytest.fixture(scope="module")
def transactions(kafka: KafkaProcess) -> Iterator[str]:
    """Transactions of several producers in each other's way, a third of them aborted, and plain records between them;
    one is open at the end, and plain records lie behind its first."""
    topic = "transactions"
    create(kafka, topic, segment_ms=SHORT_SEGMENT_MS)
    chance = random.Random(11)
    plain = producer_of(kafka, compression_type="lz4")
    producers = [
        # One stays open while the tests of this module last.
        producer_of(
            kafka,
            transactional_id=f"writer-{number}",
            compression_type=CODECS[number],
            transaction_timeout_ms=OPEN_MS,
        )
        for number in range(TRANSACTIONAL_PRODUCERS)
    ]
    for producer in producers:
        producer.init_transactions(SECONDS)
    is_open = [False] * len(producers)
    ended = number = 0
    while ended < TRANSACTIONS:
        which = chance.randrange(len(producers) + 1)
        if which == len(producers):
            send(plain, topic, number, chance.randint(1, 5), b"plain")
        elif not is_open[which]:
            producers[which].begin_transaction()
            is_open[which] = True
        elif chance.random() < 0.4:
            aborts = chance.random() < 1 / 3
            (producers[which].abort_transaction if aborts else producers[which].commit_transaction)(SECONDS)
            is_open[which] = False
            ended += 1
        else:
            send(producers[which], topic, number, chance.randint(1, 5), b"writer-%d" % which)
        number += 1
    for which, producer in enumerate(producers):
        if is_open[which]:
            producer.abort_transaction(SECONDS)
    wait_for_markers(kafka, topic)
    producers[0].begin_transaction()
    send(producers[0], topic, number, 3, b"open")
    send(plain, topic, number + 1, 3, b"behind the open one")
    yield topic
    producers[0].abort_transaction(SECONDS)


def wait_for_markers(kafka: KafkaProcess, topic: str) -> None:
    """Until every transaction is over in the log as well: Kafka says that it is before it has written the markers."""
    readers = [Reader(kafka, committed, Engine.PLAIN) for committed in (True, False)]
    eventually(lambda: len({reader.whole(topic).end_offset for reader in readers}) == 1, SECONDS)


def send(producer: Producer, topic: str, number: int, count: int, key: bytes) -> None:
    """Send a batch of ``count`` records and wait for it, so that batches of others come in between."""
    for index in range(count):
        headers: Any = [("number", b"%d" % number), ("none", None)] if number % 3 else None
        value = b"%d.%d" % (number, index) if number % 7 else None
        producer.produce(topic, value, key, 0, headers=headers, timestamp=1_700_000_000_000 + number)
    assert flushed(producer, SECONDS)


@every_engine
@every_isolation
def test_transactions_are_read_as_kafkas_consumers_do(
    kafka: KafkaProcess, transactions: str, read_committed: bool, engine: Engine
):
    rows = assert_same_rows(Reader(kafka, read_committed, engine), transactions)
    keys = {row["key"] for row in rows}
    assert ({b"open", b"behind the open one"} <= keys) is not read_committed
    aborted = len(rows_consumed(kafka, transactions, read_committed=False)) - len(rows)
    assert (aborted > 10) is read_committed


def test_the_last_stable_offset_is_where_an_open_transaction_begins(kafka: KafkaProcess, transactions: str):
    committed = Reader(kafka, True, Engine.PLAIN).whole(transactions).end_offset
    uncommitted = Reader(kafka, False, Engine.PLAIN).whole(transactions).end_offset
    assert committed == uncommitted - 6


def test_every_offset_may_be_where_a_task_begins(kafka: KafkaProcess, transactions: str):
    """Above all within aborted transactions, whose beginning a task then never sees."""
    reader = Reader(kafka, True, Engine.PLAIN)
    wanted = rows_consumed(kafka, transactions, read_committed=True)
    whole = reader.whole(transactions)
    for start in range(0, whole.end_offset, 7):
        part = OffsetRange(whole.partition, start, min(start + 30, whole.end_offset))
        assert reader.rows(part) == [row for row in wanted if start <= row["offset"] < part.end_offset]


# --- What else lies in a log ---


@pytest.mark.soak
def test_a_compacted_topic_with_transactions_is_read_over_its_gaps(kafka: KafkaProcess):
    topic = "compacted"
    create(
        kafka,
        topic,
        cleanup_policy="compact",
        segment_ms=SHORT_SEGMENT_MS,
        min_cleanable_dirty_ratio="0.01",
    )
    plain, writer = producer_of(kafka), producer_of(kafka, transactional_id=topic)
    writer.init_transactions(SECONDS)
    for number in range(60):
        send(plain, topic, number, 5, b"key-%d" % (number % 7))
        writer.begin_transaction()
        send(writer, topic, number, 3, b"key-%d" % (number % 5))
        (writer.abort_transaction if number % 2 else writer.commit_transaction)(SECONDS)
    records = 60 * 5 + 30 * 3
    time_left = TimeLeft(SECONDS)
    while len(rows_consumed(kafka, topic, read_committed=True)) > records // 2:
        assert not time_left.is_over, "nothing was compacted"
        time.sleep(0.2)
        send(plain, topic, 1, 1, b"rolls the segment")
    settle(kafka, topic)
    for engine in ENGINES:
        assert_same_rows(Reader(kafka, True, engine), topic)


def settle(kafka: KafkaProcess, topic: str) -> None:
    """Wait until compaction has nothing more to do, so that two readers see the same."""
    seen = -1
    while seen != (seen := len(rows_consumed(kafka, topic, read_committed=False))):
        time.sleep(1)


def test_append_time_is_the_brokers(kafka: KafkaProcess):
    topic = "append-time"
    create(kafka, topic, message_timestamp_type="LogAppendTime")
    for codec in CODECS:
        send(producer_of(kafka, compression_type=codec), topic, 1, 20, codec.encode())
    for engine in ENGINES:
        rows = assert_same_rows(Reader(kafka, True, engine), topic)
        assert {row["timestampType"] for row in rows} == {1}


@pytest.mark.soak
def test_what_the_java_producer_compressed_is_read(kafka: KafkaProcess, java: Java):
    """Its snappy has a framing of its own, its lz4 and zstd other frames than librdkafka's; in transactions."""
    topics = {codec: f"java-{codec}" for codec in CODECS}
    for topic in topics.values():
        create(kafka, topic)
    runs = [
        {
            "tool": "org.apache.kafka.tools.ProducerPerformance",
            "arguments": [
                *("--topic", topic, "--num-records", "2000", "--record-size", "100", "--throughput", "-1"),
                *("--transactional-id", topic, "--transaction-duration-ms", "20"),
                *("--bootstrap-server", kafka.bootstrap_servers),
                *("--command-property", f"compression.type={codec}", "--command-property", "linger.ms=2"),
            ],
        }
        for codec, topic in topics.items()
    ]
    for result in java.run("RunTools", given=runs):
        assert result["code"] in (0, None), result
    for topic in topics.values():
        wanted = rows_consumed(kafka, topic, read_committed=True)
        assert len(wanted) == 2000
        for engine in ENGINES:
            reader = Reader(kafka, True, engine)
            assert reader.rows(reader.whole(topic), 50_000) == wanted


def test_a_batch_larger_than_the_fetch_size_comes_whole(kafka: KafkaProcess):
    create(kafka, "large", max_message_bytes="5000000")
    producer = producer_of(kafka, message_max_bytes=5_000_000)
    data = random.Random(1).randbytes(4_000_000)
    producer.produce("large", data, partition=0)
    assert flushed(producer, SECONDS)
    reader = Reader(kafka, True, available_engine())
    assert [row["value"] for row in reader.rows(reader.whole("large"), 1000)] == [data]


def test_deleted_records_are_lost_data(kafka: KafkaProcess):
    create(kafka, "shortened")
    send(producer_of(kafka), "shortened", 1, 20, b"k")
    reader = Reader(kafka, True, available_engine())
    whole = reader.whole("shortened")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    wanted = ConfluentPartition("shortened", 0, 12)
    within(admin.delete_records([wanted])[wanted].result, SECONDS)
    with pytest.raises(DataLoss, match="shortened-0 at offset 0: the log begins at offset 12 now and ends at 20"):
        reader.rows(whole)
    rows = reader.rows(whole, fail_on_data_loss=False)
    assert rows == rows_consumed(kafka, "shortened", read_committed=True)
    assert [row["offset"] for row in rows] == list(range(12, 20))
    with pytest.raises(
        DataLoss, match="shortened-0 at offset 25: the log was cut: it begins at offset 12 and ends at 20"
    ):
        reader.rows(OffsetRange(whole.partition, 25, 30))


def test_a_topic_that_is_deleted_and_created_again_is_lost_data(kafka: KafkaProcess):
    create(kafka, "again")
    send(producer_of(kafka), "again", 1, 20, b"k")
    reader = Reader(kafka, True, available_engine())
    whole, cluster = reader.whole("again"), reader.cluster()
    topic_id = cluster.topic_ids(["again"])["again"]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    within(admin.delete_topics(["again"])["again"].result, SECONDS)
    with pytest.raises(DataLoss, match="topic 'again': UNKNOWN_TOPIC_OR_PARTITION"):
        reader.rows(whole, topic_id=topic_id)
    create(kafka, "again")
    send(producer_of(kafka), "again", 1, 20, b"k")
    with pytest.raises(DataLoss, match=f"its id was {topic_id}"):
        reader.rows(whole, topic_id=topic_id)
    cluster.close()


def test_times_and_patterns_are_answered(kafka: KafkaProcess, transactions: str):
    cluster = Reader(kafka, True, Engine.PLAIN).cluster()
    assert TopicPartition("__consumer_offsets", 0) not in cluster.partitions(SubscribePattern(".*"))
    assert cluster.partitions(SubscribePattern("trans.*")) == [TopicPartition(transactions, 0)]
    [partition] = cluster.partitions(Subscribe((transactions,)))
    tomorrow = round(time.time() * 1000) + 24 * 3600 * 1000
    assert cluster.for_times({partition: 0}) == {partition: 0}
    assert cluster.for_times({partition: tomorrow}) == {partition: None}
    cluster.close()
