"""Compacted topics as real clients see them: written, compacted by a running broker, read, killed and read again."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import TypeAlias

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka.errors import KafkaError as KafkaPythonError

from tests.checking.thread_tuner import ThreadTuner
from tests.consumed_messages import consumed
from tests.fork_server import run_command
from tests.java_programs import Java
from tests.waits import eventually, flushed, scaled, within
from trio_broker.testing.process import BrokerProcess

SECONDS = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
RECORDS = 300
KEYS = 40
TOPIC = "compacted"

Newest: TypeAlias = dict[tuple[int, bytes], bytes]
"""The newest value of each key, by partition."""


COMPACTING = {"log_durability": "page-cache", "log_cleaner_backoff_ms": "20", "log_cleaner_threads": "2"}
"""Settings of a broker that compacts all the time."""


@pytest.fixture
def broker(start_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return start_broker(**COMPACTING)


def create(broker: BrokerProcess, **config: str) -> None:
    settings = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "10000",
        "min.cleanable.dirty.ratio": "0.01",
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    within(admin.create_topics([NewTopic(TOPIC, len(CODECS), 1, config=settings)])[TOPIC].result, SECONDS)


def write(broker: BrokerProcess, seed: int, newest: Newest) -> None:
    """Write keys that come again, with tombstones, in every codec, and note in ``newest`` what that makes of them."""
    chance = random.Random(seed)
    producers = []
    for partition, codec in enumerate(CODECS):
        producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "compression.codec": codec,
                "enable.idempotence": True,
                "batch.num.messages": 20,
                "linger.ms": 1,
            }
        )
        for number in range(RECORDS):
            key = b"key-%d" % chance.randrange(KEYS)
            if chance.random() < 0.1:
                newest.pop((partition, key), None)
                producer.produce(TOPIC, None, key, partition=partition)
            else:
                value = newest[partition, key] = b"%d-%d-" % (seed, number) + chance.randbytes(50) + bytes(50)
                producer.produce(TOPIC, value, key, partition=partition)
            producer.poll(0)
        producers.append(producer)
    # After all of them, since each waits half a second for its producer id.
    for producer in producers:
        assert flushed(producer, SECONDS)


def read(broker: BrokerProcess) -> list[Message]:
    return consumed(
        broker.bootstrap_servers,
        [(TOPIC, partition) for partition in range(len(CODECS))],
        auto_offset_reset="error",
        check_crcs=True,
        fetch_message_max_bytes=5000,
        fetch_wait_max_ms=10,  # At the end of each partition.
    )


def newest_of(messages: list[Message]) -> Newest:
    newest: Newest = {}
    offsets: dict[int, int] = {}
    for message in messages:
        partition, key, value, offset = message.partition(), message.key(), message.value(), message.offset()
        assert partition is not None
        assert isinstance(key, bytes)
        assert offset is not None
        assert offset > offsets.get(partition, -1)
        offsets[partition] = offset
        if value is None:
            newest.pop((partition, key), None)
        else:
            newest[partition, key] = value
    return newest


def wait_until_compacted(broker: BrokerProcess) -> None:
    """Until only the active segment of each partition is dirty, by what the broker wrote down."""
    checkpoint = broker.data_directory / "cleaner-offset-checkpoint"

    def is_compacted() -> bool:
        written = checkpoint.read_text() if checkpoint.exists() else ""
        done = re.findall(rf"^{TOPIC} (\d+) (\d+)$", written, re.MULTILINE)
        active = {partition: max(map(int, stems(broker, partition))) for partition in range(len(CODECS))}
        return {int(partition): int(offset) for partition, offset in done} == active

    eventually(is_compacted, SECONDS)


def stems(broker: BrokerProcess, partition: int) -> list[str]:
    return [path.stem for path in (broker.data_directory / f"{TOPIC}-{partition}").glob("*.log")]


def test_a_consumer_reads_the_newest_value_of_every_key_from_a_compacted_topic(broker: BrokerProcess) -> None:
    create(broker)
    newest: Newest = {}
    write(broker, 1, newest)
    wait_until_compacted(broker)
    once = read(broker)
    assert newest_of(once) == newest
    assert len(once) < RECORDS * len(CODECS) / 2
    write(broker, 2, newest)
    wait_until_compacted(broker)
    twice = read(broker)
    assert newest_of(twice) == newest
    assert len(twice) < len(once) * 1.5, "most keys were overwritten"


@pytest.mark.soak
def test_writing_reading_and_compacting_at_once_loses_no_key_while_threads_change(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    """Without a time for tombstones, which a consumer that began before may miss; so only values are compared."""
    broker = start_broker(**COMPACTING, has_admin=True)
    create(broker, delete_retention_ms="0")
    newest: Newest = {}
    with ThreadTuner(broker, seed=11):
        for seed in range(10):
            write(broker, seed, newest)
            found = newest_of(read(broker))
            assert {place: found.get(place) for place in newest} == newest
    wait_until_compacted(broker)
    assert newest_of(read(broker)) == newest


def test_a_killed_broker_goes_on_compacting_where_it_was(broker: BrokerProcess) -> None:
    create(broker)
    newest: Newest = {}
    for seed in range(2):
        write(broker, seed, newest)
        broker.kill()
        broker.start()
        assert newest_of(read(broker)) == newest
    wait_until_compacted(broker)
    assert newest_of(read(broker)) == newest


def test_a_record_without_a_key_is_refused(broker: BrokerProcess) -> None:
    create(broker)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retries=0)
    with pytest.raises(KafkaPythonError):
        within(producer.send(TOPIC, b"no key", partition=0).get, SECONDS)
    within(producer.send(TOPIC, b"value", b"key", partition=0).get, SECONDS)
    producer.close()


def test_committed_offsets_outlive_the_compaction_of_their_topic_and_a_kill(
    start_broker: Callable[..., BrokerProcess],
) -> None:
    broker = start_broker(
        log_durability="page-cache",
        log_cleaner_backoff_ms="20",
        log_cleaner_min_cleanable_ratio="0.01",
        internal_segment_bytes="2000",
        offsets_topic_num_partitions="1",
    )
    create(broker, cleanup_policy="delete")
    settings = {"bootstrap.servers": broker.bootstrap_servers, "enable.auto.commit": False}
    consumers = [Consumer({**settings, "group.id": f"group-{number}"}) for number in range(3)]
    for offset in range(60):
        for number, consumer in enumerate(consumers):
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, 100 * number + offset)], asynchronous=False)
    directory = broker.data_directory / "__consumer_offsets-0"
    eventually(lambda: any(path.stat().st_size == 0 for path in sorted(directory.glob("*.log"))[:-1]), SECONDS)
    broker.kill()
    broker.start()
    for number, consumer in enumerate(consumers):
        [committed] = consumer.committed([TopicPartition(TOPIC, 0)], scaled(SECONDS))
        assert committed.offset == 100 * number + 59
        consumer.close()


def test_kafka_opens_and_verifies_what_was_compacted_and_so_does_our_dump(java: Java, broker: BrokerProcess) -> None:
    create(broker)
    write(broker, 1, {})
    wait_until_compacted(broker)
    count = len(read(broker))
    broker.stop()
    directories = [broker.data_directory / f"{TOPIC}-{partition}" for partition in range(len(CODECS))]
    files = [path for directory in directories for path in sorted(directory.glob("0*"))]
    indexes = ",".join(str(path) for path in files if path.suffix in (".index", ".timeindex"))
    logs = ",".join(str(path) for path in files if path.suffix == ".log")

    def dump(*arguments: str) -> dict[str, object]:
        return {"tool": "org.apache.kafka.tools.DumpLogSegments", "arguments": list(arguments)}

    deep, verified = java.run(
        "RunTools", given=[dump("--deep-iteration", "--files", logs), dump("--verify-index-only", "--files", indexes)]
    )
    assert (deep["code"], verified["code"], verified["err"]) == (0, 0, "")
    assert "isvalid: false" not in deep["out"]
    assert "deleteHorizonMs: OptionalLong[" in deep["out"]
    ours = run_command(["dump-log", "--deep", *directories[:1]], SECONDS).stdout
    assert "isvalid: false" not in ours
    assert "deleteHorizonMs: 1" in ours
    records = 0
    for one in java.run("OpenLog", *(word for directory in directories for word in ("clean", str(directory)))):
        facts = one["result"]
        assert facts["start"] == 0
        assert facts["end"] == RECORDS
        assert not facts["consecutive"]
        records += facts["records"]
    assert records == count
