"""The segments of a running broker, as it is reported to programs that read the files."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest
import trio

from broker_admin.encoding import encode
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from tests.partition.real_logs import NOW_MS, add_topic, batch, make_replicas, write_epoch_entry
from tests.running_broker import connected, running, view_of
from tests.storage.conftest import make_batch, make_marker
from trio_broker.broker_view.node.segments import MAX_ACTIVE_POSITIONS, LiveSegmentsView, log_snapshot, segment_infos
from trio_broker.partition.replica_manager import ReplicaManager
from trio_broker.runtime.real_disk import RealDisk
from trio_broker.storage.append import AppendOrigin
from trio_broker.storage.segment import Segment

MANY_SEGMENTS = 10_000
LOOP_SECONDS = 0.1
"""The longest that a manifest may keep the event loop from others."""


@pytest.fixture
async def replicas(tmp_path):
    return make_replicas(tmp_path, log_durability="page-cache", log_segment_bytes="1048576")


@pytest.fixture
def view(replicas) -> LiveSegmentsView:
    return LiveSegmentsView(replicas, "cluster", 1)


async def written_to(replicas, **configs):
    """The one partition of a new topic, ready to be appended to."""
    [partition] = await add_topic(replicas, configs={key.replace("_", "."): value for key, value in configs.items()})
    write_epoch_entry(partition)
    return partition


async def only_log(view: LiveSegmentsView):
    manifest = await view.manifest("orders")
    assert manifest is not None
    [partition] = manifest.partitions
    assert partition.error is None
    return partition.log


async def test_a_running_broker_shows_of_its_files(tmp_path):
    async with running(tmp_path) as broker, connected(broker) as client:
        await client.create_topic("orders", 2)
        await client.produce("orders", b"one", b"two")
        manifest: Any = await view_of(broker).node.segments.manifest("orders")
    node = broker.services.node
    assert (manifest.cluster_id, manifest.node_id, manifest.topic) == (node.cluster_id, node.node_id, "orders")
    first, second = (each.log for each in manifest.partitions)
    assert (first.log_start_offset, first.last_stable_offset, first.high_watermark) == (0, 2, 2)
    [segment] = first.segments
    path = os.path.join(first.log_directory, first.directory_name, f"{segment.base_offset:020}.log")
    assert (first.log_directory, first.directory_name) == (str(tmp_path), "orders-0")
    assert (segment.next_offset, segment.size_bytes) == (2, os.stat(path).st_size)
    assert segment.inode == os.stat(path).st_ino
    assert [(each.next_offset, each.size_bytes) for each in second.segments] == [(0, 0)]


async def test_segments_end_where_the_next_one_begins(replicas, view):
    partition = await written_to(replicas)
    for _ in range(3):
        partition.writer.append(batch(b"a", b"b"), now_ms=NOW_MS)
        partition.log.roll(NOW_MS)
    log = await only_log(view)
    assert [(each.base_offset, each.next_offset) for each in log.segments] == [(0, 2), (2, 4), (4, 6), (6, 6)]
    assert log.segments[0].size_bytes == partition.log.segments[0].size > 0
    assert log.segments[3].size_bytes == 0


async def test_what_is_appended_while_it_is_made_is_not_in_it(replicas, view, monkeypatch):
    partition = await written_to(replicas)
    partition.writer.append(batch(b"a"), now_ms=NOW_MS)
    size = partition.log.size_bytes
    made = trio.to_thread.run_sync

    async def append_first(function, *arguments, **named):
        partition.writer.append(batch(b"later"), now_ms=NOW_MS)
        partition.log.roll(NOW_MS)
        return await made(function, *arguments, **named)

    monkeypatch.setattr(trio.to_thread, "run_sync", append_first)
    log = await only_log(view)
    assert (log.high_watermark, [(each.next_offset, each.size_bytes) for each in log.segments]) == (1, [(1, size)])


@pytest.mark.parametrize("moved", [False, True])
async def test_files_whose_names_change_while_it_is_made_are_shown_without_inodes(replicas, moved):
    partition = await written_to(replicas)
    partition.writer.append(batch(b"a"), now_ms=NOW_MS)
    partition.log.roll(NOW_MS)
    taken = log_snapshot(partition)
    files = [os.stat(segment.file.path).st_ino for segment in partition.log.segments]
    partition.log.name_changes += moved
    assert [each.inode for each in segment_infos(taken)] == ([None, None] if moved else files)


async def test_records_that_are_not_safe_yet_are_behind_the_high_watermark(tmp_path):
    replicas = make_replicas(tmp_path, log_durability="fsync")
    partition = await written_to(replicas)
    partition.writer.append(batch(b"a"), now_ms=NOW_MS)
    log = await only_log(LiveSegmentsView(replicas, "cluster", 1))
    assert (log.high_watermark, log.segments[0].next_offset) == (0, 1)


async def test_aborted_transactions_are_shown_and_open_ones_end_what_is_stable(replicas, view):
    partition = await written_to(replicas)
    for sequence, committed in enumerate((False, True, False)):
        data = make_batch(producer_id=7, producer_epoch=0, sequence=sequence, transactional=True)
        partition.writer.append(memoryview(data), now_ms=NOW_MS)
        marker = memoryview(make_marker(7, committed=committed))
        partition.writer.append(marker, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    data = make_batch(producer_id=7, producer_epoch=0, sequence=3, transactional=True)
    partition.writer.append(memoryview(data), now_ms=NOW_MS)
    log = await only_log(view)
    aborted = [(each.producer_id, each.first_offset, each.last_offset) for each in log.aborted_transactions]
    assert aborted == [(7, 0, 1), (7, 4, 5)]
    assert (log.last_stable_offset, log.high_watermark) == (6, 7)


async def test_the_index_of_the_active_segment_is_shown_thinned_out(replicas, view):
    partition = await written_to(replicas, index_interval_bytes="0")
    for _ in range(700):
        partition.writer.append(batch(b"a"), now_ms=NOW_MS)
    log = await only_log(view)
    positions = [(each.offset, each.position) for each in log.active_positions]
    known = [(each.offset, each.position) for each in partition.log.active_segment.offset_index.entries]
    assert MAX_ACTIVE_POSITIONS // 2 < len(positions) <= MAX_ACTIVE_POSITIONS
    assert set(positions) < set(known)
    assert positions == sorted(positions)
    assert positions[-1][0] > 600


async def test_a_partition_without_a_working_disk_is_shown_with_its_error(replicas, view):
    first, second, third = await add_topic(replicas, partitions=3)
    second.fail(KafkaError("the disk failed", code=ErrorCode.KAFKA_STORAGE_ERROR))
    local = replicas.topic("orders")
    local.failures[3] = KafkaError("damaged", code=ErrorCode.KAFKA_STORAGE_ERROR)
    manifest = await view.manifest("orders")
    assert [(each.partition, each.error, each.log is None) for each in manifest.partitions] == [
        (0, None, False),
        (1, "the disk failed", True),
        (2, None, False),
        (3, "damaged", True),
    ]
    assert first is not third


async def test_partitions_can_be_chosen_and_topics_may_be_missing(replicas, view):
    await add_topic(replicas, partitions=3)
    manifest = await view.manifest("orders", {2, 9})
    assert [each.partition for each in manifest.partitions] == [2]
    assert await view.manifest("nowhere") is None


async def test_ten_thousand_segments_yield_to_others(replicas: ReplicaManager, view: LiveSegmentsView, monkeypatch):
    partition = await written_to(replicas)
    log = partition.log
    row = [
        Segment(RealDisk(), log.directory, base, log.config, size=1000, created_ms=NOW_MS)
        for base in range(-MANY_SEGMENTS, 0)
    ]
    monkeypatch.setattr(log, "_segments", (*row, *log.segments))
    began = time.thread_time()
    taken = log_snapshot(partition)
    assert time.thread_time() - began < LOOP_SECONDS
    assert len(taken.segments) == MANY_SEGMENTS + 1
    manifest = await view.manifest("orders")
    [reported] = json.loads(encode(manifest))["partitions"]
    assert len(reported["log"]["segments"]) == MANY_SEGMENTS + 1
