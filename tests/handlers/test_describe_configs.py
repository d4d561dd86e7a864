"""DescribeConfigs."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.handlers.admin_client import make_admin_client
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.config.entries import ConfigScope
from trio_broker.config.keys import BROKER_KEYS, TOPIC_KEYS
from trio_broker.handlers.describe_configs import describe_configs, error_response

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
VERSIONS = range(1, 5)


def request(*resources, keys=None, synonyms=False, documentation=False):
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
            for kind, name in resources
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )


@pytest.fixture
async def admin():
    client = await make_admin_client(num_io_threads="4")
    await client.controller.create_topics([NewTopic(name="t", configs={"retention.ms": "5"})])
    return client


@pytest.mark.parametrize("version", VERSIONS)
async def test_no_keys_named_means_every_key(admin, version):
    response = await admin.ask(describe_configs, request((TOPIC, "t"), (BROKER, "1")), version)
    topic, broker = response.results
    assert [config.name for config in topic.configs] == [key.name for key in TOPIC_KEYS.values() if not key.internal]
    always = [key.name for key in BROKER_KEYS.values() if not key.internal and not key.without_effect]
    assert [config.name for config in broker.configs] == always


@pytest.mark.parametrize("version", VERSIONS)
async def test_named_keys_are_described_and_unknown_ones_left_out(admin, version):
    [broker] = (
        await admin.ask(describe_configs, request((BROKER, "1"), keys=["num.io.threads", "no"]), version)
    ).results
    [config] = broker.configs
    assert (config.name, config.value, config.read_only, config.is_sensitive) == ("num.io.threads", "4", False, False)


async def test_an_empty_list_of_keys_means_every_key_as_in_kafka(admin):
    [all_keys] = (await admin.ask(describe_configs, request((BROKER, "1")), 4)).results
    [broker] = (await admin.ask(describe_configs, request((BROKER, "1"), keys=[]), 4)).results
    assert broker.configs == all_keys.configs != []


async def test_a_group_that_does_not_exist_has_settings_all_the_same(admin):
    [group] = (await admin.ask(describe_configs, request((GROUP, "g"), synonyms=True), 4)).results
    assert {config.name: (config.value, config.config_source) for config in group.configs} == {
        "consumer.session.timeout.ms": ("45000", 5),
        "consumer.heartbeat.interval.ms": ("5000", 5),
        "consumer.assignment.interval.ms": ("1000", 5),
    }
    assert group.configs[0].synonyms[0].name == "group.consumer.session.timeout.ms"


async def test_a_subscription_to_client_metrics_has_settings_though_none_was_made(admin):
    [metrics] = (await admin.ask(describe_configs, request((CLIENT_METRICS, "m"), synonyms=True), 4)).results
    described = [(each.name, each.value, each.config_source, each.synonyms) for each in metrics.configs]
    assert described == [("interval.ms", "300000", 5, []), ("metrics", "", 5, []), ("match", "", 5, [])]


async def test_a_setting_of_a_topic_is_described_as_kafka_writes_it(admin):
    await admin.controller.create_topics([NewTopic(name="u", configs={"preallocate": " TRUE"})])
    [topic] = (await admin.ask(describe_configs, request((TOPIC, "u"), keys=["preallocate"], synonyms=True), 4)).results
    assert (topic.configs[0].value, topic.configs[0].synonyms[0].value) == ("true", "true")


async def test_min_insync_replicas_is_a_default_of_the_cluster_from_the_first_start_on(wire):
    asked = request((BROKER, "1"), keys=["min.insync.replicas"], synonyms=True)
    [broker] = (await wire.ask(asked, 4)).results
    assert [(item.value, item.source) for item in broker.configs[0].synonyms] == [("1", 3), ("1", 5)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_source_and_synonyms_are_right_from_version_1_on(admin, version):
    admin.config.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "5"})
    asked = request((BROKER, "1"), keys=["num.io.threads"], synonyms=True)
    [broker] = (await admin.ask(describe_configs, asked, version)).results
    [config] = broker.configs
    assert (config.value, config.config_source) == ("5", 2)
    assert [(item.name, item.value, item.source) for item in config.synonyms] == [
        ("num.io.threads", "5", 2),
        ("num.io.threads", "4", 4),
        ("num.io.threads", "8", 5),
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topics_chain_goes_on_with_the_brokers_keys(admin, version):
    asked = request((TOPIC, "t"), keys=["retention.ms"], synonyms=True)
    [topic] = (await admin.ask(describe_configs, asked, version)).results
    [config] = topic.configs
    assert (config.value, config.config_source) == ("5", 1)
    assert [(item.name, item.value, item.source) for item in config.synonyms] == [
        ("retention.ms", "5", 1),
    ]


async def test_synonyms_and_documentation_come_only_when_asked_for(admin):
    [broker] = (await admin.ask(describe_configs, request((BROKER, "1"), keys=["num.io.threads"]), 4)).results
    assert (broker.configs[0].synonyms, broker.configs[0].documentation) == ([], None)
    asked = request((BROKER, "1"), keys=["num.io.threads"], documentation=True)
    [broker] = (await admin.ask(describe_configs, asked, 4)).results
    assert broker.configs[0].documentation.startswith("How many requests are handled")
    assert broker.configs[0].config_type == 3


async def test_the_unnamed_broker_has_the_dynamic_defaults_alone(admin):
    admin.config.set_dynamic(ConfigScope.CLUSTER, {"num.io.threads": "6"})
    [cluster] = (await admin.ask(describe_configs, request((BROKER, "")), 4)).results
    assert [(config.name, config.value, config.config_source) for config in cluster.configs] == [
        ("num.io.threads", "6", 3)
    ]


async def test_loggers_are_described_by_their_level(admin):
    [loggers] = (await admin.ask(describe_configs, request((BROKER_LOGGER, "1")), 4)).results
    levels = {config.name: config.value for config in loggers.configs}
    assert levels["root"] in {"DEBUG", "INFO", "WARN"}
    assert "trio_broker.cluster.controller" in levels


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "/", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (BROKER_LOGGER, "", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
        (99, "x", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_resource_that_is_not_there_is_refused_beside_others(admin, kind, name, code):
    missing, present = (await admin.ask(describe_configs, request((kind, name), (TOPIC, "t")), 4)).results
    assert (missing.error_code, missing.resource_type, missing.resource_name, missing.configs) == (code, kind, name, [])
    assert present.error_code == ErrorCode.NONE


def test_a_refused_request_refuses_each_resource():
    [result] = error_response(request((TOPIC, "t")), KafkaError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR)).results
    assert (result.error_code, result.resource_name) == (-1, "t")
