"""What one broker leads and coordinates: its part of what the cluster's addresses put together.

Whichever broker is asked for topics, groups or transactions, it asks the others for their parts here, and so may
anybody. Each answer is whole; the lists of the cluster have parts, orders and searches.
"""

from __future__ import annotations

import attrs
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation, query_of
from broker_admin.requirements import of_cluster, requires
from broker_admin.responses import json_response_from_thread
from broker_admin.routing import NodeRoute
from broker_admin.tokens import Role
from broker_admin.topic_paths import name_of, no_such_topic
from broker_admin.views.cluster.groups import CoordinatedGroups
from broker_admin.views.cluster.topics import LedPartitions, LedTopics, TopicRates
from trio_broker.coordinator.transactions.transaction_snapshot import TransactionReport
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER

NO_SUCH_TOPIC = {404: "there is no such topic"}


@attrs.frozen
class LedTopicsQuery:
    """Which topic is wanted; without a name all."""

    name: str | None = None


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(LedTopics, query=LedTopicsQuery)
async def get_led_topics(request: Request) -> Response:
    """The topics of which this broker leads partitions: their number, records, sizes and rates here."""
    name, led = query_of(request, LedTopicsQuery).name, await cluster_of(request).topics.led()
    return await json_response_from_thread(LedTopics(tuple(each for each in led if name in (None, each.name))))


@attrs.frozen
class LedPartitionsQuery:
    """Whether the head of each log is to be read for the time of its oldest record."""

    oldest_records: bool = True


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(LedPartitions, query=LedPartitionsQuery, problems=NO_SUCH_TOPIC)
async def get_led_partitions(request: Request) -> Response:
    """Those partitions of a topic that this broker leads, with each of their replicas as it sees them."""
    oldest_records = query_of(request, LedPartitionsQuery).oldest_records
    partitions = await cluster_of(request).topics.led_partitions(name_of(request), oldest_records=oldest_records)
    if partitions is None:
        raise no_such_topic(name_of(request))
    return await json_response_from_thread(LedPartitions(tuple(partitions)))


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(TopicRates, problems=NO_SUCH_TOPIC)
async def get_led_rates(request: Request) -> Response:
    """What this broker carried of a topic in the last hour."""
    rates = cluster_of(request).topics.led_rates(name_of(request))
    if rates is None:
        raise no_such_topic(name_of(request))
    return await json_response_from_thread(rates)


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(CoordinatedGroups)
async def get_coordinated_groups(request: Request) -> Response:
    """The groups that this broker coordinates, with their lag, and by topic."""
    return await json_response_from_thread(await cluster_of(request).groups.coordinated())


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(TransactionReport)
async def get_coordinated_transactions(request: Request) -> Response:
    """The transactional ids that this broker coordinates, and the partitions led by it that are held back."""
    return await json_response_from_thread(await cluster_of(request).transactions.coordinated())


ROUTES = [
    NodeRoute(NODE_API + "/led-topics", get_led_topics),
    NodeRoute(NODE_API + "/led-topics/{topic}/partitions", get_led_partitions),
    NodeRoute(NODE_API + "/led-topics/{topic}/rates", get_led_rates),
    NodeRoute(NODE_API + "/coordinated-groups", get_coordinated_groups),
    NodeRoute(NODE_API + "/coordinated-transactions", get_coordinated_transactions),
]
