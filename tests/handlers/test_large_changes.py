"""No step of a request that changes much makes more calls the more it changes: decision, records, image, journal and
the parts of the broker that follow.

What is counted is told in ``test_largest_requests``, which takes what is refused or unknown.
"""

from __future__ import annotations

from bench.accepted_requests import creation, new_topic
from bench.largest_requests import topic_name
from kafka_wire.codec import encode_bytes
from kafka_wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kafka_wire.messages.delete_topics import DeleteTopicsRequest
from kafka_wire.messages.metadata import MetadataRequest
from kafka_wire.records import batch
from tests.handlers.calls_per_step import calls_per_step
from trio_broker import yield_budget

TOPICS = 600

MAX_CALLS = 2400
"""In one step: four for each topic, where all that is done for one takes up to two thousand."""

RECORDS_PER_TURN = 10

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
