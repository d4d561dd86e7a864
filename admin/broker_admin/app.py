"""The admin app: one Starlette application over a BrokerView, joined from the files in ``routes/``.

The app keeps no state of the broker; every answer is read from the view when it is asked for. Besides the view it
holds what answers are made with (``AppState``): the rendered assets, the templates, the open event streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from broker_admin import metrics_page
from broker_admin.app_state import AppState
from broker_admin.authentication import Authentication
from broker_admin.errors import answer_bug, answer_http_exception, answer_problem
from broker_admin.logins import Logins
from broker_admin.navigation import navigation_of
from broker_admin.problems import Problem
from broker_admin.routes import (
    access,
    access_pages,
    alerts,
    api_pages,
    assets,
    changes,
    changes_pages,
    client_pages,
    clients,
    config,
    config_pages,
    connection_diagnosis,
    decommission,
    events,
    group_changes,
    group_pages,
    groups,
    health,
    insight_pages,
    latency,
    led,
    loggers,
    message_appends,
    message_pages,
    message_search,
    message_tail,
    messages,
    openapi,
    overview,
    overview_pages,
    readings,
    replication,
    replication_pages,
    search,
    segments,
    storage,
    tasks,
    topic_selection,
    topics,
    topics_pages,
    transaction_pages,
    transactions,
    tuning_pages,
)
from broker_admin.routes.login_pages import login_routes
from broker_admin.security import RequestGuard
from broker_admin.starting_broker import StartingBroker
from broker_admin.view import BrokerView

ROUTES: Sequence[BaseRoute] = (
    *access.ROUTES,
    *access_pages.ROUTES,
    *replication_pages.ROUTES,
    *replication.ROUTES,
    *overview_pages.ROUTES,
    *overview.ROUTES,
    *alerts.ROUTES,
    *assets.ROUTES,
    *group_pages.ROUTES,
    *config.ROUTES,
    *changes.ROUTES,
    *config_pages.ROUTES,
    *changes_pages.ROUTES,
    *tuning_pages.ROUTES,
    *decommission.ROUTES,
    *loggers.ROUTES,
    *readings.ROUTES,
    *latency.ROUTES,
    *segments.ROUTES,
    *led.ROUTES,
    *group_changes.ROUTES,
    *topics.ROUTES,
    *topic_selection.ROUTES,
    *messages.ROUTES,
    *message_appends.ROUTES,
    *message_pages.ROUTES,
    *message_search.ROUTES,
    *message_tail.ROUTES,
    *topics_pages.ROUTES,
    *groups.ROUTES,
    *transactions.ROUTES,
    *transaction_pages.ROUTES,
    *clients.ROUTES,
    *client_pages.ROUTES,
    *connection_diagnosis.ROUTES,
    *storage.ROUTES,
    *tasks.ROUTES,
    *insight_pages.ROUTES,
    *events.ROUTES,
    *health.ROUTES,
    *metrics_page.ROUTES,
    *openapi.ROUTES,
    *api_pages.ROUTES,
    *search.ROUTES,
)
"""In this order: the first that fits a path answers it."""


def create_app(
    broker: BrokerView | StartingBroker,
    *,
    allowed_hosts: Iterable[str] = (),
    stopping: trio.Event | None = None,
    logins: Logins | None = None,
) -> Starlette:
    """Return the application over ``broker``; event streams end when ``stopping`` is set.

    ``allowed_hosts`` are names beside the loopback ones that requests may be addressed to. With ``logins``,
    callers have to log in.
    """
    middleware = [Middleware(RequestGuard, allowed_hosts=allowed_hosts)]
    if logins is not None:
        middleware.append(Middleware(Authentication, logins=logins))
    return app_over(broker, middleware, login_routes(logins) if logins is not None else (), stopping)


def create_forwarded_app(broker: BrokerView) -> Starlette:
    """Return the application for requests that other brokers pass on, which have checked who asks."""
    return app_over(broker)


def app_over(
    broker: BrokerView | StartingBroker,
    middleware: Sequence[Middleware] = (),
    login: Sequence[BaseRoute] = (),
    stopping: trio.Event | None = None,
) -> Starlette:
    app = Starlette(
        routes=[*ROUTES, *login],
        middleware=middleware,
        exception_handlers={
            HTTPException: answer_http_exception,
            Problem: answer_problem,
            Exception: answer_bug,
        },
    )
    # Starlette's redirect names the host and the scheme, which are others behind a proxy; see ``errors``.
    app.router.redirect_slashes = False
    stop = stopping if stopping is not None else trio.Event()
    app.state.app_state = AppState(broker, stop, navigation=navigation_of(app.routes))
    return app
