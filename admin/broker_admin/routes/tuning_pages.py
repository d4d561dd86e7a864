"""``/tuning`` of a broker: what limits it, where the time of requests goes, tunables, and the last changes."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of, node_of
from broker_admin.change_list import WORDS, running_trial
from broker_admin.lifecycle_chart import SHOWN_PHASES, lifecycle_bars
from broker_admin.node_addresses import NODE_PAGES
from broker_admin.pages import frame, page_response, render_template
from broker_admin.requirements import of_cluster, requires
from broker_admin.routing import NodeRoute
from broker_admin.tokens import Role
from broker_admin.tunables import tunable_states
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER

SHOWN_CHANGES = 5
"""The last changes of settings with their readings; the page of changes has all."""

TRIAL_SECONDS = 60
"""What the page's button tries a setting for: as long as the effect of a change is measured."""

COMPARED_SECONDS = 30
"""Of each of the six spans of the page's A/B comparison, which then takes three minutes."""


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
async def get_tuning_page(request: Request) -> Response:
    """The page, as the broker stands now."""
    cluster, node = cluster_of(request), node_of(request)
    settings = [change for change in cluster.changes.list() if change.is_of_settings]
    context = {
        **frame(request),
        **WORDS,
        "here": "tuning",
        "script": "tuning.js",
        "bottleneck": node.latency.bottleneck(),
        "apis": lifecycle_bars(node.latency.report().apis),
        "phases": [phase.value.replace("_", " ") for phase in SHOWN_PHASES],
        "threads": node.readings.threads(),
        "tunables": tunable_states(cluster.config.entries()),
        "trial_seconds": TRIAL_SECONDS,
        "compared_seconds": COMPARED_SECONDS,
        "trial": running_trial(settings),
        "changes": settings[: -SHOWN_CHANGES - 1 : -1],
    }
    return await page_response(request, partial(render_template, "tuning/tuning.html", context))


ROUTES = [NodeRoute(NODE_PAGES + "/tuning", get_tuning_page)]
