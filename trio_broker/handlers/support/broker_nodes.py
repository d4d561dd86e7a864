"""The brokers of the cluster, each at the address that it has for one client.

Source: Kafka's KRaftMetadataCache.getAliveBrokerNodes; KIP-103 for listeners.
"""

from __future__ import annotations

import attrs

from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.handlers.support.context import Context
from trio_broker.network.request_channel import ConnectionInfo


@attrs.frozen
class BrokerNode:
    """A broker, and where the client reaches it."""

    broker_id: int
    host: str
    port: int
    rack: str | None


def broker_node(context: Context, broker_id: int) -> BrokerNode | None:
    """One broker; None if it is fenced or gone, or has no listener of the name of the client's."""
    nodes = alive_broker_nodes(context.services.metadata_cache.image, context.connection)
    return next((each for each in nodes if each.broker_id == broker_id), None)


def alive_broker_nodes(image: MetadataImage, connection: ConnectionInfo) -> tuple[BrokerNode, ...]:
    """The brokers that have a listener of the same name as the client's.

    One that advertises no host has for the client the address that it has connected to (``NodeInfo``).
    """
    return tuple(
        BrokerNode(broker.broker_id, endpoint.host or connection.local_host, endpoint.port, broker.rack)
        for broker in image.brokers.values()
        for endpoint in broker.endpoints
        if endpoint.name == connection.listener_name and not broker.fenced
    )
