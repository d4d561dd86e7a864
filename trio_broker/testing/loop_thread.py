"""An event loop in a thread of its own, into which a test calls."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Protocol, TypeVar

import attrs
import trio

from trio_broker.testing.process import START_SECONDS, STOP_SECONDS

T = TypeVar("T")


class BrokerDoesNotRun(Exception):
    """The call needs a running broker, and this one was not started or has stopped."""


class Serve(Protocol):
    """What runs in the loop until it ends or is cancelled; started once it can be called."""

    async def __call__(self, *, task_status: trio.TaskStatus[object]) -> None: ...


@attrs.define(eq=False)
class LoopThread:
    """One run of ``serve`` in a thread."""

    serve: Serve
    clock: trio.abc.Clock
    started: Future[trio.lowlevel.TrioToken] = attrs.field(factory=Future)
    ended: Future[None] = attrs.field(factory=Future)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def begin(self) -> None:
        """Start the thread, and wait until ``serve`` has started.

        Raises:
            Exception: what ended it before.
        """
        # A daemon thread, so that the test process can end although a test has not stopped its broker.
        threading.Thread(target=self._run, name="trio-broker", daemon=True).start()
        self.started.result(START_SECONDS)

    def end(self, stop: Callable[[], object]) -> None:
        """Have ``stop`` called in the loop, and wait until its thread has ended.

        Raises:
            Exception: the error that ended ``serve`` before.
        """
        # RunFinishedError: it has ended already. ``ended`` raises the reason below.
        with contextlib.suppress(trio.RunFinishedError):
            self.started.result(0).run_sync_soon(stop)
        self.ended.result(STOP_SECONDS)

    def cancel(self) -> None:
        """Cancel all of it; for ``end``."""
        self.scope.cancel()

    def call(self, function: Callable[[], Awaitable[T]]) -> T:
        """Await ``function`` in the loop, and return what it returns or raise what it raises.

        Raises:
            BrokerDoesNotRun: the loop ended first.
        """
        outcome: Future[T] = Future()

        async def answer() -> None:
            try:
                outcome.set_result(await function())
            except Exception as error:
                outcome.set_exception(error)
            # A cancellation is no Exception; without this the caller would wait for ever when the broker stops.
            finally:
                if not outcome.done():
                    outcome.set_exception(BrokerDoesNotRun("the broker stopped"))

        try:
            self.started.result(0).run_sync_soon(trio.lowlevel.spawn_system_task, answer)
        except trio.RunFinishedError as error:
            raise BrokerDoesNotRun("the broker stopped") from error
        return outcome.result()

    def _run(self) -> None:
        try:
            trio.run(self._serve, clock=self.clock)
        # BaseException: after a KeyboardInterrupt or SystemExit in this thread the test would otherwise wait for ever
        # for one of the futures.
        except BaseException as group:
            error = lone_error(group)
            # ``begin`` waits for ``started`` and ``end`` for ``ended``, so both get the error.
            if not self.started.done():
                self.started.set_exception(error)
            self.ended.set_exception(error)
        else:
            self.ended.set_result(None)

    async def _serve(self) -> None:
        with self.scope:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.serve)
                self.started.set_result(trio.lowlevel.current_trio_token())


def lone_error(error: BaseException) -> BaseException:
    """Return the only error in nested exception groups, or a group of several errors unchanged."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
