"""Many simulations of clusters from one that is prepared: each goes on in a copy of the process.

To start brokers and topics takes longer than a short simulation. A process that has done so forks for each seed; what
it forks has no sockets and no threads, and the loop goes on in the copy as it would have here.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
from collections import defaultdict
from collections.abc import Callable, Iterable

import trio

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
from tests.simulation.cluster.jumping_clock import jumping_clock
from tests.simulation.cluster.simulated_cluster import without_sockets

CPU_SECONDS = 60
"""Of one simulation, after which it counts as one that does not end."""

NEVER_ENDS = "a simulation ends"


def simulate_all(
    seeds: Iterable[int],
    report: Callable[[ClusterResult], object],
    draw_plan: DrawPlan = Plan.short,
    before_each: Callable[[], object] = lambda: None,
) -> None:
    """Have ``report`` called with the result of each of ``seeds``; ``before_each`` is called in the copy.

    Those with equal beginnings come one after the other.
    """
    by_beginning: dict[Begin, list[int]] = defaultdict(list)
    for seed in seeds:
        by_beginning[begin_of(seed)].append(seed)
    for begin, some in by_beginning.items():
        simulate_from(begin, some, report, draw_plan, before_each)


def simulate_from(
    begin: Begin,
    seeds: Iterable[int],
    report: Callable[[ClusterResult], object],
    draw_plan: DrawPlan = Plan.short,
    before_each: Callable[[], object] = lambda: None,
) -> None:
    """Prepare a cluster, and go on from there with each of ``seeds``."""
    simulation = ClusterSimulation(begin, jumping_clock())

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
                    report(_result_of(child, reading, seed, draw_plan))
                nursery.cancel_scope.cancel()

    with deterministic_scheduling(PREPARED_SEED), without_sockets():
        trio.run(run, clock=simulation.clock)
    gc.unfreeze()


def _result_of(child: int, reading: int, seed: int, draw_plan: DrawPlan) -> ClusterResult:
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if data and not status:
        result: ClusterResult = pickle.loads(data)
        return result
    return ClusterResult.failed(seed, draw_plan, Violation(NEVER_ENDS, f"the process has ended with {status}"))
