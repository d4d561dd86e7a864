"""A client that sends faster than its requests are synced: what the API and the pages say of it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter_ns

import attrs
import pytest

from broker_admin.app import create_app
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.admin.chromium import Browser, needs_chromium
from tests.admin.live_admin import LiveAdmin, open_live_admin, served
from tests.admin.page_reading import assert_no_wider_than_the_window, page_of
from tests.partition.real_logs import batch
from tests.running_broker import WAIT_SECONDS, connected
from tests.waits import fail_after
from trio_broker.metrics.standing_verdict import CHANGE_SECONDS
from trio_broker.network.connection import MAX_REQUESTS_IN_FLIGHT
from trio_broker.network.statistics import ConnectionStage
from trio_broker.network.unread_bytes import BACKLOG_SECONDS
from trio_broker.runtime.clock import ManualClock

ADDRESSES = (
    "/brokers/1/tuning",
    "/brokers/1/clients",
    "/brokers/1/clients/client?client_id=test",
    "/brokers/1/clients/connections",
)

SENT = 400
"""Requests that the client sends without waiting for an answer: some 60 KB."""

SYNC_SECONDS = 0.02
"""Slow enough that most of them still wait when the test has seen what it looks for."""


@attrs.frozen
class Scene:
    """A broker in fsync mode on a slow disk, and a clock that the test turns."""

    live: LiveAdmin
    clock: ManualClock

    def look(self) -> None:
        """Let a second pass, and take its sample."""
        self.clock.advance(1.0)
        self.live.broker.server.sample(perf_counter_ns())


def produce(name: str) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch(b"value"))
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=name, partition_data=[data])])


@asynccontextmanager
async def backlog(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """A producer with a backlog in its socket inside the block, of which few requests a second are synced."""
    sync, clock = os.fdatasync, ManualClock()

    def sync_slowly(descriptor: int) -> None:
        time.sleep(SYNC_SECONDS)
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", sync_slowly)
    async with open_live_admin(directory, clock=clock, log_durability="fsync") as live:
        await live.kafka.create_topic("payments")
        scene = Scene(live, clock)
        async with connected(live.broker) as producer:
            for _ in range(SENT):
                await producer.send(produce("payments"), 9)
            for _ in range(int(BACKLOG_SECONDS) + CHANGE_SECONDS + 2):
                # As many are synced together.
                for _ in range(MAX_REQUESTS_IN_FLIGHT):
                    with fail_after(WAIT_SECONDS):
                        await producer.receive(produce("payments"), 9)
                scene.look()
            yield scene


async def test_the_verdict_names_the_client_and_what_waits_in_its_socket(tmp_path, monkeypatch):
    async with backlog(tmp_path, monkeypatch) as scene:
        verdict = await scene.live.get("/api/v1/brokers/1/bottleneck")
        assert (verdict["limit"], verdict["client_id"]) == ("client backlog", "test")
        assert verdict["summary"] == "test sends faster than its requests are synced."
        evidence = {each["name"]: each["value"] for each in verdict["evidence"]}
        assert evidence["unread_bytes"] > 10_000
        assert evidence["unread_wait_ms"] > 1000
        page = await page_of(scene.live.http, "/brokers/1/tuning")
        assert 'data-limit="client backlog"' in page
        assert 'href="/brokers/1/clients/client?client_id=test"' in page


async def test_the_connection_stands_at_its_socket_in_the_api_and_on_the_map(tmp_path, monkeypatch):
    async with backlog(tmp_path, monkeypatch) as scene:
        found = await scene.live.get("/api/v1/brokers/1/connections", stage=ConnectionStage.UNREAD.value)
        [connection] = found["items"]
        assert (connection["request"], connection["muted_because"]) == ("Produce", "its own requests ahead")
        assert connection["unread_bytes"] > 10_000
        assert connection["unread_wait_seconds"] > 1
        stages = (await scene.live.get("/api/v1/brokers/1/backpressure"))["stages"]
        assert {"stage": "unread", "connections": 1} in stages
        clients = await scene.live.get("/api/v1/brokers/1/clients", order="-unread_bytes")
        assert clients["items"][0]["unread_bytes"] == connection["unread_bytes"]
        page = await page_of(scene.live.http, "/brokers/1/clients")
        assert "waits in its socket" in page
        assert "Nothing is held back" not in page


async def test_the_page_of_the_client_says_how_long_it_waits_and_what_it_can_do(tmp_path, monkeypatch):
    async with backlog(tmp_path, monkeypatch) as scene:
        described = await scene.live.get("/api/v1/brokers/1/clients/describe", client_id="test")
        [setting] = [each["setting"] for each in described["advice"] if "linger.ms=" in each["setting"]]
        page = await page_of(scene.live.http, "/brokers/1/clients/client", client_id="test")
        assert re.search(r"a request waits to be read, at least</dt><dd>\d", page)
        assert f"<code>{setting}</code> in the client" in page


@needs_chromium
async def test_the_pages_hold_together_at_every_width(tmp_path, monkeypatch, browser: Browser):
    async with backlog(tmp_path, monkeypatch) as scene, served(create_app(scene.live.view)) as url:
        addresses = [f"{url}{address}" for address in ADDRESSES]
        await assert_no_wider_than_the_window(await browser.open_page("about:blank"), addresses)
