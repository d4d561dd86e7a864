"""What every metadata store promises, whatever it is made of."""

from __future__ import annotations

from contextlib import suppress

import attrs
import pytest
import trio
import trio.testing

from kafka_wire.records.batch import read_batches
from kafka_wire.records.control import ControlRecordType, read_control_record
from tests.cluster.metadata_stores import STORES, append, batch_of
from tests.waits import fail_after
from trio_broker.cluster.metadata_delta import replayed
from trio_broker.cluster.metadata_image import NO_LEADER
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot
from trio_broker.cluster.metadata_store import (
    AppendUnknown,
    BelowLogStart,
    ClaimLost,
    CommittedBatch,
    LeaderAndEpoch,
    UnexpectedEnd,
)

WAIT_SECONDS = 10
"""For a batch that is there to be read, or a claim that is over."""


@pytest.fixture(params=sorted(STORES))
async def stores(request):
    async with STORES[request.param]() as opened:
        yield opened


@pytest.fixture
def store(stores):
    """As broker 1 sees it."""
    return stores.of(1)


async def read(store, from_offset, end_offset=None):
    """The batches from one offset to another, or to the present end."""
    end_offset = await store.end_offset() if end_offset is None else end_offset
    batches = []
    if from_offset < end_offset:
        with fail_after(WAIT_SECONDS):
            async for batch in store.tail(from_offset):
                batches.append(batch)
                if batch.next_offset >= end_offset:
                    break
    return batches


def names(batches):
    return [record.name for batch in batches for record in batch.records]


# --- claims ---


async def test_there_is_no_controller_before_the_first_claim(store):
    assert store.controller() == LeaderAndEpoch(NO_LEADER, 0)
    assert await store.end_offset() == 0


async def test_a_claim_begins_its_epoch_with_a_leader_change(store):
    claim = await store.claim(1)
    assert store.controller() == LeaderAndEpoch(1, claim.epoch)
    [batch] = await read(store, 0)
    assert (batch.base_offset, batch.next_offset, batch.epoch) == (0, claim.end_offset, claim.epoch)
    assert list(batch.records) == []
    [control] = read_batches(batch.data)
    [record] = control.records()
    assert read_control_record(record).type is ControlRecordType.LEADER_CHANGE


async def test_a_broker_that_claims_again_has_a_higher_epoch_and_fences_its_earlier_life(store):
    first = await store.claim(1)
    end = await append(store, first, "a")
    second = await store.claim(1)
    assert second.epoch > first.epoch
    assert second.end_offset == end + 1
    for expected_end in (end, second.end_offset):
        with pytest.raises(ClaimLost):
            await store.append(await batch_of("late"), claim=first, expected_end=expected_end)
    assert await store.end_offset() == second.end_offset
    await append(store, second, "b")
    assert names(await read(store, 0)) == ["a", "b"]


async def test_another_broker_claims_when_the_first_is_dead_and_fences_it(stores):
    one, two = stores.of(1), stores.of(2)
    first = await one.claim(1)
    await append(one, first, "a")
    await stores.kill(1)
    second = await two.claim(2)
    assert second.epoch > first.epoch
    end = await append(two, second, "b")
    with pytest.raises(ClaimLost):
        await one.append(await batch_of("late"), claim=first, expected_end=end)
    assert names(await read(two, 0)) == ["a", "b"]
    assert [batch.epoch for batch in await read(two, 0)] == [first.epoch] * 2 + [second.epoch] * 2
    with fail_after(WAIT_SECONDS):
        await one.wait_lost(first)


@pytest.mark.parametrize("other", [(2, bytes(16)), (1, bytes(15) + b"\x02")])
async def test_another_process_waits_with_its_claim_until_the_first_resigns(stores, other):
    """That of another broker, or a second one of the same id."""
    one, two = stores.of(1), stores.of(2)
    first = await one.claim(1)
    claims = []

    async def claim():
        claims.append(await two.claim(*other))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(claim)
        await append(one, first, "a")
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert claims == []
        await one.resign(first)
    [second] = claims
    assert second.epoch > first.epoch
    with fail_after(WAIT_SECONDS):
        await one.wait_lost(first)
    node_id, incarnation_id = other
    assert two.controller() == LeaderAndEpoch(node_id, second.epoch)
    assert two.controller().incarnation_id == incarnation_id


async def test_to_resign_from_a_claim_that_is_over_ends_no_other(stores):
    one, two = stores.of(1), stores.of(2)
    first = await one.claim(1)
    await one.resign(first)
    second = await two.claim(2)
    await one.resign(first)
    await append(two, second, "a")
    assert names(await read(two, 0)) == ["a"]


async def test_without_a_claim_there_is_no_controller(store):
    claim = await store.claim(1)
    await store.resign(claim)
    assert store.controller() == LeaderAndEpoch(NO_LEADER, claim.epoch)
    with pytest.raises(ClaimLost):
        await store.append(await batch_of("late"), claim=claim, expected_end=claim.end_offset)


# --- appends ---


async def test_offsets_are_contiguous_and_an_append_returns_its_first(store):
    claim = await store.claim(1)
    end = claim.end_offset
    for width in (1, 3, 2):
        batch = await batch_of(*(f"{end}-{index}" for index in range(width)))
        assert await store.append(batch, claim=claim, expected_end=end) == end
        end += width
        assert await store.end_offset() == end
    batches = await read(store, 0)
    assert [batch.base_offset for batch in batches[1:]] == [batch.next_offset for batch in batches[:-1]]
    assert batches[-1].next_offset == end


async def test_a_batch_has_its_records_its_time_and_the_bytes_that_say_so(store):
    claim = await store.claim(1)
    prepared = await batch_of("a", "b")
    offset = await store.append(prepared, claim=claim, expected_end=claim.end_offset)
    [batch] = await read(store, offset)
    assert list(batch.records) == list(prepared.records)
    assert (batch.base_offset, batch.last_offset, batch.epoch) == (offset, offset + 1, claim.epoch)
    assert batch.timestamp_ms == 1234
    [written] = read_batches(batch.data)
    written.verify_crc()
    assert (written.header.base_offset, written.header.partition_leader_epoch) == (offset, claim.epoch)


@pytest.mark.parametrize("distance", [-1, 1, 100])
async def test_an_append_at_another_place_than_the_end_is_refused_and_changes_nothing(store, distance):
    claim = await store.claim(1)
    end = await append(store, claim, "a", "b")
    with pytest.raises(UnexpectedEnd):
        await store.append(await batch_of("late"), claim=claim, expected_end=end + distance)
    assert await store.end_offset() == end
    await append(store, claim, "c")
    assert names(await read(store, 0)) == ["a", "b", "c"]


async def test_an_append_whose_answer_was_lost_succeeds_once_when_it_is_repeated(stores, store):
    claim = await store.claim(1)
    batch, end = await batch_of("a"), claim.end_offset
    stores.lose_answer(1)
    with suppress(AppendUnknown):
        assert await store.append(batch, claim=claim, expected_end=end) == end
    assert await store.append(batch, claim=claim, expected_end=end) == end
    assert await append(store, claim, "b") == end + 2
    # Also behind another one, though no controller would.
    assert await store.append(batch, claim=claim, expected_end=end) == end
    assert names(await read(store, 0)) == ["a", "b"]


async def test_other_records_at_the_place_of_an_unknown_append_are_refused(stores, store):
    claim = await store.claim(1)
    end = claim.end_offset
    stores.lose_answer(1)
    with suppress(AppendUnknown):
        await store.append(await batch_of("a"), claim=claim, expected_end=end)
    with pytest.raises(UnexpectedEnd):
        await store.append(await batch_of("b"), claim=claim, expected_end=end)
    assert names(await read(store, 0)) == ["a"]


async def test_the_same_bytes_of_another_epoch_are_another_batch(store):
    first = await store.claim(1)
    batch = await batch_of("a")
    await store.append(batch, claim=first, expected_end=first.end_offset)
    second = await store.claim(1)
    with pytest.raises(UnexpectedEnd):
        await store.append(batch, claim=second, expected_end=first.end_offset)


async def test_one_of_two_appends_at_one_place_is_refused(store):
    claim = await store.claim(1)
    outcomes = []

    async def attempt(name):
        try:
            outcomes.append(await store.append(await batch_of(name), claim=claim, expected_end=claim.end_offset))
        except UnexpectedEnd:
            outcomes.append(None)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(attempt, "a")
        nursery.start_soon(attempt, "b")
    assert sorted(outcomes, key=str) == [claim.end_offset, None]
    assert len(names(await read(store, 0))) == 1


async def test_a_batch_of_the_largest_size_is_taken(store):
    claim = await store.claim(1)
    count, width = 40, min(store.max_batch_bytes // 50, 30_000)
    batch = await batch_of(*(f"{index}".zfill(width) for index in range(count)))
    assert len(batch.data) <= store.max_batch_bytes
    await store.append(batch, claim=claim, expected_end=claim.end_offset)
    assert len(names(await read(store, claim.end_offset))) == count


# --- tails ---


async def test_a_tail_sees_every_batch_once_in_order_from_any_offset(stores, store):
    claim = await store.claim(1)
    for name in "abcd":
        await append(store, claim, name, name.upper())
    batches = await read(store, 0)
    assert names(batches) == list("aAbBcCdD")
    for position, batch in enumerate(batches):
        assert await read(stores.of(2), batch.base_offset) == batches[position:]


async def test_a_tail_at_the_end_waits_and_sees_what_any_broker_appends(stores):
    one, two = stores.of(1), stores.of(2)
    claim = await one.claim(1)
    seen: dict[int, list[CommittedBatch]] = {1: [], 2: []}
    arrived = trio.Event()

    async def follow(node_id, store):
        async for batch in store.tail(0):
            seen[node_id].append(batch)
            if all(names(batches)[-1:] == ["e"] for batches in seen.values()):
                arrived.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, 1, one)
        nursery.start_soon(follow, 2, two)
        await trio.testing.wait_all_tasks_blocked(0.01)
        for name in "ab":
            await append(one, claim, name)
        await one.resign(claim)
        claim = await two.claim(2)
        for name in "cde":
            await append(two, claim, name)
        with fail_after(WAIT_SECONDS):
            await arrived.wait()
        nursery.cancel_scope.cancel()
    assert seen[1] == seen[2] == await read(one, 0)
    assert names(seen[1]) == list("abcde")


async def test_a_slow_tail_misses_nothing_and_holds_nobody_up(store):
    claim = await store.claim(1)
    tail = store.tail(0)
    first = await anext(tail)
    for index in range(80):
        await append(store, claim, str(index))
    batches = [first]
    with fail_after(WAIT_SECONDS):
        while batches[-1].next_offset < claim.end_offset + 80:
            batches.append(await anext(tail))
    assert names(batches) == [str(index) for index in range(80)]


async def test_a_tail_that_is_cancelled_takes_nothing_with_it(store):
    claim = await store.claim(1)
    tail = store.tail(claim.end_offset)
    with trio.move_on_after(0.01):
        await anext(tail)
    await append(store, claim, "a")
    assert names(await read(store, claim.end_offset)) == ["a"]


# --- snapshots ---


def fold(batches, snapshot=None):
    records = [record for batch in batches for record in batch.records]
    end = batches[-1]
    before = [] if snapshot is None else list(snapshot.records())
    return replayed([*before, *records], offset=end.last_offset, epoch=end.epoch)


def facts(image):
    return attrs.asdict(image, recurse=False)


def snapshot_of(image):
    return MetadataSnapshot.of_image(image, last_timestamp_ms=1234, now_ms=5678)


async def test_there_is_no_snapshot_before_one_is_taken(store):
    claim = await store.claim(1)
    await append(store, claim, "a")
    assert await store.snapshot() is None


async def test_snapshot_and_tail_fold_into_the_same_image_as_everything(stores, store):
    claim = await store.claim(1)
    await append(store, claim, "a", "b")
    middle = await append(store, claim, "c")
    await append(store, claim, "d")
    everything = await read(store, 0)
    taken = snapshot_of(fold([batch for batch in everything if batch.base_offset < middle]))
    await store.take_snapshot(taken, claim=claim)
    for each in (store, stores.of(2)):
        snapshot = await each.snapshot()
        assert snapshot == taken
        again = fold(await read(each, snapshot.id.end_offset), snapshot)
        assert facts(again) == facts(fold(everything))
    await append(store, claim, "e")
    assert names(await read(store, middle)) == ["d", "e"]


async def test_a_tail_from_before_the_snapshot_says_so(stores, store):
    claim = await store.claim(1)
    await append(store, claim, "a")
    end = await append(store, claim, "b")
    await store.take_snapshot(snapshot_of(fold(await read(store, 0))), claim=claim)
    for each in (store, stores.of(2)):
        with pytest.raises(BelowLogStart), fail_after(WAIT_SECONDS):
            await anext(each.tail(0))
    # The end itself is still a place to go on from.
    tail = store.tail(end)
    await append(store, claim, "c")
    with fail_after(WAIT_SECONDS):
        assert names([await anext(tail)]) == ["c"]


async def test_offsets_and_epochs_go_on_behind_a_snapshot(stores, store):
    claim = await store.claim(1)
    end = await append(store, claim, "a")
    await store.take_snapshot(snapshot_of(fold(await read(store, 0))), claim=claim)
    assert await store.end_offset() == end
    for expected_end in (0, claim.end_offset, end - 1):
        with pytest.raises(UnexpectedEnd):
            await store.append(await batch_of("again"), claim=claim, expected_end=expected_end)
    again = await store.claim(1)
    assert (again.epoch > claim.epoch, again.end_offset) == (True, end + 1)
    await append(store, again, "b")
    assert names(await read(store, end)) == ["b"]


async def test_a_snapshot_by_a_broker_without_the_claim_is_refused(store):
    claim = await store.claim(1)
    await append(store, claim, "a")
    image = fold(await read(store, 0))
    await store.claim(1)
    with pytest.raises(ClaimLost):
        await store.take_snapshot(snapshot_of(image), claim=claim)
    assert await store.snapshot() is None
    assert names(await read(store, 0)) == ["a"]


async def test_a_later_snapshot_takes_the_place_of_an_earlier_one_and_not_the_other_way_round(store):
    claim = await store.claim(1)
    await append(store, claim, "a")
    earlier = snapshot_of(fold(await read(store, 0)))
    await append(store, claim, "b")
    later = snapshot_of(fold(await read(store, 0)))
    for taken, kept in ((earlier, earlier), (later, later), (earlier, later)):
        await store.take_snapshot(taken, claim=claim)
        assert await store.snapshot() == kept
