"""The verdict on a change of threads, by a whole broker in virtual time on a disk whose syncs are slow."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
import trio.testing

from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.metrics.test_effect import Watched
from tests.simulation.simulated_clients import create_topic
from tests.simulation.simulated_machine import Machine
from tests.simulation.simulated_world import DirectConnection, World
from trio_broker.changes.change import EffectVerdict
from trio_broker.metrics import effect_watch
from trio_broker.runtime.simulated_clock import SimulatedClock
from trio_broker.runtime.simulated_network import SimulatedNetwork

PARTITIONS = 8
"""Each with one client that sends when the last record is acknowledged."""

SYNC_SECONDS = 0.1

WINDOW_SECONDS = 15
"""In place of the minute: each virtual second costs real requests."""


async def produce_one_by_one(world: World, topic_id: bytes, partition: int, latencies: list[float]) -> None:
    connection = world.connection(f"client {partition}")
    while True:
        batch = bytes(build_batch([NewRecord(1_700_000_000_000, None, b"x")]))
        data = [PartitionProduceData(index=partition, records=batch)]
        topics = [TopicProduceData(name="orders", topic_id=topic_id, partition_data=data)]
        began = trio.current_time()
        await connection.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9)
        latencies.append(1000 * (trio.current_time() - began))


def readings(latencies_ms: list[float]) -> dict[str, Any]:
    ordered = sorted(latencies_ms)
    rates = dict.fromkeys(("requests_per_second", "records_in_per_second", "bytes_in_per_second"), float(len(ordered)))
    times = {"produce_p50_ms": ordered[len(ordered) // 2], "produce_p99_ms": ordered[int(0.99 * len(ordered))]}
    return {**rates, **(times if ordered else {}), "connections": PARTITIONS, "io_idle_ratio": 1.0}


def set_io_threads(machine: Machine, threads: int) -> None:
    """Have handlers and flusher follow ``num.io.threads``, as they do by a change over HTTP."""
    assert machine.life is not None
    machine.life.broker.services.trials.dynamic_config.try_values({"num.io.threads": str(threads)})


async def effect_of_resizing(machine: Machine, world: World, before: int, after: int) -> Any:
    """The effect of a change from ``before`` to ``after`` I/O threads, on clients that measure by themselves."""
    watched, latencies = Watched(), []  # type: ignore[var-annotated]

    async def run(seconds: int) -> None:
        for _ in range(seconds):
            latencies.clear()
            await trio.sleep(1)
            watched.run(1, readings(latencies))

    async with trio.open_nursery() as nursery:
        await nursery.start(machine.run)
        await machine.start()
        topic_id = await create_topic(world, "orders", PARTITIONS)
        set_io_threads(machine, before)
        machine.slow_syncs(1.0, SYNC_SECONDS)
        for partition in range(PARTITIONS):
            nursery.start_soon(produce_one_by_one, world, topic_id, partition, latencies)
        await trio.sleep(2)
        await run(6 * WINDOW_SECONDS)
        number = watched.change()
        set_io_threads(machine, after)
        await run(WINDOW_SECONDS + 1)
        nursery.cancel_scope.cancel()
    return watched.effect(number)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (1, 4, EffectVerdict.BETTER),
        pytest.param(4, 1, EffectVerdict.WORSE, marks=pytest.mark.soak),
        (2, 2, EffectVerdict.NO_CHANGE),
    ],
)
def test_a_change_of_io_threads_on_a_slow_disk_gets_its_verdict(
    before: int, after: int, verdict: EffectVerdict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(effect_watch, "WINDOW_SECONDS", WINDOW_SECONDS)
    network, clock = SimulatedNetwork(), trio.testing.MockClock(autojump_threshold=0)
    machine = Machine(network.host("broker"), random.Random(7), 9092, "fsync", SimulatedClock(clock))
    world = World(machine, random.Random(8), DirectConnection, faults=False)
    try:
        measured = trio.run(effect_of_resizing, machine, world, before, after, clock=clock)
    finally:
        network.close()
    assert measured.verdict is verdict, measured
