"""UnregisterBroker."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.unregister_broker import UnregisterBrokerRequest


@pytest.mark.parametrize("broker_id", [7, 0, -1])
async def test_a_broker_that_is_not_there_is_not_registered(wire, broker_id):
    response = await wire.ask(UnregisterBrokerRequest(broker_id=broker_id), 0)
    assert response.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert response.error_message == f"Broker ID {broker_id} is not currently registered"


async def test_the_only_broker_stays_and_goes_on_leading(wire):
    await wire.create_topic("t")
    response = await wire.ask(UnregisterBrokerRequest(broker_id=wire.services.node.node_id), 0)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert "stop it instead" in response.error_message
    image = wire.services.metadata_cache.image
    assert list(image.brokers) == [wire.services.node.node_id]
    assert image.topics["t"].partitions[0].leader == wire.services.node.node_id
