"""Routes that are more than a path: below the address of one broker, and for ids that may hold anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPMethod
from typing import Any
from urllib.parse import unquote

import attrs
from starlette import routing
from starlette.requests import Request
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from broker_admin.app_state import state_of
from broker_admin.event_stream import EventStream, require_room
from broker_admin.forwarding import ASKED_THROUGH, ForwardedStream, forward, head_of
from broker_admin.problems import Problem
from broker_admin.requirements import REQUIREMENTS, ROUTE_IN_SCOPE, Requirement, require_allowed
from broker_admin.structuring import number_in_path, shown

NO_SUCH_BROKER = "there is no such broker"
"""What each address below that of a broker may answer with 404."""


ANY_METHOD = ""
"""Of a function, which answers each of the methods that its route takes."""


class Route(routing.Route):
    """A Route of Starlette's that asks for what its handler requires (``requirements.py``) before it answers, or has
    another broker answer, which does not ask again.

    Raises:
        Problem: 403.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], *, methods: list[str] | None = None) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.requirements = requirements_of(endpoint)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        requirement = self.requirements.get(ANY_METHOD) or self.requirements.get(method)
        scope[ROUTE_IN_SCOPE] = self.path
        # Another method is refused with those that there are, without asking for a right.
        is_answered = not self.methods or method in self.methods
        if requirement is not None and is_answered and ASKED_THROUGH not in scope:
            require_allowed(Request(scope), requirement)
        await self.answer(scope, receive, send)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have the handler answer, or another broker."""
        await super().handle(scope, receive, send)


def requirements_of(endpoint: Callable[..., Any]) -> Mapping[str, Requirement]:
    """What a function requires, under ``ANY_METHOD``, or each method of a class.

    Raises:
        KeyError: a handler has no declaration.
    """
    if not isinstance(endpoint, type):
        return {ANY_METHOD: REQUIREMENTS[getattr(endpoint, "func", endpoint)]}
    handlers = {method.value: getattr(endpoint, method.lower(), None) for method in HTTPMethod}
    return {method: REQUIREMENTS[handler] for method, handler in handlers.items() if handler is not None}


class NodeRoute(Route):
    """A Route below the address of one broker, which answers it, whichever broker is asked.

    Raises:
        Problem: 404, there is no such broker; 502, it does not answer.
    """

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        state, asked = state_of(request), request.path_params["broker_id"]
        if asked == str(state.broker_id):
            await super().answer(scope, receive, send)
            return
        others = () if state.start is not None else state.cluster.peers.broker_ids()
        if asked not in map(str, others):
            known = ", ".join(map(str, sorted((state.broker_id, *others))))
            raise Problem(404, f"there is no broker {shown(asked)}; the brokers of this cluster are: {known}")
        await self.forward(int(asked), scope, receive, send)

    async def forward(self, broker_id: int, scope: Scope, receive: Receive, send: Send) -> None:
        """Have another broker answer."""
        await forward_to(broker_id, scope, receive, send)


class NodeStreamRoute(NodeRoute):
    """As ``NodeRoute``, of a stream, which is passed on in pieces."""

    async def forward(self, broker_id: int, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        state = state_of(request)
        require_room(state)
        # A piece has a body, whichever method asks for the stream.
        head = attrs.evolve(head_of(request, state.broker_id), method="GET")
        stream = ForwardedStream(state.cluster.peers, broker_id, head)
        beginning = await stream.next_piece()
        await EventStream(state, partial(stream.send, beginning))(scope, receive, send)


class LeaderRoute(Route):
    """A Route that is about one partition, which its leader answers; that of nobody is answered here.

    Raises:
        Problem: 502, the leader does not answer.
    """

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        partition, topics = number_in_path(request.path_params["partition"]), state_of(request).cluster.topics
        leader = None if partition is None else topics.leader(request.path_params["topic"], partition)
        await answer_at(leader, super().answer, scope, receive, send)


class ControllerRoute(Route):
    """A Route whose changes the controller makes, which answers them; what is read, any broker answers.

    Raises:
        Problem: 502, the controller does not answer.
    """

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        is_change = request.method not in ("GET", "HEAD")
        controller = state_of(request).cluster.access.controller_id() if is_change else None
        await answer_at(controller, super().answer, scope, receive, send)


class RawPathRoute(Route):
    """A Route that is matched against the path as it was sent, so that ``%2F`` is not yet a slash."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        raw_path = scope.get("raw_path")
        sent = raw_path.decode("latin-1") if raw_path is not None else scope.get("path", "")
        match, child_scope = super().matches({**scope, "path": sent})
        if match is not Match.NONE:
            child_scope["path_params"] = {name: unquote(value) for name, value in child_scope["path_params"].items()}
        return match, child_scope


class GroupRoute(RawPathRoute):
    """A Route that is about one group, which its coordinator answers.

    Raises:
        Problem: 502, the coordinator does not answer.
    """

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        groups, group_id = state_of(request).cluster.groups, group_id_of(request)
        # A group that is not there yet may be created by a reset of its offsets.
        creates = request.method == "POST" and request.query_params.get("dry_run") != "true"
        coordinator = await groups.find_coordinator(group_id) if creates else groups.coordinator(group_id)
        await answer_at(coordinator, super().answer, scope, receive, send)


class TransactionRoute(RawPathRoute):
    """A Route that is about one transactional id, which its coordinator answers.

    Raises:
        Problem: 502, the coordinator does not answer.
    """

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        coordinator = state_of(request).cluster.transactions.coordinator(transactional_id_of(request))
        await answer_at(coordinator, super().answer, scope, receive, send)


def broker_id_of(request: Request) -> int:
    """The broker that a request is about, which any may answer.

    Raises:
        Problem: 404, that is no id.
    """
    broker_id = number_in_path(request.path_params["broker_id"])
    if broker_id is None:
        raise Problem(404, f"there is no broker {shown(request.path_params['broker_id'])}")
    return broker_id


def group_id_of(request: Request) -> str:
    """The group that a request is about."""
    return str(request.query_params.get("id", request.path_params["group_id"]))


def transactional_id_of(request: Request) -> str:
    """The transactional id that a request is about."""
    return str(request.query_params.get("id", request.path_params["transactional_id"]))


async def answer_at(broker_id: int | None, here: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer by ``broker_id``, or ``here`` if that is this broker or nobody. What was passed on once is answered."""
    own = state_of(Request(scope)).broker_id
    if broker_id is None or broker_id == own or ASKED_THROUGH in scope:
        await here(scope, receive, send)
    else:
        await forward_to(broker_id, scope, receive, send)


async def forward_to(broker_id: int, scope: Scope, receive: Receive, send: Send) -> None:
    """Have another broker answer.

    Raises:
        Problem: 502: it does not.
    """
    state = state_of(Request(scope))
    await forward(scope, receive, send, peers=state.cluster.peers, broker_id=broker_id, own_id=state.broker_id)
