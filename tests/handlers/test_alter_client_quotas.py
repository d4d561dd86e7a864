"""AlterClientQuotas, what DescribeClientQuotas shows of them, and what comes of them."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.alter_client_quotas import AlterClientQuotasRequest, OpData
from kafka_wire.messages.api_versions import ApiVersionsRequest
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafka_wire.messages.delete_topics import DeleteTopicsRequest
from kafka_wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest, EntityData
from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.storage.conftest import make_batch
from trio_broker.changes.change import ChangedResource

EXACT, DEFAULT, SPECIFIED = range(3)
CLIENT = (("client-id", "test"),)


def entity_data(*parts):
    return [EntityData(entity_type=kind, entity_name=name) for kind, name in parts]


async def alter(wire, *alterations, validate_only=False):
    """The code of each alteration, which is an entity and values by key."""
    entries = [
        AlterClientQuotasRequest.EntryData(
            entity=entity_data(*entity),
            ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
        )
        for entity, ops in alterations
    ]
    response = await wire.ask(AlterClientQuotasRequest(entries=entries, validate_only=validate_only), 1)
    return [entry.error_code for entry in response.entries]


async def described(wire, *components, strict=False):
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=how, match=match) for kind, how, match in components],
        strict=strict,
    )
    response = await wire.ask(request, 1)
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in response.entries
    }


def creation(name, partitions=1):
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic])


def production(records, acks=1):
    data = PartitionProduceData(index=0, records=records)
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="orders", partition_data=[data])],
    )


def fetching():
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    topics = [FetchTopic(topic="orders", partitions=[partition])]
    return FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1_000_000, topics=topics)


async def test_quotas_are_kept_as_changes(wire):
    both = (("client-id", None), ("user", "alice"))
    await alter(wire, (both, {"request_percentage": 7.5, "producer_byte_rate": 5e6}))
    await alter(wire, (both, {"request_percentage": None, "producer_byte_rate": 5e6}))
    made = [each for each in wire.services.changes.changes if each.resource_type is ChangedResource.QUOTA]
    assert {each.resource for each in made} == {"user alice, client-id (default)"}
    assert [[(value.name, value.old, value.new) for value in each.values] for each in made] == [
        [("producer_byte_rate", None, "5000000"), ("request_percentage", None, "7.5")],
        [("request_percentage", "7.5", None)],
    ]


async def test_quotas_are_set_described_changed_and_removed(wire):
    both = (("client-id", None), ("user", "alice"))
    assert await alter(wire, (CLIENT, {"producer_byte_rate": 5.0}), (both, {"request_percentage": 7.5})) == [0, 0]
    assert await described(wire) == {CLIENT: {"producer_byte_rate": 5.0}, both: {"request_percentage": 7.5}}
    assert await described(wire, ("client-id", SPECIFIED, None), strict=True) == {CLIENT: {"producer_byte_rate": 5.0}}
    assert list(await described(wire, ("user", EXACT, "alice"))) == [both]
    assert list(await described(wire, ("client-id", DEFAULT, None))) == [both]
    assert await alter(wire, (CLIENT, {"producer_byte_rate": None, "consumer_byte_rate": 9.0})) == [0]
    assert await described(wire, ("client-id", EXACT, "test")) == {CLIENT: {"consumer_byte_rate": 9.0}}
    assert await alter(wire, (CLIENT, {"consumer_byte_rate": None}), validate_only=True) == [0]
    assert await described(wire, ("client-id", EXACT, "test"))
    assert await alter(wire, (CLIENT, {"consumer_byte_rate": None}), (both, {"request_percentage": None})) == [0, 0]
    assert await described(wire) == {}


@pytest.mark.parametrize(
    ("entity", "ops"),
    [
        ((), {"producer_byte_rate": 1.0}),
        ((("group", "a"),), {"producer_byte_rate": 1.0}),
        ((("user", ""),), {"producer_byte_rate": 1.0}),
        ((("user", "a"), ("user", "b")), {"producer_byte_rate": 1.0}),
        ((("user", "a"), ("ip", "10.0.0.1")), {"connection_creation_rate": 1.0}),
        ((("ip", "no address"),), {"connection_creation_rate": 1.0}),
        ((("ip", "10.0.0.1"),), {"producer_byte_rate": 1.0}),
        (CLIENT, {"connection_creation_rate": 1.0}),
        (CLIENT, {"bytes": 1.0}),
        (CLIENT, {"producer_byte_rate": -1.0}),
        (CLIENT, {"producer_byte_rate": 0.0}),
        (CLIENT, {"request_percentage": 0.0}),
        (CLIENT, {"producer_byte_rate": float("nan")}),
        (CLIENT, {"request_percentage": float("inf")}),
        (CLIENT, {"producer_byte_rate": 1.5}),
        (CLIENT, {"producer_byte_rate": 1e19}),
    ],
)
async def test_what_makes_no_sense_is_refused_alone(wire, entity, ops):
    good = (("user", "alice"),)
    codes = await alter(wire, (entity, ops), (good, {"controller_mutation_rate": 0.5}))
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert list(await described(wire)) == [good]


async def test_an_entity_that_stands_twice_is_altered_once(wire):
    codes = await alter(wire, (CLIENT, {"producer_byte_rate": 1.0}), (CLIENT, {"producer_byte_rate": 2.0}))
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]


async def test_a_producer_above_its_quota_is_answered_at_once_and_waits_afterwards(wire):
    await wire.create_topic("orders")
    await alter(wire, (CLIENT, {"producer_byte_rate": 10.0}))
    records = memoryview(make_batch(value=b"x" * 500))
    for acks in (1, 0):
        response = await wire.ask(production(records, acks), 9)
        assert wire.request.throttle_seconds > 30
        if acks:
            assert response.throttle_time_ms == round(wire.request.throttle_seconds * 1000)
            assert response.responses[0].partition_responses[0].error_code == 0
    # Its bytes count for it whatever it asks for, and others go on.
    assert (
        await wire.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    ).throttle_time_ms == 0


async def test_a_consumer_above_its_quota_gets_nothing_for_now_and_all_of_it_later(wire):
    await wire.create_topic("orders")
    for _ in range(3):
        await wire.ask(production(memoryview(make_batch(value=b"x" * 500))), 9)
    await alter(wire, (CLIENT, {"consumer_byte_rate": 100.0}))
    first = await wire.ask(fetching(), 11)
    assert 0 < len(first.responses[0].partitions[0].records) <= 1000
    again = await wire.ask(fetching(), 11)
    assert (again.responses, again.error_code) == ([], ErrorCode.NONE)
    assert again.throttle_time_ms > 0
    assert wire.services.quotas.throttled_requests == 1
    assert wire.services.quotas.throttled_seconds == pytest.approx(again.throttle_time_ms / 1000, abs=0.001)
    wire.clock.advance(20)
    later = await wire.ask(fetching(), 11)
    assert later.responses[0].partitions[0].records
    assert later.throttle_time_ms == 0


async def test_one_that_creates_too_many_partitions_is_refused_until_it_has_waited(wire):
    await alter(wire, (CLIENT, {"controller_mutation_rate": 1.0}))
    assert (await wire.ask(creation("first", 20), 6)).topics[0].error_code == 0
    refused = await wire.ask(creation("second"), 6)
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert refused.throttle_time_ms == 9000
    assert (await wire.ask(DeleteTopicsRequest(topic_names=["first"], timeout_ms=0), 5)).responses[
        0
    ].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    # Clients of older versions do not know that error: theirs is done, and they wait afterwards.
    old = await wire.ask(creation("old"), 5)
    assert (old.topics[0].error_code, old.throttle_time_ms) == (0, 10_000)
    wire.clock.advance(11)
    assert (await wire.ask(creation("second"), 6)).topics[0].error_code == 0


async def test_a_client_that_takes_too_much_time_waits_a_second_at_most(wire):
    await alter(wire, (CLIENT, {"request_percentage": 1.0}))
    wire.services.quotas.record_request("ANONYMOUS", "test", 10_000_000_000)
    answer = await wire.ask(ApiVersionsRequest(client_software_name="a", client_software_version="1"), 3)
    assert answer.throttle_time_ms == 1000
    assert answer.api_keys, "an answer that is kept as bytes keeps what it says"
    assert wire.request.is_measured
