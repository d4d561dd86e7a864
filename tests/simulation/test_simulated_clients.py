"""What simulated clients count as a broken promise."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.simulation.simulated_clients import TOPIC, Producer
from tests.simulation.simulated_machine import Machine
from tests.simulation.simulated_world import World
from trio_broker.runtime.simulated_clock import SimulatedClock
from trio_broker.runtime.simulated_network import SimulatedNetwork

NONE, LATER, LOST = (
    ErrorCode.NONE,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)


@attrs.define
class ScriptedConnection:
    """Answers the batches of each call with the next codes."""

    codes: list[Sequence[ErrorCode]]

    async def ask_together(self, requests: Sequence[Any], version: int) -> list[Any]:
        return [produced(code) for code in self.codes.pop(0)]

    def close(self) -> None: ...


def produced(code: ErrorCode) -> ProduceResponse:
    partition = PartitionProduceResponse(index=0, error_code=code, base_offset=0)
    return ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=[partition])])


@pytest.mark.parametrize(
    ("bursts", "count"),
    [
        # The broker knew nothing of the producer when it took the second batch, and may take it without the first.
        ([[(LATER, NONE), (LOST,)]], 0),
        ([[(NONE, LATER), (LOST,)]], 1),
        ([[(NONE, NONE)], [(LOST, LOST)]], 1),
    ],
)
async def test_a_sequence_is_lost_if_one_before_it_was_acknowledged(
    bursts: list[list[Sequence[ErrorCode]]], count: int, autojump_clock: Any
) -> None:
    lost: list[str] = []
    host = SimulatedNetwork().host("broker")
    machine = Machine(host, Random(0), 9092, "fsync", SimulatedClock(autojump_clock))
    connection: Any = ScriptedConnection([])
    world = World(machine, Random(0), lambda world, name: connection)
    producer = Producer(world, "producer", 1, True, 0.0, on_lost_sequence=lost.append, producer_id=1, producer_epoch=0)
    await producer.run()
    for codes in bursts:
        connection.codes = list(codes)
        await producer._send(2)
    assert len(lost) == count
