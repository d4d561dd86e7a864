"""AlterConfigs, the older way."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from tests.handlers.admin_client import make_admin_client
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.handlers.alter_configs import alter_configs, error_response
from trio_broker.handlers.support.config_changes import MAX_SETTINGS_PER_RESOURCE

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8


def resource(kind, name, *configs):
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=key, value=value) for key, value in configs],
    )


@pytest.fixture
async def admin():
    client = await make_admin_client()
    await client.controller.create_topics([NewTopic(name="t", configs={"retention.ms": "5", "segment.ms": "9"})])
    return client


async def codes(admin, *resources, version=2, validate_only=False):
    asked = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    return [item.error_code for item in (await admin.ask(alter_configs, asked, version)).responses]


@pytest.mark.parametrize("version", range(3))
async def test_all_settings_of_a_topic_are_replaced(admin, version):
    assert await codes(admin, resource(TOPIC, "t", ("retention.ms", "7")), version=version) == [0]
    assert admin.controller.image.topics["t"].configs == {"retention.ms": "7"}


async def test_an_empty_list_takes_everything_away(admin):
    assert await codes(admin, resource(TOPIC, "t")) == [0]
    assert admin.controller.image.topics["t"].configs == {}


async def test_a_brokers_own_settings_are_replaced(admin):
    assert await codes(admin, resource(BROKER, "1", ("num.io.threads", "9"))) == [0]
    assert admin.config.socket_server.num_io_threads == 9
    assert await codes(admin, resource(BROKER, "1", ("queued.max.requests", "9"))) == [0]
    assert admin.config.socket_server.num_io_threads == 8


async def test_each_resource_fares_by_itself(admin):
    outcomes = await codes(
        admin,
        resource(TOPIC, "x", ("retention.ms", "1")),
        resource(TOPIC, "t", ("retention.ms", "x")),
        resource(BROKER, "1", ("num.io.threads", "9")),
        resource(BROKER, "", ("node.id", "9")),
        resource(BROKER_LOGGER, "1", ("root", "INFO")),
    )
    assert outcomes == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert admin.controller.image.topics["t"].configs == {"retention.ms": "5", "segment.ms": "9"}


async def test_topics_have_no_defaults_of_all_of_them(admin):
    assert await codes(admin, resource(TOPIC, "", ("retention.ms", "1"))) == [ErrorCode.INVALID_REQUEST]


async def test_a_value_that_is_missing_or_there_twice_is_refused(admin):
    assert await codes(admin, resource(TOPIC, "t", ("retention.ms", None))) == [ErrorCode.INVALID_REQUEST]
    twice = resource(TOPIC, "t", ("retention.ms", "1"), ("retention.ms", "2"))
    assert await codes(admin, twice) == [ErrorCode.INVALID_REQUEST]


async def test_validate_only_changes_nothing(admin):
    assert await codes(admin, resource(TOPIC, "t"), validate_only=True) == [0]
    assert admin.controller.image.topics["t"].configs == {"retention.ms": "5", "segment.ms": "9"}


def test_a_refused_request_refuses_each_resource():
    asked = AlterConfigsRequest(resources=[resource(TOPIC, "t")], validate_only=False)
    [item] = error_response(asked, KafkaError("no", code=ErrorCode.KAFKA_STORAGE_ERROR)).responses
    assert (item.error_code, item.resource_type, item.resource_name) == (ErrorCode.KAFKA_STORAGE_ERROR, TOPIC, "t")


async def test_more_settings_than_there_can_be_are_refused_unread(admin):
    """They would be decided about in one step."""
    many = [(f"key-{number}", "1") for number in range(MAX_SETTINGS_PER_RESOURCE + 1)]
    refused, unknown = await codes(admin, resource(TOPIC, "t", *many), resource(TOPIC, "other", *many[1:]))
    assert (refused, unknown) == (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
