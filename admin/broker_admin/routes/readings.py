"""Who one broker is, and its readings: threads and history. All GET, all JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import attrs
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import node_of, now_ms_of
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation, query_of
from broker_admin.problems import FieldError, Problem, query_pointer
from broker_admin.requirements import of_cluster, requires
from broker_admin.responses import json_response, json_response_from_thread
from broker_admin.routing import NodeRoute
from broker_admin.schemas import MAX_TIME_MS, SchemaConstraints, bounded
from broker_admin.tokens import Role
from broker_admin.view import NodeView
from broker_admin.views.node.identity import NodeDescription
from broker_admin.views.node.readings import SeriesReport, ThreadStatistics
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER
from trio_broker.metrics.history import SERIES, HistorySample

SAMPLE_INTERVAL_MS = 1000
"""The broker samples itself once a second; charts need to know to see gaps."""


MAX_STEPS = 2_000
"""Steps of one answer: more than a screen has columns of pixels."""

DEFAULT_STEPS = 300
"""Steps of an answer whose query names no step."""

DEFAULT_SPAN_MS = 3_600_000
"""An hour, as far back as there are seconds."""

SeriesName = Annotated[str, SchemaConstraints({"enum": list(SERIES)})]


@attrs.frozen(kw_only=True)
class TimesQuery:
    """From when up to when (the last hour), and in steps of how many milliseconds (a 300th of that)."""

    from_ms: int | None = bounded(None, minimum=0, maximum=MAX_TIME_MS)
    to_ms: int | None = bounded(None, minimum=0, maximum=MAX_TIME_MS)
    step_ms: int | None = bounded(None, minimum=SAMPLE_INTERVAL_MS, maximum=MAX_TIME_MS)


@attrs.frozen(kw_only=True)
class SeriesQuery(TimesQuery):
    """Which series, from when up to when (the last hour), and in steps of how many milliseconds (a 300th of that)."""

    series: tuple[SeriesName, ...] = bounded(minItems=1, maxItems=len(SERIES))


@attrs.frozen(kw_only=True)
class TopicSeriesQuery(TimesQuery):
    """Which topic, and which times, as with the broker's own series."""

    topic: str


@attrs.frozen(kw_only=True)
class GroupSeriesQuery(TimesQuery):
    """Which group, and which times, as with the broker's own series."""

    group_id: str


@attrs.frozen
class Times:
    """The times of a query, with what it left out."""

    from_ms: int
    to_ms: int
    step_ms: int


def times_of(node: NodeView, query: TimesQuery) -> Times:
    """The times that ``query`` asks for.

    Raises:
        Problem: they are out of order, or give too many steps.
    """
    # Up to now, the present millisecond included.
    to_ms = now_ms_of(node) + 1 if query.to_ms is None else query.to_ms
    from_ms = max(0, to_ms - DEFAULT_SPAN_MS) if query.from_ms is None else query.from_ms
    if from_ms >= to_ms:
        detail = "the times end before they begin"
        raise Problem(400, detail, [FieldError(query_pointer("from_ms"), detail)])
    step_ms = (
        max(SAMPLE_INTERVAL_MS, -(-(to_ms - from_ms) // DEFAULT_STEPS)) if query.step_ms is None else query.step_ms
    )
    if (to_ms - from_ms) // step_ms > MAX_STEPS:
        detail = f"an answer has at most {MAX_STEPS} steps"
        raise Problem(400, detail, [FieldError(query_pointer("step_ms"), detail)])
    return Times(from_ms, to_ms, step_ms)


@attrs.frozen
class HistoryOfSamples:
    """Samples, oldest first, ``interval_ms`` apart unless some are missing."""

    interval_ms: int
    samples: Sequence[HistorySample]


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(NodeDescription)
async def get_broker(request: Request) -> Response:
    """One broker: ids, version, listeners, durability, uptime."""
    return json_response(node_of(request).identity.description())


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(ThreadStatistics)
async def get_threads(request: Request) -> Response:
    """Idle ratio of every network thread and handler slot, the queue between them, and how busy the loop is."""
    return json_response(node_of(request).readings.threads())


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(HistoryOfSamples)
async def get_history(request: Request) -> Response:
    """The samples kept, oldest first, one a second."""
    samples = list(node_of(request).readings.history())
    return await json_response_from_thread(HistoryOfSamples(SAMPLE_INTERVAL_MS, samples))


BAD_TIMES = {400: "the times are out of order, or give too many steps"}


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(SeriesReport, query=SeriesQuery, problems=BAD_TIMES)
async def get_series(request: Request) -> Response:
    """Readings over time: the last hour by seconds, the last week by minutes, in steps of any length.

    A step has the mean of its readings; of p99 and queue depth the largest.
    """
    node, query = node_of(request), query_of(request, SeriesQuery)
    times, names = times_of(node, query), tuple(dict.fromkeys(query.series))
    return await json_response_from_thread(await node.readings.series(names, times.from_ms, times.to_ms, times.step_ms))


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(SeriesReport, query=TopicSeriesQuery, problems=BAD_TIMES | {404: "there is no such topic"})
async def get_topic_series(request: Request) -> Response:
    """What a topic carried over time: the last hour every ten seconds, the last week by minutes to within 3 %.

    Kept are the 200 topics that carry most. Records per second that were read are known of the last hour only.
    """
    node, query = node_of(request), query_of(request, TopicSeriesQuery)
    times = times_of(node, query)
    report = await node.readings.topic_series(query.topic, times.from_ms, times.to_ms, times.step_ms)
    return await series_response(report, "topic", "there is no such topic; /api/v1/topics lists those there are")


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(SeriesReport, query=GroupSeriesQuery, problems=BAD_TIMES | {404: "there is no such group"})
async def get_group_series(request: Request) -> Response:
    """A group's lag and what it consumed over time: the last hour, and the last week by minutes.

    The hour is kept every five seconds, the week to within 3 %. Kept are the 200 groups that are furthest behind. A
    step has the largest lag, and the mean of what was consumed.
    """
    node, query = node_of(request), query_of(request, GroupSeriesQuery)
    times = times_of(node, query)
    report = await node.readings.group_series(query.group_id, times.from_ms, times.to_ms, times.step_ms)
    return await series_response(report, "group_id", "there is no such group; /api/v1/groups lists those there are")


async def series_response(report: SeriesReport | None, parameter: str, missing: str) -> Response:
    """The series of what ``parameter`` of the query names.

    Raises:
        Problem: 404: there is nothing of that name, as ``missing`` says.
    """
    if report is None:
        raise Problem(404, missing, [FieldError(query_pointer(parameter), missing)])
    return await json_response_from_thread(report)


ROUTES = [
    NodeRoute(NODE_API, get_broker),
    NodeRoute(NODE_API + "/threads", get_threads),
    NodeRoute(NODE_API + "/history", get_history),
    NodeRoute(NODE_API + "/history/series", get_series),
    NodeRoute(NODE_API + "/history/topics", get_topic_series),
    NodeRoute(NODE_API + "/history/groups", get_group_series),
]
