"""``/loggers`` of a broker: their levels, and changing them while the broker runs.

A level is set until the next start, as by Kafka's ``kafka-configs.sh --entity-type broker-loggers``. PATCH takes an
object of logger → level, null for the level of the parent; all of them are set, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import attrs
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import node_of
from broker_admin.listing import ListQuery, Page, ordered_by, take_page
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import operation, query_of
from broker_admin.problems import FieldError, Problem, body_pointer
from broker_admin.request_body import ChangeQuery, read_change_json
from broker_admin.requirements import of_cluster, requires
from broker_admin.responses import json_response
from broker_admin.routing import NodeRoute
from broker_admin.schemas import SchemaConstraints
from broker_admin.structuring import structure_body
from broker_admin.tokens import Role
from broker_admin.views.cluster.config import SettingChange
from broker_admin.views.node.loggers import LoggerDifference
from trio_broker.config.entries import LoggerLevel
from trio_broker.handlers.support.rights import ALTER_CLUSTER_CONFIGS, DESCRIBE_CLUSTER_CONFIGS

LoggerChanges = Annotated[Mapping[str, str | None], SchemaConstraints({"minProperties": 1})]
"""The body of a change."""

LOGGER_COLUMNS = {"name": lambda logger: logger.name, "level": lambda logger: logger.level}


@attrs.frozen(kw_only=True)
class LoggersQuery(ListQuery):
    """Which loggers are wanted."""

    order: str = ordered_by("name", LOGGER_COLUMNS)


@attrs.frozen
class ChangedLoggers:
    """The loggers that a change gave another level, or would give in a dry run, and the changes of own levels."""

    differences: tuple[LoggerDifference, ...]
    changes: tuple[SettingChange, ...]


class LoggersEndpoint(HTTPEndpoint):
    """Both methods of the one address, so that a third one is answered with the names of both."""

    @requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER_CONFIGS))
    @operation(Page[LoggerLevel], query=LoggersQuery)
    async def get(self, request: Request) -> Response:
        """The loggers with their levels.

        The levels are TRACE, DEBUG, INFO, WARN, ERROR and FATAL. A logger without a level of its own has that of the
        nearest one above it that has one.
        """
        query = query_of(request, LoggersQuery)
        loggers = node_of(request).loggers.levels()
        return json_response(take_page(loggers, query, id_of=lambda logger: logger.name, columns=LOGGER_COLUMNS))

    @requires(Role.OPERATOR, of_cluster(ALTER_CLUSTER_CONFIGS))
    @operation(
        ChangedLoggers,
        query=ChangeQuery,
        body=LoggerChanges,
        is_change=True,
        problems={422: "a logger or a level is refused; nothing was changed"},
    )
    async def patch(self, request: Request) -> Response:
        """Set levels of loggers until the next start, all of them or none; null gives a logger its parent's."""
        query = query_of(request, ChangeQuery)
        body = await read_change_json(request)
        if not isinstance(body, dict) or not body:
            raise Problem(400, 'the body is not a JSON object of loggers and levels, such as {"trio_broker": "DEBUG"}')
        levels = structure_body(body, LoggerChanges)  # type: ignore[type-abstract]
        result = await node_of(request).loggers.change(levels, dry_run=query.dry_run)
        if result.refusals:
            errors = [FieldError(body_pointer(each.key) if each.key else "", each.reason) for each in result.refusals]
            raise Problem.of_errors(422, errors)
        return json_response(ChangedLoggers(result.differences, result.changes))


ROUTES = [NodeRoute(NODE_API + "/loggers", LoggersEndpoint)]
