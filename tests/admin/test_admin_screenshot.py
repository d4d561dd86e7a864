"""The README's picture of the admin page: a real broker under load, seen by a real browser.

Each run takes the picture and looks at what the page says; the numbers in it differ from run to run, so pictures are
not compared. ``REWRITE_SCREENSHOT=1`` loads the broker for some minutes first, so that the charts have something to
show, and writes ``docs/admin-page.png``, to be looked at before it is committed.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.admin.chromium import Browser, needs_chromium
from tests.waits import flushed, within
from trio_broker.testing import BrokerProcess

pytestmark = [pytest.mark.compat, needs_chromium]

PICTURE = Path(__file__).parents[2] / "docs" / "admin-page.png"
WIDTH, HEIGHT = 1280, 960

REWRITE = bool(os.environ.get("REWRITE_SCREENSHOT"))
LOADED_SECONDS = 150.0
"""How long the picture's broker has been under load; the charts show the last five minutes."""

TOPICS = {"orders": 6, "payments": 3, "clicks": 12}
RECORD = b"7" * 300
PRODUCER_PAUSE_SECONDS = 0.02
"""Between two bursts of records: a load that a laptop serves without effort."""

GROUPS = {"billing": ("orders", 0.0), "search-index": ("clicks", 0.0), "fraud-detector": ("payments", 0.001)}
"""The topic of each group, and the pause after each record: one group falls behind."""


@contextmanager
def load(broker: BrokerProcess) -> Iterator[None]:
    """Producers and groups that are at work while the block lasts."""
    ended = threading.Event()
    workers: list[Callable[[], None]] = [partial(produce, broker.bootstrap_servers, ended)]
    for group, (topic, pause) in GROUPS.items():
        workers.append(partial(consume, broker, group, topic, pause, ended))
    threads = [threading.Thread(target=worker, name=f"load {number}") for number, worker in enumerate(workers)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


def produce(bootstrap_servers: str, ended: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5})
    burst = 0
    while not ended.wait(PRODUCER_PAUSE_SECONDS):
        burst += 1
        for topic, partitions in TOPICS.items():
            # A slow wave, so that the charts have a shape.
            for number in range(10 + abs(burst % 2000 - 1000) // 50):
                producer.produce(topic, RECORD, partition=number % partitions)
        producer.poll(0)
    flushed(producer, 10)


def consume(broker: BrokerProcess, group: str, topic: str, pause: float, ended: threading.Event) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "client.id": group}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 1000})
    consumer.subscribe([topic])
    while not ended.is_set():
        consumer.poll(0.5)
        if pause:
            ended.wait(pause)
    consumer.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    overrides = {"log.durability": "page-cache", "group.initial.rebalance.delay.ms": "0"}
    with BrokerProcess(tmp_path / "data", overrides=overrides) as process:
        admin = AdminClient({"bootstrap.servers": process.bootstrap_servers})
        created = admin.create_topics([NewTopic(topic, partitions, 1) for topic, partitions in TOPICS.items()])
        for future in created.values():
            within(future.result, 30)
        yield process


async def test_the_page_shows_a_broker_under_load(broker: BrokerProcess, browser: Browser, tmp_path: Path) -> None:
    picture = PICTURE if REWRITE else tmp_path / "admin-page.png"
    with load(broker):
        page = await browser.open_page(broker.admin_url, width=WIDTH, height=HEIGHT)
        await page.until("document.querySelector('[data-link-text]').textContent === 'live'")
        await page.until("parseFloat(document.querySelector('[data-reading=requests] strong')?.textContent) > 0")
        await page.until("document.querySelector('#groups')?.innerText.includes('fraud-detector')")
        if REWRITE:
            await trio.sleep(LOADED_SECONDS * 2 / 3)
            await page.evaluate(CHANGE_THREADS)
            await trio.sleep(LOADED_SECONDS / 3)
        await page.picture(picture, whole=False)
    assert size_of(picture) == (WIDTH, HEIGHT)


CHANGE_THREADS = """
    fetch('/api/v1/config', {
        method: 'PATCH',
        headers: {'Content-Type': 'application/json', 'X-Requested-With': 'page'},
        body: JSON.stringify({'num.io.threads': 12}),
    }).then((response) => response.status)
"""


def test_the_picture_in_the_documentation_is_one_of_the_page() -> None:
    assert size_of(PICTURE) == (WIDTH, HEIGHT)


def size_of(png: Path) -> tuple[int, int]:
    """Width and height, from the header of a PNG file."""
    data = png.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height
