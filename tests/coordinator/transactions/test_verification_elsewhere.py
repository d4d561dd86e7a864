"""A transactional batch is let in when the coordinator says so, which is another broker (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tests.coordinator.transactions.open_transactions import committed
from tests.fakes.followed_metadata import elected, follow, registered
from tests.fakes.other_brokers import OtherBroker, OtherBrokers
from tests.handlers.transaction_client import (
    PRODUCE_FIRST_PROTOCOL,
    PRODUCE_SECOND_PROTOCOL,
    TransactionClient,
)
from trio_broker.common.topic_names import TRANSACTION_STATE_TOPIC
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.network.errors import ResponseLost
from trio_broker.storage.producer_state import ProducerStates, TransactionMarker

ELSEWHERE = 2
PRODUCER = ProducerIdAndEpoch(4242, 3)


def answered(code: ErrorCode = ErrorCode.NONE) -> Callable[[AddPartitionsToTxnRequest], AddPartitionsToTxnResponse]:
    """How a coordinator answers that says the same of every partition."""

    def answer(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                                for index in topic.partitions
                            ],
                        )
                        for topic in each.topics
                    ],
                )
                for each in request.transactions
            ]
        )

    return answer


@attrs.frozen
class Leader:
    """A broker that leads partitions, while another one coordinates all transactional ids."""

    client: TransactionClient
    coordinator: OtherBroker

    async def produce(self, partition: int = 0, **fields: Any) -> int:
        return await self.client.produce(PRODUCER, partition, **fields)

    def asked(self) -> list[tuple[str, int, int, bool, dict[str, list[int]]]]:
        return [
            (
                each.transactional_id,
                each.producer_id,
                each.producer_epoch,
                each.verify_only,
                {topic.name: topic.partitions for topic in each.topics},
            )
            for request in self.coordinator.asked
            for each in request.transactions
        ]


@pytest.fixture
async def leader(client: TransactionClient, monkeypatch: pytest.MonkeyPatch) -> Leader:
    services, others = client.wire.services, OtherBrokers()
    monkeypatch.setattr(services.transaction_verification._sender, "clients", others)
    await follow(services, registered(ELSEWHERE, 9093))
    for index in range(2):
        await follow(services, elected(services, TRANSACTION_STATE_TOPIC, ELSEWHERE, index))
    await trio.testing.wait_all_tasks_blocked()
    return Leader(client, others.add(ELSEWHERE, answered()))


async def test_a_batch_of_the_first_protocol_is_verified_by_its_coordinator(leader):
    assert await leader.produce(version=PRODUCE_FIRST_PROTOCOL) == 0
    assert leader.asked() == [("id", 4242, 3, True, {"t": [0]})]
    assert await leader.produce(version=PRODUCE_FIRST_PROTOCOL, sequence=1) == 0
    assert len(leader.asked()) == 1, "the log has records of the transaction already"


async def test_a_batch_of_the_second_protocol_adds_its_partition_there(leader):
    assert await leader.produce(1, version=PRODUCE_SECOND_PROTOCOL) == 0
    assert leader.asked() == [("id", 4242, 3, False, {"t": [1]})]


@pytest.mark.parametrize(
    ("says", "version", "code"),
    [
        (ErrorCode.TRANSACTION_ABORTABLE, PRODUCE_FIRST_PROTOCOL, ErrorCode.TRANSACTION_ABORTABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, PRODUCE_SECOND_PROTOCOL, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, PRODUCE_FIRST_PROTOCOL, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.PRODUCER_FENCED, PRODUCE_SECOND_PROTOCOL, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NOT_COORDINATOR, PRODUCE_SECOND_PROTOCOL, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, PRODUCE_FIRST_PROTOCOL, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
async def test_what_the_coordinator_refuses_is_not_appended(leader, says, version, code):
    leader.coordinator.answer = answered(says)
    assert await leader.produce(version=version) == code
    assert leader.client.contents() == []


async def test_a_coordinator_that_does_not_answer_makes_the_producer_try_again(leader):
    leader.coordinator.answer = ResponseLost("broker 2: the connection broke")
    assert await leader.produce(version=PRODUCE_SECOND_PROTOCOL) == ErrorCode.NOT_ENOUGH_REPLICAS
    leader.coordinator.answer = answered()
    assert await leader.produce(version=PRODUCE_SECOND_PROTOCOL) == 0


async def test_nobody_coordinates_makes_the_producer_try_again(leader):
    services = leader.client.wire.services
    for index in range(2):
        await follow(services, elected(services, TRANSACTION_STATE_TOPIC, -1, index))
    assert await leader.produce(version=PRODUCE_SECOND_PROTOCOL) == ErrorCode.NOT_ENOUGH_REPLICAS


async def test_a_marker_that_comes_between_the_answer_and_the_append_voids_it(leader, nursery):
    """The transaction has ended: no other marker would follow the batch."""
    leader.coordinator.may_answer = trio.Event()
    codes = []

    async def produce() -> None:
        codes.append(await leader.produce(version=PRODUCE_SECOND_PROTOCOL))

    nursery.start_soon(produce)
    await trio.testing.wait_all_tasks_blocked()
    assert len(leader.asked()) == 1
    assert await leader.client.write_marker(PRODUCER) == 0
    leader.coordinator.may_answer.set()
    await trio.testing.wait_all_tasks_blocked()
    assert codes == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert leader.client.contents() == [(4242, 3, False)]


async def test_the_offsets_of_a_transaction_are_verified_by_its_coordinator(leader):
    assert await leader.client.commit_offset(PRODUCER, 5) == 0
    assert leader.asked() == [("id", 4242, 3, True, {"__consumer_offsets": [0]})]
    assert await committed(leader.client) == {}
    leader.coordinator.answer = answered(ErrorCode.TRANSACTION_ABORTABLE)
    assert await leader.client.commit_offset(ProducerIdAndEpoch(1, 1), 5) == ErrorCode.TRANSACTION_ABORTABLE


# ---- the guard -------------------------------------------------------------------------------------------------------


def marker(producer_id: int) -> TransactionMarker:
    return TransactionMarker(producer_id, 0, 0, offset=0, timestamp_ms=0, aborted=True)


def test_a_guard_holds_until_the_marker_of_its_producer():
    producers = ProducerStates()
    guard = producers.verification_guard(1)
    assert producers.verification_guard(1) is guard
    producers.complete(marker(2))
    assert producers.is_verified(1, guard)
    producers.complete(marker(1))
    assert not producers.is_verified(1, guard)


def test_a_guard_that_nobody_holds_takes_no_memory():
    producers = ProducerStates()
    for producer_id in range(100):
        producers.verification_guard(producer_id)
    assert len(producers._guards) == 0
