"""Many simulations of clusters from one that is prepared: each goes on in a copy of the process.

To start brokers and topics takes longer than a short simulation. A process that has done so forks for each seed; what
it forks has no sockets and no threads, and the loop goes on in the copy as it would have here.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import trio
import trio.testing

from tests.checking.history import Violation
from tests.scheduling import deterministic_scheduling
from tests.simulation.cluster.cluster_simulation import (
    PREPARED_SEED,
    Begin,
    ClusterResult,
    ClusterSimulation,
    DrawPlan,
    Plan,
    begin_of,
    simulated,
)
from tests.simulation.cluster.simulated_cluster import without_sockets

CPU_SECONDS = 60
"""Of one simulation, after which it counts as one that does not end."""

NEVER_ENDS = "a simulation ends"


def simulate_all(
    seeds: Sequence[int], draw_plan: DrawPlan = Plan.short, before_each: Callable[[], object] = lambda: None
) -> Iterator[ClusterResult]:
    """The results of ``seeds``, those of equal beginnings one after the other; ``before_each`` is called in the copy."""
    for begin, some in groupby(sorted(seeds, key=lambda seed: repr(begin_of(seed))), begin_of):
        yield from simulate_from(begin, list(some), draw_plan, before_each)


def simulate_from(
    begin: Begin, seeds: Sequence[int], draw_plan: DrawPlan, before_each: Callable[[], object] = lambda: None
) -> list[ClusterResult]:
    """Prepare a cluster, and go on from there with each of ``seeds``."""
    clock = trio.testing.MockClock(autojump_threshold=0)
    simulation = ClusterSimulation(begin, clock)
    results: list[ClusterResult] = []

    async def run() -> None:
        with simulation.pauses.installed():
            async with trio.open_nursery() as nursery:
                await simulation.prepare(nursery)
                gc.collect()
                gc.freeze()
                for seed in seeds:
                    reading, writing = os.pipe()
                    if not (child := os.fork()):
                        os.close(reading)
                        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
                        gc.disable()
                        before_each()
                        result = await simulated(seed, simulation, draw_plan)
                        with os.fdopen(writing, "wb") as pipe:
                            pickle.dump(result, pipe)
                        os._exit(0)
                    os.close(writing)
                    results.append(_result_of(child, reading, seed, draw_plan))
                nursery.cancel_scope.cancel()

    with deterministic_scheduling(PREPARED_SEED), without_sockets():
        trio.run(run, clock=clock)
    gc.unfreeze()
    return results


def _result_of(child: int, reading: int, seed: int, draw_plan: DrawPlan) -> ClusterResult:
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if data and not status:
        result: ClusterResult = pickle.loads(data)
        return result
    return ClusterResult.failed(seed, draw_plan, Violation(NEVER_ENDS, f"the process has ended with {status}"))
