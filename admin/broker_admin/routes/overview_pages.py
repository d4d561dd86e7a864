"""``/``, the overview: whether the broker is healthy, its load, and a few of everything."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import now_ms_of, state_of
from broker_admin.change_list import WORDS
from broker_admin.getting_started import creation_command, first_listener, snippets
from broker_admin.health import used_ratio
from broker_admin.health_rules import FULL_DISK_RATIO
from broker_admin.operations import query_of
from broker_admin.overview import overview_of
from broker_admin.pages import frame, page_response, render_template
from broker_admin.requirements import of_cluster, requires
from broker_admin.routing import Route
from broker_admin.schemas import bounded
from broker_admin.series_chart import (
    BROKER_CHARTS,
    RANGES,
    ChartMark,
    RangeQuery,
    SeriesCharts,
    TimeRange,
    range_links,
    series_charts,
)
from broker_admin.storage_texts import forecast_text
from broker_admin.tokens import Role
from broker_admin.view import BrokerView
from trio_broker.changes.change import ChangeAction, ChangedResource
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER

LIVE_RANGE = "5m"
"""What the charts show that the page's script draws."""


SETTINGS = (ChangeAction.CONFIG, ChangeAction.STARTED)
"""The changes that the charts mark."""

MAX_MARKS = 50
"""The latest of them; more would hide the lines."""


@attrs.frozen
class OverviewQuery(RangeQuery):
    """The time that the page's charts show."""

    range: str = bounded(LIVE_RANGE, enum=list(RANGES))


async def over_time(view: BrokerView, chosen: TimeRange) -> SeriesCharts | None:
    """The broker's charts of hours or days, with the changes of settings as marks; None without readings."""
    now_ms = now_ms_of(view.node)
    names = tuple(dict.fromkeys(name for chart in BROKER_CHARTS for name, _ in chart.lines))
    report = await view.node.readings.series(names, now_ms - chosen.span_ms, now_ms + 1, chosen.step_ms)
    marks = [
        ChartMark(0.0, "other", ", ".join(value.name for value in change.values), change.changed_at_ms)
        for change in view.cluster.changes.list()
        if change.action in SETTINGS and change.resource_type in (ChangedResource.BROKER, ChangedResource.CLUSTER)
    ]
    return series_charts(report, BROKER_CHARTS, chosen, now_ms, marks[-MAX_MARKS:])


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
async def get_overview_page(request: Request) -> Response:
    """The overview."""
    view = state_of(request).view
    overview = await overview_of(view)
    chosen = query_of(request, OverviewQuery).range
    context = (
        frame(request)
        | WORDS
        | {
            "here": "overview",
            "script": "overview.js",
            "overview": overview,
            "forecast_text": forecast_text,
            "used_ratio": used_ratio,
            "full_disk_ratio": FULL_DISK_RATIO,
            "ranges": range_links("/", request.query_params, chosen, "over-time-title"),
            "is_live": chosen == LIVE_RANGE,
            "over_time": None if chosen == LIVE_RANGE else await over_time(view, RANGES[chosen]),
        }
    )
    if not overview.has_records:
        context |= start_context(view, context["bootstrap"])
    render = partial(render_template, "overview/overview.html", context)
    return await page_response(request, render)


def start_context(view: BrokerView, bootstrap: str) -> dict[str, Any]:
    """What the page says on a broker without records."""
    auto_create = view.cluster.config.entry("auto.create.topics.enable")
    makes_topics = auto_create is None or auto_create.value == "true"
    listener = first_listener(view.node.identity.description())
    return {
        "snippets": snippets(bootstrap, listener),
        "creation_command": None if makes_topics else creation_command(bootstrap, listener),
    }


ROUTES = [Route("/", get_overview_page)]
