"""The handlers: ``num.io.threads`` slots through which every request passes.

A slot is the right to handle requests. A request that finds a slot idle is handled at once, in the turn of the
Processor that read it: most handlers never wait, and a task would cost as much as they do. A handler that has to wait
returns a coroutine, and a *worker*, a task of this pool, goes on with it in the same slot. A request that finds no
slot idle is queued in the RequestChannel; the worker that ends takes it.

A handler that waits for something that calls back (an acks=all Produce for its sync) needs no task at all: it returns a
``DelayedAnswer``, leaves its slot, and is answered in the turn of the one who calls.

When any other handler waits for others or for the disk, it says so before (``QueuedRequest.release_handler``), and its
slot is idle at once or goes to another worker; its own worker finishes the request without a slot. A wait that was
announced in the turn of the Processor takes no slot at all. One slot therefore carries any number of long polls and of
cold reads, and a request that never waits has no cost from this.

Promises: every request is answered, if only by closing its connection; whatever a handler raises ends that one
connection and nothing else; ``resize`` never disturbs a request that is being handled.

Source: Kafka's KafkaRequestHandlerPool; its DelayedOperationPurgatory is why Kafka's handlers never wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from functools import partial
from types import CoroutineType
from typing import Any, TypeAlias

import attrs
import trio
from trio.lowlevel import Abort, RaiseCancelT, Task, checkpoint, current_task, reschedule, wait_task_rescheduled

from kafka_wire.apis import api_name
from trio_broker.common.busy_time import BusyTime, Utilization
from trio_broker.concurrency.barrier import start_once
from trio_broker.network.errors import STOPPING, CloseCause, CloseConnection
from trio_broker.network.request_channel import Answer, QueuedRequest, Reply, RequestChannel, no_slot
from trio_broker.network.statistics import HandlerPoolStatistics, HandlerSlotStatistics
from trio_broker.runtime.measurement import perf_counter_ns

log = logging.getLogger(__name__)

PendingAnswer: TypeAlias = Coroutine[Any, Any, Answer]


@attrs.frozen
class DelayedAnswer:
    """An answer that waits for something, in no task and in no slot.

    ``when_complete`` is given what to call, once and later, on the event loop. ``resume`` then returns the answer, or
    what that waits for next; ``close`` gives it up instead.
    """

    when_complete: Callable[[Callable[[], None]], None]
    resume: Callable[[], Answer | PendingAnswer | DelayedAnswer]
    close: Callable[[], None]


Handle: TypeAlias = Callable[[QueuedRequest], Answer | PendingAnswer | DelayedAnswer]
"""Returns the answer, or, where that has to wait for something, a coroutine that was not begun or the delay."""


MAX_RESTING_WORKERS = 128
"""Idle workers kept without a slot, about 5 KB each: enough that a hundred long polls at a time start no new tasks."""

REQUESTS_PER_TURN = 8
"""Requests that a worker takes from the queue between two yields: sockets would not be served meanwhile; a yield after
each request would cost a tenth of a small one."""


@attrs.define(eq=False)
class HandlerSlot:
    """One of the ``num.io.threads``."""

    index: int
    busy_time: BusyTime = attrs.field(factory=BusyTime)
    idle: Utilization = attrs.field(init=False)
    is_retired: bool = False
    requests: int = 0

    def __attrs_post_init__(self) -> None:
        self.idle = Utilization(self.busy_time)

    def statistics(self) -> HandlerSlotStatistics:
        return HandlerSlotStatistics(
            slot=self.index,
            idle_ratio=1.0 - self.idle.ratio,
            busy_ns=self.busy_time.busy_until(perf_counter_ns()),
            requests=self.requests,
        )


@attrs.define(eq=False)
class Worker:
    """One task of the pool, its request, and the slot that it holds, if any.

    ``pending`` is the rest of the handler, if the request was begun in the turn of its Processor.
    """

    pool: HandlerPool
    request: QueuedRequest | None
    pending: PendingAnswer | None
    slot: HandlerSlot | None
    task: Task | None = None

    def release_slot(self) -> None:
        """Let another request have the slot while this one's handler waits for others."""
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.busy_time.exit()
            self.pool.slot_released(slot)


class HandlerPool:
    """Answers requests with ``handle``, ``size`` at a time; ``channel`` has those that wait for a slot.

    ``handle`` returns the chunks of the response, or None for silence, or raises CloseConnection.
    """

    def __init__(self, channel: RequestChannel, handle: Handle, size: int) -> None:
        assert size >= 1, f"{size} handlers would answer nothing"
        self.channel = channel
        self.handle = handle
        self.slots = [HandlerSlot(index) for index in range(size)]
        # Used from its end: the slot that became idle last. So the utilization per slot shows how many the load needs.
        self._idle = self.slots[::-1]
        self._nursery: trio.Nursery | None = None
        self._context = copy_context()  # no request's
        self._resting: list[Worker] = []
        self._delayed: dict[QueuedRequest, DelayedAnswer] = {}
        self._delayed_count = 0
        self._in_flight = 0
        self._answered = 0
        self._failed = 0

    @property
    def size(self) -> int:
        """How many requests are handled at a time."""
        return len(self.slots)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Work until cancelled."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                await trio.sleep_forever()
        finally:
            # A live change may still resize the pool during a stop; a closed nursery would refuse its new workers.
            self._nursery = None
            while self._delayed:
                request, delayed = self._delayed.popitem()
                delayed.close()
                self._answer_delayed(request, STOPPING)

    def resize(self, size: int) -> None:
        """Handle ``size`` requests at a time from now on; those in the hands of a retiring slot are answered first."""
        assert size >= 1, f"{size} handlers would answer nothing"
        if size != self.size:
            log.info("handlers resized from %d to %d", self.size, size)
        while self.size > size:
            slot = self.slots.pop()
            slot.is_retired = True
            if slot in self._idle:
                self._idle.remove(slot)
        while self.size < size:
            slot = HandlerSlot(self.size)
            self.slots.append(slot)
            self._free(slot)

    def sample(self, now_ns: int) -> None:
        """Close an interval of the idle ratios."""
        for slot in self.slots:
            slot.idle.sample(now_ns)

    def statistics(self) -> HandlerPoolStatistics:
        return HandlerPoolStatistics(
            size=self.size,
            idle=len(self._idle),
            slots=tuple(slot.statistics() for slot in self.slots),
            delayed=self._delayed_count,
            in_flight=self._in_flight,
            answered=self._answered,
            failed=self._failed,
        )

    def submit(self, request: QueuedRequest) -> None:
        """Handle ``request`` in the caller's turn if a slot is idle, else queue it."""
        if not self._idle:
            # With a slot idle the queue is empty, so nobody is overtaken.
            self.channel.send(request)
            return
        # It stays among the idle ones for the time being: nothing else runs before the handler returns.
        slot = self._idle[-1]
        # ``_begin`` and ``_end`` are written out here: nearly every small request passes here, and would pay two more
        # calls. Nothing reads the statistics before the handler returns, so a request answered in this turn is counted
        # neither as in flight nor as entered; and it has no waits to end.
        slot.requests += 1
        request.began_ns = began_ns = perf_counter_ns()
        try:
            reply: Reply | PendingAnswer | DelayedAnswer = self.handle(request)
        except Exception as error:
            reply = self._failure(request, error)
        if isinstance(reply, CoroutineType) and request.waits is None:
            if not slot.is_retired:  # as the handler may have resized the pool
                self._idle.remove(slot)
            slot.busy_time.enter_at(began_ns)
            self._in_flight += 1
            self._start_worker(slot, request, reply)
        elif isinstance(reply, CoroutineType | DelayedAnswer):
            # It waits already: the slot was never taken from the idle ones.
            slot.busy_time.busy_ns += perf_counter_ns() - began_ns
            self._in_flight += 1
            self._delayed_count += 1
            self._wait(request, reply)
        else:
            self._answered += 1
            request.answered_ns = answered_ns = perf_counter_ns()
            slot.busy_time.busy_ns += answered_ns - began_ns
            request.reply_target.respond(request, reply)  # type: ignore[arg-type] # every Coroutine here is a CoroutineType

    def slot_released(self, slot: HandlerSlot) -> None:
        """Use ``slot``, whose worker goes on with a delayed request, for others."""
        self._delayed_count += 1
        self._free(slot)

    def _free(self, slot: HandlerSlot) -> None:
        """Give ``slot`` to the oldest request in the queue, or let it be idle."""
        if slot.is_retired:
            return
        if (request := self.channel.receive()) is None:
            self._idle.append(slot)
        else:
            self._start_worker(slot, request, None)

    # ---- one request

    def _begin(self, request: QueuedRequest, slot: HandlerSlot) -> Reply | PendingAnswer | DelayedAnswer:
        """Call the handler; an exception of any kind becomes the reason why the connection ends."""
        request.began_ns = began_ns = perf_counter_ns()
        slot.busy_time.enter_at(began_ns)
        slot.requests += 1
        self._in_flight += 1
        try:
            return self.handle(request)
        except Exception as error:
            return self._failure(request, error)

    def _end(self, request: QueuedRequest) -> int:
        """Note that the answer of ``request`` is there; returns when."""
        self._in_flight -= 1
        self._answered += 1
        request.answered_ns = answered_ns = perf_counter_ns()
        if request.waits is not None:
            request.waits.end(answered_ns)
        return answered_ns

    def _failure(self, request: QueuedRequest, error: Exception) -> CloseConnection:
        """The reason why the connection of ``request`` ends, without the traceback of ``error``."""
        if isinstance(error, CloseConnection):
            return error.without_traceback()
        self._failed += 1
        header = request.header
        log.error(
            "handler of %s v%d failed for %s (client %r, correlation %d, %d bytes)",
            api_name(header.api_key),
            header.api_version,
            request.connection,
            header.client_id,
            header.correlation_id,
            len(request.body),
            exc_info=error,
        )
        return CloseConnection("its handler failed", CloseCause.FAILURE)

    # ---- a delayed request

    def _wait(self, request: QueuedRequest, reply: PendingAnswer | DelayedAnswer) -> None:
        """Let ``request``, which holds no slot, wait for ``reply``: in a worker, or in no task."""
        if isinstance(reply, DelayedAnswer):
            self._delay(request, reply)
        else:
            self._start_worker(None, request, reply)

    def _delay(self, request: QueuedRequest, delayed: DelayedAnswer) -> None:
        """Answer ``request``, which holds no slot, when ``delayed`` says so."""
        # Or a later wait would take the slot from another request of the worker that began this one.
        request.release_slot = no_slot
        if self._nursery is None:
            delayed.close()
            self._answer_delayed(request, STOPPING)
            return
        self._delayed[request] = delayed
        delayed.when_complete(partial(self._resume, request))

    def _resume(self, request: QueuedRequest) -> None:
        """What ``request`` waited for has come."""
        if (delayed := self._delayed.pop(request, None)) is None:
            return  # the pool has ended
        try:
            reply = delayed.resume()
        except Exception as error:
            self._answer_delayed(request, self._failure(request, error))
            return
        if isinstance(reply, CoroutineType | DelayedAnswer):
            self._wait(request, reply)
        else:
            self._answer_delayed(request, reply)  # type: ignore[arg-type] # as in ``submit``

    def _answer_delayed(self, request: QueuedRequest, reply: Reply) -> None:
        self._delayed_count -= 1
        self._end(request)
        request.reply_target.respond(request, reply)

    # ---- the life of a worker

    def _start_worker(self, slot: HandlerSlot | None, request: QueuedRequest, pending: PendingAnswer | None) -> None:
        """Let a worker go on with ``request`` in ``slot``: one that rests, or a new one."""
        if self._nursery is None:
            # The pool has ended, and with it every connection.
            if pending is not None:
                pending.close()
            request.reply_target.respond(request, STOPPING)
        elif self._resting:
            # The one that became idle last, so that the others' memory stays untouched.
            worker = self._resting.pop()
            worker.slot, worker.request, worker.pending = slot, request, pending
            assert worker.task is not None, "a worker rests in its task"
            reschedule(worker.task)
        else:
            worker = Worker(self, request, pending, slot)
            # Not in the current context: it may be a request's, which gives its slot up, and whose bytes the new task
            # would keep for as long as it rests.
            self._context.run(partial(start_once, self._nursery, "request handler", partial(self._work, worker)))

    async def _work(self, worker: Worker) -> None:
        worker.task = current_task()
        turn = 0
        try:
            while worker.request is not None or await self._rest(worker):
                assert worker.request is not None, "a worker is woken with a request"
                await self._answer(worker, worker.request)
                turn += 1
                if turn % REQUESTS_PER_TURN == 0:
                    await checkpoint()
                self._take_next(worker)
        except Exception:
            if worker.slot is not None:
                # It would be lost with the worker.
                self._free(worker.slot)
            raise

    def _take_next(self, worker: Worker) -> None:
        """Let ``worker`` go on with the oldest request in the queue, if it still has its slot."""
        worker.request = None
        slot = worker.slot
        if slot is None:
            return
        if not slot.is_retired:
            worker.request = self.channel.receive()
        if worker.request is None:
            worker.slot = None
            self._free(slot)

    async def _answer(self, worker: Worker, request: QueuedRequest) -> None:
        """Handle ``request`` and deliver what comes of it, whatever that is."""
        slot, pending = worker.slot, worker.pending
        worker.pending = None
        request.release_slot = worker.release_slot
        begun: Reply | PendingAnswer | DelayedAnswer = pending
        if pending is None:
            assert slot is not None, "a request is begun in a slot"
            begun = self._begin(request, slot)
        if isinstance(begun, DelayedAnswer):
            worker.release_slot()
            self._delay(request, begun)
            return
        reply: Reply = STOPPING
        try:
            reply = await self._reply_to(request, begun)
        finally:
            # Also when this task is cancelled: the connection has no other sign of the end.
            answered_ns = self._end(request)
            # A released slot has left its busy time when it was released, and may carry another request by now.
            if worker.slot is not None:
                worker.slot.busy_time.exit_at(answered_ns)
            else:
                self._delayed_count -= 1
            request.reply_target.respond(request, reply)

    async def _reply_to(self, request: QueuedRequest, reply: Reply | PendingAnswer) -> Reply:
        if not isinstance(reply, CoroutineType):
            return reply  # type: ignore[return-value] # as above
        try:
            answer: Answer = await reply
        except Exception as error:
            return self._failure(request, error)
        return answer

    async def _rest(self, worker: Worker) -> bool:
        """Wait until there is a request; False when enough others are idle already, and this worker ends."""
        if len(self._resting) >= MAX_RESTING_WORKERS:
            return False
        self._resting.append(worker)

        def abort(_: RaiseCancelT) -> Abort:
            self._resting.remove(worker)
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        return True
