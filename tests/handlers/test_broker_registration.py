"""BrokerRegistration: what the controller takes of a broker that starts, and what it refuses."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.broker_registration import Listener
from tests.handlers.second_broker import LOG_DIR, NODE_ID
from tests.handlers.two_brokers import NOWHERE
from trio_broker.cluster.metadata_image import EndpointImage
from trio_broker.handlers.broker_registration import MAX_ENTRIES


async def test_a_broker_becomes_part_of_the_cluster_and_is_fenced(second_broker):
    await second_broker.register()
    image = second_broker.wire.services.metadata_cache.image
    broker = image.brokers[NODE_ID]
    assert (broker.broker_epoch, broker.fenced, broker.rack) == (second_broker.broker_epoch, True, "b")
    assert broker.endpoints == (EndpointImage("BROKERS", "b2", 9093, 0),)
    assert broker.log_dirs == (LOG_DIR,)


@pytest.mark.parametrize(
    ("others", "code"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"listeners": [Listener(name="A", host="b2", port=1, security_protocol=77)]}, ErrorCode.INVALID_REQUEST),
        ({"log_dirs": [LOG_DIR] * (MAX_ENTRIES + 1)}, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_what_cannot_be_registered_is_refused(second_broker, others, code):
    response = await second_broker.wire.ask(second_broker.registration(**others), 4)
    assert (response.error_code, response.broker_epoch) == (code, -1)
    assert NODE_ID not in second_broker.wire.services.metadata_cache.image.brokers


@pytest.mark.parametrize("where", [NOWHERE, "another"])
async def test_a_broker_that_is_not_the_controller_registers_nobody(second_broker, where):
    second_broker.locator.controller_name = where
    response = await second_broker.wire.ask(second_broker.registration(), 4)
    assert response.error_code == ErrorCode.NOT_CONTROLLER
