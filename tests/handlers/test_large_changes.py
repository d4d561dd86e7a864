"""No step of a request that changes much makes more calls the more it changes: decision, records, image, journal and
the parts of the broker that follow.

What is counted is described in ``test_largest_requests``, which takes what is refused or unknown.
"""

from __future__ import annotations

import pytest

from bench.accepted_requests import creation, new_topic
from bench.largest_requests import topic_name
from kafka_wire.codec import encode_bytes
from kafka_wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kafka_wire.messages.create_topics import CreateTopicsRequest
from kafka_wire.messages.delete_topics import DeleteTopicsRequest
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafka_wire.records import batch
from tests.handlers.calls_per_step import calls_per_step
from trio_broker.concurrency import yield_budget
from trio_broker.coordinator import request_parts
from trio_broker.runtime.real_workers import RealWorkers

TOPICS = 400

MAX_CALLS = 2400
"""In one step: six for each topic, where all that is done for one takes up to two thousand."""

RECORDS_PER_TURN = 10

COMMITTED = CREATED = 400

CALLS_PER_PARTITION = 6
"""In one step: to commit an offset takes some fifty, to make a partition some hundred."""

NAMES = [topic_name(number) for number in range(TOPICS)]


def configuration(value: str) -> AlterConfigsRequest:
    resources = [
        AlterConfigsResource(
            resource_type=2, resource_name=name, configs=[AlterableConfig(name="retention.ms", value=value)]
        )
        for name in NAMES
    ]
    return AlterConfigsRequest(resources=resources, validate_only=False)


CREATION = creation([new_topic(name, 1) for name in NAMES])
DELETION = DeleteTopicsRequest(topic_names=NAMES, timeout_ms=1000)


@pytest.fixture
def workers():
    """What is done in threads is no step of the event loop."""
    return RealWorkers()


async def test_the_partitions_of_a_topic_are_created_in_turns(wire, monkeypatch):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    monkeypatch.setattr(batch, "TURN_ELEMENTS", RECORDS_PER_TURN)
    await wire.ask(creation([new_topic("first", 1)]), 4)
    body = encode_bytes(creation([new_topic("wide", CREATED)]), 4)
    with calls_per_step() as calls:
        await wire.send(CreateTopicsRequest.API_KEY, 4, body)
    assert calls.most < CREATED * CALLS_PER_PARTITION, calls.where
    assert len(wire.services.replicas.topics["wide"].partitions) == CREATED


def commit(partitions: int) -> OffsetCommitRequest:
    positions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=index, committed_metadata="")
        for index in range(partitions)
    ]
    topics = [OffsetCommitRequestTopic(name="wide", partitions=positions)]
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics)


def offset_deletion(partitions: int) -> OffsetDeleteRequest:
    indexes = [OffsetDeleteRequestPartition(partition_index=index) for index in range(partitions)]
    return OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="wide", partitions=indexes)])


async def test_offsets_are_committed_and_deleted_in_turns(groups, mock_clock, monkeypatch):
    # The clock stands still: a reading of the lag is due every five seconds, and has longer turns of its own.
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    monkeypatch.setattr(request_parts, "MAX_ITEMS_PER_PART", RECORDS_PER_TURN)
    await groups.wire.create_topic("wide", COMMITTED)
    for make, version in (commit, 9), (offset_deletion, 0):
        # Readers and writers are compiled when they are first used.
        await groups.wire.ask(make(3 * RECORDS_PER_TURN), version)
    for make, version, left in (commit, 9, COMMITTED), (offset_deletion, 0, 0):
        body = encode_bytes(make(COMMITTED), version)
        with calls_per_step() as calls:
            await groups.wire.send(make(1).API_KEY, version, body)
        assert calls.most < COMMITTED * CALLS_PER_PARTITION, calls.where
        machine = groups.services.groups.machine("g")
        assert len(machine.offsets.of_topic("g", "wide")) == left


async def test_topics_are_created_configured_and_deleted_in_turns(wire, monkeypatch):
    # A turn wherever one may be given.
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    monkeypatch.setattr(batch, "TURN_ELEMENTS", RECORDS_PER_TURN)
    await wire.create_topic("first")
    await wire.ask(AlterConfigsRequest(resources=[], validate_only=False), 2)
    for request, version in (CREATION, 4), (configuration("1000"), 2), (configuration("2000"), 2), (DELETION, 5):
        body = encode_bytes(request, version)
        with calls_per_step() as calls:
            await wire.send(request.API_KEY, version, body)
        assert calls.most < MAX_CALLS, (type(request), calls.where)
    assert [topic.name for topic in (await wire.ask(MetadataRequest(topics=None), 9)).topics] == ["first"]
