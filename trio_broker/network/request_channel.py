"""The queue between the Processors and the handlers, and what travels through it.

``queued.max.requests`` bounds it: when the handlers lag, ``send`` waits, the connection's task therefore does not
read, and TCP tells the client. That is the whole of the backpressure. The capacity may be changed live, which a Trio
memory channel cannot do, and a request goes straight to a handler that waits for one, without touching the queue.

Promises: first in, first out; a request that was sent is received exactly once, whatever is cancelled meanwhile.

An answer needs no queue: a connection has one request in flight, so each connection keeps one ``ReplySlot`` for its
life.

Source: Kafka's RequestChannel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from time import perf_counter_ns

import attrs
import outcome
import trio
from trio.lowlevel import Abort, RaiseCancelT, Task, current_task, reschedule, wait_task_rescheduled

from kafka_wire.headers import RequestHeader
from kafka_wire.primitives import Chunk
from trio_broker.network.client_activity import ClientActivity
from trio_broker.network.errors import CloseConnection
from trio_broker.network.request_metrics import RequestChannelMetrics, RequestWaits
from trio_broker.network.statistics import RequestChannelStatistics
from trio_broker.request_phase import RequestPhase

Answer = Sequence[Chunk] | None
"""Chunks of one response, its header included and its size prefix not, or None for silence (``acks=0``)."""

Reply = Answer | CloseConnection
"""The result of a request: its answer, or the reason why its connection ends."""


@attrs.frozen
class ConnectionInfo:
    """The addresses of both ends, and the listener that accepted the connection."""

    connection_id: int
    listener_name: str
    peer_host: str
    peer_port: int
    local_host: str
    local_port: int

    def __str__(self) -> str:
        return f"{self.listener_name}://{self.peer_host}:{self.peer_port}#{self.connection_id}"


class ReplySlot:
    """Passes the reply of a connection's one request in flight to its task; reused for the next request.

    Instead of a channel or an event per request: nothing is allocated, and an answer wakes its task directly.
    """

    __slots__ = ("_reply", "_state", "_task")

    _EMPTY, _FULL, _ABANDONED = range(3)

    def __init__(self) -> None:
        self._state = self._EMPTY
        self._reply: Reply = None
        self._task: Task | None = None

    @property
    def is_abandoned(self) -> bool:
        """Whether nobody will read the answer any more, because the connection has gone."""
        return self._state == self._ABANDONED

    def put(self, reply: Reply) -> None:
        """Answer the request. Dropped quietly when the connection has gone."""
        if self._state == self._ABANDONED:
            return
        assert self._state == self._EMPTY, "a request is answered once"
        self._reply = reply
        self._state = self._FULL
        if self._task is not None:
            reschedule(self._task)
            self._task = None

    def abandon(self, reason: CloseConnection) -> None:
        """Stop waiting: ``wait`` returns ``reason`` unless the answer is there already, and a later one is dropped."""
        # An answer that was put already is still sent; only then is the slot closed to later ones.
        if self._state == self._EMPTY:
            self.put(reason)
        self._state = self._ABANDONED

    async def wait(self) -> Reply:
        """Wait for the answer, and make room for the next one."""
        if self._state == self._EMPTY:
            self._task = current_task()
            await wait_task_rescheduled(self._abort)
        reply, self._reply = self._reply, None
        if self._state == self._FULL:
            self._state = self._EMPTY
        return reply

    def _abort(self, _: RaiseCancelT) -> Abort:
        # The waiting task is cancelled, and with it the connection; the handler may still answer.
        self._task = None
        self._state = self._ABANDONED
        return Abort.SUCCEEDED


def _no_slot() -> None:
    """The ``release_slot`` of a request that no handler slot holds."""


@attrs.define(eq=False)
class QueuedRequest:
    """One request on its way to a handler.

    ``body`` is what follows the header in the frame, and stays valid until the request is answered. ``queued_ns`` is
    the performance counter when the frame was whole, ``began_ns`` when its handler began, ``answered_ns`` when that
    ended. ``waits`` is what it waited in between without a slot.
    """

    header: RequestHeader
    body: memoryview
    connection: ConnectionInfo
    client: ClientActivity = attrs.field(factory=ClientActivity)
    reply: ReplySlot = attrs.field(factory=ReplySlot)
    queued_ns: int = attrs.field(factory=perf_counter_ns)
    began_ns: int = 0
    answered_ns: int = 0
    waits: RequestWaits | None = None
    release_slot: Callable[[], None] = _no_slot

    @property
    def is_abandoned(self) -> bool:
        """Whether the client has gone, so that the answer will be dropped."""
        return self.reply.is_abandoned

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
        self._receivers: dict[Task, None] = {}
        self._senders: dict[Task, QueuedRequest] = {}
        self._peak_depth = 0
        self._recent_peak = 0
        self._interval_peak = 0
        self._sent = 0

    @property
    def capacity(self) -> int:
        """How many requests may wait here, beside those that handlers hold."""
        return self._capacity

    @capacity.setter
    def capacity(self, capacity: int) -> None:
        assert capacity >= 1, f"a channel of capacity {capacity} would let nothing through"
        self._capacity = capacity
        self._admit_senders()

    def send_nowait(self, request: QueuedRequest) -> None:
        """Hand ``request`` to a waiting handler, or queue it.

        Raises:
            trio.WouldBlock: the queue is full.
        """
        if self._receivers:
            # The handler that began to wait last is woken first: its state is in the processor's caches, and the
            # utilization per slot then shows how many slots the load needs.
            task, _ = self._receivers.popitem()
            reschedule(task, outcome.Value(request))
        elif len(self._queue) < self._capacity:
            self._append(request)
        else:
            raise trio.WouldBlock
        self._sent += 1

    async def send(self, request: QueuedRequest) -> None:
        """Queue ``request``, waiting for room; nothing is sent if the wait is cancelled."""
        try:
            self.send_nowait(request)
        except trio.WouldBlock:
            await self._wait_for_room(request)
            self._sent += 1

    def receive_nowait(self) -> QueuedRequest:
        """Take the oldest request.

        Raises:
            trio.WouldBlock: there is none.
        """
        if not self._queue:
            raise trio.WouldBlock
        request = self._queue.popleft()
        self._admit_senders()
        return request

    async def receive(self) -> QueuedRequest | None:
        """Take the oldest request, waiting for one; None when ``dismiss`` ended the wait."""
        if self._queue:
            return self.receive_nowait()
        task = current_task()
        self._receivers[task] = None

        def abort(_: RaiseCancelT) -> Abort:
            del self._receivers[task]
            return Abort.SUCCEEDED

        received: QueuedRequest | None = await wait_task_rescheduled(abort)
        return received

    def dismiss(self, task: Task) -> bool:
        """End the wait of ``task`` in ``receive`` without a request; False if it does not wait there."""
        if task not in self._receivers:
            return False
        del self._receivers[task]
        reschedule(task, outcome.Value(None))
        return True

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
            senders_waiting=len(self._senders),
            receivers_waiting=len(self._receivers),
            requests=self._sent,
        )

    async def _wait_for_room(self, request: QueuedRequest) -> None:
        task = current_task()
        self._senders[task] = request

        def abort(_: RaiseCancelT) -> Abort:
            del self._senders[task]
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)

    def _admit_senders(self) -> None:
        """Queue the requests of waiting senders, oldest first, while there is room."""
        # The receiver moves the request itself rather than wake the sender to try again: a new sender could otherwise
        # take the room first, and requests would overtake each other.
        while self._senders and len(self._queue) < self._capacity:
            task = next(iter(self._senders))
            self._append(self._senders.pop(task))
            reschedule(task)

    def _append(self, request: QueuedRequest) -> None:
        assert not self._receivers, "a request is queued only when no handler waits for one"
        self._queue.append(request)
        depth = len(self._queue)
        if depth > self._interval_peak:
            self._interval_peak = depth
            self._peak_depth = max(self._peak_depth, depth)
