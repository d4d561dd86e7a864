"""``/login`` and ``/logout``: a token, or a name and a password, for a cookie, and the cookie's end. There only where
somebody can log in."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute

from broker_admin.logins import RETRY_SECONDS, Logins, TooManyFailures
from broker_admin.pages import ASSETS, TEMPLATES
from broker_admin.problems import Problem
from broker_admin.request_body import read_body
from broker_admin.requirements import open_to_all
from broker_admin.routing import Route
from broker_admin.tokens import SESSION_SECONDS

MAX_FORM_BYTES = 16 * 1024
"""A token, or a name and a password, and the address to go on to."""


def local_target(target: str) -> str:
    """Where to go after the login: an address of this site, the overview for anything else."""
    # Browsers take "//host" and "/\host" for other sites.
    is_local = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_local else "/"


def login_page(logins: Logins, target: str, error: str = "", status: int = 200) -> Response:
    """The form. It shows nothing of the broker: nobody has logged in yet."""
    page = TEMPLATES.get_template("login.html").render(
        assets=ASSETS, target=target, error=error, has_tokens=logins.tokens is not None, has_users=logins.has_users
    )
    return HTMLResponse(page, status)


@open_to_all
async def get_login(request: Request, logins: Logins) -> Response:
    """The login page."""
    return login_page(logins, local_target(request.query_params.get("next", "/")))


@open_to_all
async def post_login(request: Request, logins: Logins) -> Response:
    """Answer a right token, or a right name and password, with a session."""
    form = parse_qs((await read_body(request, MAX_FORM_BYTES)).decode("utf-8", "replace"))
    target, token, user = (form.get(name, [""])[0].strip() for name in ("next", "token", "user"))
    target = local_target(target)
    try:
        if user:
            caller = await logins.by_password(request, user, form.get("password", [""])[0])
        else:
            caller = logins.by_token(request, token)
    except TooManyFailures:
        response = login_page(logins, target, "Too many wrong attempts; try again in a minute.", 429)
        response.headers["retry-after"] = str(RETRY_SECONDS)
        return response
    if caller is None:
        return login_page(logins, target, "Wrong name or password." if user else "Wrong token.", 401)
    response = RedirectResponse(target, 303)
    response.set_cookie(
        logins.cookie_name,
        logins.new_session(request, caller),
        max_age=SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@open_to_all
async def post_logout(request: Request, logins: Logins) -> Response:
    """Take the cookie away."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Problem(403, "requests from pages of other origins are not answered")
    response = RedirectResponse("/login", 303)
    response.delete_cookie(logins.cookie_name, httponly=True, samesite="strict")
    return response


def login_routes(logins: Logins) -> Sequence[BaseRoute]:
    """The routes of a server with a login."""
    return [
        Route("/login", partial(get_login, logins=logins)),
        Route("/login", partial(post_login, logins=logins), methods=["POST"]),
        Route("/logout", partial(post_logout, logins=logins), methods=["POST"]),
    ]
