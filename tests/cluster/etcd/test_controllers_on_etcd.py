"""Controllers and loaders of several brokers on one store in etcd: what one decides all have, and another goes on."""

from __future__ import annotations

import attrs
import trio
import trio.testing

from kafka_wire.primitives import NO_UUID
from tests.cluster.etcd.etcd_world import World
from trio_broker.changes.change_log import ChangeLog
from trio_broker.cluster.broker_heartbeat_manager import BrokerHeartbeat
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.dynamic_config_publisher import DynamicConfigPublisher
from trio_broker.cluster.features import own_features
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_loader import MetadataLoader
from trio_broker.cluster.metadata_publisher import MetadataPublisher
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime

SOON_SECONDS = 12.0


async def controller_of(world: World, node_id: int, life: trio.Nursery, incarnation_id: bytes = NO_UUID) -> Controller:
    """A broker's controller, which has read everything; it leads when it can."""
    store = await world.broker()
    config, clock = BrokerConfig({"node.id": str(node_id)}), ManualClock()
    publisher = MetadataPublisher(MetadataCache(MetadataImage()), DynamicConfigPublisher(config), ChangeLog(clock))
    loader = MetadataLoader(store, publisher)
    life.start_soon(loader.run)
    controller = Controller(store, loader, config, real_runtime(clock), incarnation_id=incarnation_id)
    life.start_soon(controller.lead)
    await loader.wait_loaded(await store.end_offset())
    return controller


async def test_the_next_controller_goes_on_where_the_one_before_has_ended(autojump_clock, world):
    async with trio.open_nursery() as brokers:
        lives = [await brokers.start(run_life) for _ in range(3)]
        controllers = [await controller_of(world, node_id, lives[node_id]) for node_id in range(3)]
        first = await active_one(controllers)
        assert (await first.allocate_producer_ids()).first == 0
        lives[controllers.index(first)].cancel_scope.cancel()
        others = [each for each in controllers if each is not first]
        with trio.fail_after(SOON_SECONDS):
            second = await active_one(others)
            block = await second.allocate_producer_ids()
            for controller in others:
                await controller.loader.wait_loaded(second.writer.end_offset)
        assert block.first == 1000
        assert {controller.loader.image.next_producer_id for controller in others} == {2000}
        brokers.cancel_scope.cancel()


async def test_a_controller_that_was_killed_and_leads_again_registers_at_once(autojump_clock, world, node):
    """Its earlier life has a session yet, and so have the others, who reach it only when it has registered."""
    node = attrs.evolve(node, node_id=0, log_dirs=[b"1" * 16], features=own_features())
    nodes = [attrs.evolve(node, incarnation_id=bytes([life]) * 16) for life in (1, 2)]
    async with trio.open_nursery() as brokers:
        lives = [await brokers.start(run_life) for _ in nodes]
        first, second = [
            await controller_of(world, 0, life, each.incarnation_id) for life, each in zip(lives, nodes, strict=True)
        ]
        assert await active_one([first, second]) is first
        epoch = await first.register_broker(nodes[0])
        await first.heartbeat(BrokerHeartbeat(broker_id=0, broker_epoch=epoch, current_metadata_offset=epoch))
        assert not first.image.brokers[0].fenced
        lives[0].cancel_scope.cancel()
        with trio.fail_after(SOON_SECONDS):
            await active_one([second])
            await trio.testing.wait_all_tasks_blocked()
            assert await second.register_broker(nodes[1]) > epoch
        brokers.cancel_scope.cancel()


async def run_life(task_status: trio.TaskStatus[trio.Nursery]) -> None:
    async with trio.open_nursery() as life:
        task_status.started(life)
        await trio.sleep_forever()


async def active_one(controllers: list[Controller]) -> Controller:
    while True:
        for controller in controllers:
            if controller.writer.is_active:
                return controller
        await trio.sleep(0.1)
