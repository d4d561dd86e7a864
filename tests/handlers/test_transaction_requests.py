"""Requests of transactional producers: what each version is answered.

What a transaction may do in which state is tested in ``tests/coordinator/transactions``.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafka_wire.messages.describe_transactions import DescribeTransactionsRequest
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.messages.list_transactions import ListTransactionsRequest
from kafka_wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kafka_wire.stored.transactions import TransactionStatus
from tests.cases import each
from tests.handlers.transaction_client import (
    PRODUCE_FIRST_PROTOCOL,
    PRODUCE_SECOND_PROTOCOL,
    TransactionClient,
    running_transactions,
)
from tests.running_broker import until
from trio_broker.common.topic_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import Steps
from trio_broker.coordinator import request_parts
from trio_broker.coordinator.group_coordinator import GroupCoordinator
from trio_broker.coordinator.runtime.log import CoordinatorLog
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.transactions import transaction_coordinator, transaction_marker_channel_manager

OLD_FENCED, FENCED = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED
MAPPING, INVALID_STATE = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
UNKNOWN, NOT_ATTEMPTED = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
OFFSETS = TopicPartition(CONSUMER_OFFSETS_TOPIC, 0)


@pytest.fixture
async def client(memory_path, monkeypatch):
    monkeypatch.setattr(transaction_marker_channel_manager, "MARKER_RETRY_SECONDS", 0.001)
    async with running_transactions(memory_path) as client:
        yield client


async def fenced(client: TransactionClient) -> ProducerIdAndEpoch:
    """A producer whose transactional id another has taken."""
    producer = await client.begin()
    await client.begin()
    return producer


def hold_markers(client: TransactionClient, monkeypatch) -> None:
    """Let no transaction get its markers."""

    def nothing(self: Any, end: Any, partitions: Any, release_handler: Any) -> Steps[dict[TopicPartition, ErrorCode]]:
        yield trio.lowlevel.checkpoint
        return dict.fromkeys(partitions, ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(type(client.coordinator.markers), "write_steps", nothing)


# ---- FindCoordinator -------------------------------------------------------------------------------------------------


@each("version", range(1, 7))
async def test_this_broker_coordinates_every_transactional_id(client, version):
    request = FindCoordinatorRequest(key="id", coordinator_keys=["id", "other"], key_type=1)
    if version >= 4:
        request.key = ""
    else:
        request.coordinator_keys = []
    response = await client.wire.ask(request, version)
    found = response.coordinators if version >= 4 else [response]
    assert [(each.error_code, each.host, each.port) for each in found] == [(0, "broker.test", 9092)] * len(found)


async def test_looking_for_a_coordinator_creates_the_topic_of_transactions_compacted(open_wire_client, nursery):
    wire = await open_wire_client(transaction_state_log_num_partitions="3")
    await nursery.start(wire.services.transactions.run)
    assert TRANSACTION_STATE_TOPIC not in wire.services.metadata_cache.image.topics
    response = await wire.ask(FindCoordinatorRequest(coordinator_keys=["id"], key_type=1), 6)
    assert response.coordinators[0].error_code == 0
    topic = wire.services.metadata_cache.image.topics[TRANSACTION_STATE_TOPIC]
    assert (len(topic.partitions), topic.configs["cleanup.policy"]) == (3, "compact")
    nursery.cancel_scope.cancel()


# ---- InitProducerId --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(6))
async def test_every_version_gets_a_producer_id_for_its_transactional_id(client, version):
    first, second = [await client.init("id", version) for _ in range(2)]
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert (second.error_code, second.producer_id, second.producer_epoch) == (0, first.producer_id, 1)


@each("version,code", [(3, OLD_FENCED), (4, FENCED), (5, FENCED)])
async def test_a_producer_that_goes_on_in_vain_is_refused_as_its_version_knows(client, version, code):
    old = await fenced(client)
    response = await client.init("id", version, producer_id=old.producer_id, producer_epoch=old.epoch)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)


async def test_a_producer_that_goes_on_gets_the_next_epoch(client):
    producer = await client.begin()
    response = await client.init("id", producer_id=producer.producer_id, producer_epoch=producer.epoch)
    assert (response.producer_id, response.producer_epoch) == (producer.producer_id, producer.epoch + 1)


@each("timeout_ms", [-1, 0, 900_001, 2**31 - 1])
async def test_a_timeout_that_is_none_or_too_long_is_refused(client, timeout_ms):
    assert (await client.init("id", timeout_ms=timeout_ms)).error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert (await client.init("id", timeout_ms=900_000)).error_code == 0


@each("fields", [{"producer_id": 5}, {"producer_epoch": 5}])
async def test_a_producer_id_without_an_epoch_or_the_other_way_round_is_refused(client, fields):
    assert (await client.init("id", **fields)).error_code == ErrorCode.INVALID_REQUEST


async def test_an_empty_transactional_id_is_refused(client):
    assert (await client.init("")).error_code == ErrorCode.INVALID_REQUEST


async def test_without_a_transactional_id_a_producer_is_only_idempotent(client):
    request_of_nobody: Any = None
    first, second = [await client.init(request_of_nobody) for _ in range(2)]
    assert (first.producer_epoch, second.producer_epoch) == (0, 0)
    assert first.producer_id != second.producer_id


# ---- AddPartitionsToTxn ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added_in_every_version_of_clients(client, version):
    producer = await client.begin()
    assert await client.add(producer, 0, 2, version=version) == {0: 0, 2: 0}
    assert client.partitions_of() == {TopicPartition("t", 0), TopicPartition("t", 2)}


@each("version,code", [(0, OLD_FENCED), (1, OLD_FENCED), (2, FENCED), (3, FENCED)])
async def test_a_fenced_producer_adds_no_partitions(client, version, code):
    assert await client.add(await fenced(client), 0, 1, version=version) == {0: code, 1: code}


async def test_if_a_partition_does_not_exist_none_is_added(client):
    producer = await client.begin()
    assert await client.add(producer, 0, 3, 1) == {0: NOT_ATTEMPTED, 3: UNKNOWN, 1: NOT_ATTEMPTED}
    assert await client.add(producer, 0, topic="never") == {0: UNKNOWN}
    assert client.partitions_of() == set()


def transaction(transactional_id: str, producer: ProducerIdAndEpoch, *partitions: int, **fields: Any):
    return AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=list(partitions))],
        **fields,
    )


async def add_batched(client: TransactionClient, version: int, *transactions: AddPartitionsToTxnTransaction) -> Any:
    response = await client.wire.ask(AddPartitionsToTxnRequest(transactions=list(transactions)), version)
    assert response.error_code == 0
    return {
        result.transactional_id: [
            partition.partition_error_code for topic in result.topic_results for partition in topic.results_by_partition
        ]
        for result in response.results_by_transaction
    }


@pytest.mark.parametrize("version", [4, 5])
async def test_of_many_transactions_each_has_an_outcome_of_its_own(client, version):
    good, other, old = await client.begin("good"), await client.begin("other"), await fenced(client)
    answer = await add_batched(
        client,
        version,
        transaction("good", good, 0, 1),
        transaction("other", other, 0, 9),
        transaction("id", old, 0),
        transaction("unknown", good, 0),
    )
    assert answer == {"good": [0, 0], "other": [NOT_ATTEMPTED, UNKNOWN], "id": [FENCED], "unknown": [MAPPING]}
    assert client.partitions_of("good") == {TopicPartition("t", 0), TopicPartition("t", 1)}
    assert client.partitions_of("other") == set()


@pytest.mark.parametrize("version", [4, 5])
async def test_a_request_may_only_ask_which_partitions_were_added(client, version):
    producer = await client.begin()
    await client.add(producer, 0)
    answer = await add_batched(client, version, transaction("id", producer, 0, 1, verify_only=True))
    assert answer == {"id": [0, ABORTABLE]}
    assert client.partitions_of() == {TopicPartition("t", 0)}


async def test_a_client_may_add_in_the_form_of_brokers_and_end_in_the_first_protocol(client):
    producer = await client.begin()
    assert await add_batched(client, 5, transaction("id", producer, 0)) == {"id": [0]}
    assert await client.produce(producer) == 0
    assert (await client.end(producer, version=4)).error_code == 0
    await client.completed()
    assert client.contents() == [1, (producer.producer_id, producer.epoch, True)]
    assert await add_batched(client, 5, transaction("id", producer, 0)) == {"id": [0]}


# ---- AddOffsetsToTxn and EndTxn --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(5))
async def test_the_partition_of_a_group_is_added_in_every_version(client, version):
    producer = await client.begin()
    assert await client.add_group(producer, version=version) == 0
    assert client.partitions_of() == {OFFSETS}


FENCED_FROM_VERSION_2 = [(0, OLD_FENCED), (1, OLD_FENCED), (2, FENCED), (3, FENCED), (4, FENCED)]


@each("version,code", FENCED_FROM_VERSION_2)
async def test_a_fenced_producer_adds_no_group(client, version, code):
    assert await client.add_group(await fenced(client), version=version) == code


@each("version,code", [*FENCED_FROM_VERSION_2, (5, FENCED)])
async def test_a_fenced_producer_ends_no_transaction(client, version, code):
    old = await client.begin()
    await client.begin()
    # Of the second protocol the epoch before may be a repetition, the one before that may not.
    await client.begin()
    response = await client.end(old, version=version)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (code, -1, -1)


@each("version", range(6))
@each("commits", [True, False])
async def test_a_transaction_is_ended_in_every_version(client, version, commits):
    producer = await client.begin()
    await client.add(producer, 0)
    response = await client.end(producer, commits=commits, version=version)
    raised = (producer.producer_id, producer.epoch + 1) if version >= 5 else (-1, -1)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (0, *raised)
    await client.completed()
    complete = TransactionStatus.COMPLETE_COMMIT if commits else TransactionStatus.COMPLETE_ABORT
    assert client.status() is complete


async def test_an_unknown_transactional_id_is_refused_by_all(client):
    unknown = ProducerIdAndEpoch(99, 0)
    assert await client.add(unknown, 0) == {0: MAPPING}
    assert await client.add_group(unknown) == MAPPING
    assert await client.commit_offset(unknown, 1) == MAPPING
    assert (await client.end(unknown)).error_code == MAPPING
    assert await client.produce(unknown) == MAPPING
    assert await client.produce(unknown, version=PRODUCE_SECOND_PROTOCOL) == MAPPING
    assert client.contents() == []


# ---- Produce ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "code"), [(3, INVALID_STATE), (9, INVALID_STATE), (11, ABORTABLE)])
async def test_in_the_first_protocol_a_partition_must_be_added_before(client, version, code):
    producer = await client.begin()
    await client.add(producer, 0)
    assert await client.produce(producer, 1, version=version) == code
    assert client.contents(1) == []
    assert await client.produce(producer, 0, version=version) == 0


async def test_in_the_second_protocol_a_batch_adds_its_partition(client):
    producer = await client.begin()
    assert await client.produce(producer, version=PRODUCE_SECOND_PROTOCOL) == 0
    assert await client.produce(producer, sequence=1, version=PRODUCE_SECOND_PROTOCOL) == 0
    assert (client.contents(), client.partitions_of()) == ([1, 1], {TopicPartition("t", 0)})


@each("version", [3, 9, PRODUCE_FIRST_PROTOCOL, PRODUCE_SECOND_PROTOCOL])
async def test_a_fenced_producer_writes_nothing(client, version):
    old = await fenced(client)
    assert await client.produce(old, version=version) == OLD_FENCED
    assert client.contents() == []


@pytest.mark.parametrize("version", [3, PRODUCE_FIRST_PROTOCOL, PRODUCE_SECOND_PROTOCOL])
async def test_a_transactional_batch_needs_a_transactional_id(client, version):
    producer = await client.begin()
    await client.add(producer, 0)
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await client.produce(producer, transactional_id=None, version=version) == refused
    assert client.contents() == []


async def test_a_batch_outside_of_the_transaction_of_its_producer_is_refused(client):
    producer = await client.begin()
    await client.add(producer, 0)
    await client.produce(producer)
    assert await client.produce(producer, sequence=1, is_transactional=False) == INVALID_STATE
    assert client.contents() == [1]


async def test_no_batch_overtakes_one_that_the_coordinator_has_refused(client):
    """With nothing known of a producer, its first batch in a partition may have any sequence."""
    producer = await client.begin()
    assert await client.produce(producer, sequence=5) == ABORTABLE
    assert await client.produce(producer, sequence=4) == ABORTABLE
    await client.add(producer, 0)
    assert await client.produce(producer, sequence=5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [await client.produce(producer, sequence=number) for number in (4, 5)] == [0, 0]


async def test_what_was_refused_counts_until_the_producer_has_another_epoch(client):
    producer = await client.begin()
    assert await client.produce(producer, sequence=4) == ABORTABLE
    producer = await client.begin()
    await client.add(producer, 0)
    assert await client.produce(producer, sequence=5) == 0


async def test_the_second_protocol_begins_at_sequence_0_in_each_partition(client):
    producer = await client.begin()
    assert await client.produce(producer, sequence=1, version=12) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.contents() == []
    assert [await client.produce(producer, sequence=number, version=12) for number in (0, 1)] == [0, 0]


async def test_a_batch_for_the_next_transaction_waits_until_the_one_before_is_complete(client):
    producer = await client.begin()
    for _ in range(5):
        assert await client.produce(producer, version=PRODUCE_SECOND_PROTOCOL) == 0
        response = await client.end(producer, version=5)
        producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
    await client.completed()
    assert len(client.contents()) == 10


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (PRODUCE_FIRST_PROTOCOL, ErrorCode.NOT_ENOUGH_REPLICAS),
        (PRODUCE_SECOND_PROTOCOL, ErrorCode.CONCURRENT_TRANSACTIONS),
    ],
)
async def test_a_batch_for_the_next_transaction_is_tried_again_by_the_client_if_that_takes_long(
    client, monkeypatch, version, code
):
    monkeypatch.setattr(transaction_coordinator, "ENDING_SECONDS", 0)
    producer = await client.begin()
    await client.add(producer, 0)
    with monkeypatch.context() as held:
        hold_markers(client, held)
        response = await client.end(producer, version=5)
        following = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        assert await client.produce(following, version=version) == code
    await client.completed()
    await client.add(following, 0)
    assert await client.produce(following, version=version) == 0


async def test_a_partition_is_added_as_soon_as_the_transaction_before_has_its_markers(client, monkeypatch):
    monkeypatch.setattr(transaction_coordinator, "ENDING_SECONDS", 60.0)
    monkeypatch.setattr(transaction_marker_channel_manager, "MARKER_RETRY_SECONDS", 0.001)
    producer = await client.begin()
    await client.add(producer, 0)
    codes: list[int] = []

    async def add() -> None:
        codes.extend((await client.add(producer, 1)).values())

    async with trio.open_nursery() as nursery:
        with monkeypatch.context() as held:
            hold_markers(client, held)
            await client.end(producer)
            nursery.start_soon(add)
            await until(lambda: "id" in client.coordinator._awaited_ends)
            assert codes == []
    assert codes == [0]
    assert client.partitions_of() == {TopicPartition("t", 1)}


# ---- TxnOffsetCommit -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "code"),
    [*((version, INVALID_STATE) for version in range(4)), (4, ABORTABLE), (5, ErrorCode.NONE), (6, ErrorCode.NONE)],
)
async def test_before_the_second_protocol_a_group_must_be_added_before(client, version, code):
    producer = await client.begin()
    assert await client.commit_offset(producer, 5, version=version) == code
    assert client.partitions_of() == (set() if code else {OFFSETS})
    await client.add_group(producer)
    assert await client.commit_offset(producer, 5, version=version) == 0
    assert client.wire.services.groups.machine("g").offsets.has_pending("g", "t", 0)


async def test_a_topic_that_does_not_exist_is_refused_by_its_id(client):
    producer = await client.begin()
    unknown = bytes(range(16))
    assert await client.commit_offset(producer, 5, version=6, topic_id=unknown) == ErrorCode.UNKNOWN_TOPIC_ID
    assert await client.commit_offset(producer, 5, version=5, topic_id=unknown) == ErrorCode.NONE


@pytest.mark.parametrize(("version", "code"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
async def test_a_member_of_a_group_that_does_not_exist_learns_so_from_version_6_on(client, version, code):
    producer = await client.begin()
    member = {"generation_id_or_member_epoch": 3, "member_id": "m"}
    assert await client.commit_offset(producer, 5, version=version, **member) == code


@each("version", range(7))
async def test_a_fenced_producer_commits_no_offsets(client, version):
    assert await client.commit_offset(await fenced(client), 5, version=version) == OLD_FENCED
    assert not client.wire.services.groups.machine("g").offsets.has_pending("g", "t", 0)


@pytest.mark.parametrize("version", [4, 5, 6])
async def test_no_offset_is_committed_in_a_transaction_that_is_ending(client, monkeypatch, version):
    producer = await client.begin()
    await client.add_group(producer)
    hold_markers(client, monkeypatch)
    await client.end(producer)
    assert await client.commit_offset(producer, 5, version=version) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert not client.wire.services.groups.machine("g").offsets.has_pending("g", "t", 0)


async def test_a_commit_is_tried_again_where_the_coordinator_of_its_transaction_cannot_be_asked(client, monkeypatch):
    async def cut_off() -> None:
        raise KafkaError("broker 2 is not reached", code=ErrorCode.NETWORK_EXCEPTION)

    def ask(*_: object, **__: object) -> Steps[None]:
        yield cut_off

    producer = await client.begin()
    monkeypatch.setattr(client.wire.services.transaction_verification, "verification_steps", ask)
    # What Kafka's producer retries; NETWORK_EXCEPTION would be its end.
    assert await client.commit_offset(producer, 5) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def test_a_large_commit_in_a_transaction_is_written_in_parts_as_one_outside_of_it_is(client):
    producer = await client.begin()
    assert await client.commit_offsets(producer, [0, 1, 2] * 400) == [0] * 1200
    assert client.contents(0, CONSUMER_OFFSETS_TOPIC) == [500, 500, 200]


async def test_no_part_of_a_large_commit_comes_behind_the_end_of_its_transaction(client, monkeypatch):
    monkeypatch.setattr(request_parts, "MAX_ITEMS_PER_PART", 2)
    producer, call = await client.begin(), GroupCoordinator.call_steps
    calls = iter(range(100))

    async def end_it() -> None:
        await client.end(producer, version=5)
        await client.completed()

    def call_and_end(self: GroupCoordinator, *arguments: Any) -> Steps[Any]:
        response = yield from call(self, *arguments)
        if next(calls) == 1:
            yield end_it
        return response

    monkeypatch.setattr(GroupCoordinator, "call_steps", call_and_end)
    codes = await client.commit_offsets(producer, [0] * 8)
    assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH] * 8
    assert client.partition(0, CONSUMER_OFFSETS_TOPIC).log.producers.transactions.undecided == {}
    assert client.contents(0, CONSUMER_OFFSETS_TOPIC) == [2, 2, (producer.producer_id, producer.epoch + 1, True)]


async def test_a_commit_in_a_transaction_that_no_batch_can_hold_is_refused_before_it_begins(client, monkeypatch):
    producer = await client.begin()
    codes = await client.commit_offsets(producer, [0] * 10, "g" * 32_000, version=5)
    assert codes == [0] * 10
    monkeypatch.setattr(CoordinatorLog, "max_batch_bytes", 100_000)
    codes = await client.commit_offsets(producer, [0] * 10, "g" * 32_000, version=5)
    assert codes == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 10


# ---- DescribeTransactions --------------------------------------------------------------------------------------------


async def test_a_transaction_is_described_as_it_stands(client):
    producer = await client.begin()
    started_ms = client.wire.clock.now_ms()
    await client.add(producer, 2, 0)
    await client.add_group(producer)
    client.wire.clock.advance(5)
    response = await client.wire.ask(DescribeTransactionsRequest(transactional_ids=["id", "unknown", "id"]), 0)
    known, unknown = response.transaction_states
    assert (known.error_code, known.transactional_id, known.transaction_state) == (0, "id", "Ongoing")
    assert (known.producer_id, known.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (known.transaction_timeout_ms, known.transaction_start_time_ms) == (60_000, started_ms)
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [(OFFSETS.topic, [0]), ("t", [0, 2])]
    assert (unknown.error_code, unknown.transactional_id) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "unknown")


async def test_an_id_without_a_transaction_is_described_as_empty(client):
    await client.begin()
    [state] = (await client.wire.ask(DescribeTransactionsRequest(transactional_ids=["id"]), 0)).transaction_states
    assert (state.transaction_state, state.transaction_start_time_ms, state.topics) == ("Empty", -1, [])


# ---- ListTransactions ------------------------------------------------------------------------------------------------


async def listed(client: TransactionClient, *states: str, version: int = 2, **fields: Any) -> dict[str, str]:
    """Each transactional id that is listed, with its state."""
    producer_ids = fields.pop("producer_ids", [])
    request = ListTransactionsRequest(state_filters=list(states), producer_id_filters=producer_ids, **fields)
    response = await client.wire.ask(request, version)
    assert (response.error_code, response.unknown_state_filters) == (0, [])
    return {each.transactional_id: each.transaction_state for each in response.transaction_states}


@pytest.fixture
async def three(client):
    """``empty`` has no transaction, ``old`` one for 10 s, ``new`` one for none; their producers."""
    producers = {name: await client.begin(name) for name in ("empty", "old", "new")}
    await client.add(producers["old"], 0, transactional_id="old")
    client.wire.clock.advance(10)
    await client.add(producers["new"], 0, transactional_id="new")
    return producers


@each("version", range(3))
async def test_without_filters_all_transactions_are_listed(client, three, version):
    assert await listed(client, version=version) == {"empty": "Empty", "old": "Ongoing", "new": "Ongoing"}


async def test_transactions_are_listed_by_state_and_producer(client, three):
    assert await listed(client, "Empty") == {"empty": "Empty"}
    assert await listed(client, "Empty", "Ongoing", "Dead") == await listed(client)
    assert await listed(client, "PrepareCommit") == {}
    old = three["old"].producer_id
    assert await listed(client, producer_ids=[old, 99]) == {"old": "Ongoing"}
    assert await listed(client, "Empty", producer_ids=[old]) == {}


async def test_transactions_are_listed_that_are_older_than_a_duration(client, three):
    assert await listed(client, "Ongoing", duration_filter=9_999) == {"old": "Ongoing"}
    assert await listed(client, "Ongoing", duration_filter=10_000) == {}
    assert set(await listed(client, "Ongoing", duration_filter=-1)) == {"old", "new"}
    assert set(await listed(client, "Ongoing", duration_filter=0)) == {"old"}


async def test_transactions_are_listed_whose_whole_id_matches_a_pattern(client, three):
    assert set(await listed(client, transactional_id_pattern="e.*|new")) == {"empty", "new"}
    assert await listed(client, transactional_id_pattern="ol") == {}
    assert set(await listed(client, transactional_id_pattern="")) == {"empty", "old", "new"}
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern="(")
    response = await client.wire.ask(request, 2)
    assert (response.error_code, response.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, [])


async def test_states_that_do_not_exist_are_named_in_the_answer(client, three):
    request = ListTransactionsRequest(state_filters=["Empty", "Nonsense", "empty", "Nonsense"], producer_id_filters=[])
    response = await client.wire.ask(request, 2)
    assert response.unknown_state_filters == ["Nonsense", "empty"]
    assert [each.transactional_id for each in response.transaction_states] == ["empty"]


# ---- WriteTxnMarkers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commits", [True, False])
async def test_an_administrator_may_end_a_transaction_in_single_partitions(client, version, commits):
    producer = await client.begin()
    await client.add(producer, 0, 1)
    for partition in (0, 1):
        await client.produce(producer, partition)
    topics = [
        WritableTxnMarkerTopic(name="t", partition_indexes=[0, 7]),
        WritableTxnMarkerTopic(name="never", partition_indexes=[0]),
    ]
    marker = WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=commits,
        topics=topics,
        coordinator_epoch=0,
    )
    response = await client.wire.ask(WriteTxnMarkersRequest(markers=[marker]), version)
    [result] = response.markers
    assert result.producer_id == producer.producer_id
    codes = {
        topic.name: {each.partition_index: each.error_code for each in topic.partitions} for topic in result.topics
    }
    assert codes == {"t": {0: 0, 7: UNKNOWN}, "never": {0: UNKNOWN}}
    assert client.contents(0) == [1, (producer.producer_id, producer.epoch, commits)]
    assert client.partition(0).last_stable_offset == 2
    assert client.partition(1).last_stable_offset == 0
