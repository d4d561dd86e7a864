"""A controller whose decisions are published, on a log of the test's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.fakes.memory_metadata_log import MemoryMetadataLog
from trio_broker.changes.change_log import ChangeLog
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.dynamic_config_publisher import DynamicConfigPublisher
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_delta import replayed
from trio_broker.cluster.metadata_publisher import MetadataPublisher
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
    return Controller(metadata_log, metadata_log.held(), publisher, config, real_runtime(clock or SystemClock()))
