"""Controllers and loaders of several brokers on one store in etcd: what one decides all have, and another goes on."""

from __future__ import annotations

import trio

from tests.cluster.etcd.etcd_world import World
from trio_broker.changes.change_log import ChangeLog
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.dynamic_config_publisher import DynamicConfigPublisher
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_loader import MetadataLoader
from trio_broker.cluster.metadata_publisher import MetadataPublisher
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime

SOON_SECONDS = 12.0


async def controller_of(world: World, node_id: int, life: trio.Nursery) -> Controller:
    """A broker's controller, which has read everything; it leads when it can."""
    store = await world.broker()
    config, clock = BrokerConfig({"node.id": str(node_id)}), ManualClock()
    publisher = MetadataPublisher(MetadataCache(MetadataImage()), DynamicConfigPublisher(config), ChangeLog(clock))
    loader = MetadataLoader(store, publisher)
    life.start_soon(loader.run)
    controller = Controller(store, loader, config, real_runtime(clock))
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
