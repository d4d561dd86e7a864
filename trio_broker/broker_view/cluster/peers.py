"""The other brokers of the cluster, for the admin app: asked over the listener of brokers, in Envelopes.

Several are asked at once, each for some seconds at the most; one that does not answer costs nothing but its own part of
what is shown, which says so.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import attrs
import trio

from broker_admin.encoding import converter
from broker_admin.forwarded_requests import AnsweredHead, decoded, question
from broker_admin.views.cluster.peers import PeerUnavailable
from kafka_wire.error_codes import ErrorCode
from trio_broker.changes.audit_context import CALLER
from trio_broker.cluster.envelopes import enveloped_admin
from trio_broker.concurrency.barrier import start_once
from trio_broker.handlers.support.services import BrokerServices
from trio_broker.network.errors import RequestFailed

T = TypeVar("T")

PEER_SECONDS: Final = 5.0
"""How long another broker may take: half of what a page waits for its own, and more than any report takes."""

PEERS_AT_ONCE: Final = 16
"""Brokers that are asked at a time for one report."""

OK: Final = 200


@attrs.frozen
class PeerAnswers(Generic[T]):
    """What other brokers have answered, by their ids, and why the ``missing`` ones have not."""

    values: Mapping[int, T] = attrs.field(factory=dict)
    missing: Mapping[int, str] = attrs.field(factory=dict)


class LivePeersView:
    """The part of the admin app's view that asks other brokers."""

    def __init__(self, services: BrokerServices) -> None:
        self.services = services
        self._silent: dict[int, str] = {}

    @property
    def own_id(self) -> int:
        return self.services.node.node_id

    def broker_ids(self) -> Sequence[int]:
        registered = self.services.metadata_cache.image.brokers
        return sorted(each for each in registered if each != self.own_id)

    def silent(self) -> Mapping[int, str]:
        registered = self.services.metadata_cache.image.brokers
        return {broker_id: reason for broker_id, reason in sorted(self._silent.items()) if broker_id in registered}

    async def ask(self, broker_id: int, question: bytes) -> bytes:
        try:
            answer = await self._ask(broker_id, question)
        except PeerUnavailable as error:
            self._silent[broker_id] = str(error)
            raise
        self._silent.pop(broker_id, None)
        return answer

    async def _ask(self, broker_id: int, question: bytes) -> bytes:
        clients = self.services.broker_clients
        if clients is None:
            raise PeerUnavailable("this broker is alone")
        broker = self.services.metadata_cache.image.brokers.get(broker_id)
        if broker is None or broker.fenced:
            raise PeerUnavailable("it is not registered" if broker is None else "it is fenced: out of contact")
        try:
            response = await clients.client(broker_id).send(enveloped_admin(question), timeout_seconds=PEER_SECONDS)
        except RequestFailed as error:
            raise PeerUnavailable(str(error)) from None
        if response.error_code != ErrorCode.NONE or response.response_data is None:
            raise PeerUnavailable("it has no admin app: its admin.listener is empty, or it is starting")
        return bytes(response.response_data)

    async def fetch(self, broker_id: int, path: str, kind: type[T], *, method: str = "GET", body: bytes = b"") -> T:
        """Return the JSON at ``path`` of another broker, as an instance of the attrs class ``kind``.

        Raises:
            PeerUnavailable: it does not answer, or answers with a problem.
        """
        asked_by = CALLER.get().change_origin
        asked = question(path, asked_through=self.own_id, asked_by=asked_by, method=method, body=body)
        answer = await self.ask(broker_id, asked)
        # Reports of thousands of topics take long to read.
        return await self.services.runtime.workers.run(partial(structured, answer, kind))

    async def fetch_each(self, path: str, kind: type[T], broker_ids: Collection[int] | None = None) -> PeerAnswers[T]:
        """``fetch`` from all other brokers, or those named; ``{broker_id}`` in ``path`` is the one that is asked."""
        values: dict[int, T] = {}
        missing: dict[int, str] = {}
        limiter = trio.CapacityLimiter(PEERS_AT_ONCE)

        async def fetch(broker_id: int) -> None:
            async with limiter:
                try:
                    values[broker_id] = await self.fetch(broker_id, path.replace("{broker_id}", str(broker_id)), kind)
                except PeerUnavailable as error:
                    missing[broker_id] = str(error)

        async with trio.open_nursery() as nursery:
            for broker_id in self.broker_ids() if broker_ids is None else broker_ids:
                if broker_id != self.own_id:
                    start_once(nursery, f"question to broker {broker_id}", partial(fetch, broker_id))
        return PeerAnswers(values, missing)


def structured(answer: bytes, kind: type[T]) -> T:
    """What another broker has answered.

    Raises:
        PeerUnavailable: a problem.
    """
    head, body = decoded(AnsweredHead, answer)
    value = json.loads(body)
    if head.status != OK:
        raise PeerUnavailable(str(value.get("detail", f"status {head.status}")))
    return converter.structure(value, kind)
