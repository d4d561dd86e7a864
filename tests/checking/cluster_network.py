"""The network between brokers, their clients and etcd, all on loopback: a proxy before each broker, which clients and
other brokers alike come through, and one of each broker before each member of etcd.

A broker says in its requests who it is, so what is between two of them can be cut alone, and each direction of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from tests.compat.tcp_proxy import Cut, TcpProxy
from trio_broker.cluster.broker_clients import BROKER_CLIENT_ID, client_id_of


class ClusterNetwork:
    """``brokers`` is where each listens, by its id, and ``etcd`` where each member of etcd does."""

    def __init__(self, brokers: Mapping[int, int], etcd: Sequence[int]) -> None:
        self._stack = ExitStack()
        self._to_broker = {node_id: self._proxy(port) for node_id, port in brokers.items()}
        self._to_etcd = {node_id: [self._proxy(port) for port in etcd] for node_id in brokers}

    def _proxy(self, port: int) -> TcpProxy:
        return self._stack.enter_context(TcpProxy(port))

    def address(self, node_id: int) -> str:
        """Where a broker is reached."""
        return self._to_broker[node_id].address

    def metadata_store(self, node_id: int) -> str:
        """Where a broker reaches etcd."""
        return "etcd://" + ",".join(each.address for each in self._to_etcd[node_id])

    def heal(self) -> None:
        for proxy in (*self._to_broker.values(), *(each for some in self._to_etcd.values() for each in some)):
            proxy.heal()

    def close(self) -> None:
        self._stack.close()

    # ---- cuts, until they are healed

    def cut_requests_of(self, sources: Collection[int], target: int, cut: Cut) -> None:
        """Cut the connections that ``sources`` make to ``target``."""
        names = {client_id_of(each) for each in sources}
        self._to_broker[target].cut(cut, names.__contains__)

    def cut_off(self, node_id: int, cut: Cut) -> None:
        """Cut all connections between a broker and the others."""
        self.cut_incoming(node_id, cut)
        self.cut_outgoing(node_id, cut)

    def cut_incoming(self, node_id: int, cut: Cut) -> None:
        """Cut the connections that other brokers make to one."""
        self.cut_requests_of(self._to_broker.keys() - {node_id}, node_id, cut)

    def cut_outgoing(self, node_id: int, cut: Cut) -> None:
        """Cut the connections that one broker makes to the others."""
        for other in self._to_broker.keys() - {node_id}:
            self.cut_requests_of({node_id}, other, cut)

    def cut_pair(self, one: int, other: int, cut: Cut) -> None:
        """Cut the connections between two brokers."""
        self.cut_requests_of({one}, other, cut)
        self.cut_requests_of({other}, one, cut)

    def cut_clients(self, node_id: int, cut: Cut) -> None:
        """Cut the connections of clients with a broker."""
        self._to_broker[node_id].cut(cut, lambda client_id: not BROKER_CLIENT_ID.fullmatch(client_id))

    def cut_etcd(self, node_id: int, cut: Cut) -> None:
        """Cut the connections of a broker with etcd."""
        for proxy in self._to_etcd[node_id]:
            proxy.cut(cut)

    def cut_all(self, node_id: int, cut: Cut) -> None:
        """Cut all connections of a broker."""
        self._to_broker[node_id].cut(cut)
        self.cut_outgoing(node_id, cut)
        self.cut_etcd(node_id, cut)


CUTS: Final[Mapping[str, Callable[[ClusterNetwork, int, int], None]]] = {
    "a broker is cut off from the others": lambda network, one, _: network.cut_off(one, Cut.BOTH),
    "two brokers are cut off from each other": lambda network, one, other: network.cut_pair(one, other, Cut.BOTH),
    "a broker does not reach the others": lambda network, one, _: network.cut_outgoing(one, Cut.BOTH),
    "the others do not reach a broker": lambda network, one, _: network.cut_incoming(one, Cut.BOTH),
    "what a broker is asked by others does not come": lambda network, one, _: network.cut_incoming(one, Cut.REQUESTS),
    "what a broker answers others does not come": lambda network, one, _: network.cut_incoming(one, Cut.ANSWERS),
    "connections between brokers are reset": lambda network, one, _: network.cut_off(one, Cut.RESET),
    "a broker is cut off from etcd": lambda network, one, _: network.cut_etcd(one, Cut.BOTH),
    "what etcd answers a broker does not come": lambda network, one, _: network.cut_etcd(one, Cut.ANSWERS),
    "connections with etcd are reset": lambda network, one, _: network.cut_etcd(one, Cut.RESET),
    "clients do not reach a broker": lambda network, one, _: network.cut_clients(one, Cut.BOTH),
    "what a broker answers clients does not come": lambda network, one, _: network.cut_clients(one, Cut.ANSWERS),
    "connections of clients are reset": lambda network, one, _: network.cut_clients(one, Cut.RESET),
    "a broker is cut off from everybody": lambda network, one, _: network.cut_all(one, Cut.BOTH),
}
"""By what happens: how a network is cut, for a broker and another one."""
