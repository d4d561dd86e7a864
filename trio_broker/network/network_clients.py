"""The clients of several other servers, one for each address and purpose.

Source: Kafka's NetworkClient, which has the connections to all nodes in one.
"""

from __future__ import annotations

import attrs
import trio

from trio_broker.concurrency.barrier import start_background
from trio_broker.network.network_client import NetworkClient
from trio_broker.runtime.network import Network
from trio_broker.security.broker_security import BrokerSecurity


@attrs.define(eq=False)
class NetworkClients:
    """Makes each client when it is first asked for, and has it run for as long as ``run``.

    ``client_id`` is in every request; ``security`` is that of all connections. No client is ever dropped: without
    requests it is a task that waits, and a cluster has few addresses.
    """

    network: Network
    client_id: str
    security: BrokerSecurity | None = None
    _clients: dict[tuple[str, int, str], NetworkClient] = attrs.field(factory=dict, init=False)
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    def client(self, host: str, port: int, purpose: str = "") -> NetworkClient:
        """Return the client of an address. Before ``run`` nothing is sent by it.

        Requests of one purpose share a connection, on which the other side answers one after the other.
        """
        if (client := self._clients.get((host, port, purpose))) is None:
            client = self._clients[host, port, purpose] = NetworkClient(
                self.network, host, port, self.client_id, self.security
            )
            self._start(client)
        return client

    def _start(self, client: NetworkClient) -> None:
        if self._nursery is not None:
            start_background(self._nursery, f"client of {client}", client.run)

    async def run(self) -> None:
        """Run all clients until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                for client in self._clients.values():
                    self._start(client)
                await trio.sleep_forever()
        finally:
            self._nursery = None
