"""The pages ``/config``, all settings and where each has its value from, and ``/loggers`` of a broker.

A page lists, and opens one key (``?key=``), without a script; the changes are those of the API.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of, node_of
from broker_admin.change_list import WORDS, running_trial
from broker_admin.config_table import ConfigTableQuery, config_table
from broker_admin.encoding import mask_entry
from broker_admin.listing import take_page
from broker_admin.node_addresses import NODE_PAGES
from broker_admin.operations import query_of
from broker_admin.pages import TEMPLATES, frame, page_response
from broker_admin.requirements import of_cluster, requires
from broker_admin.routes.loggers import LOGGER_COLUMNS, LoggersQuery
from broker_admin.routing import NodeRoute, Route
from broker_admin.tables import Column, ListTable
from broker_admin.tokens import Role
from trio_broker.config.entries import ConfigEntry, LoggerLevel
from trio_broker.handlers.support.rights import DESCRIBE_CLUSTER_CONFIGS

LOGGER_TABLE_COLUMNS = (
    Column("Logger", "name"),
    Column("Level", "level"),
    Column("From", hidden_below="narrow", explanation="The logger that has this level"),
    Column(""),
)

LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
"""Those that a logger can be given, as in Kafka's tools."""


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER_CONFIGS))
async def get_config_page(request: Request) -> Response:
    """All settings, or those that are searched for."""
    query, cluster = query_of(request, ConfigTableQuery), cluster_of(request)
    entries = [mask_entry(entry) for entry in cluster.config.entries()]
    context = frame(request) | WORDS | {"trial": running_trial(cluster.changes.list())}
    return await page_response(request, partial(render_settings, context, entries, query))


def render_settings(context: dict[str, Any], entries: Sequence[ConfigEntry], query: ConfigTableQuery) -> str:
    """The page of settings; runs in a worker thread."""
    return TEMPLATES.get_template("config/settings.html").render(
        **context,
        here="config",
        script="config.js",
        query=query,
        table=config_table(entries, query, context["config_page"]),
    )


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER_CONFIGS))
async def get_loggers_page(request: Request) -> Response:
    """The loggers and their levels."""
    query, node = query_of(request, LoggersQuery), node_of(request)
    context = frame(request) | {"path": request.url.path, "parameters": request.query_params}
    return await page_response(request, partial(render_loggers, context, node.loggers.levels(), query))


def render_loggers(context: dict[str, Any], loggers: Sequence[LoggerLevel], query: LoggersQuery) -> str:
    """The page of loggers; runs in a worker thread."""
    page = take_page(loggers, query, id_of=logger_name, columns=LOGGER_COLUMNS)
    path, parameters = context.pop("path"), context.pop("parameters")
    table = ListTable(path, LOGGER_TABLE_COLUMNS, query, page, parameters, key_of=logger_name)
    return TEMPLATES.get_template("config/loggers.html").render(
        **context, here="config", script="loggers.js", table=table, levels=LEVELS
    )


def logger_name(logger: LoggerLevel) -> str:
    return logger.name


ROUTES = [
    Route("/config", get_config_page),
    NodeRoute(NODE_PAGES + "/config", get_config_page),
    NodeRoute(NODE_PAGES + "/loggers", get_loggers_page),
]
