"""``/api/v1/cluster`` and ``/api/v1/brokers``: the brokers, their replicas as they move, and moving them.

Each change takes ``dry_run=true``, which checks and answers it without making it. A reassignment goes on after the
answer: ``adding_replicas`` of the topic's partitions show how far it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of
from broker_admin.listing import ListQuery, Page, SortValue, ordered_by, take_page
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation, query_of
from broker_admin.problems import Problem, status_of
from broker_admin.request_body import ChangeQuery, check_caller, read_change
from broker_admin.requirements import of_cluster, requires
from broker_admin.responses import json_response, json_response_from_thread
from broker_admin.routing import NO_SUCH_BROKER, NodeRoute, Route, broker_id_of
from broker_admin.schemas import PartitionNumber, bounded
from broker_admin.tokens import Role
from broker_admin.topic_paths import name_of
from broker_admin.views.cluster.replication import (
    BegunReassignment,
    BrokerSummary,
    ClusterReport,
    FetcherReport,
    FetchersReport,
    PreferredElection,
    ReplicationRefused,
    Unregistration,
)
from kafka_wire.limits import MAX_REPLICATION_FACTOR, MAX_STRING_BYTES
from trio_broker.cluster.cluster_event import ClusterEvent
from trio_broker.handlers.support.rights import ALTER_CLUSTER, DESCRIBE_CLUSTER

MAX_NAMED_PARTITIONS = 1000
"""Partitions that one change may name."""

REFUSED: Mapping[int, str] = {
    404: "there is no such topic, partition or broker",
    409: "it moves already, or does not move; nothing was changed",
    422: "a value is refused; nothing was changed",
    503: "there is no controller, or it does not answer",
}

BROKER_COLUMNS: Mapping[str, Callable[[BrokerSummary], SortValue]] = {
    "node_id": lambda each: each.node_id,
    "rack": lambda each: each.rack,
    "state": lambda each: each.state.value,
    "leader_count": lambda each: each.leader_count,
    "replica_count": lambda each: each.replica_count,
    "in_sync_count": lambda each: each.in_sync_count,
}


@attrs.frozen(kw_only=True)
class BrokersQuery(ListQuery):
    """Which brokers are wanted."""

    order: str = ordered_by("node_id", BROKER_COLUMNS)


@attrs.frozen
class ClusterEventList:
    """What has happened in the cluster since the broker that is asked has started, the latest first."""

    events: Sequence[ClusterEvent]


@attrs.frozen
class AllFetchers:
    """The fetchers of all brokers, by broker and leader."""

    fetchers: Sequence[FetcherReport]


@attrs.frozen(kw_only=True)
class PartitionBody:
    """One partition of a topic."""

    topic: str = bounded(maxLength=MAX_STRING_BYTES)
    partition: PartitionNumber


@attrs.frozen
class ElectionBody:
    """Of which partitions the preferred leaders are to be elected; none means all that another one leads."""

    partitions: tuple[PartitionBody, ...] = bounded((), maxItems=MAX_NAMED_PARTITIONS)


@attrs.frozen(kw_only=True)
class TargetBody:
    """The brokers that a partition is to have, the preferred leader first; null ends the move that is under way."""

    partition: PartitionNumber
    replicas: tuple[int, ...] | None = bounded(None, maxItems=MAX_REPLICATION_FACTOR)


@attrs.frozen
class ReassignmentBody:
    """Where partitions of the topic are to be."""

    partitions: tuple[TargetBody, ...] = bounded(minItems=1, maxItems=MAX_NAMED_PARTITIONS)


def problem_of(refused: ReplicationRefused) -> Problem:
    return Problem(status_of(refused.error), refused.reason)


# --- what there is ---


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(Page[BrokerSummary], query=BrokersQuery)
async def get_brokers(request: Request) -> Response:
    """The brokers of the cluster: addresses, racks, what they lead and what of theirs is in sync."""
    query, brokers = query_of(request, BrokersQuery), (await cluster_of(request).replication.report()).brokers
    return json_response(take_page(brokers, query, id_of=lambda each: str(each.node_id), columns=BROKER_COLUMNS))


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(ClusterReport)
async def get_cluster(request: Request) -> Response:
    """The cluster: controller, brokers, and the partitions that lack replicas in sync, with the reason for each."""
    return await json_response_from_thread(await cluster_of(request).replication.report())


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(ClusterEventList)
async def get_events(request: Request) -> Response:
    """Elections, replicas in sync and brokers as they came and went, the latest first."""
    return await json_response_from_thread(ClusterEventList(cluster_of(request).replication.events()))


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(AllFetchers)
async def get_fetchers(request: Request) -> Response:
    """How each broker follows the others: partitions, bytes and requests a second, and how far behind."""
    return json_response(AllFetchers(await cluster_of(request).replication.fetchers()))


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(FetchersReport)
async def get_own_fetchers(request: Request) -> Response:
    """How this broker follows the others."""
    return json_response(cluster_of(request).replication.own_fetchers())


# --- what is changed ---


@requires(Role.OPERATOR, of_cluster(ALTER_CLUSTER))
@operation(PreferredElection, query=ChangeQuery, body=ElectionBody, is_change=True, problems=REFUSED)
async def elect_preferred(request: Request) -> Response:
    """Have partitions led by their preferred leaders again, each of which is the first of its replicas."""
    dry_run, body = query_of(request, ChangeQuery).dry_run, await read_change(request, ElectionBody)
    named = [(each.topic, each.partition) for each in body.partitions]
    try:
        return json_response(await cluster_of(request).replication.elect_preferred(named, dry_run=dry_run))
    except ReplicationRefused as refused:
        raise problem_of(refused) from refused


@requires(Role.OPERATOR, of_cluster(ALTER_CLUSTER))
@operation(BegunReassignment, query=ChangeQuery, body=ReassignmentBody, is_change=True, problems=REFUSED)
async def reassign(request: Request) -> Response:
    """Move partitions of a topic to other brokers, or with null end the move that is under way."""
    dry_run, body = query_of(request, ChangeQuery).dry_run, await read_change(request, ReassignmentBody)
    targets = [(each.partition, each.replicas) for each in body.partitions]
    try:
        return json_response(await cluster_of(request).replication.reassign(name_of(request), targets, dry_run=dry_run))
    except ReplicationRefused as refused:
        raise problem_of(refused) from refused


@requires(Role.OPERATOR, of_cluster(ALTER_CLUSTER))
@operation(Unregistration, query=ChangeQuery, is_change=True, problems={**REFUSED, 404: NO_SUCH_BROKER})
async def unregister(request: Request) -> Response:
    """Take a broker that is gone for good out of the cluster; one that is in contact is refused."""
    check_caller(request)
    dry_run, broker_id = query_of(request, ChangeQuery).dry_run, broker_id_of(request)
    try:
        return json_response(await cluster_of(request).replication.unregister(broker_id, dry_run=dry_run))
    except ReplicationRefused as refused:
        raise problem_of(refused) from refused


ROUTES = [
    Route("/api/v1/brokers", get_brokers),
    Route("/api/v1/cluster", get_cluster),
    Route("/api/v1/cluster/events", get_events),
    Route("/api/v1/cluster/fetchers", get_fetchers),
    Route("/api/v1/cluster:elect-preferred-leaders", elect_preferred, methods=["POST"]),
    Route("/api/v1/topics/{topic}:reassign", reassign, methods=["POST"]),
    Route("/api/v1/brokers/{broker_id}:unregister", unregister, methods=["POST"]),
    NodeRoute(NODE_API + "/fetchers", get_own_fetchers),
]
