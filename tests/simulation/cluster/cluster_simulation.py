"""A whole cluster in virtual time, with everything that happens to it drawn from a seed.

Each broker is the one that users run, on a disk that loses what was not synced, beside an etcd that keeps its promises
and nothing else. Producers, transactions and commits of offsets go on while brokers are killed, lose their power, stand
still and lose each other, and leaders, replicas and topics change. Each seed switches kinds of faults on and off. What
must hold of replicas is looked at after each event (``replication_watch``); then all faults end, the cluster has to
become whole again within bounded time, and the history is checked.

``python -m tests.simulation --cluster 0 1000`` runs short ones, which begin with a cluster that is there, and
``--long-cluster`` long ones. ``--cluster 0 1000 1 reassign kill`` has no faults but these two.
"""

from __future__ import annotations

import random
import traceback
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TypeVar

import attrs
import trio
import trio.testing

from kafka_wire.messages.find_coordinator import FindCoordinatorRequest
from kafka_wire.records.batch import read_batches
from tests.checking.commits import check_commits
from tests.checking.history import Op, Record, Violation
from tests.checking.transactions import STABLE_OFFSETS_GROW, FinalState, check_transactions
from tests.compat.transaction_requests import PROTOCOLS
from tests.fakes.modelled_etcd import SOME_FAULTS, EtcdFaults
from tests.scheduling import deterministic_scheduling
from tests.simulation.cluster.cluster_clients import ClusterConnection, Committer, CopyLoop
from tests.simulation.cluster.cluster_faults import FAULTS, ClusterFaults
from tests.simulation.cluster.jumping_clock import jumping_clock
from tests.simulation.cluster.pauses import Pauses
from tests.simulation.cluster.replication_watch import ReplicationWatch, stored_batches
from tests.simulation.cluster.simulated_cluster import (
    ClusterMachine,
    SimulatedCluster,
    without_sockets,
)
from tests.simulation.simulated_clients import TOPIC, Producer, create_topic
from tests.simulation.simulated_transactions import OUTPUT_TOPIC, CommittedReader, TransactionalProducer, committed_by
from tests.simulation.simulated_world import World
from tests.simulation.simulation import innermost
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.partition.partition import Partition
from trio_broker.runtime.simulated_clock import SimulatedClock

T = TypeVar("T")

PREPARED_SEED = 0

SETTLE_SECONDS = 90.0
"""Virtual time in which everything is whole again once nothing fails any more: sessions, elections, transactions that
time out."""

BROKER_LIVES = "the brokers live"
WHOLE_AGAIN = "the cluster becomes whole again"
ACKNOWLEDGED = "what was acknowledged is there, once"
SAME_LOGS = "all replicas have the same log"
CLIENTS_GO_ON = "clients go on"

COPY_GROUP = "copy"


@attrs.frozen
class Begin:
    """What a simulation begins with; many have the same."""

    brokers: int
    durability: str


BEGINNINGS = (
    *[Begin(3, "fsync")] * 5,
    *[Begin(3, "page-cache")] * 3,
    Begin(2, "fsync"),
    Begin(5, "fsync"),
)


@attrs.frozen
class Plan:
    """What happens in a simulation."""

    load_seconds: float
    faults: tuple[str, ...]
    fault_seconds: float
    """Between two faults, on the average."""
    lasting_seconds: float
    """How long one lasts, on the average."""
    etcd_faults: EtcdFaults
    producers: int
    """Idempotent, with acks=all."""
    hasty_producers: int
    """With acks=1."""
    transactional_producers: int
    has_copy: bool
    has_committer: bool
    pause_seconds: float
    delay_seconds: float
    """The longest delay of a message."""
    cold_reads: float
    short_writes: float

    @classmethod
    def short(cls, chance: random.Random) -> Plan:
        """One that takes a fraction of a second of a CPU."""
        kinds = chance.choice((1, 1, 2, 3))
        faults = tuple(sorted(chance.sample(sorted(FAULTS), kinds)))
        is_transactional = chance.random() < 0.3
        return cls(
            load_seconds=chance.uniform(1.5, 4.5),
            faults=faults,
            fault_seconds=chance.uniform(0.3, 1.0),
            lasting_seconds=chance.choice((0.3, 1.5, 3.0)),
            etcd_faults=chance.choice((EtcdFaults(), EtcdFaults(), SOME_FAULTS)),
            producers=1,
            hasty_producers=int(chance.random() < 0.5),
            transactional_producers=int(is_transactional),
            # A copy of what is deleted before it was read would never be whole.
            has_copy=is_transactional and "delete_records" not in faults and chance.random() < 0.5,
            has_committer=chance.random() < 0.3,
            pause_seconds=chance.choice((0.1, 0.1, 0.4)),
            delay_seconds=chance.choice((0.0, 0.005, 0.1)),
            cold_reads=chance.choice((0.0, 0.1)),
            short_writes=chance.choice((0.0, 0.1)),
        )

    @classmethod
    def long(cls, chance: random.Random) -> Plan:
        """One with everything for a minute."""
        # Else nearly every one would delete records, and copy nothing.
        kinds = sorted(FAULTS if chance.random() < 0.5 else FAULTS.keys() - {"delete_records"})
        faults = tuple(sorted(chance.sample(kinds, chance.randint(4, len(kinds)))))
        return attrs.evolve(
            cls.short(chance),
            load_seconds=60.0,
            faults=faults,
            fault_seconds=chance.uniform(0.5, 4.0),
            producers=2,
            hasty_producers=1,
            transactional_producers=2,
            has_copy="delete_records" not in faults,
            has_committer=True,
        )

    def with_faults(self, faults: tuple[str, ...]) -> Plan:
        """This plan with no faults but these."""
        return attrs.evolve(self, faults=faults, has_copy=self.has_copy and "delete_records" not in faults)


def begin_of(seed: int) -> Begin:
    """What the simulation of ``seed`` begins with."""
    return random.Random(seed).choice(BEGINNINGS)


DrawPlan = Callable[[random.Random], Plan]


@attrs.frozen
class ClusterResult:
    """``trace`` is equal for two runs from one seed. ``story`` is what happened last."""

    seed: int
    plan: Plan
    violations: tuple[Violation, ...]
    counts: Counter[str]
    trace: int
    story: tuple[str, ...]

    @classmethod
    def failed(cls, seed: int, draw_plan: DrawPlan, violation: Violation) -> ClusterResult:
        """That of a simulation of which nothing else is known."""
        return cls(seed, draw_plan(random.Random(seed)), (violation,), Counter(), 0, ())


@attrs.define(eq=False)
class ClusterSimulation:
    """One cluster, prepared once, and what happens to it."""

    begin: Begin
    clock: trio.testing.MockClock
    pauses: Pauses = attrs.field(factory=Pauses)
    cluster: SimulatedCluster = attrs.field(init=False)
    world: World = attrs.field(init=False)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    watch: ReplicationWatch = attrs.field(init=False)
    violations: list[Violation] = attrs.field(factory=list)
    counts: Counter[str] = attrs.field(factory=Counter)
    final: FinalState | None = None

    async def prepare(self, nursery: trio.Nursery) -> None:
        """Bring the cluster to where all simulations begin."""
        chance = random.Random(PREPARED_SEED)
        self.cluster = cluster = SimulatedCluster(
            chance,
            SimulatedClock(self.clock),
            self.begin.durability,
            self.begin.brokers,
            pauses=self.pauses,
        )
        await nursery.start(cluster.run)
        self.watch = ReplicationWatch(cluster, self.scope)
        cluster.etcd.on_change = self.watch.follow_metadata
        self.world = World(
            cluster.machines[0], chance, lambda world, name: ClusterConnection(world, name, cluster), faults=False
        )
        while len(cluster.serving) < self.begin.brokers:  # noqa: ASYNC110
            await trio.sleep(0.1)
        replicas = min(self.begin.brokers, 3)
        min_isr = 2 if replicas == 3 else 1
        for name in (TOPIC, OUTPUT_TOPIC):
            await create_topic(self.world, name, 1, replication_factor=replicas, min_insync_replicas=min_isr)
        # So that the internal topics are there.
        await TransactionalProducer(self.world, "first", "first", PROTOCOLS[0], 1).begin()
        connection = self._connection("first")
        await connection.ask(FindCoordinatorRequest(coordinator_keys=["first"]), 4)
        committer = Committer(self.world, "first", connection)
        while not await committer.committed():  # noqa: ASYNC110
            await trio.sleep(0.2)
        await self._until_whole()
        cluster.network.look = self.watch.look
        self.watch.look()

    def _ended_by_itself(self, machine: ClusterMachine, reason: Exception) -> None:
        text = "".join(traceback.format_exception(innermost(reason)))
        self.violations.append(Violation(BROKER_LIVES, f"{machine.name}: {text}"))

    # ---- the run

    async def run(self, seed: int, plan: Plan) -> None:
        """Let happen what ``plan`` says, as ``seed`` draws it, up to the first violation that is seen at once."""
        self.cluster.ended_by_itself = self._ended_by_itself
        with self.scope:
            await self._run(seed, plan)

    async def _run(self, seed: int, plan: Plan) -> None:
        self._begin_load(seed, plan)
        cluster, world = self.cluster, self.world
        until, done = trio.current_time() + plan.load_seconds, trio.Event()
        reader = CommittedReader(world, "committed reader", 1)
        async with trio.open_nursery() as clients:
            self._start_clients(clients, plan, reader, until, done)
            faults = ClusterFaults(cluster, world, plan.lasting_seconds, self.counts)
            await faults.run(plan.faults, plan.fault_seconds, until)
            cluster.tell("all faults end")
            world.faults = False
            reader.done.set()
            cluster.heal()
            is_whole = await self._in_time(WHOLE_AGAIN, self._state, partial(self._become_whole, plan))
            done.set()

            def left() -> str:
                return ", ".join(sorted(task.name for task in clients.child_tasks))

            has_ended = is_whole and await self._in_time(
                CLIENTS_GO_ON, left, partial(self._until, lambda: not clients.child_tasks)
            )
            clients.cancel_scope.cancel()
        if has_ended and await self._in_time(WHOLE_AGAIN, self._state, partial(self._read_output, plan, reader)):
            self.watch.look()
            self.watch.check_all()

    def _begin_load(self, seed: int, plan: Plan) -> None:
        cluster, world = self.cluster, self.world
        cluster.begin_anew(seed)
        world.faults, world.pause_seconds = True, plan.pause_seconds
        cluster.etcd.faults = plan.etcd_faults
        for machine in cluster.machines:
            machine.disk.faults.cold_reads = plan.cold_reads
            machine.disk.faults.short_writes = plan.short_writes
            for link in cluster.links_of(machine):
                link.delay_seconds = plan.delay_seconds

    def _start_clients(
        self, nursery: trio.Nursery, plan: Plan, reader: CommittedReader, until: float, done: trio.Event
    ) -> None:
        world = self.world
        for producer in self._producers(plan, until):
            nursery.start_soon(producer.run, name=producer.name)
        for index in range(plan.transactional_producers):
            name, protocol = f"transactional-{index}", self.cluster.chance.choice(PROTOCOLS)
            nursery.start_soon(TransactionalProducer(world, name, name, protocol, 1).run, until, name=name)
        if plan.transactional_producers:
            nursery.start_soon(reader.run, name=reader.name)
        if plan.has_copy:
            copy = CopyLoop(world, COPY_GROUP, 1, self._connection(COPY_GROUP))
            nursery.start_soon(copy.run, done, name=COPY_GROUP)
        if plan.has_committer:
            committer = Committer(world, "committer", self._connection("committer"))
            nursery.start_soon(committer.run, until, name="committer")

    async def _in_time(self, promise: str, state: Callable[[], str], work: Callable[[], Awaitable[None]]) -> bool:
        """Do ``work``; return whether it has ended in time, and note how things stand if not."""
        with trio.move_on_after(SETTLE_SECONDS):
            await work()
            return True
        self.violations.append(Violation(promise, state()))
        return False

    async def _become_whole(self, plan: Plan) -> None:
        async with trio.open_nursery() as nursery:
            for machine in self.cluster.machines:
                nursery.start_soon(machine.start_if_down)
        await self._until_whole()
        if plan.has_copy:
            await self._until_copied()

    async def _read_output(self, plan: Plan, reader: CommittedReader) -> None:
        if plan.transactional_producers:
            output = await reader.read_to_the_end()
            committed = {COPY_GROUP: await committed_by(self.world, COPY_GROUP)} if plan.has_copy else {}
            self.final = FinalState(output, {0: self.records(TOPIC)}, committed)
        await self._until_whole()

    def _connection(self, name: str) -> ClusterConnection:
        return ClusterConnection(self.world, name, self.cluster)

    def _producers(self, plan: Plan, until: float) -> Iterator[Producer]:
        for index in range(plan.producers):
            yield Producer(self.world, f"producer-{index}", 1, True, until, on_lost_sequence=self._lost_sequence)
        for index in range(plan.hasty_producers):
            yield Producer(self.world, f"hasty-{index}", 1, True, until, acks=1)

    def _lost_sequence(self, text: str) -> None:
        self.violations.append(Violation(CLIENTS_GO_ON, text))

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.3)

    async def _until_whole(self) -> None:
        await self._until(lambda: not self._missing())

    def _missing(self) -> str:
        """What is not as it should be in the end; empty if all is."""
        cluster, image = self.cluster, None
        if len(cluster.serving) < len(cluster.machines):
            return f"only {[each.name for each in cluster.serving]} serve"
        ends: dict[TopicPartition, set[tuple[int, int, int]]] = {}
        for machine in cluster.machines:
            if machine.broker is None:
                return f"{machine.name} does not run"
            image = machine.broker.services.metadata_cache.image
            if fenced := [each for each, broker in image.brokers.items() if not broker.is_active]:
                return f"{fenced} are not active, says {machine.name}"
            for topic in image.topics.values():
                for index, partition in topic.partitions.items():
                    if len(partition.isr) < len(partition.replicas) or partition.is_reassigned:
                        return f"{topic.name}-{index}: {partition}, says {machine.name}"
            for found in machine.broker.services.replicas.partitions():
                state = found.state
                offsets = (state.high_watermark, state.log_end_offset, state.leader_epoch)
                ends.setdefault(found.topic_partition, set()).add(offsets)
                if state.high_watermark != state.log_end_offset:
                    return f"{found} on {machine.name}: {state}"
        apart = {key: found for key, found in ends.items() if len(found) > 1}
        return f"offsets are apart: {apart}" if apart else ""

    def _state(self) -> str:
        latest = "; ".join(f"{name}: {answer!s:.200}" for name, answer in self.world.latest.items())
        return f"{self._missing() or 'all replicas are whole'}; the latest answers: {latest}"

    async def _until_copied(self) -> None:
        while True:
            end = max((record.offset + 1 for record in self.records(TOPIC)), default=0)
            committed = (await committed_by(self.world, COPY_GROUP)).get(0)
            if (committed or 0) >= end:
                return
            await trio.sleep(0.5)

    # ---- the end

    def records(self, topic: str) -> list[Record]:
        """The records of a topic, as some replica has them."""
        for machine, partition in self.cluster.replicas():
            if partition.topic_partition.topic == topic:
                return list(stored_records(machine, partition))
        return []

    def check(self) -> list[Violation]:
        """Every promise that was broken."""
        found = [*self.violations, *self.watch.violations]
        if found:
            return found
        history = sorted(self.world.history, key=lambda event: event.invoked)
        found += self._check_acknowledged()
        found += self._check_same_logs()
        found += check_commits([event for event in history if event.op in (Op.COMMIT, Op.FETCH_OFFSETS)])
        if self.final is not None:
            found += check_transactions(history, self.final)
        # A new leader shows less for a moment than the one before it.
        return [each for each in found if each.promise != STABLE_OFFSETS_GROW]

    def _check_acknowledged(self) -> Iterator[Violation]:
        records = self.records(TOPIC)
        there = {record.value: record for record in records}
        if len(there) < len(records):
            twice = [value for value, count in Counter(record.value for record in records).items() if count > 1]
            yield Violation(ACKNOWLEDGED, f"{twice} are there twice")
        begin = min((record.offset for record in records), default=1 << 62)
        for event in self.world.history:
            if event.op is Op.SEND and event.is_ok:
                for record in event.records:
                    if there.get(record.value) != record and (record.offset >= begin or not self.has_deleted_records):
                        yield Violation(ACKNOWLEDGED, f"{record} is {there.get(record.value)}", (event,))

    @property
    def has_deleted_records(self) -> bool:
        return self.counts["delete_records"] > 0

    def _check_same_logs(self) -> Iterator[Violation]:
        """From where the last of them begins: what was deleted before an election may be there on others."""
        replicas: dict[TopicPartition, list[tuple[ClusterMachine, Partition]]] = {}
        for machine, partition in self.cluster.replicas():
            replicas.setdefault(partition.topic_partition, []).append((machine, partition))
        for key, found in replicas.items():
            start = max(partition.log_start_offset for _, partition in found)
            logs = [[each for each in stored_batches(*place) if each.next_offset > start] for place in found]
            for (machine, _), log in zip(found, logs, strict=True):
                if log != logs[0]:
                    different = sorted({*log} ^ {*logs[0]}, key=lambda each: each.base_offset)
                    yield Violation(SAME_LOGS, f"{key} on {machine.name}: {different[:4]}")

    def trace(self) -> int:
        """A checksum over all answers that clients got, and all that disks did."""
        trace = self.world.trace
        for machine in self.cluster.machines:
            trace = zlib.crc32(machine.disk.trace.digest().encode(), trace)
        return zlib.crc32("\n".join(self.cluster.story).encode(), trace)


def stored_records(machine: ClusterMachine, partition: Partition) -> Iterator[Record]:
    """The records of a replica that are not deleted, as they are in the files."""
    for segment in partition.log.segments:
        data = machine.disk.content(segment.file.path)[: segment.size]
        for batch in read_batches(memoryview(bytes(data))):
            if not batch.header.is_control:
                for record in batch.records():
                    if record.offset >= partition.log_start_offset:
                        yield Record(0, record.offset, int(record.value or b"0"))


async def simulated(seed: int, draw_plan: DrawPlan, simulation: ClusterSimulation) -> ClusterResult:
    """Let what follows from ``seed`` happen to a cluster that is prepared, and return what came of it."""
    plan = draw_plan(random.Random(seed))
    trio._core._run._r.seed(seed)
    try:
        await simulation.run(seed, plan)
    except Exception as error:
        text = "".join(traceback.format_exception(innermost(error)))
        simulation.violations.append(Violation(CLIENTS_GO_ON, text))
    counts = simulation.counts
    counts.update(requests=simulation.world.requests, looks=simulation.watch.looks)
    counts.update(f"{event.op} {event.outcome}" for event in simulation.world.history)
    violations = tuple(simulation.check())
    return ClusterResult(seed, plan, violations, counts, simulation.trace(), tuple(simulation.cluster.story))


def simulate_cluster(seed: int, draw_plan: DrawPlan = Plan.short) -> ClusterResult:
    """Prepare a cluster and run the simulation of ``seed``."""
    return run_prepared(begin_of(seed), partial(simulated, seed, draw_plan))


def run_prepared(begin: Begin, work: Callable[[ClusterSimulation], Awaitable[T]]) -> T:
    """Prepare a cluster in an event loop of its own, and return what ``work`` does with it."""
    simulation = ClusterSimulation(begin, jumping_clock())

    async def run() -> T:
        with simulation.pauses.installed():
            async with trio.open_nursery() as nursery:
                await simulation.prepare(nursery)
                result = await work(simulation)
                nursery.cancel_scope.cancel()
        return result

    with deterministic_scheduling(PREPARED_SEED), without_sockets():
        return trio.run(run, clock=simulation.clock)
