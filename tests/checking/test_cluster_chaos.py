"""A cluster keeps its promises through kills, stops and partitions of its brokers, and the checker finds nothing wrong.

``CHAOS_SEED=…`` repeats a run: the same faults at the same times, though not the same schedule of its threads.
``CHAOS_FAULTS=…`` is another number of faults.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.checking.cluster_chaos import fault_plan, run_faults
from tests.checking.cluster_processes import ClusterProcesses, cluster_plan
from tests.checking.test_group_chaos import SEED
from tests.checking.transaction_chaos import run_transactions
from trio_broker.testing.cluster_thread import cluster_in_thread

FAULTS = "CHAOS_FAULTS"

pytestmark = pytest.mark.compat


def live_through(directory: Path, seed: int, faults: int) -> None:
    print(f"\n{SEED}={seed}", flush=True)
    with cluster_in_thread(
        brokers=3, offsets_topic_num_partitions=2, transaction_state_log_num_partitions=2, min_insync_replicas=2
    ) as cluster:
        report = run_faults(directory, cluster, fault_plan(seed, faults))
    print(report)
    if report.violations:
        violations = "\n".join(str(violation) for violation in report.violations)
        pytest.fail(f"{SEED}={seed}, history in {directory}:\n{violations}", pytrace=False)


def test_a_cluster_keeps_its_promises_through_four_faults(tmp_path: Path) -> None:
    live_through(tmp_path, 3, 4)


@pytest.mark.soak
def test_a_cluster_keeps_its_promises_through_many_faults(tmp_path: Path) -> None:
    live_through(tmp_path, int(os.environ.get(SEED) or secrets.randbelow(1_000_000)), int(os.environ.get(FAULTS, "40")))


@pytest.mark.soak
def test_processes_on_etcd_keep_their_promises_through_their_faults(tmp_path: Path) -> None:
    seed, clusters = int(os.environ.get(SEED) or secrets.randbelow(1_000_000)), list[ClusterProcesses]()

    def start(directory: Path, overrides: Mapping[str, str]) -> ClusterProcesses:
        clusters.append(ClusterProcesses(directory, seed, overrides))
        return clusters[0]

    print(f"\n{SEED}={seed}", flush=True)
    try:
        settings = {"log.durability": "page-cache"}
        report = run_transactions(tmp_path, cluster_plan(seed, int(os.environ.get(FAULTS, "12"))), settings, start)
    finally:
        for cluster in clusters:
            cluster.close()
    print(report, clusters[0].faults)
    if report.violations:
        violations = "\n".join(str(violation) for violation in report.violations)
        pytest.fail(f"{SEED}={seed}, history in {tmp_path}:\n{violations}", pytrace=False)
