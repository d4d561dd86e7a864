"""``/api/v1/changes``: what was changed in the broker, by which client, and what came of it.

The list takes the words of every list, and filters; ``Accept: application/x-ndjson`` exports what the filters let
through as JSON lines. A change on trial is kept by ``POST /api/v1/changes/{number}:keep``, and taken back before its
time by ``:undo``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from broker_admin.change_list import ChangesQuery, is_wanted, select_changes
from broker_admin.encoding import encode, json_response, json_response_from_thread
from broker_admin.listing import Page
from broker_admin.operations import TextContent, operation, query_of
from broker_admin.parts import parts_of
from broker_admin.problems import Problem
from broker_admin.request_body import check_caller
from broker_admin.views.changes import TrialRefusal
from trio_broker.changes.change import Change

JSON_LINES = "application/x-ndjson"


@operation(
    Page[Change],
    query=ChangesQuery,
    other_answers=(
        TextContent(
            JSON_LINES,
            "all changes that the filters let through, oldest first, without limit or cursor",
            '{"number":1,"action":"created","resource_type":"topic","resource":"orders", …}\n',
            line=Change,
        ),
    ),
)
async def get_changes(request: Request) -> Response:
    """The changes, newest first unless another order is asked for."""
    query, changes = query_of(request, ChangesQuery), parts_of(request).view.recorded_changes()
    if JSON_LINES in request.headers.get("accept", ""):
        export = partial(exported, changes=changes, query=query)
        return Response(await trio.to_thread.run_sync(export), media_type=JSON_LINES)
    return await json_response_from_thread(await trio.to_thread.run_sync(select_changes, changes, query))


def exported(changes: Sequence[Change], query: ChangesQuery) -> bytes:
    """The changes that the filters let through, oldest first, a line each. Bounded, as what is kept is."""
    return b"".join(encode(change) for change in changes if is_wanted(change, query))


@operation(Change, problems={404: "there is no such change"})
async def get_change(request: Request) -> Response:
    """One change, with its effect once that has been measured."""
    return json_response(change_of(request))


@operation(Change, is_change=True, status=200, problems={404: "there is no such change", 409: "it is not on trial"})
async def keep_change(request: Request) -> Response:
    """Make the values of a change on trial stay."""
    check_caller(request)
    return trial_response(await parts_of(request).view.keep_change(change_of(request).number))


@operation(Change, is_change=True, status=200, problems={404: "there is no such change", 409: "it is not on trial"})
async def undo_change(request: Request) -> Response:
    """Take a change on trial back before its time; answers with the change that does so."""
    check_caller(request)
    return trial_response(await parts_of(request).view.undo_change(change_of(request).number))


def trial_response(result: Change | TrialRefusal) -> Response:
    if isinstance(result, TrialRefusal):
        raise Problem(409, result.reason)
    return json_response(result)


def change_of(request: Request) -> Change:
    """The change that the address names.

    Raises:
        Problem: 404.
    """
    change = parts_of(request).view.recorded_change(request.path_params["number"])
    if change is None:
        raise Problem(404, f"there is no change {request.path_params['number']}, or it is no longer kept")
    return change


ROUTES = [
    Route("/api/v1/changes", get_changes),
    Route("/api/v1/changes/{number:int}", get_change),
    Route("/api/v1/changes/{number:int}:keep", keep_change, methods=["POST"]),
    Route("/api/v1/changes/{number:int}:undo", undo_change, methods=["POST"]),
]
