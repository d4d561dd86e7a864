"""Who is the controller is who the others reach: a broker that answers nobody leaves it to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from tests.simulation.cluster.cluster_simulation import Begin, ClusterSimulation, run_prepared
from tests.simulation.cluster.simulated_cluster import SETTINGS, ClusterMachine, SimulatedCluster
from trio_broker.broker import Broker
from trio_broker.cluster.etcd.lease_keeper import LEASE_SECONDS

BEGIN = Begin(3, "page-cache")

SESSION_SECONDS = int(SETTINGS["broker.session.timeout.ms"]) / 1000

SOON_SECONDS = 6.0
"""Two sessions of brokers, the offer of a claim, and some heartbeats."""


async def settled(cluster: SimulatedCluster, condition: Callable[[], bool]) -> bool:
    with trio.move_on_after(SOON_SECONDS):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.05)
    return condition()


def active_in(machine: ClusterMachine) -> set[int]:
    assert machine.broker is not None
    return set(machine.broker.services.metadata_cache.image.active_brokers)


def test_a_controller_that_nobody_reaches_is_followed_by_one_that_is_reached():
    async def cut_off(simulation: ClusterSimulation) -> None:
        cluster = simulation.cluster
        unreachable = cluster.controller
        assert unreachable is not None
        others = [each for each in cluster.machines if each is not unreachable]
        for other in others:
            cluster.network.link(other.name, unreachable.name).cut()
            cluster.network.break_connections(other.name, unreachable.name)
        least_active = 3

        def is_replaced() -> bool:
            nonlocal least_active
            least_active = min(least_active, len(active_in(others[0])))
            return cluster.controller in others and {each.node_id for each in others} <= active_in(others[0])

        assert await settled(cluster, is_replaced)
        assert least_active >= 2, "nobody but the one that is not reached was taken for silent"

    run_prepared(BEGIN, cut_off)


def test_the_last_broker_that_lives_stays_the_controller_and_leads():
    async def kill_others(simulation: ClusterSimulation) -> None:
        cluster = simulation.cluster
        last = cluster.controller
        assert last is not None
        for machine in cluster.machines:
            if machine is not last:
                await machine.kill()
        assert await settled(cluster, lambda: last.is_controller and active_in(last) == {last.node_id})

    run_prepared(BEGIN, kill_others)


def test_a_broker_that_does_not_serve_yet_is_the_controller_no_longer_than_it_registers(monkeypatch):
    serve, seen = Broker._serve, list[bool]()

    async def start_alone(simulation: ClusterSimulation) -> None:
        cluster = simulation.cluster
        for machine in cluster.machines:
            await machine.stop()
        first = cluster.machines[0]

        async def look_and_serve(broker: Broker, *arguments: Any) -> Any:
            seen.append(first._store.held_claim is not None)
            return await serve(broker, *arguments)

        monkeypatch.setattr(Broker, "_serve", look_and_serve)
        await first.start()
        assert await settled(cluster, lambda: first.is_controller)

    run_prepared(BEGIN, start_alone)
    assert seen == [False]


def test_a_cluster_that_was_killed_as_a_whole_does_not_wait_for_the_sessions_before():
    async def kill_all(simulation: ClusterSimulation) -> None:
        cluster = simulation.cluster
        for machine in cluster.machines:
            await machine.kill()
        with trio.fail_after(SESSION_SECONDS + LEASE_SECONDS):
            async with trio.open_nursery() as starting:
                for machine in cluster.machines:
                    starting.start_soon(machine.start)

    run_prepared(BEGIN, kill_all)
