"""Settings: who is asked for them, and which of them somebody changed."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.config_resources import ConfigOperation, ConfigResourceType
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kafka_wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.client.scripted_client import client_of
from tests.fakes.scripted_kafka import CLOSED, Cluster, ScriptedKafka
from trio_broker.client.configs import (
    CLUSTER_DEFAULT,
    ConfigChange,
    DescribedConfig,
    Resource,
    alter_configs,
    describe_configs,
)
from trio_broker.client.errors import ConnectionLost, NotKafka, Refused

TOPIC = Resource(ConfigResourceType.TOPIC, "t")
BROKER_2 = Resource(ConfigResourceType.BROKER, "2")
ALL_BROKERS = Resource(ConfigResourceType.BROKER, CLUSTER_DEFAULT)


def described(request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
    """Two settings for each resource."""
    configs = [
        DescribeConfigsResourceResult(
            name=name, value=None, read_only=False, config_source=5, is_sensitive=True, synonyms=[]
        )
        for name in ("z", "a")
    ]
    results = [
        DescribeConfigsResult(
            error_message=None, resource_type=each.resource_type, resource_name=each.resource_name, configs=configs
        )
        for each in request.resources
    ]
    return DescribeConfigsResponse(results=results)


def test_a_broker_is_asked_for_its_own_settings_and_any_for_the_others():
    first, second = ScriptedKafka(node_id=1), ScriptedKafka(node_id=2)
    with first, second, client_of(first) as client:
        Cluster([first, second])
        for server in (first, second):
            server.answers[DescribeConfigsRequest] = described

        found = describe_configs(client, [TOPIC, BROKER_2, ALL_BROKERS])
        assert list(found) == [TOPIC, BROKER_2, ALL_BROKERS]
        assert found[TOPIC] == [DescribedConfig(name, None, 5, False, True) for name in ("a", "z")]
        assert [each.resource_name for each in first.requests(DescribeConfigsRequest)[0].resources] == ["t", ""]
        assert [each.resource_name for each in second.requests(DescribeConfigsRequest)[0].resources] == ["2"]


@pytest.mark.parametrize(
    ("resource", "source", "is_changed"),
    [
        (TOPIC, 1, True),
        (TOPIC, 2, False),
        (TOPIC, 4, False),
        (TOPIC, 5, False),
        (BROKER_2, 2, True),
        (BROKER_2, 3, False),
        (BROKER_2, 4, False),
        (ALL_BROKERS, 3, True),
    ],
)
def test_what_was_set_for_the_resource_itself_is_changed(resource: Resource, source: int, is_changed: bool):
    assert DescribedConfig("k", "v", source, False, False).is_changed(resource) == is_changed


def test_an_answer_about_something_else_is_not_kafkas():
    with ScriptedKafka({DescribeConfigsRequest: DescribeConfigsResponse(results=[])}) as server:
        Cluster([server])
        with client_of(server) as client, pytest.raises(NotKafka, match="topic 't': the answer has 0 results"):
            describe_configs(client, [TOPIC])


def altered(code: int = 0, message: str | None = None) -> IncrementalAlterConfigsResponse:
    result = AlterConfigsResourceResponse(error_code=code, error_message=message, resource_type=2, resource_name="t")
    return IncrementalAlterConfigsResponse(responses=[result])


def alone(answer: Any) -> ScriptedKafka:
    server = ScriptedKafka({IncrementalAlterConfigsRequest: answer})
    Cluster([server])
    return server


def test_changes_of_one_resource_go_together():
    changes = [ConfigChange("a", ConfigOperation.SET, "1"), ConfigChange("b", ConfigOperation.DELETE, None)]
    with alone(altered()) as server, client_of(server) as client:
        alter_configs(client, TOPIC, changes, validate_only=True)
        [request] = server.requests(IncrementalAlterConfigsRequest)
        [resource] = request.resources
        assert request.validate_only
        assert (resource.resource_type, resource.resource_name) == (2, "t")
        assert [(each.name, each.config_operation, each.value) for each in resource.configs] == [
            ("a", 0, "1"),
            ("b", 1, None),
        ]


def test_a_refused_value_is_reported_in_the_brokers_words():
    with (
        alone(altered(ErrorCode.INVALID_CONFIG, "no number")) as server,
        client_of(server) as client,
        pytest.raises(Refused, match=r"^topic 't': INVALID_CONFIG: no number$"),
    ):
        alter_configs(client, TOPIC, [ConfigChange("a", ConfigOperation.SET, "x")], validate_only=False)


@pytest.mark.parametrize(("operation", "attempts"), [(ConfigOperation.SET, 2), (ConfigOperation.APPEND, 1)])
def test_a_lost_change_is_repeated_unless_twice_is_more(operation: ConfigOperation, attempts: int):
    with alone([CLOSED, altered()]) as server, client_of(server) as client:
        try:
            alter_configs(client, TOPIC, [ConfigChange("a", operation, "1")], validate_only=False)
        except ConnectionLost:
            assert attempts == 1
        assert len(server.requests(IncrementalAlterConfigsRequest)) == attempts


def test_a_resource_prints_as_people_call_it():
    assert [str(each) for each in (TOPIC, BROKER_2, ALL_BROKERS)] == ["topic 't'", "broker '2'", "all brokers"]
