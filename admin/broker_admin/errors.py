"""Errors as the HTTP server answers them: problems (RFC 9457) under ``/api``, a page of this site for browsers, one
line of text for everything else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPMethod, HTTPStatus
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from broker_admin.app_state import state_of
from broker_admin.pages import REFRESH_SECONDS, error_page, starting_page
from broker_admin.problems import BrokerStarting, FieldError, LoginNeeded, Problem, problem_response

EXPLANATIONS = {
    404: "there is nothing at this address; /api/v1/openapi.json lists what there is",
    405: "this address does not take that method",
}


PAGE_EXPLANATIONS = {EXPLANATIONS[404]: "Page not found."}
"""What a browser shows in place of what a program gets."""


def answer_error(request: Request, status: int, detail: str, errors: Sequence[FieldError] = ()) -> Response:
    """An error in the form that suits the address and the caller's ``Accept`` header."""
    if request.url.path.startswith("/api/"):
        return problem_response(status, detail, errors)
    phrase = HTTPStatus(status).phrase
    if "text/html" in request.headers.get("accept", ""):
        detail = PAGE_EXPLANATIONS.get(detail, detail)
        if (start := state_of(request).start) is not None:
            return starting_page(start, status)
        return error_page(request, status, phrase, detail)
    return PlainTextResponse(f"{phrase}: {detail}\n", status)


def answer_problem(request: Request, exception: Exception) -> Response:
    """What a route refuses."""
    assert isinstance(exception, Problem), type(exception)
    if isinstance(exception, LoginNeeded):
        return answer_login_needed(request)
    response = answer_error(request, exception.status, exception.detail, exception.errors)
    if isinstance(exception, BrokerStarting):
        response.headers["retry-after"] = str(REFRESH_SECONDS)
    return response


def answer_login_needed(request: Request) -> Response:
    """Send a browser that asks for a page to log in, and answer all else with 401."""
    wants_page = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")
    if wants_page and request.method == "GET":
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?next={quote(target, safe='')}", 303)
    response = problem_response(HTTPStatus.UNAUTHORIZED, str(LoginNeeded()))
    response.headers["www-authenticate"] = 'Bearer realm="trio-broker"'
    return response


def answer_http_exception(request: Request, exception: Exception) -> Response:
    """Starlette's own refusals: no such route, wrong method."""
    assert isinstance(exception, HTTPException), type(exception)
    text = EXPLANATIONS.get(exception.status_code, exception.detail)
    if exception.status_code == HTTPStatus.NOT_FOUND and (path := path_without_slash(request)):
        if not path.startswith("/api/") and request.method in ("GET", "HEAD"):
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(quote(path) + query, HTTPStatus.PERMANENT_REDIRECT)
        text = f"there is nothing at this address; at {path}, without the slash, there is"
    response = answer_error(request, exception.status_code, text)
    response.headers.update(exception.headers or {})
    if exception.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        response.headers["allow"] = ", ".join(allowed_methods(request))
    return response


def path_without_slash(request: Request) -> str:
    """The request's path without the slashes at its end, if that is an address of this app; else the empty string."""
    path: str = request.scope["path"]
    shorter = path.rstrip("/")
    return shorter if shorter != path and routes_at(request, shorter) else ""


def routes_at(request: Request, path: str) -> list[Route]:
    return [each for each in request.app.routes if isinstance(each, Route) and each.path_regex.match(path)]


def allowed_methods(request: Request) -> Sequence[str]:
    """The methods of the request's address.

    Starlette names those of the first route that has the path; another may have the same path, or suit it better, as
    ``/topics/{topic}:purge`` does than ``/topics/{topic}``.
    """
    routes = routes_at(request, request.scope["path"])
    closest = max((literal_length(each) for each in routes), default=0)
    methods = [methods_of(each) for each in routes if literal_length(each) == closest]
    return sorted(set().union(*methods))


def methods_of(route: Route) -> set[str]:
    """What a route takes: one of a class, whose methods are named after HTTP's, leaves it to the class."""
    if route.methods is not None:
        return route.methods
    methods = {method.value for method in HTTPMethod if hasattr(route.endpoint, method.lower())}
    return methods | ({"HEAD"} if "GET" in methods else set())


def literal_length(route: Route) -> int:
    """How much of a route's path is not a parameter."""
    return len(re.sub(r"\{[^}]*\}", "", route.path))


def answer_bug(request: Request, exception: Exception) -> Response:
    """Our own mistake: the details are in the log, not in the answer."""
    return answer_error(request, 500, "the broker failed to answer this; its log says why")
