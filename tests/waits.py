"""How long tests wait for what is real: processes, clients, browsers, Spark.

A test names seconds that are far more than its wait takes on a quiet machine, and waits through one of the functions
here. A wait that is over looks at what the machine did meanwhile. Where it was short of CPU the wait goes on, in
proportion, up to ``MOST_TIMES`` as long; then it fails as it would have failed before. A wait for what never comes thus
ends everywhere, and on a quiet machine after the seconds that the test names.

Short of CPU means two things. Linux says in ``/proc/pressure/cpu`` for how long some process had to wait for a
processor: this covers the wait from its beginning, and doubles it at most. A loop that is timed when the wait is over
says how many times slower a thread is now than one that has a processor to itself, on any system.

``scripts/lanes.py`` says at the end of a run how many waits were extended: each leaves a note in a file of the run.

Tests whose clock is virtual wait for nothing real, and use ``trio.fail_after``.
"""

from __future__ import annotations

import math
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, AnyStr, Literal, TypeVar, overload

import attrs
import trio

from scripts.pressure import EXTENDED, EXTENDED_WAITS, IN_VAIN, stalled_seconds

T = TypeVar("T")

MOST_TIMES = 10
"""A wait takes at most so many times its seconds: with a load of 20 to 40 on two processors, each process gets between
a tenth and a twentieth of one, and the seconds of a test are several times what it needs."""

LOOP_SECONDS = 0.02
"""Of CPU, for the timed loop: several times the slice that Linux gives a process at a stretch."""

LOOPS_AT_MOST_EVERY_SECONDS = 10.0
"""For ``scaled``, which is called often: the loop then takes a five-hundredth of the CPU."""

SLOWER_BY_CHANCE = 1.25
"""Below that, the loop was interrupted and the machine is not slow."""

SHORT = 0.25
"""Of the time, during which some process waited for a processor: with less, nothing that a test waits for was late."""

TOOK_ALL = 0.9
"""Of the seconds that a call was given: what ends before has an end of its own."""


def slowdown() -> float:
    """How many times slower this thread is now than with a processor to itself, by a loop that is timed."""
    began, cpu_began = time.perf_counter(), time.thread_time()
    while (cpu := time.thread_time() - cpu_began) < LOOP_SECONDS:
        pass
    times = (time.perf_counter() - began) / cpu
    return times if times > SLOWER_BY_CHANCE else 1.0


@attrs.define
class TimeLeft:
    """The time for one wait. Ask ``is_over`` when there is nothing else to do, since it may time a loop."""

    seconds: float
    clock: Callable[[], float] = time.monotonic
    stalled: Callable[[], float | None] = stalled_seconds
    slowdown: Callable[[], float] = slowdown
    began: float = attrs.field(init=False)
    granted: float = attrs.field(init=False)
    """Seconds from the beginning, extensions included."""
    _stalled_before: float | None = attrs.field(init=False)
    _noted: set[str] = attrs.field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.began, self.granted, self._stalled_before = self.clock(), self.seconds, self.stalled()

    @property
    def left_seconds(self) -> float:
        """Until this wait is over or is extended; 0 or less once it is over for good."""
        left = self.began + self.granted - self.clock()
        if left > 0:
            return left
        self._extend()
        left = self.began + self.granted - self.clock()
        if left <= 0 and self.is_extended:
            self._note(IN_VAIN)
        return left

    @property
    def is_over(self) -> bool:
        return self.left_seconds <= 0

    @property
    def is_extended(self) -> bool:
        return self.granted > self.seconds

    def __str__(self) -> str:
        took = f"{self.clock() - self.began:.0f} s"
        if self.is_extended:
            return f"{took} instead of {self.seconds:g} s, since the machine was short of CPU"
        return took

    def _extend(self) -> None:
        before, self.granted = self.granted, max(self.granted, self.seconds * min(MOST_TIMES, self._times()))
        if before == self.seconds < self.granted:
            self._note(EXTENDED)

    def _note(self, what: str) -> None:
        """Say in the file of the run what becomes of this wait."""
        if (path := os.environ.get(EXTENDED_WAITS)) and what not in self._noted:
            self._noted.add(what)
            with open(path, "a") as waits:
                waits.write(f"{what}\n")

    def _times(self) -> float:
        """How many times its seconds this wait may take, by what the machine did until now."""
        stalled, took = self.stalled(), self.clock() - self.began
        if stalled is None or self._stalled_before is None:
            return self.slowdown()
        share = min(1.0, (stalled - self._stalled_before) / took) if took else 0.0
        return max(1 + share, self.slowdown()) if share > SHORT else 1.0


def within(wait: Callable[[float], T], seconds: float) -> T:
    """What ``wait`` returns: it takes seconds, and returns nothing, or raises, when they are over.

    It is called again where they were over too early: ``within(done.wait, 30)``. Nothing may be lost by that.
    """
    time_left = TimeLeft(seconds)
    while True:
        given, began = max(0.0, time_left.left_seconds), time_left.clock()
        try:
            found = wait(given)
        except Exception:
            if time_left.clock() - began < given * TOOK_ALL or time_left.is_over:
                raise
        else:
            if found or time_left.clock() - began < given * TOOK_ALL or time_left.is_over:
                return found


def eventually(condition: Callable[[], object], seconds: float, what: object = "", *, pause: float = 0.05) -> None:
    """Wait until others have made ``condition`` true; it is looked at every ``pause`` seconds."""
    time_left = TimeLeft(seconds)
    while not condition():
        assert not time_left.is_over, f"{what or condition} in vain: {time_left}"
        time.sleep(pause)


def flushed(producer: Any, seconds: float) -> bool:
    """Whether a producer of confluent-kafka has got an answer to all that it had to send."""
    return within(lambda given: bool(producer.flush(given) == 0), seconds)


def terminated(query: Any, seconds: float) -> bool:
    """Whether a streaming query of Spark has ended, which takes whole seconds."""
    return within(lambda given: bool(query.awaitTermination(math.ceil(given) or 1)), seconds)


def communicate(
    process: subprocess.Popen[AnyStr], seconds: float, given: AnyStr | None = None
) -> tuple[AnyStr, AnyStr]:
    """``process.communicate(given)``.

    Raises:
        subprocess.TimeoutExpired: it has not ended.
    """
    sent = [given]
    # What was given once must not be given again.
    return within(lambda left: process.communicate(sent.pop() if sent else None, timeout=left), seconds)


@overload
def run_program(
    command: Sequence[str | Path], seconds: float, *, text: Literal[True], **options: Any
) -> subprocess.CompletedProcess[str]: ...
@overload
def run_program(
    command: Sequence[str | Path], seconds: float, **options: Any
) -> subprocess.CompletedProcess[bytes]: ...
def run_program(command: Sequence[str | Path], seconds: float, **options: Any) -> subprocess.CompletedProcess[Any]:
    """``subprocess.run(command, timeout=seconds, **options)``."""
    given, check = options.pop("input", None), options.pop("check", False)
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if given is not None:
        options["stdin"] = subprocess.PIPE
    with subprocess.Popen(command, **options) as process:
        try:
            out, errors = communicate(process, seconds, given)
        except BaseException:
            process.kill()
            raise
    completed = subprocess.CompletedProcess(command, process.returncode, out, errors)
    if check:
        completed.check_returncode()
    return completed


@contextmanager
def killed_after(process: subprocess.Popen[Any], seconds: float) -> Iterator[None]:
    """Kill ``process`` if the block takes longer, so that who reads from it comes to an end."""
    ended = threading.Event()

    def watch() -> None:
        if not within(ended.wait, seconds):
            process.kill()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


@contextmanager
def fail_after(seconds: float) -> Iterator[None]:
    """``trio.fail_after``, for a block that waits for what is real.

    Raises:
        trio.TooSlowError: the block took longer.
    """
    watched, watching = trio.CancelScope(), trio.CancelScope()
    time_left = TimeLeft(seconds, trio.current_time)

    async def watch() -> None:
        with watching:
            while (left := time_left.left_seconds) > 0:  # noqa: ASYNC110  # the time is what it waits for
                await trio.sleep(left)
            watched.cancel()

    trio.lowlevel.spawn_system_task(watch)
    try:
        with watched:
            yield
    finally:
        watching.cancel()
    if watched.cancelled_caught:
        raise trio.TooSlowError(f"waited in vain: {time_left}")


def scaled(seconds: float) -> float:
    """Seconds for those who keep the time themselves, such as a socket: as many as the machine's speed now asks for."""
    now = time.monotonic()
    if now - _latest.at > LOOPS_AT_MOST_EVERY_SECONDS:
        _latest.at, _latest.slowdown = now, slowdown()
    return seconds * min(MOST_TIMES, _latest.slowdown)


@attrs.define
class _Latest:
    """What the loop said when ``scaled`` last asked it to."""

    at: float = float("-inf")
    slowdown: float = 1.0


_latest = _Latest()
