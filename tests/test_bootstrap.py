"""The parts of a broker, from its disk up to what handlers need."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil

import attrs
import pytest
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.records.batch import read_batches
from tests.fakes.metadata_logs import take_snapshot
from tests.handlers.wire_client import ADVERTISED, broker_config
from tests.leader_append import append_to_leader
from tests.partition.real_logs import batch
from trio_broker.bootstrap import open_services, run_shielded
from trio_broker.cluster.configuration_control import ConfigAlteration, ConfigOperation, ResourceAlterations
from trio_broker.cluster.metadata_image import ConfigResource, ConfigResourceType
from trio_broker.cluster.metadata_log import MetadataLog
from trio_broker.cluster.metadata_snapshot import image_records
from trio_broker.cluster.replication_control import NewPartitions, NewTopic, TopicTarget
from trio_broker.config.entries import ConfigScope
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.real_workers import RealWorkers
from trio_broker.runtime.simulated_disk import SimulatedDisk
from trio_broker.storage import log_manager
from trio_broker.storage.errors import DataDirectoryError

CLEAN_MARKER = ".kafka_cleanshutdown"
METADATA = "__cluster_metadata-0"
BROKER = ConfigResource.of_broker(1)


def opened(directory, **settings):
    """The parts on ``directory``, to be used in ``async with``."""
    return open_services(broker_config(directory, **settings), real_runtime(ManualClock()), ADVERTISED)


async def create(services, name="orders", partitions=1, **configs):
    configs = {key.replace("_", "."): value for key, value in configs.items()}
    [outcome] = await services.controller.create_topics(
        [NewTopic(name=name, num_partitions=partitions, configs=configs)]
    )
    assert not isinstance(outcome, KafkaError), outcome
    return outcome


async def set_config(services, resource, name, value):
    alteration = ConfigAlteration(name, ConfigOperation.SET, value)
    [outcome] = (await services.controller.change_configs([ResourceAlterations(resource, (alteration,))])).results
    assert not isinstance(outcome, KafkaError), outcome


async def append(services, value=b"value", topic="orders"):
    replicas = services.replicas
    return await append_to_leader(replicas, replicas.topic(topic).partition(0), batch(value))


def epochs(services):
    return [partition.leader_epoch for partition in services.replicas.partitions()]


# --- one life after another ---


async def test_a_new_directory_is_given_a_cluster_id_that_later_starts_find(tmp_path):
    async with opened(tmp_path) as services:
        first = services.node.cluster_id
    async with opened(tmp_path) as services:
        assert services.node.cluster_id == first


async def test_topics_settings_and_records_are_there_at_the_next_start(tmp_path):
    async with opened(tmp_path) as services:
        created = await create(services, partitions=2, retention_ms="1234")
        await append(services)
    async with opened(tmp_path) as services:
        topic = services.metadata_cache.image.topics["orders"]
        partition = services.replicas.topic("orders").partition(0)
        assert (topic.topic_id, len(topic.partitions)) == (created.topic_id, 2)
        assert partition.log.config.retention_ms == 1234
        assert (partition.log_end_offset, partition.high_watermark) == (1, 1)


async def test_settings_of_client_metrics_and_keys_without_effect_are_there_at_the_next_start(tmp_path, caplog):
    metrics = ConfigResource(ConfigResourceType.CLIENT_METRICS, "slow")
    async with opened(tmp_path) as services:
        await set_config(services, metrics, "interval.ms", "1000")
        await set_config(services, BROKER, "background.threads", "12")
    caplog.set_level(logging.INFO)
    async with opened(tmp_path) as services:
        assert services.metadata_cache.image.configs(metrics) == {"interval.ms": "1000"}
        assert services.config.dynamic(ConfigScope.BROKER) == {"background.threads": "12"}
    assert "background.threads changed from None to 12, without effect here" in caplog.text


async def test_all_of_a_broker_lies_on_the_disk_of_its_runtime(tmp_path):
    """The directory of this machine stays empty, and the next start finds everything in memory."""
    clock = ManualClock()
    runtime = attrs.evolve(real_runtime(clock), disk=SimulatedDisk(clock))
    runtime.disk.make_directory(tmp_path)
    config = broker_config(tmp_path)
    async with open_services(config, runtime, ADVERTISED) as services:
        await create(services)
        await append(services)
        take_snapshot(services.metadata_log, image_records(services.metadata_cache.image))
    async with open_services(config, runtime, ADVERTISED) as services:
        assert services.replicas.topic("orders").partition(0).log_end_offset == 1
    assert list(tmp_path.iterdir()) == []


async def test_a_metadata_log_that_does_not_close_leaves_no_clean_marker(tmp_path, monkeypatch):
    def fail(self):
        raise OSError("gone")

    with monkeypatch.context() as disk:
        disk.setattr(MetadataLog, "close", fail)
        with pytest.raises(OSError, match="gone"):
            async with opened(tmp_path):
                pass
    assert not (tmp_path / CLEAN_MARKER).exists()
    async with opened(tmp_path):
        pass
    assert (tmp_path / CLEAN_MARKER).exists()


async def test_every_start_begins_a_new_leader_epoch_in_every_partition(tmp_path):
    seen = []
    async with opened(tmp_path) as services:
        await create(services, partitions=2)
        seen.append(epochs(services))
    for _ in range(2):
        async with opened(tmp_path) as services:
            seen.append(epochs(services))
    assert seen == [[0, 0], [1, 1], [2, 2]]


async def test_the_metadata_quorum_has_the_id_of_the_directory(tmp_path):
    async with opened(tmp_path):
        pass
    state = json.loads((tmp_path / "__cluster_metadata-0" / "quorum-state").read_text())
    assert f"directory.id={state['votedDirectoryId']}\n" in (tmp_path / "meta.properties").read_text()


async def test_a_long_metadata_log_is_replaced_by_a_snapshot_at_a_start(tmp_path, monkeypatch):
    monkeypatch.setattr("trio_broker.cluster.metadata_log.SNAPSHOT_AFTER_RECORDS", 20)
    async with opened(tmp_path) as services:
        created = await create(services, partitions=20, retention_ms="1234")
        first = await services.producer_ids.next()
    for leader_epoch in (1, 2, 3):
        async with opened(tmp_path) as services:
            assert services.metadata_cache.image.topics["orders"].topic_id == created.topic_id
            assert set(epochs(services)) == {leader_epoch}
            assert services.replicas.topic("orders").partition(0).log.config.retention_ms == 1234
            assert await services.producer_ids.next() > first
    directory = tmp_path / "__cluster_metadata-0"
    [snapshot] = directory.glob("*.checkpoint")
    [segment] = directory.glob("*.log")
    assert snapshot.name.startswith(f"{segment.stem}-")


async def test_producer_ids_are_never_handed_out_twice(tmp_path):
    async with opened(tmp_path) as services:
        first = {await services.producer_ids.next() for _ in range(3)}
    async with opened(tmp_path) as services:
        assert await services.producer_ids.next() not in first


async def test_a_deleted_topic_stays_deleted(tmp_path):
    async with opened(tmp_path) as services:
        await create(services)
        await services.controller.delete_topics([TopicTarget("orders")])
    async with opened(tmp_path) as services:
        assert not services.metadata_cache.image.topics
        assert not services.replicas.topics
    assert not (tmp_path / "orders-0").exists()


async def test_partitions_are_spread_over_all_data_directories(tmp_path):
    directories = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    async with opened(directories) as services:
        await create(services, partitions=4)
    for name in "ab":
        assert len(list((tmp_path / name).glob("orders-*"))) == 2
    async with opened(directories) as services:
        assert len(list(services.replicas.partitions())) == 4


# --- how it ends ---


async def test_the_marker_of_a_clean_stop_is_there_only_after_one(tmp_path):
    async with opened(tmp_path):
        assert not (tmp_path / CLEAN_MARKER).exists()
    assert (tmp_path / CLEAN_MARKER).exists()


async def test_an_error_inside_leaves_no_marker_and_no_lock(tmp_path):
    with pytest.raises(LookupError):
        async with opened(tmp_path):
            raise LookupError
    assert not (tmp_path / CLEAN_MARKER).exists()
    async with opened(tmp_path):
        pass


async def test_a_cancellation_inside_leaves_no_marker_and_no_lock(tmp_path):
    with trio.CancelScope() as scope:
        async with opened(tmp_path):
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    assert not (tmp_path / CLEAN_MARKER).exists()
    async with opened(tmp_path):
        pass


async def test_records_of_a_life_that_was_cut_short_are_there_in_the_next(tmp_path):
    with trio.CancelScope() as scope:
        async with opened(tmp_path) as services:
            await create(services)
            await append(services)
            scope.cancel()
            await trio.lowlevel.checkpoint()
    async with opened(tmp_path) as services:
        partition = services.replicas.topic("orders").partition(0)
        assert (partition.log_end_offset, partition.high_watermark) == (1, 1)


async def test_closing_work_is_done_however_often_its_task_is_cancelled():
    done = []
    with trio.CancelScope() as scope:
        scope.cancel()
        await run_shielded(RealWorkers(), lambda: done.append(True))
    assert done == [True]


# --- what cannot be opened ---


async def test_a_directory_in_use_is_refused(tmp_path):
    async with opened(tmp_path):
        with pytest.raises(DataDirectoryError, match="in use by another broker"):
            async with opened(tmp_path):
                pass


async def test_a_directory_of_another_node_is_refused(tmp_path):
    async with opened(tmp_path, node_id="1"):
        pass
    with pytest.raises(DataDirectoryError, match="belongs to node 1, this is node 2"):
        async with opened(tmp_path, node_id="2"):
            pass


async def test_a_directory_with_something_else_in_it_is_refused(tmp_path):
    (tmp_path / "holiday pictures").mkdir()
    with pytest.raises(DataDirectoryError, match="holiday pictures"):
        async with opened(tmp_path):
            pass


async def test_a_damaged_metadata_log_is_refused_and_lets_go_of_the_directory(tmp_path):
    async with opened(tmp_path) as services:
        await create(services, "first")
        await create(services, "second")
    segment = next((tmp_path / "__cluster_metadata-0").glob("*.log"))
    whole = segment.read_bytes()
    # Within a record: what a header's neighbours prove would be put right.
    at = whole.index(b"first")
    segment.write_bytes(whole[:at] + b"\xff" * 5 + whole[at + 5 :])
    for _ in range(2):
        with pytest.raises(DataDirectoryError, match="damaged before its end"):
            async with opened(tmp_path):
                pass


async def test_a_partition_that_no_topic_has_is_put_aside_with_a_warning(tmp_path, caplog):
    async with opened(tmp_path) as services:
        await create(services)
        await append(services)
    (tmp_path / "orders-0").rename(tmp_path / "forgotten-0")
    async with opened(tmp_path) as services:
        assert set(services.replicas.topics) == {"orders"}
    [stray] = tmp_path.glob("forgotten-0.*-stray")
    assert (stray / f"{0:020}.log").stat().st_size > 0
    assert any("forgotten-0" in record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)


async def test_a_partition_whose_log_cannot_be_opened_is_its_own_trouble(tmp_path):
    async with opened(tmp_path) as services:
        await create(services, "broken", 2)
        await create(services, "whole")
    segment = tmp_path / "broken-1" / f"{0:020}.log"
    segment.unlink()
    segment.mkdir()
    async with opened(tmp_path) as services:
        await append(services, topic="whole")
        await append(services, topic="broken")
        with pytest.raises(KafkaError) as caught:
            services.replicas.topic("broken").partition(1)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    "name",
    [
        ".lock",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
        "cleaner-offset-checkpoint",
        "__cluster_metadata-0/quorum-state",
        "__cluster_metadata-0/partition.metadata",
        "__cluster_metadata-0/leader-epoch-checkpoint",
        f"__cluster_metadata-0/{0:020}.log",
        f"__cluster_metadata-0/{0:020}.index",
    ],
)
async def test_a_pipe_in_the_place_of_a_file_ends_the_start_with_its_name(tmp_path, name):
    async with opened(tmp_path) as services:
        await create(services)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises((DataDirectoryError, OSError)) as raised:
        async with opened(tmp_path):
            pass
    assert f"{tmp_path / name}" in str(raised.value)
    assert "Not a regular file" in str(raised.value)


@pytest.mark.parametrize(
    "name",
    [
        f"{0:020}.log",
        f"{0:020}.index",
        f"{0:020}.timeindex",
        f"{1:020}.snapshot",
        "partition.metadata",
        "leader-epoch-checkpoint",
    ],
)
async def test_a_pipe_in_a_partition_is_the_trouble_of_that_partition(tmp_path, name, caplog):
    async with opened(tmp_path) as services:
        await create(services)
        await create(services, "whole")
        await append(services)
    (tmp_path / "orders-0" / name).unlink()
    os.mkfifo(tmp_path / "orders-0" / name)
    async with opened(tmp_path) as services:
        await append(services, topic="whole")
        with pytest.raises(KafkaError) as caught:
            services.replicas.topic("orders").partition(0)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert f"Not a regular file: '{tmp_path / 'orders-0' / name}'" in caplog.text


# --- a metadata log that was lost ---


def metadata_gone(metadata):
    shutil.rmtree(metadata)


def segment_gone(metadata):
    (metadata / f"{0:020}.log").unlink()


def segment_emptied(metadata):
    os.truncate(metadata / f"{0:020}.log", 0)


def cut_at_a_batch(metadata):
    """Without the topic and what came after it."""
    segment = metadata / f"{0:020}.log"
    sizes = [each.header.size_bytes for each in read_batches(segment.read_bytes())]
    os.truncate(segment, sum(sizes[:2]))


def cut_within_the_last_batch(metadata):
    segment = metadata / f"{0:020}.log"
    os.truncate(segment, segment.stat().st_size - 1)


def last_batch_damaged(metadata):
    segment = metadata / f"{0:020}.log"
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)


async def assert_refused_twice(directory, text):
    before = sorted(path.name for path in directory.iterdir() if path.name != ".lock")
    for _ in range(2):
        with pytest.raises(DataDirectoryError, match=text) as caught:
            async with opened(directory):
                pass
        assert "\n" not in str(caught.value)
    assert sorted(path.name for path in directory.iterdir() if path.name != ".lock") == before


@pytest.mark.parametrize(
    "lose",
    [metadata_gone, segment_gone, segment_emptied, cut_at_a_batch, cut_within_the_last_batch, last_batch_damaged],
)
async def test_after_a_clean_stop_a_metadata_log_that_ends_earlier_is_refused(tmp_path, lose):
    async with opened(tmp_path):
        pass
    async with opened(tmp_path) as services:
        await create(services)
    lose(tmp_path / METADATA)
    await assert_refused_twice(tmp_path, "Bring it back from a copy")


async def test_a_start_that_was_refused_goes_on_once_the_metadata_log_is_back(tmp_path):
    async with opened(tmp_path) as services:
        await create(services)
        await append(services)
    shutil.copytree(tmp_path / METADATA, tmp_path.with_name("copy"))
    metadata_gone(tmp_path / METADATA)
    await assert_refused_twice(tmp_path, "is gone since the last clean stop")
    shutil.copytree(tmp_path.with_name("copy"), tmp_path / METADATA)
    async with opened(tmp_path) as services:
        assert services.replicas.topic("orders").partition(0).log_end_offset == 1


async def test_what_a_refusal_says_lets_a_start_do_without_the_metadata(tmp_path):
    async with opened(tmp_path) as services:
        await create(services)
        await append(services)
    metadata_gone(tmp_path / METADATA)
    await assert_refused_twice(tmp_path, f"remove {tmp_path / CLEAN_MARKER}")
    (tmp_path / CLEAN_MARKER).unlink()
    with pytest.raises(DataDirectoryError, match=r"never had the topic of .*/orders-0, .* move such partitions away"):
        async with opened(tmp_path):
            pass
    (tmp_path / "orders-0").rename(tmp_path.with_name("orders-0"))
    async with opened(tmp_path) as services:
        assert not services.replicas.topics


@pytest.mark.parametrize("lose", [metadata_gone, segment_gone, segment_emptied, cut_at_a_batch])
async def test_after_a_kill_partitions_of_topics_that_never_were_prove_the_loss(tmp_path, lose):
    async with opened(tmp_path) as services:
        await create(services)
        await append(services)
    (tmp_path / CLEAN_MARKER).unlink()
    lose(tmp_path / METADATA)
    for _ in range(2):
        with pytest.raises(DataDirectoryError, match="Bring it back from a copy"):
            async with opened(tmp_path):
                pass
    assert (tmp_path / "orders-0").is_dir()


async def test_what_a_kill_left_of_a_deleted_topic_is_no_proof(tmp_path):
    async with opened(tmp_path) as services:
        await create(services)
        await append(services)
        shutil.copytree(tmp_path / "orders-0", tmp_path.with_name("left"))
        await services.controller.delete_topics([TopicTarget("orders")])
    shutil.copytree(tmp_path.with_name("left"), tmp_path / "orders-0")
    async with opened(tmp_path) as services:
        assert not services.replicas.topics
    assert list(tmp_path.glob("orders-0.*-stray"))


def last_segment(directory):
    return max((directory / METADATA).glob("*.log"))


def emptied(segment):
    os.truncate(segment, 0)


def cut_to_its_first_batch(segment):
    os.truncate(segment, next(read_batches(segment.read_bytes())).header.size_bytes)


@pytest.fixture
def snapshots_at_every_start(monkeypatch):
    monkeypatch.setattr("trio_broker.cluster.metadata_log.SNAPSHOT_AFTER_RECORDS", 0)


@pytest.mark.parametrize("lose", [emptied, cut_to_its_first_batch])
async def test_behind_a_snapshot_too_partitions_prove_the_loss_after_a_kill(tmp_path, snapshots_at_every_start, lose):
    async with opened(tmp_path) as services:
        await create(services, "older")
        await append(services, topic="older")
    async with opened(tmp_path) as services:
        assert services.metadata_log.snapshot is not None
        await create(services, "first")
        await create(services)
        await append(services)
    (tmp_path / CLEAN_MARKER).unlink()
    lose(last_segment(tmp_path))
    for _ in range(2):
        with pytest.raises(DataDirectoryError, match=r"never had the topic of .*/orders-0, "):
            async with opened(tmp_path):
                pass
    assert (tmp_path / "orders-0").is_dir()
    shutil.rmtree(tmp_path / "orders-0")
    async with opened(tmp_path) as services:
        assert set(services.replicas.topics) - {"first"} == {"older"}


async def test_what_was_left_of_a_deleted_topic_is_no_proof_behind_a_snapshot(tmp_path, snapshots_at_every_start):
    async with opened(tmp_path) as services:
        await create(services)
        await append(services)
        shutil.copytree(tmp_path / "orders-0", tmp_path.with_name(f"{tmp_path.name}-left"))
        await services.controller.delete_topics([TopicTarget("orders")])
    shutil.copytree(tmp_path.with_name(f"{tmp_path.name}-left"), tmp_path / "orders-0")
    for _ in range(2):
        (tmp_path / CLEAN_MARKER).unlink()
        async with opened(tmp_path) as services:
            assert not services.replicas.topics
            assert services.metadata_log.snapshot is not None
    assert list(tmp_path.glob("orders-0.*-stray"))


async def test_no_snapshot_is_taken_while_a_partition_of_a_deleted_topic_keeps_its_name(
    tmp_path, snapshots_at_every_start, monkeypatch
):
    async with opened(tmp_path) as services:
        await create(services)
        await append(services)
        shutil.copytree(tmp_path / "orders-0", tmp_path.with_name(f"{tmp_path.name}-left"))
        await services.controller.delete_topics([TopicTarget("orders")])
    shutil.copytree(tmp_path.with_name(f"{tmp_path.name}-left"), tmp_path / "orders-0")
    before = sorted((tmp_path / METADATA).glob("*.checkpoint"))
    with monkeypatch.context() as disk:
        disk.setattr(log_manager, "rename_marked", fail_to_rename)
        async with opened(tmp_path):
            assert (tmp_path / "orders-0").is_dir()
    assert sorted((tmp_path / METADATA).glob("*.checkpoint")) == before
    async with opened(tmp_path):
        assert not (tmp_path / "orders-0").exists()


def fail_to_rename(*arguments):
    raise OSError(errno.EACCES, "Permission denied")


async def test_a_data_directory_that_was_away_at_the_snapshot_proves_nothing(tmp_path, snapshots_at_every_start):
    paths = [tmp_path / "a", tmp_path / "b"]
    both = ",".join(map(str, paths))
    async with opened(paths[0], log_dirs=both) as services:
        await create(services, partitions=2)
        for index in range(2):
            replicas = services.replicas
            await append_to_leader(replicas, replicas.topic("orders").partition(index), batch(b"v"))
    async with opened(paths[0], log_dirs=str(paths[0])) as services:
        await services.controller.delete_topics([TopicTarget("orders")])
    async with opened(paths[0], log_dirs=str(paths[0])):
        pass
    async with opened(paths[0], log_dirs=both) as services:
        assert not services.replicas.topics
    assert list(paths[1].glob("orders-*-stray"))


async def test_a_start_goes_on_where_the_first_one_was_killed_before_its_metadata_log(tmp_path):
    async with opened(tmp_path):
        pass
    (tmp_path / CLEAN_MARKER).unlink()
    metadata_gone(tmp_path / METADATA)
    async with opened(tmp_path):
        pass


# --- partitions follow what the controller decides ---


async def test_a_topic_can_be_appended_to_as_soon_as_it_is_created(tmp_path):
    async with opened(tmp_path) as services:
        await create(services)
        assert (await append(services)).first_offset == 0


async def test_new_partitions_are_held_at_once(tmp_path):
    async with opened(tmp_path) as services:
        await create(services)
        await services.controller.create_partitions([NewPartitions(name="orders", count=3)])
        assert epochs(services) == [0, 0, 0]


async def test_a_deleted_topic_is_let_go_of_at_once(tmp_path):
    async with opened(tmp_path) as services:
        await create(services)
        await services.controller.delete_topics([TopicTarget("orders")])
        with pytest.raises(KafkaError):
            services.replicas.topic("orders")
        assert not (tmp_path / "orders-0").exists()


async def test_a_topics_own_setting_reaches_its_logs(tmp_path):
    async with opened(tmp_path) as services:
        await create(services)
        await set_config(services, ConfigResource(ConfigResourceType.TOPIC, "orders"), "retention.ms", "4321")
        assert services.replicas.topic("orders").partition(0).log.config.retention_ms == 4321


async def test_a_broker_setting_reaches_the_topics_that_have_none_of_their_own(tmp_path):
    async with opened(tmp_path) as services:
        await create(services, "follows")
        await create(services, "keeps", retention_ms="1234")
        await set_config(services, BROKER, "log.retention.ms", "4321")
        retentions = {
            name: local.partition(0).log.config.retention_ms for name, local in services.replicas.topics.items()
        }
        assert retentions == {"follows": 4321, "keeps": 1234}


async def test_the_threads_for_disk_work_are_as_many_as_num_io_threads_says(tmp_path):
    async with opened(tmp_path, num_io_threads="4") as services:
        assert services.replicas.io_limiter.total_tokens == 4
        await set_config(services, BROKER, "num.io.threads", "6")
        assert services.replicas.io_limiter.total_tokens == 6


async def test_only_a_setting_of_logs_makes_topics_resolve_their_settings_anew(tmp_path, monkeypatch):
    updated = []
    async with opened(tmp_path) as services:
        await create(services)
        local = type(services.replicas.local_partitions)
        monkeypatch.setattr(local, "update_config", lambda self, name, config: updated.append(name))
        await set_config(services, BROKER, "num.io.threads", "9")
        assert updated == []
        await set_config(services, BROKER, "log.retention.ms", "5")
        assert updated == ["orders"]
