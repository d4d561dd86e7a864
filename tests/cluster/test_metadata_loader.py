"""What the store has is published in its order; what this broker's controller decided is answered behind it."""

from __future__ import annotations

import errno
from random import Random
from uuid import uuid4

import attrs
import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.cluster.metadata_stores import local_store
from tests.fakes.metadata_subscriber import RecordingSubscriber
from trio_broker.changes.audit_context import CALLER
from trio_broker.changes.change import ChangeChannel, ChangeOrigin
from trio_broker.changes.change_log import ChangeLog
from trio_broker.cluster.controller import Controller
from trio_broker.cluster.dynamic_config_publisher import DynamicConfigPublisher
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.cluster.metadata_loader import MetadataLoader
from trio_broker.cluster.metadata_log_writer import transaction_of
from trio_broker.cluster.metadata_publisher import MetadataPublisher
from trio_broker.cluster.metadata_store import AppendUnknown, PreparedBatch
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.config.broker_config import BrokerConfig
from trio_broker.runtime.clock import ManualClock, SystemClock
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.simulated_workers import SimulatedWorkers


@attrs.define(eq=False)
class HeldSubscriber(RecordingSubscriber):
    """Follows a change when it is let go."""

    going_on: trio.Event = attrs.field(factory=trio.Event)

    async def apply_metadata(self, delta, image):
        await self.going_on.wait()
        await super().apply_metadata(delta, image)


@attrs.define(eq=False)
class BrokerOfStore:
    """The parts of one broker that follow a store and may decide."""

    controller: Controller
    loader: MetadataLoader
    changes: ChangeLog
    leading: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    async def lead(self) -> None:
        """Be the controller, now or later, until ``leading`` is cancelled."""
        with self.leading:
            await self.controller.lead()

    @property
    def image(self) -> MetadataImage:
        """What it follows."""
        return self.loader.image


def make_broker(store, node_id, *subscribers):
    config = BrokerConfig({"node.id": str(node_id)})
    changes = ChangeLog(SystemClock())
    publisher = MetadataPublisher(MetadataCache(MetadataImage()), DynamicConfigPublisher(config), changes, subscribers)
    loader = MetadataLoader(store, publisher)
    return BrokerOfStore(Controller(store, loader, config, real_runtime(ManualClock())), loader, changes)


@pytest.fixture
async def stores():
    """One store, in virtual time."""
    async with local_store(SimulatedWorkers(Random(1))) as opened:
        yield opened


@pytest.fixture
def store(stores):
    return stores.of(1)


@pytest.fixture
def start(store, nursery):
    """Start a broker on the store; the first one is the controller."""

    async def start_broker(node_id, *subscribers):
        broker = make_broker(store, node_id, *subscribers)
        nursery.start_soon(broker.loader.run)
        nursery.start_soon(broker.lead)
        await settled()
        return broker

    return start_broker


def topic(name):
    return TopicRecord(name=name, topic_id=uuid4().bytes)


async def settled():
    """Until nothing goes on any more, in virtual time."""
    await trio.sleep(10)


async def appended(store, *records):
    """Append a batch beside the controller, with its claim."""
    claim, end = store._claim, await store.end_offset()
    await store.append(await PreparedBatch.of(records, 0), claim=claim, expected_end=end)
    await settled()


async def test_every_broker_follows_what_one_of_them_decides(start, autojump_clock):
    one, two = await start(1), await start(2)
    assert (one.controller.writer.is_active, two.controller.writer.is_active) == (True, False)
    await one.controller.writer.append([topic("t")])
    await settled()
    assert set(one.image.topics) == set(two.image.topics) == {"t"}
    assert (one.image.offset, one.image.epoch) == (two.image.offset, two.image.epoch)


async def test_a_slow_part_of_the_broker_holds_up_no_decision(start, autojump_clock):
    slow = HeldSubscriber()
    one, two = await start(1, slow), await start(2)
    for name in "abc":
        await one.controller.writer.append([topic(name)])
    await settled()
    assert set(one.controller.image.topics) == set(two.image.topics) == set("abc")
    assert slow.deltas == []
    slow.going_on.set()
    await settled()
    assert [delta.changed_topics for delta in slow.deltas] == [("a",), ("b",), ("c",)]


async def test_a_request_is_answered_when_the_parts_of_its_broker_have_followed(start, autojump_clock):
    slow = HeldSubscriber()
    one = await start(1, slow)
    answered = []

    async def ask():
        answered.append(await one.controller.allocate_producer_ids())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await settled()
        assert one.image.next_producer_id == one.controller.image.next_producer_id > 0
        assert answered == []
        slow.going_on.set()
    assert len(answered) == 1


async def test_the_broker_that_is_not_the_controller_refuses_and_changes_nothing(start, store, autojump_clock):
    await start(1)
    two = await start(2)
    end = await store.end_offset()
    with pytest.raises(KafkaError) as refused:
        await two.controller.create_topics([NewTopic(name="t")])
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert await store.end_offset() == end


async def test_the_next_broker_decides_when_the_controller_resigns_and_the_old_one_refuses(start, autojump_clock):
    one, two = await start(1), await start(2)
    await one.controller.writer.append([topic("a")])
    one.leading.cancel()
    await settled()
    assert two.controller.writer.is_active
    await two.controller.writer.append([topic("b")])
    with pytest.raises(KafkaError) as refused:
        await one.controller.allocate_producer_ids()
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    await settled()
    assert set(one.image.topics) == set(two.image.topics) == {"a", "b"}


async def test_a_controller_that_does_not_know_that_it_was_replaced_is_refused_by_the_store(
    store, nursery, autojump_clock
):
    broker = make_broker(store, 1)
    nursery.start_soon(broker.loader.run)
    first = await store.claim(1)
    await settled()
    broker.controller.writer.activate(first)
    second = await store.claim(1)
    with pytest.raises(KafkaError) as refused:
        await broker.controller.writer.append([topic("a")])
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    assert not broker.controller.writer.is_active
    assert await store.end_offset() == second.end_offset
    assert broker.controller.image is broker.image


async def test_the_journals_of_all_brokers_say_who_asked_and_through_which_broker(start, autojump_clock):
    one, two = await start(1), await start(2)
    asked = (("direct", "10.0.0.7"), ("forwarded", "10.0.0.7 by broker 2 at 10.0.0.9"))
    for name, address in asked:
        token = CALLER.set(ChangeOrigin(ChangeChannel.KAFKA, "admin", address, "CREATE_TOPICS"))
        await one.controller.writer.append([topic(name)], is_recorded=True)
        CALLER.reset(token)
    await one.controller.writer.append([topic("own")], is_recorded=True)
    await settled()
    expected = [
        ("direct", ChangeOrigin(ChangeChannel.KAFKA, "admin", "10.0.0.7 by broker 1", "CREATE_TOPICS")),
        ("forwarded", ChangeOrigin(ChangeChannel.KAFKA, "admin", asked[1][1], "CREATE_TOPICS")),
        ("own", ChangeOrigin(ChangeChannel.BROKER)),
    ]
    for broker in (one, two):
        assert [(each.resource, each.origin) for each in broker.changes.changes] == expected


async def test_what_contradicts_the_image_does_not_get_into_the_log(start, store, autojump_clock):
    one = await start(1)
    record = topic("t")
    await one.controller.writer.append([record])
    end = await store.end_offset()
    with pytest.raises(Exception, match="was created before"):
        await one.controller.writer.append([record])
    assert await store.end_offset() == end
    await one.controller.writer.append([topic("u")])
    await settled()
    assert set(one.image.topics) == {"t", "u"}


class RefusingStore:
    """A store whose first claims are refused."""

    def __init__(self, store, *refusals):
        self._store, self._refusals = store, [*refusals]

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def claim(self, *claimant):
        if self._refusals:
            raise self._refusals.pop(0)
        return await self._store.claim(*claimant)


async def test_a_claim_that_is_refused_for_want_of_room_is_tried_again(store, nursery, caplog, autojump_clock):
    full = RefusingStore(store, *2 * [OSError(errno.ENOSPC, "the store is full")])
    broker = make_broker(full, 1)
    nursery.start_soon(broker.loader.run)
    nursery.start_soon(broker.controller.lead)
    await settled()
    assert broker.controller.writer.is_active
    assert [each.getMessage() for each in caplog.records] == ["the metadata is not claimed: the store is full"]


# --- answers that do not come ---


class UnsureStore:
    """A store whose next appends raise ``AppendUnknown``, done or not."""

    def __init__(self, store):
        self._store = store
        self.outcomes: list[bool] = []

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def append(self, batch, *, claim, expected_end):
        if not self.outcomes:
            return await self._store.append(batch, claim=claim, expected_end=expected_end)
        if self.outcomes.pop(0):
            await self._store.append(batch, claim=claim, expected_end=expected_end)
        raise AppendUnknown("no answer")


@pytest.mark.parametrize("is_done", [True, False])
async def test_an_append_without_an_answer_is_repeated_before_the_next_one(store, nursery, is_done, autojump_clock):
    unsure = UnsureStore(store)
    broker = make_broker(unsure, 1)
    nursery.start_soon(broker.loader.run)
    nursery.start_soon(broker.controller.lead)
    await settled()
    unsure.outcomes = [is_done, False]
    for name in "ab":
        with pytest.raises(KafkaError) as refused:
            await broker.controller.writer.append([topic(name)])
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
    await broker.controller.writer.append([topic("c")])
    await settled()
    # The second request found the first one unsettled still, and was not begun.
    assert set(broker.image.topics) == set(broker.controller.image.topics) == {"a", "c"}


# --- transactions ---


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr("trio_broker.cluster.local_metadata_store.LocalMetadataStore.max_batch_bytes", 400)


async def test_a_decision_larger_than_a_batch_is_published_as_a_whole(start, store, small_batches, autojump_clock):
    seen = RecordingSubscriber()
    one, two = await start(1), await start(2, seen)
    first = await store.end_offset()
    records = [topic(f"t{number}") for number in range(40)]
    change = await one.controller.writer.append(records)
    await settled()
    assert await store.end_offset() == first + len(records) + 2 == change.image.offset + 1
    [delta] = seen.deltas
    assert list(delta.changed_topics) == [record.name for record in records]
    assert list(two.image.topics) == list(one.image.topics) == [record.name for record in records]
    assert two.image.offset == change.image.offset


async def test_batches_of_a_transaction_have_all_records_in_their_order():
    records = [topic(f"t{number}") for number in range(25)]
    batches = await transaction_of(records, 0, 300)
    assert len(batches) > 3
    assert all(len(batch.data) <= 300 for batch in batches)
    begin, *between, end = [record for batch in batches for record in batch.records]
    assert (type(begin), between, type(end)) == (BeginTransactionRecord, records, EndTransactionRecord)
    assert [list(batch.records) for batch in await transaction_of(records, 0, 10_000)] == [records]


async def test_an_unfinished_transaction_of_a_dead_controller_is_aborted_by_the_next(start, store, autojump_clock):
    one, two = await start(1), await start(2)
    await appended(store, BeginTransactionRecord(), topic("lost"))
    assert two.loader.transactions.is_open
    one.leading.cancel()
    await settled()
    await two.controller.writer.append([topic("kept")])
    await settled()
    for broker in (one, two):
        assert set(broker.image.topics) == {"kept"}
        assert not broker.loader.transactions.is_open


async def test_a_transaction_that_fails_in_its_middle_is_aborted_by_the_next_decision(
    start, store, small_batches, monkeypatch, autojump_clock
):
    one = await start(1)
    append, calls = store.log.append, []

    async def refuse_the_third(batch):
        calls.append(batch)
        if len(calls) == 3:
            raise OSError("disk full")
        return await append(batch)

    monkeypatch.setattr(store.log, "append", refuse_the_third)
    with pytest.raises(OSError, match="disk full"):
        await one.controller.writer.append([topic(f"t{number}") for number in range(40)])
    await settled()
    assert one.image.topics == one.controller.image.topics == {}
    await one.controller.writer.append([topic("u")])
    await settled()
    assert isinstance(calls[-2].records[0], AbortTransactionRecord)
    assert set(one.image.topics) == {"u"}


# --- snapshots ---


async def test_a_snapshot_is_taken_of_what_every_broker_has_had_time_to_read(start, store, monkeypatch, autojump_clock):
    monkeypatch.setattr("trio_broker.cluster.snapshot_generator.SNAPSHOT_AFTER_RECORDS", 3)
    one, two = await start(1), await start(2)
    for names in ("abc", "de"):
        for name in names:
            await one.controller.writer.append([topic(name)])
        await settled()
        for broker in (one, two):
            await broker.controller.snapshots.take_if_due()
        if names == "abc":
            assert await store.snapshot() is None
            middle = one.image.offset + 1
    snapshot = await store.snapshot()
    assert snapshot is not None
    assert snapshot.id.end_offset == middle
    assert [record.name for record in snapshot.records()] == list("abc")
    await one.controller.snapshots.take_if_due()
    assert (await store.snapshot()).id.end_offset == middle


# --- faults ---


class FailingSubscriber(RecordingSubscriber):
    async def apply_metadata(self, delta, image):
        raise RuntimeError("a mistake in this part")


@pytest.mark.parametrize("stops_for_parts", [True, False])
async def test_a_part_that_misses_a_change_stops_a_broker_of_several(start, stops_for_parts, autojump_clock):
    broker = await start(1, FailingSubscriber())
    faults = broker.loader.publisher.faults
    faults.stops_for_parts = stops_for_parts
    await broker.controller.writer.append([topic("t")])
    await settled()
    assert faults.is_fatal.is_set() is stops_for_parts
    assert faults.reason == ("FailingSubscriber has missed a change of the metadata" if stops_for_parts else "")
    assert set(broker.image.topics) == {"t"}


async def test_a_broker_that_cannot_follow_a_batch_stops(start, store, autojump_clock):
    one = await start(1)
    record = topic("t")
    await appended(store, record)
    await appended(store, record)
    assert one.loader.publisher.faults.is_fatal.is_set()
    assert "ContradictoryMetadata: topic t was created before" in one.loader.publisher.faults.reason


async def test_a_broker_that_runs_and_is_far_behind_loads_the_snapshot_in_place(start, store, nursery, autojump_clock):
    seen = RecordingSubscriber()
    one, slow = await start(1), make_broker(store, 2, seen)
    gone, stays = topic("gone"), topic("stays")
    await one.controller.writer.append([gone, stays])
    with trio.move_on_after(10):
        await slow.loader.run()
    assert set(slow.image.topics) == {"gone", "stays"}
    await one.controller.writer.append([RemoveTopicRecord(topic_id=gone.topic_id), topic("new")])
    await one.controller.writer.append([topic("last")])
    await settled()
    await one.controller.snapshots.take()
    nursery.start_soon(slow.loader.run)
    await settled()
    assert slow.image.topics == one.image.topics
    assert (slow.image.offset, slow.image.epoch) == (one.image.offset, one.image.epoch)
    # One change, in which nothing is that has not changed.
    delta = seen.deltas[-1]
    assert len(seen.deltas) == 2
    assert [each.name for each in delta.deleted_topics] == ["gone"]
    assert sorted(delta.changed_topics) == ["last", "new"]
    await one.controller.writer.append([topic("behind it")])
    await settled()
    assert slow.image.topics == one.image.topics


async def test_a_record_that_is_not_known_stops_the_broker_with_one_line(start, store, nursery, caplog, autojump_clock):
    one, slow = await start(1), make_broker(store, 2)
    unknown = build_batch([NewRecord(0, None, b"\x01\x7f\x00\x00")])
    claim, end = store._claim, await store.end_offset()
    one.leading.cancel()
    await store.append(PreparedBatch((object(),), unknown), claim=claim, expected_end=end)
    nursery.start_soon(slow.loader.run)
    await settled()
    reason = "the metadata cannot be followed: metadata record of unknown type 127, as a newer version may write"
    assert slow.loader.publisher.faults.reason == reason
    [line] = [each for each in caplog.records if each.getMessage() == reason]
    assert line.exc_info is None
