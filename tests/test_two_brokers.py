"""Two brokers of one event loop, on real sockets: what one of them forwards, the other one answers."""

from __future__ import annotations

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from tests.running_broker import connected, running
from tests.waits import fail_after
from trio_broker.broker import Broker
from trio_broker.cluster.controller_channel import ControllerChannel
from trio_broker.cluster.metadata_image import EndpointImage
from trio_broker.handlers.support.dispatch import Dispatcher
from trio_broker.network.network_client import NetworkClientSettings
from trio_broker.network.network_clients import NetworkClients

WAIT_SECONDS = 20


@attrs.frozen
class Fixed:
    """A controller that stays where it is."""

    where: EndpointImage | None

    def controller(self) -> EndpointImage | None:
        return self.where


async def join(broker: Broker, controller: EndpointImage | None, nursery: trio.Nursery) -> None:
    """Make a running broker one of several."""
    services = broker.services
    services.node = attrs.evolve(services.node, inter_broker_listener="PLAINTEXT")
    clients = NetworkClients(broker.runtime.network, NetworkClientSettings("broker"))
    services.controller_channel = ControllerChannel(Fixed(controller), clients)
    nursery.start_soon(clients.run)
    broker._dispatcher = Dispatcher(services, broker.server.channel.metrics, broker.server.memory_pool)
    broker.server.handlers.handle = broker.dispatcher.answer


async def test_a_topic_is_created_by_way_of_a_broker_that_is_not_the_controller(tmp_path):
    with fail_after(WAIT_SECONDS):
        async with (
            running(tmp_path / "controller") as controller,
            running(tmp_path / "other") as other,
            trio.open_nursery() as nursery,
        ):
            endpoint = controller.bound_endpoints[0]
            await join(controller, None, nursery)
            await join(other, EndpointImage("PLAINTEXT", endpoint.host, endpoint.port, 0), nursery)
            async with connected(other) as client:
                assert [await client.try_create_topic("orders") for _ in range(2)] == [
                    ErrorCode.NONE,
                    ErrorCode.TOPIC_ALREADY_EXISTS,
                ]
            assert "orders" in controller.services.metadata_cache.image.topics
            assert "orders" not in other.services.metadata_cache.image.topics
            nursery.cancel_scope.cancel()
