"""A cluster keeps its promises through kills, stops and partitions of its brokers, and the checker finds nothing wrong.

``CHAOS_SEED=…`` repeats a run: the same faults at the same times, though not the same schedule of its threads.
``CHAOS_FAULTS=…`` is another number of faults.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.checking.chaos_run import run_steps
from tests.checking.cluster_chaos import fault_plan, run_faults
from tests.checking.cluster_processes import ClusterProcesses, cluster_plan
from tests.checking.recorded_members import DEPENDABLE_KINDS
from tests.checking.transaction_chaos import run_transactions
from tests.checking.transactional_loops import LOOPS
from tests.checking.verdict import Report, drawn_seed, judge
from trio_broker.testing.cluster_thread import cluster_in_thread

FAULTS = "CHAOS_FAULTS"

pytestmark = pytest.mark.compat


def live_through(directory: Path, seed: int, faults: int) -> None:
    with cluster_in_thread(
        brokers=3, offsets_topic_num_partitions=2, transaction_state_log_num_partitions=2, min_insync_replicas=2
    ) as cluster:
        report = run_faults(directory, cluster, fault_plan(seed, faults))
    judge(report, seed, directory)


def test_a_cluster_keeps_its_promises_through_four_faults(tmp_path: Path) -> None:
    live_through(tmp_path, 3, 4)


@pytest.mark.soak
def test_a_cluster_keeps_its_promises_through_many_faults(tmp_path: Path) -> None:
    live_through(tmp_path, drawn_seed(), int(os.environ.get(FAULTS, "40")))


@pytest.mark.soak
@pytest.mark.parametrize("durability", ["page-cache", "fsync"])
@pytest.mark.parametrize("load", ["transactions", "groups"])
def test_processes_on_etcd_keep_their_promises_through_their_faults(tmp_path: Path, load: str, durability: str) -> None:
    seed, clusters = drawn_seed(), list[ClusterProcesses]()
    faults = int(os.environ.get(FAULTS, "12"))

    def start(directory: Path, overrides: Mapping[str, str]) -> ClusterProcesses:
        clusters.append(ClusterProcesses(directory, seed, {**overrides, "log.durability": durability}))
        return clusters[0]

    try:
        if load == "groups":
            plan = cluster_plan(seed, faults, [kind.name for kind in DEPENDABLE_KINDS])
            report: Report = run_steps(tmp_path, plan, DEPENDABLE_KINDS, broker=start)
        else:
            report = run_transactions(tmp_path, cluster_plan(seed, faults, [loop.name for loop in LOOPS]), {}, start)
    finally:
        for cluster in clusters:
            cluster.close()
    print(clusters[0].faults)
    judge(report, seed, tmp_path)
