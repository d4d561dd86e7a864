"""The walk of issue 10 in a browser, by clicks alone: a record is seen, a slow member is named, a setting is proved.

A broker process syncs to a slow disk with one thread. Six producers, each of which waits for its acknowledgement, write
to a topic that a group of two reads: ``till-a`` keeps up, ``till-b`` stops after its first records. Nothing here
asserts a time: the test waits for what the pages say, and for seconds that the broker itself has counted.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.admin.chromium import Browser, Page, needs_chromium
from tests.admin.slow_disk_broker import WINDOW_SECONDS, SlowDiskBroker
from tests.waits import within
from trio_broker.metrics.effect import SATURATED
from trio_broker.metrics.noise import MIN_PAIRS
from trio_broker.testing import BrokerProcess

pytestmark = [pytest.mark.compat, needs_chromium]

TOPIC = "orders"
PARTITIONS = 16
GROUP_ID = "billing"

PRODUCERS = 6
"""Fewer than eight threads, which are then hardly ever all busy."""

POLL_SECONDS = 0.1

POLL_HISTORY_SECONDS = 2.0
"""It is long, and a look at it is a request."""

FORM = "[data-form='num.io.threads']"

QUIET_SECONDS = (MIN_PAIRS + 2) * WINDOW_SECONDS
"""One more than what the noise is measured by."""

STEADY = f"""
fetch('/api/v1/brokers/1/history').then((answer) => answer.json()).then(({{samples}}) => {{
    const window = samples.slice(-{QUIET_SECONDS});
    return window.length === {QUIET_SECONDS}
        && window.every((sample) => sample.connections === samples.at(-1).connections);
}})
"""
"""Whether the same clients were connected in all the time whose noise a change is compared with."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "log.durability": "fsync",
        "num.io.threads": "1",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    with SlowDiskBroker(tmp_path / "data", overrides=settings) as process:
        yield process


@asynccontextmanager
async def at_work(*workers: Callable[[threading.Event], None]) -> AsyncIterator[None]:
    """Run ``workers`` in threads until the block ends; each returns soon after its event is set."""
    ended = threading.Event()
    async with trio.open_nursery() as nursery:
        for worker in workers:
            nursery.start_soon(trio.to_thread.run_sync, worker, ended)
        try:
            yield
        finally:
            ended.set()


def produce_one_by_one(servers: str, first: int, ended: threading.Event) -> None:
    """Write each record when the one before is acknowledged, to one partition after another."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for partition in itertools.cycle(range(first, PARTITIONS, PRODUCERS)):
        if ended.is_set():
            return
        producer.produce(TOPIC, b"x" * 200, partition=partition)
        producer.flush()


def consumer_of(servers: str, client_id: str, **settings: str | int | bool) -> Consumer:
    common = {"bootstrap.servers": servers, "group.id": GROUP_ID, "client.id": client_id}
    consumer = Consumer({**common, "auto.offset.reset": "earliest", **settings})
    consumer.subscribe([TOPIC])
    return consumer


def keep_up(servers: str, ended: threading.Event) -> None:
    consumer = consumer_of(servers, "till-a", **{"auto.commit.interval.ms": 500})
    while not ended.is_set():
        consumer.poll(POLL_SECONDS)
    consumer.close()


def hang_after_the_first_records(servers: str, ended: threading.Event) -> None:
    """Commit the first record of each partition of half of the topic, and then neither read nor commit."""
    consumer = consumer_of(servers, "till-b", **{"enable.auto.commit": False})
    seen: set[int | None] = set()
    while not ended.is_set():
        if (message := consumer.poll(POLL_SECONDS)) is not None and message.error() is None:
            seen.add(message.partition())
        owned = {each.partition for each in consumer.assignment()}
        if len(owned) == PARTITIONS // 2 and owned <= seen:
            consumer.commit(offsets=[TopicPartition(TOPIC, each, 1) for each in owned], asynchronous=False)
            ended.wait()
    consumer.close()


def make_topic_with_a_record(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    within(admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result, 30)
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(TOPIC, key=b"till-7", value=b'{"item": "tea", "amount": 3}')
    producer.flush()


async def test_from_the_first_record_to_the_proof_of_a_setting(broker: BrokerProcess, browser: Browser) -> None:
    servers = broker.bootstrap_servers
    page = await browser.open_page(broker.admin_url)
    await trio.to_thread.run_sync(make_topic_with_a_record, servers)
    await see_the_first_record(page)
    producers = [partial(produce_one_by_one, servers, first) for first in range(PRODUCERS)]
    async with at_work(*producers, partial(keep_up, servers), partial(hang_after_the_first_records, servers)):
        await find_why_the_group_lags(page)
        await turn_the_threads_up(page)
        await read_what_it_brought(page)


async def see_the_first_record(page: Page) -> None:
    await page.click("Topics", "/topics")
    await page.click(TOPIC, f"/topics/{TOPIC}")
    await page.click("Messages", f"/topics/{TOPIC}/messages")
    row = await page.text("tr.record")
    assert "till-7" in row
    assert '{"item": "tea", "amount": 3}' in row


async def find_why_the_group_lags(page: Page) -> None:
    await page.click("Groups", "/groups")
    await page.until("document.querySelector('main tbody')?.innerText.includes('never at this rate')")
    await page.click(GROUP_ID, f"/groups/{GROUP_ID}")
    await page.until("document.querySelector('[data-cause=\"slow member\"]') !== null")
    why = await page.text('[data-cause="slow member"]')
    assert "Member till-b is slow" in why
    assert "Look at what it does at 127.0.0.1" in why
    await page.click("What till-b is asking for now", "/brokers/1/clients/client")
    assert "till-b" in await page.text("#client-title")
    await page.click(GROUP_ID, f"/groups/{GROUP_ID}")


async def turn_the_threads_up(page: Page) -> None:
    await page.click("Tuning", "/brokers/1/tuning")
    await page.until("document.querySelector('[data-limit]').dataset.limit === 'disk syncs'")
    await page.until(STEADY, pause=POLL_HISTORY_SECONDS)
    # The suggestion is read and clicked in one turn of the page, which refreshes itself.
    suggested = await page.evaluate(
        "(() => { const link = document.querySelector('#limit a'); link.click(); return link.innerText; })()"
    )
    assert re.fullmatch(r"num\.io\.threads=\d", suggested), suggested
    assert suggested.endswith(await page.evaluate(f'document.querySelector("{FORM} input[type=number]").value'))
    await page.type(f"{FORM} input[type=number]", "8")
    await page.click("Apply", within=FORM)
    await page.until(f'document.querySelector("{FORM} [data-outcome]").textContent.includes("1 → 8, in effect")')


async def read_what_it_brought(page: Page) -> None:
    link = await page.text(f"{FORM} [data-outcome] a")
    await page.click(link, f"/changes/{link.removeprefix('change ')}")
    await page.until("document.querySelector('#change p.verdict') !== null")
    verdict = await page.text("#change p.verdict")
    found = re.match(r"\+\d+ % records/s, p99 −\d+ %, syncs busy (\d+) → (\d+) %", verdict)
    assert found is not None, verdict
    before, after = (int(percent) / 100 for percent in found.groups())
    assert after < SATURATED < before
    await page.click("Tuning", "/brokers/1/tuning")
    assert verdict in await page.text("#effects")
