"""The clients of the other brokers of the cluster, each found by its id.

Each part of the broker has its own, since a connection answers in order: a marker that waits for a disk would hold back
everything behind it. A broker that registers anew at another address has another client from then on.

Source: Kafka's MetadataCache.getAliveBrokerNode, with the listener of inter.broker.listener.name.
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import EndpointImage
from trio_broker.network.errors import RequestNotSent
from trio_broker.network.network_client import NetworkClient
from trio_broker.network.network_clients import NetworkClients

BROKER_CLIENT_ID: Final = re.compile(r"broker-(\d{1,10})")
"""What ``client_id_of`` returns."""


def client_id_of(broker_id: int) -> str:
    """What a broker calls itself as a client of others."""
    return f"broker-{broker_id}"


@attrs.frozen
class BrokerClients:
    """See the head of the file. ``listener_name`` is the listener by which brokers reach each other."""

    metadata_cache: MetadataCache
    clients: NetworkClients
    listener_name: str

    async def run(self) -> None:
        """Keep the connections until cancelled."""
        await self.clients.run()

    def address(self, broker_id: int) -> EndpointImage | None:
        """Where the others reach a broker that is registered and not fenced, None if they do not."""
        broker = self.metadata_cache.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.endpoint(self.listener_name)

    def client(self, broker_id: int, purpose: str = "") -> NetworkClient:
        """The client of a broker that is registered and not fenced, with a connection of its own for each purpose.

        Raises:
            RequestNotSent: it is not, or has no such listener, or no address there.
        """
        if (address := self.address(broker_id)) is not None:
            return self.clients.client(address.host, address.port, purpose)
        raise RequestNotSent(f"broker {broker_id} is not there, or has no address by listener {self.listener_name}")
