"""One whole broker in virtual time, with everything that happens to it drawn from a seed.

The broker is the one that users run, on a simulated machine: its disk, its threads, its network, its chance and its
clock. Producers, readers and groups use it while its process is killed, its power fails, its disk is slow, connections
break and thread pools are resized. At the end the machine heals, everybody finishes, and the history is checked.

``python -m tests.simulation 0 1000`` runs seeds and prints those that break a promise.
"""

from __future__ import annotations

import random
import traceback
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import trio
import trio.testing

from tests.checking.commits import check_commits
from tests.checking.delivery import EVERYTHING_IS_PROCESSED as EVERYTHING
from tests.checking.delivery import check_delivery
from tests.checking.history import Event, Op, Record, Violation
from tests.checking.ownership import check_ownership
from tests.simulation.simulated_clients import Observer, Producer, create_topic
from tests.simulation.simulated_machine import Machine
from tests.simulation.simulated_members import ClassicMember, ConsumerMember, Member
from tests.simulation.simulated_world import World
from trio_broker import yield_budget
from trio_broker.runtime.simulated_clock import SimulatedClock
from trio_broker.runtime.simulated_network import SimulatedNetwork

PORT = 9092

LOAD_SECONDS = 8.0
"""Virtual time of load and faults."""

HEAL_SECONDS = 300.0
"""Virtual time in which everything must be read once nothing fails any more: many sessions and rebalances."""

LIMIT_SECONDS = 2 * (LOAD_SECONDS + HEAL_SECONDS)
"""Virtual time after which somebody is stuck."""

EACH_VALUE_ONCE = "each value once"
EVERYBODY_FINISHES = "everybody finishes"
BROKER_LIVES = "the broker lives"


@attrs.frozen
class Plan:
    """What happens in a simulation."""

    durability: str
    partitions: int
    idempotent_producers: int
    plain_producers: int
    classic_members: int
    consumer_members: int
    faults: float
    """Per second of virtual time."""
    yields_always: bool
    """Whether every loop that may yield does so after each item."""

    @classmethod
    def drawn(cls, chance: random.Random) -> Plan:
        return cls(
            durability=chance.choice(("fsync", "fsync", "fsync", "page-cache")),
            partitions=chance.randint(1, 4),
            idempotent_producers=chance.randint(0, 2),
            plain_producers=chance.randint(1, 2),
            classic_members=chance.randint(0, 3),
            consumer_members=chance.randint(0, 3),
            faults=chance.choice((0.0, 0.4, 1.0, 2.0)),
            yields_always=chance.random() < 0.3,
        )


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
            await self.machine.start()
            self.topic_id = await create_topic(self.world, self.plan.partitions)
            observer = Observer(self.world, "observer", self.plan.partitions)
            async with trio.open_nursery() as clients:
                clients.start_soon(observer.run)
                for kind in [ClassicMember] * self.plan.classic_members + [ConsumerMember] * self.plan.consumer_members:
                    self._start_member(clients, kind)
                async with trio.open_nursery() as producing:
                    self._start_producers(producing)
                    await self._cause_faults(clients)
                    self.world.faults = False
                    await self.machine.heal()
                await self._until_all_is_processed()
                for member in self.members:
                    member.is_leaving = True
                observer.done.set()
            await observer.read_all(patient=True)
            await self.machine.stop()
            nursery.cancel_scope.cancel()

    def _start_member(self, nursery: trio.Nursery, kind: type[Member]) -> None:
        name = f"{kind.__name__}-{len(self.members)}"
        member = kind(self.world, name, kind.__name__, self.topic_id, self.plan.partitions)
        self.members.append(member)
        nursery.start_soon(member.run, name=name)

    def _start_producers(self, nursery: trio.Nursery) -> None:
        until = trio.current_time() + LOAD_SECONDS
        for index in range(self.plan.idempotent_producers + self.plan.plain_producers):
            idempotent = index < self.plan.idempotent_producers
            producer = Producer(self.world, f"producer-{index}", self.plan.partitions, idempotent, until)
            nursery.start_soon(producer.run, name=producer.name)

    # ---- faults

    async def _cause_faults(self, nursery: trio.Nursery) -> None:
        until = trio.current_time() + LOAD_SECONDS
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
        if self.plan.durability == "fsync":
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

    async def _restart(self) -> None:
        await trio.sleep(self.chance.expovariate(1))
        await self.machine.start()

    # ---- the end

    async def _until_all_is_processed(self) -> None:
        with trio.move_on_after(HEAL_SECONDS):
            # To look again costs nothing in virtual time.
            while self._unprocessed():  # noqa: ASYNC110
                await trio.sleep(3)

    def _unprocessed(self) -> list[Violation]:
        return [each for each in check_delivery(self.world.history, self.groups) if each.promise == EVERYTHING]

    @property
    def groups(self) -> frozenset[str]:
        return frozenset(member.group_id for member in self.members) | {"observer"}

    def check(self) -> list[Violation]:
        """Every promise that was broken."""
        history = sorted(self.world.history, key=lambda event: event.invoked)
        return [
            *self.violations,
            *check_ownership(history, generations_of=frozenset({ClassicMember.__name__})),
            *check_commits(history),
            *check_delivery(history, self.groups),
            *check_values(history),
        ]


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
)


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
    """Run one simulation."""
    chance = random.Random(seed)
    plan = Plan.drawn(chance)
    network, clock = SimulatedNetwork(), trio.testing.MockClock(autojump_threshold=0)
    world = World(network, chance, PORT)
    machine = Machine(network, chance, PORT, plan.durability, SimulatedClock(clock))
    simulation = Simulation(chance, plan, machine, world)
    with deterministic_scheduling(seed), yields(plan):
        try:
            trio.run(simulation.run, clock=clock)
        except Exception as error:
            simulation.violations.append(Violation(BROKER_LIVES, "".join(traceback.format_exception(innermost(error)))))
        finally:
            network.close()
    simulation.counts.update(requests=world.requests, events=len(world.history))
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


@contextmanager
def deterministic_scheduling(seed: int) -> Iterator[None]:
    """Let Trio choose among tasks that are ready by a seed of its own random numbers, and not by their addresses."""
    run: Any = trio._core._run
    before, state = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate()
    run._ALLOW_DETERMINISTIC_SCHEDULING = True
    run._r.seed(seed)
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING = before
        run._r.setstate(state)
