"""confluent-kafka (librdkafka) against a real broker process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kafka_wire.records.batch import read_batches
from tests.waits import flushed, scaled, within
from trio_broker.testing.process import BrokerProcess

SECONDS = 30


@pytest.fixture
def admin(broker: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def create(admin: AdminClient, topic: str) -> Callable[..., str]:
    def create(partitions: int = 1, **config: str) -> str:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        futures = admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])
        within(futures[topic].result, SECONDS)
        return topic

    return create


class Delivered:
    """Collects delivery reports and insists that none is an error."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.messages.append(message)


def produce(broker: BrokerProcess, topic: str, values: list[bytes | None], **settings: Any) -> list[Message]:
    partition = settings.pop("partition", 0)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "message.max.bytes": 2_000_000, **settings})
    delivered = Delivered()
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    assert flushed(producer, SECONDS)
    return delivered.messages


@pytest.fixture
def consume(broker: BrokerProcess) -> Iterator[Callable[..., list[Message]]]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reads-by-assignment",
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 10,  # Another assignment waits for the fetch under way.
        }
    )

    def consume(topic: str, count: int, *, partition: int = 0, offset: int = OFFSET_BEGINNING) -> list[Message]:
        consumer.assign([TopicPartition(topic, partition, offset)])
        messages: list[Message] = []
        while len(messages) < count:
            batch = consumer.consume(count - len(messages), timeout=scaled(SECONDS))
            assert batch, f"{len(messages)} of {count} records came in {SECONDS} s"
            for message in batch:
                assert message.error() is None, message.error()
            messages += batch
        return messages

    yield consume
    consumer.close()


def stored_codecs(broker: BrokerProcess, topic: str) -> set[str]:
    """The codecs of the batches that lie in the first partition's segment."""
    segment = broker.data_directory / f"{topic}-0" / f"{0:020}.log"
    return {batch.header.codec.name.lower() for batch in read_batches(segment.read_bytes())}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_stored_as_it_came_and_comes_back_as_it_went(
    broker: BrokerProcess, create: Callable[..., str], consume: Callable[..., list[Message]], codec: str
) -> None:
    topic = create()
    values: list[bytes | None] = [b"line %d " % number * 20 for number in range(500)]
    produce(broker, topic, values, **{"compression.type": codec, "linger.ms": 50})

    assert [message.value() for message in consume(topic, 500)] == values
    assert stored_codecs(broker, topic) == {codec}


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement(
    broker: BrokerProcess, create: Callable[..., str], consume: Callable[..., list[Message]], acks: str
) -> None:
    topic = create()
    produce(broker, topic, [b"a", b"b"], acks=acks)

    assert [message.value() for message in consume(topic, 2)] == [b"a", b"b"]


def test_an_idempotent_producer(
    broker: BrokerProcess, create: Callable[..., str], consume: Callable[..., list[Message]]
) -> None:
    topic = create()
    messages = produce(broker, topic, [b"%d" % n for n in range(2000)], **{"enable.idempotence": True, "linger.ms": 1})

    assert [message.offset() for message in messages] == list(range(2000))
    assert [message.value() for message in consume(topic, 2000)] == [b"%d" % n for n in range(2000)]


@pytest.mark.parametrize("size", [1, 100, 10_000, 1_000_000])
def test_records_of_one_byte_to_a_megabyte(
    broker: BrokerProcess, create: Callable[..., str], consume: Callable[..., list[Message]], size: int
) -> None:
    topic = create()
    value = os.urandom(size)
    produce(broker, topic, [value])

    assert [message.value() for message in consume(topic, 1)] == [value]


def test_a_record_above_the_limit_is_refused(broker: BrokerProcess, create: Callable[..., str]) -> None:
    topic = create(max_message_bytes="2000")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    errors: list[KafkaError | None] = []
    producer.produce(topic, bytes(5000), on_delivery=lambda error, message: errors.append(error))
    assert flushed(producer, SECONDS)

    assert [error and error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]


def test_the_records_without_a_key_are_blamed_and_no_other(broker: BrokerProcess, create: Callable[..., str]) -> None:
    topic = create(cleanup_policy="compact")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 10_000})
    codes: dict[Any, Any] = {}
    for number, key in enumerate([b"key", None, b"key", None, b"key"]):
        producer.produce(
            topic,
            b"%d" % number,
            key,
            on_delivery=lambda error, message: codes.update({message.value(): error and error.code()}),
        )
    assert flushed(producer, SECONDS)
    bad, other = KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD
    assert codes == {b"0": other, b"1": bad, b"2": other, b"3": bad, b"4": other}


def test_keys_values_headers_and_timestamps_come_back(
    broker: BrokerProcess, create: Callable[..., str], consume: Callable[..., list[Message]]
) -> None:
    topic = create()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce(topic, None, b"tombstone")
    producer.produce(
        topic, b"value", None, headers=[("h", b"1"), ("h", b"2"), ("null", None)], timestamp=1_700_000_000_123
    )
    producer.produce(topic, b"", b"")
    assert flushed(producer, SECONDS)

    messages = consume(topic, 3)
    assert [(message.key(), message.value()) for message in messages] == [
        (b"tombstone", None),
        (None, b"value"),
        (b"", b""),
    ]
    assert messages[1].headers() == [("h", b"1"), ("h", b"2"), ("null", None)]
    assert messages[1].timestamp()[1] == 1_700_000_000_123


def test_equal_keys_meet_in_one_partition(
    broker: BrokerProcess, create: Callable[..., str], consume: Callable[..., list[Message]]
) -> None:
    topic = create(8)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"})
    delivered = Delivered()
    for number in range(400):
        producer.produce(topic, b"%d" % number, b"key-%d" % (number % 40), on_delivery=delivered)
    assert flushed(producer, SECONDS)

    homes: dict[bytes | None, set[int | None]] = {}
    for message in delivered.messages:
        homes.setdefault(message.key(), set()).add(message.partition())
    assert len(homes) == 40
    assert all(len(partitions) == 1 for partitions in homes.values())
    assert len({partition for partitions in homes.values() for partition in partitions}) > 1


def test_consuming_from_an_offset_from_the_end_and_from_a_time(
    broker: BrokerProcess, create: Callable[..., str], consume: Callable[..., list[Message]]
) -> None:
    topic = create()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(10):
        producer.produce(topic, b"%d" % number, timestamp=1_700_000_000_000 + number * 1000)
    assert flushed(producer, SECONDS)
    asking = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "asking"})
    try:
        by_time = asking.offsets_for_times([TopicPartition(topic, 0, 1_700_000_004_500)], scaled(SECONDS))
        assert asking.get_watermark_offsets(TopicPartition(topic, 0), scaled(SECONDS)) == (0, 10)
        asking.assign([TopicPartition(topic, 0, OFFSET_END)])
        assert asking.poll(0.2) is None
        produce(broker, topic, [b"after"])
        newest = within(asking.poll, SECONDS)
    finally:
        asking.close()

    assert [message.value() for message in consume(topic, 3, offset=7)] == [b"7", b"8", b"9"]
    assert by_time[0].offset == 5
    assert newest is not None
    assert newest.value() == b"after"


def test_an_offset_out_of_range_is_said(broker: BrokerProcess, create: Callable[..., str]) -> None:
    topic = create()
    produce(broker, topic, [b"only"])
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "out-of-range",
            "auto.offset.reset": "error",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 1000)])
        message = within(consumer.poll, SECONDS)
        assert message is not None
        error = message.error()
    except KafkaException as raised:
        error = raised.args[0]
    finally:
        consumer.close()

    assert error is not None
    assert error.code() == KafkaError._AUTO_OFFSET_RESET


def test_topics_are_listed_described_grown_and_deleted(
    broker: BrokerProcess, admin: AdminClient, create: Callable[..., str]
) -> None:
    topic = create(3)

    assert len(admin.list_topics(timeout=scaled(SECONDS)).topics[topic].partitions) == 3

    within(admin.create_partitions([NewPartitions(topic, 5)])[topic].result, SECONDS)
    assert len(admin.list_topics(topic, timeout=scaled(SECONDS)).topics[topic].partitions) == 5

    within(admin.delete_topics([topic])[topic].result, SECONDS)
    assert topic not in admin.list_topics(timeout=scaled(SECONDS)).topics


def test_creating_what_exists_or_makes_no_sense_is_refused(admin: AdminClient, create: Callable[..., str]) -> None:
    topic = create()

    def refusal(new: NewTopic) -> int:
        with pytest.raises(KafkaException) as caught:
            within(admin.create_topics([new])[new.topic].result, SECONDS)
        code: int = caught.value.args[0].code()
        return code

    assert refusal(NewTopic(topic, 1, 1)) == KafkaError.TOPIC_ALREADY_EXISTS
    assert refusal(NewTopic("no spaces allowed", 1, 1)) == KafkaError.TOPIC_EXCEPTION
    assert refusal(NewTopic(f"{topic}-rf3", 1, 3)) == KafkaError.INVALID_REPLICATION_FACTOR
    assert refusal(NewTopic(f"{topic}-p", 1, 1, config={"retention.ms": "soon"})) == KafkaError.INVALID_CONFIG


def test_topic_configs_are_described_and_changed(admin: AdminClient, create: Callable[..., str]) -> None:
    topic = create(retention_ms="600000")
    resource = ConfigResource(ResourceType.TOPIC, topic)

    described = within(admin.describe_configs([resource])[resource].result, SECONDS)
    assert described["retention.ms"].value == "600000"
    assert described["segment.bytes"].value == "1073741824"

    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[ConfigEntry("retention.ms", "700000", incremental_operation=AlterConfigOpType.SET)],
    )
    within(admin.incremental_alter_configs([change])[change].result, SECONDS)
    described = within(admin.describe_configs([resource])[resource].result, SECONDS)
    assert described["retention.ms"].value == "700000"


def test_a_key_of_kafka_without_effect_is_kept_beside_one_with_effect(admin: AdminClient) -> None:
    def change(operation: AlterConfigOpType) -> ConfigResource:
        values = {"background.threads": "12", "message.max.bytes": "1048000"}
        configs = [ConfigEntry(name, value, incremental_operation=operation) for name, value in values.items()]
        return ConfigResource(ResourceType.BROKER, "1", incremental_configs=configs)

    setting = change(AlterConfigOpType.SET)
    within(admin.incremental_alter_configs([setting])[setting].result, SECONDS)
    described = within(admin.describe_configs([setting])[setting].result, SECONDS)
    assert (described["background.threads"].value, described["message.max.bytes"].value) == ("12", "1048000")
    deletion = change(AlterConfigOpType.DELETE)
    within(admin.incremental_alter_configs([deletion])[deletion].result, SECONDS)
    assert "background.threads" not in within(admin.describe_configs([deletion])[deletion].result, SECONDS)


def test_the_cluster_is_described(broker: BrokerProcess, admin: AdminClient) -> None:
    described = within(admin.describe_cluster().result, SECONDS)

    assert len(described.cluster_id) == 22
    assert [f"{node.host}:{node.port}" for node in described.nodes] == [broker.bootstrap_servers]


def test_records_below_an_offset_are_deleted(
    broker: BrokerProcess, admin: AdminClient, create: Callable[..., str], consume: Callable[..., list[Message]]
) -> None:
    topic = create()
    produce(broker, topic, [b"%d" % number for number in range(10)])

    below = TopicPartition(topic, 0, 6)
    outcome = within(admin.delete_records([below])[below].result, SECONDS)
    assert outcome.low_watermark == 6
    assert [message.value() for message in consume(topic, 4)] == [b"6", b"7", b"8", b"9"]
