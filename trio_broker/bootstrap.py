"""Puts the parts of a broker together, from its disk up to what handlers need. Of the network the clients of other
brokers are here; what listens is the ``Broker``'s.

Opened in this order, closed in the other: the data directories are locked and recognised; the metadata log is replayed
into the image, and of several brokers read on to the end of what they share; the partitions' logs are loaded, recovered
where the last stop was no clean one; this start is registered, alone with new leader epochs, behind which a metadata
log that has grown long is replaced by a snapshot; and the partitions are opened in the ReplicaManager.

Everything is closed properly, with the marker that spares the next start a recovery, only when the block inside ends
without an exception.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence, Set
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import PurePath

import attrs
import trio

from kafka_wire.primitives import NO_BROKER_EPOCH
from trio_broker.changes.change_file import FILE_NAME, ChangeFile
from trio_broker.changes.change_log import ChangeLog
from trio_broker.cluster.acl_control import acl_records
from trio_broker.cluster.acl_publisher import AclPublisher
from trio_broker.cluster.alter_partition_manager import AlterPartitionManager
from trio_broker.cluster.assignments_manager import AssignmentsManager
from trio_broker.cluster.broker_clients import BrokerClients, client_id_of
from trio_broker.cluster.broker_lifecycle_manager import BrokerLifecycleManager, RegistrationRefused
from trio_broker.cluster.broker_metadata_publisher import BrokerMetadataPublisher
from trio_broker.cluster.client_quota_publisher import ClientQuotaPublisher
from trio_broker.cluster.cluster_control import NodeRegistration
from trio_broker.cluster.cluster_events import ClusterEvents
from trio_broker.cluster.config_trials import ConfigTrials
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.controller_channel import ControllerChannel, ControllerChannels
from trio_broker.cluster.controller_client import ControllerClient
from trio_broker.cluster.dynamic_config_publisher import BrokerReconfigurable, DynamicConfigPublisher
from trio_broker.cluster.features import own_features, require_supported
from trio_broker.cluster.local_metadata_store import LocalMetadataStore
from trio_broker.cluster.log_dir_failure_handler import LogDirFailureHandler
from trio_broker.cluster.lost_metadata import MentionedTopics, require_topics, require_whole_log
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_copy import MetadataCopy, open_metadata_log, replace_by_snapshot
from trio_broker.cluster.metadata_faults import MetadataFaults
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_loader import MetadataLoader
from trio_broker.cluster.metadata_log import MetadataLog
from trio_broker.cluster.metadata_ownership import require_copy, require_no_copy
from trio_broker.cluster.metadata_publisher import MetadataPublisher
from trio_broker.cluster.metadata_store import MetadataStore
from trio_broker.cluster.producer_ids import ProducerIds
from trio_broker.cluster.remote_controller import RemoteController
from trio_broker.cluster.replica_brokers import ImageBrokers
from trio_broker.cluster.shared_metadata import SharedMetadata, proposed_cluster_id
from trio_broker.cluster.stored_controller_locator import StoredControllerLocator
from trio_broker.cluster.stored_metadata import require_own_metadata
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.barrier import background_nursery, start_background
from trio_broker.concurrency.yield_budget import InTurns, in_turns
from trio_broker.config.authorizer_config import NO_AUTHORIZER, AuthorizerConfig, principals_of
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.config.listeners import Endpoint, inter_broker_listener
from trio_broker.config.log_config import LogConfig
from trio_broker.config.metadata_store_config import LOCAL
from trio_broker.config.resource_config import topic_config
from trio_broker.coordinator.group_coordinator import GroupCoordinator
from trio_broker.coordinator.marker_writer import MarkerWriter
from trio_broker.coordinator.transactions.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from trio_broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from trio_broker.coordinator.transactions.transaction_marker_channel_manager import TransactionMarkerChannelManager
from trio_broker.handlers.support.services import BrokerServices, NodeInfo
from trio_broker.network.network_clients import NetworkClients
from trio_broker.partition.log_loader import LogLoader
from trio_broker.partition.partition import Durability
from trio_broker.partition.remote_leader_endpoint import Follower
from trio_broker.partition.replica_fetcher_manager import ReplicaFetcherManager
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.quota.quota_managers import QuotaManagers
from trio_broker.runtime.disk import Disk
from trio_broker.runtime.randomness import random_uuid
from trio_broker.runtime.runtime import Runtime
from trio_broker.runtime.workers import Workers
from trio_broker.security.broker_security import broker_security
from trio_broker.security.standard_authorizer import StandardAuthorizer
from trio_broker.storage import partition_metadata
from trio_broker.storage.errors import is_shortage
from trio_broker.storage.log_directory import clean_shutdown_epoch
from trio_broker.storage.log_loading import KnownPartition
from trio_broker.storage.log_manager import LogManager

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_services(
    config: BrokerConfig,
    runtime: Runtime,
    advertised: Mapping[str, Endpoint],
    reconfigurables: Sequence[BrokerReconfigurable] = (),
    loader: LogLoader | None = None,
    shared: SharedMetadata | None = None,
    quotas: QuotaManagers | None = None,
) -> AsyncIterator[BrokerServices]:
    """Open the data directories of ``config`` and everything that lives on them.

    ``advertised`` is what each listener, by name, tells its clients; ``reconfigurables`` are further parts that act on
    a change of their settings; ``loader`` loads the logs, and knows how far it is. ``shared`` is the metadata of
    several brokers of this process, in place of what ``metadata.store`` names. The network goes by ``quotas`` as well.

    Raises:
        LoadStopped: ``loader`` was stopped.
        RegistrationRefused: this broker cannot be one of the cluster.
        DataDirectoryError: a directory is locked, foreign, damaged or unreadable; the message is one line.
        OSError: the disk failed.
    """
    async with background_nursery() as nursery:
        if shared is None and config.metadata_store.metadata_store != LOCAL:
            # Imported here: a broker alone needs no HTTP/2.
            from trio_broker.cluster.etcd.opening import join_etcd

            directories = [PurePath(directory) for directory in config.node.log_dirs]
            proposed = await runtime.workers.run(partial(proposed_cluster_id, runtime, directories))
            shared = await join_etcd(config.metadata_store, runtime, nursery, proposed)
        async with (
            opened_directories(config, runtime, shared) as directories_in_use,
            opened_metadata(directories_in_use, runtime, shared) as metadata,
            background_nursery() as services_nursery,
        ):
            quotas = quotas or QuotaManagers(runtime.clock, config.quota)
            opening = Opening(config, runtime, services_nursery, directories_in_use, metadata, shared, quotas)
            services = await opening.open(advertised, reconfigurables, loader or LogLoader())
            yield services
            directories_in_use.high_watermarks |= services.replicas.replicated_high_watermarks()


@attrs.define
class OpenDirectories:
    """The data directories of a broker that runs.

    ``previous_broker_epoch`` is what the last clean stop of one of several has left. At their end the others count: the
    broker's epoch, the high watermarks of partitions whose leaders may have them cut, and which directories are not to
    be marked as closed.
    """

    log_manager: LogManager
    previous_broker_epoch: int = NO_BROKER_EPOCH
    broker_epoch: int = NO_BROKER_EPOCH
    high_watermarks: dict[TopicPartition, int] = attrs.field(factory=dict)
    unclosed: set[PurePath] = attrs.field(factory=set)

    def close(self, *, clean: bool) -> None:
        """Close the logs. After a clean stop everything in them is durable, and so the high watermark is their end, but
        for ``high_watermarks``. Blocks."""
        ends = {partition: each.log_end_offset for partition, each in self.log_manager.logs.items()}
        self.log_manager.close(
            clean=clean,
            unclosed=self.unclosed,
            high_watermarks={**ends, **self.high_watermarks},
            broker_epoch=self.broker_epoch,
        )


@asynccontextmanager
async def opened_directories(
    config: BrokerConfig, runtime: Runtime, shared: SharedMetadata | None
) -> AsyncIterator[OpenDirectories]:
    """The data directories, locked and recognised; a block that ends without an exception has stopped cleanly."""
    directories, workers = [PurePath(directory) for directory in config.node.log_dirs], runtime.workers
    previous_epoch = NO_BROKER_EPOCH
    if shared is not None:
        # Before the directories are opened, which removes the marker.
        previous_epoch = await workers.run(partial(clean_shutdown_epoch, runtime.disk, directories))
    log_manager = LogManager(
        directories,
        disk=runtime.disk,
        random=runtime.random,
        node_id=config.node.node_id,
        clock=runtime.clock,
        cluster_id=None if shared is None else shared.cluster_id,
        allow_new=config.node.log_dirs_allow_new,
        is_one_of_several=shared is not None,
        sync_recovered=Durability(config.node.log_durability) is Durability.FSYNC,
    )
    require = require_metadata if shared is None else require_shared_metadata
    await workers.run(partial(log_manager.open, partial(require, runtime.disk)))
    opened, ended_well = OpenDirectories(log_manager, previous_epoch), False
    try:
        yield opened
        ended_well = True
    finally:
        await run_shielded(workers, partial(opened.close, clean=ended_well))


@asynccontextmanager
async def opened_metadata(
    opened: OpenDirectories, runtime: Runtime, shared: SharedMetadata | None
) -> AsyncIterator[MetadataCopy]:
    """The metadata log in the first directory, replayed, and up to the end of what several brokers share."""
    log_manager, workers = opened.log_manager, runtime.workers
    opening = partial(open_metadata, log_manager, runtime, is_copy=shared is not None)
    # So that a broker with a full disk starts, and its operator can delete something.
    metadata = await workers.run(partial(log_manager.directories[0].with_reserve, opening))
    try:
        if shared is not None:
            await metadata.catch_up(shared.store, partial(replace_by_snapshot, log_manager.directories[0], runtime))
            require_supported(metadata.image)
        yield metadata
    finally:
        await run_shielded(workers, log_manager.make_room_to_close)
        await run_shielded(workers, metadata.metadata_log.close)
        if metadata.metadata_log.failure is not None:
            opened.unclosed.add(log_manager.directories[0].path)


@attrs.define(eq=False)
class Opening:
    """Opens what lives on the data directories and the metadata, one part after the other. ``nursery`` is that of their
    tasks."""

    config: BrokerConfig
    runtime: Runtime
    nursery: trio.Nursery
    directories: OpenDirectories
    metadata: MetadataCopy
    shared: SharedMetadata | None
    quotas: QuotaManagers

    async def open(
        self, advertised: Mapping[str, Endpoint], reconfigurables: Sequence[BrokerReconfigurable], loader: LogLoader
    ) -> BrokerServices:
        """Open everything; see ``open_services``."""
        config, runtime, log_manager = self.config, self.runtime, self.directories.log_manager
        changes = await self._loaded_changes()
        metadata_cache = MetadataCache(self.metadata.image)
        dynamic_config = DynamicConfigPublisher(config)
        dynamic_config.apply(self.metadata.image, self.metadata.image.configs_by_resource)
        await load_logs(loader, log_manager, self.metadata.image, config, runtime.workers)
        replicas = ReplicaManager(
            log_manager,
            config,
            runtime,
            io_limiter=trio.CapacityLimiter(config.socket_server.num_io_threads),
            brokers=ImageBrokers(metadata_cache),
            changes=changes,
        )
        dynamic_config.reconfigurables = (replicas, replicas.log_maintenance.log_cleaner, *reconfigurables)
        node = NodeInfo(
            node_id=config.node.node_id,
            cluster_id=log_manager.cluster_id,
            rack=config.node.broker_rack,
            advertised=advertised,
            inter_broker_listener=None if self.shared is None else inter_broker_listener(config.socket_server),
        )
        metadata_faults = MetadataFaults(stops_for_parts=self.shared is not None)
        publisher = MetadataPublisher(metadata_cache, dynamic_config, changes, faults=metadata_faults)
        incarnation_id = random_uuid(runtime.random)
        controller = self._controller(publisher, replicas, incarnation_id)
        membership = await self._registered(controller, node, incarnation_id)
        asked = membership.controller
        self.directories.broker_epoch = membership.broker_epoch
        # The directory without it is as good as gone. Behind the snapshot, which begins a new segment.
        log_manager.directories[0].watch(self.metadata.metadata_log.log.active_segment.file.path)
        groups = GroupCoordinator(replicas, asked, metadata_cache, changes, config, runtime)
        dynamic_config.reconfigurables = (*dynamic_config.reconfigurables, groups)
        producer_ids = ProducerIds(asked.allocate_producer_ids)
        markers = MarkerWriter(replicas, groups)
        clients = partial(broker_clients, config, runtime, metadata_cache)
        channels = TransactionMarkerChannelManager(markers, clients(), metadata_cache, node.node_id)
        transactions = TransactionCoordinator(replicas, channels, asked, metadata_cache, producer_ids, config, runtime)
        assignments = asked_by_people = cluster_events = None
        if self.shared is not None:
            # Before the partitions, which are fetched from the moment they follow.
            replicate(self.nursery, replicas, asked, clients, runtime)
            assignments = AssignmentsManager(asked, replicas, metadata_cache)
            start_background(self.nursery, "reports of log directories", assignments.run)
            replicas.alter_log_dirs.on_moved = assignments.check_one
            asked_by_people = clients()
            start_background(self.nursery, "questions to other brokers", asked_by_people.run)
            cluster_events = ClusterEvents(node.node_id, runtime.clock, self.shared.store.controller)
        partitions = BrokerMetadataPublisher(replicas, config, metadata_faults, assignments)
        authorizer = configured_authorizer(config.authorizer)
        quota_publisher = ClientQuotaPublisher(self.quotas)
        async with controller.loader.lock:
            quota_publisher.apply_image(metadata_cache.image)
            # In this order: the coordinators find the partitions of a new topic open.
            publisher.subscribers = (quota_publisher, partitions, groups, transactions)
            if authorizer is not None:
                # First of all: what is denied is denied before anything else follows.
                acls = AclPublisher(authorizer)
                await in_turns(acls.follow(MetadataImage(), metadata_cache.image))
                publisher.subscribers = (acls, *publisher.subscribers)
            elif ignored := len(acl_records(metadata_cache.image)):
                log.warning("%d access control entries have no effect: authorizer.class.name is empty", ignored)
            if cluster_events is not None:
                publisher.subscribers = (*publisher.subscribers, cluster_events)
            await partitions.apply_image(metadata_cache.image)

        def topic_opened(name: str) -> None:
            groups.topic_opened(name)
            transactions.topic_opened(name)
            if assignments is not None:
                assignments.check(TopicPartition(name, index) for index in replicas.topic(name).partitions)

        replicas.local_partitions.on_opened = topic_opened
        if membership.lifecycle is not None:
            start_background(self.nursery, "life of the broker", partial(live, membership.lifecycle, metadata_faults))
        return BrokerServices(
            node=node,
            config=config,
            runtime=runtime,
            controller=controller,
            metadata_cache=metadata_cache,
            metadata_log=self.metadata.metadata_log,
            changes=changes,
            quotas=self.quotas,
            replicas=replicas,
            metadata_faults=metadata_faults,
            log_dir_failures=LogDirFailureHandler(self.metadata.metadata_log, replicas, membership.lifecycle),
            producer_ids=producer_ids,
            authorizer=authorizer,
            groups=groups,
            markers=markers,
            transactions=transactions,
            transaction_verification=AddPartitionsToTxnManager(transactions, clients()),
            trials=ConfigTrials(asked, dynamic_config, changes, runtime.clock),
            controller_client=asked,
            controller_channel=membership.channel,
            lifecycle=membership.lifecycle,
            broker_clients=asked_by_people,
            cluster_events=cluster_events,
            metadata_store=None if self.shared is None else self.shared.store,
        )

    async def _loaded_changes(self) -> ChangeLog:
        """The journal of changes, with this start in it."""
        runtime, first = self.runtime, self.directories.log_manager.directories[0].path
        changes = ChangeLog(runtime.clock, ChangeFile(runtime.disk, first / FILE_NAME, runtime.workers))
        await runtime.workers.run(changes.load)
        changes.record_start(str(self.config.node.node_id), self.config.static_texts)
        return changes

    def _controller(self, publisher: MetadataPublisher, replicas: ReplicaManager, incarnation_id: bytes) -> Controller:
        """The controller on the store of the metadata, which is being read from here on."""
        if self.shared is None:
            store: MetadataStore = LocalMetadataStore(self.metadata.metadata_log, self.runtime.workers)
            keep = None
        else:
            store, keep = self.shared.store, self.metadata.append
        metadata_loader = MetadataLoader(store, publisher, self.metadata.transactions, keep)
        start_background(self.nursery, "metadata loader", metadata_loader.run)
        return Controller(store, metadata_loader, self.config, self.runtime, replicas, incarnation_id)

    async def _registered(self, controller: Controller, node: NodeInfo, incarnation_id: bytes) -> Membership:
        """Register this start, and wait until all parts of this broker follow it."""
        log_manager, metadata_log = self.directories.log_manager, self.metadata.metadata_log
        wanted = NodeRegistration(
            node_id=node.node_id,
            incarnation_id=incarnation_id,
            endpoints=tuple(node.advertised.values()),
            rack=node.rack,
            log_dirs=[id for path, id in log_manager.directory_ids().items() if log_manager.is_online(path)],
        )
        if self.shared is None:
            membership = await lead_alone(self.nursery, controller, wanted)
            # Behind the loading of logs and the registration, by which the snapshot proves its partitions.
            if metadata_log.is_snapshot_due and is_every_topic_known(log_manager, controller.loader.image):
                await take_snapshot(controller, metadata_log)
            return membership
        wanted = attrs.evolve(
            wanted, features=own_features(), previous_broker_epoch=self.directories.previous_broker_epoch
        )
        membership = await join_cluster(
            self.nursery, controller, wanted, self.shared, self.runtime, log_manager.offline_directory_ids
        )
        await controller.loader.wait_loaded(membership.broker_epoch + 1)
        return membership


def configured_authorizer(config: AuthorizerConfig) -> StandardAuthorizer | None:
    """The authorizer that the settings ask for, without any entry; None where everybody may do everything."""
    if config.authorizer_class_name == NO_AUTHORIZER:
        return None
    return StandardAuthorizer(
        principals_of(config.super_users), allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found
    )


async def live(lifecycle: BrokerLifecycleManager, faults: MetadataFaults) -> None:
    """Keep this broker one of the cluster; once another process has its place it stops."""
    try:
        await lifecycle.run()
    except RegistrationRefused as error:
        faults.registration_refused(str(error))


@attrs.frozen
class Membership:
    """How this broker has started: which ``controller`` it asks, by which ``channel``, and its ``lifecycle``, the last
    two where it is one of several."""

    broker_epoch: int
    controller: ControllerClient
    channel: ControllerChannel | None = None
    lifecycle: BrokerLifecycleManager | None = None


async def lead_alone(nursery: trio.Nursery, controller: Controller, wanted: NodeRegistration) -> Membership:
    """Decide everything here.

    Raises:
        OSError: the metadata log cannot be written; then a broker alone does not start.
    """
    start_background(nursery, "controller", controller.lead)
    await controller.wait_active()
    return Membership(await controller.register_node(wanted), controller)


async def join_cluster(
    nursery: trio.Nursery,
    controller: Controller,
    wanted: NodeRegistration,
    shared: SharedMetadata,
    runtime: Runtime,
    offline_log_dirs: Callable[[], Set[bytes]],
) -> Membership:
    """Register with the controller, wherever that is.

    Where nobody is the controller this broker is it for so long: somebody has to register the first one. Then it is
    not, until it serves and others reach it.

    Raises:
        RegistrationRefused: this broker cannot be one of the cluster.
    """
    config, metadata_cache = controller.config, controller.loader.publisher.cache
    channels = controller_channels(config, runtime, shared.store, metadata_cache, wanted.incarnation_id)
    asked = RemoteController(controller, channels, metadata_cache, config, shared.cluster_id, runtime.workers)
    start_background(nursery, "connections to controllers", channels.requests.clients.run)
    if shared.show is not None:
        start_background(nursery, "view of the metadata", partial(shared.show, metadata_cache))
    lifecycle = BrokerLifecycleManager(asked, wanted, lambda: metadata_cache.image, config, offline_log_dirs)
    async with background_nursery() as registration:
        start_background(registration, "controller of the start", controller.lead)
        broker_epoch = await lifecycle.register()
    return Membership(broker_epoch, asked, channels.requests, lifecycle)


def replicate(
    nursery: trio.Nursery,
    replicas: ReplicaManager,
    asked: ControllerClient,
    clients: Callable[[], BrokerClients],
    runtime: Runtime,
) -> None:
    """Let ``replicas`` fetch what they follow, and ask for the in-sync replicas of what they lead."""
    config, node_id = replicas.config, replicas.config.node.node_id
    replicas.fetchers = ReplicaFetcherManager(
        config,
        follower=Follower(node_id, replicas.broker_epoch),
        find=replicas.find,
        appends=replicas.follower_appends,
        make_clients=clients,
    )
    alter_partitions = AlterPartitionManager(asked, node_id, replicas.broker_epoch, runtime.clock)
    replicas.alter_partition = alter_partitions.submit
    start_background(nursery, "changes of in-sync replicas", alter_partitions.run)


def broker_clients(config: BrokerConfig, runtime: Runtime, metadata_cache: MetadataCache) -> BrokerClients:
    """Clients of the other brokers, for one part of this one."""
    return BrokerClients(metadata_cache, network_clients(config, runtime), inter_broker_listener(config.socket_server))


def network_clients(config: BrokerConfig, runtime: Runtime) -> NetworkClients:
    """Connections to other brokers, in the name of this one."""
    security = broker_security(config, runtime.random, runtime.workers)
    return NetworkClients(runtime.network, client_id_of(config.node.node_id), security)


async def run_shielded(workers: Workers, work: Callable[[], object]) -> None:
    """Do closing work in a worker thread, to its end even if the caller is cancelled."""
    with trio.CancelScope(shield=True):
        await workers.run(work)


def require_metadata(disk: Disk, directories: Sequence[PurePath]) -> None:
    """Refuse directories whose metadata log is not ours, a copy, or not whole, before anything in them is changed.
    Blocks.

    Raises:
        MetadataLogUnusable: it is.
    """
    require_own_metadata(disk, directories)
    require_whole_log(disk, directories[0])
    require_no_copy(disk, directories[0])


def require_shared_metadata(disk: Disk, directories: Sequence[PurePath]) -> None:
    """As ``require_metadata``, where several brokers share the metadata, of which a copy may be behind.

    Raises:
        MetadataLogUnusable: it is not ours, or no copy.
    """
    require_own_metadata(disk, directories)
    require_copy(disk, directories[0])


def controller_channels(
    config: BrokerConfig, runtime: Runtime, store: MetadataStore, metadata_cache: MetadataCache, incarnation_id: bytes
) -> ControllerChannels:
    """The ways to the controller of several brokers; ``incarnation_id`` is that of this process."""
    node, listener_name = config.node, inter_broker_listener(config.socket_server)
    locator = StoredControllerLocator(node.node_id, incarnation_id, store.controller, metadata_cache, listener_name)
    clients = network_clients(config, runtime)
    seconds = node.broker_session_timeout_ms / 1000
    return ControllerChannels.of(locator, clients, session_timeout_seconds=seconds)


def open_metadata(log_manager: LogManager, runtime: Runtime, *, is_copy: bool) -> MetadataCopy:
    """Open the metadata log in the first directory, and replay it. Blocks.

    What proves a loss is not asked of a copy of what several brokers share, which may be behind.

    Raises:
        MetadataLogUnusable: it is damaged, or has records or features unknown to this version, or has lost some.
    """
    metadata_log = open_metadata_log(log_manager.directories[0], runtime)
    topics = MentionedTopics()
    records = chain(
        topics.noted_in_snapshot(metadata_log.replay_snapshot()) if metadata_log.snapshot is not None else (),
        topics.noted_in(metadata_log.replay_log()),
    )
    metadata = MetadataCopy.of(metadata_log, records, runtime.workers)
    if not is_copy:
        require_supported(metadata.image)
        require_topics(runtime.disk, log_manager.directory_ids(), topics)
    return metadata


def is_every_topic_known(log_manager: LogManager, image: MetadataImage) -> bool:
    """Whether no partition of a deleted topic is left under its name, which would look like one of a lost topic."""
    unopened = log_manager.load_report.failures
    return all(
        each.topic in image.topics and each.partition in image.topics[each.topic].partitions for each in unopened
    )


async def take_snapshot(controller: Controller, metadata_log: MetadataLog) -> None:
    """Replace what was replayed by a snapshot, unless there is no room for one: then a later start does."""
    try:
        await controller.snapshots.take()
    except OSError as error:
        if not is_shortage(error) or metadata_log.failure is not None:
            raise
        log.warning("no snapshot of the metadata is taken: %s", error)


async def load_logs(
    loader: LogLoader, log_manager: LogManager, image: MetadataImage, config: BrokerConfig, workers: Workers
) -> None:
    """Open the log of every partition that the image knows; directories that it does not know become strays."""
    node_id = config.node.node_id

    def config_for(topic_partition: TopicPartition, topic_id: bytes) -> LogConfig | None:
        topic = image.topics_by_id.get(topic_id)
        expected = image.topics.get(topic_partition.topic)
        if expected is not None and expected.topic_id != topic_id:
            partition_metadata.check_not_damaged(topic_id, expected.topic_id, is_anothers=topic is not None)
        if topic is None or topic.name != topic_partition.topic:
            return None
        partition = topic.partitions.get(topic_partition.partition)
        if partition is None or node_id not in partition.replicas:
            return None
        return topic_config(topic.configs, config, topic.name)

    def known_as(topic_partition: TopicPartition) -> KnownPartition | None:
        topic = image.topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition not in topic.partitions:
            return None
        partition = topic.partitions[topic_partition.partition]
        return KnownPartition(topic.topic_id, partition.leader_epoch, partition.directory_of(node_id))

    if any(each.failure for each in log_manager.directories):
        async for topic in InTurns(image.topics.values()):
            for index, partition in topic.partitions.items():
                if node_id in partition.replicas:
                    log_manager.expect(TopicPartition(topic.name, index))
    threads = config.log_manager.num_recovery_threads_per_data_dir
    report = await loader.load(log_manager, config_for, known_as, workers=workers, threads=threads)
    for stray in report.strays:
        log.warning("%s: no topic of this cluster has this partition, so it was renamed", stray)
