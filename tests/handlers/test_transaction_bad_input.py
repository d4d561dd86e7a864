"""Whatever a client puts into a transactional request, the answer has the code its version knows and nothing changes.

``tests/compat/test_transactions_like_kafka.py`` compares the codes with Kafka's; here all logs are compared as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafka_wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafka_wire.messages.end_txn import EndTxnRequest
from kafka_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.cases import each
from tests.handlers.transaction_client import TransactionClient, running_transactions
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.transactions import transaction_marker_channel_manager

LONGEST_ID = "x" * 32_767
"""What the length of a string in a record can say."""

MAPPING, INVALID_REQUEST = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_REQUEST
FENCED, OLD_FENCED = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.fixture
async def client(memory_path, monkeypatch):
    monkeypatch.setattr(transaction_marker_channel_manager, "MARKER_RETRY_SECONDS", 0.001)
    async with running_transactions(memory_path) as client:
        yield client


@contextmanager
def nothing_changes(client: TransactionClient) -> Iterator[None]:
    """Nothing is appended to any log, and no transactional id has another state."""

    def state() -> tuple[Any, ...]:
        ends = {each.topic_partition: each.log_end_offset for each in client.wire.services.replicas.partitions()}
        return ends, {each.transactional_id: each.metadata for each in client.coordinator.transactions()}

    before = state()
    yield
    assert state() == before


# ---- one request of each API, by a producer ------------------------------------------------------------------------


def add_partitions(transactional_id: str, producer: ProducerIdAndEpoch, version: int) -> AddPartitionsToTxnRequest:
    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
    if version >= 4:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=topics,
        )
        return AddPartitionsToTxnRequest(transactions=[transaction])
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=topics,
    )


def add_offsets(transactional_id: str, producer: ProducerIdAndEpoch, version: int) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        group_id="g",
    )


def commit_offsets(transactional_id: str, producer: ProducerIdAndEpoch, version: int) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata=None)
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )


def end(transactional_id: str, producer: ProducerIdAndEpoch, version: int) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )


Make = Callable[[str, ProducerIdAndEpoch, int], Any]

EVERY_VERSION = pytest.mark.parametrize(
    ("make", "version", "fenced"),
    [
        *((add_partitions, version, FENCED if version >= 2 else OLD_FENCED) for version in range(6)),
        *((add_offsets, version, FENCED if version >= 2 else OLD_FENCED) for version in range(5)),
        *((commit_offsets, version, OLD_FENCED) for version in range(6)),
        *((end, version, FENCED if version >= 2 else OLD_FENCED) for version in range(6)),
    ],
)


def codes_of(response: Any) -> set[int]:
    """All error codes of a response, wherever they stand in it."""
    if isinstance(response, list):
        return set().union(*map(codes_of, response))
    found: set[int] = set()
    for name in getattr(response, "__slots__", ()):
        value: Any = getattr(response, name, None)
        if name in ("error_code", "partition_error_code"):
            found.add(value)
        elif isinstance(value, list):
            found |= codes_of(value)
    return found


def refusals(response: Any) -> set[int]:
    """Of a response whose own code is none where each partition has one."""
    return codes_of(response) - {0}


@EVERY_VERSION
async def test_a_producer_that_is_not_the_one_of_its_id_changes_nothing(client, make: Make, version, fenced):
    producer = await client.begin()
    epoch = ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
    refused = [
        ("id", ProducerIdAndEpoch(producer.producer_id + 77, 0), MAPPING),
        ("id", ProducerIdAndEpoch(-1, -1), MAPPING),
        ("id", ProducerIdAndEpoch(2**63 - 1, 2**15 - 1), MAPPING),
        ("id", epoch, fenced),
        ("id", ProducerIdAndEpoch(producer.producer_id, -1), fenced),
        ("id", ProducerIdAndEpoch(producer.producer_id, -(2**15)), fenced),
        ("nobody's", producer, MAPPING),
        (LONGEST_ID, producer, MAPPING),
        ("", producer, INVALID_REQUEST),
    ]
    for transactional_id, other, code in refused:
        with nothing_changes(client):
            response = await client.wire.ask(make(transactional_id, other, version), version)
            assert refusals(response) == {code}, (transactional_id[:20], other)


@pytest.mark.parametrize("produce_version", [11, 12])
async def test_an_id_as_long_as_a_record_can_hold_has_transactions(client, produce_version):
    response = await client.init(LONGEST_ID)
    assert response.error_code == 0
    producer = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
    assert set((await client.add(producer, 0, transactional_id=LONGEST_ID)).values()) == {0}
    assert await client.produce(producer, transactional_id=LONGEST_ID, version=produce_version) == 0
    assert (await client.end(producer, transactional_id=LONGEST_ID)).error_code == 0
    await client.completed(LONGEST_ID)
    assert client.contents() == [1, (producer.producer_id, producer.epoch, True)]


@each("version", range(6))
async def test_a_transaction_that_was_not_begun_is_not_committed(client, version):
    producer = await client.begin()
    with nothing_changes(client):
        response = await client.wire.ask(end("id", producer, version), version)
        assert codes_of(response) == {ErrorCode.INVALID_TXN_STATE}


@each("version", range(6))
@each("timeout_ms", [0, -1, 900_001, 2**31 - 1])
async def test_a_timeout_that_is_refused_changes_nothing_of_an_id(client, version, timeout_ms):
    await client.begin()
    with nothing_changes(client):
        for transactional_id in ("id", "new"):
            response = await client.init(transactional_id, version, timeout_ms=timeout_ms)
            assert response.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT
            assert (response.producer_id, response.producer_epoch) == (-1, -1)


@pytest.mark.parametrize(("version", "code"), [(3, 48), (10, 48), (11, 120)])
async def test_a_batch_for_a_partition_that_was_never_added_changes_nothing(client, version, code):
    producer = await client.begin()
    await client.add(producer, 0)
    with nothing_changes(client):
        assert await client.produce(producer, 1, version=version) == code


@pytest.mark.parametrize(("version", "code"), [(0, 48), (3, 48), (4, 120)])
async def test_an_offset_of_a_group_that_was_never_added_changes_nothing(client, version, code):
    producer = await client.begin()
    await client.add(producer, 0)
    with nothing_changes(client):
        response = await client.wire.ask(commit_offsets("id", producer, version), version)
        assert codes_of(response) == {code}


@each("version", range(6))
async def test_a_commit_of_no_partition_is_answered_and_changes_nothing(client, version):
    producer = await client.begin()
    commit = commit_offsets("id", producer, version)
    commit.topics = []
    with nothing_changes(client):
        assert (await client.wire.ask(commit, version)).topics == []
