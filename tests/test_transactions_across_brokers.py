"""A transaction whose coordinator is one broker and whose partition another one leads, on real sockets."""

from __future__ import annotations

from pathlib import Path

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.end_txn import EndTxnRequest
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.init_producer_id import InitProducerIdRequest
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.fakes.followed_metadata import elected, follow, registered
from tests.running_broker import Connection, connected, running, until
from tests.waits import fail_after
from trio_broker.broker import Broker
from trio_broker.common.topic_names import TRANSACTION_STATE_TOPIC
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch

WAIT_SECONDS = 20
COORDINATOR, LEADER = 1, 2
SECOND_PROTOCOL = 5
"""Of EndTxn, whose transactions Produce 12 adds to (KIP-890)."""


async def prepare(broker: Broker, other: Broker, other_id: int) -> None:
    """Let ``broker`` know of the other one, after each has made the topics for itself."""
    endpoint = other.bound_endpoints[0]
    await follow(broker.services, registered(other_id, endpoint.port, host=endpoint.host))


async def make_topics(broker: Broker) -> None:
    async with connected(broker) as client:
        assert await client.try_create_topic("t") == ErrorCode.NONE
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=["id"])
        response = await client.ask(request, 4)
        assert response.coordinators[0].error_code == 0


async def produce(client: Connection, producer: ProducerIdAndEpoch, sequence: int) -> ErrorCode:
    records = build_batch(
        [NewRecord(0, b"key", b"value")],
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        transactional=True,
    )
    data = PartitionProduceData(index=0, records=memoryview(bytearray(records)))
    topic = TopicProduceData(name="t", partition_data=[data])
    request = ProduceRequest(transactional_id="id", acks=-1, timeout_ms=5000, topic_data=[topic])
    response = await client.ask(request, 12)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


async def end(client: Connection, producer: ProducerIdAndEpoch, *, commits: bool) -> ProducerIdAndEpoch:
    """End the transaction; return the producer of the next one."""
    request = EndTxnRequest(
        transactional_id="id", producer_id=producer.producer_id, producer_epoch=producer.epoch, committed=commits
    )
    response = await client.ask(request, SECOND_PROTOCOL)
    assert response.error_code == 0, ErrorCode(response.error_code)
    return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)


async def test_a_transaction_is_verified_and_ended_across_brokers(tmp_path: Path) -> None:
    settings = {"transaction_state_log_num_partitions": "1"}
    with fail_after(WAIT_SECONDS):
        async with (
            running(tmp_path / "1", node_id=str(COORDINATOR), **settings) as coordinator,
            running(tmp_path / "2", node_id=str(LEADER), **settings) as leader,
        ):
            for each in (coordinator, leader):
                await make_topics(each)
            await prepare(coordinator, leader, LEADER)
            await prepare(leader, coordinator, COORDINATOR)
            await follow(coordinator.services, elected(coordinator.services, "t", LEADER))
            await follow(leader.services, elected(leader.services, TRANSACTION_STATE_TOPIC, COORDINATOR))
            partition = leader.services.replicas.topic("t").partition(0)
            async with connected(coordinator) as ids, connected(leader) as records:
                begun = await ids.ask(InitProducerIdRequest(transactional_id="id", transaction_timeout_ms=60_000), 5)
                producer = ProducerIdAndEpoch(begun.producer_id, begun.producer_epoch)
                assert await produce(records, producer, 0) == ErrorCode.NONE
                assert await produce(records, producer, 1) == ErrorCode.NONE
                assert partition.last_stable_offset == 0
                successor = await end(ids, producer, commits=True)
                await until(lambda: partition.last_stable_offset == 3)
                fenced = await produce(records, producer, 2)
                assert fenced in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NOT_ENOUGH_REPLICAS)
                await until_accepted(records, successor)
                await end(ids, successor, commits=False)
                await until(lambda: partition.last_stable_offset == 5)
                assert not coordinator.services.replicas.topic("t").partition(0).log_end_offset


async def until_accepted(client: Connection, producer: ProducerIdAndEpoch) -> None:
    """Produce the first record of a transaction, as soon as the one before has all its markers."""
    code = ErrorCode.CONCURRENT_TRANSACTIONS
    while code is ErrorCode.CONCURRENT_TRANSACTIONS:
        code = await produce(client, producer, 0)
    assert code is ErrorCode.NONE, code
