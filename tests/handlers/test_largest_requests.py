"""No step of any API makes more calls the more elements a request has, whichever of its arrays they are in.

The requests are made from the declarations, so that no API and no array can be left out. A step is what a task does
between two yields; what it costs is counted in calls of functions, those in C included, which no machine changes.
``python -m bench loop-hold`` measures the same in milliseconds, with the largest requests that are accepted.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

import pytest
import trio

from bench.largest_requests import array_paths, request_with
from kafka_wire.codec import encode_bytes
from kafka_wire.schema import Request
from trio_broker import yield_budget
from trio_broker.handlers.support.registry import served_apis

ELEMENTS = 3000

MAX_CALLS = 2900
"""In one step: fewer than elements, so that a loop over them that calls anything is seen; most take some hundred."""

CASES = [
    pytest.param(api.request, api.versions.high, path, id=f"{api.api_key.name}-{'.'.join(path)}")
    for api in served_apis().values()
    for path in array_paths(api.request, api.versions.high)
]


class CallsPerStep(trio.abc.Instrument):
    """Counts the calls in each step of every task; ``most`` is the largest count, ``where`` what called most in it."""

    def __init__(self) -> None:
        self.most = 0
        self.where: list[tuple[int, str]] = []
        self._callers: dict[int, tuple[int, CodeType]] = {}

    def count(self, frame: FrameType, event: str, argument: object) -> None:
        """Called by the interpreter at each call of a function, of Python's or of C's."""
        if event == "call" or event == "c_call":
            # By its identity: to hash a code object takes long.
            code = frame.f_code
            calls, _ = self._callers.get(id(code), (0, code))
            self._callers[id(code)] = calls + 1, code

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._callers = {}

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        callers, self._callers = self._callers, {}
        if (total := sum(calls for calls, _ in callers.values())) > self.most:
            self.most = total
            self.where = sorted(((calls, code.co_qualname) for calls, code in callers.values()), reverse=True)[:5]


@pytest.mark.parametrize(("kind", "version", "path"), CASES)
async def test_no_step_grows_with_the_request(wire, monkeypatch, kind: type[Request[Any]], version, path):
    # A turn wherever one may be given, or the machine would decide how much is in one.
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    await wire.create_topic("wide", 5)
    body = encode_bytes(request_with(kind, version, path, ELEMENTS), version)
    # Twice: readers and writers are compiled, and the types of fields resolved, when they are first used.
    with trio.move_on_after(5):
        await wire.send(kind.API_KEY, version, body)
    calls = CallsPerStep()
    trio.lowlevel.add_instrument(calls)
    before = sys.getprofile()
    sys.setprofile(calls.count)
    try:
        with trio.move_on_after(5):
            await wire.send(kind.API_KEY, version, body)
    finally:
        sys.setprofile(before)
        trio.lowlevel.remove_instrument(calls)
    assert calls.most < MAX_CALLS, calls.where
