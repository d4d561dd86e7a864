"""One whole broker in virtual time, with everything that happens to it drawn from a seed.

The broker is the one that users run, on a simulated machine: its disk, its threads, its network, its chance and its
clock. Producers, readers, groups and transactions use it while its process is killed, its power fails, its disk is
slow, connections break and thread pools are resized. At the end the machine heals, everybody finishes, and the history
is checked.

A simulation of transactions alone is the same with less load and without sockets: its requests go to the handlers. It
takes a tenth of the time.

``python -m tests.simulation 0 1000`` runs seeds and prints those that break a promise, and
``python -m tests.simulation --transactions 0 1000`` those of transactions alone.
"""

from __future__ import annotations

import random
import traceback
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs
import trio
import trio.testing

from kafka_wire.isolation_level import IsolationLevel
from tests.checking.commits import check_commits
from tests.checking.delivery import EVERYTHING_IS_PROCESSED as EVERYTHING
from tests.checking.delivery import ONLY_WHAT_WAS_SENT, check_delivery
from tests.checking.history import Event, Op, Record, Violation
from tests.checking.ownership import check_ownership
from tests.checking.transactions import ABORTS_ARE_NOT_SEEN, SEEN_ONCE, FinalState, check_transactions
from tests.compat.transaction_requests import PROTOCOLS
from tests.scheduling import deterministic_scheduling
from tests.simulation.simulated_clients import TOPIC, Observer, Producer, create_topic
from tests.simulation.simulated_machine import Machine
from tests.simulation.simulated_members import ClassicMember, ConsumerMember, Member
from tests.simulation.simulated_transactions import (
    OUTPUT_TOPIC,
    ClassicMover,
    CommittedReader,
    ConsumerMover,
    Mover,
    TransactionalProducer,
    committed_by,
)
from tests.simulation.simulated_waits import WaitingReader, WaitWatch, jump_in_grains
from tests.simulation.simulated_world import DirectConnection, FaultyConnection, World
from trio_broker.concurrency import yield_budget
from trio_broker.runtime.simulated_clock import SimulatedClock
from trio_broker.runtime.simulated_network import SimulatedNetwork

PORT = 9092

HEAL_SECONDS = 300.0
"""Virtual time in which everything must be read once nothing fails any more: many sessions and rebalances."""

LIMIT_SECONDS = 3 * HEAL_SECONDS
"""Virtual time after which somebody is stuck."""

OBSERVER = "observer"
LAST_READER = "last reader"
"""Reads everything once nothing is produced any more."""

SLOW_SYNC_SECONDS = 0.5

REPORT_PASSES = 4
"""Of the event loop, within which the end of a thread is noticed, where time has grains. A request that comes in the
same grain is read and waits by then."""

EACH_VALUE_ONCE = "each value once"
EVERYBODY_FINISHES = "everybody finishes"
BROKER_LIVES = "the broker lives"
TRANSACTIONS_END = "every transaction ends"
EVERYTHING_IS_MOVED = "every record is moved"


@attrs.frozen
class Plan:
    """What happens in a simulation. ``has_network`` says whether requests come through it."""

    has_network: bool
    durability: str
    loses_log: bool
    """Whether the power is cut although acknowledged records are not synced, so that hardly a promise is left."""
    load_seconds: float
    """Virtual time of load and faults."""
    partitions: int
    idempotent_producers: int
    plain_producers: int
    classic_members: int
    consumer_members: int
    transactional_producers: int
    classic_movers: int
    consumer_movers: int
    faults: float
    """Per second of virtual time."""
    slow_syncs: float
    """The share of syncs that take ``SLOW_SYNC_SECONDS`` once the broker has started."""
    yields_always: bool
    """Whether every loop that may yield does so after each item."""
    waiting_readers: int = 0
    grain_seconds: float = 0.0
    """What is due within so much virtual time happens at once; see ``jump_in_grains``."""
    batches_per_burst: int = 1
    """What a producer sends one right after another, before it pauses."""
    pause_seconds: float = 0.25
    """How long producers pause on the average."""

    @classmethod
    def drawn(cls, chance: random.Random) -> Plan:
        """Everything that the broker serves."""
        return cls(
            has_network=True,
            durability=chance.choice(DURABILITIES),
            loses_log=False,
            load_seconds=8.0,
            partitions=chance.randint(1, 4),
            idempotent_producers=chance.randint(0, 2),
            plain_producers=chance.randint(1, 2),
            classic_members=chance.randint(0, 3),
            consumer_members=chance.randint(0, 3),
            transactional_producers=chance.randint(0, 2),
            classic_movers=chance.randint(0, 2),
            consumer_movers=chance.randint(0, 2),
            faults=chance.choice((0.0, 0.4, 1.0, 2.0)),
            slow_syncs=0.0,
            yields_always=chance.random() < 0.3,
            waiting_readers=chance.choice((0, 2)),
            grain_seconds=chance.choice((0.0, 0.0, 0.01)),
        )

    @classmethod
    def of_transactions(cls, chance: random.Random) -> Plan:
        """Transactions, and as little else as they need."""
        classic_movers, consumer_movers = chance.choice(((0, 0), (0, 0), (0, 1), (1, 0), (0, 2), (2, 0)))
        return cls(
            has_network=False,
            durability=chance.choice(DURABILITIES),
            loses_log=False,
            load_seconds=chance.uniform(0.5, 3.0),
            partitions=chance.randint(1, 3),
            idempotent_producers=0,
            plain_producers=1 if classic_movers or consumer_movers else 0,
            classic_members=0,
            consumer_members=0,
            transactional_producers=chance.randint(1, 3),
            classic_movers=classic_movers,
            consumer_movers=consumer_movers,
            faults=chance.choice((0.0, 0.5, 1.0, 2.0)),
            slow_syncs=chance.choice((0.0, 0.0, 0.3)),
            yields_always=chance.random() < 0.3,
        )

    @classmethod
    def of_lost_transactions(cls, chance: random.Random) -> Plan:
        """Transactions in page-cache mode, through power cuts."""
        plan = cls.of_transactions(chance)
        return attrs.evolve(
            plan,
            durability="page-cache",
            loses_log=True,
            faults=plan.faults or 1.0,
            # Groups would go on behind the end of a log that was cut.
            plain_producers=0,
            classic_movers=0,
            consumer_movers=0,
        )

    @classmethod
    def of_waits(cls, chance: random.Random) -> Plan:
        """Readers that wait, and so little to read that one which misses it gets nothing else soon."""
        return cls(
            has_network=True,
            durability=chance.choice(("fsync", "page-cache")),
            loses_log=False,
            load_seconds=30.0,
            partitions=chance.randint(1, 4),
            idempotent_producers=chance.randint(0, 1),
            plain_producers=2,
            classic_members=0,
            consumer_members=0,
            transactional_producers=chance.randint(1, 2),
            classic_movers=0,
            consumer_movers=0,
            faults=chance.choice((0.0, 0.0, 0.2)),
            slow_syncs=0.0,
            yields_always=chance.random() < 0.3,
            waiting_readers=chance.randint(2, 6),
            grain_seconds=0.01,
            batches_per_burst=3,
            pause_seconds=4.0,
        )


DURABILITIES = ("fsync", "fsync", "fsync", "page-cache")


@attrs.frozen
class Result:
    """``trace`` is equal for two runs from one seed. ``counts`` are of what happened."""

    seed: int
    plan: Plan
    violations: tuple[Violation, ...]
    trace: int
    counts: Counter[str]


@attrs.define(eq=False)
class Simulation:
    """One run."""

    chance: random.Random
    plan: Plan
    machine: Machine
    world: World
    members: list[Member] = attrs.field(factory=list)
    producers: list[TransactionalProducer] = attrs.field(factory=list)
    waiting_readers: list[WaitingReader] = attrs.field(factory=list)
    final: FinalState | None = None
    violations: list[Violation] = attrs.field(factory=list)
    counts: Counter[str] = attrs.field(factory=Counter)
    topic_id: bytes = b""

    async def run(self) -> None:
        """Run it to its end, or to a time by which it should have ended."""
        with trio.move_on_after(LIMIT_SECONDS) as scope:
            await self._run()
        if scope.cancelled_caught:
            latest = "\n    ".join(f"{name}: {answer!s:.300}" for name, answer in self.world.latest.items())
            self.violations.append(Violation(EVERYBODY_FINISHES, f"the latest answers:\n    {latest}"))

    async def _run(self) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.machine.run)
            await self._start_broker()
            self.topic_id = await create_topic(self.world, TOPIC, self.plan.partitions)
            await create_topic(self.world, OUTPUT_TOPIC, self.plan.partitions)
            observer = Observer(self.world, OBSERVER, self.plan.partitions)
            last_reader = Observer(self.world, LAST_READER, self.plan.partitions)
            committed_reader = CommittedReader(self.world, "committed reader", self.plan.partitions)
            async with trio.open_nursery() as clients:
                if self.plan.has_network:
                    clients.start_soon(observer.run)
                clients.start_soon(committed_reader.run)
                self._start_waiting_readers(nursery)
                for kind, count in self._members_wanted():
                    for _ in range(count):
                        self._start_member(clients, kind)
                async with trio.open_nursery() as producing:
                    until = trio.current_time() + self.plan.load_seconds
                    self._start_producers(producing, until)
                    await self._cause_faults(clients, until)
                    self.world.faults = False
                    committed_reader.done.set()
                    await self.machine.heal()
                source = by_partition(await last_reader.read_all(retry=True))
                await self._until_all_is_processed(source)
                for member in self.members:
                    member.is_leaving = True
                observer.done.set()
            await last_reader.read_all(retry=True)
            await self._read_output(committed_reader, source)
            await self.machine.stop()
            nursery.cancel_scope.cancel()

    def _start_waiting_readers(self, nursery: trio.Nursery) -> None:
        """Start those of each topic, of which the first two always read the same one."""
        chance, partitions = self.chance, self.plan.partitions
        self.waiting_readers = [
            WaitingReader(
                self.world,
                f"waiting-{index}",
                (TOPIC, OUTPUT_TOPIC)[index // 2 % 2],
                partitions,
                chance.choice(tuple(IsolationLevel)),
                has_session=chance.random() < 0.7,
            )
            for index in range(self.plan.waiting_readers)
        ]
        for reader in self.waiting_readers:
            nursery.start_soon(reader.run, name=reader.name)
        if self.waiting_readers:
            nursery.start_soon(WaitWatch(self.world, self.waiting_readers).run, self.violations)

    def _members_wanted(self) -> list[tuple[type[Member], int]]:
        plan = self.plan
        return [
            (ClassicMember, plan.classic_members),
            (ConsumerMember, plan.consumer_members),
            (ClassicMover, plan.classic_movers),
            (ConsumerMover, plan.consumer_movers),
        ]

    def _start_member(self, nursery: trio.Nursery, kind: type[Member]) -> None:
        name = f"{kind.__name__}-{len(self.members)}"
        member = kind(self.world, name, kind.__name__, self.topic_id, self.plan.partitions)
        self.members.append(member)
        nursery.start_soon(member.run, name=name)

    def _start_producers(self, nursery: trio.Nursery, until: float) -> None:
        for index in range(self.plan.idempotent_producers + self.plan.plain_producers):
            idempotent = index < self.plan.idempotent_producers
            producer = Producer(
                self.world,
                f"producer-{index}",
                self.plan.partitions,
                idempotent,
                until,
                batches_per_burst=self.plan.batches_per_burst,
            )
            nursery.start_soon(producer.run, name=producer.name)
        for index in range(self.plan.transactional_producers):
            self._start_transactional_producer(nursery, f"transactional-{index}", until)

    def _start_transactional_producer(self, nursery: trio.Nursery, transactional_id: str, until: float) -> None:
        """Start one more of ``transactional_id``."""
        name, protocol = f"{transactional_id}-{len(self.producers)}", self.chance.choice(PROTOCOLS)
        producer = TransactionalProducer(self.world, name, transactional_id, protocol, self.plan.partitions)
        self.producers.append(producer)
        nursery.start_soon(producer.run, until, name=name)

    # ---- faults

    async def _cause_faults(self, nursery: trio.Nursery, until: float) -> None:
        with trio.move_on_at(until):
            while self.plan.faults:
                await trio.sleep(self.chance.expovariate(self.plan.faults))
                fault = self.chance.choice(FAULTS)
                self.counts[fault.__name__] += 1
                with self.world.doing("machine", Op.KILL_BROKER, error=fault.__name__):
                    await fault(self, nursery)
        await trio.sleep_until(until)

    async def kill(self, nursery: trio.Nursery) -> None:
        """The process is killed, and starts again after a while."""
        await self.machine.kill()
        await self._restart()

    async def cut_power(self, nursery: trio.Nursery) -> None:
        """The power fails. Without fsync that loses what was acknowledged, and is no fault of the broker."""
        if self.plan.durability == "fsync" or self.plan.loses_log:
            await self.machine.cut_power()
            await self._restart()

    async def stop_cleanly(self, nursery: trio.Nursery) -> None:
        await self.machine.stop()
        await self._restart()

    async def fail_a_sync(self, nursery: trio.Nursery) -> None:
        """A sync fails, which takes the log directory offline; somebody starts the broker again some time later."""
        if self.plan.durability == "fsync":
            self.machine.fail_syncs(1.0)
            await trio.sleep(self.chance.uniform(0, 3))
            self.machine.fail_syncs(0.0)
            await self.machine.kill()
            await self._restart()

    async def slow_disk(self, nursery: trio.Nursery) -> None:
        self.machine.slow_syncs(self.chance.choice((0.0, 0.1, 1.0)), self.chance.choice((0.02, 0.5)))

    async def fill_disk(self, nursery: trio.Nursery) -> None:
        self.machine.fill_disk(self.chance.randrange(5_000))
        await trio.sleep(self.chance.uniform(0, 3))
        self.machine.empty_disk()

    async def resize_pools(self, nursery: trio.Nursery) -> None:
        self.machine.resize(self.chance.randint(1, 4), self.chance.randint(1, 6))

    async def replace_member(self, nursery: trio.Nursery) -> None:
        if self.members:
            leaving = self.chance.choice(self.members)
            leaving.is_leaving = True
            self._start_member(nursery, type(leaving))

    async def replace_producer(self, nursery: trio.Nursery) -> None:
        """Another producer takes a transactional id, while the one that has it goes on."""
        if self.producers:
            until = trio.current_time() + self.plan.load_seconds / 2
            self._start_transactional_producer(nursery, self.chance.choice(self.producers).transactional_id, until)

    async def _restart(self) -> None:
        await trio.sleep(self.chance.expovariate(1))
        await self._start_broker()

    async def _start_broker(self) -> None:
        # A start that takes long shows nothing, and leaves no time for more.
        self.machine.slow_syncs(0.0, 0.0)
        await self.machine.start()
        self.machine.slow_syncs(self.plan.slow_syncs, SLOW_SYNC_SECONDS)

    # ---- the end

    async def _until_all_is_processed(self, source: Mapping[int, Sequence[Record]]) -> None:
        """Wait until everything in ``source`` is processed by every group, and moved by those that move it."""
        ends = {partition: records[-1].offset + 1 for partition, records in source.items()}
        with trio.move_on_after(HEAL_SECONDS):
            # To look again costs nothing in virtual time.
            while self._unprocessed():  # noqa: ASYNC110
                await trio.sleep(3)
            for group in self.moving_groups:
                while await committed_by(self.world, group) != ends:  # noqa: ASYNC110
                    await trio.sleep(3)
            return
        text = f"{self._unprocessed()}; the topic ends at {ends}"
        self.violations.append(Violation(EVERYTHING_IS_MOVED, text))

    def _unprocessed(self) -> list[Violation]:
        return [each for each in check_delivery(self.world.history, self.groups) if each.promise == EVERYTHING]

    async def _read_output(self, reader: CommittedReader, source: Mapping[int, Sequence[Record]]) -> None:
        with trio.move_on_after(HEAL_SECONDS):
            output = await reader.read_to_the_end()
            committed = {group: await committed_by(self.world, group) for group in self.moving_groups}
            self.final = FinalState(output, source, committed)
            return
        self.violations.append(Violation(TRANSACTIONS_END, "the last stable offset does not reach the end"))

    @property
    def moving_groups(self) -> list[str]:
        return sorted({member.group_id for member in self.members if isinstance(member, Mover)})

    @property
    def groups(self) -> frozenset[str]:
        """Those that process every record."""
        readers = frozenset({OBSERVER, LAST_READER}) if self.plan.has_network else frozenset({LAST_READER})
        return readers | {each.group_id for each in self.members if not isinstance(each, Mover)}

    def check(self) -> list[Violation]:
        """Every promise that was broken."""
        history = sorted(self.world.history, key=lambda event: event.invoked)
        if self.plan.loses_log:
            found = check_transactions(history, self.final) if self.final is not None else []
            return [*self.violations, *(each for each in found if each.promise in KEPT_WITHOUT_SYNCS)]
        return [
            *self.violations,
            *check_ownership(history, generations_of=frozenset({ClassicMember.__name__, ClassicMover.__name__})),
            *check_commits(history),
            *check_delivery(history, self.groups),
            *check_values(history),
            *(check_transactions(history, self.final) if self.final is not None else ()),
        ]


KEPT_WITHOUT_SYNCS = frozenset({ABORTS_ARE_NOT_SEEN, ONLY_WHAT_WAS_SENT, SEEN_ONCE})
"""Of the promises to transactions, what a power cut leaves in page-cache mode: that takes the end of each log by
itself, and with it any part of what was acknowledged. That all transactions end is kept as well."""

FAULTS = (
    Simulation.kill,
    Simulation.cut_power,
    Simulation.cut_power,
    Simulation.stop_cleanly,
    Simulation.fail_a_sync,
    Simulation.slow_disk,
    Simulation.fill_disk,
    Simulation.resize_pools,
    Simulation.replace_member,
    Simulation.replace_producer,
)


def by_partition(records: Sequence[Record]) -> Mapping[int, Sequence[Record]]:
    """The records of each partition that has any."""
    found: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        found[record.partition].append(record)
    return found


def check_values(history: Sequence[Event]) -> Iterator[Violation]:
    """No value is in the log twice, and those of an idempotent producer lie in the order in which they were sent.

    Values are numbers that grow with every batch that is begun.
    """
    final: dict[Record, Event] = {}
    for event in history:
        if event.op is Op.POLL:
            final.update(dict.fromkeys(event.records, event))
    places: dict[int, Record] = {}
    for record in final:
        other = places.setdefault(record.value, record)
        if other != record:
            yield Violation(EACH_VALUE_ONCE, f"{other} and {record}", (final[other], final[record]))


def simulate(seed: int) -> Result:
    """Run one simulation of everything."""
    return run_simulation(seed, Plan.drawn)


def simulate_transactions(seed: int) -> Result:
    """Run one simulation of transactions alone."""
    return run_simulation(seed, Plan.of_transactions)


def simulate_waits(seed: int) -> Result:
    """Run one simulation of readers that wait."""
    return run_simulation(seed, Plan.of_waits)


def simulate_lost_transactions(seed: int) -> Result:
    """Run one simulation of transactions in page-cache mode whose records power cuts take."""
    return run_simulation(seed, Plan.of_lost_transactions)


def run_simulation(seed: int, draw_plan: Callable[[random.Random], Plan]) -> Result:
    """Run one simulation of what ``draw_plan`` draws."""
    chance = random.Random(seed)
    plan = draw_plan(chance)
    network, clock = SimulatedNetwork(), trio.testing.MockClock(autojump_threshold=0)
    if plan.grain_seconds:
        jump_in_grains(clock, plan.grain_seconds)
    report_passes = REPORT_PASSES if plan.grain_seconds else 0
    machine = Machine(network.host("broker"), chance, PORT, plan.durability, SimulatedClock(clock), report_passes)
    new_connection = FaultyConnection if plan.has_network else DirectConnection
    world = World(machine, chance, new_connection, plan.loses_log, pause_seconds=plan.pause_seconds)
    simulation = Simulation(chance, plan, machine, world)
    with deterministic_scheduling(seed), yields(plan):
        try:
            trio.run(simulation.run, clock=clock)
        except Exception as error:
            simulation.violations.append(Violation(BROKER_LIVES, "".join(traceback.format_exception(innermost(error)))))
        finally:
            network.close()
    simulation.counts.update(requests=world.requests, events=len(world.history))
    simulation.counts.update(answered_waits=sum(reader.answered_waits for reader in simulation.waiting_readers))
    simulation.counts.update(
        f"{event.op} {event.outcome}" for event in world.history if event.op in (Op.TRANSACTION, Op.INIT_PRODUCER_ID)
    )
    trace = zlib.crc32(machine.disk.trace.digest().encode(), world.trace)
    return Result(seed, plan, tuple(simulation.check()), trace, simulation.counts)


def innermost(error: BaseException) -> BaseException:
    """The first error of a group of groups, which is what went wrong."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def yields(plan: Plan) -> Iterator[None]:
    """Let long loops yield as often as ``plan`` says: virtual time does not pass within them."""
    before = yield_budget.YIELD_BUDGET_SECONDS
    if plan.yields_always:
        yield_budget.YIELD_BUDGET_SECONDS = -1.0
    try:
        yield
    finally:
        yield_budget.YIELD_BUDGET_SECONDS = before
