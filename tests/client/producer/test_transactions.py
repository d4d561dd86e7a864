"""What the client of transactions takes for done, and what for refused."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from tests.client.scripted_client import CLIENT_ID, WAIT_SECONDS, Pauses, coordinator_at
from tests.fakes.scripted_kafka import ScriptedKafka
from trio_broker.client.address import parse_addresses
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.errors import Refused
from trio_broker.client.producer.transactions import Transaction, TransactionClient
from trio_broker.common.topic_partition import TopicPartition

NOT_ATTEMPTED, UNKNOWN = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_SERVER_ERROR
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def add(codes: dict[int, int]) -> None:
    """Add two partitions, which the coordinator answers with these codes."""
    results = [
        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        for index, code in codes.items()
    ]
    topics = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)]
    response = AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
    server = ScriptedKafka({AddPartitionsToTxnRequest: response})
    server.answers[FindCoordinatorRequest] = coordinator_at(server)
    with server:
        client = TransactionClient(
            ConnectionSettings(parse_addresses(server.address), CLIENT_ID),
            request_seconds=WAIT_SECONDS,
            block_seconds=WAIT_SECONDS,
            deadline_after=Pauses().deadline,
        )
        with client:
            client.add_partitions(Transaction("id", 1, 0), [TopicPartition("t", index) for index in (0, 1)])


def test_partitions_that_were_added_are_part_of_the_transaction():
    add({0: 0, 1: 0})


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ({0: NOT_ATTEMPTED, 1: DENIED}, DENIED),
        ({0: DENIED, 1: NOT_ATTEMPTED}, DENIED),
        ({0: NOT_ATTEMPTED, 1: NOT_ATTEMPTED}, NOT_ATTEMPTED),
        ({0: 0, 1: NOT_ATTEMPTED}, NOT_ATTEMPTED),
        ({0: 0}, UNKNOWN),
        ({}, UNKNOWN),
    ],
)
def test_a_partition_of_which_the_answer_does_not_say_that_it_was_added_is_refused(
    codes: dict[int, int], expected: int
):
    with pytest.raises(Refused) as raised:
        add(codes)
    assert raised.value.code == expected
