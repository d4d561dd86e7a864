"""Single records: which partition they go to, when they are sent, and as what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from kafka_wire.messages.produce import ProduceRequest
from kafka_wire.records.compression import Codec
from tests.client.producer.scripted_logs import ScriptedLogs, TurnedTime, settings_for
from tests.fakes.scripted_kafka import Cluster, ScriptedKafka
from trio_broker.client.errors import WriteFailed
from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.client.producer.record_producer import ProducerRecord, RecordProducer
from trio_broker.common.murmur2 import murmur2
from trio_broker.common.topic_partition import TopicPartition

NOW_MS = 1_700_000_000_000


@attrs.define
class Scene:
    """One broker with the topic ``t`` of three partitions."""

    server: ScriptedKafka
    logs: ScriptedLogs
    batch_producers: list[BatchProducer] = attrs.field(factory=list)

    def producer(self, **settings: Any) -> RecordProducer:
        batches = BatchProducer(settings_for(self.server, **settings), TurnedTime().timer)
        self.batch_producers.append(batches)
        return RecordProducer(batches, first_partition=1, now_ms=lambda: NOW_MS)

    def values(self, partition: int) -> list[bytes | None]:
        return self.logs.logs["t", partition].values


@pytest.fixture
def scene() -> Iterator[Scene]:
    with ScriptedKafka() as server:
        scene = Scene(server, ScriptedLogs(Cluster([server], {"t": [1, 1, 1]})))
        yield scene
        for batches in scene.batch_producers:
            batches.close()


def test_a_key_decides_as_in_java_clients_and_a_partition_that_is_named_wins(scene: Scene):
    producer = scene.producer()
    keys = [b"a", b"b", b"c", b"", bytes(range(256))]
    for key in keys:
        producer.send("t", ProducerRecord(key, key))
    producer.send("t", ProducerRecord(b"a", b"named", partition=2))
    producer.flush()
    for key in keys:
        assert key in scene.values((murmur2(key) & 0x7FFF_FFFF) % 3)
    assert b"named" in scene.values(2)


def test_records_without_key_fill_a_batch_before_they_go_elsewhere(scene: Scene):
    producer = scene.producer(batch_size=1000)
    for number in range(40):
        producer.send("t", ProducerRecord(None, b"%04d" % number + bytes(96)))
    producer.flush()
    by_partition = [len(scene.values(partition)) for partition in (0, 1, 2)]
    assert sum(by_partition) == 40
    assert all(by_partition)
    assert scene.values(1)[:2] == [b"0000" + bytes(96), b"0001" + bytes(96)]
    largest = max(len(data) for log in scene.logs.logs.values() for data in log.raw)
    assert 500 < largest <= 1000


def test_nothing_is_sent_before_it_is_worthwhile_or_asked_for(scene: Scene):
    producer = scene.producer()
    producer.send("t", ProducerRecord(None, b"a"))
    assert scene.server.requests(ProduceRequest) == []
    for number in range(6):
        producer.send("t", ProducerRecord(b"%d" % number, bytes(250_000)))
        producer.send("t", ProducerRecord(b"%d" % number, bytes(250_000)))
    sent = len(scene.server.requests(ProduceRequest))
    assert sent > 0
    producer.flush()
    assert sum(producer.record_counts.values()) == 13
    assert len(scene.server.requests(ProduceRequest)) > sent
    producer.flush()
    assert sum(producer.record_counts.values()) == 13


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_every_part_of_a_record_arrives(scene: Scene, codec: Codec):
    producer = scene.producer(codec=codec)
    headers = (("h", b"1"), ("h", None), ("", b""))
    producer.send("t", ProducerRecord(b"k", None, headers, partition=0, timestamp=5))
    producer.send("t", ProducerRecord(None, b"v", partition=0))
    producer.flush()
    first, second = scene.logs.logs["t", 0].records
    assert (first.key, first.value, first.headers, first.timestamp) == (b"k", None, headers, 5)
    assert (second.key, second.value, second.headers, second.timestamp) == (None, b"v", (), NOW_MS)
    [batch] = scene.logs.logs["t", 0].batches
    assert (batch.header.codec, batch.header.max_timestamp) == (codec, NOW_MS)


def test_a_partition_that_does_not_exist_is_named(scene: Scene):
    with pytest.raises(WriteFailed, match="topic 't' has no partition 3; it has 3, from 0 on"):
        scene.producer().send("t", ProducerRecord(None, b"", partition=3))


def test_what_was_acknowledged_is_counted_by_partition(scene: Scene):
    producer = scene.producer()
    for partition in (0, 2, 2):
        producer.send("t", ProducerRecord(None, b"", partition=partition))
    producer.flush()
    assert producer.record_counts == {TopicPartition("t", 0): 1, TopicPartition("t", 2): 2}


def test_a_full_batch_of_the_next_partition_takes_no_record_either(scene: Scene):
    """Records without a key leave partition 1 for 2, whose batch records that name it have filled already."""
    producer = scene.producer(batch_size=1000)
    for partition in (1, 2):
        producer.send("t", ProducerRecord(None, bytes(900), partition=partition))
    producer.send("t", ProducerRecord(None, bytes(900)))
    producer.flush()
    assert max(len(data) for log in scene.logs.logs.values() for data in log.raw) <= 1000
    assert producer.record_counts == {TopicPartition("t", partition): 1 for partition in range(3)}
