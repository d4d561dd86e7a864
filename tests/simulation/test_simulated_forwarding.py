"""Two simulated brokers in one event loop: what one forwards to the other survives every failure of their links."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable

import attrs
import pytest
import trio
import trio.testing

from kafka_wire.apis import ApiKey
from kafka_wire.codec import decode, encode
from kafka_wire.error_codes import ErrorCode
from kafka_wire.headers import RequestHeader, read_response_header
from kafka_wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tests.handlers.handler_client import CONNECTION, joined
from tests.scheduling import deterministic_scheduling
from tests.simulation.simulated_machine import Machine
from tests.simulation.simulated_world import answered
from trio_broker.broker import Broker
from trio_broker.cluster.controller_channel import ControllerChannel
from trio_broker.cluster.metadata_image import EndpointImage
from trio_broker.handlers.support.dispatch import Dispatcher
from trio_broker.network.network_clients import NetworkClients
from trio_broker.network.request_channel import QueuedRequest
from trio_broker.runtime.simulated_clock import SimulatedClock
from trio_broker.runtime.simulated_network import SimulatedNetwork

PORT = 9092
VERSION = 7
TOPICS = 30
FAULT_SECONDS = 0.2
ROUNDS = 20


@attrs.frozen
class Fixed:
    """A controller that stays where it is."""

    where: EndpointImage | None

    def controller(self) -> EndpointImage | None:
        return self.where


def join(machine: Machine, controller: EndpointImage | None, nursery: trio.Nursery) -> Broker:
    """Make the broker of a machine one of several."""
    assert machine.life is not None
    broker = machine.life.broker
    services = broker.services
    services.node = attrs.evolve(services.node, inter_broker_listener="PLAINTEXT")
    clients = NetworkClients(broker.runtime.network, machine.host.name)
    services.controller_channel = ControllerChannel(Fixed(controller), clients)
    nursery.start_soon(clients.run)
    broker._dispatcher = Dispatcher(services, broker.server.channel.metrics, broker.server.memory_pool)
    broker.server.handlers.handle = broker.dispatcher.answer
    return broker


def cut_one_way(network: SimulatedNetwork, chance: random.Random) -> None:
    network.link(*chance.sample(("controller", "other"), 2)).cut()


def cut(network: SimulatedNetwork, chance: random.Random) -> None:
    for link in network.links("controller", "other"):
        link.cut()


def delay(network: SimulatedNetwork, chance: random.Random) -> None:
    for link in network.links("controller", "other"):
        link.delay_seconds = chance.uniform(0.0, 0.05)


def break_connections(network: SimulatedNetwork, chance: random.Random) -> None:
    network.break_connections("controller", "other")


FAULTS: tuple[Callable[[SimulatedNetwork, random.Random], None], ...] = (
    cut_one_way,
    cut,
    delay,
    break_connections,
)


def heal(network: SimulatedNetwork) -> None:
    for link in network.links("controller", "other"):
        link.heal()


async def run_faults(network: SimulatedNetwork, chance: random.Random) -> None:
    for _ in range(ROUNDS):
        await trio.sleep(chance.expovariate(1 / FAULT_SECONDS))
        chance.choice(FAULTS)(network, chance)
        await trio.sleep(chance.expovariate(1 / FAULT_SECONDS))
        heal(network)


async def create_topics(broker: Broker, chance: random.Random, trace: list[tuple[float, int]]) -> None:
    """Create topics one after another, and note when each was answered, and with what."""
    for number in range(TOPICS):
        await trio.sleep(chance.expovariate(1 / FAULT_SECONDS))
        topic = CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        header = RequestHeader(ApiKey.CREATE_TOPICS, VERSION, number, "client")
        body = memoryview(joined(encode(CreateTopicsRequest(topics=[topic]), VERSION)))
        answer = await answered(broker.dispatcher.answer(QueuedRequest(header, body, CONNECTION)))
        _, position = read_response_header(ApiKey.CREATE_TOPICS, VERSION, answer)
        response, _ = decode(CreateTopicsResponse, VERSION, answer, position)
        # It exists already where the answer to the first attempt was lost.
        assert response.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        trace.append((round(trio.current_time(), 6), zlib.crc32(answer)))


async def simulate(network: SimulatedNetwork, clock: trio.testing.MockClock, seed: int) -> list[tuple[float, int]]:
    chance = random.Random(seed)
    machines = [
        Machine(network.host(name), random.Random(chance.random()), PORT, "page-cache", SimulatedClock(clock))
        for name in ("controller", "other")
    ]
    trace: list[tuple[float, int]] = []
    async with trio.open_nursery() as nursery:
        for machine in machines:
            await nursery.start(machine.run)
            await machine.start()
        controller = join(machines[0], None, nursery)
        other = join(machines[1], EndpointImage("PLAINTEXT", "controller", PORT, 0), nursery)
        nursery.start_soon(run_faults, network, chance)
        await create_topics(other, chance, trace)
        assert set(controller.services.metadata_cache.image.topics) == {f"t{number}" for number in range(TOPICS)}
        assert not other.services.metadata_cache.image.topics
        nursery.cancel_scope.cancel()
    return trace


def simulated(seed: int) -> list[tuple[float, int]]:
    network, clock = SimulatedNetwork(seed), trio.testing.MockClock(autojump_threshold=0)
    try:
        with deterministic_scheduling(seed):
            return trio.run(simulate, network, clock, seed, clock=clock)
    finally:
        network.close()


@pytest.mark.parametrize("seed", range(3))
def test_every_topic_is_created_once_through_links_that_fail(seed: int):
    simulated(seed)


def test_a_simulation_of_two_brokers_follows_from_its_seed():
    assert simulated(5) == simulated(5)
