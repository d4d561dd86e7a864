"""The pages about the clients of a broker: ``/clients``, their connections, one client, and why one cannot connect.

A client's id goes into the query (``/clients/client?client_id=…``), where it may hold anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of, node_of
from broker_admin.client_list import ClientsQuery, ConnectionsQuery, client_key, connection_key
from broker_admin.node_addresses import NODE_PAGES
from broker_admin.operations import query_of
from broker_admin.pages import frame, page_response, render_template
from broker_admin.problems import Problem
from broker_admin.requirements import of_cluster, requires
from broker_admin.routes.clients import (
    ClientQuery,
    backpressure_of,
    description_of,
    page_of_clients,
    page_of_connections,
)
from broker_admin.routes.connection_diagnosis import diagnosis_for
from broker_admin.routing import NodeRoute
from broker_admin.tables import Column, ListTable
from broker_admin.tokens import Role
from broker_admin.view import ClusterView
from trio_broker.coordinator.reporting.snapshot import GroupLag
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER
from trio_broker.network.statistics import ConnectionStage

MAX_SEARCHED_GROUPS = 1000
"""Groups that are searched for the members of a client: a copy of each one's members takes some microseconds."""

GROUPS_IN_A_TURN = 20
"""Searched before the event loop serves others; a group may have a thousand members."""

MAX_SHOWN_GROUPS = 20
"""On the page of a client; one that reads in more of them is rare."""


@attrs.frozen
class StageTitle:
    """How a stage is shown; ``is_held_back`` where the broker lacks something that the connection needs."""

    title: str
    explanation: str
    is_held_back: bool = False


STAGE_TITLES: Mapping[ConnectionStage, StageTitle] = {
    ConnectionStage.HANDSHAKING: StageTitle("handshaking", "agree on TLS before the first request"),
    ConnectionStage.IDLE: StageTitle("idle", "between two requests"),
    ConnectionStage.UNREAD: StageTitle(
        "waits in its socket", "sends faster than its requests are served", is_held_back=True
    ),
    ConnectionStage.RECEIVING: StageTitle("receiving", "in the middle of a request's bytes"),
    ConnectionStage.WAITING_FOR_MEMORY: StageTitle(
        "wait for memory", "large requests that wait for queued.max.request.bytes", is_held_back=True
    ),
    ConnectionStage.WAITING_FOR_QUEUE: StageTitle(
        "wait for the queue", "the request queue is full: queued.max.requests", is_held_back=True
    ),
    ConnectionStage.QUEUED: StageTitle("queued", "in the request queue, for a handler slot"),
    ConnectionStage.HANDLED: StageTitle("handled", "in a handler slot: num.io.threads"),
    ConnectionStage.SYNCING: StageTitle("syncing", "until their records are on the disk"),
    ConnectionStage.DELAYED: StageTitle("delayed", "long polls, rebalances: until something happens"),
    ConnectionStage.SENDING: StageTitle("sending", "the response leaves"),
    ConnectionStage.WAITING_FOR_READER: StageTitle(
        "not reading", "the client does not read its response", is_held_back=True
    ),
    ConnectionStage.THROTTLED: StageTitle("throttled", "above a quota, and not read for a time", is_held_back=True),
}

CLIENT_TABLE_COLUMNS = [
    Column("Client id", "client_id"),
    Column("Software", "software", hidden_below="narrow"),
    Column("Connections", "connections", is_number=True),
    Column("Requests/s", "requests_per_second", is_number=True, explanation="of the last second"),
    Column("In", "bytes_in", is_number=True, hidden_below="narrow"),
    Column("Out", "bytes_out", is_number=True, hidden_below="narrow"),
    Column("Oldest request", "oldest_request_seconds", hidden_below="medium", explanation="under way now"),
    Column("Errors", "errors", is_number=True, hidden_below="medium"),
    Column("Held back by", "muted_connections"),
]

CONNECTION_TABLE_COLUMNS = [
    Column("Number", "connection_id", is_number=True),
    Column("Client id", "client_id"),
    Column("From", "peer_host", hidden_below="narrow"),
    Column("Since", "connected_at_ms", hidden_below="medium"),
    Column("Requests", "requests", is_number=True, hidden_below="narrow"),
    Column("In", "bytes_in", is_number=True, hidden_below="narrow"),
    Column("Out", "bytes_out", is_number=True, hidden_below="narrow"),
    Column("Stage", "request_seconds", explanation="ordered by the age of the request under way"),
    Column("Errors", "errors", is_number=True, hidden_below="medium"),
]


async def rendered(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """A page of clients, rendered in a worker thread."""
    around = frame(request) | {"here": "clients", "stage_titles": STAGE_TITLES}
    render = partial(render_template, template, around | context)
    return await page_response(request, render, status)


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
async def get_clients_page(request: Request) -> Response:
    """The clients, and connections by stage."""
    node, query = node_of(request), query_of(request, ClientsQuery)
    backpressure = await backpressure_of(node)
    table = ListTable(
        path=request.url.path,
        columns=CLIENT_TABLE_COLUMNS,
        query=query,
        page=await page_of_clients(node, query),
        parameters=request.query_params,
        key_of=client_key,
    )
    held_back = sum(each.connections for each in backpressure.stages if STAGE_TITLES[each.stage].is_held_back)
    return await rendered(
        request, "clients/list.html", script="fresh.js", backpressure=backpressure, held_back=held_back, table=table
    )


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
async def get_connections_page(request: Request) -> Response:
    """The connections, one by one."""
    node, query = node_of(request), query_of(request, ConnectionsQuery)
    table = ListTable(
        path=request.url.path,
        columns=CONNECTION_TABLE_COLUMNS,
        query=query,
        page=await page_of_connections(node, query),
        parameters=request.query_params,
        key_of=connection_key,
    )
    return await rendered(request, "clients/connections.html", script="fresh.js", table=table)


async def groups_of(cluster: ClusterView, client_id: str) -> list[GroupLag]:
    """The groups with a member of that client id, the furthest behind first; bounded."""
    report = await cluster.groups.report()
    joined = [lag for lag in report.groups if lag.group.member_count]
    joined.sort(key=lambda lag: lag.lag_seconds or 0.0, reverse=True)
    found: list[GroupLag] = []
    for number, lag in enumerate(joined[:MAX_SEARCHED_GROUPS]):
        if number % GROUPS_IN_A_TURN == 0:
            await trio.lowlevel.checkpoint()
        group = cluster.groups.get(lag.group.group_id)
        if group is not None and any(member.client_id == client_id for member in group.members):
            found.append(lag)
    return found[:MAX_SHOWN_GROUPS]


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
async def get_client_page(request: Request) -> Response:
    """One client id."""
    node, client_id = node_of(request), query_of(request, ClientQuery).client_id
    try:
        client = await description_of(node, client_id)
    except Problem:
        return await rendered(request, "clients/client.html", 404, script="fresh.js", client=None, client_id=client_id)
    return await rendered(
        request,
        "clients/client.html",
        script="fresh.js",
        client=client,
        client_id=client_id,
        groups=await groups_of(cluster_of(request), client_id),
    )


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
async def get_connection_diagnosis_page(request: Request) -> Response:
    """Whether a client at an address can come back, and who failed to connect."""
    # Without a script that reads the page again: each reading connects to the advertised addresses.
    return await rendered(
        request, "clients/connection_diagnosis.html", script="watch.js", diagnosis=await diagnosis_for(request)
    )


ROUTES = [
    NodeRoute(NODE_PAGES + "/clients", get_clients_page),
    NodeRoute(NODE_PAGES + "/clients/connections", get_connections_page),
    NodeRoute(NODE_PAGES + "/clients/client", get_client_page),
    NodeRoute(NODE_PAGES + "/connection-diagnosis", get_connection_diagnosis_page),
]
