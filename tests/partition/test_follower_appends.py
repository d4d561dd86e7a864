"""A follower appends what its leader has and cuts what it has not, beside syncs and readers, for one leader epoch."""

from __future__ import annotations

import errno
import threading

import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import read_batches
from tests.leader_append import append_to_leader
from tests.partition.real_logs import add_topic, batch, followed, led, make_replicas
from tests.storage.log_content import found_batches, found_values
from tests.waits import within
from trio_broker.partition.delayed_operations import DelayedFetch
from trio_broker.partition.follower_appends import FollowerAppends, Truncation
from trio_broker.partition.partition import Partition
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.storage import checkpoints
from trio_broker.storage.leader_epochs import EpochEntry, LeaderEpochs
from trio_broker.storage.log import Log

EPOCH = 5


def replicated(offset: int, *values: bytes, epoch: int = EPOCH, **options) -> memoryview:
    """A batch as a leader sends it."""
    data = batch(*values, **options)
    [made] = read_batches(data)
    made.stamp(base_offset=offset, partition_leader_epoch=epoch)
    return data


def appends_of(replicas: ReplicaManager) -> FollowerAppends:
    return FollowerAppends(replicas.clock, replicas.failures, replicas.flusher, replicas.log_maintenance)


def points_on_disk(partition: Partition) -> int:
    path = partition.log.directory.parent / "recovery-point-offset-checkpoint"
    return checkpoints.read_offsets(partition.log.disk, path)[partition.topic_partition]


@pytest.fixture(params=["page-cache", "fsync"])
async def replicas(tmp_path, request, nursery):
    made = make_replicas(tmp_path / "data", log_durability=request.param)
    await nursery.start(made.run)
    yield made
    nursery.cancel_scope.cancel()
    made.log_manager.close(clean=False)


@pytest.fixture
async def partition(replicas):
    """It has led in epoch 0, has records 0 to 5 of it, and follows in epoch 5."""
    [made] = await add_topic(replicas, configs={"internal.segment.bytes": "2000"})
    for number in range(6):
        await append_to_leader(replicas, made, batch(b"%d" % number + b"v" * 500))
    made.writer.flush_soon()
    await replicas.flusher.wait_idle(made.writer)
    made.writer.make_follower(followed(EPOCH))
    return made


async def test_what_is_followed_counts_as_appended_neither_then_nor_once_it_is_led(replicas, partition):
    before = partition.appended_records, partition.appended_bytes
    await appends_of(replicas).append(partition, replicated(6, b"a", b"b"), leader_epoch=EPOCH)
    await partition.writer.make_leader(led(EPOCH + 1), 0.0)
    assert (partition.appended_records, partition.appended_bytes) == before == (6, before[1])


async def test_what_a_leader_sends_is_appended_as_it_is_with_its_epochs_on_disk_before(
    replicas, partition, monkeypatch
):
    entries_at_append = []
    append = Log.append_as_follower

    def note(log, *arguments):
        entries_at_append.append(LeaderEpochs.load(log.disk, log.directory).entries)
        return append(log, *arguments)

    monkeypatch.setattr(Log, "append_as_follower", note)
    sent = bytes(replicated(6, b"a", b"b", epoch=3)) + bytes(replicated(8, b"c"))
    info = await appends_of(replicas).append(partition, memoryview(sent), leader_epoch=EPOCH)
    assert (info.first_offset, info.last_offset, partition.log_end_offset) == (6, 8, 9)
    assert found_values(partition.log)[6:] == [b"a", b"b", b"c"]
    assert [each.header.partition_leader_epoch for each in found_batches(partition.log)[6:]] == [3, 5]
    assert entries_at_append == [(EpochEntry(0, 0), EpochEntry(3, 6), EpochEntry(5, 8))]


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (replicated(6, b"a", epoch=EPOCH + 1), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (replicated(5, b"a"), ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:-1], ErrorCode.CORRUPT_MESSAGE),
    ],
)
async def test_what_cannot_be_of_that_leader_is_refused(replicas, partition, records, code):
    with pytest.raises(KafkaError) as refused:
        await appends_of(replicas).append(partition, records, leader_epoch=EPOCH)
    assert refused.value.code is code or code is ErrorCode.CORRUPT_MESSAGE
    assert partition.log_end_offset == 6
    assert partition.log.latest_epoch == 0


@pytest.mark.parametrize("lead", [False, True])
async def test_nothing_is_done_for_a_leader_that_leads_no_more(replicas, partition, lead):
    if lead:
        await partition.writer.make_leader(led(EPOCH + 1), 0.0)
    else:
        partition.writer.make_follower(followed(EPOCH + 1))
    follower = appends_of(replicas)
    with pytest.raises(KafkaError) as refused:
        await follower.append(partition, replicated(6, b"a"), leader_epoch=EPOCH)
    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH
    refusals = await follower.truncate({partition: Truncation(2, EPOCH)})
    assert refusals[partition].code is ErrorCode.FENCED_LEADER_EPOCH
    assert partition.log_end_offset == 6


async def test_a_cut_takes_records_epochs_and_files_and_lasts(replicas, partition):
    follower = appends_of(replicas)
    await follower.append(partition, replicated(6, b"a" * 3000, epoch=3), leader_epoch=EPOCH)
    fetch = DelayedFetch(1)
    partition.delayed.add_fetch(fetch)
    assert await follower.truncate({partition: Truncation(4, EPOCH)}) == {}
    state = partition.state
    assert (partition.log_end_offset, state.log_end_offset, partition.high_watermark) == (4, 4, 4)
    assert partition.log.recovery_point == state.durable_offset <= 4
    assert partition.log.latest_epoch == 0
    assert LeaderEpochs.load(partition.log.disk, partition.log.directory).entries == (EpochEntry(0, 0),)
    assert fetch.is_woken
    await follower.append(partition, replicated(4, b"new"), leader_epoch=EPOCH)
    await replicas.flusher.wait_idle(partition.writer)
    assert [value[:1] for value in found_values(partition.log)] == [b"0", b"1", b"2", b"3", b"n"]
    assert partition.failure is None


async def test_a_producer_goes_on_with_what_it_has_before_the_cut(replicas, partition):
    follower = appends_of(replicas)
    for sequence in range(3):
        records = replicated(6 + sequence, b"a", producer_id=7, producer_epoch=0, base_sequence=sequence)
        await follower.append(partition, records, leader_epoch=EPOCH)
    await follower.truncate({partition: Truncation(7, EPOCH)})
    assert partition.producers.producers[7].batches[-1].last_sequence == 0


async def test_the_recovery_point_on_the_disk_is_lowered_before_the_cut(replicas, partition, monkeypatch):
    await replicas.log_maintenance.write_checkpoints()
    assert points_on_disk(partition) == 6
    seen, cut = [], Log.cut

    def cut_and_compare(log, plan):
        seen.append(points_on_disk(partition))
        return cut(log, plan)

    monkeypatch.setattr(Log, "cut", cut_and_compare)
    assert await appends_of(replicas).truncate({partition: Truncation(4, EPOCH)}) == {}
    assert seen == [4]


async def test_a_log_is_not_cut_if_its_recovery_point_cannot_be_lowered(replicas, partition, monkeypatch):
    def full(*arguments, **keywords):
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "write_offsets", full)
        refusals = await appends_of(replicas).truncate({partition: Truncation(4, EPOCH)})
    assert refusals[partition].code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (partition.log_end_offset, partition.log.recovery_point, partition.failure) == (6, 6, None)
    assert await appends_of(replicas).truncate({partition: Truncation(4, EPOCH)}) == {}


async def test_a_sync_under_way_ends_before_the_cut_and_those_behind_it_count(replicas, partition, monkeypatch):
    """One that ends after the cut would count as durable what comes in the place of what was cut."""
    begun, released, sync_files = trio.Event(), threading.Event(), Log.sync_files
    token = trio.lowlevel.current_trio_token()

    def held(log):
        token.run_sync_soon(begun.set)
        assert within(released.wait, 20)
        return sync_files(log)

    follower = appends_of(replicas)
    monkeypatch.setattr(Log, "sync_files", held)
    await follower.append(partition, replicated(6, b"cut"), leader_epoch=EPOCH)
    partition.writer.flush_soon()
    await begun.wait()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.truncate, {partition: Truncation(3, EPOCH)})
        await trio.testing.wait_all_tasks_blocked()
        assert partition.log_end_offset == 7
        released.set()
    assert partition.log_end_offset == 3
    await follower.append(partition, replicated(3, b"new"), leader_epoch=EPOCH)
    partition.writer.flush_soon()
    await replicas.flusher.wait_idle(partition.writer)
    assert (partition.failure, partition.state.durable_offset, partition.log.recovery_point) == (None, 4, 4)


async def test_an_election_in_the_middle_prevents_the_cut(replicas, partition, monkeypatch):
    begun, released, plan = trio.Event(), threading.Event(), Log.plan_truncation
    token = trio.lowlevel.current_trio_token()

    def held(log, *arguments, **options):
        token.run_sync_soon(begun.set)
        assert within(released.wait, 20)
        return plan(log, *arguments, **options)

    monkeypatch.setattr(Log, "plan_truncation", held)
    refusals = {}

    async def truncate() -> None:
        refusals.update(await appends_of(replicas).truncate({partition: Truncation(3, EPOCH)}))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(truncate)
        await begun.wait()
        partition.writer.make_follower(followed(EPOCH + 1))
        released.set()
    assert refusals[partition].code is ErrorCode.FENCED_LEADER_EPOCH
    assert len(found_values(partition.log)) == partition.log_end_offset == 6


async def test_a_look_of_another_thread_that_a_cut_comes_across_is_repeated(replicas, partition):
    begun, released = trio.Event(), threading.Event()
    token = trio.lowlevel.current_trio_token()
    ends = []

    def look(reader):
        ends.append(reader.log_end_offset)
        if len(ends) == 1:
            token.run_sync_soon(begun.set)
            assert within(released.wait, 20)
        return reader.read(0, 1 << 20, end_offset=reader.log_end_offset).next_offset

    async with trio.open_nursery() as nursery:
        nursery.start_soon(replicas.run_in_thread, partition, look)
        await begun.wait()
        await appends_of(replicas).truncate({partition: Truncation(2, EPOCH)})
        released.set()
    assert ends == [6, 2]


async def test_a_log_begins_anew_at_another_offset(replicas, partition):
    follower = appends_of(replicas)
    assert await follower.truncate({partition: Truncation(100, EPOCH, begins_anew=True)}) == {}
    state = partition.state
    assert (state.log_start_offset, state.high_watermark, state.log_end_offset, state.durable_offset) == (100,) * 4
    assert partition.log.latest_epoch is None
    assert [each.name for each in partition.log.directory.glob("*.log")] == [f"{100:020}.log"]
    await follower.append(partition, replicated(100, b"a"), leader_epoch=EPOCH)
    await replicas.flusher.wait_idle(partition.writer)
    assert found_values(partition.log) == [b"a"]


async def test_a_log_begins_anew_where_one_of_its_segments_begins(replicas, partition):
    follower = appends_of(replicas)
    base = partition.log.segments[1].base_offset
    assert await follower.truncate({partition: Truncation(base, EPOCH, begins_anew=True)}) == {}
    await follower.append(partition, replicated(base, b"a"), leader_epoch=EPOCH)
    assert found_values(partition.log) == [b"a"]


async def test_a_first_batch_in_which_the_leader_s_log_starts_is_taken_whole(replicas, partition):
    follower = appends_of(replicas)
    await follower.truncate({partition: Truncation(102, EPOCH, begins_anew=True)})
    await follower.append(partition, replicated(100, b"a", b"b", b"c", b"d"), leader_epoch=EPOCH)
    assert (partition.log_start_offset, partition.log_end_offset) == (100, 104)


async def test_an_epoch_in_which_it_has_led_and_appended_nothing_is_forgotten(replicas, partition):
    """Its next leader does not know that epoch, and would ask for the same truncation for ever."""
    await partition.writer.make_leader(led(EPOCH + 1), 0.0)
    await partition.writer.ready_to_append()
    partition.writer.make_follower(followed(EPOCH + 2))
    assert partition.log.latest_epoch == EPOCH + 1
    assert await appends_of(replicas).truncate({partition: Truncation(6, EPOCH + 2)}) == {}
    assert partition.log.latest_epoch == 0
    assert LeaderEpochs.load(partition.log.disk, partition.log.directory).latest_epoch == 0


async def test_a_cut_that_is_not_known_to_be_durable_takes_the_partition_offline(replicas, partition, monkeypatch):
    def fail(*arguments, **options):
        raise OSError(errno.EIO, "the disk is gone")

    monkeypatch.setattr(Log, "sync_cut", fail)
    refusals = await appends_of(replicas).truncate({partition: Truncation(3, EPOCH)})
    assert refusals[partition].code is ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.failure is not None
