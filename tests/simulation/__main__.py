"""Run simulations: ``python -m tests.simulation [KIND] FIRST END [PROCESSES]``.

With ``--transactions`` they are of transactions alone, with ``--lost`` of such that power cuts take in page-cache mode,
with ``--waits`` of readers that wait, with ``--metadata-store`` of several brokers' metadata in etcd.
Prints each seed that breaks a promise, with what it broke, and at the end what happened in all of them. Exits with 1 if
there was one.
"""

from __future__ import annotations

import logging
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable

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


def describe(result: Result | MetadataStoreResult) -> str:
    violations = "\n  ".join(str(each) for each in result.violations[:3])
    return f"seed {result.seed}: {result.plan}\n  {violations}"


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    if kind in KINDS:
        sys.exit(main(KINDS[kind], *map(int, rest)))
    sys.exit(main(simulate, *map(int, sys.argv[1:])))
