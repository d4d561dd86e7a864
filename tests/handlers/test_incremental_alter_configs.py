"""IncrementalAlterConfigs."""

from __future__ import annotations

import logging

import pytest

from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.handlers.admin_client import make_admin_client
from trio_broker.changes.change import ChangedResource
from trio_broker.cluster.metadata_image import CLUSTER_DEFAULT, ConfigResource, ConfigResourceType
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.config.entries import ValueChange
from trio_broker.handlers.incremental_alter_configs import error_response, incremental_alter_configs

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
LOGGER = "trio_broker.cluster.controller"


def resource(kind, name, *changes):
    return AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
        ],
    )


def request(*resources, validate_only=False):
    return IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)


@pytest.fixture
async def admin():
    client = await make_admin_client()
    await client.controller.create_topics([NewTopic(name="t", configs={"retention.ms": "5"})])
    yield client
    logging.getLogger(LOGGER).setLevel(logging.NOTSET)


async def codes(admin, *resources, version=1, validate_only=False):
    response = await admin.ask(incremental_alter_configs, request(*resources, validate_only=validate_only), version)
    assert [(item.resource_type, item.resource_name) for item in response.responses] == [
        (item.resource_type, item.resource_name) for item in resources
    ]
    return [item.error_code for item in response.responses]


@pytest.mark.parametrize(("name", "value"), [("retention.ms", "9" * 32_767), ("x" * 32_767, "1")])
async def test_the_longest_name_and_value_are_refused_in_an_answer_that_can_be_sent(admin, name, value):
    """Its text repeats them, and has the same limit as they."""
    changes = request(resource(TOPIC, "t", (name, SET, value)))
    response = await admin.ask(incremental_alter_configs, changes, 1)
    assert response.responses[0].error_code == ErrorCode.INVALID_CONFIG
    assert encode_bytes(response, 1)


async def test_a_key_of_kafka_without_effect_here_is_taken_beside_others(admin):
    changes = (("background.threads", SET, "3"), ("num.io.threads", SET, "9"))
    assert await codes(admin, resource(BROKER, "", *changes)) == [0]
    assert admin.config.socket_server.num_io_threads == 9
    stored = admin.controller.image.configs(CLUSTER_DEFAULT)
    assert (stored["background.threads"], stored["num.io.threads"]) == ("3", "9")


@pytest.mark.parametrize("version", [0, 1])
async def test_single_settings_of_a_topic_change_and_others_stay(admin, version):
    changes = resource(TOPIC, "t", ("segment.ms", SET, "9"), ("cleanup.policy", APPEND, "compact"))
    assert await codes(admin, changes, version=version) == [0]
    assert admin.controller.image.topics["t"].configs == {
        "retention.ms": "5",
        "segment.ms": "9",
        "cleanup.policy": "delete,compact",
    }
    changes = resource(TOPIC, "t", ("retention.ms", DELETE, None), ("cleanup.policy", SUBTRACT, "delete"))
    assert await codes(admin, changes, version=version) == [0]
    assert admin.controller.image.topics["t"].configs == {"segment.ms": "9", "cleanup.policy": "compact"}


async def test_a_pool_and_the_queue_are_tuned_live_which_is_one_change(admin):
    changes = resource(BROKER, "1", ("num.io.threads", SET, "16"), ("queued.max.requests", SET, "10"))
    assert await codes(admin, changes) == [0]
    assert (admin.config.socket_server.num_io_threads, admin.config.socket_server.queued_max_requests) == (16, 10)
    change = admin.controller.loader.publisher.changes.changes[-1]
    assert change.values == (
        ValueChange("num.io.threads", "8", "16"),
        ValueChange("queued.max.requests", "500", "10"),
    )


async def test_a_pool_beyond_double_is_refused_with_everything_beside_it(admin):
    changes = resource(BROKER, "1", ("queued.max.requests", SET, "10"), ("num.io.threads", SET, "17"))
    assert await codes(admin, changes) == [ErrorCode.INVALID_REQUEST]
    assert (admin.config.socket_server.num_io_threads, admin.config.socket_server.queued_max_requests) == (8, 500)


async def test_the_cluster_default_counts_until_the_broker_has_its_own(admin):
    assert await codes(admin, resource(BROKER, "", ("num.io.threads", SET, "10"))) == [0]
    assert admin.config.socket_server.num_io_threads == 10
    assert await codes(admin, resource(BROKER, "1", ("num.io.threads", SET, "12"))) == [0]
    assert admin.config.socket_server.num_io_threads == 12
    assert await codes(admin, resource(BROKER, "1", ("num.io.threads", DELETE, None))) == [0]
    assert admin.config.socket_server.num_io_threads == 10


async def test_each_resource_fares_by_itself(admin):
    outcomes = await codes(
        admin,
        resource(TOPIC, "x", ("retention.ms", SET, "1")),
        resource(99, "t", ("retention.ms", SET, "1")),
        resource(TOPIC, "t", ("retention.ms", SET, "1")),
        resource(BROKER, "1", ("log.dirs", SET, "/")),
    )
    assert outcomes == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert admin.controller.image.topics["t"].configs == {"retention.ms": "1"}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (TOPIC, "Default topic resources are not allowed."),
        (GROUP, "Default group resources are not allowed."),
        (CLIENT_METRICS, "Client metrics subscription name must not be empty"),
    ],
)
async def test_only_brokers_have_defaults_of_all_of_them(admin, kind, text):
    [outcome] = (await admin.ask(incremental_alter_configs, request(resource(kind, "", ("x", SET, "1"))), 1)).responses
    assert (outcome.error_code, outcome.error_message) == (ErrorCode.INVALID_REQUEST, text)


async def test_a_topic_may_set_what_kafka_does_not_describe(admin):
    assert await codes(admin, resource(TOPIC, "t", ("internal.segment.bytes", SET, "1000"))) == [0]
    assert admin.controller.image.topics["t"].configs["internal.segment.bytes"] == "1000"


async def test_a_subscription_to_client_metrics_is_kept_and_taken_away(admin):
    metrics = ConfigResource(ConfigResourceType.CLIENT_METRICS, "slow ones")
    values = {"interval.ms": "1000", "metrics": "org.apache.kafka,*", "match": "client_id=x.*,client_software_name=j"}
    changes = [(name, SET, value) for name, value in values.items()]
    assert await codes(admin, resource(CLIENT_METRICS, "slow ones", *changes)) == [0]
    assert admin.controller.image.configs(metrics) == values
    [change] = admin.controller.loader.publisher.changes.changes[-1:]
    assert (change.resource_type, change.resource) == (ChangedResource.CLIENT_METRICS, "slow ones")
    assert change.values[0] == ValueChange("interval.ms", "300000", "1000")
    deletions = [(name, DELETE, None) for name in values]
    assert await codes(admin, resource(CLIENT_METRICS, "slow ones", *deletions)) == [0]
    assert metrics not in admin.controller.image.configs_by_resource


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST),
        ("interval.ms", "x", ErrorCode.INVALID_CONFIG),
        ("metrics", "a,,b", ErrorCode.INVALID_CONFIG),
        ("match", "client_id", ErrorCode.INVALID_CONFIG),
        ("match", "client=x", ErrorCode.INVALID_CONFIG),
        ("interval", "1000", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_bad_settings_of_client_metrics_are_refused_with_kafka_s_codes(admin, name, value, code):
    assert await codes(admin, resource(CLIENT_METRICS, "m", (name, SET, value))) == [code]


async def test_a_read_only_key_is_refused_with_kafka_s_code_and_words(admin):
    asked = request(resource(BROKER, "1", ("node.id", SET, "2")))
    [outcome] = (await admin.ask(incremental_alter_configs, asked, 1)).responses
    assert outcome.error_code == ErrorCode.INVALID_REQUEST
    assert outcome.error_message == "Cannot update these configs dynamically: Set(node.id)"


async def test_a_resource_named_twice_is_refused_twice(admin):
    one, two = resource(TOPIC, "t", ("segment.ms", SET, "1")), resource(TOPIC, "t", ("segment.ms", SET, "2"))
    assert await codes(admin, one, two) == [ErrorCode.INVALID_REQUEST] * 2


async def test_an_unknown_operation_and_a_missing_value_are_refused(admin):
    assert await codes(admin, resource(TOPIC, "t", ("segment.ms", 7, "1"))) == [ErrorCode.INVALID_REQUEST]
    assert await codes(admin, resource(TOPIC, "t", ("segment.ms", SET, None))) == [ErrorCode.INVALID_REQUEST]


async def test_validate_only_answers_alike_and_changes_nothing(admin):
    before = admin.metadata_log.log_end_offset
    outcomes = await codes(
        admin,
        resource(TOPIC, "t", ("segment.ms", SET, "9")),
        resource(BROKER, "1", ("num.io.threads", SET, "99")),
        resource(BROKER_LOGGER, "1", (LOGGER, SET, "ERROR")),
        validate_only=True,
    )
    assert outcomes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert admin.metadata_log.log_end_offset == before
    assert logging.getLogger(LOGGER).level == logging.NOTSET


async def test_a_logger_gets_a_level_and_loses_it_again(admin):
    assert await codes(admin, resource(BROKER_LOGGER, "1", (LOGGER, SET, "ERROR"))) == [0]
    assert logging.getLogger(LOGGER).level == logging.ERROR
    assert await codes(admin, resource(BROKER_LOGGER, "1", (LOGGER, DELETE, None))) == [0]
    assert logging.getLogger(LOGGER).level == logging.NOTSET


@pytest.mark.parametrize(
    ("name", "change", "code"),
    [
        ("2", (LOGGER, SET, "INFO"), ErrorCode.INVALID_REQUEST),
        ("1", (LOGGER, SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        ("1", ("no.such", SET, "INFO"), ErrorCode.INVALID_CONFIG),
        ("1", (LOGGER, APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        ("1", (LOGGER, SET, None), ErrorCode.INVALID_REQUEST),
        ("1", ("root", DELETE, None), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_level_that_cannot_be_is_refused(admin, name, change, code):
    assert await codes(admin, resource(BROKER_LOGGER, name, change)) == [code]


def test_a_refused_request_refuses_each_resource():
    error = KafkaError("no", code=ErrorCode.KAFKA_STORAGE_ERROR)
    [item] = error_response(request(resource(TOPIC, "t")), error).responses
    assert (item.error_code, item.resource_name) == (ErrorCode.KAFKA_STORAGE_ERROR, "t")
