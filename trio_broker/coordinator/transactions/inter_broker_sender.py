"""What transactions send to other brokers: in batches, one request to each broker at a time.

What comes while a request is under way goes with the next one, so that a thousand transactions a second are not a
thousand requests.

Source: Kafka's InterBrokerSendThread, TransactionMarkerChannelManager and AddPartitionsToTxnManager, which queue by
broker in this way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import attrs
import trio

from trio_broker.cluster.broker_clients import BrokerClients
from trio_broker.concurrency.barrier import start_once
from trio_broker.network.errors import RequestFailed, RequestNotSent, ResponseLost
from trio_broker.network.network_client import NetworkClient

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

REQUEST_TIMEOUT_SECONDS: Final = 30.0
"""How long another broker may take to answer: Kafka's ``request.timeout.ms`` between brokers."""

MAX_ITEMS_PER_REQUEST: Final = 1000
"""Of a batch: the other broker answers a request only when all of it is done, and none should wait for too many."""


@attrs.define(eq=False)
class SentItem(Generic[ItemT, ResultT]):
    """An item on its way, and what came of it."""

    item: ItemT
    _completed: trio.Event = attrs.field(factory=trio.Event, init=False)
    _outcome: ResultT | RequestFailed | None = attrs.field(default=None, init=False)

    def complete(self, outcome: ResultT | RequestFailed) -> None:
        if not self._completed.is_set():
            self._outcome = outcome
            self._completed.set()

    async def result(self) -> ResultT:
        """Wait for the answer of the other broker.

        Raises:
            RequestFailed: there is none.
        """
        await self._completed.wait()
        if isinstance(self._outcome, RequestFailed):
            raise self._outcome
        return self._outcome  # type: ignore[return-value]  # which is set with the event


@attrs.define(eq=False)
class InterBrokerSender(Generic[ItemT, ResultT]):
    """``exchange`` sends a batch to a broker and returns the results in its order. No two items of a batch have the
    same ``key``. ``run`` is a task of the owner, without which nothing is sent."""

    name: str
    clients: BrokerClients
    exchange: Callable[[NetworkClient, Sequence[ItemT]], Awaitable[Sequence[ResultT]]]
    key: Callable[[ItemT], Hashable]
    _waiting: dict[int, list[SentItem[ItemT, ResultT]]] = attrs.field(factory=dict, init=False)
    """By broker to which something is under way: what goes next."""
    _nursery: trio.Nursery | None = attrs.field(default=None, init=False)

    async def run(self) -> None:
        """Send until cancelled."""
        try:
            async with trio.open_nursery() as self._nursery:
                await self.clients.run()
        finally:
            self._nursery = None

    def send(self, broker_id: int, item: ItemT) -> SentItem[ItemT, ResultT]:
        """Have ``item`` sent to a broker."""
        sent: SentItem[ItemT, ResultT] = SentItem(item)
        if (waiting := self._waiting.get(broker_id)) is not None:
            waiting.append(sent)
        elif self._nursery is None:
            sent.complete(RequestNotSent(f"{self.name}: nothing is sent to broker {broker_id} as yet, or any more"))
        else:
            self._waiting[broker_id] = [sent]
            start_once(self._nursery, f"{self.name} to broker {broker_id}", partial(self._send_all, broker_id))
        return sent

    async def _send_all(self, broker_id: int) -> None:
        batch: list[SentItem[ItemT, ResultT]] = []
        try:
            while self._waiting[broker_id]:
                batch = self._next_batch(broker_id)
                await self._send_batch(broker_id, batch)
        finally:
            for sent in (*batch, *self._waiting.pop(broker_id)):
                sent.complete(ResponseLost(f"{self.name}: what was sent to broker {broker_id} has come to nothing"))

    def _next_batch(self, broker_id: int) -> list[SentItem[ItemT, ResultT]]:
        waiting, batch = self._waiting[broker_id], dict[Hashable, SentItem[ItemT, ResultT]]()
        for sent in waiting:
            if len(batch) < MAX_ITEMS_PER_REQUEST:
                batch.setdefault(self.key(sent.item), sent)
        chosen = set(batch.values())
        self._waiting[broker_id] = [sent for sent in waiting if sent not in chosen]
        return list(batch.values())

    async def _send_batch(self, broker_id: int, batch: Sequence[SentItem[ItemT, ResultT]]) -> None:
        try:
            results = await self.exchange(self.clients.client(broker_id), [sent.item for sent in batch])
        except RequestFailed as error:
            for sent in batch:
                # Each its own: an exception that is raised twice collects the tracebacks of both.
                sent.complete(type(error)(str(error)))
        else:
            for sent, result in zip(batch, results, strict=True):
                sent.complete(result)
