"""Several real brokers inside the running process, in one thread with one event loop: a cluster for tests.

They share one metadata log, which is in none of their directories, so any of them may be killed. Everything else is as
between processes: each has its own ports, its own directory, its own connections to the others, over TCP.

    with cluster_in_thread(brokers=3) as cluster:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
        cluster.kill(1)
        ...
        cluster.restart(1)
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from types import TracebackType
from typing import Final, TypeVar
from urllib.parse import urlsplit

import attrs
import trio

from kafka_wire.primitives import uuid_text
from trio_broker.broker import Broker
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.cluster.shared_metadata import SharedMetadata, opened_metadata_store
from trio_broker.concurrency.cancel_once import cancel_once
from trio_broker.config.broker_config import BrokerConfig, load_broker_config
from trio_broker.config.errors import ConfigError
from trio_broker.dev_cluster import METADATA_DIRECTORY, broker_directory
from trio_broker.runtime.randomness import random_uuid
from trio_broker.runtime.real import real_runtime
from trio_broker.testing.advancing_clock import AdvancingClock
from trio_broker.testing.broker_thread import TEST_SETTINGS, Setting, create_topic, setting_texts
from trio_broker.testing.cluster_network import ClusterLinks, CutMetadataStore, CutNetwork
from trio_broker.testing.loop_thread import BrokerDoesNotRun, LoopThread

T = TypeVar("T")

CLUSTER_SETTINGS: Final = {
    **TEST_SETTINGS,
    # A test shall see a failover within a second.
    "broker.heartbeat.interval.ms": "100",
    "broker.session.timeout.ms": "600",
    "replica.lag.time.max.ms": "1000",
}
"""The settings of a broker of a cluster in a test that differ from the built-in defaults."""

BROKERS: Final = 3
"""As many as acks=all with ``min.insync.replicas=2`` needs, so that one may be missing."""


@attrs.define(eq=False)
class Member:
    """One broker of the cluster; ``broker`` is None while it does not run."""

    node_id: int
    data_directory: Path
    settings: Mapping[str, str] = attrs.field(factory=dict)
    """Its own."""
    address: str = ""
    listeners: str = ""
    """With the ports that the system picked at the first start."""
    admin_url: str | None = None
    broker: Broker | None = None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    ended: trio.Event = attrs.field(factory=trio.Event)

    def listens_on(self, port: int) -> bool:
        """Whether others reach it there."""
        return self.broker is not None and any(
            port == bound for _, bound in self.broker.server.bound_addresses.values()
        )

    async def wait_loaded(self, end_offset: int) -> None:
        """Wait until the running broker has followed the metadata before ``end_offset``, or has ended."""
        assert self.broker is not None, "it runs"
        controller = self.broker.services.controller
        assert isinstance(controller, Controller), "each broker has one, and one of them decides"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cancel_once, self.ended, nursery.cancel_scope)
            await controller.loader.wait_loaded(end_offset)
            nursery.cancel_scope.cancel()

    async def run(self, task_status: trio.TaskStatus[object]) -> None:
        assert self.broker is not None, "it is made by start"
        try:
            with self.scope:
                await self.broker.run(task_status=task_status)
        finally:
            self.broker = None
            self.ended.set()


class ClusterThread:
    """A cluster in a thread. Use it as a context manager, or call ``start`` and ``stop``."""

    def __init__(self, brokers: int = BROKERS, *, racks: Sequence[str] = (), **settings: Setting) -> None:
        """Take the number of brokers, the rack of each, if they have any, and the settings of all, Kafka's keys with
        ``_`` for the dots. Nothing runs yet.

        The data is in a temporary directory below ``TMPDIR``, which is removed with the cluster.
        """
        self.clock = AdvancingClock()
        self.directory = Path(tempfile.mkdtemp(prefix="trio-broker-cluster-"))
        self._remove_data = weakref.finalize(self, shutil.rmtree, self.directory, ignore_errors=True)
        self._settings = setting_texts(settings)
        self._racks = dict(enumerate(racks, 1))
        self._members = {
            node_id: Member(node_id, Path(broker_directory(PurePath(self.directory), node_id)))
            for node_id in range(1, brokers + 1)
        }
        self._run: LoopThread | None = None
        self._nursery: trio.Nursery | None = None
        self._links: ClusterLinks | None = None
        self._cluster_id = ""

    # ---- what clients need

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, with commas, for the clients' setting of that name."""
        return ",".join(member.address for member in self._members.values())

    def address_of(self, node_id: int) -> str:
        """The ``host:port`` of one broker, running or not."""
        return self._members[node_id].address

    def admin_url_of(self, node_id: int) -> str | None:
        """The address of one broker's admin page, running or not; None if it is turned off."""
        return self._members[node_id].admin_url

    @property
    def broker_ids(self) -> list[int]:
        """The ids of all brokers, running or not."""
        return list(self._members)

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that run."""
        return [member.node_id for member in self._members.values() if member.broker is not None]

    def broker(self, node_id: int) -> Broker:
        """A running broker. It is not thread-safe: change it inside ``call`` only.

        Raises:
            BrokerDoesNotRun: it was killed or stopped.
        """
        broker = self._members[node_id].broker
        if broker is None:
            raise BrokerDoesNotRun(f"broker {node_id} does not run")
        return broker

    # ---- starting and stopping

    def start(self) -> ClusterThread:
        """Start all brokers, and return when clients are served by each.

        Raises:
            ConfigError: a setting is unknown or not valid.
        """
        for node_id in self._members:
            self._config(node_id)  # so that a wrong setting is reported here
        self._run = LoopThread(self._serve, self.clock)
        self._run.begin()
        return self

    def _config(self, node_id: int) -> BrokerConfig:
        member = self._members[node_id]
        own = {**member.settings, "node.id": str(node_id), "log.dirs": str(member.data_directory)}
        if rack := self._racks.get(node_id):
            own["broker.rack"] = rack
        if member.listeners:
            own["listeners"] = member.listeners
        if member.admin_url is not None:
            own["admin.listener"] = urlsplit(member.admin_url).netloc
        config = load_broker_config(None, {**CLUSTER_SETTINGS, **self._settings, **own}, {})
        if config.warnings:
            raise ConfigError("; ".join(config.warnings))
        return config

    async def _serve(self, *, task_status: trio.TaskStatus[object]) -> None:
        runtime = real_runtime(self.clock)
        self._cluster_id = uuid_text(random_uuid(runtime.random))
        async with (
            opened_metadata_store(PurePath(self.directory / METADATA_DIRECTORY), runtime) as store,
            trio.open_nursery() as self._nursery,
        ):
            self._links = ClusterLinks(store, self._node_at)
            async with trio.open_nursery() as starting:
                for member in self._members.values():
                    starting.start_soon(self._start_one, member)
            task_status.started()
            await trio.sleep_forever()

    async def _start_one(self, member: Member) -> None:
        assert self._nursery is not None, "the cluster runs"
        links, node_id, runtime = self._living_links, member.node_id, real_runtime(self.clock)
        runtime = attrs.evolve(runtime, network=CutNetwork(links, node_id, runtime.network))
        metadata = SharedMetadata(CutMetadataStore(links, node_id), self._cluster_id)
        member.scope, member.ended = trio.CancelScope(), trio.Event()
        member.broker = broker = Broker(self._config(node_id), runtime=runtime, shared_metadata=metadata)
        await self._nursery.start(member.run)
        endpoint = broker.bound_endpoints[0]
        member.address = f"{endpoint.host}:{endpoint.port}"
        member.listeners = ",".join(map(str, broker.bound_endpoints))
        member.admin_url = broker.admin_url

    def _node_at(self, port: int) -> int | None:
        # Not by ``address``, which is known when a broker serves: others reach it before.
        return next((each.node_id for each in self._members.values() if each.listens_on(port)), None)

    @property
    def _living_links(self) -> ClusterLinks:
        if self._links is None:
            raise BrokerDoesNotRun("the cluster was not started")
        return self._links

    def stop(self) -> None:
        """Stop all brokers cleanly, one after the other."""
        if self._run is not None:
            for member in self._members.values():
                if member.broker is not None:
                    self.stop_broker(member.node_id)
            self._end()

    def _end(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.end(run.cancel)

    def __enter__(self) -> ClusterThread:
        return self if self._run is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Not cleanly: its data is removed next.
        try:
            self._end()
        finally:
            self._remove_data()

    # ---- what happens to single brokers

    def kill(self, node_id: int) -> None:
        """Stop a broker without a word to the others, and without flushing or closing files."""

        async def kill() -> None:
            member = self._members[node_id]
            if member.broker is not None:
                member.scope.cancel()
                await member.ended.wait()
                # As its lease would, which is over when nobody renews it.
                self._living_links.store.expire(node_id)

        self.call(kill)

    def stop_broker(self, node_id: int) -> None:
        """Stop a broker under control: its leaderships move first."""

        async def stop() -> None:
            member = self._members[node_id]
            if member.broker is not None:
                member.broker.stop()
                await member.ended.wait()

        self.call(stop)

    def restart(self, node_id: int, **settings: Setting) -> None:
        """Start a broker again that was killed or stopped, or stop it first; it has its data and its addresses.

        ``settings`` are its own from then on, in place of those that it had.
        """
        self.stop_broker(node_id)
        member = self._members[node_id]
        member.settings = setting_texts(settings)
        self.call(self._start_one, member)

    # ---- what tests need

    def call(self, function: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Await ``function(*arguments)`` in the cluster's loop. Any thread but its own may call this."""
        if self._run is None:
            raise BrokerDoesNotRun("the cluster was not started, or was stopped")
        return self._run.call(lambda: function(*arguments))

    def partition(self, *sides: Iterable[int]) -> None:
        """Cut the network between ``sides``. The metadata is reached by the largest of them alone."""

        async def cut() -> None:
            self._living_links.cut([frozenset(side) for side in sides])

        self.call(cut)

    def heal(self) -> None:
        """Let every broker reach every other one again, and the metadata."""

        async def heal() -> None:
            self._living_links.heal()

        self.call(heal)

    def advance(self, seconds: float) -> None:
        """Advance the clock of all brokers. Sleeping tasks and deadlines follow it; clients have their own clocks."""

        async def advance() -> None:
            self.clock.advance(seconds)

        self.call(advance)

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int = -1, **configs: Setting) -> str:
        """Create a topic, by default with as many replicas as there are brokers, up to three; return its id as text.

        Every running broker that reaches the metadata then has its replicas, and leads what it is to lead.

        Raises:
            KafkaError: the topic exists, or its name or a setting is not valid.
        """
        factor = min(len(self._members), BROKERS) if replication_factor == -1 else replication_factor
        texts = setting_texts(configs)
        wanted = NewTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=texts)
        return self.call(self._create_topic, self.broker(self.running[0]), wanted)

    async def _create_topic(self, broker: Broker, wanted: NewTopic) -> str:
        topic_id = await create_topic(broker, wanted)
        end_offset = await self._living_links.store.end_offset()
        async with trio.open_nursery() as nursery:
            for member in self._members.values():
                running = member.broker is not None and member.broker.is_running
                if running and self._living_links.reaches_metadata(member.node_id):
                    nursery.start_soon(member.wait_loaded, end_offset)
        return topic_id

    def controller_id(self) -> int:
        """The broker that is the controller; −1 if there is none."""

        async def find() -> int:
            return self._living_links.store.controller().leader_id

        return self.call(find)

    @property
    def image(self) -> MetadataImage:
        """The newest metadata that a running broker knows."""

        async def find() -> MetadataImage:
            running = [each.broker for each in self._members.values() if each.broker and each.broker.is_running]
            images = [each.services.metadata_cache.image for each in running]
            return max(images, key=lambda image: image.offset)

        return self.call(find)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The broker that leads a partition, as far as the running brokers know; −1 if none does."""
        return self.image.topics[topic].partitions[partition].leader


def cluster_in_thread(brokers: int = BROKERS, *, racks: Sequence[str] = (), **settings: Setting) -> ClusterThread:
    """Return a started ``ClusterThread`` for a ``with`` statement, which stops it and removes its data."""
    return ClusterThread(brokers, racks=racks, **settings).start()
