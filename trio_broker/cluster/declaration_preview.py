"""What a start would make of what is declared, found out from the data directories that a broker has left, or from what
a cluster of several has in etcd.

Nothing is changed: the metadata log is read to its end and not opened, and nobody claims the one in etcd.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from kafka_wire.primitives import NO_UUID
from kafka_wire.stored.metadata import RegisterBrokerRecord
from trio_broker.changes.change_log import ChangeLog
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.declarations import Declarator
from trio_broker.cluster.dynamic_config_publisher import DynamicConfigPublisher
from trio_broker.cluster.etcd.opening import opened_cluster
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_copy import image_in
from trio_broker.cluster.metadata_delta import MetadataDelta, replayed
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_loader import MetadataLoader
from trio_broker.cluster.metadata_publisher import MetadataPublisher
from trio_broker.cluster.metadata_store import Claim
from trio_broker.cluster.stored_metadata import read_stored_metadata, require_own_metadata
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.metadata_store_config import LOCAL
from trio_broker.declaration.declaration import Declaration
from trio_broker.declaration.plan import Plan
from trio_broker.runtime.disk import Disk
from trio_broker.runtime.runtime import Runtime
from trio_broker.storage import file_names
from trio_broker.storage.log_directory import LogDirectory


async def preview_declaration(declaration: Declaration, config: BrokerConfig, runtime: Runtime) -> tuple[Plan, ...]:
    """Return what a start with these settings would do about each thing that is declared. Blocks.

    Raises:
        DeclarationError: it would be refused.
        DataDirectoryError: a broker has the data directories open, or they cannot be read.
        KafkaError, WireError: what is in etcd cannot be read.
        OSError: the disk or etcd refused.
    """
    if config.metadata_store.metadata_store == LOCAL:
        image = image_at_next_start(runtime.disk, config)
    else:
        image = await image_with_this_broker(config, runtime)
    dynamic_config = DynamicConfigPublisher(config)
    dynamic_config.apply(image, image.configs_by_resource)
    publisher = MetadataPublisher(MetadataCache(image), dynamic_config, ChangeLog(runtime.clock))
    store: Any = None  # nothing is written
    controller = Controller(store, MetadataLoader(store, publisher), config, runtime)
    controller.writer.activate(Claim(config.node.node_id, image.epoch, image.offset + 1))
    declarator = Declarator(declaration, config, runtime)
    plan = await declarator.plan(image)
    await declarator.carry_out(plan, controller, image, validate_only=True)
    return plan.all


def image_at_next_start(disk: Disk, config: BrokerConfig) -> MetadataImage:
    """Return the image of the stored metadata, with this node registered, as it will be."""
    directories = [PurePath(path) for path in config.node.log_dirs]
    metadata = directories[0] / file_names.CLUSTER_METADATA_DIRECTORY
    node = registration(config)
    if not disk.is_directory(metadata):
        return replayed([node])
    directory = LogDirectory(disk, directories[0])
    directory.open()
    try:
        require_own_metadata(disk, directories)
        return replayed([*read_stored_metadata(disk, metadata).records, node])
    finally:
        directory.unlock()


async def image_with_this_broker(config: BrokerConfig, runtime: Runtime) -> MetadataImage:
    """Return the image of the cluster in etcd, with this node registered, as it will be; of a new cluster, it alone."""
    async with opened_cluster(config.metadata_store, runtime) as (store, state):
        image = MetadataImage() if state.cluster is None else await image_in(store)
    delta = MetadataDelta(image)
    if config.node.node_id not in image.brokers:
        delta.replay(registration(config))
    return delta.apply(offset=image.offset, epoch=image.epoch)


def registration(config: BrokerConfig) -> RegisterBrokerRecord:
    """The record of this broker, as far as it counts for what is declared."""
    return RegisterBrokerRecord(
        broker_id=config.node.node_id,
        incarnation_id=NO_UUID,
        broker_epoch=0,
        end_points=[],
        features=[],
        rack=None,
        fenced=False,
    )
