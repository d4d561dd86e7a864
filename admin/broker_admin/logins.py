"""Who a request comes from: a token, or a user of the broker by name and password, in a header or a session.

A program sends ``Authorization: Bearer TOKEN`` or ``Basic`` with name and password; a browser has the cookie that it
got at ``/login``. Users of the broker are let in where there is an authorizer, which says what they may do. Where there
are no tokens, who brings nothing is ``User:ANONYMOUS``, as on a listener of Kafka's without a login.

A session of a user is kept nowhere either: it is signed with a key of this process and the user's password as it is
kept, so that a restart or another password ends it.

Who fails often is refused unseen for a while, right credentials too, or a guess would be free. That goes by
addresses: what one does touches no other, and no session.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from functools import cached_property
from http.cookies import CookieError, SimpleCookie
from typing import Final

import attrs
from starlette.requests import Request

from broker_admin.app_state import state_of
from broker_admin.callers import ANONYMOUS, AdminCaller
from broker_admin.problems import Problem
from broker_admin.tokens import SESSION_SECONDS, AdminTokens
from trio_broker.runtime.clock import Clock, SystemClock
from trio_broker.security.sasl.failed_attempts import FailedAttempts

log = logging.getLogger(__name__)

USER_SESSION: Final = "user"
"""What a session of a user begins with, where one of a token has its role."""

MAX_NAME_CHARACTERS: Final = 200
"""Of a name in the log."""


RETRY_SECONDS: Final = 10
"""By then an address that has failed as often as it may can fail a hundred times more."""


class TooManyFailures(Problem):
    """The address has failed too often; 429."""

    def __init__(self) -> None:
        super().__init__(429, "too many failed logins from this address; try again in a minute")


@attrs.define(eq=False)
class Logins:
    """``has_users`` says whether users of the broker are let in. ``now_seconds`` are since 1970; tests replace it and
    the clock."""

    tokens: AdminTokens | None
    has_users: bool
    now_seconds: Callable[[], float] = time.time
    clock: Clock = attrs.field(factory=SystemClock)
    session_key: bytes = attrs.field(factory=lambda: secrets.token_bytes(32), repr=False)
    attempts: FailedAttempts = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.attempts = FailedAttempts(self.clock)

    @cached_property
    def cookie_name(self) -> str:
        """The name of the session's cookie, another one for each broker of a host."""
        if self.tokens is not None:
            return self.tokens.cookie_name
        return f"trio_broker_{hashlib.sha256(self.session_key).hexdigest()[:8]}"

    # ---- what a request brings

    async def caller(self, request: Request) -> AdminCaller | None:
        """Who asks; None for nobody who is let in. A wrong header is not made up for by a cookie.

        Raises:
            TooManyFailures: nobody looked.
            BrokerStarting: users cannot be known yet.
        """
        if (header := request.headers.get("authorization")) is not None:
            scheme, _, credentials = header.partition(" ")
            return await self._by_header(request, scheme.lower(), credentials.strip())
        try:
            cookie = SimpleCookie(request.headers.get("cookie", "")).get(self.cookie_name)
        except CookieError:
            cookie = None
        caller = None if cookie is None else self._by_session(request, cookie.value)
        if caller is None and self.tokens is None:
            return AdminCaller(principal=ANONYMOUS)
        return caller

    async def _by_header(self, request: Request, scheme: str, credentials: str) -> AdminCaller | None:
        if scheme == "bearer":
            return self.by_token(request, credentials)
        if scheme == "basic" and self.has_users:
            try:
                user, _, password = base64.b64decode(credentials, validate=True).decode().partition(":")
            except ValueError:
                user, password = "", ""
            return await self.by_password(request, user, password)
        return None

    # ---- credentials

    def by_token(self, request: Request, token: str) -> AdminCaller | None:
        """Whom ``token`` opens for.

        Raises:
            TooManyFailures: nobody looked.
        """
        self._require_attempts(request)
        role = None if self.tokens is None else self.tokens.role_of(token)
        if role is None:
            self._note_failure(request, "wrong token")
            return None
        return AdminCaller(role=role)

    async def by_password(self, request: Request, user: str, password: str) -> AdminCaller | None:
        """Whom name and password open for.

        Raises:
            TooManyFailures: nobody looked.
            BrokerStarting: users cannot be known yet.
        """
        self._require_attempts(request)
        authorization = state_of(request).cluster.authorization
        if not user or not password or not self.has_users or not await authorization.is_right(user, password):
            self._note_failure(request, f"no such user or wrong password: {user[:MAX_NAME_CHARACTERS]!r}")
            return None
        return AdminCaller(principal=f"User:{user}")

    def _require_attempts(self, request: Request) -> None:
        if self.attempts.is_exhausted(address_of(request)):
            state_of(request).failed_logins += 1
            raise TooManyFailures

    def _note_failure(self, request: Request, reason: str) -> None:
        address = address_of(request)
        self.attempts.note(address)
        state_of(request).failed_logins += 1
        # As many lines as there may be attempts.
        log.warning("a login from %s was refused: %s", address, reason)

    # ---- sessions

    def new_session(self, request: Request, caller: AdminCaller) -> str:
        """The value of the cookie for a browser that has logged in."""
        if caller.role is not None:
            assert self.tokens is not None, "only a token has a role"
            return self.tokens.new_session(caller.role, self.now_seconds())
        user = caller.principal.partition(":")[2]
        name = base64.urlsafe_b64encode(user.encode()).decode().rstrip("=")
        content = f"{USER_SESSION}.{name}.{int(self.now_seconds()) + SESSION_SECONDS}"
        return f"{content}.{self._signature(request, user, content)}"

    def _by_session(self, request: Request, session: str) -> AdminCaller | None:
        if not session.startswith(f"{USER_SESSION}."):
            role = None if self.tokens is None else self.tokens.session_role(session, self.now_seconds())
            return None if role is None else AdminCaller(role=role)
        content, _, signature = session.rpartition(".")
        try:
            _, name, expires = content.split(".")
            user = base64.urlsafe_b64decode(name + "=" * (-len(name) % 4)).decode()
            is_over = self.now_seconds() >= int(expires)
            sent = signature.encode("ascii")
        except ValueError:
            return None
        if is_over or not hmac.compare_digest(self._signature(request, user, content).encode(), sent):
            return None
        return AdminCaller(principal=f"User:{user}")

    def _signature(self, request: Request, user: str, content: str) -> str:
        mark = state_of(request).cluster.authorization.password_mark(user)
        # Who has no password any more has no session either: the key alone signs nothing.
        key = self.session_key + mark if mark else secrets.token_bytes(32)
        return hmac.new(key, content.encode(), hashlib.sha256).hexdigest()


def address_of(request: Request) -> str:
    """Where a request comes from."""
    return request.client.host if request.client is not None else "somewhere"
