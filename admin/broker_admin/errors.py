"""Errors as the HTTP API tells them: a JSON object with one clear sentence under ``error``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from broker_admin.view import ConfigRefusal

EXPLANATIONS = {
    404: "there is nothing at this address; /api/v1/openapi.json lists what there is",
    405: "this address does not take that method",
}


def error_response(status: int, text: str, refusals: Sequence[ConfigRefusal] = ()) -> Response:
    """An error answer; ``refusals`` tell per key why a change was not accepted."""
    body: dict[str, object] = {"error": text}
    if refusals:
        body["refusals"] = [{"key": refusal.key, "reason": refusal.reason} for refusal in refusals]
    return Response(json.dumps(body) + "\n", status, media_type="application/json")


def answer_http_exception(request: Request, exception: Exception) -> Response:
    """Starlette's own refusals (no such route, wrong method), in JSON for programs and in text for people."""
    assert isinstance(exception, HTTPException), type(exception)
    text = EXPLANATIONS.get(exception.status_code, exception.detail)
    if request.url.path.startswith("/api"):
        response = error_response(exception.status_code, text)
    else:
        response = PlainTextResponse(f"{HTTPStatus(exception.status_code).phrase}: {text}\n", exception.status_code)
    response.headers.update(exception.headers or {})
    return response


def answer_bug(request: Request, exception: Exception) -> Response:
    """Our own mistake: the details are in the log, not in the answer."""
    return error_response(500, "the broker failed to answer this; its log says why")
