"""Several simulated machines with a broker each, an etcd of promises beside them, and the network between them all.

What happens to them is for the caller: see ``cluster_faults``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from random import Random
from unittest.mock import patch

import attrs
import trio

from tests.fakes.modelled_etcd import EtcdFaults, ModelledEtcd, ModelledEtcdClient
from tests.simulation.cluster.direct_network import DirectNetwork, DirectServer
from tests.simulation.cluster.pauses import Pauses
from tests.simulation.simulated_machine import Life, Machine, has_failed_disk
from trio_broker.broker import Broker
from trio_broker.cluster.etcd.etcd_metadata_store import EtcdMetadataStore
from trio_broker.cluster.etcd.layout import EtcdLayout
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.shared_metadata import SharedMetadata
from trio_broker.config.broker_config import BrokerConfig, load_broker_config
from trio_broker.partition.partition import Partition
from trio_broker.runtime.disk_faults import any_path
from trio_broker.runtime.simulated_clock import SimulatedClock
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_network import Link

PORT = 9092
CLIENTS = "clients"
"""The host of all clients."""

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LAYOUT = EtcdLayout(b"/simulated/")

STORY_LINES = 400
"""The latest, which are kept of what happened."""

SECOND_DISK = PurePath("/more")
"""The data directory that a broker can do without."""

SETTINGS = {
    "listeners": f"PLAINTEXT://127.0.0.1:{PORT}",
    "admin.listener": "",
    "log.dirs": "/data,/more",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "100",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "1500",
    "initial.broker.registration.timeout.ms": "600000",
    "leader.imbalance.check.interval.seconds": "5",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.backoff.ms": "200",
    "replica.socket.timeout.ms": "2000",
    "shutdown.grace.ms": "1000",
}
"""Short sessions and lags: what follows from their end is the subject, and waiting costs requests."""


@attrs.define(eq=False)
class ClusterMachine(Machine):
    """The machine of one broker of several."""

    cluster: SimulatedCluster = attrs.field(kw_only=True)
    node_id: int = attrs.field(kw_only=True)
    etcd: ModelledEtcdClient = attrs.field(init=False)
    """That of the present process."""
    root: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    """The task of the present process, above all of its others."""
    is_wanted: bool = attrs.field(default=False, init=False)
    """Whether somebody starts it again when it has ended."""
    _ending: Life | None = attrs.field(default=None, init=False)
    """The latest that was killed or asked to stop."""
    _store: EtcdMetadataStore = attrs.field(init=False)

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def broker(self) -> Broker | None:
        """The broker, while its parts are there."""
        life = self.life
        if life is None or life.killed or life.ended.is_set() or life.broker._dispatcher is None:
            return None
        return life.broker

    @property
    def serves(self) -> bool:
        life = self.life
        return life is not None and life.nursery is not None and not (life.killed or life.ended.is_set())

    @property
    def is_controller(self) -> bool:
        """Whether it believes to be the controller."""
        return self.serves and self._store.held_claim is not None

    def config(self) -> BrokerConfig:
        own = {
            "node.id": str(self.node_id),
            "advertised.listeners": f"PLAINTEXT://{self.name}:{PORT}",
            "log.durability": self.durability,
        }
        return load_broker_config(None, {**SETTINGS, **own}, {})

    def new_random(self) -> Random:
        drawn_from = super().new_random()
        self.cluster.randoms.append(drawn_from)
        return drawn_from

    def new_broker(self) -> Broker:
        self.etcd = self.cluster.etcd.client()
        self._store = EtcdMetadataStore(self.etcd, LAYOUT, CLUSTER_ID, self.clock)
        shared = SharedMetadata(self._store, CLUSTER_ID)
        return Broker(self.config(), runtime=self.runtime(), shared_metadata=shared)

    async def live(self, life: Life) -> None:
        self.root = trio.lowlevel.current_task()
        async with trio.open_nursery() as beside:
            await self._store.join()
            beside.start_soon(self._store.run)
            await super().live(life)
            beside.cancel_scope.cancel()

    async def start(self) -> None:
        """Start the broker, and again each time when its full disk ends it, until it is killed or stopped."""
        assert self._nursery is not None, "the machine runs"
        self.is_wanted = True
        self._nursery.start_soon(self._keep)
        while not self.serves and self.is_wanted:  # noqa: ASYNC110
            await trio.sleep(0.05)

    async def start_if_down(self) -> None:
        """Start it unless it runs, or somebody is about to start it; also anew where its disk has failed for good."""
        while self.is_wanted and self.broker is None:  # noqa: ASYNC110
            await trio.sleep(0.05)
        if self.broker is not None and has_failed_disk(self.broker):
            await self.kill()
        if not self.is_wanted:
            # A stop may have been given up while the broker waited for its controller.
            assert self.life is not None, "it was started"
            await self.life.ended.wait()
            self.disk = self.disk.crash()
            await self.start()

    async def _keep(self) -> None:
        while True:
            life = self.begin_life()
            self.cluster.tell(f"{self.name} starts")
            await life.ended.wait()
            if life is self._ending:
                return
            reason = life.failure or RuntimeError(life.broker.failure or "nobody stopped it")
            self.cluster.tell(f"{self.name} has ended: {reason!r}")
            if not self.is_disk_full:
                self.cluster.ended_by_itself(self, reason)
                return
            self.disk = self.disk.crash()
            await trio.sleep(0.5)

    # ---- its end

    async def _end(self, end: Callable[[], SimulatedDisk]) -> None:
        self.is_wanted, self._ending = False, self.life
        self.etcd.is_ended = True
        self.resume()
        await super()._end(end)

    async def stop(self) -> None:
        self.is_wanted, self._ending = False, self.life
        self.resume()
        await super().stop()

    def lose_second_disk(self) -> None:
        """Let nothing be read, made or written on it any more."""
        self._break_second_disk(1.0)

    def find_second_disk(self) -> None:
        """Let a process that starts have it again."""
        self._break_second_disk(0.0)

    def _break_second_disk(self, share: float) -> None:
        faults = self.disk.faults
        faults.applies_to = on_second_disk if share else any_path
        faults.failing_reads = faults.failing_writes = faults.failing_names = faults.failing_syncs = (
            faults.failing_directory_syncs
        ) = share

    def pause(self) -> None:
        """Let the process stand still."""
        if self.root is not None:
            self.cluster.pauses.pause(self.root)

    def resume(self) -> None:
        if self.root is not None:
            self.cluster.pauses.resume(self.root)


def on_second_disk(path: PurePath) -> bool:
    return path.is_relative_to(SECOND_DISK)


def fail(machine: ClusterMachine, reason: Exception) -> None:
    """End all machines: nothing that is asked of them could come to an end."""
    raise reason


@attrs.define(eq=False)
class SimulatedCluster:
    """``run`` owns all of it; the other methods are called while it runs."""

    chance: Random
    clock: SimulatedClock
    durability: str
    brokers: int
    ended_by_itself: Callable[[ClusterMachine, Exception], None] = fail
    """Called when a broker has ended although its disk is not full."""
    network: DirectNetwork = attrs.field(factory=DirectNetwork)
    etcd: ModelledEtcd = attrs.field(factory=lambda: ModelledEtcd(Random(0)))
    pauses: Pauses = attrs.field(factory=Pauses)
    machines: list[ClusterMachine] = attrs.field(factory=list)
    story: deque[str] = attrs.field(factory=lambda: deque(maxlen=STORY_LINES))
    randoms: list[Random] = attrs.field(factory=list)
    """All that is drawn from, but ``chance``."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.etcd.run)
            for node_id in range(1, self.brokers + 1):
                host = self.network.host(f"broker{node_id}")
                machine = ClusterMachine(
                    host, self.chance, PORT, self.durability, self.clock, cluster=self, node_id=node_id
                )
                self.machines.append(machine)
                await nursery.start(machine.run)
            self.randoms += [self.network.random, self.etcd.random]
            async with trio.open_nursery() as starting:
                for machine in self.machines:
                    starting.start_soon(machine.start)
            task_status.started()
            await trio.sleep_forever()

    def begin_anew(self, seed: int) -> None:
        """Let everything that is drawn from now on follow from ``seed``."""
        self.chance.seed(seed)
        self.randoms += [machine.disk.faults.random for machine in self.machines]
        for each in self.randoms:
            each.seed(self.chance.getrandbits(64))
        self.randoms.clear()

    def tell(self, text: str) -> None:
        """Note what happened, for what is said of a simulation that breaks a promise."""
        self.story.append(f"{trio.current_time():9.3f} {text}")

    # ---- who is where

    def machine(self, node_id: int) -> ClusterMachine | None:
        """The machine of a broker; None for -1."""
        return self.machines[node_id - 1] if 1 <= node_id <= len(self.machines) else None

    @property
    def serving(self) -> list[ClusterMachine]:
        return [each for each in self.machines if each.serves]

    def any_serving(self) -> ClusterMachine | None:
        """One of those that serve, which is drawn; None if none does."""
        serving = self.serving
        return self.chance.choice(serving) if serving else None

    @property
    def controller(self) -> ClusterMachine | None:
        """The first of those that believe to be the controller."""
        return next((each for each in self.machines if each.is_controller), None)

    def image(self) -> MetadataImage | None:
        """The metadata as some broker that serves has read them; None if none does."""
        machine = self.any_serving()
        broker = None if machine is None else machine.broker
        return None if broker is None else broker.services.metadata_cache.image

    def replicas(self) -> Iterator[tuple[ClusterMachine, Partition]]:
        """Every replica on each machine whose broker runs."""
        for machine in self.machines:
            if (broker := machine.broker) is not None:
                for partition in broker.services.replicas.partitions():
                    yield machine, partition

    def links_of(self, machine: ClusterMachine) -> list[Link]:
        """The links from and to a machine."""
        others = [each.name for each in self.machines if each is not machine]
        return [link for other in (*others, CLIENTS) for link in self.network.links(machine.name, other)]

    # ---- the end of all faults

    def heal(self) -> None:
        """End all faults but those of brokers that do not run."""
        for link in (link for machine in self.machines for link in self.links_of(machine)):
            link.heal()
            link.delay_seconds = 0.0
        self.etcd.faults = EtcdFaults()
        self.etcd.state.no_space = False
        self.etcd.is_paused, self.etcd.has_leader = False, True
        self.etcd.start()
        for machine in self.machines:
            machine.resume()
            machine.etcd.heal()
            machine.empty_disk()
            machine.find_second_disk()
            machine.slow_syncs(0.0, 0.0)


@contextmanager
def without_sockets() -> Iterator[None]:
    """Let brokers that are made have a ``DirectServer``."""
    with patch("trio_broker.broker.SocketServer", DirectServer):
        yield
