"""The queue between the Processors and the handlers, and what travels through it.

``queued.max.requests`` bounds it. A request that finds it full waits beside it, one at most for each connection, and
the connection is not read meanwhile: TCP tells the client. That is the whole of the backpressure. The capacity may be
changed live, which a Trio memory channel cannot do.

Promises: first in, first out; a request that was sent is received exactly once, unless it is withdrawn while it waits
for room.

Source: Kafka's RequestChannel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import attrs

from kafka_wire.headers import RequestHeader
from kafka_wire.primitives import Chunk
from trio_broker.common.request_phase import RequestPhase
from trio_broker.network.client_activity import ClientActivity
from trio_broker.network.errors import CloseConnection
from trio_broker.network.request_metrics import RequestChannelMetrics, RequestWaits
from trio_broker.network.statistics import RequestChannelStatistics
from trio_broker.runtime.measurement import perf_counter_ns
from trio_broker.security.kafka_principal import ANONYMOUS, KafkaPrincipal

Answer = Sequence[Chunk] | None
"""Chunks of one response, its header included and its size prefix not, or None for silence (``acks=0``)."""

Reply = Answer | CloseConnection
"""The result of a request: its answer, or the reason why its connection ends."""


@attrs.frozen
class ConnectionInfo:
    """The addresses of both ends, and the listener that accepted the connection.

    Of a request that another broker forwards the peer is its client, by the word of that broker, whose address is
    ``forwarded_by``.
    """

    connection_id: int
    listener_name: str
    peer_host: str
    peer_port: int
    local_host: str
    local_port: int
    forwarded_by: str = ""

    @property
    def client_address(self) -> str:
        """The address of the client, and of the broker whose word it is."""
        return f"{self.peer_host} by {self.forwarded_by}" if self.forwarded_by else self.peer_host

    def __str__(self) -> str:
        return f"{self.listener_name}://{self.client_address}:{self.peer_port}#{self.connection_id}"


class ReplyTarget(Protocol):
    """Who sent a request, and takes its reply."""

    @property
    def is_closed(self) -> bool:
        """Whether the connection has ended, so that its reply will be dropped."""
        ...

    @property
    def has_more(self) -> bool:
        """Whether its sender has sent more behind it."""
        ...

    def respond(self, request: QueuedRequest, reply: Reply) -> None:
        """Send ``reply`` to ``request`` behind those to the requests before it; each is replied to once."""
        ...

    def unmute(self, request: QueuedRequest) -> None:
        """Read what is behind ``request``, which is not answered yet."""
        ...


class NoReplyTarget:
    """The target of a request that came over no connection: its handler's answer goes elsewhere."""

    is_closed = has_more = False

    def respond(self, request: QueuedRequest, reply: Reply) -> None:
        """Drop the reply."""

    def unmute(self, request: QueuedRequest) -> None:
        """There is nothing behind it."""


NO_REPLY_TARGET = NoReplyTarget()


def no_slot() -> None:
    """The ``release_slot`` of a request that no handler slot holds."""


@attrs.define(eq=False)
class QueuedRequest:
    """One request on its way to a handler.

    ``body`` is what follows the header in the frame, and stays valid until the request is answered. ``queued_ns`` is
    the performance counter when the frame was whole, ``began_ns`` when its handler began, ``answered_ns`` when that
    ended. ``principal`` is who has sent it, also when another one logs in later. ``waits`` is what it waited in
    between without a slot. ``is_blocked`` says that the queue has no room for it. ``is_muting`` says that its
    connection is not read on until it is answered; ``reply`` is its answer once ``is_replied``. ``memory_bytes`` is
    what it holds of ``queued.max.request.bytes`` until then, even if the connection ends before.

    ``throttle_seconds`` is how long its connection is not read after the answer. ``is_exempt`` says that it counts to
    no quota, ``is_measured`` that the time it takes does.
    """

    header: RequestHeader
    body: memoryview
    connection: ConnectionInfo
    client: ClientActivity = attrs.field(factory=ClientActivity)
    reply_target: ReplyTarget = NO_REPLY_TARGET
    queued_ns: int = attrs.field(factory=perf_counter_ns)
    principal: KafkaPrincipal = ANONYMOUS
    began_ns: int = 0
    answered_ns: int = 0
    waits: RequestWaits | None = None
    release_slot: Callable[[], None] = no_slot
    is_blocked: bool = False
    is_muting: bool = True
    is_replied: bool = False
    reply: Reply = None
    memory_bytes: int = 0
    throttle_seconds: float = 0.0
    is_exempt: bool = False
    is_measured: bool = False
    _notify_abandoned: Callable[[], object] | None = attrs.field(default=None, init=False)
    _notify_followed: Callable[[], object] | None = attrs.field(default=None, init=False)

    @property
    def is_abandoned(self) -> bool:
        """Whether the client has gone, so that the answer will be dropped."""
        return self.reply_target.is_closed

    @property
    def quota_client(self) -> tuple[str, str]:
        """Whom its quotas are of: the user and the client id."""
        return self.principal.name, self.header.client_id or ""

    @property
    def handled_ns(self) -> int:
        """How long it was handled, without its waits; valid once it is answered."""
        waited_ns = 0 if self.waits is None else self.waits.disk_ns + self.waits.purgatory_ns
        return self.answered_ns - self.began_ns - waited_ns

    def when_abandoned(self, notify: Callable[[], object]) -> None:
        """Have ``notify`` called if the client goes before it is answered; at once if it has gone."""
        self._notify_abandoned = notify
        if self.is_abandoned:
            self.abandon()

    def abandon(self) -> None:
        """The client has gone."""
        if self._notify_abandoned is not None:
            self._notify_abandoned()

    def when_followed(self, notify: Callable[[], object]) -> None:
        """Have ``notify`` called when the client sends more before it is answered; at once if it has."""
        self._notify_followed = notify
        if self.reply_target.has_more:
            self.followed()

    def followed(self) -> None:
        """The client has sent more."""
        if self._notify_followed is not None:
            self._notify_followed()

    def unmute(self) -> None:
        """Let the next request of its connection be read, and handled if it is of the same API, before this one is
        answered: what orders the two is done, and only the answer waits."""
        self.reply_target.unmute(self)

    def release_handler(self, phase: RequestPhase = RequestPhase.PURGATORY) -> None:
        """Give the handler slot back before a wait, which ``phase`` names; the handler goes on without one.

        Each wait is announced, also a later one, which has no slot to give back. What the handler does after a wait
        counts to it.
        """
        if self.waits is None:
            self.waits = RequestWaits(phase, perf_counter_ns())
        else:
            self.waits.next_phase(phase, perf_counter_ns())
        self.release_slot()


class RequestChannel:
    """A bounded queue of requests with a capacity that may change while it is in use."""

    def __init__(self, capacity: int) -> None:
        assert capacity >= 1, f"a channel of capacity {capacity} would let nothing through"
        self.metrics = RequestChannelMetrics()
        self._capacity = capacity
        self._queue: deque[QueuedRequest] = deque()
        self._blocked: dict[QueuedRequest, None] = {}
        self._peak_depth = 0
        self._recent_peak = 0
        self._interval_peak = 0

    @property
    def capacity(self) -> int:
        """How many requests may wait here, beside those that handlers hold."""
        return self._capacity

    @capacity.setter
    def capacity(self, capacity: int) -> None:
        assert capacity >= 1, f"a channel of capacity {capacity} would let nothing through"
        self._capacity = capacity
        self._admit_blocked()

    def send(self, request: QueuedRequest) -> None:
        """Queue ``request``; it waits for room where there is none."""
        if len(self._queue) < self._capacity:
            self._append(request)
        else:
            request.is_blocked = True
            self._blocked[request] = None

    def withdraw(self, request: QueuedRequest) -> bool:
        """Forget ``request``, whose connection has ended, if it waits for room; whether it did."""
        if not request.is_blocked:
            return False
        del self._blocked[request]
        return True

    def receive(self) -> QueuedRequest | None:
        """Take the oldest request, None if there is none."""
        if not self._queue:
            return None
        request = self._queue.popleft()
        self._admit_blocked()
        return request

    def roll_peak(self) -> None:
        """Close an interval of ``recent_peak_depth``; called once per sample."""
        self._recent_peak = self._interval_peak
        self._interval_peak = len(self._queue)

    def statistics(self) -> RequestChannelStatistics:
        return RequestChannelStatistics(
            depth=len(self._queue),
            capacity=self._capacity,
            peak_depth=self._peak_depth,
            recent_peak_depth=max(self._recent_peak, self._interval_peak),
            senders_waiting=len(self._blocked),
        )

    def _admit_blocked(self) -> None:
        """Queue the requests that wait for room, oldest first, while there is some."""
        while self._blocked and len(self._queue) < self._capacity:
            request = next(iter(self._blocked))
            del self._blocked[request]
            request.is_blocked = False
            self._append(request)

    def _append(self, request: QueuedRequest) -> None:
        self._queue.append(request)
        depth = len(self._queue)
        if depth > self._interval_peak:
            self._interval_peak = depth
            self._peak_depth = max(self._peak_depth, depth)
