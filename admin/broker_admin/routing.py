"""Routes that are more than a path: below the address of one broker, and for ids that may hold anything."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.requests import Request
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from broker_admin.app_state import state_of
from broker_admin.problems import Problem
from broker_admin.structuring import shown

NO_SUCH_BROKER = "there is no such broker"
"""What each address below that of a broker may answer with 404."""


class NodeRoute(Route):
    """A Route below the address of one broker, which is to be the one that serves it.

    Raises:
        Problem: 404, the address names another broker.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        own, asked = state_of(request).broker_id, request.path_params["broker_id"]
        if asked != str(own):
            raise Problem(404, f"there is no broker {shown(asked)}; the brokers of this cluster are: {own}")
        await super().handle(scope, receive, send)


class RawPathRoute(Route):
    """A Route that is matched against the path as it was sent, so that ``%2F`` is not yet a slash."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        raw_path = scope.get("raw_path")
        sent = raw_path.decode("latin-1") if raw_path is not None else scope.get("path", "")
        match, child_scope = super().matches({**scope, "path": sent})
        if match is not Match.NONE:
            child_scope["path_params"] = {name: unquote(value) for name, value in child_scope["path_params"].items()}
        return match, child_scope
