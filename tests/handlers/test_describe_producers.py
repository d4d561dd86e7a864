"""DescribeProducers: what each partition remembers of its producers."""

from __future__ import annotations

import errno

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from kafka_wire.records.control import EndTransactionMarker, build_control_batch
from tests.handlers.loop_rounds import counted_rounds
from tests.leader_append import append_to_leader
from tests.partition.real_logs import NOW_MS, add_topic, batch
from trio_broker.concurrency import yield_budget
from trio_broker.handlers.describe_producers import describe_producers, error_response
from trio_broker.storage.append import AppendOrigin


def naming(*topics, partitions=(0,)):
    return DescribeProducersRequest(
        topics=[TopicRequest(name=topic, partition_indexes=list(partitions)) for topic in topics]
    )


async def ask(client, request):
    """The partitions of the response, by topic and index."""
    response = await client.ask(describe_producers, request, 0)
    return {
        (topic.name, partition.partition_index): partition
        for topic in response.topics
        for partition in topic.partitions
    }


async def produce(replicas, partition, *values, sequence=0, producer_id=7, **options):
    records = batch(*values, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **options)
    await append_to_leader(replicas, partition, records)


@pytest.fixture
async def partition(replicas):
    [made] = await add_topic(replicas)
    return made


async def test_a_producer_is_known_by_its_epoch_its_last_sequence_and_its_last_timestamp(client, partition, replicas):
    await produce(replicas, partition, b"a", b"b", timestamp=NOW_MS - 1000)
    await produce(replicas, partition, b"c", sequence=2)
    answer = (await ask(client, naming("orders")))["orders", 0]
    assert (answer.error_code, answer.error_message) == (0, None)
    assert answer.active_producers == [
        ProducerState(
            producer_id=7,
            producer_epoch=0,
            last_sequence=2,
            last_timestamp=NOW_MS,
            coordinator_epoch=-1,
            current_txn_start_offset=-1,
        )
    ]


async def test_an_open_transaction_is_known_by_its_first_offset_until_its_marker(client, partition, replicas):
    await produce(replicas, partition, b"before", producer_id=8)
    records = batch(b"open", producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    partition.writer.append(records, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    answer = (await ask(client, naming("orders")))["orders", 0]
    assert [(each.producer_id, each.current_txn_start_offset) for each in answer.active_producers] == [(8, -1), (9, 1)]

    marker = build_control_batch(
        EndTransactionMarker(committed=True, coordinator_epoch=4), timestamp=NOW_MS, producer_id=9, producer_epoch=0
    )
    partition.writer.append(memoryview(bytearray(marker)), now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    decided = (await ask(client, naming("orders")))["orders", 0].active_producers[1]
    assert (decided.current_txn_start_offset, decided.coordinator_epoch) == (-1, 4)


async def test_producers_without_an_id_leave_no_trace(client, partition, replicas):
    await append_to_leader(replicas, partition, batch(b"a"))
    assert (await ask(client, naming("orders")))["orders", 0].active_producers == []


async def test_a_partition_that_is_named_twice_is_described_once(client, partition):
    response = await client.ask(describe_producers, naming("orders", "orders", partitions=(0, 0)), 0)
    [topic] = response.topics
    assert [each.partition_index for each in topic.partitions] == [0]


@pytest.mark.parametrize(
    ("topic", "index", "code"),
    [
        ("orders", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("nothing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__cluster_metadata", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("bad/name", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
async def test_each_partition_that_is_not_here_has_its_own_error_and_a_reason(client, partition, topic, index, code):
    answers = await ask(
        client, DescribeProducersRequest(topics=[*naming("orders").topics, *naming(topic, partitions=(index,)).topics])
    )
    assert answers["orders", 0].error_code == 0
    answer = answers[topic, index]
    assert (answer.error_code, answer.active_producers) == (code, [])
    assert answer.error_message


async def test_a_partition_whose_disk_failed_answers_storage_error(client, partition, replicas):
    replicas.failures.storage_failed(partition, OSError(errno.EIO, "gone"))
    assert (await ask(client, naming("orders")))["orders", 0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_other_tasks_run_while_many_producers_are_described(client, partition, replicas, monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    for producer_id in range(200):
        await produce(replicas, partition, b"a", producer_id=producer_id)
    async with counted_rounds() as rounds:
        await ask(client, naming("orders"))
    assert rounds.count >= 200


def test_a_refusal_is_reported_for_every_partition():
    response = error_response(
        naming("orders", partitions=(0, 1)), KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR)
    )
    assert [(each.error_code, each.error_message) for each in response.topics[0].partitions] == [(-1, "no")] * 2
