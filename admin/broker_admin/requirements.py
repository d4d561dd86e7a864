"""What a route needs, declared beside its handler: a role for who has a token, rights for a user of the broker.

::

    @requires(Role.OPERATOR, of_topic(ALTER_TOPIC_CONFIGS))
    @operation(...)
    async def patch(request: Request) -> Response:

A caller with a token needs the role or a higher one. For a user the authorizer is asked for each of the rights, which
are those of Kafka's API that does the same. ``routing.Route`` asks before the handler; what depends on the body, and
what a list leaves out, the handler asks itself (``in_handler``). A route without a declaration cannot be made, and
``docs/admin-rights.md`` is written from the declarations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

import attrs
import trio
from starlette.requests import Request
from starlette.types import Scope

from broker_admin.app_state import cluster_of
from broker_admin.callers import caller_in
from broker_admin.problems import LoginNeeded, Problem
from broker_admin.tokens import Role
from kafka_wire.acl import CLUSTER_NAME
from trio_broker.common.topic_names import CLUSTER_METADATA_TOPIC
from trio_broker.handlers.support.rights import CLUSTER_ACTION, Right

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")

ACCESS_KEYS: Final = re.compile(r"(^|\.)(sasl|ssl)\.|^alerts\.webhook\.")
"""Keys of the logins of clients, of all listeners or of one; and where to the broker itself sends a credential."""

ITEMS_AT_ONCE: Final = 500
"""Of a list, between which the event loop goes on: some microseconds each."""


@attrs.frozen
class Demand:
    """Any of ``rights`` to the resource that ``name`` finds in a request, None in one that this is not about.

    Without ``name`` the handler asks. ``note`` says of what, or what becomes of it.
    """

    rights: tuple[Right, ...]
    name: Callable[[Request], str | None] | None = None
    note: str = ""


@attrs.frozen
class Requirement:
    """What a handler needs. Without a role it is open to everybody who is let in."""

    role: Role | None
    demands: tuple[Demand, ...]


ROUTE_IN_SCOPE: Final = "trio_broker.route"
"""The key in the ASGI scope of the path of the route, without what callers put into it."""

ASKED_IN_SCOPE: Final = "trio_broker.asked"
"""The key in the ASGI scope of the Requirement that the caller was asked for."""

REQUIREMENTS: Final[dict[Callable[..., Any], Requirement]] = {}
"""The requirement of each handler."""


def is_about_access(key: str) -> bool:
    """Whether a key says who may log in, or who gets a credential: an operator would make itself another user."""
    return ACCESS_KEYS.search(key) is not None


def requires(role: Role, *demands: Demand) -> Callable[[C], C]:
    """Declare what the decorated handler needs."""
    assert demands, "a user of the broker would need nothing"
    return declaring(Requirement(role, demands))


def open_to_all(function: C) -> C:
    """Declare that the decorated handler needs nothing: it shows nothing of the broker, or only whether it serves."""
    return declaring(Requirement(None, ()))(function)


def declaring(requirement: Requirement) -> Callable[[C], C]:
    def note(function: C) -> C:
        REQUIREMENTS[function] = requirement
        return function

    return note


# ---- what requests name


def of_cluster(*rights: Right) -> Demand:
    return Demand(rights, lambda request: CLUSTER_NAME)


def of_topic(right: Right) -> Demand:
    return Demand((right,), lambda request: str(request.path_params["topic"]))


def of_metadata_log() -> Demand:
    """What Kafka asks who fetches the metadata log, which is among the topics here."""

    def name(request: Request) -> str | None:
        return CLUSTER_NAME if request.path_params["topic"] == CLUSTER_METADATA_TOPIC else None

    return Demand((CLUSTER_ACTION,), name, "of the metadata log")


def of_group(right: Right) -> Demand:
    return Demand((right,), lambda request: id_in(request, "group_id"))


def of_transactional_id(right: Right) -> Demand:
    return Demand((right,), lambda request: id_in(request, "transactional_id"))


def in_handler(*rights: Right, note: str = "") -> Demand:
    """Of what only the body names."""
    return Demand(rights, None, note)


def left_out(*rights: Right) -> Demand:
    """Of a list, whose handler leaves out what the caller has none of ``rights`` to."""
    return Demand(rights, None, "left out")


def id_in(request: Request, name: str) -> str:
    """An id of any characters: in the query, where no path can carry it, or in the path."""
    return str(request.query_params.get("id", request.path_params[name]))


# ---- asking


def require_allowed(request: Request, requirement: Requirement) -> None:
    """Refuse a caller that lacks the role, or one of the rights whose resource the request names.

    Raises:
        Problem: 403.
    """
    request.scope[ASKED_IN_SCOPE] = requirement
    caller = caller_in(request.scope)
    if caller is None or requirement.role is None:
        return
    require_role(request, requirement.role)
    for demand in requirement.demands:
        if demand.name is not None and (name := demand.name(request)) is not None:
            require_any(request, demand.rights, name)


def is_still_allowed(scope: Scope) -> bool:
    """Whether the caller may still do what it was let in for: a stream outlives many a right."""
    try:
        if (requirement := scope.get(ASKED_IN_SCOPE)) is not None:
            require_allowed(Request(scope), requirement)
    except Problem:
        return False
    return True


def require(request: Request, right: Right, name: str = CLUSTER_NAME) -> None:
    """As ``require_any`` of one right."""
    require_any(request, (right,), name)


def require_any(request: Request, rights: Sequence[Right], name: str) -> None:
    """Refuse a user of the broker who has none of ``rights`` to the resource ``name``; others were asked for a role.

    Raises:
        Problem: 403, which does not say whether there is such a resource.
    """
    if not any(may(request, right, name, is_audited=right is rights[-1]) for right in rights):
        caller = caller_in(request.scope)
        if caller is not None and caller.is_anonymous:
            raise LoginNeeded
        raise Problem(403, f"not authorized: {rights[-1]} {name[:250]!r}")


def require_role(request: Request, role: Role) -> None:
    """Refuse a token whose role is not ``role`` or a higher one, where only a part of what a route takes needs it.

    Raises:
        Problem: 403.
    """
    caller = caller_in(request.scope)
    if caller is not None and caller.role is not None and not caller.role.includes(role):
        raise Problem(403, f"this needs the role {role.value}, and the token is that of {caller.role.value}")


def is_judged(request: Request) -> bool:
    """Whether the authorizer says what the caller may do."""
    caller = caller_in(request.scope)
    return caller is not None and caller.is_judged


def may(request: Request, right: Right, name: str = CLUSTER_NAME, *, is_audited: bool = False) -> bool:
    """Whether the caller has a right; who has a token has all that its role has been asked for."""
    caller = caller_in(request.scope)
    if caller is None or not caller.is_judged:
        return True
    host = request.client.host if request.client is not None else ""
    asked_for = f"{request.method} {request_address(request)}" if is_audited else ""
    return cluster_of(request).authorization.may(caller.principal, host, right, name, asked_for=asked_for)


def request_address(request: Request) -> str:
    """The address that a request is for: there are few."""
    route = request.scope.get(ROUTE_IN_SCOPE)
    return "the admin app" if route is None else str(route)


async def visible(request: Request, right: Right, items: Iterable[T], name_of: Callable[[T], str]) -> Sequence[T]:
    """Those of ``items`` to whose resource the caller has ``right``; the others it does not learn of."""
    if not is_judged(request):
        return items if isinstance(items, Sequence) else list(items)
    return await kept(items, lambda item: may(request, right, name_of(item)))


async def kept(items: Iterable[T], keeps: Callable[[T], bool]) -> Sequence[T]:
    """Those of ``items`` that ``keeps`` says yes to, found in turns."""
    found = []
    for number, item in enumerate(items, 1):
        if keeps(item):
            found.append(item)
        if number % ITEMS_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    return found
