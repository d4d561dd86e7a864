"""The registry of handlers: which function answers which API, in which versions.

``@handles(ProduceRequest, …)`` stands next to the code that honours it, and ApiVersions, ``docs/apis.md`` and the check
of every received header read this registry, so they cannot differ from what is served. An API without a handler is
neither advertised nor accepted: clients work around a missing API, and fail with one that is answered incompletely.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import attrs

from kafka_wire.apis import ApiKey
from kafka_wire.errors import KafkaError
from kafka_wire.primitives import Chunk
from kafka_wire.schema import Request, VersionRange
from trio_broker import handlers
from trio_broker.concurrency.steps import Steps
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.rights import Requirement, Right, rights_of

A = TypeVar("A")
ResponseOf: TypeAlias = A | bytes | list[Chunk] | None
"""None for silence. Bytes are the body of a response without errors, encoded in the version of the request: the most
frequent requests have answers that differ by a few numbers. So is a list, for an API whose answers hold regions of
files; it is returned only where no quota bounds the client."""
HandlerOf = Callable[[Any, Context], ResponseOf[A] | Steps[ResponseOf[A]] | Coroutine[Any, Any, ResponseOf[A]]]
Handler = HandlerOf[Any]
"""Returns the response; where that may have to wait, steps or a coroutine that give it.

Steps are begun in the turn in which the request was read, and need a task only from their first wait on, so the most
frequent requests have them; a coroutine is the plain way.
"""
Refusal = Callable[[Any, KafkaError], Any]


@attrs.frozen
class LocalPart:
    """What of a request is for the broker that is asked, and not for the controller."""

    split: Callable[[Any, Context], Awaitable[tuple[Any | None, Any | None]]]
    """Splits a request into this broker's part and the controller's; the latter is the request itself where that is
    all of it."""
    join: Callable[[Any, Any], Any]
    """Joins the responses to both parts."""


@attrs.frozen
class ServedApi:
    """One API as this broker serves it.

    ``by_controller``: only the controller answers it, to which other brokers send it on, but for its ``local_part``.
    ``between_brokers``: only brokers may ask it, so it is advertised and let in on their listener alone. What is both
    is not sent on: the broker that asks looks for the controller by itself.

    ``advertised`` may begin lower than ``versions``: Produce says 0 and serves from 3, because librdkafka before 2.11.1
    does not compress unless Produce v0 is advertised (KAFKA-18659). ``error_response`` builds the response that
    refuses a whole request with one error code, at each level where that API has room for one. ``requires`` is what a
    client has to have a right to, where there is an authorizer.
    """

    api_key: ApiKey
    request: type[Request[Any]]
    handler: Handler
    error_response: Refusal
    versions: VersionRange
    advertised: VersionRange
    by_controller: bool = False
    local_part: LocalPart | None = None
    between_brokers: bool = False
    requires: tuple[Requirement, ...] = ()

    @property
    def rights(self) -> frozenset[Right]:
        """All that a client may be asked for."""
        return frozenset(right for each in self.requires for right in rights_of(each))


_registry: dict[int, ServedApi] = {}


def handles(
    kind: type[Request[A]],
    *,
    error_response: Callable[[Any, KafkaError], A],
    requires: Sequence[Requirement],
    advertised_from: int | None = None,
    by_controller: bool = False,
    local_part: LocalPart | None = None,
    between_brokers: bool = False,
) -> Callable[[HandlerOf[A]], HandlerOf[A]]:
    """Register the decorated function as the one that answers ``kind``, in every version the message has."""

    def register(handler: HandlerOf[A]) -> HandlerOf[A]:
        api_key = ApiKey(kind.API_KEY)
        assert api_key not in _registry, f"{api_key.name} has a handler already: {_registry[api_key].handler}"
        # Registration happens at import, so a second handler of an API is found when the broker starts.
        low = kind.VERSIONS.low if advertised_from is None else advertised_from
        _registry[api_key] = ServedApi(
            api_key=api_key,
            request=kind,
            handler=handler,
            error_response=error_response,
            versions=kind.VERSIONS,
            advertised=VersionRange(low, kind.VERSIONS.high),
            by_controller=by_controller,
            local_part=local_part,
            between_brokers=between_brokers,
            requires=tuple(requires),
        )
        return handler

    return register


def handler_modules() -> Iterable[str]:
    """The modules of the package, each of which answers one API."""
    modules = pkgutil.iter_modules(handlers.__path__)
    return sorted(f"{handlers.__name__}.{module.name}" for module in modules if not module.ispkg)


@functools.cache
def served_apis() -> Mapping[int, ServedApi]:
    """Every API that has a handler, by key. Imports the handlers on the first call."""
    for name in handler_modules():
        importlib.import_module(name)
    return _registry


def advertised_apis(*, to_brokers: bool) -> list[ServedApi]:
    """What is advertised on the listener of brokers, or on any other."""
    return [api for api in served_apis().values() if to_brokers or not api.between_brokers]


def is_served(api_key: int, version: int) -> bool:
    """Whether a request of this API and version has a handler. The handlers must have been imported."""
    api = _registry.get(api_key)
    return api is not None and api.versions.low <= version <= api.versions.high
