"""Who answers what, as it is advertised and let in."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.apis import ApiKey
from kafka_wire.messages.produce import ProduceRequest
from trio_broker.handlers.support.registry import handler_modules, handles, is_served, served_apis

EVERY_CLIENT_NEEDS = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_CLUSTER,
}


def test_what_every_client_needs_is_served():
    assert set(served_apis()) >= EVERY_CLIENT_NEEDS


@pytest.mark.parametrize("api", served_apis().values(), ids=lambda api: api.api_key.name)
def test_a_handler_answers_in_the_file_of_its_api(api):
    assert api.handler.__module__ == f"trio_broker.handlers.{api.api_key.name.lower()}"
    assert api.handler.__name__ == api.api_key.name.lower()


@pytest.mark.parametrize("api", served_apis().values(), ids=lambda api: api.api_key.name)
def test_every_served_version_is_let_in_and_none_beside(api):
    assert all(is_served(api.api_key, version) for version in range(api.versions.low, api.versions.high + 1))
    assert not is_served(api.api_key, api.versions.low - 1)
    assert not is_served(api.api_key, api.versions.high + 1)


@pytest.mark.parametrize("api", served_apis().values(), ids=lambda api: api.api_key.name)
def test_what_is_advertised_covers_what_is_served_and_begins_lower_for_produce_alone(api):
    assert api.advertised.high == api.versions.high
    assert api.advertised.low == (0 if api.api_key == ApiKey.PRODUCE else api.versions.low)


@pytest.mark.parametrize("api_key", [ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY, 30_000, -1])
def test_an_api_without_a_handler_is_not_let_in(api_key):
    assert not is_served(api_key, 0)


def test_produce_below_version_3_is_advertised_but_not_let_in():
    assert not any(is_served(ApiKey.PRODUCE, version) for version in range(3))


@pytest.mark.parametrize("api_key", [0, 1, 2, 3])
def test_the_maxima_that_kafka_python_reads_a_release_from_are_those_of_4_3(api_key):
    assert served_apis()[api_key].advertised.high == {0: 13, 1: 18, 2: 11, 3: 13}[api_key]


def test_two_handlers_for_one_api_are_a_mistake():
    served_apis()

    async def another(request, context): ...

    unused: Any = None

    with pytest.raises(AssertionError, match="PRODUCE has a handler already"):
        handles(ProduceRequest, error_response=unused, requires=[])(another)


def test_every_module_beside_the_support_is_a_handler():
    served = {api.handler.__module__ for api in served_apis().values()}
    assert set(handler_modules()) == served
