"""A broker's own metadata go into etcd and come back, whole, whatever cuts the command short."""

from __future__ import annotations

import copy
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import PurePath

import attrs
import pytest
import trio

from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.metadata import PartitionRecord, RegisterBrokerRecord, TopicRecord, encode_metadata_record
from tests.cluster.etcd.etcd_world import World
from tests.cluster.etcd_stores import LAYOUT
from tests.fakes.images import broker_record, partition_record
from tests.fakes.inline_workers import InlineWorkers
from tests.fakes.metadata_logs import append, leading_log
from tests.fakes.modelled_etcd import ModelledEtcd, ModelledEtcdClient
from trio_broker.cluster.errors import MetadataLogUnusable
from trio_broker.cluster.etcd import handover
from trio_broker.cluster.etcd.etcd_metadata_store import EtcdMetadataStore
from trio_broker.cluster.etcd.handover import Departure, Joined, move_into_etcd, move_out_of_etcd
from trio_broker.cluster.etcd.layout import EndOfLog, cluster_bytes
from trio_broker.cluster.etcd.messages import Compare, RequestOp, TxnRequest, TxnResponse, put
from trio_broker.cluster.kafka_handover import HandoverRefused
from trio_broker.cluster.metadata_copy import image_in
from trio_broker.cluster.metadata_delta import replayed
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_ownership import give_up, is_own, require_copy, require_no_copy
from trio_broker.cluster.metadata_store import PreparedBatch
from trio_broker.cluster.stored_metadata import read_stored_metadata
from trio_broker.concurrency.barrier import background_nursery
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.runtime import Runtime
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.runtime.simulated_volume import ProcessEnded
from trio_broker.storage import file_names
from trio_broker.storage.log_directory import LogDirectory, MetaProperties

DATA = PurePath("/data")
METADATA = DATA / file_names.CLUSTER_METADATA_DIRECTORY
CLUSTER = "kMGZ-kMGR0SJsXC6yzGlfw"
PROPERTIES = MetaProperties(CLUSTER, 1, "Vt3kq0ZcQ3y8dW1nQeN5Aw")
ORDERS = bytes(range(16))


def topic(name: str) -> TopicRecord:
    """The same record each time: one log can be the beginning of another."""
    return TopicRecord(name=name, topic_id=name.encode().ljust(16, b"\0"))


def registered(node_id: int) -> RegisterBrokerRecord:
    return broker_record(node_id, broker_epoch=node_id, fenced=False)


def replicated(index: int, replicas: list[int], isr: list[int]) -> PartitionRecord:
    return partition_record(ORDERS, index, replicas, leader_epoch=4, isr=isr)


async def own_directory(*names: str) -> SimulatedDisk:
    """The data directory of broker 1, which has led alone, and has stopped."""
    disk = SimulatedDisk(ManualClock())
    directory = LogDirectory(disk, DATA)
    directory.open()
    directory.write_meta_properties(PROPERTIES)
    directory.unlock()
    await decide_alone(disk, registered(1), *map(topic, names))
    return disk


async def decide_alone(disk: SimulatedDisk, *records: object) -> None:
    """The broker of a directory leads alone, and stops."""
    log = leading_log(DATA, runtime_on(disk))
    await append(log, records)
    log.close()


def runtime_on(disk: SimulatedDisk) -> Runtime:
    return attrs.evolve(real_runtime(ManualClock()), disk=disk, workers=InlineWorkers())


def image_of(disk: SimulatedDisk) -> MetadataImage:
    stored = read_stored_metadata(disk, METADATA)
    return replayed(stored.records, offset=stored.end_offset - 1, epoch=stored.epoch)


@attrs.define
class Commands:
    """The commands of a broker on ``disk``, on the etcd of ``world``; ``client`` is theirs."""

    world: World
    disk: SimulatedDisk
    client: ModelledEtcdClient = attrs.field()

    @client.default
    def _client(self) -> ModelledEtcdClient:
        return self.world.etcd.client()

    @asynccontextmanager
    async def open_store(self, cluster_id: str) -> AsyncIterator[tuple[EtcdMetadataStore, trio.Nursery]]:
        async with background_nursery() as nursery:
            yield EtcdMetadataStore(self.client, LAYOUT, cluster_id, ManualClock()), nursery

    async def join(self, *, restores: bool = False) -> Joined:
        joined = await move_into_etcd(DATA, runtime_on(self.disk), self.open_store, restores=restores)
        assert joined is not None
        return joined

    async def leave(self, *, asks_etcd: bool = True, agrees: bool = True) -> Departure:
        open_store = self.open_store if asks_etcd else None
        return await move_out_of_etcd(DATA, runtime_on(self.disk), open_store, lambda _: agrees)


async def decide_in_etcd(world: World, *records: object) -> None:
    """Another broker has led the cluster, and has stopped."""
    store = await world.broker(CLUSTER)
    claim = await store.claim(2)
    batch = await PreparedBatch.of(records, now_ms=1)
    await store.append(batch, claim=claim, expected_end=claim.end_offset)
    await store.resign(claim)
    world.lives[store].cancel()


async def image_in_etcd(world: World) -> MetadataImage:
    store = EtcdMetadataStore(world.etcd.client(), LAYOUT, CLUSTER, ManualClock())
    return await image_in(store)


# --- join ---


async def test_a_broker_s_metadata_go_on_in_etcd(autojump_clock, world):
    commands = Commands(world, await own_directory("orders"))
    own = image_of(commands.disk)
    joined = await commands.join()
    assert (joined.cluster_id, joined.end_offset, joined.topics, joined.were_there) == (
        CLUSTER,
        own.offset + 1,
        1,
        False,
    )
    assert attrs.asdict(await image_in_etcd(world), recurse=False) == attrs.asdict(own, recurse=False)
    require_copy(commands.disk, DATA)
    with pytest.raises(MetadataLogUnusable, match="has a copy of the metadata of several brokers"):
        require_no_copy(commands.disk, DATA)
    store = await world.broker(CLUSTER)
    claim = await store.claim(1)
    assert (claim.epoch, claim.end_offset) == (own.epoch + 1, own.offset + 2)


async def test_a_join_that_is_repeated_only_says_so(autojump_clock, world):
    commands = Commands(world, await own_directory("orders"))
    await commands.join()
    await decide_in_etcd(world, topic("more"))
    joined = await commands.join()
    assert joined.were_there
    assert (await image_in_etcd(world)).topics.keys() == {"orders", "more"}
    new = SimulatedDisk(ManualClock())
    assert await move_into_etcd(DATA, runtime_on(new), commands.open_store) is None


async def test_a_copy_is_brought_where_etcd_has_lost_what_it_is_a_copy_of(autojump_clock, world):
    """The brokers that ran meanwhile go on: nobody could write that they had stopped."""
    commands = Commands(world, await own_directory("orders"))
    await decide_alone(commands.disk, registered(2))
    give_up(commands.disk, DATA)
    copied = image_of(commands.disk)
    # As a broker leaves it that is started meanwhile.
    world.etcd.state.txn(TxnRequest(success=[put(LAYOUT.cluster, cluster_bytes(CLUSTER))]))
    with pytest.raises(HandoverRefused, match="end at offset 0, and this copy at"):
        await commands.join()
    assert not (await commands.join(restores=True)).were_there
    restored = await image_in_etcd(world)
    assert (restored.offset, restored.topics, restored.brokers) == (copied.offset, copied.topics, copied.brokers)
    require_copy(commands.disk, DATA)
    await decide_in_etcd(world, topic("later"))
    assert (await commands.join(restores=True)).were_there


async def test_metadata_of_another_cluster_stay(autojump_clock, world):
    await world.broker("other")
    commands = Commands(world, await own_directory("orders"))
    with pytest.raises(OSError, match="is of cluster other in layout 1, and the data directory of cluster kMGZ"):
        await commands.join()
    assert is_own(commands.disk, DATA)


async def test_a_cluster_that_has_gone_on_without_the_directory_stays(autojump_clock, world):
    await decide_in_etcd(world, topic("theirs"))
    commands = Commands(world, await own_directory("orders"))
    with pytest.raises(HandoverRefused, match="the cluster has gone on, up to offset 2, without this directory"):
        await commands.join()
    assert is_own(commands.disk, DATA)


async def test_what_was_brought_and_never_used_is_replaced_by_what_the_broker_has_decided_since(autojump_clock, world):
    commands = Commands(world, await own_directory("orders"))
    before = commands.disk
    await commands.join()
    commands.disk = await own_directory("orders", "more")
    await commands.join()
    assert (await image_in_etcd(world)).topics.keys() == {"orders", "more"}
    commands.disk = await own_directory("orders")
    with pytest.raises(HandoverRefused, match="has gone on"):
        await commands.join()
    assert not is_own(before, DATA)


async def test_more_than_etcd_is_given_is_refused(autojump_clock, world, monkeypatch):
    monkeypatch.setattr(handover, "MAX_STORED_BYTES", 100)
    commands = Commands(world, await own_directory("orders"))
    with pytest.raises(HandoverRefused, match="etcd is given at most 100"):
        await commands.join()
    assert is_own(commands.disk, DATA)


# --- leave ---


async def joined_directory(world: World, *records: object) -> Commands:
    """A broker that has joined, and does not run while another one decides ``records``."""
    commands = Commands(world, await own_directory("orders"))
    await commands.join()
    await decide_in_etcd(world, registered(2), topic("shared"), *records)
    return commands


async def test_what_was_decided_in_etcd_comes_back(autojump_clock, world):
    commands = await joined_directory(world)
    epoch = (await image_in_etcd(world)).epoch
    departure = await commands.leave()
    assert (departure.node_id, departure.other_brokers, departure.is_end_known) == (1, [2], True)
    assert image_of(commands.disk).topics.keys() == {"orders", "shared"}
    require_no_copy(commands.disk, DATA)
    with pytest.raises(MetadataLogUnusable, match="has metadata of its own"):
        require_copy(commands.disk, DATA)
    assert leading_log(DATA, runtime_on(commands.disk)).leader_epoch > epoch
    assert not keys_left(world)
    # Again: nothing is left to be done, and nothing is in the way of the next join.
    assert (await commands.leave()).was_own
    assert not (await commands.join()).were_there


def keys_left(world: World) -> list[bytes]:
    state = world.etcd.state
    keys = state.keys_in(LAYOUT.prefix, LAYOUT.prefix + b"\xff")
    return [key for key in keys if state.at(key, state.revision) is not None]


@pytest.mark.parametrize(
    ("partition", "reason"),
    [
        (replicated(0, [2, 3], [2, 3]), r"orders-0 has no replica on broker 1$"),
        (replicated(0, [1, 2], [2]), r"orders-0 is behind on broker 1 \(in sync on \[2\]\)$"),
    ],
)
async def test_a_broker_without_all_that_is_committed_stays(autojump_clock, world, partition, reason):
    commands = await joined_directory(world, TopicRecord(name="orders2", topic_id=ORDERS), partition)
    with pytest.raises(HandoverRefused, match=reason.replace("orders", "orders2")):
        await commands.leave()
    assert keys_left(world)
    require_copy(commands.disk, DATA)


async def test_what_is_decided_while_the_question_is_asked_counts(autojump_clock, world):
    commands = await joined_directory(world)

    def agree(_: Departure) -> bool:
        state = world.etcd.state
        end = EndOfLog.of(state.at(LAYOUT.end, state.revision))
        records = [TopicRecord(name="theirs", topic_id=ORDERS), replicated(0, [2], [2])]
        values = [NewRecord(1, None, encode_metadata_record(record)) for record in records]
        data = build_batch(values, base_offset=end.offset, partition_leader_epoch=end.epoch)
        appended = [put(LAYOUT.batch(end.offset), data), put(LAYOUT.end, end.after(data, 2, end.epoch).to_bytes())]
        state.txn(TxnRequest(success=appended))
        return True

    with pytest.raises(HandoverRefused, match="theirs-0 has no replica on broker 1"):
        await move_out_of_etcd(DATA, runtime_on(commands.disk), commands.open_store, agree)
    require_copy(commands.disk, DATA)


async def test_nobody_leaves_while_another_broker_is_the_controller(autojump_clock, world):
    commands = await joined_directory(world)
    store = await world.broker(CLUSTER)
    await store.claim(2)
    with pytest.raises(HandoverRefused, match="broker 2 is in contact: stop all brokers first"):
        await commands.leave()


async def test_without_consent_nothing_changes(autojump_clock, world):
    commands = await joined_directory(world)
    revision, number = world.etcd.state.revision, image_of(commands.disk).offset
    await commands.leave(agrees=False)
    assert (world.etcd.state.revision, image_of(commands.disk).offset) == (revision, number)
    require_copy(commands.disk, DATA)


@pytest.mark.parametrize(
    ("lost", "reason"),
    [(9, "has .* records, and the metadata store of the cluster"), (1, "differs from the metadata store")],
)
async def test_metadata_that_were_set_back_are_refused_before_anybody_agrees(autojump_clock, world, lost, reason):
    """By --dry-run too."""
    commands = Commands(world, await own_directory("orders"))
    await commands.join()
    await decide_alone(commands.disk, *(topic(f"lost-{index}") for index in range(lost)))
    give_up(commands.disk, DATA)
    await decide_in_etcd(world, topic("shared"), topic("more"))
    with pytest.raises(HandoverRefused, match=f"{reason}.*set back"):
        await commands.leave(agrees=False)


async def test_a_copy_counts_where_etcd_is_lost_unless_others_were_running(autojump_clock, world):
    commands = await joined_directory(world)
    departure = await commands.leave(asks_etcd=False)
    assert not departure.is_end_known
    assert set(image_of(commands.disk).topics) == {"orders"}
    commands = Commands(world, await own_directory("orders"))
    await decide_alone(commands.disk, registered(2))
    give_up(commands.disk, DATA)
    with pytest.raises(HandoverRefused, match="broker 2 was in contact when this copy ended"):
        await commands.leave(asks_etcd=False)


# --- cut short ---


@attrs.define
class CutShort:
    """Counts what a command changes, on the disk and in etcd, and ends the machine at one of these steps."""

    number: int
    disk: SimulatedDisk
    steps: int = 0
    survivor: SimulatedDisk | None = None

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.number:
            self.disk.trace.before = None
            self.survivor = self.disk.power_cut(random.Random(self.number))
            raise ProcessEnded

    def watch(self) -> None:
        self.disk.trace.before = lambda operation: self.step() if operation.kind.changes else None


class CutClient(ModelledEtcdClient):
    """Each transaction is two steps: before it is carried out, and before its answer."""

    def __init__(self, etcd: ModelledEtcd, machine: CutShort) -> None:
        super().__init__(etcd)
        self.machine = machine

    async def txn(
        self, compare: Sequence[Compare], success: Sequence[RequestOp], failure: Sequence[RequestOp] = ()
    ) -> TxnResponse:
        self.machine.step()
        response = await super().txn(compare, success, failure)
        self.machine.step()
        return response


async def every_cut(
    world: World,
    directory: Callable[[World], Awaitable[Commands]],
    command: Callable[[Commands], Awaitable[object]],
    verify: Callable[[World, Commands], Awaitable[None]],
    *,
    stride: int = 1,
) -> int:
    """Run ``command`` up to each of its steps, or to each so many; ``verify`` what is there then."""
    number = 0
    while True:
        number += stride
        fresh = World(world.nursery)
        await world.nursery.start(fresh.etcd.run)
        commands = await directory(fresh)
        cut = CutShort(number, commands.disk)
        commands.client = CutClient(fresh.etcd, cut)
        cut.watch()
        with suppress(ProcessEnded):
            await command(commands)
        if cut.survivor is None:
            return number
        await verify(fresh, Commands(fresh, cut.survivor))


async def test_a_join_that_is_cut_short_is_repeated(autojump_clock, world):
    """The metadata are the broker's own, or in etcd as well; and one more command ends it."""
    sides = set()

    async def directory(fresh: World) -> Commands:
        return Commands(fresh, await own_directory("orders"))

    async def verify(fresh: World, commands: Commands) -> None:
        own = is_own(commands.disk, DATA)
        sides.add((own, bool(keys_left(fresh))))
        if not own:
            assert (await image_in_etcd(fresh)).topics.keys() == {"orders"}
        await commands.join()
        assert (await image_in_etcd(fresh)).topics.keys() == {"orders"}
        require_copy(commands.disk, DATA)

    assert await every_cut(world, directory, Commands.join, verify) > 10
    assert sides == {(True, False), (True, True), (False, True)}


async def test_a_leave_that_is_cut_short_is_repeated(autojump_clock, world):
    """The metadata are in etcd, or the broker's own; and one more command ends it."""
    sides = set()

    async def verify(fresh: World, commands: Commands) -> None:
        own = is_own(commands.disk, DATA)
        sides.add((own, bool(keys_left(fresh))))
        if not own:
            assert (await image_in_etcd(fresh)).topics.keys() == {"orders", "shared"}
        await commands.leave()
        assert not keys_left(fresh)
        assert image_of(commands.disk).topics.keys() == {"orders", "shared"}
        require_no_copy(commands.disk, DATA)

    assert await every_cut(world, joined_directory, Commands.leave, verify, stride=2) > 60
    assert sides == {(False, True), (True, True), (True, False)}


async def test_the_keys_that_a_leave_has_left_are_deleted_by_the_next_one(autojump_clock, world):
    """Unless the cluster has gone on there."""
    commands = await joined_directory(world)
    before = copy.deepcopy(world.etcd.state)
    await commands.leave()
    for is_ahead in (False, True):
        world.etcd.state = copy.deepcopy(before)
        if is_ahead:
            await decide_in_etcd(world, *map(topic, "abc"))
            with pytest.raises(HandoverRefused, match="the two have parted"):
                await commands.leave()
        else:
            assert (await commands.leave()).was_own
        assert bool(keys_left(world)) == is_ahead
