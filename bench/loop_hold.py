"""How long one request holds the event loop: each API at the largest requests that are accepted, one at a time.

The requests are made from the declarations (``bench.largest_requests``): for each array of each API, one that is as
long as the limits allow. The broker runs in a thread of this process with the garbage collector as ``start`` sets it,
and each step of its loop is timed by the processor time of its own thread, which other programs do not change.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from time import perf_counter_ns, thread_time_ns

import attrs
import trio

from bench.largest_requests import LargestRequest, largest_requests
from bench.outcome import Options, Outcome
from bench.wire import BenchError, connect, receive_frame, request_frame
from trio_broker.broker import GARBAGE_THRESHOLDS
from trio_broker.handlers.support.registry import ServedApi, served_apis
from trio_broker.testing.broker_thread import BrokerThread, broker_in_thread

FRAME_BYTES = 100 * 1024 * 1024 - 1024
"""Just below ``socket.request.max.bytes``."""

ANSWER_SECONDS = 120.0

WIDE_TOPIC_PARTITIONS = 2000

NS_PER_MS = 1e6


@attrs.define(eq=False)
class LongestStep(trio.abc.Instrument):
    """The longest step of the loop since ``reset``, by processor time, and what of it the garbage collector took."""

    cpu_ns: int = 0
    wall_ns: int = 0
    collecting_ns: int = 0
    _began: tuple[int, int, int] = (0, 0, 0)
    _collected_ns: int = 0
    _collecting_since_ns: int = 0

    def reset(self) -> None:
        self.cpu_ns = self.wall_ns = self.collecting_ns = 0

    def collector_called(self, phase: str, information: dict[str, int]) -> None:
        """To be among ``gc.callbacks``."""
        if phase == "start":
            self._collecting_since_ns = thread_time_ns()
        else:
            self._collected_ns += thread_time_ns() - self._collecting_since_ns

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = perf_counter_ns(), thread_time_ns(), self._collected_ns

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        wall_ns, cpu_ns, collected_ns = self._began
        if (took_ns := thread_time_ns() - cpu_ns) > self.cpu_ns:
            self.cpu_ns = took_ns
            self.wall_ns = perf_counter_ns() - wall_ns
            self.collecting_ns = self._collected_ns - collected_ns


@attrs.frozen
class Hold:
    """The longest step that one request caused."""

    api: str
    path: str
    elements: int
    request_bytes: int
    cpu_ms: float
    collecting_ms: float
    wall_ms: float


def loop_hold(options: Options) -> Outcome:
    """The longest hold of the loop by the largest requests of each API."""
    outcome = Outcome("loop-hold")
    thresholds = gc.get_threshold()
    longest = LongestStep()
    gc.callbacks.append(longest.collector_called)
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    try:
        with broker_in_thread() as broker:
            broker.create_topic("wide", WIDE_TOPIC_PARTITIONS)
            broker.call(installed, longest)
            holds = [
                held(broker, longest, api, largest)
                for _, api in sorted(served_apis().items())
                for largest in largest_requests(api.request, api.versions.high, options.volume(FRAME_BYTES))
            ]
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(longest.collector_called)
    table = outcome.table(
        "The longest step of the event loop while one request is read, handled, answered and freed",
        *("API", "long array", "elements", "request MB", "CPU ms", "of it garbage collection", "wall ms"),
    )
    for hold in sorted(holds, key=lambda hold: -hold.cpu_ms):
        table.add(
            *(hold.api, hold.path, hold.elements, hold.request_bytes / 1e6),
            *(hold.cpu_ms, hold.collecting_ms, hold.wall_ms),
        )
    outcome.measures["loop-hold"] = max(hold.cpu_ms for hold in holds)
    return outcome


async def installed(longest: LongestStep) -> None:
    trio.lowlevel.add_instrument(longest)


def held(broker: BrokerThread, longest: LongestStep, api: ServedApi, largest: LargestRequest) -> Hold:
    """Send a request and wait for its answer, or for the end of the connection."""
    frame = request_frame(largest.message, api.versions.high)
    path, elements = ".".join(largest.path), largest.elements
    del largest
    # What the requests before it, and this process, have left behind is not this request's.
    gc.collect()
    gc.freeze()
    longest.reset()
    with connect(int(broker.bootstrap_servers.rpartition(":")[2]), ANSWER_SECONDS) as sock:
        sock.sendall(frame)
        # One that is refused ends its connection.
        with suppress(BenchError):
            receive_frame(sock)
    return Hold(
        api.api_key.name,
        path,
        elements,
        len(frame),
        longest.cpu_ns / NS_PER_MS,
        longest.collecting_ns / NS_PER_MS,
        longest.wall_ns / NS_PER_MS,
    )
