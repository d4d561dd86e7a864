"""Run simulations: ``python -m tests.simulation [KIND] FIRST END [PROCESSES]``.

With ``--transactions`` they are of transactions alone, with ``--lost`` of such that power cuts take in page-cache mode,
with ``--waits`` of readers that wait, with ``--metadata-store`` of several brokers' metadata in etcd, and with
``--cluster`` of short and ``--long-cluster`` of long lives of whole clusters. Where names of faults follow PROCESSES of
these two, no others happen.
Prints each seed that breaks a promise, with what it broke, and at the end what happened in all of them. Exits with 1 if
there was one.
"""

from __future__ import annotations

import logging
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from tests.simulation.cluster.cluster_faults import FAULTS
from tests.simulation.cluster.cluster_seeds import simulate_all
from tests.simulation.cluster.cluster_simulation import ClusterResult, DrawPlan, Plan
from tests.simulation.simulated_metadata_store import MetadataStoreResult, simulate_metadata_store
from tests.simulation.simulation import (
    Result,
    simulate,
    simulate_lost_transactions,
    simulate_transactions,
    simulate_waits,
)

Simulate = Callable[[int], Result | MetadataStoreResult]

KINDS: dict[str, Simulate] = {
    "--transactions": simulate_transactions,
    "--lost": simulate_lost_transactions,
    "--waits": simulate_waits,
    "--metadata-store": simulate_metadata_store,
}


CLUSTER_KINDS: dict[str, DrawPlan] = {"--cluster": Plan.short, "--long-cluster": Plan.long}

STORY_LINES = 40
"""Shown of a life of a cluster that breaks a promise."""

SEEDS_AT_ONCE = 250
"""Of clusters in one process, which prepares each of their beginnings once."""


def simulate_clusters(kind: str, faults: tuple[str, ...], seeds: Sequence[int]) -> tuple[list[int], Counter[str]]:
    """Run the lives of ``seeds``; return those that break a promise, and what happened in all of them."""
    broken, total = list[int](), Counter[str]()

    def draw_plan(chance: random.Random) -> Plan:
        plan = CLUSTER_KINDS[kind](chance)
        return plan.with_faults(faults) if faults else plan

    def report(result: ClusterResult) -> None:
        total.update(result.counts)
        total["seeds"] += 1
        if result.violations:
            broken.append(result.seed)
            story = "\n  ".join(result.story[-STORY_LINES:])
            command = f"python -m tests.simulation {kind} {result.seed} {result.seed + 1} 1 {' '.join(faults)}"
            print(f"{describe(result)}\n  {story}\n  again: {command}", flush=True)

    simulate_all(seeds, report, draw_plan)
    return broken, total


def cluster_main(kind: str, faults: tuple[str, ...], first: int, end: int, processes: int = 1) -> int:
    if unknown := set(faults) - FAULTS.keys():
        sys.exit(f"no faults: {sorted(unknown)}; there are {sorted(FAULTS)}")
    logging.disable(logging.CRITICAL)
    began, broken, total = time.monotonic(), list[int](), Counter[str]()
    parts = [range(first + at, min(first + at + SEEDS_AT_ONCE, end)) for at in range(0, end - first, SEEDS_AT_ONCE)]
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        for some_broken, counts in pool.imap_unordered(partial(simulate_clusters, kind, faults), parts):
            broken += some_broken
            total += counts
            print(f"{total['seeds']} seeds, {time.monotonic() - began:.0f} s, broken: {sorted(broken)}", flush=True)
    print(f"seeds {first} to {end - 1}: {len(broken)} broken {sorted(broken)}; {dict(total)}")
    return 1 if broken else 0


def main(simulate: Simulate, first: int, end: int, processes: int = 1) -> int:
    # The broker logs what its faulty machine does to it.
    logging.disable(logging.CRITICAL)
    began, broken, total = time.monotonic(), [], Counter[str]()
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=200) as pool:
        for done, result in enumerate(pool.imap_unordered(simulate, range(first, end)), 1):
            total.update(result.counts)
            if result.violations:
                broken.append(result.seed)
                print(describe(result), flush=True)
            if done % 100 == 0:
                print(f"{done} seeds, {time.monotonic() - began:.0f} s, broken: {broken}", flush=True)
    print(f"seeds {first} to {end - 1}: {len(broken)} broken {sorted(broken)}; {dict(total)}")
    return 1 if broken else 0


def describe(result: Result | MetadataStoreResult | ClusterResult) -> str:
    violations = "\n  ".join(str(each) for each in result.violations[:3])
    return f"seed {result.seed}: {result.plan}\n  {violations}"


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind in CLUSTER_KINDS:
        sys.exit(cluster_main(kind, tuple(rest[3:]), *map(int, rest[:3])))
    if kind in KINDS:
        sys.exit(main(KINDS[kind], *map(int, rest)))
    sys.exit(main(simulate, *map(int, sys.argv[1:])))
