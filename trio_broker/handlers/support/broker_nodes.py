"""The brokers of the cluster, each at the address that it has for one client.

Source: Kafka's KRaftMetadataCache.getAliveBrokerNodes and getBrokerNodes; KIP-103 for listeners.
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from kafka_wire.error_codes import ErrorCode
from trio_broker.cluster.metadata_image import MetadataImage, PartitionImage
from trio_broker.handlers.support.context import Context
from trio_broker.network.request_channel import ConnectionInfo

NO_CONTROLLER = -1


@attrs.frozen
class BrokerNode:
    """A broker, and where the client reaches it."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class BrokerEndpoints:
    """The brokers that one client reaches, for the description of many partitions."""

    def __init__(self, image: MetadataImage, nodes: tuple[BrokerNode, ...]) -> None:
        self._image = image
        self._alive = frozenset(each.broker_id for each in nodes)

    def unavailability(self, partition: PartitionImage) -> ErrorCode:
        """Why the client does not reach the leader of ``partition``; NONE if it does."""
        if partition.leader in self._alive:
            return ErrorCode.NONE
        leader = self._image.brokers.get(partition.leader)
        is_unreachable = leader is None or leader.fenced
        return ErrorCode.LEADER_NOT_AVAILABLE if is_unreachable else ErrorCode.LISTENER_NOT_FOUND

    def offline_replicas(self, partition: PartitionImage) -> list[int]:
        """The replicas on brokers that the client does not reach."""
        replicas = partition.replicas
        return [] if self._alive.issuperset(replicas) else [each for each in replicas if each not in self._alive]


def broker_node(context: Context, broker_id: int) -> BrokerNode | None:
    """One broker; None if it is fenced or gone, or has no listener of the name of the client's."""
    nodes = broker_nodes(context.services.metadata_cache.image, context.connection)
    return next((each for each in nodes if each.broker_id == broker_id), None)


def controller_for_clients(own_id: int, nodes: Iterable[BrokerNode]) -> int:
    """The broker among ``nodes`` that clients take for the controller; any of them takes what is the controller's.

    That is this one, but while it is fenced, or has yet to read that it is not: a client would wait for its address.
    """
    known = {each.broker_id for each in nodes}
    return own_id if own_id in known else min(known, default=NO_CONTROLLER)


def broker_nodes(
    image: MetadataImage, connection: ConnectionInfo, *, with_fenced: bool = False
) -> tuple[BrokerNode, ...]:
    """The brokers that have a listener of the same name as the client's, and are not fenced, if not ``with_fenced``.

    One that advertises no host has for the client the address that it has connected to (``NodeInfo``).
    """
    return tuple(
        BrokerNode(broker.broker_id, endpoint.host or connection.local_host, endpoint.port, broker.rack)
        for broker in image.brokers.values()
        for endpoint in broker.endpoints
        if endpoint.name == connection.listener_name and (with_fenced or not broker.fenced)
    )
