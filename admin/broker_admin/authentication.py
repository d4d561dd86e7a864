"""Lets requests in, once there are tokens or an authorizer: an ASGI middleware that every request passes.

Who is let in stands in the scope from then on; what it may do, each route asks (``requirements.py``). Without a login a
browser that asks for a page is sent to log in, and all else is answered 401. The login page, the files of the pages,
and the addresses that supervisors probe are open to all.
"""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from broker_admin.callers import CALLER_IN_SCOPE
from broker_admin.errors import answer_login_needed, answer_problem
from broker_admin.logins import RETRY_SECONDS, Logins, TooManyFailures
from broker_admin.problems import BrokerStarting, problem_response

OPEN_PATHS: Final = frozenset({"/login", "/healthz", "/livez", "/readyz"})
OPEN_PREFIX: Final = "/static/"


class Authentication:
    """ASGI middleware: lets requests through that bring a token, a password or a session."""

    def __init__(self, app: ASGIApp, logins: Logins) -> None:
        self.app = app
        self.logins = logins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # WebSockets are refused by the app, which has no route for any.
        if scope["type"] != "http" or is_open(scope["path"]):
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        try:
            caller = await self.logins.caller(request)
        except BrokerStarting as starting:
            await answer_problem(request, starting)(scope, receive, send)
            return
        except TooManyFailures as problem:
            # Not a page of this site, which would show the broker's name to somebody who has not logged in.
            response = problem_response(problem.status, problem.detail)
            response.headers["retry-after"] = str(RETRY_SECONDS)
            await response(scope, receive, send)
            return
        if caller is None:
            await answer_login_needed(request)(scope, receive, send)
            return
        scope[CALLER_IN_SCOPE] = caller
        await self.app(scope, receive, send)


def is_open(path: str) -> bool:
    return path in OPEN_PATHS or path.startswith(OPEN_PREFIX)
