"""Errors as the HTTP server answers them: JSON with one clear sentence under ``error`` for programs that use the API,
a page of this site for browsers, one line of text for everything else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from broker_admin.pages import error_page
from broker_admin.views.config import ConfigRefusal

EXPLANATIONS = {
    404: "there is nothing at this address; /api/v1/openapi.json lists what there is",
    405: "this address does not take that method",
}


def error_response(status: int, text: str, refusals: Sequence[ConfigRefusal] = ()) -> Response:
    """A JSON error; ``refusals`` give for each key why a change was not accepted."""
    body: dict[str, object] = {"error": text}
    if refusals:
        body["refusals"] = [{"key": refusal.key, "reason": refusal.reason} for refusal in refusals]
    return Response(json.dumps(body) + "\n", status, media_type="application/json")


def answer_error(request: Request, status: int, text: str) -> Response:
    """An error in the form that suits the address and the caller's ``Accept`` header."""
    if request.url.path.startswith("/api"):
        return error_response(status, text)
    phrase = HTTPStatus(status).phrase
    if "text/html" in request.headers.get("accept", ""):
        return error_page(request, status, phrase, text)
    return PlainTextResponse(f"{phrase}: {text}\n", status)


def answer_http_exception(request: Request, exception: Exception) -> Response:
    """Starlette's own refusals: no such route, wrong method."""
    assert isinstance(exception, HTTPException), type(exception)
    text = EXPLANATIONS.get(exception.status_code, exception.detail)
    response = answer_error(request, exception.status_code, text)
    response.headers.update(exception.headers or {})
    return response


def answer_bug(request: Request, exception: Exception) -> Response:
    """Our own mistake: the details are in the log, not in the answer."""
    return error_response(500, "the broker failed to answer this; its log says why")
