"""The clients of the other brokers of the cluster, each found by its id.

A broker that registers anew at another address has another client from then on.

Source: Kafka's MetadataCache.getAliveBrokerNode, with the listener of inter.broker.listener.name.
"""

from __future__ import annotations

from typing import Protocol

import attrs

from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.network.errors import RequestNotSent
from trio_broker.network.network_client import NetworkClient


class ClientsByAddress(Protocol):
    """Has one client for each address."""

    def client(self, host: str, port: int) -> NetworkClient: ...


class NoClients:
    """Those of a broker that has no connections to others."""

    def client(self, host: str, port: int) -> NetworkClient:
        raise RequestNotSent(f"there is no connection to {host}:{port}")


@attrs.frozen
class BrokerClients:
    """See the head of the file. ``listener_name`` is the listener by which brokers reach each other."""

    metadata_cache: MetadataCache
    clients: ClientsByAddress
    listener_name: str

    def client(self, broker_id: int) -> NetworkClient:
        """The client of a broker that is registered and not fenced.

        Raises:
            RequestNotSent: it is not, or has no such listener.
        """
        broker = self.metadata_cache.image.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            for endpoint in broker.endpoints:
                if endpoint.name == self.listener_name:
                    return self.clients.client(endpoint.host, endpoint.port)
        raise RequestNotSent(f"broker {broker_id} is not there, or has no listener {self.listener_name}")
