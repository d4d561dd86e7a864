"""Handlers over real logs."""

from __future__ import annotations

import attrs
import pytest
import trio

from tests.fakes.inline_workers import InlineWorkers
from tests.handlers.group_client import GroupClient
from tests.handlers.handler_client import Client
from tests.handlers.second_broker import SecondBroker
from tests.handlers.two_brokers import FROM_BROKER, HERE, Locator, Peers, in_cluster
from tests.handlers.wire_client import ADVERTISED, WireClient, broker_config, new_dispatcher
from tests.partition.real_logs import make_replicas
from trio_broker.bootstrap import open_services
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime


@pytest.fixture
def tmp_path(memory_path):
    """Handlers answer without a socket, so their logs may lie in memory."""
    return memory_path


@pytest.fixture
async def replicas(tmp_path, nursery):
    """A replica manager in page-cache mode, alive."""
    made = make_replicas(tmp_path / "data", log_durability="page-cache")
    await nursery.start(made.run)
    yield made
    made.log_manager.close(clean=False)


@pytest.fixture
async def durable_replicas(tmp_path, nursery):
    """A replica manager in fsync mode, alive."""
    made = make_replicas(tmp_path / "durable")
    await nursery.start(made.run)
    yield made
    made.log_manager.close(clean=False)


@pytest.fixture
def client(replicas):
    return Client(replicas)


@pytest.fixture
def durable_client(durable_replicas):
    return Client(durable_replicas)


@pytest.fixture
def workers():
    """What does blocking work. A module about what is done in threads has a fixture of this name."""
    return InlineWorkers()


@pytest.fixture
async def open_wire_client(tmp_path, workers):
    """Open the parts of a broker with given settings, and return a client of its Dispatcher."""
    ended = trio.Event()

    async def host(config, runtime, advertised, *, task_status):
        async with open_services(config, runtime, advertised) as services:
            task_status.started(services)
            await ended.wait()

    # In tasks of this fixture: clients are opened by other fixtures and by tests, which end before them.
    async with trio.open_nursery() as nursery:

        async def open_client(advertised=ADVERTISED, directory="broker", **settings):
            clock = ManualClock()
            config = broker_config(tmp_path / directory, **settings)
            runtime = attrs.evolve(real_runtime(clock), workers=workers)
            services = await nursery.start(host, config, runtime, advertised)
            return WireClient(new_dispatcher(services), clock)

        yield open_client
        ended.set()


@pytest.fixture
async def wire(open_wire_client):
    """A client of a fresh broker with its defaults but for one offsets partition, which speaks in bytes."""
    return await open_wire_client(offsets_topic_num_partitions="1")


@pytest.fixture
def second_broker(wire):
    """A broker that is not in the cluster of ``wire`` yet, and reaches it by the listener of brokers."""
    locator = Locator(HERE)
    return SecondBroker(in_cluster(wire, locator, Peers(), FROM_BROKER), locator)


@pytest.fixture
async def open_group_client(open_wire_client, nursery):
    """Open a broker with given settings and a topic ``t`` of three partitions, and return a client of its groups."""

    async def open_client(**settings):
        wire = await open_wire_client(
            group_initial_rebalance_delay_ms="0", offsets_topic_num_partitions="2", **settings
        )
        await nursery.start(wire.services.groups.run)
        await wire.create_topic("t", partitions=3)
        await wire.services.groups.find("g")
        return GroupClient(wire)

    yield open_client
    nursery.cancel_scope.cancel()


@pytest.fixture
async def groups(open_group_client):
    """A client of the groups of a fresh broker, which waits for nobody before a first rebalance."""
    return await open_group_client()
