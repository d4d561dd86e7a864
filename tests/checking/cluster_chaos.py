"""A cluster in one thread, real clients, and the faults that happen to its brokers, drawn from a seed.

A sender fills one topic, a loop moves its records to another in transactions, and a committer commits offsets of a
group of its own, which an observer asks for all the time. When the faults are over, the in-sync sets must be whole
again, everything must be moved, and the logs of all replicas must be the same, byte for byte.
"""

from __future__ import annotations

import enum
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

import attrs
from confluent_kafka import Consumer, KafkaException, TopicPartition

from kafka_wire.records.batch import read_batches
from tests.checking.chaos_run import CATCH_UP_SECONDS, CATCHING_UP, TOPIC, Observer
from tests.checking.commits import check_commits
from tests.checking.history import Event, Op, Recorder, Violation, read_history
from tests.checking.log_content import ProducerEpochs, check_log, read_log
from tests.checking.sender import Sender, SenderKind
from tests.checking.transaction_chaos import read_committed
from tests.checking.transactional_loops import OUTPUT_PARTITIONS, OUTPUT_TOPIC, ConfluentLoop
from tests.checking.transactions import FinalState, check_transactions
from tests.waits import TimeLeft
from trio_broker.common.topic_partition import TopicPartition as PartitionKey
from trio_broker.storage.file_names import LOG_SUFFIX
from trio_broker.testing.cluster_thread import ClusterThread

PARTITIONS: Final = 2

COMMITTER: Final = "committer"
COMMIT_EVERY_SECONDS: Final = 0.2
COMMIT_SECONDS: Final = 20.0

ASK_SECONDS: Final = 5.0

BETWEEN_SECONDS: Final = (0.1, 1.0)

LASTING_SECONDS: Final = (0.0, 1.8)
"""Some are over before anybody has noticed, most of them are not."""

LOOP_GROUP: Final = ConfluentLoop.name

IN_SYNC_AGAIN: Final = "every replica is in sync again"
SAME_LOGS: Final = "all replicas have the same log"


class Fault(enum.StrEnum):
    KILL_LEADER = "the leader is killed"
    KILL_ANY = "a broker is killed"
    KILL_CONTROLLER = "the controller is killed"
    KILL_TWO = "two brokers are killed"
    STOP = "a broker is stopped"
    CUT_OFF = "the leader is cut off"
    CUT_OFF_CONTROLLER = "the controller is cut off"


@attrs.frozen
class FaultStep:
    """``fault`` happens ``after`` seconds, and is undone when it has lasted; ``node`` is whom, where any will do."""

    after: float
    fault: Fault
    lasting: float
    node: int


def fault_plan(seed: int, count: int, faults: Sequence[Fault] = tuple(Fault)) -> list[FaultStep]:
    """Random faults: the same seed, the same faults. Each kind comes once before any comes again."""
    random, kinds = Random(seed), list[Fault]()
    while len(kinds) < count:
        kinds += random.sample(faults, len(faults))
    return [
        FaultStep(random.uniform(*BETWEEN_SECONDS), fault, random.uniform(*LASTING_SECONDS), random.randint(1, 3))
        for fault in kinds[:count]
    ]


class ClusterChaos:
    """What lives during a run."""

    def __init__(self, directory: Path, cluster: ClusterThread) -> None:
        self.cluster, self.directory = cluster, directory / "history"
        self.directory.mkdir()
        for name, partitions in ((TOPIC, PARTITIONS), (OUTPUT_TOPIC, OUTPUT_PARTITIONS)):
            cluster.create_topic(name, partitions, min_insync_replicas=2)
        self.enough = threading.Event()
        servers = cluster.bootstrap_servers
        self.sender = Sender(Recorder(self.directory, "sender"), servers, TOPIC, PARTITIONS, SenderKind(bursts=1))
        self.observer = Observer(
            Recorder(self.directory, "observer"), servers, [COMMITTER, LOOP_GROUP], ask_seconds=ASK_SECONDS
        )
        self.threads = [threading.Thread(target=each, name=each.__name__) for each in (self.move, self.commit)]
        for thread in self.threads:
            thread.start()

    # ---- the load

    def move(self) -> None:
        """Move records in transactions. A loop that is fenced, as by its transaction's timeout, has a successor."""
        for number in itertools.count(1):
            name = f"{LOOP_GROUP}-0-{number}"
            loop = ConfluentLoop(Recorder(self.directory, name, LOOP_GROUP), self.cluster.bootstrap_servers, TOPIC)
            while not self.enough.is_set() and not loop.is_fenced:
                loop.turn()
            loop.close()
            if self.enough.is_set():
                return

    def commit(self) -> None:
        """Commit one offset after the other."""
        recorder = Recorder(self.directory, COMMITTER, COMMITTER)
        settings = {
            "bootstrap.servers": self.cluster.bootstrap_servers,
            "group.id": COMMITTER,
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
        consumer = Consumer(settings)
        for offset in itertools.count(1):
            if self.enough.wait(COMMIT_EVERY_SECONDS):
                break
            with suppress(KafkaException), recorder.doing(Op.COMMIT, offsets={0: offset}):
                consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        consumer.close()

    # ---- the faults

    def controller(self) -> int:
        """The controller, or any broker if there is none."""
        found, running = self.cluster.controller_id(), self.cluster.running
        return found if found in running else running[0]

    def leader(self) -> int:
        """The leader of the first partition, or any broker if there is none."""
        leader = self.cluster.leader_of(TOPIC)
        return leader if leader in self.cluster.running else self.cluster.running[0]

    def do(self, step: FaultStep) -> None:
        """Let ``step`` happen, and undo it."""
        cluster, others = self.cluster, [each for each in self.cluster.broker_ids if each != step.node]
        match step.fault:
            case Fault.KILL_LEADER:
                self._kill(step, self.leader())
            case Fault.KILL_ANY:
                self._kill(step, step.node)
            case Fault.KILL_CONTROLLER:
                self._kill(step, self.controller())
            case Fault.KILL_TWO:
                self._kill(step, *others)
            case Fault.STOP:
                cluster.stop_broker(step.node)
                time.sleep(step.lasting)
                cluster.restart(step.node)
            case Fault.CUT_OFF:
                self._cut_off(step, self.leader())
            case Fault.CUT_OFF_CONTROLLER:
                self._cut_off(step, self.controller())

    def _kill(self, step: FaultStep, *nodes: int) -> None:
        for node in nodes:
            self.cluster.kill(node)
        time.sleep(step.lasting)
        for node in nodes:
            self.cluster.restart(node)

    def _cut_off(self, step: FaultStep, node: int) -> None:
        self.cluster.partition({node}, [each for each in self.cluster.broker_ids if each != node])
        time.sleep(step.lasting)
        self.cluster.heal()

    # ---- the end

    def settle(self) -> list[Violation]:
        """Wait until all that was sent is moved, and every replica is in sync."""
        self.sender.stop()
        ends, all_ids = dict(self.sender.ends), set(self.cluster.broker_ids)
        moved = self._wait(lambda: self.observer.offsets[LOOP_GROUP] == ends)
        whole = self._wait(lambda: all(isr == all_ids for isr in self.in_sync_replicas().values()))
        self.enough.set()
        for thread in self.threads:
            thread.join()
        self.observer.stop()
        violations = []
        if not moved:
            violations.append(Violation(CATCHING_UP, f"{self.observer.offsets[LOOP_GROUP]} of {ends} are moved"))
        if not whole:
            violations.append(Violation(IN_SYNC_AGAIN, f"{self.in_sync_replicas()}"))
        return violations

    @staticmethod
    def _wait(condition: Callable[[], bool]) -> bool:
        time_left = TimeLeft(CATCH_UP_SECONDS)
        while not (is_met := condition()) and not time_left.is_over:
            time.sleep(0.1)
        return is_met

    def in_sync_replicas(self) -> dict[PartitionKey, set[int]]:
        """The ISR of every partition."""
        return {
            PartitionKey(name, index): set(partition.isr)
            for name, topic in self.cluster.image.topics.items()
            for index, partition in topic.partitions.items()
        }

    def high_watermarks(self) -> dict[PartitionKey, set[int]]:
        """What the replicas of each partition say where its high watermark and its end are: one offset, in the end."""
        partitions, running = list(self.in_sync_replicas()), self.cluster.running

        async def find() -> dict[PartitionKey, set[int]]:
            found: dict[PartitionKey, set[int]] = {}
            for key in partitions:
                for node in running:
                    if (partition := self.cluster.broker(node).services.replicas.find(key)) is not None:
                        state = partition.state
                        found.setdefault(key, set()).update((state.high_watermark, state.log_end_offset))
            return found

        return self.cluster.call(find)

    def check_replicas(self) -> list[Violation]:
        """Compare the logs of all replicas, once nothing is written any more."""
        keys = list(self.in_sync_replicas())
        if not self._wait(lambda: all(len(each) == 1 for each in self.high_watermarks().values())):
            apart = {str(key): each for key, each in self.high_watermarks().items() if len(each) > 1}
            return [Violation(SAME_LOGS, f"high watermarks and ends are {apart}")]
        return [
            Violation(SAME_LOGS, f"{key}: {[len(each) for each in logs]} bytes")
            for key in keys
            if len(set(logs := [self._log(node, key) for node in self.cluster.broker_ids])) > 1
        ]

    def _log(self, node: int, key: PartitionKey) -> bytes:
        directory = self.cluster.directory / f"broker-{node}" / f"{key.topic}-{key.partition}"
        return b"".join(path.read_bytes() for path in sorted(directory.glob(f"*{LOG_SUFFIX}")))

    def producer_epochs(self) -> ProducerEpochs:
        """From the log of any replica: all have the same one."""
        node = min(self.cluster.broker_ids)
        return {
            partition: {
                record.offset: batch.header.producer_epoch
                for batch in read_batches(self._log(node, PartitionKey(TOPIC, partition)))
                for record in batch.records()
            }
            for partition in range(PARTITIONS)
        }

    def close(self) -> None:
        self.enough.set()
        self.sender.stop()
        for thread in self.threads:
            thread.join()
        self.observer.stop()


@attrs.frozen
class ClusterReport:
    """What came of a run."""

    history: list[Event]
    violations: list[Violation]
    faults: Counter[str]

    def __str__(self) -> str:
        ops = Counter(str(event.op) for event in self.history if event.is_ok)
        return f"{self.faults.total()} faults {dict(self.faults)}; acknowledged: {dict(ops)}"


def run_faults(directory: Path, cluster: ClusterThread, steps: Sequence[FaultStep]) -> ClusterReport:
    """Let ``steps`` happen to ``cluster``, and check what came of it."""
    run = ClusterChaos(directory, cluster)
    try:
        for step in steps:
            time.sleep(step.after)
            print(f"{time.monotonic():.3f} {step}", flush=True)
            run.do(step)
        violations = run.settle()
        output = read_committed(cluster.bootstrap_servers, Recorder(run.directory, "last-reader"), threading.Event())
        source = read_log(cluster.bootstrap_servers, TOPIC)
        violations += run.check_replicas()
    finally:
        run.close()
    history = read_history(run.directory)
    committed = [event for event in history if event.op is Op.COMMIT]
    looks = [attrs.evolve(event, group=COMMITTER) for event in history if event.group == COMMITTER]
    final = FinalState(output, source, {LOOP_GROUP: run.observer.offsets[LOOP_GROUP]})
    violations += check_log(history, source, run.producer_epochs())
    violations += check_transactions(history, final)
    violations += check_commits([event for event in looks if event.op in (Op.COMMIT, Op.FETCH_OFFSETS)])
    assert committed, "somebody has committed"
    return ClusterReport(history, violations, Counter(str(step.fault) for step in steps))
