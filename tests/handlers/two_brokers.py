"""Two brokers without a network between them: the Dispatchers of both, and one may be the controller of the other."""

from __future__ import annotations

from typing import Any

import attrs

from tests.handlers.handler_client import CONNECTION
from tests.handlers.wire_client import WireClient, new_dispatcher
from trio_broker.cluster.controller_channel import ControllerChannel, NotController
from trio_broker.cluster.metadata_image import EndpointImage
from trio_broker.network.errors import ResponseLost
from trio_broker.network.request_channel import ConnectionInfo

LISTENER = "BROKERS"

FROM_BROKER = ConnectionInfo(9, LISTENER, "10.0.0.9", 40_000, "10.0.0.1", 9093)
"""A connection of the other broker, by the listener of brokers."""

FROM_CLIENT = attrs.evolve(CONNECTION, peer_host="10.0.0.77")


@attrs.define(eq=False)
class Locator:
    """What a broker takes for the controller: another broker by its name, itself or nobody (``HERE``, ``NOWHERE``)."""

    controller_name: str

    def controller(self) -> EndpointImage | None:
        if self.controller_name == NOWHERE:
            raise NotController("nobody is the controller")
        return None if self.controller_name == HERE else EndpointImage(LISTENER, self.controller_name, 9093, 0)


HERE, NOWHERE = "", "nowhere"


@attrs.define(eq=False)
class Peers:
    """In place of ``NetworkClients``: every broker by its name. ``lost`` answers are lost on their way back."""

    brokers: dict[str, WireClient] = attrs.field(factory=dict)
    sent: list[str] = attrs.field(factory=list)
    lost: int = 0

    def client(self, host: str, port: int, purpose: str = "") -> Peer:
        return Peer(self, host)


@attrs.define
class Peer:
    peers: Peers
    name: str

    async def send(self, request: Any, *, timeout_seconds: float) -> Any:
        self.peers.sent.append(self.name)
        response = await self.peers.brokers[self.name].ask(request, type(request).VERSIONS.high)
        if self.peers.lost:
            self.peers.lost -= 1
            raise ResponseLost(f"{self.name}: the connection broke")
        return response


def in_cluster(wire: WireClient, locator: Locator, peers: Peers, connection: ConnectionInfo) -> WireClient:
    """A client by ``connection`` of the broker of ``wire``, which is one of several."""
    services = wire.services
    services.node = attrs.evolve(services.node, inter_broker_listener=LISTENER)
    services.controller_channel = ControllerChannel(locator, peers)  # type: ignore[arg-type]
    return WireClient(new_dispatcher(services), wire.clock, connection)


@attrs.define(eq=False)
class TwoBrokers:
    """``client`` asks the broker that is not the controller, unless ``locator`` says otherwise."""

    client: WireClient
    controller: WireClient
    locator: Locator
    controller_locator: Locator
    peers: Peers

    def topics(self, broker: WireClient) -> set[str]:
        return set(broker.services.metadata_cache.image.topics)


def two_brokers(asked: WireClient, controller: WireClient) -> TwoBrokers:
    peers, locator, controller_locator = Peers(), Locator("controller"), Locator(HERE)
    peers.brokers["controller"] = in_cluster(controller, controller_locator, peers, FROM_BROKER)
    client = in_cluster(asked, locator, peers, FROM_CLIENT)
    return TwoBrokers(client, peers.brokers["controller"], locator, controller_locator, peers)
