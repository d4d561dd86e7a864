"""``/brokers``: the brokers and what is not in sync; ``/replication``: replicas as they move; those of one topic."""

from __future__ import annotations

from functools import partial

import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of
from broker_admin.listing import take_page
from broker_admin.operations import query_of
from broker_admin.pages import frame, page_response, render_template
from broker_admin.requirements import of_cluster, of_topic, requires
from broker_admin.routes.replication import BROKER_COLUMNS, BrokersQuery
from broker_admin.routing import Route
from broker_admin.tables import Column, ListTable
from broker_admin.tokens import Role
from broker_admin.topic_list import PartitionsQuery, select_partitions
from broker_admin.topic_paths import name_of, no_such_topic
from broker_admin.topic_tabs import tabs_of, topic_address
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER, DESCRIBE_TOPIC

SHOWN_EVENTS = 100
"""Of the feed on the page; the API has all that are kept."""

SHOWN_UNDER_REPLICATED = 50

BROKER_TABLE = [
    Column("Broker", "node_id"),
    Column("State", "state"),
    Column("Address", hidden_below="narrow"),
    Column("Rack", "rack", hidden_below="medium"),
    Column("Leads", "leader_count", is_number=True, explanation="partitions that it leads"),
    Column("Preferred", is_number=True, hidden_below="narrow", explanation="partitions whose first replica it has"),
    Column("Replicas", "replica_count", is_number=True, hidden_below="narrow"),
    Column("In sync", "in_sync_count", is_number=True),
    Column("More", hidden_below="medium"),
]

REPLICA_TABLE = [
    Column("Partition", "partition"),
    Column("Leader", is_number=True, explanation="and its epoch"),
    Column("High watermark", is_number=True, hidden_below="narrow", explanation="what consumers may read up to"),
    Column("In sync", explanation="replicas in sync, and those that have left and have all that is committed"),
    Column("Replicas", explanation="the preferred leader first: its log end, how far it is behind, when it had all"),
    Column("Move", hidden_below="medium"),
]


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
async def get_brokers_page(request: Request) -> Response:
    """The brokers, the controller, and what is not in sync and why."""
    query, report = query_of(request, BrokersQuery), await cluster_of(request).replication.report()
    page = take_page(report.brokers, query, id_of=lambda each: str(each.node_id), columns=BROKER_COLUMNS)
    table = ListTable(
        "/brokers", BROKER_TABLE, query, page, request.query_params, key_of=lambda each: str(each.node_id)
    )  # fmt: skip
    context = frame(request) | {
        "here": "brokers",
        "script": "cluster.js",
        "cluster": report,
        "table": table,
        "under_replicated": report.under_replicated[:SHOWN_UNDER_REPLICATED],
    }
    return await page_response(request, partial(render_template, "cluster/brokers.html", context))


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
async def get_replication_page(request: Request) -> Response:
    """What has happened in the cluster, how brokers follow each other, and what is behind."""
    replication = cluster_of(request).replication
    report, events = await replication.report(), replication.events()
    context = frame(request) | {
        "here": "replication",
        "script": "cluster.js",
        "cluster": report,
        "events": events[:SHOWN_EVENTS],
        "event_count": len(events),
        "fetchers": await replication.fetchers(),
        "under_replicated": report.under_replicated[:SHOWN_UNDER_REPLICATED],
    }
    return await page_response(request, partial(render_template, "cluster/replication.html", context))


@requires(Role.VIEWER, of_topic(DESCRIBE_TOPIC))
async def get_replicas_page(request: Request) -> Response:
    """The replicas of the partitions of one topic."""
    query, name = query_of(request, PartitionsQuery), name_of(request)
    partitions = await cluster_of(request).topics.partitions(name)
    if partitions is None:
        raise no_such_topic(name)
    page = await trio.to_thread.run_sync(select_partitions, partitions, query)
    address = topic_address(name)
    api_topic = f"/api/v1{address}"
    context = frame(request) | {
        "here": "topics",
        "script": "cluster.js",
        "topic_name": name,
        "tab": "Replicas",
        "tabs": tabs_of(request, name),
        "address": address,
        "api_path": api_topic,
        "api_address": f"{api_topic}/partitions",
        "table": ListTable(
            f"{address}/replicas", REPLICA_TABLE, query, page, request.query_params,
            key_of=lambda each: str(each.partition),
        ),
    }  # fmt: skip
    return await page_response(request, partial(render_template, "topics/replicas.html", context))


ROUTES = [
    Route("/brokers", get_brokers_page),
    Route("/replication", get_replication_page),
    Route("/topics/{topic}/replicas", get_replicas_page),
]
