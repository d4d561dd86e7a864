"""How long one request holds the event loop: each API at the largest requests that are accepted, one at a time.

For each array of each API there is a request, made from its declaration, that is as long there as the limits allow
(``bench.largest_requests``); they name topics that are there, as far as they number so many, and others. Beside them
stand requests that are accepted and change much (``bench.accepted_requests``). The broker is a process of its own, and
each step of its loop is timed by the processor time of the loop's thread (``bench.step_times``), which other programs
do not change. So the figures hold on a busy machine too, but for caches that are shared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import attrs

from bench.accepted_requests import delete_topics, make_topics, use_groups, use_topics
from bench.largest_requests import LargestRequest, largest_requests
from bench.outcome import Options, Outcome
from bench.populated import SETTINGS
from bench.step_times import TimedStep, slow_steps
from bench.subject import QUIET, StepTimedBroker, memory_or, scratch
from bench.wire import BenchError, body_frame, connect, decoded, receive_frame, request_frame
from kafka_wire.apis import ApiKey
from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.schema import Request
from trio_broker.handlers.support.registry import ServedApi, served_apis

T = TypeVar("T")

FRAME_BYTES = 100 * 1024 * 1024 - 1024
"""Just below ``socket.request.max.bytes``."""

ANSWER_SECONDS = 120.0

TOPICS = 2000
"""Beside one with many partitions."""

LAST_VERSION_BY_NAME: Mapping[ApiKey, int] = {
    ApiKey.PRODUCE: 12,
    ApiKey.FETCH: 12,
    ApiKey.METADATA: 11,
    ApiKey.OFFSET_COMMIT: 9,
    ApiKey.OFFSET_FETCH: 9,
}
"""Of APIs whose topics go by their ids since. No request knows one, so both forms are measured."""

NS_PER_MS = 1e6

SETTLE_SECONDS = 0.02
"""For the last line of the file of steps."""

NO_STEP = TimedStep(0, 0, 0, 0, "none of a millisecond")


@attrs.frozen
class Hold:
    """The longest step while one request was read, handled, answered and freed, which may be another task's."""

    api: str
    what: str
    request_bytes: int
    step: TimedStep


@attrs.define
class HoldMeter:
    """Sends requests to one broker and keeps the longest hold by each."""

    process: StepTimedBroker
    holds: list[Hold] = attrs.field(factory=list)
    _read_bytes: int = 0

    def exchange(self, what: str, request: Request[T], version: int) -> T:
        """Send a request and return its answer. Raises BenchError when there is none."""
        return decoded(self.send(what, request, version), type(request), version)

    def send(self, what: str, request: Request[Any], version: int) -> memoryview:
        """Send a request and return the bytes of its answer. Raises BenchError when there is none."""
        response = self.measure(type(request), what, bytes(request_frame(request, version)))
        if response is None:
            raise BenchError(f"{type(request).__name__}, {what}: the broker closed the connection")
        return response

    def measure(self, kind: type[Request[Any]], what: str, frame: bytes) -> memoryview | None:
        """Send a frame and return the answer, or None when the broker ended the connection."""
        _, self._read_bytes = slow_steps(self.process.steps, self._read_bytes)
        response = None
        with connect(self.process.port, ANSWER_SECONDS) as sock:
            sock.sendall(frame)
            with suppress(BenchError, ConnectionError):
                response = receive_frame(sock)
        time.sleep(SETTLE_SECONDS)
        steps, self._read_bytes = slow_steps(self.process.steps, self._read_bytes)
        longest = max(steps, key=lambda step: step.cpu_ns, default=None)
        self.holds.append(Hold(ApiKey(kind.API_KEY).name, what, len(frame), longest or NO_STEP))
        return response


def loop_hold(options: Options) -> Outcome:
    """The longest hold of the loop by the largest requests of each API."""
    outcome = Outcome("loop-hold")
    topics, frame_bytes = options.volume(TOPICS), options.volume(FRAME_BYTES)
    with scratch(memory_or(options.directory)) as directory:
        process = StepTimedBroker(directory / "data", SETTINGS, QUIET, steps=directory / "steps.txt")
        with process:
            meter = HoldMeter(process)
            meter.exchange("the topic of groups", FindCoordinatorRequest(key="g"), 2)
            make_topics(meter, topics)
            use_topics(meter, topics)
            use_groups(meter)
            for api, version, largest in largest_of_all(frame_bytes):
                what = f"{largest.elements:,} {'.'.join(largest.path)}"
                meter.measure(api.request, what, body_frame(api.request, version, largest.body))
            delete_topics(meter, topics)
    table = outcome.table(
        "The longest step of the event loop while one request is read, handled, answered and freed",
        *("API", "what is large", "request MB", "CPU ms", "of it garbage collection", "wall ms", "task"),
    )
    for hold in sorted(meter.holds, key=lambda hold: -hold.step.cpu_ns):
        times = (each / NS_PER_MS for each in (hold.step.cpu_ns, hold.step.collecting_ns, hold.step.wall_ns))
        table.add(hold.api, hold.what, hold.request_bytes / 1e6, *times, ".".join(hold.step.task.split(".")[-2:]))
    outcome.measures["loop-hold"] = max(hold.step.cpu_ns for hold in meter.holds) / NS_PER_MS
    return outcome


def largest_of_all(frame_bytes: int) -> Iterator[tuple[ServedApi, int, LargestRequest]]:
    """The largest requests of each API, those that delete topics last, in the version given beside them."""
    for _, api in sorted(served_apis().items(), key=lambda item: (item[0] == ApiKey.DELETE_TOPICS, item[0])):
        versions = {api.versions.high, LAST_VERSION_BY_NAME.get(api.api_key, api.versions.high)}
        for version in sorted(versions):
            for largest in largest_requests(api.request, version, frame_bytes):
                yield api, version, largest
