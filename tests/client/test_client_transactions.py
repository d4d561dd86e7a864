"""Transactions as brokers of different age tell of them, and an abort over answers that are lost."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_producers import DescribeProducersRequest
from kafka_wire.messages.describe_transactions import DescribeTransactionsRequest
from kafka_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_wire.messages.list_transactions import ListTransactionsRequest
from kafka_wire.messages.metadata import MetadataRequest
from tests.cli.test_transaction_commands import listing, state, transaction_server
from tests.client.scripted_client import Pauses, client_of
from tests.fakes.scripted_kafka import CLOSED, Cluster, ScriptedKafka
from trio_broker.client.errors import Refused, VersionNotServed
from trio_broker.client.transactions import (
    PARTITIONS_PER_REQUEST,
    TransactionListFilter,
    abort_transaction,
    coordinated_partitions,
    describe_producers,
    describe_transaction,
    list_transactions,
    open_transactions,
)
from trio_broker.common.topic_partition import TopicPartition

BUSY = InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_id=-1, producer_epoch=-1)


def clustered(servers: list[ScriptedKafka], **settings: Any) -> None:
    """Let these servers be one cluster, in place of one each."""
    for server in servers:
        del server.answers[MetadataRequest]
    Cluster(servers, **settings)


def test_the_transactions_of_all_brokers_are_listed_once():
    first, second = transaction_server(), transaction_server()
    second.node_id = 2
    with first, second:
        clustered([first, second])
        with client_of(first) as client:
            [found] = list_transactions(client, TransactionListFilter())
    assert (found.transactional_id, found.coordinator_id) == ("billing", 2)
    assert len(first.requests(ListTransactionsRequest)) == len(second.requests(ListTransactionsRequest)) == 1


def test_an_abort_whose_answer_was_lost_is_not_repeated_once_it_has_worked():
    with transaction_server() as server, client_of(server, pauses=Pauses()) as client:
        ongoing, ended = state(), state("CompleteAbort", 5)
        server.answers[DescribeTransactionsRequest] = [ongoing, ongoing, ended]
        server.answers[InitProducerIdRequest] = CLOSED
        transaction = describe_transaction(client, "billing")
        assert abort_transaction(client, transaction).state == "CompleteAbort"
        assert len(server.requests(InitProducerIdRequest)) == 1


def test_an_abort_during_another_transition_is_tried_again():
    """Kafka answers CONCURRENT_TRANSACTIONS then, too, and has changed nothing."""
    with transaction_server() as server, client_of(server, pauses=Pauses()) as client:
        ongoing, ended = state(), state("CompleteAbort", 5)
        server.answers[DescribeTransactionsRequest] = [ongoing, ongoing, ongoing, ongoing, ended]
        server.answers[InitProducerIdRequest] = BUSY
        assert abort_transaction(client, describe_transaction(client, "billing")).state == "CompleteAbort"
        assert len(server.requests(InitProducerIdRequest)) == 2


def test_an_abort_of_a_producer_that_was_replaced_is_refused():
    with transaction_server() as server, client_of(server, pauses=Pauses()) as client:
        server.answers[InitProducerIdRequest] = InitProducerIdResponse(
            error_code=ErrorCode.PRODUCER_FENCED, producer_id=-1, producer_epoch=-1
        )
        with pytest.raises(Refused, match="PRODUCER_FENCED: another producer has it by now"):
            abort_transaction(client, describe_transaction(client, "billing"))


def test_a_broker_that_cannot_name_the_producer_is_not_asked_to_abort():
    """An older InitProducerId would fence whatever producer there is."""
    served = {ApiKey.INIT_PRODUCER_ID: (0, 2)}
    with transaction_server(served=served) as server, client_of(server, pauses=Pauses()) as client:
        with pytest.raises(VersionNotServed):
            abort_transaction(client, describe_transaction(client, "billing"))
        assert server.requests(InitProducerIdRequest) == []


def test_the_state_of_markers_that_are_missing_at_the_deadline_is_returned():
    with transaction_server() as server, client_of(server, pauses=Pauses()) as client:
        server.answers[DescribeTransactionsRequest] = [state(), state(), state("PrepareAbort", 5)]
        assert abort_transaction(client, describe_transaction(client, "billing")).state == "PrepareAbort"


def test_an_id_that_expires_between_list_and_description_coordinates_nothing():
    with transaction_server() as server, client_of(server) as client:
        server.answers[ListTransactionsRequest] = listing
        server.answers[DescribeTransactionsRequest] = state("", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        assert coordinated_partitions(client, [7]) == {}
        assert coordinated_partitions(client, []) == {}


def test_many_partitions_are_described_by_several_requests():
    count = 2 * PARTITIONS_PER_REQUEST + 1
    with transaction_server() as server, client_of(server) as client:
        clustered([server], topics={"t": [1] * count})
        described = describe_producers(client, [TopicPartition("t", index) for index in range(count)])
    requests: list[Any] = server.requests(DescribeProducersRequest)
    assert [sum(len(topic.partition_indexes) for topic in each.topics) for each in requests] == [500, 500, 1]
    assert len(list(open_transactions(described))) == 2 * count
