"""A consumer stands still because of a transaction: in a browser, by clicks alone, what holds it back is found and
aborted, and the consumer goes on.

A broker process has a topic into which a producer has written in a transaction that it does not end; another producer
writes behind it. Nothing here asserts a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.admin.chromium import Browser, Page, needs_chromium
from tests.waits import flushed, within
from trio_broker.testing import BrokerProcess

pytestmark = [pytest.mark.compat, needs_chromium]

TOPIC = "orders"
TRANSACTIONAL_ID = "billing/night shift"
ID_IN_PATH = "billing%2Fnight%20shift"
SECONDS = 30.0


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {
        "log.durability": "page-cache",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with BrokerProcess(tmp_path / "data", overrides=settings) as process:
        yield process


def leave_a_transaction_open(servers: str) -> Producer:
    """Write one record in a transaction, and one behind it."""
    admin = AdminClient({"bootstrap.servers": servers})
    within(admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result, SECONDS)
    settings = {"transactional.id": TRANSACTIONAL_ID, "client.id": "till-7", "transaction.timeout.ms": 600_000}
    producer = Producer({"bootstrap.servers": servers, **settings})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(TOPIC, b"never seen")
    assert flushed(producer, SECONDS)
    plain = Producer({"bootstrap.servers": servers})
    plain.produce(TOPIC, b"behind it")
    assert flushed(plain, SECONDS)
    return producer


def consumer_of(servers: str) -> Consumer:
    settings = {"group.id": "reader", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    consumer.subscribe([TOPIC])
    return consumer


def next_value(consumer: Consumer) -> bytes | None:
    message = within(consumer.poll, SECONDS)
    assert message is not None, "nothing came"
    assert message.error() is None, message.error()
    value: bytes | None = message.value()
    return value


async def test_from_a_consumer_that_stands_still_to_the_abort_of_what_holds_it(
    broker: BrokerProcess, browser: Browser
) -> None:
    servers = broker.bootstrap_servers
    producer = await trio.to_thread.run_sync(leave_a_transaction_open, servers)
    consumer = consumer_of(servers)
    page = await browser.open_page(broker.admin_url)
    await see_what_holds_the_topic(page)
    await abort_it(page)
    assert await trio.to_thread.run_sync(partial(next_value, consumer)) == b"behind it"
    with pytest.raises(KafkaException):
        await trio.to_thread.run_sync(producer.commit_transaction, SECONDS)
    consumer.close()
    await see_what_became_of_the_records(page)


async def see_what_holds_the_topic(page: Page) -> None:
    await page.click("Topics", "/topics")
    await page.click(TOPIC, f"/topics/{TOPIC}")
    await page.click("Partitions", f"/topics/{TOPIC}/partitions")
    await page.click("held back", f"/topics/{TOPIC}/partitions/0")
    text = await page.text("#held")
    assert text.startswith("2 records for "), text
    assert f"held back, from offset 0 on, by {TRANSACTIONAL_ID}." in text


async def abort_it(page: Page) -> None:
    await page.click(TRANSACTIONAL_ID, f"/transactions/{ID_IN_PATH}")
    assert "till-7" in await page.text("#figures")
    await page.click("Abort …")
    await page.click("Try without changing anything", within="dialog[open]")
    await page.until("document.querySelector('dialog[open] [data-tried]').innerText.includes('\"dry_run\": true')")
    await page.click("Abort it and fence its producer", within="dialog[open]")
    await page.until("document.querySelector('#figures').innerText.includes('CompleteAbort')")
    await page.click("Changes", "/changes")
    await page.until(f"document.querySelector('main').innerText.includes('aborted transaction {TRANSACTIONAL_ID}')")


async def see_what_became_of_the_records(page: Page) -> None:
    await page.click("Topics", "/topics")
    await page.click(TOPIC, f"/topics/{TOPIC}")
    await page.click("Messages", f"/topics/{TOPIC}/messages")
    assert "aborted" in await page.text("tr.aborted")
    marker = await page.text("tr.marker")
    assert "ABORT" in marker
    assert await page.evaluate("getComputedStyle(document.querySelector('tr.marker')).display") == "table-row"
