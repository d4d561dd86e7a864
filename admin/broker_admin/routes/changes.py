"""``/api/v1/changes``: what was changed in the broker, by which client, and their effect.

The list takes the words of every list, and filters; ``Accept: application/x-ndjson`` and ``text/csv``, or ``format``,
export all that the filters let through, oldest first. A change on trial is kept by
``POST /api/v1/changes/{number}:keep``, and taken back before its time by ``:undo``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import attrs
import trio
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of, node_of, now_ms_of
from broker_admin.change_list import CSV_COLUMNS, ChangesQuery, changes_csv, is_wanted, select_changes
from broker_admin.encoding import encode
from broker_admin.exports import CSV, NDJSON, wanted_format
from broker_admin.listing import Page
from broker_admin.messages.query import FORMATS
from broker_admin.node_addresses import NODE_API
from broker_admin.operations import TextContent, operation, query_of
from broker_admin.problems import Problem
from broker_admin.request_body import ChangeQuery, check_caller
from broker_admin.requirements import is_about_access, of_cluster, require_role, requires
from broker_admin.responses import json_response, json_response_from_thread
from broker_admin.routing import NodeRoute, Route
from broker_admin.schemas import bounded
from broker_admin.texts import export_name
from broker_admin.tokens import Role
from broker_admin.views.cluster.changes import TrialRefusal
from trio_broker.changes.change import Change, TrialOutcome
from trio_broker.handlers.support.rights import ALTER_CLUSTER_CONFIGS, DESCRIBE_CLUSTER


@attrs.frozen(kw_only=True)
class ChangesExportQuery(ChangesQuery):
    """As for the list; ``format`` is json, ndjson or csv where the Accept header cannot say."""

    format: str = bounded("", enum=list(FORMATS))


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(
    Page[Change],
    query=ChangesExportQuery,
    other_answers=(
        TextContent(
            NDJSON,
            "all changes that the filters let through, oldest first, without limit or cursor",
            '{"number":1,"action":"created","resource_type":"topic","resource":"orders", …}\n',
            line=Change,
        ),
        TextContent(
            CSV,
            f"the same, a line of names and one for each value of a change: {', '.join(CSV_COLUMNS)}; a cell that a"
            " spreadsheet would run as a formula begins with an apostrophe",
            ",".join(CSV_COLUMNS)
            + "\r\n1,2026-11-22T20:12:15.000Z,config,broker,1,num.io.threads,8,12,page,admin page,,127.0.0.1,"
            "PATCH /api/v1/config,,,better\r\n",
        ),
    ),
)
async def get_changes(request: Request) -> Response:
    """The changes, newest first unless another order is asked for.

    As ``application/x-ndjson`` each change is a line, as ``text/csv`` each value of a change; both have all changes
    that the filters let through, oldest first.
    """
    query, changes = query_of(request, ChangesExportQuery), cluster_of(request).changes.list()
    form = wanted_format(request, query.format)
    if form != "json":
        export = partial(exported_lines if form == "ndjson" else exported_csv, changes=changes, query=query)
        name = export_name("changes", now_ms_of(node_of(request)), form)
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        body = await trio.to_thread.run_sync(export)
        return Response(body, media_type=NDJSON if form == "ndjson" else CSV, headers=headers)
    return await json_response_from_thread(await trio.to_thread.run_sync(select_changes, changes, query))


def exported_lines(changes: Sequence[Change], query: ChangesQuery) -> bytes:
    """The changes that the filters let through, a line each. Bounded, as what is kept is."""
    return b"".join(encode(change) for change in changes if is_wanted(change, query))


def exported_csv(changes: Sequence[Change], query: ChangesQuery) -> bytes:
    """The same for spreadsheets, a line for each value."""
    return changes_csv(change for change in changes if is_wanted(change, query)).encode()


@requires(Role.VIEWER, of_cluster(DESCRIBE_CLUSTER))
@operation(Change, problems={404: "there is no such change"})
async def get_change(request: Request) -> Response:
    """One change, with its effect once that has been measured."""
    return json_response(change_of(request))


@requires(Role.OPERATOR, of_cluster(ALTER_CLUSTER_CONFIGS))
@operation(
    Change, query=ChangeQuery, is_change=True, problems={404: "there is no such change", 409: "it is not on trial"}
)
async def keep_change(request: Request) -> Response:
    """Make the values of a change on trial stay; with ``dry_run``, answers with the change if that can be done."""
    check_caller(request)
    change = trial_of(request)
    if query_of(request, ChangeQuery).dry_run:
        return trial_response(change if is_on_trial(change) else TrialRefusal(NOT_ON_TRIAL.format(change.number)))
    return trial_response(await cluster_of(request).changes.keep(change.number))


@requires(Role.OPERATOR, of_cluster(ALTER_CLUSTER_CONFIGS))
@operation(
    Change, query=ChangeQuery, is_change=True, problems={404: "there is no such change", 409: "it is not on trial"}
)
async def undo_change(request: Request) -> Response:
    """Take a change on trial back before its time.

    Answers with the change that does so; with ``dry_run`` with the one that would be taken back.
    """
    check_caller(request)
    change = trial_of(request)
    if query_of(request, ChangeQuery).dry_run:
        return trial_response(change if is_on_trial(change) else TrialRefusal(NOT_ON_TRIAL.format(change.number)))
    return trial_response(await cluster_of(request).changes.undo(change.number))


NOT_ON_TRIAL = "change {} is not being tried"


def is_on_trial(change: Change) -> bool:
    return change.trial is not None and change.trial.outcome is TrialOutcome.RUNNING


def trial_response(result: Change | TrialRefusal) -> Response:
    if isinstance(result, TrialRefusal):
        raise Problem(409, result.reason)
    return json_response(result)


def change_of(request: Request) -> Change:
    """The change that the address names.

    Raises:
        Problem: 404.
    """
    change = cluster_of(request).changes.get(request.path_params["number"])
    if change is None:
        raise Problem(404, f"there is no change {request.path_params['number']}, or it is no longer kept")
    return change


def trial_of(request: Request) -> Change:
    """The change that the address names, for a caller who may end its trial: one of logins takes who may make it.

    Raises:
        Problem: 404; 403.
    """
    change = change_of(request)
    if change.further_values or any(is_about_access(each.name) for each in change.values):
        require_role(request, Role.ADMIN)
    return change


ROUTES = [
    Route("/api/v1/changes", get_changes),
    Route("/api/v1/changes/{number:int}", get_change),
    Route("/api/v1/changes/{number:int}:keep", keep_change, methods=["POST"]),
    Route("/api/v1/changes/{number:int}:undo", undo_change, methods=["POST"]),
    NodeRoute(NODE_API + "/changes/{number:int}:keep", keep_change, methods=["POST"]),
    NodeRoute(NODE_API + "/changes/{number:int}:undo", undo_change, methods=["POST"]),
]
