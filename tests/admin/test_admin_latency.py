"""The times of requests and the verdict on what limits, over HTTP, from a real broker."""

from __future__ import annotations

import os
import time
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import pytest
import trio

from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.admin.live_admin import LiveAdmin, open_live_admin
from tests.partition.real_logs import batch
from tests.running_broker import WAIT_SECONDS, connected, fetch_request
from tests.waits import fail_after
from trio_broker.metrics.bottleneck import READINGS_SECONDS

PARTITIONS = 16
SYNC_SECONDS = 0.005
"""A sync of a disk that turns: long beside what the broker needs for a request on any machine."""


def produce_to(partition: int) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=batch(b"value"))
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="orders", partition_data=[data])]
    )


async def produce_in_turn(live: LiveAdmin, partition: int, answers: trio.MemorySendChannel[int]) -> None:
    """One request after another, for ever; each answer is noted in ``answers``."""
    async with connected(live.broker) as connection:
        while True:
            response = await connection.ask(produce_to(partition), 9)
            assert response.responses[0].partition_responses[0].error_code == 0
            await answers.send(partition)


async def verdict_under_load(live: LiveAdmin) -> Any:
    """The verdict by as many samples as it takes, each of a time when every partition has a producer."""
    noted, answers = trio.open_memory_channel[int](PARTITIONS)
    async with trio.open_nursery() as nursery:
        for partition in range(PARTITIONS):
            nursery.start_soon(produce_in_turn, live, partition, noted)
        for _ in range(READINGS_SECONDS + 1):
            with fail_after(WAIT_SECONDS):
                for _ in range(2 * PARTITIONS):
                    await answers.receive()
            live.broker.server.sample(perf_counter_ns())
        verdict = await live.get("/api/v1/brokers/1/bottleneck")
        nursery.cancel_scope.cancel()
    return verdict


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in ``bench/slow_disk.py``: each sync waits first, without the interpreter lock."""
    sync = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        time.sleep(SYNC_SECONDS)
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)


async def test_one_thread_for_the_syncs_of_many_partitions_is_what_limits(tmp_path: Path, slow_disk: None) -> None:
    async with open_live_admin(tmp_path, log_durability="fsync", num_io_threads="1") as live:
        await live.kafka.create_topic("orders", PARTITIONS)
        verdict = await verdict_under_load(live)
        assert verdict["limit"] == "disk syncs"
        assert verdict["setting"] == {"key": "num.io.threads", "value": "8"}
        evidence = {each["name"]: each["value"] for each in verdict["evidence"]}
        assert evidence["sync_busy_ratio"] > 0.5
        assert evidence["syncs_waiting"] > 1
        assert evidence["sync_p50_ms"] >= 1000 * SYNC_SECONDS * 0.9
        [sample] = live.view.node.readings.history()[-1:]
        assert sample.io_idle_ratio > 0.5, "what misled: waiting for a sync holds no slot"


async def test_with_a_thread_for_each_partition_no_sync_waits_for_one(tmp_path: Path, slow_disk: None) -> None:
    async with open_live_admin(tmp_path, log_durability="fsync", num_io_threads=f"{2 * PARTITIONS}") as live:
        await live.kafka.create_topic("orders", PARTITIONS)
        await verdict_under_load(live)
        [sample] = live.view.node.readings.history()[-1:]
        assert (sample.sync_threads, sample.sync_busy_ratio) == (2 * PARTITIONS, 0)


async def test_an_idle_broker_is_limited_by_nothing(live: LiveAdmin) -> None:
    verdict = await live.get("/api/v1/brokers/1/bottleneck")
    assert (verdict["limit"], verdict["setting"]) == ("nothing", None)
    assert verdict["reason"]


async def test_latency_has_every_phase_of_every_api_that_was_asked(tmp_path: Path) -> None:
    async with open_live_admin(tmp_path, log_durability="fsync") as live:
        await live.kafka.create_topic("orders")
        await live.kafka.produce("orders", b"value")
        await live.kafka.ask(produce_to(7), 9)
        await live.kafka.ask(fetch_request("orders", offset=1, max_wait_ms=30, min_bytes=1), 12)
        live.broker.server.sample(perf_counter_ns())
        report = await live.get("/api/v1/brokers/1/latency")
    apis = {each["api"]: each for each in report["apis"]}
    assert {"CreateTopics", "Produce", "Fetch"} <= apis.keys()
    produce = apis["Produce"]["last_minute"]
    assert produce == apis["Produce"]["since_start"] | {key: produce[key] for key in ("seconds", "per_second")}
    assert (produce["count"], produce["errors"]) == (2, {"UNKNOWN_TOPIC_OR_PARTITION": 1})
    phases = {each["phase"]: each["latency"] for each in produce["phases"]}
    assert list(phases) == ["queue", "local", "disk", "purgatory", "response_queue", "send"]
    assert phases["disk"]["mean_ms"] > 0 == phases["purgatory"]["mean_ms"]
    assert sum(each["mean_ms"] for each in phases.values()) == pytest.approx(produce["total"]["mean_ms"])
    fetch = {each["phase"]: each["latency"] for each in apis["Fetch"]["since_start"]["phases"]}
    assert fetch["purgatory"]["max_ms"] > fetch["disk"]["max_ms"] == 0
    assert report["sync_count"] >= 1
