"""Many simulations of clusters from one that is prepared: each goes on in a copy of the process.

To start brokers and topics takes longer than a short simulation. A process that has done so forks for each seed; what
it forks has no sockets and no threads, and the loop goes on in the copy as it would have here.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NoReturn

import attrs

from tests.checking.history import Violation
from tests.simulation.cluster.cluster_simulation import (
    Begin,
    ClusterResult,
    ClusterSimulation,
    DrawPlan,
    Plan,
    begin_of,
    run_prepared,
    simulated,
)

CPU_SECONDS = 60
"""Of one simulation, after which it counts as one that does not end."""

NEVER_ENDS = "a simulation ends"


@attrs.frozen
class Job:
    """One simulation; ``before`` is called in the copy of the process, before it goes on."""

    seed: int
    draw_plan: DrawPlan = Plan.short
    before: Callable[[], object] = lambda: None


Report = Callable[[ClusterResult], object]


def simulate_all(seeds: Iterable[int], report: Report, draw_plan: DrawPlan = Plan.short) -> None:
    """Have ``report`` called with the result of each of ``seeds``, those with equal beginnings one after the other."""
    by_beginning: dict[Begin, list[Job]] = defaultdict(list)
    for seed in seeds:
        by_beginning[begin_of(seed)].append(Job(seed, draw_plan))
    for begin, jobs in by_beginning.items():
        simulate_from(begin, jobs, report)


def simulate_from(begin: Begin, jobs: Iterable[Job], report: Report) -> None:
    """Prepare a cluster, and go on from there with each of ``jobs``, which are asked for one after the other."""

    async def fork_for_each(simulation: ClusterSimulation) -> None:
        gc.collect()
        gc.freeze()
        for job in jobs:
            reading, writing = os.pipe()
            if not (child := os.fork()):
                os.close(reading)
                await _go_on(job, simulation, writing)
            os.close(writing)
            report(_result_of(child, reading, job))

    run_prepared(begin, fork_for_each)
    gc.unfreeze()


async def _go_on(job: Job, simulation: ClusterSimulation, writing: int) -> NoReturn:
    """Be the copy: write the result, and end."""
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    gc.disable()
    try:
        job.before()
        result = await simulated(job.seed, job.draw_plan, simulation)
    except BaseException:
        # Also where the whole loop is cancelled: nobody above may go on in two processes.
        result = ClusterResult.failed(job.seed, job.draw_plan, Violation(NEVER_ENDS, traceback.format_exc()))
    try:
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(result, pipe)
    finally:
        os._exit(0)


def _result_of(child: int, reading: int, job: Job) -> ClusterResult:
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    if data and not status:
        result: ClusterResult = pickle.loads(data)
        return result
    return ClusterResult.failed(job.seed, job.draw_plan, Violation(NEVER_ENDS, f"the process has ended with {status}"))
