"""Threads of this process."""

from __future__ import annotations

import math
import os
import sys
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

import outcome
import trio

from kafka_wire.errors import KafkaError

T = TypeVar("T")
Item = TypeVar("Item")


class RealWorkers:
    """See ``Workers``: the threads are Trio's."""

    async def run(self, work: Callable[[], T], *, limiter: trio.CapacityLimiter | None = None) -> T:
        result = await trio.to_thread.run_sync(_outcome_of, work, limiter=limiter)
        try:
            return result.unwrap()
        finally:
            # An error has this frame in its traceback, and would be in a cycle with what the frame refers to.
            del result, work

    def queue(
        self, work: Callable[[Item], object], ended: Callable[[Sequence[Item]], object], *, threads: int
    ) -> ThreadWorkQueue[Item]:
        return ThreadWorkQueue(work, ended, threads)


def _outcome_of(work: Callable[[], T]) -> outcome.Outcome[T]:
    """What becomes of ``work``; runs in the thread.

    What the disk or a client says no with comes without a traceback: by way of the thread's and Trio's frames it would
    be in a cycle, and files, whose space is wanted back, would stay open until the collector finds it
    (docs/decisions/0048). It says itself what it is about.
    """
    result = outcome.capture(work)
    if isinstance(result, outcome.Error) and isinstance(result.error, OSError | KafkaError):
        result.error.__traceback__ = None
    return result


WAKE = (1).to_bytes(8, sys.byteorder)
"""What wakes the event loop: an eventfd takes a number of eight bytes, a pipe any."""


def wakeup_descriptors() -> tuple[int, int]:
    """Return what is readable once something was written to the other: an eventfd for both, or the ends of a pipe."""
    if hasattr(os, "eventfd"):
        both = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        return both, both
    ends = os.pipe()
    for end in ends:
        os.set_blocking(end, False)
    return ends


class ThreadWorkQueue(Generic[Item], trio.abc.Instrument):
    """See ``WorkQueue``. Items that end close together wake the event loop once, by a descriptor: only the first of
    them writes to it, since a system call makes its thread let go of the interpreter lock and wait for it again. Trio's
    ``run_sync_soon`` makes one each time, and reads twice for it.

    The threads get their items when the event loop has nothing else to do at the moment, and lets go of the interpreter
    lock. A thread that is woken before has to wait for the lock, and at the next system call of the loop the two would
    take it from each other, with a switch of threads each time.

    ``_take_items`` runs in the threads, everything else on the event loop; all that they share are deques, whose
    operations are atomic.
    """

    def __init__(self, work: Callable[[Item], object], ended: Callable[[Sequence[Item]], object], threads: int) -> None:
        self.threads = threads
        self._work = work
        self._ended = ended
        # Those that no thread may take yet, and those for the next thread.
        self._pending: list[Item] = []
        self._items: deque[Item] = deque()
        # A held lock for each thread that waits for it to be released; the one that has waited shortest is the last. A
        # queue of Python's wakes a second thread for each item that one takes.
        self._idle: deque[LockType] = deque()
        self._is_instrument = False
        self._done: deque[Item] = deque()
        # An entry while nobody has woken the event loop since it last looked. The thread that takes it does.
        self._unwoken: deque[None] = deque([None])
        # While it runs: both ends of what wakes the event loop, which are one where there is an eventfd.
        self._woken, self._waking = -1, -1
        self._under_way = 0
        self._started = 0
        # One entry for each thread that is to end, not counted in ``_started`` any more. The thread that takes it ends.
        self._surplus: deque[None] = deque()
        self._nursery: trio.Nursery | None = None

    def put(self, item: Item, /) -> None:
        self._under_way += 1
        self._pending.append(item)
        if self._started < self.threads and self._started < self._under_way:
            self._start_threads()
        self._watch_loop()

    def _watch_loop(self) -> None:
        """Have ``before_io_wait`` called from now on. Not from the start: most brokers have nothing to put, ever."""
        if not self._is_instrument and self._nursery is not None:
            self._is_instrument = True
            trio.lowlevel.add_instrument(self)

    def before_io_wait(self, timeout: float) -> None:
        """Give the threads what was put since the last wait."""
        if self._pending:
            for item in self._pending:
                self._items.append(item)
                self._wake_thread()
            self._pending.clear()

    def _wake_thread(self) -> None:
        """Have an idle thread look for an item, and whether it is surplus; one that is busy does so afterwards."""
        with suppress(IndexError):
            self._idle.pop().release()

    def resize(self, threads: int) -> None:
        self.threads = threads
        if self._started > threads:
            self._end_threads(self._started - threads)
        else:
            self._start_threads()

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        self._woken, self._waking = wakeup_descriptors()
        # A run before may have ended between a thread's wake-up and its own look.
        self._unwoken = deque([None])
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                self._start_threads()
                if self._pending:
                    self._watch_loop()
                task_status.started()
                try:
                    await self._report_always()
                finally:
                    self._nursery = None
                    if self._is_instrument:
                        trio.lowlevel.remove_instrument(self)
                        self._is_instrument = False
                    self._end_threads(self._started)
        finally:
            for descriptor in {self._woken, self._waking}:
                os.close(descriptor)
            self._report()

    def _start_threads(self) -> None:
        """Have a thread for each item under way, and no more than there may be."""
        if self._nursery is None:
            return
        while self._started < min(self.threads, self._under_way):
            self._started += 1
            if not self._take_surplus():  # else one that was to end goes on
                self._nursery.start_soon(self._run_thread, name="work queue")

    def _end_threads(self, count: int) -> None:
        """Let ``count`` threads end, each as soon as it has no item under way."""
        self._started -= count
        for _ in range(count):
            self._surplus.append(None)
            self._wake_thread()

    def _take_surplus(self) -> bool:
        """Whether a thread was to end, and has been taken off the list. One thread at most takes each entry."""
        try:
            self._surplus.pop()
        except IndexError:
            return False
        return True

    async def _run_thread(self) -> None:
        # Under a limiter of its own: a thread that waits for items must not hold a token that others want.
        await trio.to_thread.run_sync(self._take_items, limiter=trio.CapacityLimiter(math.inf))

    def _take_items(self) -> None:
        """Do item after item until this thread is surplus. Runs in a thread."""
        woken = allocate_lock()
        woken.acquire()
        while not (self._surplus and self._take_surplus()):
            try:
                item = self._items.popleft()
            except IndexError:
                self._idle.append(woken)
                # For what came before this thread was among the idle ones; it may wake another one instead of itself.
                if self._items or self._surplus:
                    self._wake_thread()
                woken.acquire()
                continue
            self._work(item)
            self._done.append(item)
            with suppress(IndexError):
                self._unwoken.pop()
                os.write(self._waking, WAKE)

    async def _report_always(self) -> None:
        while True:
            await trio.lowlevel.wait_readable(self._woken)
            os.read(self._woken, len(WAKE))
            # Before the look: what ends from here on, and is not seen by it, wakes the loop again.
            self._unwoken.append(None)
            self._report()

    def _report(self) -> None:
        """Report what has ended."""
        done = [self._done.popleft() for _ in range(len(self._done))]
        self._under_way -= len(done)
        if done:
            self._ended(done)
