"""Arrow batches through a real broker, and read back by clients that were not written here, which check every CRC."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import attrs
import pyarrow as pa
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.records.compression import Codec
from tests.client.producer.scripted_logs import ScriptedLogs, settings_for
from tests.fakes.scripted_kafka import Cluster, ScriptedKafka
from tests.spark.producer.arrow_rows import Row, arrow_batch
from tests.spark.producer.consumed_records import by_kafka_python, headers_of, read_back, values_of
from trio_broker.client.address import parse_addresses
from trio_broker.client.errors import RecordTooLarge, WriteFailed
from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.common.murmur2 import murmur2
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.producer.errors import UnwritableRow
from trio_broker.spark.producer.record_encoder import NumbaEngine, PlainEngine, RecordEngine
from trio_broker.spark.producer.record_writer import RecordWriter, group
from trio_broker.spark.producer.row_ids import RowId, TaskId, find_row_id
from trio_broker.testing import BrokerThread, broker_in_thread

TASK = TaskId(UUID(int=5), 1, 2)
_topics = (f"written-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    with broker_in_thread(num_partitions=3) as running:
        yield running


@pytest.fixture
def topic(broker: BrokerThread) -> str:
    name = next(_topics)
    broker.create_topic(name, 3)
    return name


def settings(broker: BrokerThread, **changes: Any) -> ProducerSettings:
    return attrs.evolve(ProducerSettings(parse_addresses(broker.bootstrap_servers)), **changes)


@pytest.mark.parametrize(
    ("engine", "codec"),
    [*((NumbaEngine(), codec) for codec in Codec), (PlainEngine(), Codec.NONE)],
    ids=lambda value: value.name.lower() if isinstance(value, Codec) else type(value).__name__,
)
def test_what_is_written_is_read_by_other_clients(broker: BrokerThread, topic: str, engine: RecordEngine, codec: Codec):
    rows = [
        Row(b"k", b"v", 1_700_000_000_000, [("a", b"1"), ("a", None), ("ä", b"")]),
        Row(None, None, 1_600_000_000_000, []),
        Row(b"", b"", 1_700_000_000_001),
        Row(bytes(300), bytes(70_000), 0),
        *(Row(b"k", b"%d" % number) for number in range(500)),
    ]
    with RecordWriter(settings(broker, codec=codec, batch_size=4096), topic=topic, engine=engine) as writer:
        writer.write(arrow_batch(rows, partition=pa.array([1] * len(rows), pa.int32())))

    assert writer.written.record_count == len(rows)
    assert writer.written.last_offsets == {TopicPartition(topic, 1): len(rows) - 1}
    expected = [(row.key, row.value, row.timestamp_ms, row.headers or []) for row in rows]
    by_librdkafka = read_back(broker.bootstrap_servers, topic)[1]
    assert [
        (message.key(), message.value(), message.timestamp()[1], message.headers() or []) for message in by_librdkafka
    ] == expected
    assert by_kafka_python(broker.bootstrap_servers, topic, 1) == expected


def test_rows_of_a_partition_keep_their_order_over_many_batches(broker: BrokerThread, topic: str):
    number = itertools.count()
    with RecordWriter(settings(broker, batch_size=2000, buffer_memory=20_000), topic=topic) as writer:
        for _ in range(20):
            some = [next(number) for _ in range(100)]
            writer.write(arrow_batch([Row(b"%d" % (each % 7), b"%d" % each) for each in some]))

    found = read_back(broker.bootstrap_servers, topic)
    assert sum(map(len, found.values())) == writer.written.record_count == 2000
    for partition, messages in found.items():
        numbers = [int(value) for value in values_of(messages) if value]
        assert numbers == [each for each in range(2000) if _partition_of(b"%d" % (each % 7)) == partition]


def _partition_of(key: bytes) -> int:
    return (murmur2(key) & 0x7FFF_FFFF) % 3


def test_rows_without_key_fill_all_partitions_with_large_batches(broker: BrokerThread, topic: str):
    with RecordWriter(settings(broker, batch_size=10_000), topic=topic, first_partition=1) as writer:
        for _ in range(10):
            writer.write(arrow_batch([Row(None, bytes(100))] * 90))

    counts = [len(messages) for messages in read_back(broker.bootstrap_servers, topic).values()]
    assert sum(counts) == 900
    assert min(counts) > 200


def test_each_row_may_name_its_topic(broker: BrokerThread, topic: str):
    other = next(_topics)
    broker.create_topic(other, 1)
    with RecordWriter(settings(broker)) as writer:
        names = pa.array([topic, other, topic, other])
        writer.write(arrow_batch([Row(b"k", b"%d" % number) for number in range(4)], topic=names))

    assert values_of(read_back(broker.bootstrap_servers, other, 1)[0]) == [b"1", b"3"]
    assert [values_of(messages) for messages in read_back(broker.bootstrap_servers, topic).values() if messages] == [
        [b"0", b"2"]
    ]
    assert set(writer.written.last_offsets.values()) == {1}


def test_a_topic_is_created_where_the_broker_does_so(broker: BrokerThread):
    name = next(_topics)
    with RecordWriter(settings(broker), topic=name) as writer:
        writer.write(arrow_batch([Row()]))

    assert sum(len(messages) for messages in read_back(broker.bootstrap_servers, name).values()) == 1


def test_row_ids_number_the_rows_of_the_task(broker: BrokerThread, topic: str):
    with RecordWriter(settings(broker), topic=topic, task_id=TASK) as writer:
        for start in (0, 50):
            writer.write(arrow_batch([Row(b"%d" % number, b"%d" % number) for number in range(start, start + 50)]))

    for messages in read_back(broker.bootstrap_servers, topic).values():
        for message in messages:
            value = message.value()
            assert value is not None
            assert find_row_id(headers_of(message)) == RowId(TASK, int(value))


def test_a_repeated_task_writes_each_row_to_the_same_partition(broker: BrokerThread, topic: str):
    rows = [Row(b"%d" % number if number % 3 else None, bytes(200)) for number in range(600)]
    for step in (600, 170):
        with RecordWriter(settings(broker, batch_size=5000), topic=topic, task_id=TASK, first_partition=2) as writer:
            for start in range(0, 600, step):
                writer.write(arrow_batch(rows[start : start + step]))

    for messages in read_back(broker.bootstrap_servers, topic).values():
        numbers = [find_row_id(headers_of(message)) for message in messages]
        assert len(messages) % 2 == 0
        assert numbers[: len(numbers) // 2] == numbers[len(numbers) // 2 :]


def test_records_without_timestamp_get_the_time_of_the_clock(broker: BrokerThread, topic: str):
    with RecordWriter(settings(broker), topic=topic, now_ms=lambda: 1_234_567_890_123) as writer:
        writer.write(pa.record_batch({"value": pa.array([b"v"])}))

    [message] = itertools.chain(*read_back(broker.bootstrap_servers, topic).values())
    assert message.timestamp()[1] == 1_234_567_890_123


def test_keys_can_be_ignored(broker: BrokerThread, topic: str):
    with RecordWriter(settings(broker, ignore_keys=True), topic=topic, first_partition=2) as writer:
        writer.write(arrow_batch([Row(b"%d" % number) for number in range(50)]))

    assert len(read_back(broker.bootstrap_servers, topic)[2]) == 50


def test_nothing_written_is_nothing_sent(broker: BrokerThread, topic: str):
    with RecordWriter(settings(broker), topic=topic) as writer:
        writer.write(arrow_batch([Row()]).slice(1))

    assert writer.written.record_count == 0
    assert writer.written.last_offsets == {}


# --- What cannot be written ---


def test_an_unknown_partition_is_named(broker: BrokerThread, topic: str):
    with RecordWriter(settings(broker), topic=topic) as writer:
        writer.write(arrow_batch([Row()] * 4))
        with pytest.raises(UnwritableRow) as raised:
            writer.write(arrow_batch([Row()] * 2, partition=pa.array([2, 3], pa.int32())))

    assert str(raised.value) == (
        f"column 'partition' of row 5 of the task is 3; topic {topic!r} has 3 partitions, from 0 on"
    )


def test_a_record_that_the_topic_does_not_take_is_named(broker: BrokerThread):
    name = next(_topics)
    broker.create_topic(name, 1, max_message_bytes=5000)
    with (
        pytest.raises(RecordTooLarge, match=rf"{name}-0: a record of 90\d\d bytes .* 5000 bytes \(max.message.bytes"),
        RecordWriter(settings(broker), topic=name) as writer,
    ):
        writer.write(arrow_batch([Row(value=bytes(9000))]))


def test_batches_larger_than_the_topic_takes_are_split(broker: BrokerThread):
    name = next(_topics)
    broker.create_topic(name, 1, max_message_bytes=5000)
    with RecordWriter(settings(broker), topic=name) as writer:
        writer.write(arrow_batch([Row(value=b"%d" % number * 400) for number in range(60)]))

    assert values_of(read_back(broker.bootstrap_servers, name, 1)[0]) == [b"%d" % number * 400 for number in range(60)]


def test_a_broker_that_is_not_there_is_an_error_in_time(broker: BrokerThread):
    with (
        pytest.raises(WriteFailed, match=r"was not found within 0.3 s \(max.block.ms\): cannot connect to"),
        RecordWriter(ProducerSettings(parse_addresses("127.0.0.1:1"), max_block_ms=300), topic="t") as writer,
    ):
        writer.write(arrow_batch([Row()]))


def test_an_error_of_an_earlier_batch_is_raised_and_ends_the_producer():
    with ScriptedKafka() as server:
        ScriptedLogs(Cluster([server], {"orders": [1]}), troubles=[ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER])
        producer = BatchProducer(settings_for(server, batch_size=100))
        writer = RecordWriter(producer.settings, topic="orders", producer=producer)
        writer.write(arrow_batch([Row(value=bytes(100))] * 3))
        with pytest.raises(WriteFailed, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
            writer.flush()
        writer.close()
        assert not producer.is_usable
        producer.close()


def test_a_writer_that_is_given_up_sends_nothing_more_and_ends_its_producer():
    with ScriptedKafka() as server:
        logs = ScriptedLogs(Cluster([server], {"orders": [1]}))
        producer = BatchProducer(settings_for(server))
        writer = RecordWriter(producer.settings, topic="orders", producer=producer)
        writer.write(arrow_batch([Row()]))

        writer.close()

        assert logs.logs["orders", 0].values == []
        assert not producer.is_usable
        producer.close()


def test_rows_are_grouped_in_their_order():
    import numpy as np

    assert [(number, where.tolist()) for number, where in group(np.array([2, 0, 2, 1, 0]))] == [
        (0, [1, 4]),
        (1, [3]),
        (2, [0, 2]),
    ]
    assert [(number, where.tolist()) for number, where in group(np.array([2, 0, 2]))] == [(0, [1]), (2, [0, 2])]
    assert [(number, where.tolist()) for number, where in group(np.array([4, 4]))] == [(4, [0, 1])]
