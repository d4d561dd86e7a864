"""The replica manager over real logs: finding, appending, waiting, and disks that fail."""

from __future__ import annotations

import errno
import gc
import threading
import weakref
from collections import Counter
from pathlib import Path, PurePath

import attrs
import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.headers import RequestHeader
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.leader_append import append_to_leader
from tests.partition.real_logs import NOW_MS, TOPIC_ID, add_topic, batch, delete_topics, lead_topic, led, make_replicas
from tests.running_broker import until
from tests.waits import within
from trio_broker.common.request_phase import RequestPhase, ignore_release
from trio_broker.concurrency.steps import run_steps
from trio_broker.config.resource_config import topic_config
from trio_broker.handlers.produce import ProduceOperation
from trio_broker.network.client_activity import ProducerActivity
from trio_broker.partition.leader_appends import RequiredOffset
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.disk_trace import OperationKind
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.storage import checkpoints, validation
from trio_broker.storage.errors import StorageFailed
from trio_broker.storage.log import Log

OTHER_ID = bytes(range(16, 32))


class Parking:
    """Counts how often a handler gave its slot back, and notes for what."""

    def __init__(self) -> None:
        self.calls = 0
        self.phase: RequestPhase | None = None

    def __call__(self, phase: RequestPhase) -> None:
        self.calls += 1
        self.phase = phase


@pytest.fixture
def release_handler():
    return Parking()


@pytest.fixture
async def cached(tmp_path, nursery):
    replicas = make_replicas(tmp_path / "data", log_durability="page-cache")
    await nursery.start(replicas.run)
    yield replicas
    replicas.log_manager.close(clean=False)


@pytest.fixture
async def synced(tmp_path, nursery):
    replicas = make_replicas(tmp_path / "data")
    await nursery.start(replicas.run)
    yield replicas
    replicas.log_manager.close(clean=False)


async def produce(replicas, partition, *values):
    return await append_to_leader(replicas, partition, batch(*values))


def refusal_of(raised) -> ErrorCode:
    code: ErrorCode = raised.value.code
    return code


async def test_topics_are_found_by_name_and_by_id(cached):
    [partition] = await add_topic(cached)
    assert cached.topic("orders").partition(0) is partition
    assert cached.topic_by_id(TOPIC_ID).partition(0) is partition


async def test_an_unknown_id_and_an_unknown_name_have_codes_of_their_own(cached):
    await add_topic(cached)
    with pytest.raises(KafkaError) as unknown_name:
        cached.topic("nothing")
    assert refusal_of(unknown_name) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with pytest.raises(KafkaError) as unknown_id:
        cached.topic_by_id(OTHER_ID)
    assert refusal_of(unknown_id) == ErrorCode.UNKNOWN_TOPIC_ID
    with pytest.raises(KafkaError) as unknown_partition:
        cached.topic("orders").partition(1)
    assert refusal_of(unknown_partition) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_the_first_append_of_an_epoch_has_its_entry_on_disk_before(cached):
    [partition] = await add_topic(cached, leader_epoch=4)
    assert partition.writer.needs_epoch_entry
    info = await produce(cached, partition, b"a")
    assert info.first_offset == 0
    assert "4 0" in Path(partition.log.directory / "leader-epoch-checkpoint").read_text()
    await add_topic(cached, leader_epoch=7)
    await produce(cached, partition, b"b")
    assert "7 1" in Path(partition.log.directory / "leader-epoch-checkpoint").read_text()


async def test_appends_that_come_together_in_a_new_epoch_all_wait_for_its_entry(cached):
    [partition] = await add_topic(cached)
    offsets = []

    async def append() -> None:
        offsets.append((await produce(cached, partition, b"a")).first_offset)

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(append)
    assert sorted(offsets) == [0, 1, 2, 3, 4]


class SlowLook:
    """In place of ``validation.prepare``: waits in its thread until it may go on, and notes what came through."""

    def __init__(self, monkeypatch):
        self.may_go_on = threading.Event()
        self.entered = trio.Event()
        self.threads = []
        self._prepare = validation.prepare
        self._token = trio.lowlevel.current_trio_token()
        monkeypatch.setattr(validation, "prepare", self)

    def __call__(self, batch, config, now_ms, topic_partition):
        self.threads.append(threading.current_thread())
        if threading.current_thread() is not threading.main_thread():
            self._token.run_sync_soon(self.entered.set)
            assert within(self.may_go_on.wait, 30)
        return self._prepare(batch, config, now_ms, topic_partition)


COMPACTED = {"cleanup.policy": "compact"}


def keyed(count, **options):
    records = [NewRecord(timestamp=NOW_MS, key=b"k", value=b"v") for _ in range(count)]
    return memoryview(bytearray(build_batch(records, **options)))


async def test_many_records_are_looked_at_in_a_thread_and_a_few_at_once(cached, monkeypatch):
    [partition] = await add_topic(cached, configs=COMPACTED)
    look = SlowLook(monkeypatch)
    await append_to_leader(cached, partition, keyed(16))
    assert look.threads == [threading.main_thread()]
    look.may_go_on.set()
    await append_to_leader(cached, partition, keyed(17))
    assert look.threads[1:] != [threading.main_thread()]
    assert partition.log_end_offset == 33


async def test_batches_keep_their_order_though_the_first_takes_long(cached, monkeypatch):
    """An idempotent producer's would be refused out of order."""
    [slow, other] = await add_topic(cached, partitions=2, configs=COMPACTED)
    for partition in (slow, other):
        await append_to_leader(cached, partition, keyed(1))
    look = SlowLook(monkeypatch)
    ids = {"producer_id": 7, "producer_epoch": 0}
    appended = []

    async def append(name, partition, records):
        await append_to_leader(cached, partition, records)
        appended.append(name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(append, "large", slow, keyed(100, base_sequence=0, **ids))
        await look.entered.wait()
        nursery.start_soon(append, "small", slow, keyed(1, base_sequence=100, **ids))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(append, "smaller", slow, keyed(1, base_sequence=101, **ids))
        await append("other partition", other, keyed(1))
        await trio.testing.wait_all_tasks_blocked()
        assert appended == ["other partition"]
        look.may_go_on.set()
    assert appended == ["other partition", "large", "small", "smaller"]
    assert slow.log_end_offset == 103


async def test_a_topic_deleted_while_its_batch_is_looked_at_takes_no_batch(cached, monkeypatch):
    [partition] = await add_topic(cached, configs=COMPACTED)
    look = SlowLook(monkeypatch)
    refused = []

    async def append():
        with pytest.raises(KafkaError) as error:
            await append_to_leader(cached, partition, keyed(100))
        refused.append(refusal_of(error))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(append)
        await look.entered.wait()
        nursery.start_soon(delete_topics, cached, "orders")
        await trio.testing.wait_all_tasks_blocked()
        assert partition.failure is not None
        look.may_go_on.set()
    assert refused == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_batch_that_was_refused_in_a_thread_is_freed_at_once(cached, monkeypatch):
    """Not by the next garbage collection, which for an idle broker never comes."""

    class Memory(bytearray):
        """Bytes that a weak reference can be made to."""

    [partition] = await add_topic(cached, configs=COMPACTED)
    data = Memory(build_batch([NewRecord(timestamp=NOW_MS, key=None, value=b"v")] * 100))
    freed = weakref.ref(data)
    gc.collect()
    gc.disable()
    try:
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[])
        header = RequestHeader(api_key=0, api_version=9, correlation_id=1, client_id="c")
        operation = ProduceOperation(request, header, cached, ProducerActivity(), leaders=None)  # type: ignore[arg-type]  # led here
        sent = PartitionProduceData(index=0, records=memoryview(data))
        response = await run_steps(operation.append(cached.topic("orders"), sent, ignore_release))
        assert response.error_code == ErrorCode.INVALID_RECORD
        del data, sent
        assert freed() is None
    finally:
        gc.enable()
    assert partition.log_end_offset == 0


async def test_a_refusal_in_the_thread_is_the_producers_and_lets_the_next_one_through(cached):
    [partition] = await add_topic(cached, configs=COMPACTED)
    with pytest.raises(KafkaError) as refused:
        await produce(cached, partition, *[b"v"] * 100)
    assert refusal_of(refused) == ErrorCode.INVALID_RECORD
    assert (await append_to_leader(cached, partition, keyed(100))).first_offset == 0


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({"compression.type": "gzip", "compression.gzip.level": "3"}, 3),
        ({"compression.type": "gzip"}, -1),
        ({"compression.type": "lz4", "compression.lz4.level": "12"}, 12),
        ({"compression.type": "lz4"}, None),
        ({"compression.type": "zstd", "compression.zstd.level": "7"}, 7),
        ({"compression.type": "snappy", "compression.zstd.level": "7"}, None),
        ({"compression.zstd.level": "7"}, None),
    ],
)
async def test_the_level_that_goes_with_the_codec_reaches_the_log(cached, settings, level):
    [partition] = await add_topic(cached, configs=settings)
    assert partition.log.config.compression_level == level


async def test_acks_all_waits_for_the_disk_in_fsync_mode(synced, release_handler):
    [partition] = await add_topic(synced)
    info = await produce(synced, partition, b"a")
    assert partition.high_watermark == 0
    codes = await synced.appends.wait_until_replicated(
        [RequiredOffset(partition, 1)], timeout_seconds=30, release_handler=release_handler
    )
    assert codes == [ErrorCode.NONE]
    assert (info.last_offset, partition.high_watermark, release_handler.calls) == (0, 1, 1)
    assert release_handler.phase is RequestPhase.DISK


async def test_a_wait_for_other_replicas_is_no_wait_for_the_disk(cached, release_handler, autojump_clock):
    [partition] = await add_topic(cached)
    partition.writer.lead_at_once(led(1, 2), 0.0)
    await produce(cached, partition, b"a")
    codes = await cached.appends.wait_until_replicated(
        [RequiredOffset(partition, 1)], timeout_seconds=30, release_handler=release_handler
    )
    assert codes == [ErrorCode.REQUEST_TIMED_OUT]
    assert release_handler.phase is RequestPhase.PURGATORY


async def test_acks_all_does_not_wait_for_what_is_already_there(cached, release_handler):
    [partition] = await add_topic(cached)
    await produce(cached, partition, b"a")
    assert await cached.appends.wait_until_replicated(
        [RequiredOffset(partition, 1)], timeout_seconds=30, release_handler=release_handler
    ) == [ErrorCode.NONE]
    assert release_handler.calls == 0


async def test_acks_all_over_several_partitions_waits_for_the_last(synced, release_handler):
    partitions = await add_topic(synced, partitions=3)
    awaited = []
    for partition in partitions:
        info = await produce(synced, partition, b"a")
        awaited.append(RequiredOffset(partition, info.last_offset + 1))
    codes = await synced.appends.wait_until_replicated(awaited, timeout_seconds=30, release_handler=release_handler)
    assert codes == [ErrorCode.NONE] * 3
    assert [partition.high_watermark for partition in partitions] == [1, 1, 1]


async def test_acks_all_that_is_not_safe_in_time_is_timed_out_and_forgotten(tmp_path, release_handler, autojump_clock):
    replicas = make_replicas(tmp_path / "data")  # its flusher does not run
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")
    codes = await replicas.appends.wait_until_replicated(
        [RequiredOffset(partition, 1)], timeout_seconds=1.5, release_handler=release_handler
    )
    assert codes == [ErrorCode.REQUEST_TIMED_OUT]
    assert not partition.delayed.produces
    replicas.log_manager.close(clean=False)


def fail_with(error):
    def fail(*arguments, **keywords):
        raise error

    return fail


async def test_a_failed_sync_takes_the_whole_directory_offline_and_answers_storage_error(
    synced, release_handler, monkeypatch
):
    first, second = await add_topic(synced, partitions=2)
    await produce(synced, first, b"a")
    await synced.appends.wait_until_replicated(
        [RequiredOffset(first, 1)], timeout_seconds=30, release_handler=release_handler
    )
    monkeypatch.setattr(Log, "sync_files", fail_with(StorageFailed(errno.EIO, "the disk is gone")))
    await produce(synced, first, b"b")
    codes = await synced.appends.wait_until_replicated(
        [RequiredOffset(first, 2)], timeout_seconds=30, release_handler=release_handler
    )
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert first.high_watermark == 1
    for partition in (first, second):
        with pytest.raises(KafkaError) as refused:
            partition.require_leader()
        assert refusal_of(refused) == ErrorCode.KAFKA_STORAGE_ERROR
    assert synced.statistics().offline_partitions == 2


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "removed by hand"),
        OSError(errno.ENOSPC, "no space left on device"),
        PermissionError(errno.EACCES, "not yours"),
        StorageFailed(errno.ENOENT, "removed by hand"),
        AssertionError("a mistake of ours"),
    ],
    ids=["ENOENT", "ENOSPC", "EACCES", "final", "no error of the disk"],
)
async def test_a_failed_sync_that_says_nothing_of_the_disk_costs_one_partition(
    synced, release_handler, monkeypatch, error
):
    first, second = await add_topic(synced, partitions=2)
    with monkeypatch.context() as broken:
        broken.setattr(Log, "sync_files", fail_with(error))
        await produce(synced, first, b"a")
        codes = await synced.appends.wait_until_replicated(
            [RequiredOffset(first, 1)], timeout_seconds=30, release_handler=release_handler
        )
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR]
    await produce(synced, second, b"b")
    codes = await synced.appends.wait_until_replicated(
        [RequiredOffset(second, 1)], timeout_seconds=30, release_handler=release_handler
    )
    assert codes == [ErrorCode.NONE]
    assert synced.statistics().offline_partitions == 1
    assert not synced.log_manager.close(), "the next start must look at what is there of the first"


async def test_a_sync_without_a_descriptor_is_tried_again_and_no_dead_disk(synced, release_handler, monkeypatch):
    [partition] = await add_topic(synced)
    with monkeypatch.context() as exhausted:
        exhausted.setattr(Log, "sync_files", fail_with(OSError(errno.EMFILE, "Too many open files")))
        await produce(synced, partition, b"a")
        await until(lambda: synced.statistics().flusher.failures)
        await synced.flusher.retry_postponed()
        await until(lambda: synced.statistics().flusher.failures == 2)
    await synced.flusher.retry_postponed()
    codes = await synced.appends.wait_until_replicated(
        [RequiredOffset(partition, 1)], timeout_seconds=30, release_handler=release_handler
    )
    assert codes == [ErrorCode.NONE]
    assert partition.failure is None


async def test_a_full_disk_refuses_and_recovers(cached, monkeypatch):
    [partition] = await add_topic(cached)
    with monkeypatch.context() as full:
        full.setattr(Log, "append_prepared", fail_with(OSError(errno.ENOSPC, "no space left on device")))
        with pytest.raises(KafkaError) as refused:
            await produce(cached, partition, b"a")
        assert refusal_of(refused) == ErrorCode.KAFKA_STORAGE_ERROR
    assert partition.failure is None
    assert (await produce(cached, partition, b"b")).first_offset == 0


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EACCES, errno.ENOENT, errno.EISDIR])
async def test_an_error_that_says_nothing_of_the_disk_costs_one_request(cached, monkeypatch, number):
    first, second = await add_topic(cached, partitions=2)
    with monkeypatch.context() as broken:
        broken.setattr(Log, "append_prepared", fail_with(OSError(number, "not that way")))
        with pytest.raises(KafkaError) as refused:
            await produce(cached, first, b"a")
    assert refusal_of(refused) == ErrorCode.KAFKA_STORAGE_ERROR
    assert (first.failure, second.failure) == (None, None)
    assert (await produce(cached, first, b"b")).first_offset == 0


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS, errno.ENXIO])
async def test_an_error_of_the_disk_costs_the_directory(cached, monkeypatch, number):
    first, second = await add_topic(cached, partitions=2)
    monkeypatch.setattr(Log, "append_prepared", fail_with(OSError(number, "gone")))
    with pytest.raises(KafkaError):
        await produce(cached, first, b"a")
    assert first.failure is not None
    assert second.failure is not None


async def test_a_full_disk_is_logged_now_and_then_whatever_comes(cached, monkeypatch, caplog):
    [partition] = await add_topic(cached)
    monkeypatch.setattr(Log, "append_prepared", fail_with(OSError(errno.ENOSPC, "no space left on device")))
    for _ in range(100):
        with pytest.raises(KafkaError):
            await produce(cached, partition, b"a")
    assert caplog.text.count("no space left") == 1
    cached.clock.advance(11)
    with pytest.raises(KafkaError):
        await produce(cached, partition, b"a")
    assert caplog.text.count("no space left") == 2


async def test_an_error_on_a_deleted_topic_harms_no_other(cached):
    deleted, other = (await add_topic(cached))[0], (await add_topic(cached, "other", topic_id=OTHER_ID))[0]
    await delete_topics(cached, "orders")
    reported = cached.failures.storage_failed(deleted, OSError(errno.EIO, "its files are gone"))
    assert reported.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert other.failure is None


async def test_a_lookup_that_lost_its_segment_to_retention_looks_again(cached):
    [partition] = await add_topic(cached)
    await produce(cached, partition, b"a", b"b")
    looks = []

    def retire():
        partition.log.roll(NOW_MS)
        partition.log.advance_log_start(2)
        assert partition.log.delete_expired_segments(NOW_MS, high_watermark=2)

    def look(reader):
        looks.append(reader.log_start_offset)
        if len(looks) == 1:
            trio.from_thread.run_sync(retire)
            raise FileNotFoundError(errno.ENOENT, "retired")
        return "found"

    assert await cached.run_in_thread(partition, look) == "found"
    assert looks == [0, 2]
    assert partition.failure is None


async def test_a_log_that_cannot_be_opened_is_the_trouble_of_its_partition_alone(cached, monkeypatch):
    open_one = cached.log_manager.find_or_open

    def find_or_open(partition, topic_id, config, beside):
        if partition.partition == 1:
            raise OSError(errno.EACCES, "not yours")
        return open_one(partition, topic_id, config, beside)

    monkeypatch.setattr(cached.log_manager, "find_or_open", find_or_open)
    config = topic_config({}, cached.config)
    await lead_topic(cached, "orders", {0: 0, 1: 0, 2: 0}, config)
    local = cached.topic("orders")
    assert sorted(local.partitions) == [0, 2]
    with pytest.raises(KafkaError) as refused:
        local.partition(1)
    assert refusal_of(refused) == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_partition_that_failed_to_load_answers_storage_error_and_leaves_with_its_topic(tmp_path):
    replicas = make_replicas(tmp_path / "data")
    first, _ = await add_topic(replicas, partitions=2)
    await produce(replicas, first, b"a")
    replicas.log_manager.close(clean=False)
    Path(first.log.directory / "partition.metadata").write_bytes(b"nonsense")
    restarted = make_replicas(tmp_path / "data")
    await lead_topic(restarted, "orders", {0: 1, 1: 1}, topic_config({}, restarted.config))
    local = restarted.topic("orders")
    assert sorted(local.partitions) == [1]
    with pytest.raises(KafkaError) as refused:
        local.partition(0)
    assert refusal_of(refused) == ErrorCode.KAFKA_STORAGE_ERROR
    await delete_topics(restarted, "orders")
    [again] = await add_topic(restarted, topic_id=OTHER_ID)
    assert again.log_end_offset == 0
    restarted.log_manager.close(clean=False)


async def test_a_log_start_that_could_not_be_written_down_is_no_success(cached, monkeypatch):
    [partition] = await add_topic(cached)
    await produce(cached, partition, b"a", b"b")
    monkeypatch.setattr(checkpoints, "write_offsets", fail_with(OSError(errno.ENOSPC, "full")))
    [outcome] = (await cached.record_deletion.delete({partition: 1})).values()
    assert isinstance(outcome, KafkaError)
    assert outcome.code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_applying_a_topic_again_changes_nothing_and_more_partitions_are_added(cached):
    [first] = await add_topic(cached)
    await produce(cached, first, b"a")
    again, second = await add_topic(cached, partitions=2)
    assert again is first
    assert again.log_end_offset == 1
    assert second.log_end_offset == 0


async def test_new_settings_reach_the_log_and_the_min_in_sync_replicas(cached):
    [partition] = await add_topic(cached)
    partition.writer.lead_at_once(led(1, 2), 0.0)
    cached.local_partitions.update_config(
        "orders", topic_config({"retention.ms": "1234", "min.insync.replicas": "2"}, cached.config)
    )
    assert partition.log.config.retention_ms == 1234
    assert partition.state.min_in_sync_replicas == 2
    cached.local_partitions.update_config("nothing", topic_config({}, cached.config))


async def test_deleting_a_topic_tells_who_waits_and_removes_the_files_later(synced, release_handler):
    [partition] = await add_topic(synced)
    directory = partition.log.directory
    await produce(synced, partition, b"a")
    await delete_topics(synced, "orders")
    assert await synced.appends.wait_until_replicated(
        [RequiredOffset(partition, 9)], timeout_seconds=9, release_handler=release_handler
    ) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not Path(directory).exists()
    assert list(Path(directory.parent).glob("*-delete"))
    synced.clock.advance(61)
    await synced.log_maintenance.remove_expired_files()
    assert not list(Path(directory.parent).glob("*-delete"))
    with pytest.raises(KafkaError):
        synced.topic_by_id(TOPIC_ID)


async def test_deleting_many_partitions_syncs_the_directory_as_often_as_deleting_one():
    """Not once for each, after a checkpoint of all the others: that took a thousand partitions minutes."""

    async def syncs(partitions: int) -> int:
        disk = SimulatedDisk(ManualClock(NOW_MS))
        runtime = attrs.evolve(real_runtime(ManualClock(NOW_MS)), disk=disk)
        replicas = make_replicas(PurePath("/data"), runtime=runtime)
        await add_topic(replicas, partitions=partitions)
        await add_topic(replicas, "other", topic_id=OTHER_ID, partitions=partitions)
        kinds: Counter[OperationKind] = Counter()
        disk.trace.before = lambda operation: kinds.update([operation.kind])
        await delete_topics(replicas, "orders", "other")
        assert kinds[OperationKind.RENAME] >= 2 * partitions
        return kinds[OperationKind.SYNC_DIRECTORY] + kinds[OperationKind.SYNC]

    assert await syncs(20) == await syncs(1)


async def test_a_directory_that_cannot_be_renamed_is_named_and_keeps_no_other_from_being_deleted(cached, caplog):
    partitions = await add_topic(cached, partitions=3)
    directory, rename = partitions[1].log.directory, cached.log_manager.disk.rename

    def rename_others(old, new):
        if old == directory:
            raise OSError(errno.EACCES, "not yours")
        rename(old, new)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(cached.log_manager.disk), "rename", lambda disk, old, new: rename_others(old, new))
        await delete_topics(cached, "orders")
    assert "orders-1: its files could not be removed: [Errno 13] not yours" in caplog.text
    assert [Path(each.log.directory).exists() for each in partitions] == [False, True, False]
    with pytest.raises(KafkaError):
        cached.topic("orders")


async def test_a_topic_created_again_under_its_name_begins_empty(cached):
    [old] = await add_topic(cached)
    await produce(cached, old, b"a")
    [new] = await add_topic(cached, topic_id=OTHER_ID)
    assert new is not old
    assert new.log_end_offset == 0
    assert old.failure is not None
    assert cached.topic_by_id(OTHER_ID).partition(0) is new
    with pytest.raises(KafkaError):
        cached.topic_by_id(TOPIC_ID)


async def test_a_log_of_another_topic_of_that_name_is_removed_at_the_start(tmp_path):
    replicas = make_replicas(tmp_path / "data")
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")
    replicas.log_manager.close(clean=False)
    restarted = make_replicas(tmp_path / "data")
    [new] = await add_topic(restarted, topic_id=OTHER_ID)
    assert new.log_end_offset == 0
    restarted.log_manager.close(clean=False)


async def test_after_a_crash_the_high_watermark_does_not_go_back_in_fsync_mode(tmp_path):
    """Readers may have seen all records; so they are synced before anybody asks."""
    replicas = make_replicas(tmp_path / "data")
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a", b"b")
    replicas.log_manager.close(clean=False)
    restarted = make_replicas(tmp_path / "data")
    [again] = await add_topic(restarted, leader_epoch=1)
    assert (again.high_watermark, again.state.durable_offset, again.log_end_offset) == (2, 2, 2)
    restarted.log_manager.close(clean=False)


async def test_a_clean_stop_and_start_keeps_offsets_and_high_watermarks(tmp_path):
    replicas = make_replicas(tmp_path / "data")
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a", b"b")
    assert replicas.log_manager.close()
    restarted = make_replicas(tmp_path / "data")
    [again] = await add_topic(restarted)
    assert (again.log_start_offset, again.high_watermark) == (0, 2)
    restarted.log_manager.close(clean=False)


async def test_deleted_records_stay_deleted_after_a_crash(tmp_path, nursery):
    replicas = make_replicas(tmp_path / "data", log_durability="page-cache")
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a", b"b", b"c")
    assert await replicas.record_deletion.delete({partition: 2}) == {partition: 2}
    assert await replicas.record_deletion.delete({partition: 1}) == {partition: 2}
    replicas.log_manager.close(clean=False)
    restarted = make_replicas(tmp_path / "data", log_durability="page-cache")
    [again] = await add_topic(restarted)
    assert (again.log_start_offset, again.high_watermark) == (2, 3)
    restarted.log_manager.close(clean=False)


async def test_statistics_count_what_was_appended(cached):
    [partition] = await add_topic(cached)
    info = await produce(cached, partition, b"a", b"b")
    statistics = cached.statistics()
    assert (statistics.topics, statistics.partitions, statistics.offline_partitions) == (1, 1, 0)
    assert (statistics.appended_batches, statistics.appended_records) == (1, 2)
    assert statistics.appended_bytes == info.appended_bytes


async def test_num_io_threads_bounds_the_syncs_and_is_live(synced):
    synced.resize_io_threads(1)
    partitions = await add_topic(synced, partitions=4)
    for partition in partitions:
        await produce(synced, partition, b"a")
    for partition in partitions:
        await synced.flusher.wait_idle(partition.writer)
    assert [partition.high_watermark for partition in partitions] == [1] * 4
    assert synced.clock.now_ms() == NOW_MS


async def test_the_partitions_of_a_new_topic_are_spread_over_the_data_directories(tmp_path):
    """They are opened together, in one thread, before any of them is known to the log manager."""
    replicas = make_replicas(tmp_path / "one", others=[tmp_path / "two"])
    partitions = await add_topic(replicas, partitions=4)
    assert Counter(partition.log.directory.parent.name for partition in partitions) == {"one": 2, "two": 2}
    replicas.log_manager.close(clean=False)


async def test_an_earlier_topic_of_the_name_goes_before_its_log_is_opened(tmp_path):
    """As after a crash in the middle of a deletion: the log is there, and the metadata has another topic."""
    replicas = make_replicas(tmp_path / "data", log_durability="page-cache")
    [partition] = await add_topic(replicas)
    await produce(replicas, partition, b"a")
    replicas.log_manager.close(clean=False)
    again = make_replicas(tmp_path / "data", log_durability="page-cache")
    [partition] = await add_topic(again, topic_id=bytes(reversed(range(16))))
    assert partition.log_end_offset == 0
    assert len(list((tmp_path / "data").glob("orders-0.*-delete"))) == 1
    again.log_manager.close(clean=False)
