"""The handlers: ``num.io.threads`` slots through which every request passes.

A slot is the right to handle requests, a worker is the task that does it. A worker with a slot takes requests from the
RequestChannel and answers them one after another. When its handler waits (``QueuedRequest.release_handler``), the slot
goes at once to another worker, an idle or a new one; the first worker finishes its request without a slot and is idle
then. One slot therefore carries any number of long polls, and a request that never waits has no cost from this.

Promises: every request received is answered, if only by closing its connection; whatever a handler raises ends that one
connection and nothing else; ``resize`` never disturbs a worker that holds a request.

Source: Kafka's KafkaRequestHandlerPool; its DelayedOperationPurgatory is why Kafka's handlers never wait.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from time import perf_counter_ns
from typing import TypeAlias

import attrs
import trio
from trio.lowlevel import Abort, RaiseCancelT, Task, checkpoint, current_task, reschedule, wait_task_rescheduled

from kafka_wire.apis import api_name
from trio_broker.network.busy_time import BusyTime, Utilization
from trio_broker.network.errors import CloseCause, CloseConnection
from trio_broker.network.request_channel import Answer, QueuedRequest, Reply, RequestChannel
from trio_broker.network.statistics import HandlerPoolStatistics, HandlerSlotStatistics

log = logging.getLogger(__name__)

Handle: TypeAlias = Callable[[QueuedRequest], Awaitable[Answer]]

MAX_RESTING_WORKERS = 128
"""Idle workers kept without a slot, about 5 KB each: enough that a hundred long polls at a time start no new tasks."""

REQUESTS_PER_TURN = 8
"""Requests that a worker takes between two yields: with a full queue, ``receive`` never waits and sockets would not be
served; a yield after each request would cost a tenth of a small one."""


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
    """One task of the pool, and the slot that it holds, if any."""

    pool: HandlerPool
    slot: HandlerSlot | None
    task: Task | None = None

    def release_slot(self) -> None:
        """Let another worker have the slot while this one's handler waits for others."""
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.busy_time.exit()
            self.pool.slot_released(slot)


class HandlerPool:
    """Answers what comes through ``channel`` with ``handle``, ``size`` at a time.

    ``handle`` returns the chunks of the response, or None for silence, or raises CloseConnection.
    """

    def __init__(self, channel: RequestChannel, handle: Handle, size: int) -> None:
        assert size >= 1, f"{size} handlers would answer nothing"
        self.channel = channel
        self.handle = handle
        self.slots = [HandlerSlot(index) for index in range(size)]
        self._nursery: trio.Nursery | None = None
        self._resting: list[Worker] = []
        self._receiving: dict[HandlerSlot, Worker] = {}
        self._parked = 0
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
                for slot in self.slots:
                    self._start_worker(slot)
                task_status.started()
                await trio.sleep_forever()
        finally:
            # A live change may still resize the pool during a stop; a closed nursery would refuse its new workers.
            self._nursery = None

    def resize(self, size: int) -> None:
        """Handle ``size`` requests at a time from now on; those in the hands of a retiring slot are answered first."""
        assert size >= 1, f"{size} handlers would answer nothing"
        if size != self.size:
            log.info("handlers resized from %d to %d", self.size, size)
        while self.size > size:
            self._retire(self.slots.pop())
        while self.size < size:
            slot = HandlerSlot(self.size)
            self.slots.append(slot)
            if self._nursery is not None:
                self._start_worker(slot)

    def sample(self, now_ns: int) -> None:
        """Close an interval of the idle ratios."""
        for slot in self.slots:
            slot.idle.sample(now_ns)

    def statistics(self) -> HandlerPoolStatistics:
        return HandlerPoolStatistics(
            size=self.size,
            slots=tuple(slot.statistics() for slot in self.slots),
            parked=self._parked,
            in_flight=self._in_flight,
            answered=self._answered,
            failed=self._failed,
        )

    def slot_released(self, slot: HandlerSlot) -> None:
        """Start another worker on ``slot``, whose worker goes on with a delayed request."""
        self._parked += 1
        if not slot.is_retired:
            self._start_worker(slot)

    # ---- the life of a worker

    async def _work(self, worker: Worker) -> None:
        worker.task = current_task()
        turn = 0
        while worker.slot is not None or await self._wait_for_slot(worker):
            turn += 1
            if turn % REQUESTS_PER_TURN == 0:
                await checkpoint()
            if (request := await self._next_request(worker)) is not None:
                await self._answer(request, worker)

    async def _next_request(self, worker: Worker) -> QueuedRequest | None:
        """The next request for the worker's slot; None, and the worker without its slot, when that was retired."""
        slot = worker.slot
        assert slot is not None, "only a worker with a slot takes requests"
        request = None
        if not slot.is_retired:
            self._receiving[slot] = worker
            try:
                request = await self.channel.receive()
            finally:
                del self._receiving[slot]
        if request is None:
            worker.slot = None
        return request

    async def _answer(self, request: QueuedRequest, worker: Worker) -> None:
        """Handle ``request`` and deliver what comes of it, whatever that is."""
        slot = worker.slot
        assert slot is not None, "a request is begun in a slot"
        request.began_ns = began_ns = perf_counter_ns()
        slot.busy_time.enter_at(began_ns)
        slot.requests += 1
        self._in_flight += 1
        request.release_slot = worker.release_slot
        reply: Reply = CloseConnection("the server is stopping", CloseCause.STOPPING)
        try:
            reply = await self._reply_to(request)
        finally:
            self._in_flight -= 1
            self._answered += 1
            # Also when this task is cancelled: the connection waits for the reply and has no other sign of the end.
            request.answered_ns = answered_ns = perf_counter_ns()
            if request.waits is not None:
                request.waits.end(answered_ns)
            request.reply.put(reply)
            # A released slot has left its busy time when it was released, and may carry another request by now.
            if worker.slot is not None:
                slot.busy_time.exit_at(answered_ns)
            else:
                self._parked -= 1

    async def _reply_to(self, request: QueuedRequest) -> Reply:
        """Call the handler; an exception of any kind becomes the reason why the connection ends."""
        try:
            return await self.handle(request)
        except CloseConnection as reason:
            return reason
        except Exception:
            self._failed += 1
            header = request.header
            log.exception(
                "handler of %s v%d failed for %s (client %r, correlation %d, %d bytes)",
                api_name(header.api_key),
                header.api_version,
                request.connection,
                header.client_id,
                header.correlation_id,
                len(request.body),
            )
            return CloseConnection("its handler failed", CloseCause.FAILURE)

    async def _wait_for_slot(self, worker: Worker) -> bool:
        """Wait without a slot until one is assigned; False when enough others are idle already, and this worker
        ends."""
        if len(self._resting) >= MAX_RESTING_WORKERS:
            return False
        self._resting.append(worker)

        def abort(_: RaiseCancelT) -> Abort:
            self._resting.remove(worker)
            return Abort.SUCCEEDED

        await wait_task_rescheduled(abort)
        return True

    def _start_worker(self, slot: HandlerSlot) -> None:
        """Put a worker on ``slot``: one that rests, or a new one."""
        if self._resting:
            # The one that became idle last, so that the others' memory stays untouched.
            worker = self._resting.pop()
            worker.slot = slot
            assert worker.task is not None, "a worker rests in its task"
            reschedule(worker.task)
        else:
            assert self._nursery is not None, "the pool runs"
            self._nursery.start_soon(self._work, Worker(self, slot), name=f"handler slot {slot.index}")

    def _retire(self, slot: HandlerSlot) -> None:
        # A worker that handles a request notices the flag afterwards; one that waits for a request must be woken.
        slot.is_retired = True
        waiting = self._receiving.get(slot)
        if waiting is not None and waiting.task is not None:
            self.channel.dismiss(waiting.task)
