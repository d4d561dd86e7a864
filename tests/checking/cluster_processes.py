"""Three broker processes on a real etcd, in the place of the one broker of a chaos run.

A kill is one of several faults, drawn from a seed: one broker dies, or two at once, or sleeps for longer than its
session, or etcd dies or stands still. What it lasts is over when ``kill`` returns; ``start`` starts what does not run.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Final

from confluent_kafka import KafkaException, Producer

from tests.checking.chaos_plan import Step
from tests.checking.history import Op
from tests.checking.transactional_loops import LOOPS, PLACES
from tests.etcd_server import EtcdServer
from trio_broker.testing.process import BrokerProcess

BROKERS: Final = 3

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

METADATA_SECONDS: Final = 10.0


BETWEEN_SECONDS: Final = (0.5, 3.0)

REPLACED_SECONDS: Final = 0.3


def cluster_plan(seed: int, faults: int) -> list[Step]:
    """As many faults, and after each the next process in one of the places of the loops. One in six is a stop."""
    random, steps, number = Random(seed), list[Step](), itertools.count()
    places = {(loop.name, place): "" for loop in LOOPS for place in range(PLACES)}

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
    """See the head of the file."""

    def __init__(self, directory: Path, seed: int, overrides: Mapping[str, str]) -> None:
        directory.mkdir()
        self.directory, self.random, self.faults = directory, Random(seed), Counter[str]()
        self.etcd = EtcdServer(directory)
        self.brokers = {
            node_id: BrokerProcess(
                directory / f"broker-{node_id}",
                overrides={
                    **CLUSTER_SETTINGS,
                    **overrides,
                    "node.id": str(node_id),
                    "metadata.store": f"etcd://127.0.0.1:{self.etcd.port}",
                },
                has_admin=False,
            )
            for node_id in range(1, BROKERS + 1)
        }
        self._kinds: dict[str, Callable[[], None]] = {
            "a broker is killed": self.kill_one,
            "the controller is killed": self.kill_controller,
            "two brokers are killed": self.kill_two,
            "a broker stands still": self.stop_still,
            "etcd is killed": self.kill_etcd,
            "etcd stands still": self.stop_etcd_still,
        }

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def output(self) -> Iterator[str]:
        return (f"{node_id}: {line}" for node_id, broker in self.brokers.items() for line in broker.output)

    def start(self) -> ClusterProcesses:
        """Start what does not run, side by side: one alone of those that were killed together may not lead."""
        if self.etcd.process is None:
            self.etcd.start()
        ended = [broker for broker in self.brokers.values() if not broker.is_running]
        with ThreadPoolExecutor(BROKERS) as pool:
            list(pool.map(BrokerProcess.start, ended))
        return self

    def kill(self) -> None:
        """Let a fault happen."""
        name = self.random.choice(list(self._kinds))
        self.faults[name] += 1
        print(f"{time.monotonic():.3f} {name}", flush=True)
        self._kinds[name]()

    def stop(self) -> int:
        """Stop a broker under control; return its exit code."""
        node_id = self.random.choice(list(self.brokers))
        self.faults["a broker is stopped"] += 1
        print(f"{time.monotonic():.3f} broker {node_id} is stopped", flush=True)
        return self.brokers[node_id].stop()

    def close(self) -> None:
        for broker in self.brokers.values():
            if broker.is_running:
                os.kill(broker.pid, signal.SIGCONT)
                broker.kill()
        self.etcd.kill()

    # ---- faults

    def kill_one(self) -> None:
        self._kill(self.random.choice(list(self.brokers)))

    def kill_controller(self) -> None:
        self._kill(self.controller())

    def kill_two(self) -> None:
        self._kill(*self.random.sample(list(self.brokers), 2))

    def _kill(self, *node_ids: int) -> None:
        print(f"   kill {node_ids}", flush=True)
        for node_id in node_ids:
            self.brokers[node_id].process.send_signal(signal.SIGKILL)
        for node_id in node_ids:
            self.brokers[node_id].kill()
        time.sleep(self.random.uniform(*DEAD_SECONDS))

    def stop_still(self) -> None:
        pid = self.brokers[self.random.choice(list(self.brokers))].pid
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STILL_SECONDS)
        os.kill(pid, signal.SIGCONT)

    def kill_etcd(self) -> None:
        self.etcd.kill()
        time.sleep(self.random.uniform(*DEAD_SECONDS))
        self.etcd.start()

    def stop_etcd_still(self) -> None:
        assert self.etcd.process is not None
        self.etcd.process.send_signal(signal.SIGSTOP)
        time.sleep(3 * STILL_SECONDS)
        self.etcd.process.send_signal(signal.SIGCONT)

    def controller(self) -> int:
        """The controller, as the brokers say; any broker if they do not."""
        client = Producer({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        try:
            found = client.list_topics(timeout=METADATA_SECONDS).controller_id
        except KafkaException:
            found = -1
        return found if found in self.brokers else self.random.choice(list(self.brokers))
