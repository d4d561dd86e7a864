"""Three broker processes on an etcd of three members, in the place of the one broker of a chaos run.

A kill is one of several faults, drawn from a seed: one broker dies, or two at once, or sleeps for longer than its
session, or etcd does, or its leader alone; or the network between them, or to their clients, is cut; or a disk is full.
What it lasts is over when ``kill`` returns; ``start`` starts what does not run.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

from tests.checking.chaos_plan import Step
from tests.checking.cluster_network import CUTS, ClusterNetwork
from tests.checking.history import Op
from tests.checking.small_disk import SmallDisk
from tests.checking.transactional_loops import PLACES
from tests.checking.verdict import drawn_seed
from tests.etcd_server import EtcdServer, etcd_members
from trio_broker.client.address import parse_addresses
from trio_broker.client.cluster_status import metadata_quorum
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import ClientError
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.cluster.etcd.server import free_port
from trio_broker.testing.process import BrokerProcess

BROKERS: Final = 3

ETCD_MEMBERS: Final = 3

SESSION_MS: Final = 2000

CLUSTER_SETTINGS: Final = {
    "default.replication.factor": str(BROKERS),
    "min.insync.replicas": "2",
    "broker.session.timeout.ms": str(SESSION_MS),
    "broker.heartbeat.interval.ms": "250",
    "replica.lag.time.max.ms": "3000",
}

STILL_SECONDS: Final = 2.5 * SESSION_MS / 1000
"""Long enough that others lead meanwhile."""

DEAD_SECONDS: Final = (0.0, 2 * SESSION_MS / 1000)
"""Some come back before anybody has noticed."""

CUT_SECONDS: Final = (0.0, 3 * SESSION_MS / 1000)
"""Some are healed before anybody has noticed, most are not."""

QUORUM_SECONDS: Final = 10.0

BETWEEN_SECONDS: Final = (0.5, 3.0)

REPLACED_SECONDS: Final = 0.3

LOST_BROKERS: Final = ("a broker is killed", "the controller is killed", "all brokers are restarted in turn")
"""What alone happens to some clusters: nothing that an operator of one would not see every year."""


def cluster_plan(seed: int, faults: int, kinds: Sequence[str]) -> list[Step]:
    """As many faults, and after each the next process in one of the places of ``kinds``. One in six is a stop."""
    random, steps, number = Random(seed), list[Step](), itertools.count()
    places = {(kind, place): "" for kind in kinds for place in range(PLACES)}

    def replace(kind: str, place: int) -> None:
        if before := places[kind, place]:
            steps.append(Step(REPLACED_SECONDS, Op.KILL, kind, before, counts=False))
        places[kind, place] = f"{kind}-{place}-{next(number)}"
        steps.append(Step(0.0, Op.JOIN, kind, places[kind, place], counts=False))

    for each in places:
        replace(*each)
    for _, each in zip(range(faults), itertools.cycle(list(places)), strict=False):
        op = random.choices([Op.KILL_BROKER, Op.RESTART_BROKER], [5, 1])[0]
        steps.append(Step(random.uniform(*BETWEEN_SECONDS), op))
        replace(*each)
    # One that was fenced, because its transaction took too long, has ended.
    for each in places:
        replace(*each)
    return steps


class ClusterProcesses:
    """See the head of the file. Only faults of ``kinds`` happen, if there are any."""

    def __init__(self, directory: Path, seed: int, overrides: Mapping[str, str], kinds: Sequence[str] = ()) -> None:
        directory.mkdir()
        self.directory, self.random, self.faults = directory, Random(seed), Counter[str]()
        self.etcd = etcd_members(directory, ETCD_MEMBERS)
        ports = {node_id: free_port() for node_id in range(1, BROKERS + 1)}
        self.network = ClusterNetwork(ports, [each.port for each in self.etcd])
        self.disk = SmallDisk(directory / "small-disk")
        directories = {node_id: directory / f"broker-{node_id}" for node_id in ports}
        if self.disk.is_mounted:
            directories[BROKERS] = self.disk.directory / "broker"
        self.brokers = {
            node_id: BrokerProcess(
                directories[node_id],
                overrides={
                    **CLUSTER_SETTINGS,
                    **overrides,
                    "node.id": str(node_id),
                    "advertised.listeners": f"PLAINTEXT://{self.network.address(node_id)}",
                    "metadata.store": self.network.metadata_store(node_id),
                },
                bootstrap_servers=f"127.0.0.1:{port}",
                has_admin=False,
            )
            for node_id, port in ports.items()
        }
        self._kinds: dict[str, Callable[[], None]] = {
            "a broker is killed": self.kill_one,
            "the controller is killed": self.kill_controller,
            "all brokers are restarted in turn": self.restart_all,
            "two brokers are killed": self.kill_two,
            "a broker stands still": self.stop_still,
            "etcd is killed": lambda: self._kill_etcd(*self.etcd),
            "etcd stands still": lambda: self._stop_etcd_still(*self.etcd),
            "the leader of etcd is killed": lambda: self._kill_etcd(self.etcd_leader()),
            "the leader of etcd stands still": lambda: self._stop_etcd_still(self.etcd_leader()),
            **{name: partial(self.cut, cut) for name, cut in CUTS.items()},
        }
        if self.disk.is_mounted:
            self._kinds["the disk of a broker is full"] = self.fill_disk
        if kinds:
            self._kinds = {name: self._kinds[name] for name in kinds}
        self._next = self._drawn()

    def _drawn(self) -> Iterator[str]:
        """Kinds of faults without an end: each comes once before any comes again."""
        while True:
            yield from self.random.sample(list(self._kinds), len(self._kinds))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(map(self.network.address, self.brokers))

    @property
    def output(self) -> Iterator[str]:
        return (f"{node_id}: {line}" for node_id, broker in self.brokers.items() for line in broker.output)

    def start(self) -> ClusterProcesses:
        """Start what does not run, side by side: one alone of those that were killed together may not lead."""
        for member in self.etcd:
            if member.process is None:
                member.start()
        ended = [broker for broker in self.brokers.values() if not broker.is_running]
        with ThreadPoolExecutor(BROKERS) as pool:
            list(pool.map(BrokerProcess.start, ended))
        return self

    def kill(self) -> None:
        """Let a fault happen."""
        name = next(self._next)
        self.faults[name] += 1
        self._tell(name)
        self._kinds[name]()
        self._tell("   over")

    @staticmethod
    def _tell(what: str) -> None:
        print(f"{time.monotonic():.3f} {what}", flush=True)

    def stop(self) -> int:
        """Stop a broker under control; return its exit code."""
        node_id = self.random.choice(list(self.brokers))
        self.faults["a broker is stopped"] += 1
        self._tell(f"broker {node_id} is stopped")
        return self.brokers[node_id].stop()

    def close(self) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                os.kill(broker.pid, signal.SIGCONT)
                broker.kill()
        for member in self.etcd:
            member.kill()
        self.network.close()
        self.disk.close()

    # ---- processes

    def any_broker(self) -> int:
        return self.random.choice(list(self.brokers))

    def kill_one(self) -> None:
        self._kill(self.any_broker())

    def kill_controller(self) -> None:
        self._kill(self.controller())

    def kill_two(self) -> None:
        self._kill(*self.random.sample(list(self.brokers), 2))

    def _kill(self, *node_ids: int) -> None:
        self._tell(f"   kill {node_ids}")
        for node_id in node_ids:
            self.brokers[node_id].process.send_signal(signal.SIGKILL)
        for node_id in node_ids:
            self.brokers[node_id].kill()
        time.sleep(self.random.uniform(*DEAD_SECONDS))

    def restart_all(self) -> None:
        for broker in self.brokers.values():
            broker.stop()
            broker.start()

    def stop_still(self) -> None:
        with still(self.brokers[self.any_broker()].pid):
            time.sleep(STILL_SECONDS)

    def _kill_etcd(self, *members: EtcdServer) -> None:
        for member in members:
            member.kill()
        time.sleep(self.random.uniform(*DEAD_SECONDS))
        for member in members:
            member.start()

    def _stop_etcd_still(self, *members: EtcdServer) -> None:
        with still(*(member.pid for member in members)):
            time.sleep(3 * STILL_SECONDS)

    # ---- the network and the disk

    def cut(self, cut: Callable[[ClusterNetwork, int, int], None]) -> None:
        one = self.random.choice([self.controller(), self.any_broker()])
        other = self.random.choice([each for each in self.brokers if each != one])
        self._tell(f"   cut {one}, {other}")
        cut(self.network, one, other)
        time.sleep(self.random.uniform(*CUT_SECONDS))
        self.network.heal()

    def fill_disk(self) -> None:
        self.disk.fill()
        time.sleep(self.random.uniform(*CUT_SECONDS))
        self.disk.empty()

    # ---- who leads

    def controller(self) -> int:
        """The controller, as the brokers say; any broker if they do not."""
        settings = ConnectionSettings(parse_addresses(self.bootstrap_servers), "chaos")
        with KafkaClient(settings, Deadline(QUORUM_SECONDS)) as client:
            try:
                quorum = metadata_quorum(client)
            except ClientError:
                quorum = None
        return quorum.leader_id if quorum is not None and quorum.leader_id in self.brokers else self.any_broker()

    def etcd_leader(self) -> EtcdServer:
        """The leader of etcd, as its members say; any member if they do not."""
        for member in self.etcd:
            try:
                if member.is_leader():
                    return member
            except OSError as error:
                self._tell(f"   {member.name}: {error}")
        return self.random.choice(self.etcd)


@contextmanager
def lossy_cluster(directory: Path, overrides: Mapping[str, str]) -> Iterator[ClusterProcesses]:
    """A started cluster that loses nothing but brokers, in the order of a seed that ``CHAOS_SEED`` repeats."""
    with closing(ClusterProcesses(directory, drawn_seed(), overrides, LOST_BROKERS)) as cluster:
        yield cluster.start()


@contextmanager
def still(*pids: int) -> Iterator[None]:
    """Let processes stand still during the block."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
