"""What the store in etcd does where etcd does the worst that it may, one thing at a time; all in virtual time.

Where a defence is shown, a store without it (``metadata_store_bugs``) fails the same scenario.
"""

from __future__ import annotations

import copy
import errno
import logging
from collections.abc import Awaitable, Callable

import pytest
import trio

from tests.cluster.etcd.etcd_world import World, late_etcd
from tests.cluster.etcd_stores import LAYOUT
from tests.cluster.metadata_stores import append, batch_of, topic
from tests.fakes.modelled_etcd import EtcdFaults, ModelledEtcdClient
from tests.simulation import metadata_store_bugs
from trio_broker.cluster.etcd import etcd_metadata_store
from trio_broker.cluster.etcd.etcd_metadata_store import EtcdMetadataStore
from trio_broker.cluster.etcd.messages import (
    RangeRequest,
    StatusResponse,
    TxnRequest,
    delete,
    put,
)
from trio_broker.cluster.etcd.transactions import require_version
from trio_broker.cluster.metadata_image import NO_LEADER
from trio_broker.cluster.metadata_snapshot import MetadataSnapshot, SnapshotId
from trio_broker.cluster.metadata_store import AppendUnknown, Claim, ClaimLost, UnexpectedEnd

SOON_SECONDS = 12.0
"""Longer than a lease, a refreshed one and an election together."""


async def names_in(store: EtcdMetadataStore, from_offset: int = 0) -> list[str]:
    end, names = await store.end_offset(), list[str]()
    tail = store.tail(from_offset)
    while from_offset < end:
        batch = await anext(tail)
        from_offset = batch.next_offset
        names += [record.name for record in batch.records]
    return names


def snapshot_at(end: int, claim: Claim, *names: str) -> MetadataSnapshot:
    records = map(topic, names)
    return MetadataSnapshot.of(SnapshotId(end, claim.epoch), records, last_timestamp_ms=1, now_ms=1)


# --- calls that are carried out late, or whose answers are lost ---


async def append_late_behind_a_snapshot(world: World) -> None:
    """The first try of an append comes again when a snapshot has deleted what the second one has put there."""
    store = await world.broker()
    claim = await store.claim(1)
    late_etcd(store).late_key = LAYOUT.end
    end = await append(store, claim, "a")
    await store.take_snapshot(snapshot_at(end, claim, "a"), claim=claim)
    late_etcd(store).carry_out()
    await append(store, claim, "b")
    assert await names_in(store, end) == ["b"]
    assert not world.etcd.state.at(LAYOUT.batch(end - 1), world.etcd.state.revision)


async def name_a_snapshot_late(world: World) -> None:
    """The first try of naming a snapshot comes when the next one has been named."""
    store = await world.broker()
    claim = await store.claim(1)
    first = snapshot_at(await append(store, claim, "a"), claim, "a")
    second = snapshot_at(await append(store, claim, "b"), claim, "a", "b")
    late_etcd(store).late_key = LAYOUT.current_snapshot
    await store.take_snapshot(first, claim=claim)
    await store.take_snapshot(second, claim=claim)
    late_etcd(store).carry_out()
    assert await store.snapshot() == second


async def refuse_after_an_append_that_was_carried_out(world: World) -> None:
    """An append is carried out without an answer, and the next try is refused since etcd is full."""
    store = await world.broker()
    claim = await store.claim(1)
    late_etcd(store).late_key = LAYOUT.end
    batch, state = await batch_of("a"), world.etcd.state

    async def fill() -> None:
        late_etcd(store).carry_out()
        state.no_space = True

    world.nursery.start_soon(fill)
    for _ in range(2):
        with pytest.raises(AppendUnknown):
            await store.append(batch, claim=claim, expected_end=claim.end_offset)
    state.no_space = False
    assert await store.append(batch, claim=claim, expected_end=claim.end_offset) == claim.end_offset
    assert await names_in(store) == ["a"]


SCENARIOS: list[tuple[Callable[[World], Awaitable[None]], Callable[[pytest.MonkeyPatch], None]]] = [
    (append_late_behind_a_snapshot, metadata_store_bugs.an_append_compares_that_its_place_is_free),
    (name_a_snapshot_late, metadata_store_bugs.a_late_step_of_a_snapshot_undoes_a_later_one),
    (refuse_after_an_append_that_was_carried_out, metadata_store_bugs.a_refusal_counts_for_the_tries_before_it),
]
"""With the bug that each finds."""


@pytest.mark.parametrize(("scenario", "bug"), SCENARIOS)
async def test_a_call_is_late_and_does_no_harm(autojump_clock, world, scenario, bug):
    await scenario(world)


@pytest.mark.parametrize(("scenario", "bug"), SCENARIOS)
async def test_a_call_is_late_and_a_store_without_its_defence_is_caught(
    autojump_clock, world, monkeypatch, scenario, bug
):
    bug(monkeypatch)
    with pytest.raises((AssertionError, OSError, pytest.fail.Exception)):
        await scenario(world)


async def test_a_cancelled_claim_that_comes_off_later_blocks_nobody(autojump_clock, world):
    one, two = await world.broker(), await world.broker()
    late_etcd(one).late_key = LAYOUT.end
    with trio.move_on_after(0.05):
        await one.claim(1)
    late_etcd(one).carry_out()
    with trio.fail_after(SOON_SECONDS):
        claim = await two.claim(2)
    await append(two, claim, "a")


async def test_a_cancelled_append_counts_as_one_without_an_answer(autojump_clock, world):
    store = await world.broker()
    claim = await store.claim(1)
    batch = await batch_of("a")
    with trio.move_on_after(0.0001):
        await store.append(batch, claim=claim, expected_end=claim.end_offset)
    assert await store.append(batch, claim=claim, expected_end=claim.end_offset) == claim.end_offset
    assert await names_in(store) == ["a"]


# --- leases ---


async def test_a_controller_that_appends_nothing_learns_that_its_lease_is_gone_though_etcd_says_renewed(
    autojump_clock, world
):
    one, two = await world.broker(), await world.broker()
    claim = await one.claim(1)
    world.etcd.faults = EtcdFaults(is_3_4=True, false_renewal=1.0)
    holder = (await one.transactions.state()).holder
    world.etcd.revoke(holder.lease)
    with trio.fail_after(SOON_SECONDS):
        await two.claim(2)
        await one.wait_lost(claim)
    assert one.controller().leader_id in (2, NO_LEADER)


async def test_a_broker_claims_by_another_lease_if_its_own_is_gone_though_etcd_says_renewed(autojump_clock, world):
    store = await world.broker()
    world.etcd.faults = EtcdFaults(is_3_4=True, false_renewal=1.0)
    world.etcd.revoke((await store._leases.held()).id)
    with trio.fail_after(SOON_SECONDS):
        await append(store, await store.claim(1), "a")


async def test_a_controller_that_is_cut_off_stops_to_be_one_before_the_next(autojump_clock, world):
    one, two = await world.broker(), await world.broker()
    claim = await one.claim(1)
    late_etcd(one).cut()
    ends: list[str] = []

    async def wait_lost() -> None:
        await one.wait_lost(claim)
        ends.append("lost")

    async def claim_next() -> None:
        await two.claim(2)
        ends.append("claimed")

    with trio.fail_after(SOON_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_lost)
            nursery.start_soon(claim_next)
    assert ends == ["lost", "claimed"]
    late_etcd(one).heal()
    with pytest.raises(ClaimLost):
        await append(one, claim, "late")


async def test_a_broker_that_comes_back_does_not_wait_for_its_own_lease(autojump_clock, world):
    one = await world.broker()
    first = await one.claim(1)
    world.lives[one].cancel()
    again = await world.broker()
    with trio.fail_after(1):
        second = await again.claim(1)
    assert second.epoch > first.epoch
    with pytest.raises(ClaimLost):
        await append(one, first, "late")


async def test_the_next_controller_follows_at_once_when_one_resigns(autojump_clock, world):
    one, two = await world.broker(), await world.broker()
    first = await one.claim(1)
    world.nursery.start_soon(two.claim, 2)
    await trio.sleep(1)
    await one.resign(first)
    with trio.fail_after(1):
        while two.controller().leader_id != 2:
            await two.changed.wait(until=trio.current_time() + 0.01)


@pytest.mark.parametrize(("away", "back"), [("stop", "start"), ("pause", "resume"), ("lose_leader", "elect_leader")])
async def test_somebody_is_the_controller_again_when_etcd_is_back(autojump_clock, world, away, back):
    stores = [await world.broker(), await world.broker()]
    claim = await stores[0].claim(1)
    await append(stores[0], claim, "a")
    getattr(world.etcd, away)()
    await stores[0].wait_lost(claim)
    await trio.sleep(30)
    getattr(world.etcd, back)()
    with trio.fail_after(SOON_SECONDS):
        claim = await stores[1].claim(2)
    await append(stores[1], claim, "b")
    assert await names_in(stores[0]) == ["a", "b"]


async def test_an_append_waits_for_an_election_in_etcd(autojump_clock, world):
    store = await world.broker()
    claim = await store.claim(1)
    world.etcd.lose_leader()

    async def elect() -> None:
        await trio.sleep(2)
        world.etcd.elect_leader()

    world.nursery.start_soon(elect)
    assert await store.append(await batch_of("a"), claim=claim, expected_end=claim.end_offset) == claim.end_offset


async def test_a_broker_that_starts_while_etcd_is_away_asks_now_and_then_until_it_is_back(
    autojump_clock, world, monkeypatch
):
    asked: list[float] = []
    status = ModelledEtcdClient.status

    async def note(client: ModelledEtcdClient) -> StatusResponse:
        asked.append(trio.current_time())
        return await status(client)

    monkeypatch.setattr(ModelledEtcdClient, "status", note)
    world.etcd.stop()
    world.nursery.start_soon(world.broker)
    await trio.sleep(10)
    assert len(asked) == 10
    world.etcd.start()
    await trio.sleep(SOON_SECONDS)
    assert world.etcd.state.at(LAYOUT.cluster, world.etcd.state.revision) is not None


# --- a full etcd ---


async def test_a_full_etcd_refuses_appends_and_keeps_the_controller(autojump_clock, world):
    one, two = await world.broker(), await world.broker()
    claim = await one.claim(1)
    world.etcd.state.no_space = True
    with pytest.raises(OSError, match="quota: compact and defragment it") as refusal:
        await append(one, claim, "a")
    assert refusal.value.errno == errno.ENOSPC
    with trio.move_on_after(60):
        await one.wait_lost(claim)
        raise AssertionError("the lease was not renewed")
    # A broker starts all the same.
    await world.broker()
    await one.resign(claim)
    lease = await two._leases.held()
    with pytest.raises(OSError, match="quota"):
        await two.claim(2)
    assert await two._leases.held() is lease, "no other would be granted"
    world.etcd.state.no_space = False
    await append(two, await two.claim(2), "b")
    assert await names_in(one) == ["b"]


async def test_metadata_that_grows_without_snapshots_is_refused_after_a_warning(
    autojump_clock, world, monkeypatch, caplog
):
    monkeypatch.setattr(etcd_metadata_store, "MAX_STORED_BYTES", 4000)
    monkeypatch.setattr(etcd_metadata_store, "WARN_STORED_BYTES", 2000)
    store = await world.broker()
    claim = await store.claim(1)
    caplog.set_level(logging.WARNING)
    for number in range(8):
        await append(store, claim, f"{number}" * 200)
    with pytest.raises(OSError, match="a snapshot is due") as refusal:
        await append(store, claim, "x" * 2000)
    assert refusal.value.errno == errno.ENOSPC
    assert "beyond 4000 nothing is appended" in caplog.text
    await store.take_snapshot(snapshot_at(await store.end_offset(), claim, "a"), claim=claim)
    await append(store, claim, "b")


async def test_a_batch_that_etcd_would_not_take_is_refused(autojump_clock, world):
    store = await world.broker()
    claim = await store.claim(1)
    with pytest.raises(OSError, match="etcd is given at most 1048576"):
        await append(store, claim, *(str(number).zfill(30_000) for number in range(40)))
    await append(store, claim, "a")


# --- snapshots ---


async def test_a_large_snapshot_is_cut_and_those_before_the_last_are_deleted(autojump_clock, world):
    store = await world.broker()
    claim = await store.claim(1)
    taken = []
    for number in range(3):
        end = await append(store, claim, f"{number}")
        taken.append(snapshot_at(end, claim, *(f"{number}-{index}".zfill(1000) for index in range(1200))))
        await store.take_snapshot(taken[-1], claim=claim)
        assert await store.snapshot() == taken[-1]
    keys = world.etcd.state.range(RangeRequest(key=LAYOUT.snapshots, range_end=LAYOUT.snapshots + b"\xff")).kvs
    assert {kv.key.split(b"/")[-2][:20] for kv in keys} == {b"%020d" % each.id.end_offset for each in taken[1:]}
    assert max(len(kv.value) for kv in keys) == 512 * 1024


async def test_a_snapshot_that_was_damaged_is_refused(autojump_clock, world):
    store = await world.broker()
    claim = await store.claim(1)
    await store.take_snapshot(snapshot_at(claim.end_offset, claim, "a"), claim=claim)
    [chunk] = world.etcd.state.range(RangeRequest(key=LAYOUT.snapshots, range_end=LAYOUT.snapshots + b"\xff")).kvs
    world.etcd.state.txn(TxnRequest(success=[put(chunk.key, chunk.value[:-1])]))
    with pytest.raises(OSError, match="damaged"):
        await store.snapshot()


# --- other data in etcd than this broker has read ---


async def test_a_broker_of_another_cluster_is_refused_and_both_are_named(autojump_clock, world):
    await world.broker()
    with pytest.raises(OSError, match=r"is of cluster c1 in layout 1, and the data directory of cluster c2"):
        await world.broker("c2")


async def test_keys_that_were_deleted_or_replaced_stop_the_broker(autojump_clock, world):
    store = await world.broker()
    claim = await store.claim(1)
    world.etcd.state.txn(TxnRequest(success=[delete(LAYOUT.prefix, LAYOUT.prefix + b"\xff")]))
    with pytest.raises((OSError, ClaimLost)):
        await append(store, claim, "a")
    await trio.sleep(2)
    for call in (store.end_offset, lambda: anext(store.tail(0)), store.snapshot, lambda: store.claim(1)):
        with pytest.raises(OSError, match="it was emptied or never entered"):
            await call()


async def test_an_etcd_that_was_restored_from_a_backup_stops_the_broker(autojump_clock, world, caplog):
    store = await world.broker()
    claim = await store.claim(1)
    await append(store, claim, "a")
    backup = copy.deepcopy(world.etcd.state)
    end = await append(store, claim, "b")
    tail = store.tail(end)
    world.etcd.state = backup
    with caplog.at_level(logging.CRITICAL):
        await trio.sleep(2)
    assert "as if restored from a backup" in caplog.text
    with pytest.raises(OSError, match="backup"):
        await append(store, claim, "c")
    with pytest.raises(OSError, match="backup"):
        await anext(tail)
    # Also when etcd has come to the revision that was known.
    for _ in range(10):
        backup.txn(TxnRequest(success=[put(b"other", b"")]))
    await trio.sleep(2)
    assert "as if restored from a backup" in store.problem
    # A broker that starts with what it had read sees it as well.
    again = await world.broker()
    with pytest.raises(OSError, match=f"read it up to {end}: etcd was restored from a backup"):
        await anext(again.tail(end))


async def test_a_batch_that_is_missing_or_damaged_stops_the_tail(autojump_clock, world):
    store = await world.broker()
    claim = await store.claim(1)
    end = await append(store, claim, "a")
    await append(store, claim, "b")
    state = world.etcd.state
    batch = state.at(LAYOUT.batch(end), state.revision)
    state.txn(TxnRequest(success=[put(LAYOUT.batch(end), batch.value[:-1] + b"x")]))
    with pytest.raises(OSError, match=f"under {LAYOUT.batch(end).decode()} cannot be read"):
        await anext(store.tail(end))
    state.txn(TxnRequest(success=[delete(LAYOUT.batch(end))]))
    with pytest.raises(OSError, match=f"has no batch at offset {end}"):
        await anext(store.tail(end))


async def test_the_end_is_the_present_one_also_where_reads_are_stale(autojump_clock, world):
    store = await world.broker()
    claim = await store.claim(1)
    world.etcd.faults = EtcdFaults(is_3_4=True, stale=1.0)
    end = claim.end_offset
    for number in range(20):
        end = await store.append(await batch_of(str(number)), claim=claim, expected_end=end) + 1
        assert await store.end_offset() == end


async def test_another_place_than_the_end_is_refused_where_the_end_is_not_known(autojump_clock, world):
    one = await world.broker()
    claim = await one.claim(1)
    with pytest.raises(UnexpectedEnd):
        await one.append(await batch_of("a"), claim=claim, expected_end=claim.end_offset + 5)


@pytest.mark.parametrize(
    ("version", "is_taken"),
    [("3.4.22", False), ("3.4.23", True), ("3.5.1", False), ("3.5.12", True), ("3.6.0-rc.1", True)],
)
def test_versions_of_etcd_that_lose_data_are_refused(version, is_taken):
    if is_taken:
        require_version(version)
    else:
        with pytest.raises(OSError, match=f"etcd {version} may lose data"):
            require_version(version)


async def test_alarms_of_etcd_are_in_the_log(autojump_clock, world, caplog):
    caplog.set_level(logging.WARNING)
    await world.broker()
    world.etcd.state.no_space = True
    await trio.sleep(70)
    assert "raises an alarm: memberID:1 alarm:NOSPACE" in caplog.text


async def test_a_key_that_says_something_strange_stops_the_broker(autojump_clock, world):
    store = await world.broker()
    claim = await store.claim(1)
    world.etcd.state.txn(TxnRequest(success=[put(LAYOUT.end, b"[]")]))
    await trio.sleep(2)
    with pytest.raises(OSError, match="has a strange value"):
        await append(store, claim, "a")
