"""No step of any API makes more calls the more elements a request has, whichever of its arrays they are in.

The requests are made from the declarations, so that no API and no array can be left out; arrays inside of arrays are
left to the night. A step is what a task does
between two yields; what it costs is counted in calls of functions, those in C included, which no machine changes.
``python -m bench loop-hold`` measures the same in milliseconds, with the largest requests that are accepted.
"""

from __future__ import annotations

import pytest
import trio
from trio.lowlevel import checkpoint

from bench.largest_requests import array_paths, request_with
from tests.handlers.calls_per_step import calls_per_step
from tests.handlers.two_brokers import FROM_BROKER, HERE, Locator, Peers, in_cluster
from trio_broker.concurrency import yield_budget
from trio_broker.concurrency.turns import Turns
from trio_broker.handlers.support.registry import ServedApi, served_apis

ELEMENTS = 1500

FIRST_ELEMENTS = 400
"""Enough for a request that is taken in turns."""

MAX_CALLS = 2900
"""In one step: fewer than two for each element, so that a loop over them that does anything is seen. Most take some
hundred, a few that answer in parts nearly so many."""

CASES = [
    pytest.param(
        *(api, api.versions.high, path),
        id=f"{api.api_key.name}-{'.'.join(path)}",
        marks=[pytest.mark.soak] if len(path) > 1 else [],
    )
    for api in served_apis().values()
    for path in array_paths(api.request, api.versions.high)
]


async def one_pass(turns: Turns) -> None:
    await checkpoint()


@pytest.mark.parametrize(("api", "version", "path"), CASES)
async def test_no_step_grows_with_the_request(wire, monkeypatch, api: ServedApi, version, path):
    await wire.create_topic("wide", 5)
    if api.between_brokers:
        wire = in_cluster(wire, Locator(HERE), Peers(), FROM_BROKER)
    await require_small_steps(wire, monkeypatch, api, version, path)


async def require_small_steps(wire, monkeypatch, api: ServedApi, version, path):
    """Send a request of many elements at ``path``, and look at its dearest step."""
    kind = api.request
    # Readers and writers are compiled, and the types of fields resolved, when they are first used.
    with trio.move_on_after(5):
        await wire.send(kind.API_KEY, version, request_with(kind, version, path, FIRST_ELEMENTS))
    body = request_with(kind, version, path, ELEMENTS)
    # A turn wherever one may be given, or the machine would decide how much is in one; of one pass, since there are
    # thousands.
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)
    monkeypatch.setattr(Turns, "wait", one_pass)
    with calls_per_step() as calls, trio.move_on_after(5):
        await wire.send(kind.API_KEY, version, body)
    assert calls.most < MAX_CALLS, calls.where
