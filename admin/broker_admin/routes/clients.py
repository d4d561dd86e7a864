"""``/connections``, ``/clients`` and ``/backpressure`` of a broker: who is connected, and what holds them back.

Connections are read in turns on the event loop and gathered in a worker thread, so ten thousand of them delay nobody.
"""

from __future__ import annotations

from functools import partial

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import node_of
from broker_admin.client_list import (
    CLIENT_COLUMNS,
    CONNECTION_COLUMNS,
    ClientDescription,
    ClientsQuery,
    ClientSummary,
    ConnectionsQuery,
    client_key,
    client_search_text,
    connection_key,
    connection_search_text,
    describe_client,
    gather_clients,
    gather_departed,
    wanted_connections,
)
from broker_admin.listing import Page, take_page
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation, query_of
from broker_admin.problems import Problem
from broker_admin.requirements import of_cluster, requires
from broker_admin.responses import json_response, json_response_from_thread
from broker_admin.routing import NodeRoute
from broker_admin.schemas import bounded
from broker_admin.tokens import Role
from broker_admin.view import NodeView
from broker_admin.views.node.clients import NetworkLimits
from kafka_wire.limits import MAX_STRING_BYTES
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER
from trio_broker.network.statistics import ConnectionStage, ConnectionStatistics


@attrs.frozen
class ClientQuery:
    """Which client is wanted."""

    client_id: str = bounded(maxLength=MAX_STRING_BYTES)


@attrs.frozen
class StageCount:
    """How many connections stand in one stage."""

    stage: ConnectionStage
    connections: int


@attrs.frozen
class Backpressure:
    """Connections by stage, in the order in which a request passes them, and the limits of the stages."""

    stages: tuple[StageCount, ...]
    limits: NetworkLimits


async def page_of_connections(node: NodeView, query: ConnectionsQuery) -> Page[ConnectionStatistics]:
    """The connections that ``query`` asks for."""
    connections = await node.clients.connections()
    return await trio.to_thread.run_sync(
        lambda: take_page(
            wanted_connections(connections, query),
            query,
            id_of=connection_key,
            columns=CONNECTION_COLUMNS,
            search_text=connection_search_text,
        )
    )


async def page_of_clients(node: NodeView, query: ClientsQuery) -> Page[ClientSummary]:
    """The clients that ``query`` asks for."""
    connections, departed = await node.clients.connections(), node.clients.departed_connections()
    return await trio.to_thread.run_sync(
        lambda: take_page(
            gather_departed(departed, connections) if query.left else gather_clients(connections),
            query,
            id_of=client_key,
            columns=CLIENT_COLUMNS,
            search_text=client_search_text,
        )
    )


async def backpressure_of(node: NodeView) -> Backpressure:
    """Where the connections stand now."""
    stages = await node.clients.connection_stages()
    counts = tuple(StageCount(stage, stages.get(stage, 0)) for stage in ConnectionStage)
    return Backpressure(counts, node.clients.network_limits())


async def description_of(node: NodeView, client_id: str) -> ClientDescription:
    """One client id.

    Raises:
        Problem: 404, it has no connection, and has had none for an hour.
    """
    connections, broker = await node.clients.connections(), node.identity.description()
    describe = partial(
        describe_client,
        client_id,
        connections,
        broker.listeners,
        node.clients.served_versions(),
        broker.now_ms,
        node.clients.departed_connections(),
    )
    if (described := await trio.to_thread.run_sync(describe)) is None:
        raise Problem(
            404, "no connection has or had this client id in the last hour; the list of clients has those there are"
        )
    return described


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(Page[ConnectionStatistics], query=ConnectionsQuery)
async def get_connections(request: Request) -> Response:
    """Every connection: what it carried, what it waits for, and why it is not read."""
    query = query_of(request, ConnectionsQuery)
    return await json_response_from_thread(await page_of_connections(node_of(request), query))


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(Page[ClientSummary], query=ClientsQuery)
async def get_clients(request: Request) -> Response:
    """The connections gathered by client id and software (KIP-511), or those of clients that have left."""
    query = query_of(request, ClientsQuery)
    return await json_response_from_thread(await page_of_clients(node_of(request), query))


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(
    ClientDescription, query=ClientQuery, problems={404: "no connection has or had this client id in the last hour"}
)
async def get_client(request: Request) -> Response:
    """One client id: the address and versions it received, what it sends, and settings that would serve it better."""
    client_id = query_of(request, ClientQuery).client_id
    return await json_response_from_thread(await description_of(node_of(request), client_id))


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(Backpressure)
async def get_backpressure(request: Request) -> Response:
    """How many connections stand at each stage of a request's way, and the limits that can hold them there."""
    return json_response(await backpressure_of(node_of(request)))


ROUTES = [
    NodeRoute(NODE_API + "/connections", get_connections),
    NodeRoute(NODE_API + "/clients", get_clients),
    NodeRoute(NODE_API + "/clients/describe", get_client),
    NodeRoute(NODE_API + "/backpressure", get_backpressure),
]
