"""Who may do what, once the admin server has tokens: an ASGI middleware that every request passes.

A request brings the token of its role as ``Authorization: Bearer …``, or the cookie that a browser got at ``/login``.
A viewer may only read. Without either, a browser that asks for a page is sent to log in, and all else is answered 401.
The login page, the files of the pages, and the addresses that supervisors probe are open to all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import quote

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from broker_admin.problems import problem_response
from broker_admin.tokens import AdminTokens, Role

OPEN_PATHS: Final = frozenset({"/login", "/healthz", "/livez", "/readyz"})
OPEN_PREFIX: Final = "/static/"

READING_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

ROLE_IN_SCOPE: Final = "trio_broker.role"
"""The key of a caller's role in the ASGI scope; not there without a login."""


class Authentication:
    """ASGI middleware: lets requests through that bring a token or a session. ``now_seconds`` is replaced by tests."""

    def __init__(self, app: ASGIApp, tokens: AdminTokens, now_seconds: Callable[[], float] = time.time) -> None:
        self.app = app
        self.tokens = tokens
        self.now_seconds = now_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # WebSockets are refused by the app, which has no route for any.
        if scope["type"] != "http" or is_open(scope["path"]):
            await self.app(scope, receive, send)
            return
        role = self.role_of(Headers(scope=scope))
        if role is None:
            await refusal(Request(scope))(scope, receive, send)
        elif role is Role.VIEWER and scope["method"] not in READING_METHODS and scope["path"] != "/logout":
            await problem_response(403, "the role is read-only")(scope, receive, send)
        else:
            scope[ROLE_IN_SCOPE] = role
            await self.app(scope, receive, send)

    def role_of(self, headers: Headers) -> Role | None:
        """The role by token or by cookie. A wrong token is not made up for by a cookie."""
        if (credentials := headers.get("authorization")) is not None:
            scheme, _, token = credentials.partition(" ")
            return self.tokens.role_of(token.strip()) if scheme.lower() == "bearer" else None
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(self.tokens.cookie_name)
        except CookieError:
            return None
        return None if cookie is None else self.tokens.session_role(cookie.value, self.now_seconds())


def is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIX)


def refusal(request: Request) -> Response:
    """The answer to a request without a role."""
    wants_page = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")
    if wants_page and request.method == "GET":
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"/login?next={quote(target, safe='')}", 303)
    response = problem_response(401, "this needs Authorization: Bearer with a token of admin.token.file, or a login")
    response.headers["www-authenticate"] = 'Bearer realm="trio-broker"'
    return response
