"""What changes a partition comes one at a time, in order, and never waits for a disk on the event loop."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from tests.leader_append import append_to_leader
from tests.partition.real_logs import NOW_MS, add_topic, batch
from tests.waits import within
from trio_broker.partition.delayed_operations import DelayedFetch
from trio_broker.storage.leader_epochs import LeaderEpochs

WEEK_SECONDS = 8 * 86_400


class HeldWrites:
    """Holds each write of a file of leader epochs in its thread until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.released = trio.Event(), threading.Event()
        self.threads: list[int] = []
        write, token = LeaderEpochs.write_file, trio.lowlevel.current_trio_token()

        def held(epochs, entries):
            self.threads.append(threading.get_ident())
            token.run_sync_soon(self.begun.set)
            assert within(self.released.wait, 20)
            write(epochs, entries)

        monkeypatch.setattr(LeaderEpochs, "write_file", held)


@pytest.fixture
async def partition(replicas):
    [made] = await add_topic(replicas, configs={"internal.segment.bytes": "2000"})
    for _ in range(10):
        await append_to_leader(replicas, made, batch(b"v" * 500))
    return made


@pytest.fixture
async def held(partition, monkeypatch):
    """From here on: the first entry of the leader epoch is written."""
    held = HeldWrites(monkeypatch)
    yield held
    held.released.set()


async def test_retention_waits_for_no_disk_on_the_event_loop(replicas, partition, held):
    held.released.set()
    replicas.clock.advance(WEEK_SECONDS)
    await replicas.log_maintenance.apply_retention()
    assert partition.log_start_offset == 10
    assert held.threads
    assert threading.get_ident() not in held.threads


async def test_appends_that_come_during_a_deletion_of_records_follow_it_in_their_order(replicas, partition, held):
    offsets = []

    async def append(value: bytes) -> None:
        offsets.append((await append_to_leader(replicas, partition, batch(value))).first_offset)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(replicas.record_deletion.delete, {partition: 4})
        await held.begun.wait()
        assert partition.log_start_offset == 4, "readers see it at once"
        for value in (b"a", b"b"):
            nursery.start_soon(append, value)
            await trio.testing.wait_all_tasks_blocked()
        assert not offsets
        held.released.set()
    assert offsets == [10, 11]
    assert not partition.writer.is_busy


async def test_a_deletion_of_records_that_has_begun_ends_though_its_client_goes(replicas, partition, held):
    fetch = DelayedFetch(1)
    partition.delayed.add_fetch(fetch)
    with trio.CancelScope() as client:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(replicas.record_deletion.delete, {partition: 4})
            await held.begun.wait()
            client.cancel()
            held.released.set()
    assert partition.log_start_offset == 4
    assert await fetch.wait(0)
    assert partition.log.epochs.is_written
    assert LeaderEpochs.load(partition.log.disk, partition.log.directory).entries == partition.log.epochs.entries


async def test_the_broker_s_own_records_need_not_wait_for_the_file_of_leader_epochs(replicas, partition, held):
    """A coordinator appends without a checkpoint; its epoch has its entry, and only the beginning of the file moves."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(replicas.record_deletion.delete, {partition: 4})
        await held.begun.wait()
        replicas.appends.append_internal(partition, batch(b"offsets"), leader_epoch=0)
        assert partition.log_end_offset == 11
        held.released.set()
    assert len(held.threads) == 1
    assert partition.append_times.appended_at(10) == NOW_MS
