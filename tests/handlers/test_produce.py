"""Produce as clients of all versions see it."""

from __future__ import annotations

import errno

import pytest
import trio

from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kafka_wire.primitives import NO_UUID
from kafka_wire.records.batch import read_batch_header
from kafka_wire.records.compression import Codec
from tests.handlers.handler_client import Client
from tests.partition.real_logs import (
    NODE_ID,
    NOW_MS,
    TOPIC_ID,
    add_topic,
    batch,
    led,
    make_replicas,
    require_side_by_side,
)
from trio_broker.handlers.produce import encoded_success, error_response, produce
from trio_broker.network.errors import CloseConnection
from trio_broker.storage.errors import StorageFailed
from trio_broker.storage.log import Log

ALL, LEADER, NONE = -1, 1, 0


def request(records, *, acks=LEADER, topic="orders", topic_id=NO_UUID, index=0, timeout_ms=30_000, **fields):
    data = PartitionProduceData(index=index, records=records)
    topics = [TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics, **fields)


async def ask(client, records, version=9, **fields):
    """The one partition's part of the response."""
    response = await client.ask(produce, request(records, **fields), version)
    [[partition]] = [topic.partition_responses for topic in response.responses]
    return partition


async def test_batches_get_consecutive_offsets(client, replicas):
    await add_topic(replicas)
    assert (await ask(client, batch(b"a", b"b"))).base_offset == 0
    answer = await ask(client, batch(b"c"))
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, 2, 0)


@pytest.mark.parametrize("version", range(3, 13))
async def test_every_version_by_name(client, replicas, version):
    await add_topic(replicas)
    answer = await ask(client, batch(b"a"), version)
    assert (answer.error_code, answer.base_offset) == (0, 0)


async def test_version_13_goes_by_id_alone(client, replicas):
    await add_topic(replicas)
    response = await client.ask(produce, request(batch(b"a"), topic_id=TOPIC_ID), 13)
    [topic] = response.responses
    assert topic.topic_id == TOPIC_ID
    assert topic.partition_responses[0].error_code == 0
    answer = await ask(client, batch(b"a"), 13, topic_id=bytes(range(16, 32)))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", range(5, 14))
@pytest.mark.parametrize("numbers", [(0, 0, -1, 0), (2**31 - 1, 2**63 - 1, NOW_MS, 2**40)])
def test_the_answer_for_one_batch_is_encoded_as_every_other(version, numbers):
    index, base_offset, log_append_time_ms, log_start_offset = numbers
    partition = PartitionProduceResponse(
        index=index,
        base_offset=base_offset,
        log_append_time_ms=log_append_time_ms,
        log_start_offset=log_start_offset,
    )
    by_id = version >= 13
    topic = TopicProduceResponse(
        name="" if by_id else "orders", topic_id=TOPIC_ID if by_id else NO_UUID, partition_responses=[partition]
    )
    response = ProduceResponse(responses=[topic])
    assert encoded_success(version, topic, partition) == encode_bytes(response, version)


async def test_an_unknown_topic_or_partition_is_reported_for_its_partition(client, replicas):
    await add_topic(replicas)
    assert (await ask(client, batch(), topic="nothing")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await ask(client, batch(), index=5)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_one_refusal_does_not_undo_the_others(client, replicas):
    await add_topic(replicas, partitions=2)
    data = [
        PartitionProduceData(index=0, records=batch(b"a")),
        PartitionProduceData(index=7, records=batch(b"b")),
        PartitionProduceData(index=1, records=batch(b"c")),
    ]
    topics = [TopicProduceData(name="orders", partition_data=data)]
    response = await client.ask(produce, ProduceRequest(acks=1, timeout_ms=1, topic_data=topics), 9)
    codes = [(each.index, each.error_code) for each in response.responses[0].partition_responses]
    assert codes == [(0, 0), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (1, 0)]


async def test_the_leader_epochs_of_all_partitions_of_a_request_begin_side_by_side(client, replicas, monkeypatch):
    await add_topic(replicas, partitions=3)
    require_side_by_side(monkeypatch, 3)
    data = [PartitionProduceData(index=index, records=batch(b"a")) for index in (0, 1, 7, 2)]
    topics = [
        TopicProduceData(name="nothing", partition_data=data),
        TopicProduceData(name="orders", partition_data=data),
    ]
    response = await client.ask(produce, ProduceRequest(acks=1, timeout_ms=1, topic_data=topics), 9)
    assert [each.error_code for each in response.responses[1].partition_responses] == [0, 0, 3, 0]


async def test_a_topic_without_partitions_beside_the_one_with_a_batch_is_answered_too(client, replicas):
    await add_topic(replicas)
    topics = [
        TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=batch(b"a"))]),
        TopicProduceData(name="orders", partition_data=[]),
    ]
    response = await client.ask(produce, ProduceRequest(acks=1, timeout_ms=1, topic_data=topics), 9)
    assert [len(each.partition_responses) for each in response.responses] == [1, 0]
    assert response.responses[0].partition_responses[0].error_code == 0


async def test_internal_topics_are_closed_to_clients(replicas):
    await add_topic(replicas, "__consumer_offsets")
    answer = await ask(Client(replicas), batch(), topic="__consumer_offsets")
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    tool = Client(replicas, client_id="__admin_client")
    assert (await ask(tool, batch(), topic="__consumer_offsets")).error_code == 0


def idempotent(*values, sequence=0, epoch=0):
    return batch(*values, producer_id=7, producer_epoch=epoch, base_sequence=sequence)


async def test_a_repeated_batch_answers_its_first_offset_and_is_not_written_again(client, replicas):
    [partition] = await add_topic(replicas)
    for sequence in range(5):
        await ask(client, idempotent(b"a", sequence=sequence))
    for sequence in range(5):
        answer = await ask(client, idempotent(b"a", sequence=sequence))
        assert (answer.error_code, answer.base_offset) == (0, sequence)
    assert partition.log_end_offset == 5


async def test_a_gap_answers_45_and_an_old_epoch_47(client, replicas):
    await add_topic(replicas)
    await ask(client, idempotent(b"a", epoch=1))
    assert (await ask(client, idempotent(b"a", sequence=5, epoch=1))).error_code == 45
    assert (await ask(client, idempotent(b"a", epoch=0))).error_code == 47


async def test_without_a_producer_id_epoch_and_sequence_are_junk(client, replicas):
    await add_topic(replicas)
    for epoch, sequence in ((-1, -1), (-1, 0), (0, 0)):
        for _ in range(2):
            records = batch(b"a", producer_id=-1, producer_epoch=epoch, base_sequence=sequence)
            assert (await ask(client, records)).error_code == 0


@pytest.mark.parametrize("acks", [2, -2, 100])
async def test_other_acks_are_refused(client, replicas, acks):
    await add_topic(replicas)
    with pytest.raises(KafkaError, match="acks must be") as raised:
        await ask(client, batch(), acks=acks)
    [topic] = error_response(request(batch(), acks=acks), raised.value).responses
    assert topic.partition_responses[0].error_code == ErrorCode.INVALID_REQUIRED_ACKS


async def test_acks_0_is_never_answered(client, replicas):
    [partition] = await add_topic(replicas)
    assert await client.ask(produce, request(batch(b"a"), acks=NONE), 9) is None
    assert partition.log_end_offset == 1


async def test_an_error_with_acks_0_closes_the_connection(client, replicas):
    with pytest.raises(CloseConnection, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await client.ask(produce, request(batch(), acks=NONE, topic="nothing"), 9)
    with pytest.raises(CloseConnection):
        error_response(request(batch(), acks=NONE), KafkaError("our bug"))


def damaged(records):
    records[-1] ^= 1
    return records


def control(records):
    return batch(b"a", control=True)


async def test_batch_rules(client, replicas):
    [partition] = await add_topic(replicas, configs={"max.message.bytes": "1000"})
    two = memoryview(bytearray(bytes(batch(b"a")) + bytes(batch(b"b"))))
    assert (await ask(client, two)).error_code == ErrorCode.INVALID_RECORD
    assert (await ask(client, None)).error_code == ErrorCode.INVALID_RECORD
    assert (await ask(client, memoryview(b""))).error_code == ErrorCode.INVALID_RECORD
    assert (await ask(client, damaged(batch(b"a")))).error_code == ErrorCode.CORRUPT_MESSAGE
    assert (await ask(client, batch(b"a", control=True))).error_code == ErrorCode.INVALID_RECORD
    assert (await ask(client, batch(b"v" * 2000))).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert partition.log_end_offset == 0


async def test_zstd_needs_version_7(client, replicas):
    await add_topic(replicas)
    answer = await ask(client, batch(b"a", codec=Codec.ZSTD), 6)
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await ask(client, batch(b"a", codec=Codec.ZSTD), 7)).error_code == 0


async def test_offset_and_epoch_are_stamped_and_the_records_left_alone(client, replicas):
    [partition] = await add_topic(replicas, leader_epoch=3)
    await ask(client, batch(b"a"))
    sent = bytes(batch(b"b", b"c"))
    await ask(client, memoryview(bytearray(sent)))
    read = partition.log.read(1, 10_000, end_offset=3).records
    stored = read if isinstance(read, bytes) else read.read()
    header = read_batch_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 3)
    assert stored[17:] == sent[17:]


async def test_create_time_answers_no_append_time(client, replicas):
    await add_topic(replicas)
    assert (await ask(client, batch(b"a"))).log_append_time_ms == -1


async def test_log_append_time_is_the_brokers(client, replicas):
    await add_topic(replicas, configs={"message.timestamp.type": "LogAppendTime"})
    answer = await ask(client, batch(b"a", timestamp=5))
    assert answer.log_append_time_ms == NOW_MS


async def test_a_timestamp_too_far_ahead_is_refused(client, replicas):
    await add_topic(replicas)
    late = batch(b"a", timestamp=NOW_MS + 3_600_001)
    assert (await ask(client, late)).error_code == ErrorCode.INVALID_TIMESTAMP
    assert (await ask(client, batch(b"a", timestamp=NOW_MS + 3_600_000))).error_code == 0


async def test_version_8_names_the_bad_record_and_the_reason(client, replicas):
    await add_topic(replicas, configs={"cleanup.policy": "compact"})
    answer = await ask(client, batch(b"no key"), 8)
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert answer.error_message.startswith("One or more records have been rejected due to 1 record errors in total")
    [error] = answer.record_errors
    assert error.batch_index == 0
    assert error.batch_index_error_message == (
        "Compacted topic cannot accept message without key in topic partition orders-0"
    )
    assert answer.log_start_offset == 0
    older = await ask(client, batch(b"no key"), 7)
    assert (older.error_code, older.error_message, older.record_errors) == (ErrorCode.INVALID_RECORD, None, [])


async def test_a_batch_out_of_sequence_is_answered_with_the_log_start_offset(client, replicas):
    """By it a producer sees that the broker has lost its sequence because its records were deleted."""
    [partition] = await add_topic(replicas)
    idempotent = {"producer_id": 7, "producer_epoch": 0}
    assert (await ask(client, batch(b"a", b"b", base_sequence=0, **idempotent))).error_code == 0
    await replicas.record_deletion.delete({partition: 1})
    answer = await ask(client, batch(b"d", base_sequence=9, **idempotent))
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1)


async def test_a_corrupt_batch_is_answered_without_an_offset(client, replicas):
    await add_topic(replicas)
    damaged = bytearray(batch(b"a"))
    damaged[-1] ^= 1
    answer = await ask(client, bytes(damaged))
    assert (answer.error_code, answer.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


async def test_a_transactional_batch_without_a_transactional_id_is_refused(client, replicas):
    await add_topic(replicas)
    records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    assert (await ask(client, records)).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


async def test_acks_all_needs_min_in_sync_replicas_and_acks_1_does_not(client, replicas):
    [partition] = await add_topic(replicas, configs={"min.insync.replicas": "2"})
    assert (await ask(client, batch(b"one replica"), acks=ALL)).error_code == 0, "more than there are, as in Kafka"
    partition.writer.lead_at_once(led(1, isr=(NODE_ID,), replicas=(NODE_ID, 2)), 0.0)
    assert (await ask(client, batch(b"a"), acks=ALL)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log_end_offset == 1
    assert (await ask(client, batch(b"a"), acks=LEADER)).error_code == 0


async def test_in_page_cache_mode_acks_all_is_answered_without_waiting(client, replicas):
    [partition] = await add_topic(replicas)
    await replicas.appends.ready_to_append(partition)
    assert (await ask(client, batch(b"a"), acks=ALL)).error_code == 0
    assert client.delayed == 0


async def test_in_fsync_mode_acks_all_waits_for_the_disk(durable_client, durable_replicas):
    [partition] = await add_topic(durable_replicas)
    await durable_replicas.appends.ready_to_append(partition)
    answer = await ask(durable_client, batch(b"a"), acks=ALL)
    assert (answer.error_code, answer.base_offset) == (0, 0)
    assert partition.state.durable_offset == 1
    assert durable_client.delayed == 1


async def test_in_fsync_mode_acks_1_does_not_wait_and_becomes_visible_all_the_same(durable_client, durable_replicas):
    [partition] = await add_topic(durable_replicas)
    await durable_replicas.appends.ready_to_append(partition)
    await ask(durable_client, batch(b"a"), acks=LEADER)
    assert durable_client.delayed == 0
    await durable_replicas.flusher.wait_idle(partition.writer)
    assert partition.high_watermark == 1


async def test_one_sync_releases_many_producers(durable_client, durable_replicas):
    await add_topic(durable_replicas)
    await ask(durable_client, batch(b"first"), acks=ALL)
    before = durable_replicas.flusher.statistics().syncs
    async with trio.open_nursery() as nursery:
        for _ in range(64):
            nursery.start_soon(ask, Client(durable_replicas), batch(b"a"), 9)
    async with trio.open_nursery() as nursery:
        for _ in range(64):
            nursery.start_soon(lambda: ask(Client(durable_replicas), batch(b"a"), acks=ALL))
    assert durable_replicas.flusher.statistics().syncs - before < 20


async def test_acks_all_that_takes_too_long_answers_7_with_the_offset(tmp_path, autojump_clock):
    replicas = make_replicas(tmp_path / "data")  # its flusher does not run
    await add_topic(replicas)
    answer = await ask(Client(replicas), batch(b"a"), acks=ALL, timeout_ms=1500)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    replicas.log_manager.close(clean=False)


async def test_a_disk_that_fails_answers_storage_error(durable_client, durable_replicas, monkeypatch):
    await add_topic(durable_replicas)

    def fail(self):
        raise StorageFailed(errno.EIO, "gone")

    monkeypatch.setattr(Log, "sync_files", fail)
    assert (await ask(durable_client, batch(b"a"), acks=ALL)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (await ask(durable_client, batch(b"b"), acks=LEADER)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_request_of_very_many_batches_yields(client, replicas, nursery):
    await add_topic(replicas)
    many = request(batch(b"a"))
    many.topic_data[0].partition_data *= 500
    await ask(client, batch(b"first"))  # which writes the epoch down, and waits for that
    others_turns = 0

    async def somebody_else():
        nonlocal others_turns
        while True:
            await trio.lowlevel.checkpoint()
            others_turns += 1

    nursery.start_soon(somebody_else)
    response = await client.ask(produce, many, 9)
    assert len(response.responses[0].partition_responses) == 500
    assert others_turns >= 5
    nursery.cancel_scope.cancel()
