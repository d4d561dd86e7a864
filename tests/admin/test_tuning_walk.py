"""The walk of one who tunes: the page names the limit, a knob is turned under load, its change says what it brought.

In fsync mode with slow syncs, on 16 partitions with a closed loop of six producers. The seconds of load are waited for
by the broker's own samples; the rest of the minute after the change is the clock's, which is turned.
"""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest
import trio

from bench import slow_disk
from broker_admin.app import create_app
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from tests.admin.chromium import needs_chromium, open_browser
from tests.admin.live_admin import LiveAdmin, open_live_admin, served
from tests.running_broker import connected
from trio_broker.changes.change import EffectVerdict
from trio_broker.metrics.effect import SATURATED, SYNCS_BUSY
from trio_broker.metrics.history import HistorySample
from trio_broker.testing.advancing_clock import AdvancingClock

pytestmark = needs_chromium

PARTITIONS = 16

PRODUCERS = 6
"""Fewer than the eight threads, which are then never all busy."""

SYNC_DELAY_MS = 20
"""One thread syncs 50 times a second at most, six of them 300 times, which the event loop of any machine answers."""

SECONDS = 7
"""Of load on either side of the change; a verdict needs five."""


async def produce_for_ever(live: LiveAdmin, first: int) -> None:
    """One producer that sends its next record when the last one is acknowledged, to one partition after another."""
    records = build_batch([NewRecord(timestamp=1_700_000_000_000, key=None, value=b"x" * 200)])
    async with connected(live.broker) as client:
        for partition in itertools.cycle(range(first, PARTITIONS, PRODUCERS)):
            data = PartitionProduceData(index=partition, records=records)
            topic = TopicProduceData(name="orders", partition_data=[data])
            await client.ask(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9)


async def samples(live: LiveAdmin, count: int) -> None:
    """Return when the broker has taken ``count`` more samples."""
    sender, receiver = trio.open_memory_channel[HistorySample](1000)

    def pass_on(event: object) -> None:
        if isinstance(event, HistorySample):
            sender.send_nowait(event)

    unsubscribe = live.view.subscribe(pass_on)
    try:
        for _ in range(count):
            await receiver.receive()
    finally:
        unsubscribe()


async def test_more_io_threads_are_proved_to_help_where_syncs_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", slow_disk.fdatasync)
    clock = AdvancingClock()
    async with (
        open_live_admin(tmp_path / "broker", clock=clock, log_durability="fsync") as live,
        served(create_app(live.view)) as url,
        open_browser(tmp_path / "profile") as browser,
    ):
        await live.kafka.create_topic("orders", partitions=PARTITIONS)
        with slow_disk.delayed_by(SYNC_DELAY_MS):
            async with trio.open_nursery() as nursery:
                for first in range(PRODUCERS):
                    nursery.start_soon(produce_for_ever, live, first)
                await samples(live, 1)
                # The time before a change begins with the change before it, so that no idle second is in it.
                await live.http.patch("/api/v1/config", json={"num.io.threads": 1})
                await samples(live, SECONDS)
                page = await browser.open_page(f"{url}/tuning")
                await page.until("document.querySelector('[data-limit]').dataset.limit === 'disk syncs'")
                assert re.search(r"Try num\.io\.threads=\d", await page.text("#limit"))

                form = "document.querySelector('[data-form=\"num.io.threads\"]')"
                await page.evaluate(f"{form}.querySelector('input[type=number]').value = 8")
                await page.evaluate(f"{form}.querySelector('input[type=number]').dispatchEvent(new Event('input'))")
                await page.evaluate(f"{form}.querySelector('.apply').click()")
                await page.until(f"{form}.querySelector('[data-outcome]').textContent.includes('1 → 8, in effect')")
                assert live.broker.config.socket_server.num_io_threads == 8

                await samples(live, SECONDS)
                clock.advance(60)
                await samples(live, 1)
                nursery.cancel_scope.cancel()

        change = live.broker.services.changes.changes[-1]
        assert change.effect is not None
        assert change.effect.verdict is EffectVerdict.BETTER
        syncs = next(each for each in change.effect.readings if each.name == SYNCS_BUSY)
        assert syncs.before is not None
        assert syncs.after is not None
        assert syncs.after < SATURATED < syncs.before

        await page.go_to(f"{url}/changes/{change.number}")
        text = await page.text("#change .verdict")
        assert re.match(r"\+\d+ % records/s, p99 −\d+ %, syncs busy \d+ → \d+ %", text), text
        await page.go_to(f"{url}/tuning")
        assert text in await page.text("#effects")
