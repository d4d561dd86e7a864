"""The route of the disks, over a real broker."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tests.admin.live_admin import open_live_admin
from tests.running_broker import connected, crashing
from trio_broker.broker_view.node.storage import SYNC_BOUNDS_MS, retention_outlook, sync_buckets
from trio_broker.common.histogram import Histogram
from trio_broker.partition.disk_usage import MIN_SAMPLES

HOUR_MS = 3_600_000


async def fill(live, topic, *, batches=4):
    await live.kafka.create_topic(topic)
    for _ in range(batches):
        await live.kafka.produce(topic, b"v" * 1000)


def partition_of(live, topic):
    return live.broker.services.replicas.topic(topic).partition(0)


async def test_directories_are_listed_with_their_space_and_what_the_broker_has_there(live, tmp_path):
    await fill(live, "orders")
    report = await live.get("/api/v1/brokers/1/storage")
    [directory] = report["directories"]
    assert directory["path"] == str(tmp_path)
    assert directory["failure"] is None
    assert 0 < directory["usable_bytes"] < directory["total_bytes"]
    assert directory["partitions"] == 1
    assert directory["log_bytes"] == report["log_bytes"] == partition_of(live, "orders").log.size_bytes > 4000
    assert (directory["growth"], directory["full_in_seconds"]) == ("unknown", None)


async def test_a_disk_that_fills_has_a_forecast(live, monkeypatch):
    usage = live.broker.services.replicas.log_maintenance.disk_usage
    directory = live.broker.services.replicas.log_manager.directories[0]
    spaces = iter(range(MIN_SAMPLES * 10**6))
    measured = type(directory).volume_space

    def filling(self):
        space = measured(self)
        return type(space)(total_bytes=10**9, usable_bytes=5 * 10**8 - next(spaces) * 10**6)

    monkeypatch.setattr(type(directory), "volume_space", filling)
    for number in range(MIN_SAMPLES):
        usage.sample(1_700_000_000_000 + number * 30_000)
    [shown] = (await live.get("/api/v1/brokers/1/storage"))["directories"]
    assert shown["growth"] == "steady"
    assert shown["full_in_seconds"] == pytest.approx((500 - MIN_SAMPLES) * 30)


async def test_a_failed_directory_says_so_and_hides_nothing_else(live):
    log_manager = live.broker.services.replicas.log_manager
    log_manager.take_offline(log_manager.directories[0].path, OSError(errno.EIO, "Input/output error"))
    [directory] = (await live.get("/api/v1/brokers/1/storage"))["directories"]
    assert "Input/output error" in directory["failure"]
    assert (directory["usable_bytes"], directory["total_bytes"]) == (None, None)


async def test_the_largest_topics_come_first(live):
    await fill(live, "small", batches=1)
    await fill(live, "large", batches=8)
    report = await live.get("/api/v1/brokers/1/storage")
    assert [each["topic"] for each in report["largest_topics"][:2]] == ["large", "small"]
    assert report["topics"] == 2


async def test_what_retention_takes_next_is_foreseen(tmp_path):
    settings = {"internal_segment_bytes": "2000", "log_message_timestamp_type": "LogAppendTime"}
    async with open_live_admin(tmp_path, **settings, log_retention_ms=str(HOUR_MS)) as live:
        await fill(live, "orders", batches=6)
        partition = partition_of(live, "orders")
        assert len(partition.log.segments) > 2
        soon = (await live.get("/api/v1/brokers/1/storage"))["retention"]
        assert (soon["segments"], soon["size_bytes"], soon["then_partition"]) == (0, 0, "orders-0")
        written_ms = partition.log.segments[0].retention_timestamp()
        assert soon["then_due_at_ms"] == written_ms + HOUR_MS
        later = retention_outlook([partition], next_check_at_ms=soon["then_due_at_ms"] + 60_000)
        assert (later.segments, later.partitions) == (len(partition.log.segments), 1)
        assert later.size_bytes == partition.log.size_bytes
        assert later.then_due_at_ms is None


async def test_without_checks_nothing_is_foreseen():
    outlook = retention_outlook([], next_check_at_ms=None)
    assert (outlook.next_check_at_ms, outlook.segments) == (None, 0)


async def test_the_cleaner_and_what_it_leaves_alone_are_shown(live):
    cleaner = live.broker.services.replicas.log_maintenance.log_cleaner
    await fill(live, "orders")
    cleaner._uncleanable[partition_of(live, "orders")] = "a record without a key"
    shown = (await live.get("/api/v1/brokers/1/storage"))["cleaner"]
    assert (shown["enabled"], shown["threads"], shown["rounds"]) == (True, 1, 0)
    assert shown["uncleanable"] == [{"partition": "orders-0", "reason": "a record without a key"}]


async def test_syncs_are_counted_by_how_long_they_took(tmp_path):
    async with open_live_admin(tmp_path, log_durability="fsync") as live:
        await fill(live, "orders")
        syncs = (await live.get("/api/v1/brokers/1/storage"))["syncs"]
    assert syncs["durability"] == "fsync"
    assert syncs["syncs"] == sum(bucket["count"] for bucket in syncs["buckets"]) >= 4
    assert 0 < syncs["p50_ms"] <= syncs["p99_ms"] <= syncs["max_ms"]


def test_buckets_of_syncs_have_all_of_them():
    times = Histogram()
    for milliseconds in (0.05, 3, 900, 60_000):
        times.record(round(milliseconds * 1e6))
    buckets = sync_buckets(times.snapshot())
    assert [bucket.up_to_ms for bucket in buckets] == [*SYNC_BOUNDS_MS, None]
    assert sum(bucket.count for bucket in buckets) == 4
    assert buckets[-1].count == 1


async def test_the_recovery_of_the_last_start_is_shown(tmp_path):
    async with crashing(tmp_path) as broker, connected(broker) as kafka:
        await kafka.create_topic("orders")
        await kafka.produce("orders", b"one")
        partition = broker.services.replicas.topic("orders").partition(0)
        path = partition.log.active_segment.file.path
    with Path(path).open("ab") as file:
        file.write(b"half a batch")
    async with open_live_admin(tmp_path) as live:
        recovery = (await live.get("/api/v1/brokers/1/storage"))["recovery"]
    assert (recovery["was_clean"], recovery["logs"], recovery["recovered_logs"]) == (False, 1, 1)
    assert recovery["cut_bytes"] == len(b"half a batch")
    assert recovery["unopened"] == recovery["strays"] == []
    async with open_live_admin(tmp_path) as live:
        recovery = (await live.get("/api/v1/brokers/1/storage"))["recovery"]
    assert (recovery["was_clean"], recovery["recovered_logs"], recovery["cut_bytes"]) == (True, 0, 0)
