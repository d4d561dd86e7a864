"""Brokers on a metadata store in an etcd that keeps its promises and nothing else, in virtual time and from a seed.

Each broker follows the log, and claims it, appends, takes snapshots and resigns by turns. Brokers are killed and come
back, lose their way to etcd, or etcd its leader, its processes, its history, its space. Then the faults end, and all
have to have the same log soon.

After every revision of etcd the log in it is checked, and at the end what the brokers were answered.
"""

from __future__ import annotations

import errno
import itertools
import logging
import random
import traceback
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import attrs
import trio
import trio.testing

from kafka_wire.records.batch import read_batches
from kafka_wire.stored.metadata import TopicRecord
from tests.fakes.modelled_etcd import SOME_FAULTS, EtcdFaults, ModelledEtcd, ModelledEtcdClient
from tests.scheduling import deterministic_scheduling
from trio_broker.cluster.etcd.etcd_metadata_store import EtcdMetadataStore
from trio_broker.cluster.etcd.layout import CurrentSnapshot, EndOfLog, EtcdLayout, Holder, end_of_prefix
from trio_broker.cluster.etcd.messages import RangeRequest
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot, SnapshotId
from trio_broker.cluster.metadata_store import (
    AppendUnknown,
    BelowLogStart,
    Claim,
    ClaimLost,
    CommittedBatch,
    PreparedBatch,
    UnexpectedEnd,
)
from trio_broker.runtime.clock import ManualClock

T = TypeVar("T")

LAYOUT = EtcdLayout(b"/c/")
CLUSTER_ID = "c"
BROKERS = 3
LOAD_SECONDS = 15.0
SETTLE_SECONDS = 90.0
"""Calls that were delayed are carried out for a minute after the faults have ended."""
APPENDS_WHEN_QUIET = 3

NEVER_ENDS = "once the faults have ended, some broker appends and all read it"
ONE_VALUE = "an offset has one value for ever"
CONTIGUOUS = "offsets are contiguous"
IN_ITS_EPOCH = "a batch is appended by the claim of its epoch, while that lasts"
HIGHER_EPOCH = "a claim has a higher epoch than all before it"
ACKNOWLEDGED = "what was acknowledged is in the log, at its place"
REFUSED = "what was refused is not in the log"
ONCE = "a decision is in the log once"
IN_ORDER = "a tail yields every batch once, in order"
SAME_FOLD = "snapshot and log fold into the same as all batches"
COVERED = "the snapshot and the log behind it have everything"
NO_ERROR = "no broker fails"


@attrs.frozen
class Plan:
    """What happens in a simulation."""

    faults: EtcdFaults
    events_per_second: float

    @classmethod
    def drawn(cls, chance: random.Random) -> Plan:
        share = chance.choice((0.0, 0.3, 1.0, 1.0))
        shares: dict[str, Any] = {
            name: value * share if isinstance(value, float) else value
            for name, value in attrs.asdict(SOME_FAULTS).items()
        }
        return cls(
            attrs.evolve(EtcdFaults(), **{**shares, "is_3_4": chance.random() < 0.7}), chance.choice((0.0, 0.2, 0.5))
        )


@attrs.frozen
class MetadataStoreResult:
    seed: int
    plan: Plan
    violations: tuple[str, ...]
    counts: Counter[str]
    trace: int


@attrs.define(eq=False)
class Broker:
    """One broker and what it has read: ``names`` of topics up to ``end``."""

    node_id: int
    client: ModelledEtcdClient
    end: int = 0
    epoch: int = 0
    names: set[str] = attrs.field(factory=set)
    life: trio.CancelScope | None = None
    read_on: trio.Event = attrs.field(factory=trio.Event)


@attrs.define(eq=False)
class Simulation:
    """One run."""

    chance: random.Random
    plan: Plan
    etcd: ModelledEtcd
    clock: ManualClock = attrs.field(factory=ManualClock)
    brokers: list[Broker] = attrs.field(factory=list)
    violations: list[str] = attrs.field(factory=list)
    counts: Counter[str] = attrs.field(factory=Counter)
    log: dict[int, bytes] = attrs.field(factory=dict)
    """What was ever put at each offset."""
    ends: dict[int, int] = attrs.field(factory=dict)
    """Where the batch of each offset ends."""
    names_in_log: Counter[str] = attrs.field(factory=Counter)
    acknowledged: dict[int, str] = attrs.field(factory=dict)
    refused: set[str] = attrs.field(factory=set)
    claimed_epochs: list[int] = attrs.field(factory=list)
    numbers: itertools.count[int] = attrs.field(factory=itertools.count)
    checked_revision: int = 1
    is_quiet: bool = False
    quiet_appends: int = 0

    # --- The run ---

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(self.etcd.run)
            self.etcd.on_change = self._check_changes
            for node_id in range(1, BROKERS + 1):
                self.brokers.append(broker := Broker(node_id, self.etcd.client()))
                nursery.start_soon(self._live_and_die, broker)
            with trio.move_on_after(LOAD_SECONDS):
                await self._disturb()
            self._end_faults()
            with trio.move_on_after(SETTLE_SECONDS) as settling:
                await self._settled()
            if settling.cancelled_caught:
                ends = {broker.node_id: broker.end for broker in self.brokers}
                self.violate(NEVER_ENDS, f"{self.quiet_appends} appends; read up to {ends}, of {self._end().offset}")
            nursery.cancel_scope.cancel()
        self._check_answers()

    def _end_faults(self) -> None:
        self.is_quiet = True
        etcd = self.etcd
        etcd.faults = EtcdFaults()
        etcd.state.no_space = False
        for client in (broker.client for broker in self.brokers):
            client.heal()
        etcd.is_paused, etcd.has_leader = False, True
        etcd.start()

    async def _settled(self) -> None:
        while self.quiet_appends < APPENDS_WHEN_QUIET or any(each.end < self._end().offset for each in self.brokers):  # noqa: ASYNC110
            await trio.sleep(0.5)

    async def _disturb(self) -> None:
        if not self.plan.events_per_second:
            await trio.sleep_forever()
        while True:
            await trio.sleep(self.chance.expovariate(self.plan.events_per_second))
            await self.chance.choice(
                (
                    self._cut,
                    self._kill,
                    self._kill,
                    self._lose_leader,
                    self._stop,
                    self._pause,
                    self._compact,
                    self._fill,
                )
            )()

    async def _cut(self) -> None:
        broker = self.chance.choice(self.brokers)
        broker.client.cut()
        await trio.sleep(self.chance.uniform(0.5, 15))
        broker.client.heal()

    async def _kill(self) -> None:
        if (life := self.chance.choice(self.brokers).life) is not None:
            life.cancel()

    async def _lose_leader(self) -> None:
        self.etcd.lose_leader()
        await trio.sleep(self.chance.uniform(1, 10))
        self.etcd.elect_leader()

    async def _stop(self) -> None:
        self.etcd.stop()
        await trio.sleep(self.chance.uniform(0.5, 15))
        self.etcd.start()

    async def _pause(self) -> None:
        self.etcd.pause()
        await trio.sleep(self.chance.uniform(0.5, 15))
        self.etcd.resume()

    async def _compact(self) -> None:
        self.etcd.state.compact(self.etcd.state.revision)

    async def _fill(self) -> None:
        self.etcd.state.no_space = True
        await trio.sleep(self.chance.uniform(1, 8))
        self.etcd.state.no_space = False

    # --- A broker ---

    async def _live_and_die(self, broker: Broker) -> None:
        is_failed = False
        while not is_failed:
            with trio.CancelScope() as broker.life:
                store = EtcdMetadataStore(broker.client, LAYOUT, CLUSTER_ID, self.clock)
                try:
                    await self._answered(store.join)
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(store.run)
                        nursery.start_soon(self._follow, broker, store)
                        nursery.start_soon(self._control, broker, store)
                except* Exception as errors:
                    self.violate(NO_ERROR, "".join(traceback.format_exception(errors)))
                    is_failed = True
            broker.life = None
            self.counts["deaths"] += 1
            await trio.sleep(self.chance.uniform(0, 5))

    async def _follow(self, broker: Broker, store: EtcdMetadataStore) -> None:
        while True:
            try:
                async for batch in store.tail(broker.end):
                    self._apply(broker, batch)
            except BelowLogStart:
                await self._answered(lambda: self._load_snapshot(broker, store))

    def _apply(self, broker: Broker, batch: CommittedBatch) -> None:
        if batch.base_offset != broker.end:
            self.violate(IN_ORDER, f"broker {broker.node_id} is at {broker.end}, and has read {batch.base_offset}")
        if self.log.get(batch.base_offset) != batch.data:
            self.violate(ONE_VALUE, f"broker {broker.node_id} has read something else at {batch.base_offset}")
        broker.end, broker.epoch = batch.next_offset, batch.epoch
        broker.names |= {record.name for record in batch.records}
        self._wake(broker)

    async def _load_snapshot(self, broker: Broker, store: EtcdMetadataStore) -> None:
        snapshot = await store.snapshot()
        if snapshot is None or snapshot.id.end_offset <= broker.end:
            self.violate(COVERED, f"broker {broker.node_id} at {broker.end} finds no snapshot of what comes next")
            return
        broker.end, broker.epoch = snapshot.id.end_offset, snapshot.id.epoch
        broker.names = {record.name for record in snapshot.records()}
        if broker.names != self._names_up_to(broker.end):
            self.violate(SAME_FOLD, f"the snapshot at {broker.end}")
        self.counts["loaded snapshots"] += 1
        self._wake(broker)

    @staticmethod
    def _wake(broker: Broker) -> None:
        broker.read_on.set()
        broker.read_on = trio.Event()

    async def _control(self, broker: Broker, store: EtcdMetadataStore) -> None:
        while True:
            await trio.sleep(self.chance.uniform(0, 1))
            claim = await self._answered(lambda: store.claim(broker.node_id))
            if self.claimed_epochs and claim.epoch <= max(self.claimed_epochs):
                self.violate(HIGHER_EPOCH, f"{claim} after {max(self.claimed_epochs)}")
            self.claimed_epochs.append(claim.epoch)
            self.counts["claims"] += 1
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._while_held, broker, store, claim, nursery.cancel_scope)
                await store.wait_lost(claim)
                nursery.cancel_scope.cancel()

    async def _while_held(
        self, broker: Broker, store: EtcdMetadataStore, claim: Claim, scope: trio.CancelScope
    ) -> None:
        try:
            await self._until_read(broker, claim.end_offset)
            while True:
                await trio.sleep(self.chance.choice((0.01, 0.1, 0.7)))
                draw = self.chance.random()
                if draw < 0.02 and not self.is_quiet:
                    await store.resign(claim)
                elif draw < 0.1:
                    await self._take_snapshot(broker, store, claim)
                else:
                    await self._append(broker, store, claim)
        except ClaimLost:
            self.counts["claims lost"] += 1
        except AppendUnknown:
            # Given up: nothing more may be appended in this epoch.
            self.counts["given up"] += 1
            await store.resign(claim)
        scope.cancel()

    async def _append(self, broker: Broker, store: EtcdMetadataStore, claim: Claim) -> None:
        expected_end, names = broker.end, [f"t{next(self.numbers)}" for _ in range(self.chance.randint(1, 3))]
        batch = await PreparedBatch.of([topic(name) for name in names], now_ms=1)
        for last in (False, False, True):
            try:
                await store.append(batch, claim=claim, expected_end=expected_end)
            except AppendUnknown:
                if last:
                    raise
            except (ClaimLost, UnexpectedEnd) as error:
                self.refused |= set(names)
                if isinstance(error, UnexpectedEnd):
                    self.violate(CONTIGUOUS, f"the controller at {expected_end} gets {error}")
                    raise ClaimLost from error
                raise
            except OSError as error:
                self._require_expected(error)
                self.refused |= set(names)
                return
            else:
                self.acknowledged |= {expected_end: names[0]}
                self.counts["appends"] += 1
                self.quiet_appends += self.is_quiet
                await self._until_read(broker, expected_end + len(names))
                return

    async def _take_snapshot(self, broker: Broker, store: EtcdMetadataStore, claim: Claim) -> None:
        records = [topic(name) for name in sorted(broker.names)]
        snapshot_id = SnapshotId(broker.end, broker.epoch)
        snapshot = MetadataSnapshot.of(snapshot_id, records, last_timestamp_ms=1, now_ms=next(self.numbers))
        try:
            await store.take_snapshot(snapshot, claim=claim)
            self.counts["snapshots"] += 1
        except OSError as error:
            self._require_expected(error)

    async def _until_read(self, broker: Broker, end: int) -> None:
        while broker.end < end:
            await broker.read_on.wait()

    async def _answered(self, call: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await call()
            except OSError as error:
                self._require_expected(error)
                await trio.sleep(0.2)

    def _require_expected(self, error: OSError) -> None:
        self.counts[f"errno {error.errno}"] += 1
        if error.errno not in (errno.ENOSPC, errno.ETIMEDOUT):
            raise error

    # --- What is checked ---

    def violate(self, promise: str, text: str) -> None:
        self.violations.append(f"{promise}: {text} ({trio.current_time():.1f} s)")

    def _end(self) -> EndOfLog:
        return EndOfLog.of(self.etcd.state.at(LAYOUT.end, self.etcd.state.revision))

    def _check_changes(self) -> None:
        state = self.etcd.state
        events = state.events_from(self.checked_revision + 1, LAYOUT.prefix, end_of_prefix(LAYOUT.prefix))
        self.checked_revision = state.revision
        for revision, event in events:
            if event.kv is not None and event.kv.key.startswith(LAYOUT.log) and event.type == 0:
                self._check_batch(event.kv.value, revision)
        self._check_cover()

    def _check_batch(self, value: bytes, revision: int) -> None:
        committed = batch_of(value)
        offset = committed.base_offset
        if offset in self.log:
            self.violate(ONE_VALUE, f"offset {offset} is written again")
        if offset != max(self.ends.values(), default=0):
            self.violate(CONTIGUOUS, f"offset {offset} behind {max(self.ends.values(), default=0)}")
        self.log[offset], self.ends[offset] = value, committed.next_offset
        self.names_in_log.update(record.name for record in committed.records)
        controller = self.etcd.state.at(LAYOUT.controller, revision)
        if controller is None or Holder.of(controller.value).epoch != committed.epoch:
            self.violate(IN_ITS_EPOCH, f"offset {offset} of epoch {committed.epoch}, under {controller}")

    def _check_cover(self) -> None:
        state = self.etcd.state
        snapshot = CurrentSnapshot.of(state.at(LAYOUT.current_snapshot, state.revision))
        log_keys = state.range(RangeRequest(key=LAYOUT.log, range_end=end_of_prefix(LAYOUT.log), keys_only=True)).kvs
        start = int(log_keys[0].key[-20:]) if log_keys else self._end().offset
        covered = 0 if snapshot is None else snapshot.id.end_offset
        if start > covered:
            self.violate(COVERED, f"the log begins at {start}, the snapshot ends at {covered}")
        if snapshot is not None:
            prefix = LAYOUT.chunks(snapshot.name)
            chunks = state.range(RangeRequest(key=prefix, range_end=end_of_prefix(prefix))).kvs
            if sum(len(kv.value) for kv in chunks) != snapshot.size_bytes:
                self.violate(COVERED, f"the snapshot {snapshot.name} is not whole")

    def _names_up_to(self, end: int) -> set[str]:
        batches = (batch_of(value) for offset, value in self.log.items() if offset < end)
        return {record.name for batch in batches for record in batch.records}

    def _check_answers(self) -> None:
        for offset, name in self.acknowledged.items():
            if offset not in self.log or name.encode() not in self.log[offset]:
                self.violate(ACKNOWLEDGED, f"{name} at {offset}")
        if written := {name for name in self.refused if self.names_in_log[name]}:
            self.violate(REFUSED, str(sorted(written)))
        if twice := [name for name, count in self.names_in_log.items() if count > 1]:
            self.violate(ONCE, str(sorted(twice)))
        everything = set(self.names_in_log)
        for broker in self.brokers:
            if broker.end == self._end().offset and broker.names != everything:
                self.violate(SAME_FOLD, f"broker {broker.node_id} at the end")


def batch_of(value: bytes) -> CommittedBatch:
    [batch] = read_batches(bytearray(value))
    return CommittedBatch.of(batch)


def topic(name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=name.encode().ljust(16, b"\0"))


def simulate_metadata_store(seed: int, plan: Plan | None = None) -> MetadataStoreResult:
    """Run the simulation of ``seed``, with a plan of its own unless one is given."""
    chance = random.Random(seed)
    plan = Plan.drawn(chance) if plan is None else plan
    simulation = Simulation(chance, plan, ModelledEtcd(random.Random(seed), plan.faults))
    logging.disable(logging.CRITICAL)
    try:
        with deterministic_scheduling(seed):
            trio.run(simulation.run, clock=trio.testing.MockClock(autojump_threshold=0))
    finally:
        logging.disable(logging.NOTSET)
    trace = hash(tuple(zlib.crc32(value) for value in simulation.log.values()))
    return MetadataStoreResult(seed, plan, tuple(simulation.violations), simulation.counts, trace)
