"""Requests that are the controller's reach it from any broker, and their answers come back."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

import attrs
import pytest
import trio

from kafka_wire.acl import AclOperation
from kafka_wire.apis import ApiKey
from kafka_wire.codec import encode
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_delegation_token import CreateDelegationTokenRequest
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafka_wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafka_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafka_wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.handlers.acls import ADMIN, SECURE, allow, entry
from tests.handlers.handler_client import joined
from tests.handlers.two_brokers import HERE, NOWHERE, TwoBrokers, two_brokers
from trio_broker.cluster.controller_channel import CALL_SECONDS
from trio_broker.cluster.delegation_token_control import token_records
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.errors import ConfigError
from trio_broker.handlers.support.registry import advertised_apis, served_apis
from trio_broker.network.errors import CloseConnection
from trio_broker.security.kafka_principal import ANONYMOUS, KafkaPrincipal

LOGGER = "trio_broker.cluster.controller"

KAFKA_FORWARDS = {
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
}


@pytest.fixture
async def brokers(open_wire_client) -> TwoBrokers:
    return two_brokers(await open_wire_client(directory="asked"), await open_wire_client(directory="controller"))


@pytest.fixture
def level():
    """Gives the logger back its level."""
    yield
    logging.getLogger(LOGGER).setLevel(logging.NOTSET)


def create(*names: str) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    return CreateTopicsRequest(topics=topics)


def alter(*resources: tuple[ConfigResourceType, str, str, str]) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest(
        validate_only=False,
        resources=[
            AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[AlterableConfig(name=key, config_operation=0, value=value)],
            )
            for kind, name, key, value in resources
        ],
    )


def test_what_kafka_forwards_is_forwarded():
    assert {each.api_key for each in advertised_apis(to_brokers=False) if each.by_controller} == KAFKA_FORWARDS


async def test_a_broker_alone_calls_its_handlers_directly(wire):
    for key in KAFKA_FORWARDS:
        assert wire.dispatcher.apis[key] is served_apis()[key]


@pytest.mark.parametrize("version", [2, 7])
async def test_the_controller_answers_in_the_version_that_the_client_has_asked_in(brokers, version):
    response = await brokers.client.ask(create("orders"), version)
    assert [(each.name, each.error_code) for each in response.topics] == [("orders", 0)]
    assert brokers.topics(brokers.controller) == {"orders"}
    assert brokers.topics(brokers.client) == set()
    response = await brokers.client.ask(create("orders"), version)
    assert response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_a_request_of_many_elements_is_forwarded(brokers):
    names = {f"topic-{number}-{'x' * 100}" for number in range(100)}
    response = await brokers.client.ask(create(*names), 7)
    assert {each.name for each in response.topics if not each.error_code} == names
    assert brokers.topics(brokers.controller) == names


async def test_the_slot_is_given_back_while_the_controller_works(brokers):
    await brokers.client.ask(create("orders"), 7)
    assert brokers.client.delayed


async def test_a_change_is_kept_with_the_address_of_its_client_and_of_the_broker_that_says_so(brokers):
    await brokers.client.ask(create("orders"), 7)
    [change] = [each for each in brokers.controller.services.changes.changes if each.resource == "orders"]
    assert change.origin.address == "10.0.0.77 by 10.0.0.9"
    assert (change.origin.client, change.origin.request) == ("test", "CREATE_TOPICS")


async def test_on_the_controller_itself_nothing_is_sent(brokers):
    brokers.locator.controller_name = HERE
    await brokers.client.create_topic("orders")
    assert brokers.topics(brokers.client) == {"orders"}
    assert not brokers.peers.sent


async def test_levels_of_loggers_are_set_on_the_broker_that_is_asked_and_the_rest_on_the_controller(brokers, level):
    await brokers.controller.create_topic("orders")
    node = str(brokers.client.services.node.node_id)
    logger = (ConfigResourceType.BROKER_LOGGER, node, LOGGER, "DEBUG")
    topic = (ConfigResourceType.TOPIC, "orders", "retention.ms", "1000")
    alone = await brokers.client.ask(alter(logger), 1)
    assert [each.error_code for each in alone.responses] == [0]
    assert not brokers.peers.sent
    both = await brokers.client.ask(alter(topic, logger), 1)
    assert sorted((each.resource_type, each.error_code) for each in both.responses) == [(2, 0), (8, 0)]
    image = brokers.controller.services.metadata_cache.image
    assert image.topics["orders"].configs == {"retention.ms": "1000"}
    brokers.locator.controller_name = HERE
    await brokers.client.create_topic("orders")
    assert sorted(each.error_code for each in (await brokers.client.ask(alter(topic, logger), 1)).responses) == [0, 0]


KEY_STORE = "listener.name.clients.ssl.keystore.location"


def refuse_key_stores(config: BrokerConfig, changed: Collection[str]) -> None:
    """As a broker does that cannot read the file."""
    if KEY_STORE in changed:
        raise ConfigError("/keys.pem: there is no such file")


async def test_a_broker_refuses_settings_of_its_own_that_it_could_not_follow_and_the_rest_is_sent_on(brokers):
    await brokers.controller.create_topic("orders")
    config = brokers.client.services.config
    config.validators.append(refuse_key_stores)
    node = str(config.node.node_id)
    topic = (ConfigResourceType.TOPIC, "orders", "retention.ms", "1000")
    answer = await brokers.client.ask(alter((ConfigResourceType.BROKER, node, KEY_STORE, "/keys.pem"), topic), 1)
    [refused, made] = answer.responses
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "/keys.pem: there is no such file",
    )
    assert (made.resource_name, made.error_code) == ("orders", 0)
    own = ConfigResource.of_broker(config.node.node_id)
    assert brokers.controller.services.metadata_cache.image.configs(own) == {}
    threads = [(ConfigResourceType.BROKER, node, "num.io.threads", number) for number in ("100", "9")]
    codes = [(await brokers.client.ask(alter(each), 1)).responses[0].error_code for each in threads]
    assert codes == [ErrorCode.INVALID_REQUEST, 0]
    assert brokers.peers.sent == ["controller"] * 2


async def test_settings_of_another_broker_are_refused_as_in_kafka(brokers):
    [refused] = (await brokers.client.ask(alter((ConfigResourceType.BROKER, "77", KEY_STORE, "/x")), 1)).responses
    assert refused.error_code == ErrorCode.INVALID_REQUEST
    assert refused.error_message.startswith("Unexpected broker id, expected ")
    assert brokers.peers.sent == []


# A controller that moves, or is not there


async def test_a_request_waits_for_a_controller(brokers, autojump_clock, nursery):
    brokers.locator.controller_name = NOWHERE
    responses: list[Any] = []

    async def ask() -> None:
        responses.append(await brokers.client.ask(create("orders"), 7))

    nursery.start_soon(ask)
    await trio.sleep(CALL_SECONDS / 2)
    assert not responses
    brokers.locator.controller_name = "controller"
    await trio.sleep(1)
    assert responses[0].topics[0].error_code == 0


async def test_without_a_controller_a_request_times_out(brokers, autojump_clock):
    brokers.locator.controller_name = NOWHERE
    response = await brokers.client.ask(create("orders"), 7)
    assert response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert "nobody is the controller" in response.topics[0].error_message


async def test_a_broker_that_is_not_the_controller_any_more_sends_nothing_on(brokers, autojump_clock, nursery):
    brokers.controller_locator.controller_name = "controller"

    async def regain() -> None:
        await trio.sleep(CALL_SECONDS / 2)
        brokers.controller_locator.controller_name = HERE

    nursery.start_soon(regain)
    response = await brokers.client.ask(create("orders"), 7)
    assert response.topics[0].error_code == 0
    assert set(brokers.peers.sent) == {"controller"}
    assert brokers.topics(brokers.controller) == {"orders"}


async def test_a_request_whose_answer_is_lost_is_sent_again(brokers, autojump_clock):
    brokers.peers.lost = 1
    response = await brokers.client.ask(create("orders"), 7)
    assert response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert brokers.peers.sent == ["controller"] * 2


async def test_a_request_that_the_controller_cannot_read_ends_the_connection(brokers):
    """As Kafka does: the client connects again, and learns other versions."""
    apis = dict(brokers.controller.dispatcher.apis)
    body = joined(encode(create("orders"), 7))
    apis[ApiKey.CREATE_TOPICS] = attrs.evolve(apis[ApiKey.CREATE_TOPICS], request=served_apis()[ApiKey.FETCH].request)
    brokers.controller.dispatcher.apis = apis
    with pytest.raises(CloseConnection, match="the controller cannot read CreateTopics v7"):
        await brokers.client.send(ApiKey.CREATE_TOPICS, 7, body)


@pytest.fixture
async def secure_brokers(open_wire_client) -> TwoBrokers:
    """Both ask for rights; the administrator is the brokers' principal, too."""
    brokers = two_brokers(
        await open_wire_client(directory="asked", **SECURE), await open_wire_client(directory="controller", **SECURE)
    )
    brokers.peers.brokers["controller"] = brokers.controller.as_user(ADMIN)
    return brokers


async def test_the_controller_asks_for_the_rights_of_the_client_and_not_of_the_broker(secure_brokers):
    brokers, alice = secure_brokers, secure_brokers.client.as_user("alice")
    response = await alice.ask(create("orders"), 7)
    assert response.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await allow(brokers.client, entry("orders", AclOperation.CREATE))
    response = await alice.ask(create("orders", "secrets"), 7)
    codes = {each.name: each.error_code for each in response.topics}
    assert codes == {"orders": 0, "secrets": ErrorCode.TOPIC_AUTHORIZATION_FAILED}


async def test_a_client_without_the_right_learns_nothing_of_files(secure_brokers):
    brokers, alice = secure_brokers, secure_brokers.client.as_user("alice")
    config = brokers.client.services.config
    config.validators.append(refuse_key_stores)
    change = alter((ConfigResourceType.BROKER, str(config.node.node_id), KEY_STORE, "/keys.pem"))
    [refused] = (await alice.ask(change, 1)).responses
    assert refused.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    [refused] = (await brokers.client.as_user(ADMIN).ask(change, 1)).responses
    assert refused.error_message == "/keys.pem: there is no such file"


async def test_a_broker_without_the_right_to_act_in_the_cluster_forwards_nothing(secure_brokers):
    secure_brokers.peers.brokers["controller"] = secure_brokers.controller
    response = await secure_brokers.client.as_user(ADMIN).ask(create("orders"), 7)
    assert response.topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert secure_brokers.topics(secure_brokers.controller) == set()


# Delegation tokens

CREATE_TOKEN = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)


@pytest.fixture
async def token_brokers(open_wire_client) -> TwoBrokers:
    """Both have delegation tokens, and ask for no rights; the broker that is asked is ``broker`` at the controller."""
    settings = {"delegation_token_secret_key": "of the cluster"}
    brokers = two_brokers(
        await open_wire_client(directory="asked", **settings),
        await open_wire_client(directory="controller", **settings),
    )
    brokers.peers.brokers["controller"] = brokers.controller.as_user("broker")
    return brokers


async def test_a_token_that_is_forwarded_for_is_the_client_s_and_not_the_broker_s(token_brokers):
    brokers, alice = token_brokers, token_brokers.client.as_user("alice")
    token = await alice.ask(CREATE_TOKEN, 3)
    assert (token.error_code, token.principal_name, token.token_requester_principal_name) == (0, "alice", "alice")
    (record,) = token_records(brokers.controller.services.metadata_cache.image).values()
    assert (record.token_id, record.owner, record.requester) == (token.token_id, "User:alice", "User:alice")
    bob = await brokers.client.as_user("bob").ask(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=1), 2)
    assert bob.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    ended = await alice.ask(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1), 2)
    assert ended.error_code == 0
    assert brokers.peers.sent == ["controller"] * 3


async def test_the_controller_creates_no_token_for_a_client_that_has_logged_in_by_one_at_another_broker(token_brokers):
    """That it has goes with its name."""
    brokers = token_brokers
    for principal in (KafkaPrincipal("User", "alice", token_authenticated=True), ANONYMOUS):
        response = await attrs.evolve(brokers.client, principal=principal).ask(CREATE_TOKEN, 3)
        assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert brokers.peers.sent == ["controller"] * 2
    assert not token_records(brokers.controller.services.metadata_cache.image)
