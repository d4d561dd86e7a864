"""What the sink writes is taken by Kafka itself, record by record, and read back by Kafka's clients in other languages.

Unlike ours, Kafka walks over every record of a batch before it takes it, and looks at timestamps, keys of compacted
topics and sequences; so a byte out of place shows here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import attrs
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kafka_wire.records.compression import Codec
from tests.compat.kafka_process import KafkaProcess
from tests.spark.producer.arrow_rows import Row, arrow_batch
from tests.spark.producer.consumed_records import by_kafka_python, read_back, values_of
from tests.waits import flushed, within
from trio_broker.client.address import parse_addresses
from trio_broker.client.errors import RecordTooLarge, WriteFailed
from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.common.murmur2 import murmur2
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.producer.record_encoder import NumbaEngine, PlainEngine, RecordEngine
from trio_broker.spark.producer.record_writer import RecordWriter
from trio_broker.spark.producer.target_topic import TargetError, require_topic

SECONDS = 30
PARTITIONS = 3
OVERRIDES = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "log.message.timestamp.before.max.ms": str(2**63 - 1),
}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    with KafkaProcess(tmp_path_factory.mktemp("kafka"), overrides=OVERRIDES) as process:
        yield process


def create(kafka: KafkaProcess, topic: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    # Records as old as these would not stay long.
    settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in configs.items()}
    within(admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=settings)])[topic].result, SECONDS)


def settings(kafka: KafkaProcess) -> ProducerSettings:
    return ProducerSettings(parse_addresses(kafka.bootstrap_servers), batch_size=10_000)


def rows_by_chance(seed: int, count: int) -> list[Row]:
    chance = random.Random(seed)

    def some_bytes(most: int) -> bytes | None:
        return None if chance.random() < 0.1 else chance.randbytes(chance.randrange(most))

    def headers() -> list[tuple[str, bytes | None]] | None:
        return [(f"h{number}", some_bytes(80)) for number in range(chance.randrange(4))] or None

    return [
        Row(some_bytes(70), some_bytes(300), 1_600_000_000_000 + chance.randrange(10**9), headers())
        for _ in range(count)
    ]


@pytest.mark.parametrize("engine", [NumbaEngine(), PlainEngine()], ids=["numba", "plain"])
@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())
def test_kafka_takes_every_record(kafka: KafkaProcess, codec: Codec, engine: RecordEngine):
    topic = f"taken-{codec.name.lower()}-{type(engine).__name__}"
    create(kafka, topic)
    rows = rows_by_chance(codec, 2000)
    with RecordWriter(attrs.evolve(settings(kafka), codec=codec), topic=topic, engine=engine) as writer:
        for start in range(0, len(rows), 300):
            some = rows[start : start + 300]
            writer.write(arrow_batch(some, partition=pa.array([1] * len(some), pa.int32())))

    expected = [(row.key, row.value, row.timestamp_ms, row.headers or []) for row in rows]
    found = read_back(kafka.bootstrap_servers, topic, PARTITIONS)[1]
    assert [(each.key(), each.value(), each.timestamp()[1], each.headers() or []) for each in found] == expected
    assert by_kafka_python(kafka.bootstrap_servers, topic, 1) == expected
    assert writer.written.last_offsets == {TopicPartition(topic, 1): len(rows) - 1}


def test_a_key_goes_where_librdkafka_and_kafka_put_it(kafka: KafkaProcess):
    from confluent_kafka import Producer

    create(kafka, "by-hand")
    create(kafka, "by-sink")
    keys = [random.Random(7).randbytes(number % 23) for number in range(300)]
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "partitioner": "murmur2"})
    for key in keys:
        producer.produce("by-hand", b"v", key)
    assert flushed(producer, SECONDS)
    with RecordWriter(settings(kafka), topic="by-sink") as writer:
        writer.write(arrow_batch([Row(key) for key in keys]))

    by_hand, by_sink = (read_back(kafka.bootstrap_servers, topic, PARTITIONS) for topic in ("by-hand", "by-sink"))
    assert {number: [each.key() or b"" for each in part] for number, part in by_sink.items()} == {
        number: [each.key() or b"" for each in part] for number, part in by_hand.items()
    }
    assert all(
        (murmur2(each.key() or b"") & 0x7FFF_FFFF) % 3 == number for number in (0, 1, 2) for each in by_sink[number]
    )


def test_batches_larger_than_the_topic_takes_are_split(kafka: KafkaProcess):
    create(kafka, "small", max_message_bytes="3000")
    values = [b"%d" % number * 100 for number in range(200)]
    with RecordWriter(settings(kafka), topic="small") as writer:
        rows = [Row(value=value) for value in values]
        writer.write(arrow_batch(rows, partition=pa.array([0] * len(rows), pa.int32())))

    assert values_of(read_back(kafka.bootstrap_servers, "small", PARTITIONS)[0]) == values


def test_a_record_larger_than_the_topic_takes_is_named(kafka: KafkaProcess):
    create(kafka, "tiny", max_message_bytes="1000")
    writer = RecordWriter(settings(kafka), topic="tiny")
    writer.write(arrow_batch([Row(value=bytes(2000))]))

    with pytest.raises(
        RecordTooLarge, match=r"is too large: the limit is 1000 bytes \(max.message.bytes of the topic\)"
    ):
        writer.flush()
    writer.close()


def test_a_compacted_topic_refuses_rows_without_key_in_words(kafka: KafkaProcess):
    create(kafka, "compacted", cleanup_policy="compact")
    writer = RecordWriter(settings(kafka), topic="compacted")
    writer.write(arrow_batch([Row(None)]))

    with pytest.raises(WriteFailed, match=r"compacted-\d: 1 record refused: INVALID_RECORD: .*key"):
        writer.flush()
    writer.close()


def test_a_topic_that_does_not_exist_is_reported(kafka: KafkaProcess, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trio_broker.client.producer.producer_metadata.MISSING_TOPIC_SECONDS", 0.3)

    with (
        BatchProducer(settings(kafka)) as producer,
        pytest.raises(WriteFailed, match="there is no topic 'absent'"),
    ):
        producer.partition_count("absent")


def test_a_misspelt_topic_is_reported_with_the_name_that_was_meant_and_created_only_if_wanted(kafka: KafkaProcess):
    create(kafka, "customers")
    given = attrs.evolve(settings(kafka), allow_auto_topic_creation=False)

    with pytest.raises(TargetError, match="topic 'custmers' does not exist; did you mean 'customers'"):
        require_topic(given, "custmers", create=False)
    require_topic(given, "custmers", create=True)
    with RecordWriter(given, topic="custmers") as writer:
        writer.write(arrow_batch([Row(b"k", b"v")]))
    assert writer.written.record_count == 1


def test_a_batch_that_is_sent_again_is_not_appended_again(kafka: KafkaProcess):
    """Five batches are remembered: each is answered with the offset that it has."""
    create(kafka, "again")
    producer = BatchProducer(settings(kafka))
    with producer, RecordWriter(producer.settings, topic="again", producer=producer) as writer:
        for number in range(3):
            writer.write(arrow_batch([Row(b"k", b"%d" % number)]))
            writer.flush()
            # As if the answer had been lost: the next batch gets the sequence of this one once more.
            place = next(iter(producer._sequences))
            producer._sequences[place] -= 1
            writer.write(arrow_batch([Row(b"k", b"%d" % number)]))
            writer.flush()

    found = read_back(kafka.bootstrap_servers, "again", PARTITIONS)
    assert [values_of(part) for part in found.values() if part] == [[b"0", b"1", b"2"]]
    assert list(writer.written.last_offsets.values()) == [2]
