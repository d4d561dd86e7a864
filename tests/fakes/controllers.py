"""A controller whose decisions are published, on a log of the test's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import trio

from tests.fakes.memory_metadata_log import MemoryMetadataLog
from trio_broker.changes.change_log import ChangeLog
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.dynamic_config_publisher import DynamicConfigPublisher
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_delta import replayed
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_loader import MetadataLoader
from trio_broker.cluster.metadata_publisher import MetadataPublisher
from trio_broker.concurrency.barrier import run_to_end
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.runtime.clock import Clock, SystemClock
from trio_broker.runtime.real import real_runtime


def make_controller(
    metadata_log: MemoryMetadataLog, config: BrokerConfig, records: Iterable[Any] = (), clock: Clock | None = None
) -> Controller:
    """A controller that begins with the image of ``records``, the replay of the log. Nothing follows its changes but
    ``config`` and a journal in memory."""
    image = replayed(records, offset=metadata_log.log_end_offset - 1)
    dynamic_config = DynamicConfigPublisher(config)
    dynamic_config.apply(image, image.configs_by_resource)
    publisher = MetadataPublisher(MetadataCache(image), dynamic_config, ChangeLog(SystemClock()))
    return leading(metadata_log, MetadataLoader(metadata_log, publisher), config, clock or SystemClock())


def leading(metadata_log: MemoryMetadataLog, loader: MetadataLoader, config: BrokerConfig, clock: Clock) -> Controller:
    """A controller that has the claim, and what it appends is published, up to the end of the test."""
    controller = Controller(metadata_log, loader, config, real_runtime(clock))
    controller.writer.activate(metadata_log.held())
    trio.lowlevel.spawn_system_task(run_to_end, "metadata loader", loader.run)
    return controller


def set_image(controller: Controller, image: MetadataImage) -> None:
    """Have the broker and its controller know ``image``, whatever the log says."""
    controller.loader.publisher.cache.set_image(image)
    controller.writer._image = image
