"""BrokerRegistration."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.broker_registration import Listener
from tests.handlers.brokers_client import SECOND, BrokersClient, registration
from tests.handlers.two_brokers import FROM_BROKER, HERE, NOWHERE, Locator, Peers, in_cluster
from trio_broker.cluster.metadata_image import EndpointImage
from trio_broker.network.errors import CloseConnection


@pytest.fixture
def locator():
    return Locator(HERE)


@pytest.fixture
def controller(wire, locator):
    return in_cluster(wire, locator, Peers(), FROM_BROKER)


@pytest.fixture
def second(controller):
    return BrokersClient(controller)


async def test_a_broker_is_part_of_the_cluster_as_it_says_and_fenced(second, controller):
    offset = controller.services.metadata_cache.image.offset
    response = await second.register()
    assert (response.error_code, response.broker_epoch) == (ErrorCode.NONE, offset + 1)
    broker = controller.services.metadata_cache.image.brokers[SECOND]
    assert (broker.broker_epoch, broker.rack, broker.fenced) == (offset + 1, "b", True)
    assert broker.endpoints == (EndpointImage("BROKERS", "second.test", 9093, 0),)
    assert broker.features["group.version"] == (0, 1)
    assert broker.log_dirs == (bytes(14) + b"\x01\x02",)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"listeners": []}, ErrorCode.INVALID_REGISTRATION),
        (
            {"listeners": [Listener(name="X", host="h", port=1, security_protocol=9)]},
            ErrorCode.INVALID_REGISTRATION,
        ),
        ({"broker_id": -1}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.UNSUPPORTED_VERSION),
    ],
)
async def test_what_does_not_belong_to_the_cluster_is_refused(second, controller, fields, code):
    before = controller.services.metadata_cache.image
    assert (await second.register(**fields)).error_code == code
    assert controller.services.metadata_cache.image is before


async def test_another_process_of_the_same_id_is_refused_while_the_first_is_in_contact(second):
    await second.register()
    await second.beat()
    assert (await second.register(incarnation_id=bytes(16))).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.parametrize("name", ["another", NOWHERE])
async def test_only_the_controller_answers(second, locator, name):
    locator.controller_name = name
    assert (await second.register()).error_code == ErrorCode.NOT_CONTROLLER


async def test_a_broker_alone_takes_no_other_in(wire):
    with pytest.raises(CloseConnection, match="is between brokers"):
        await wire.ask(registration(wire), 4)
