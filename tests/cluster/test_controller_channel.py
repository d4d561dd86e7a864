"""Calls to the controller end, whatever happens on the way."""

from __future__ import annotations

import attrs
import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.api_versions import ApiVersionsRequest
from trio_broker.cluster.controller_channel import ControllerChannel, SendToController
from trio_broker.cluster.metadata_image import EndpointImage
from trio_broker.network.network_clients import NetworkClients
from trio_broker.runtime.simulated_network import SimulatedNetwork

CALL_SECONDS = 1


@attrs.frozen
class Elsewhere:
    """A controller that no connection reaches."""

    def controller(self) -> EndpointImage:
        return EndpointImage("PLAINTEXT", "controller", 9092, 0)


async def not_here() -> None:
    raise AssertionError("the controller is another broker")


async def test_a_request_for_which_no_time_is_left_is_refused_as_timed_out(autojump_clock):
    clients = NetworkClients(SimulatedNetwork().host("broker"), "broker")
    channel = ControllerChannel(Elsewhere(), clients, call_seconds=CALL_SECONDS)

    async def late(send: SendToController) -> None:
        await trio.sleep(2 * CALL_SECONDS)
        await send(ApiVersionsRequest())

    with pytest.raises(KafkaError, match="has not answered within 1 s") as refused:
        await channel.call(not_here, late)
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
