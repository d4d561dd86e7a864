"""ListConfigResources: what has settings, by type."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.list_config_resources import ListConfigResourcesRequest
from kafka_wire.stored.metadata import ConfigRecord
from tests.fakes.images import image_after
from tests.handlers.loop_rounds import counted_rounds
from trio_broker.cluster.metadata_image import ConfigResourceType
from trio_broker.concurrency import yield_budget
from trio_broker.handlers.list_config_resources import error_response

TOPIC, BROKER, LOGGER, METRICS, GROUP = (int(each) for each in ConfigResourceType)


async def ask(wire, *types, version=1):
    """Pairs of type and name."""
    response = await wire.ask(ListConfigResourcesRequest(resource_types=list(types)), version)
    assert response.error_code == 0
    return [(resource.resource_type, resource.resource_name) for resource in response.config_resources]


def set_config(wire, resource_type, name, key, value):
    """As the metadata log of a Kafka may have it, whatever this broker lets clients set."""
    record = ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
    cache = wire.services.metadata_cache
    cache.set_image(image_after(cache.image, record))


@pytest.fixture
async def filled(wire):
    """A broker with two topics, a group with a setting of its own, and a subscription to client metrics."""
    await wire.create_topic("orders")
    await wire.create_topic("payments")
    set_config(wire, GROUP, "readers", "consumer.session.timeout.ms", "50000")
    set_config(wire, METRICS, "latencies", "interval.ms", "1000")
    return wire


async def test_an_empty_list_asks_for_every_type(filled):
    node = str(filled.services.node.node_id)
    assert set(await ask(filled)) == {
        (TOPIC, "orders"),
        (TOPIC, "payments"),
        (BROKER, node),
        (LOGGER, node),
        (METRICS, "latencies"),
        (GROUP, "readers"),
    }


async def test_only_the_types_asked_for_are_listed_and_once(filled):
    assert await ask(filled, GROUP, TOPIC, GROUP) == [(GROUP, "readers"), (TOPIC, "orders"), (TOPIC, "payments")]


async def test_version_0_lists_subscriptions_to_client_metrics_alone(filled):
    assert await ask(filled, version=0) == [(METRICS, "latencies")]


async def test_the_default_of_all_brokers_is_not_a_resource_of_its_own(filled):
    set_config(filled, BROKER, "", "num.io.threads", "9")
    assert await ask(filled, BROKER) == [(BROKER, str(filled.services.node.node_id))]


async def test_a_group_whose_settings_were_taken_away_is_not_listed(filled):
    set_config(filled, GROUP, "readers", "consumer.session.timeout.ms", None)
    assert await ask(filled, GROUP) == []


@pytest.mark.parametrize("number", [0, 1, 3, 64, -1, 127])
async def test_a_type_that_does_not_exist_refuses_the_whole_request(filled, number):
    response = await filled.ask(ListConfigResourcesRequest(resource_types=[TOPIC, number]), 1)
    assert (response.error_code, response.config_resources) == (ErrorCode.UNSUPPORTED_VERSION, [])


async def test_other_tasks_run_while_many_resources_are_listed(wire, monkeypatch):
    for number in range(200):
        set_config(wire, GROUP, f"group-{number}", "consumer.session.timeout.ms", "50000")
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    async with counted_rounds() as rounds:
        assert len(await ask(wire, GROUP)) == 200
    assert rounds.count > 100


def test_a_refusal_is_reported_for_the_whole_request():
    error = KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR)
    assert error_response(ListConfigResourcesRequest(), error).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
