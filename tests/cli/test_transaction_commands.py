"""``transactions list``, ``describe``, ``describe-producers``, ``find-hanging`` and ``abort`` as they are typed."""

from __future__ import annotations

import json
import time
from typing import Any

from kafka_wire.apis import ApiKey
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages import describe_transactions as described
from kafka_wire.messages import list_transactions as listed
from kafka_wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_wire.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
)
from tests.cli.scripted_commands import run
from tests.client.scripted_client import coordinator_at
from tests.fakes.other_brokers import markers_written
from tests.fakes.scripted_kafka import Cluster, ScriptedKafka

DRY_RUN = "dry run: nothing was changed; --execute makes the change\n"

OLD_MS = 1_700_000_000_000
"""When the last record of a hanging transaction was written."""


def state(name: str = "Ongoing", epoch: int = 4, code: int = 0, **fields: Any) -> Any:
    """What DescribeTransactions answers about ``billing``, which has written into the partition 0 of ``t``."""
    topics = [described.TopicData(topic="t", partitions=[0])] if name in ("Ongoing", "PrepareAbort") else []
    transaction = described.TransactionState(
        error_code=code,
        transactional_id="billing",
        transaction_state=name,
        transaction_timeout_ms=60_000,
        transaction_start_time_ms=OLD_MS,
        producer_id=7,
        producer_epoch=epoch,
        topics=topics,
        **fields,
    )
    return described.DescribeTransactionsResponse(transaction_states=[transaction])


def producing(request: DescribeProducersRequest, version: int) -> DescribeProducersResponse:
    """In each partition producer 7 has a transaction open, and 8 one whose last record is a minute old; 9 has none."""

    def producer(producer_id: int, timestamp_ms: int, start_offset: int) -> ProducerState:
        return ProducerState(
            producer_id=producer_id,
            producer_epoch=4,
            last_sequence=2,
            last_timestamp=timestamp_ms,
            coordinator_epoch=-1,
            current_txn_start_offset=start_offset,
        )

    producers = [producer(7, OLD_MS, 5), producer(8, time.time_ns() // 1_000_000 - 60_000, 9), producer(9, OLD_MS, -1)]
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, active_producers=producers)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def listing(request: listed.ListTransactionsRequest, version: int) -> listed.ListTransactionsResponse:
    """The id ``billing`` of producer 7, if the filter lets it pass."""
    known = listed.TransactionState(transactional_id="billing", producer_id=7, transaction_state="Ongoing")
    passes = not request.producer_id_filters or 7 in request.producer_id_filters
    return listed.ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each != "Ongoing"],
        transaction_states=[known] if passes else [],
    )


def fenced(request: InitProducerIdRequest, version: int) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS, producer_id=-1, producer_epoch=-1)


def transaction_server(**settings: Any) -> ScriptedKafka:
    """A broker with a topic ``t`` of two partitions, where a coordinator knows the transaction in the first."""
    server = ScriptedKafka(
        {
            listed.ListTransactionsRequest: listing,
            described.DescribeTransactionsRequest: state(),
            DescribeProducersRequest: producing,
            InitProducerIdRequest: fenced,
            WriteTxnMarkersRequest: lambda request, version: markers_written(request),
        },
        **settings,
    )
    server.answers[FindCoordinatorRequest] = coordinator_at(server)
    Cluster([server], topics={"t": [1, 1]})
    return server


# list


def test_transactions_are_listed_by_all_filters():
    with transaction_server() as server:
        assert run(server, "transactions", "list").stdout.splitlines() == [
            "TRANSACTIONAL ID  COORDINATOR  PRODUCER ID  STATE",
            "billing                     1            7  Ongoing",
        ]
        filters = ["--state", "Ongoing", "--producer-id", "7", "--duration-filter", "100", "--id-pattern", "b.*"]
        row = {"transactional_id": "billing", "coordinator": 1, "producer_id": 7, "state": "Ongoing"}
        assert json.loads(run(server, "transaction", "list", *filters, "--json").stdout) == [row]
        [everything, filtered] = server.requests(listed.ListTransactionsRequest)
        assert (everything.duration_filter, everything.transactional_id_pattern) == (-1, None)
        assert filtered.state_filters == ["Ongoing"]
        assert filtered.producer_id_filters == [7]
        assert (filtered.duration_filter, filtered.transactional_id_pattern) == (100, "b.*")


def test_a_state_that_no_broker_knows_is_an_error():
    with transaction_server() as server:
        result = run(server, "transactions", "list", "--state", "Opened")
        assert (result.exit_code, result.stderr) == (1, "trio-broker: broker 1 knows no state 'Opened'\n")


def test_a_filter_that_an_older_broker_would_ignore_is_an_error():
    with transaction_server(served={ApiKey.LIST_TRANSACTIONS: (0, 0)}) as server:
        assert run(server, "transactions", "list").exit_code == 0
        assert run(server, "transactions", "list", "--duration-filter", "1").exit_code == 1
        assert len(server.requests(listed.ListTransactionsRequest)) == 1


# describe


def test_a_transaction_is_described_with_the_partitions_that_lack_a_marker():
    with transaction_server() as server:
        [document] = json.loads(run(server, "transactions", "describe", "billing", "--json").stdout)
        assert document.pop("duration_ms") > 0
        assert document == {
            "transactional_id": "billing",
            "coordinator": 1,
            "producer_id": 7,
            "producer_epoch": 4,
            "state": "Ongoing",
            "timeout_ms": 60_000,
            "start_ms": OLD_MS,
            "partitions": [{"topic": "t", "partition": 0}],
        }
        assert "state: Ongoing" in (text := run(server, "transactions", "describe", "billing").stdout)
        assert text.endswith("partitions: t-0\n")


def test_an_ended_transaction_has_no_duration():
    with transaction_server() as server:
        server.answers[described.DescribeTransactionsRequest] = state("CompleteCommit")
        [document] = json.loads(run(server, "transactions", "describe", "billing", "--json").stdout)
        assert document["duration_ms"] is None


def test_one_unknown_id_does_not_keep_another():
    with transaction_server() as server:
        unknown = state("", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        server.answers[described.DescribeTransactionsRequest] = [unknown, state()]
        result = run(server, "transactions", "describe", "lost", "billing")
        assert result.exit_code == 1
        assert result.stderr.startswith("trio-broker: transactional id 'lost': TRANSACTIONAL_ID_NOT_FOUND: ")
        assert "transactional_id: billing" in result.stdout


# describe-producers, find-hanging


def test_the_producers_of_a_partition_are_shown_with_the_beginning_of_their_transactions():
    with transaction_server() as server:
        rows = json.loads(run(server, "transactions", "describe-producers", "t:0", "--json").stdout)
        assert [(row["producer_id"], row["producer_epoch"], row["start_offset"]) for row in rows] == [
            (7, 4, 5),
            (8, 4, 9),
            (9, 4, None),
        ]


def test_a_transaction_hangs_where_its_coordinator_does_not_have_the_partition():
    """Producer 7 is known with the partition 0 alone; the transaction of 8 is too young to judge."""
    with transaction_server() as server:
        rows = json.loads(run(server, "transactions", "find-hanging", "--json").stdout)
        assert [(row["topic"], row["partition"], row["producer_id"], row["start_offset"]) for row in rows] == [
            ("t", 1, 7, 5)
        ]
        assert rows[0]["duration_minutes"] > 15
        young = json.loads(
            run(server, "transactions", "find-hanging", "t:0", "--max-transaction-timeout", "0", "--json").stdout
        )
        assert [(row["partition"], row["producer_id"]) for row in young] == [(0, 8)]


def test_only_partitions_of_the_named_broker_and_topics_are_searched():
    with transaction_server() as server:
        assert json.loads(run(server, "transactions", "find-hanging", "--broker", "2", "--json").stdout) == []
        assert server.requests(DescribeProducersRequest) == []
        run(server, "transactions", "find-hanging", "t:1", "--broker", "1")
        [request] = server.requests(DescribeProducersRequest)
        assert [(topic.name, topic.partition_indexes) for topic in request.topics] == [("t", [1])]


# abort


def test_a_coordinated_transaction_is_aborted_by_its_id_only_with_consent():
    with transaction_server() as server:
        shown = run(server, "transactions", "abort", "billing", "--dry-run")
        assert (shown.exit_code, shown.stderr) == (0, DRY_RUN)
        assert shown.stdout.splitlines() == [
            "TRANSACTIONAL ID  PRODUCER ID  EPOCH  STATE    PARTITIONS  ABORTED",
            "billing                     7      4  Ongoing           1  no",
        ]
        assert server.requests(InitProducerIdRequest) == []

        ongoing, ending, ended = state(), state("PrepareAbort", 5), state("CompleteAbort", 5)
        server.answers[described.DescribeTransactionsRequest] = [ongoing, ongoing, ending, ending, ended]
        done = json.loads(run(server, "transactions", "abort", "billing", "--execute", "--json").stdout)
        assert (done["aborted"], done["state"], done["producer_epoch"]) == (True, "CompleteAbort", 5)
        [request] = server.requests(InitProducerIdRequest)
        assert (request.producer_id, request.producer_epoch, request.transaction_timeout_ms) == (7, 4, 60_000)


def test_a_transaction_that_ended_before_the_consent_is_left_alone():
    with transaction_server() as server:
        server.answers[described.DescribeTransactionsRequest] = [state(), state("CompleteCommit", 5)]
        assert run(server, "transactions", "abort", "billing", "--execute").exit_code == 0
        assert server.requests(InitProducerIdRequest) == []


def test_an_id_without_an_ongoing_transaction_is_refused():
    with transaction_server() as server:
        server.answers[described.DescribeTransactionsRequest] = state("CompleteCommit")
        result = run(server, "transactions", "abort", "billing", "--execute")
        text = "trio-broker: transactional id 'billing' has no ongoing transaction: it is CompleteCommit\n"
        assert (result.exit_code, result.stderr) == (1, text)


def test_a_hanging_transaction_is_aborted_by_a_marker_with_its_own_epochs():
    with transaction_server() as server:
        place = ["--partition", "t:1", "--start-offset", "5"]
        assert run(server, "transactions", "abort", *place).exit_code == 1
        assert server.requests(WriteTxnMarkersRequest) == []

        done = json.loads(run(server, "transactions", "abort", *place, "--execute", "--json").stdout)
        assert (done["dry_run"], done["aborted"], done["start_offset"]) == (False, True, 5)
        [request] = server.requests(WriteTxnMarkersRequest)
        [marker] = request.markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 4, 0)
        assert marker.transaction_result is False
        assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [1])]


def test_a_marker_is_refused_where_the_coordinator_will_write_its_own():
    with transaction_server() as server:
        result = run(server, "transactions", "abort", "--partition", "t:0", "--start-offset", "5", "--execute")
        assert result.exit_code == 1
        assert result.stderr == (
            "trio-broker: partition t-0: the transaction is that of transactional id 'billing', which is Ongoing and"
            " does not hang; trio-broker transactions abort billing aborts it everywhere\n"
        )
        assert server.requests(WriteTxnMarkersRequest) == []


def test_epochs_must_be_those_of_an_open_transaction_where_the_broker_tells_them():
    with transaction_server() as server:
        place = ["transactions", "abort", "--partition", "t:1", "--execute"]
        wrong = run(server, *place, "--producer-id", "7", "--producer-epoch", "3", "--coordinator-epoch", "-1")
        text = "trio-broker: partition t-1: producer 7 in epoch 3 has no open transaction\n"
        assert (wrong.exit_code, wrong.stderr) == (1, text)
        replaced = run(server, *place, "--producer-id", "7", "--producer-epoch", "4", "--coordinator-epoch", "2")
        text = "trio-broker: partition t-1: the coordinator epoch is -1\n"
        assert (replaced.exit_code, replaced.stderr) == (1, text)
        assert server.requests(WriteTxnMarkersRequest) == []
        right = run(server, *place, "--producer-id", "7", "--producer-epoch", "4", "--coordinator-epoch", "-1")
        assert right.exit_code == 0
        assert len(server.requests(WriteTxnMarkersRequest)) == 1


def test_a_refused_marker_is_one_line_and_exit_code_1():
    with transaction_server() as server:
        server.answers[WriteTxnMarkersRequest] = lambda request, version: markers_written(
            request, ErrorCode.INVALID_PRODUCER_EPOCH
        )
        result = run(server, "transactions", "abort", "--partition", "t:1", "--start-offset", "5", "--execute")
        text = "trio-broker: partition t-1: INVALID_PRODUCER_EPOCH: the producer has another epoch by now\n"
        assert (result.exit_code, result.stderr) == (1, text)


def test_a_transaction_is_named_in_one_way():
    with transaction_server() as server:
        for wrong in (
            [],
            ["billing", "--partition", "t:0", "--start-offset", "5"],
            ["billing", "--start-offset", "5"],
            ["--partition", "t:0"],
            ["--partition", "t:0,1", "--start-offset", "5"],
            ["--partition", "t:0", "--producer-id", "7"],
            ["--partition", "t:0", "--start-offset", "5", "--producer-id", "7"],
        ):
            assert run(server, "transactions", "abort", *wrong).exit_code == 2, wrong
        assert server.asked == []
