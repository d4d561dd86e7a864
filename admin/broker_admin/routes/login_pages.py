"""``/login`` and ``/logout``: a token for a cookie, and the cookie's end. There only where the server has tokens."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import parse_qs

import attrs
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from broker_admin.pages import ASSETS, TEMPLATES
from broker_admin.problems import Problem
from broker_admin.request_body import read_body
from broker_admin.tokens import SESSION_SECONDS, AdminTokens

log = logging.getLogger(__name__)

MAX_FORM_BYTES = 16 * 1024
"""A token, and the address to go on to."""

MAX_FAILURES = 10
FAILURE_SECONDS = 60.0
"""So many wrong tokens in this time close the login for the address that they come from until the oldest is that old.
Tokens in a header are not affected, so programs go on."""

MAX_PEERS = 1000
"""Addresses whose failures are remembered, a few hundred bytes each; the one that failed longest ago is forgotten."""


@attrs.define
class LoginThrottle:
    """The times of each peer's last failures, on the clock that ``now_seconds`` reads."""

    now_seconds: Callable[[], float] = time.monotonic
    failures: OrderedDict[str, deque[float]] = attrs.field(factory=OrderedDict)

    def note_failure(self, peer: str) -> None:
        self.failures.setdefault(peer, deque(maxlen=MAX_FAILURES)).append(self.now_seconds())
        self.failures.move_to_end(peer)
        if len(self.failures) > MAX_PEERS:
            self.failures.popitem(last=False)

    def seconds_closed(self, peer: str) -> float:
        """How long the login stays closed for ``peer``; 0 while it is open."""
        failures = self.failures.get(peer)
        if failures is None or len(failures) < MAX_FAILURES:
            return 0.0
        return max(0.0, failures[0] + FAILURE_SECONDS - self.now_seconds())


def local_target(target: str) -> str:
    """Where to go after the login: an address of this site, the overview for anything else."""
    # Browsers take "//host" and "/\host" for other sites.
    is_local = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_local else "/"


def login_page(target: str, error: str = "", status: int = 200) -> Response:
    """The form. It shows nothing of the broker: nobody has logged in yet."""
    page = TEMPLATES.get_template("login.html").render(assets=ASSETS, target=target, error=error)
    return HTMLResponse(page, status)


async def get_login(request: Request) -> Response:
    """The login page."""
    return login_page(local_target(request.query_params.get("next", "/")))


async def post_login(request: Request, tokens: AdminTokens, throttle: LoginThrottle) -> Response:
    """Answer a right token with a session."""
    form = parse_qs((await read_body(request, MAX_FORM_BYTES)).decode("utf-8", "replace"))
    target = local_target(form.get("next", ["/"])[0])
    peer = request.client.host if request.client else "somewhere"
    if closed := throttle.seconds_closed(peer):
        response = login_page(target, "Too many wrong tokens; try again in a minute.", 429)
        response.headers["retry-after"] = str(int(closed) + 1)
        return response
    role = tokens.role_of(form.get("token", [""])[0].strip())
    if role is None:
        throttle.note_failure(peer)
        log.warning("a login from %s was refused: wrong token", peer)
        return login_page(target, "Wrong token.", 401)
    response = RedirectResponse(target, 303)
    response.set_cookie(
        tokens.cookie_name,
        tokens.new_session(role, time.time()),
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


async def post_logout(request: Request, tokens: AdminTokens) -> Response:
    """Take the cookie away."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Problem(403, "requests from pages of other origins are not answered")
    response = RedirectResponse("/login", 303)
    response.delete_cookie(tokens.cookie_name, httponly=True, samesite="strict")
    return response


def login_routes(tokens: AdminTokens) -> Sequence[BaseRoute]:
    """The routes of a server with ``tokens``."""
    post = partial(post_login, tokens=tokens, throttle=LoginThrottle())
    return [
        Route("/login", get_login),
        Route("/login", post, methods=["POST"]),
        Route("/logout", partial(post_logout, tokens=tokens), methods=["POST"]),
    ]
