"""Transactions of the Python clients, all of the first protocol: records and offsets of a loop that reads, processes
and writes.

Each loop moves what is in ``input`` to ``output`` in transactions, and aborts every third one: what it read is then
read again. In the end each input must be in the output once, for those who read what is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.structs import TopicPartition as AioTopicPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import OffsetAndMetadata as PythonOffset
from kafka.structs import TopicPartition as PythonTopicPartition

from tests.consumed_messages import consumed
from tests.waits import scaled, within
from trio_broker.testing.process import BrokerProcess

SECONDS = 30
RECORDS = 60
RECORDS_PER_TRANSACTION = 5

INPUT = [b"record %d" % number for number in range(RECORDS)]


class Transactions:
    """Which transactions of a loop are aborted, and how far its commits have come."""

    def __init__(self) -> None:
        self.position = 0
        self._count = 0

    def next_values(self) -> list[bytes]:
        return INPUT[self.position : self.position + RECORDS_PER_TRANSACTION]

    def commits(self) -> bool:
        """Whether the next one is committed."""
        self._count += 1
        return self._count % 3 != 0


def confluent_loop(servers: str, source: str, target: str, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False})
    consumer.assign([TopicPartition(source, 0, OFFSET_BEGINNING)])
    producer = Producer({"bootstrap.servers": servers, "transactional.id": group})
    producer.init_transactions(SECONDS)
    transactions = Transactions()
    while values := transactions.next_values():
        producer.begin_transaction()
        for value in values:
            producer.produce(target, value, partition=transactions.position % 2)
        end = transactions.position + len(values)
        offsets = [TopicPartition(source, 0, end)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), SECONDS)
        if transactions.commits():
            producer.commit_transaction(SECONDS)
            transactions.position = end
        else:
            producer.abort_transaction(SECONDS)
    consumer.close()


def kafka_python_loop(servers: str, source: str, target: str, group: str) -> None:
    with KafkaProducer(bootstrap_servers=servers, transactional_id=group) as producer:
        producer.init_transactions()
        transactions = Transactions()
        while values := transactions.next_values():
            producer.begin_transaction()
            for value in values:
                producer.send(target, value, partition=transactions.position % 2)
            end = transactions.position + len(values)
            offsets = {PythonTopicPartition(source, 0): PythonOffset(end, "", -1)}
            producer.send_offsets_to_transaction(offsets, group)
            if transactions.commits():
                producer.commit_transaction()
                transactions.position = end
            else:
                producer.abort_transaction()


def aiokafka_loop(servers: str, source: str, target: str, group: str) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=group) as producer:
            transactions = Transactions()
            while values := transactions.next_values():
                await producer.begin_transaction()
                for value in values:
                    await producer.send(target, value, partition=transactions.position % 2)
                end = transactions.position + len(values)
                await producer.send_offsets_to_transaction({AioTopicPartition(source, 0): end}, group)
                if transactions.commits():
                    await producer.commit_transaction()
                    transactions.position = end
                else:
                    await producer.abort_transaction()

    asyncio.run(run())


def confluent_read(servers: str, topic: str) -> list[bytes]:
    places = [(topic, partition) for partition in range(2)]
    return [message.value() or b"" for message in consumed(servers, places, fetch_wait_max_ms=10)]


def kafka_python_read(servers: str, topic: str) -> list[bytes]:
    partitions = [PythonTopicPartition(topic, partition) for partition in range(2)]
    with KafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        ends = consumer.end_offsets(partitions)
        values: list[bytes] = []
        while any(consumer.position(each) < ends[each] for each in partitions):
            values += [record.value for records in consumer.poll(1000).values() for record in records]
        return values


def aiokafka_read(servers: str, topic: str) -> list[bytes]:
    async def run() -> list[bytes]:
        partitions = [AioTopicPartition(topic, partition) for partition in range(2)]
        async with AIOKafkaConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            values: list[bytes] = []
            while len(values) < RECORDS:
                found = await asyncio.wait_for(consumer.getmany(timeout_ms=1000), scaled(SECONDS))
                values += [record.value for records in found.values() for record in records]
            # What came beyond would be there by now.
            found = await consumer.getmany(timeout_ms=200)
            return values + [record.value for records in found.values() for record in records]

    return asyncio.run(run())


LOOPS: dict[str, Callable[[str, str, str, str], None]] = {
    "confluent-kafka": confluent_loop,
    "kafka-python": kafka_python_loop,
    "aiokafka": aiokafka_loop,
}

READERS = [confluent_read, kafka_python_read, aiokafka_read]


@pytest.mark.parametrize("client", LOOPS)
def test_each_record_is_processed_once_and_its_offset_is_committed_with_the_result(
    client: str, broker: BrokerProcess
) -> None:
    servers, source, target, group = broker.bootstrap_servers, f"{client}-in", f"{client}-out", f"{client}-loop"
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(source, 1, 1), NewTopic(target, 2, 1)]).values():
        within(created.result, SECONDS)
    LOOPS[client](servers, source, target, group)
    for read in READERS:
        assert sorted(read(servers, target)) == sorted(INPUT), read.__name__
    asked = [ConsumerGroupTopicPartitions(group)]
    [offset] = within(admin.list_consumer_group_offsets(asked)[group].result, SECONDS).topic_partitions
    assert (offset.topic, offset.offset) == (source, RECORDS)
