"""Asks for the rights that an API declares, before its handler sees a request.

Without an authorizer nothing here is called: a Dispatcher puts it before the handlers only where there is one.

Source: Kafka's AuthHelper.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from types import CoroutineType, GeneratorType
from typing import Any

import attrs
import trio

from kafka_wire.codec import decode
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import Handler, ServedApi
from trio_broker.handlers.support.rights import ForEach, ForRequest, Right, not_authorized

REFUSED_AT_ONCE = 100
"""Items whose refusals are made on the event loop: each may have many partitions, and their answer is made at once."""

Refused = dict[Right, list[Any]]
"""The items that a client has no right to, by the right that it lacks."""


def authorized_handler(api: ServedApi, limiter: trio.CapacityLimiter) -> Handler:
    """The handler of ``api`` behind what it requires. ``limiter`` is for the threads that make large refusals."""
    requests = [each for each in api.requires if isinstance(each, ForRequest)]
    lists = [each for each in api.requires if isinstance(each, ForEach)]

    def handle(message: Any, context: Context) -> Any:
        for each in requests:
            require_any(each.rights, each.name(message), context)
        return handle_allowed(message, context) if lists else api.handler(message, context)

    def handle_allowed(message: Any, context: Context) -> Steps[Any]:
        """Have what is allowed handled, and join the refusals to the response."""
        refused: list[tuple[ForEach, Right, Any]] = []
        for each in lists:
            for right, items in (yield from take_refused(each, message, context)).items():
                refused.append((each, right, attrs.evolve(message, **{each.items: items})))
        response: Any = None
        # An empty list would be another question, in some requests one about all.
        is_left = not refused or any(getattr(message, each.items) for each in lists)
        if is_left:
            response = api.handler(message, context)
            if isinstance(response, GeneratorType):
                response = yield from response
            elif isinstance(response, CoroutineType):
                response = yield partial(awaited, response)
            if isinstance(response, bytes) and refused:
                response, _ = decode(api.request.RESPONSE, context.version, response)
        for each, right, part in refused:
            refuse = partial(api.error_response, part, not_authorized(right))
            is_large = len(getattr(part, each.items)) > REFUSED_AT_ONCE
            run = context.services.runtime.workers.run
            refusal = (yield partial(run, refuse, limiter=limiter)) if is_large else refuse()
            if response is None and not is_left:
                response, is_left = refusal, True
            elif response is not None:
                getattr(response, each.results).extend(getattr(refusal, each.results))
        return response

    return handle


async def awaited(response: Coroutine[Any, Any, Any]) -> Any:
    return await response


def require_any(rights: Sequence[Right], name: str | None, context: Context) -> None:
    """Raise the refusal of the last of ``rights``, if the client has none of them to the resource ``name``."""
    if name is not None and not any(context.may(right, name, is_audited=right is rights[-1]) for right in rights):
        raise not_authorized(rights[-1])


def take_refused(requirement: ForEach, message: Any, context: Context) -> Steps[Refused]:
    """Take the items out of a request that the client has no right to, and return them."""
    refused: Refused = {}
    if requirement.unless is not None and context.may(requirement.unless, is_audited=False):
        return refused
    image = context.services.metadata_cache.image
    budget = YieldBudget()
    allowed: list[Any] = []
    answers: dict[tuple[Right, str], bool] = {}
    for item in getattr(message, requirement.items) or ():
        right, name = requirement.right_to(item), requirement.name(item, image)
        is_allowed = True
        if right is not None and name is not None:
            if (asked := (right, name)) not in answers:
                answers[asked] = context.may(right, name)
            is_allowed = answers[asked]
        if is_allowed:
            allowed.append(item)
        elif right is not None:
            refused.setdefault(right, []).append(item)
        if budget.is_spent:
            yield budget.renewed
    if refused:
        # In place: the request was decoded for this handler alone.
        setattr(message, requirement.items, allowed)
    return refused
