"""The page of records in Chromium: a row opens as a tree, new records come, and it holds together at every width."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from broker_admin.views.messages import MessagesView, NewMessage
from tests.admin.chromium import Browser, Page, needs_chromium
from tests.running_broker import connected, running, view_of
from trio_broker.cli.record_json import parse_record

pytestmark = needs_chromium

HOSTILE = b'<img src=x onerror="document.title=1">'


async def test_the_page_of_records(tmp_path: Path, browser: Browser) -> None:
    async with running(tmp_path, admin_listener="127.0.0.1:0") as broker, connected(broker) as kafka:
        await kafka.create_topic("orders")
        view = view_of(broker)
        await view.messages.append("orders", [NewMessage(HOSTILE, b'{"a": {"b": 1}}')])
        address = f"{(broker.admin_url or '').rstrip('/')}/topics/orders/messages"
        page = await browser.open_page(address)
        await page.until("!!document.querySelector('tr.record')")
        await page.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {key: 'j'}))")
        assert await page.evaluate("document.activeElement === document.querySelector('tr.record')")
        await page.evaluate("document.querySelector('tr.record .value').click()")
        await page.until("!!document.querySelector('tr.opened .tree')")
        await page.evaluate("document.querySelector('[data-tail-button]').click()")
        await page.until("document.querySelector('[data-tail-note]').textContent.startsWith('Waiting')")
        # The stream may begin a moment after it was asked for, so more than one record comes.
        while not await page.evaluate("!!document.querySelector('tr.fresh')"):
            await view.messages.append("orders", [NewMessage(b"live", HOSTILE)])
        assert await page.evaluate("document.querySelectorAll('.records img').length") == 0
        for width in (420, 768, 1280):
            await page.set_view(width=width)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            # The value has what is left of the width, not the number of a partition.
            assert await page.evaluate("document.querySelector('.records td.number').offsetWidth") < 110


@asynccontextmanager
async def page_of_records(
    browser: Browser, directory: Path, script: str = ""
) -> AsyncIterator[tuple[Page, MessagesView]]:
    """The page of the records of ``orders``, which has none yet; ``script`` runs before the page's own."""
    async with running(directory, admin_listener="127.0.0.1:0") as broker, connected(broker) as kafka:
        await kafka.create_topic("orders")
        page = await browser.open_page(f"{(broker.admin_url or '').rstrip('/')}/topics/orders/messages", script=script)
        yield page, view_of(broker).messages


async def end_of(messages: MessagesView) -> int:
    [partition] = messages.readable_partitions("orders") or ()
    return partition.end_offset


SAID = "document.querySelector('#produce [data-outcome]').textContent"


async def test_a_record_is_produced_with_the_form_and_again_from_its_own_page(tmp_path: Path, browser: Browser) -> None:
    async with page_of_records(browser, tmp_path) as (page, messages):
        await page.click("Produce …")
        await page.type("#produce [name=key]", "c1")
        await page.type("#produce [name=value]", '{"amount": ')
        await page.type("#produce [name=value_format]", "json")
        await page.type("#produce [name=headers]", "=7")
        await page.click("Try without changing anything", within="#produce")
        assert "headers are lines of key=value" in await page.text("#produce .reason")
        await page.type("#produce [name=headers]", "trace=7")
        twin = shlex.split(await page.evaluate("document.querySelector('#produce [data-twin]').textContent"))
        assert parse_record(twin[2].encode()).headers == (("trace", b"7"),)
        assert twin[4:8] == ["trio-broker", "produce", "orders", "--json"]
        await page.click("Produce")
        await page.until("document.querySelector('#produce .reason')?.textContent === 'value is not JSON'")
        await page.type("#produce [name=value]", '{"amount": 101}')
        await page.click("Try without changing anything")
        await page.until(f"{SAID}.startsWith('This would be done')")
        assert await end_of(messages) == 0
        await page.click("Produce")
        await page.until("!document.querySelector('#produce').open")
        await page.until("document.querySelector('.records tr.record .value')?.textContent.includes('101')")

        await page.evaluate("document.querySelector('.records tr.record a').click()")
        await page.until("location.pathname.endsWith('/0/0') && document.readyState === 'complete'")
        await page.click("Produce from this record …")
        assert await page.evaluate("document.querySelector('#produce [name=value]').value") == '{"amount": 101}'
        await page.type("#produce [name=value]", "")
        await page.evaluate("document.querySelector('#produce [name=tombstone]').click()")
        twin = shlex.split(await page.evaluate("document.querySelector('#produce [data-twin]').textContent"))
        assert parse_record(twin[2].encode()).value is None
        await page.click("Produce")
        await page.until("!document.querySelector('#produce').open")
        [fetched] = await messages.fetch_batches("orders", {0: 1}, max_bytes=1 << 20)
        [batch] = fetched.batches()
        [record] = batch.records()
        assert (record.key, record.value, list(record.headers)) == (b"c1", None, [("trace", b"7")])


CHOOSE_FILE = """(lines => {
    const chosen = new DataTransfer();
    chosen.items.add(new File([lines.join("\\n")], "records.jsonl"));
    const input = document.querySelector("[data-file]");
    input.files = chosen.files;
    input.dispatchEvent(new Event("change"));
})"""

HOLD_SECOND_PART = """
const send = window.fetch;
let parts = 0;
window.fetch = (address, options) => {
    if (options?.method !== "POST" || ++parts !== 2) return send(address, options);
    return new Promise((_, refuse) => options.signal.addEventListener("abort", () => refuse(options.signal.reason)));
};
"""

NOTE = "document.querySelector('[data-file-note]').textContent"


async def test_a_file_is_appended_in_parts_with_progress_and_can_be_cancelled(tmp_path: Path, browser: Browser) -> None:
    async with page_of_records(browser, tmp_path, HOLD_SECOND_PART) as (page, messages):
        lines = [json.dumps({"key": f"k{number}", "value": "x"}) for number in range(1200)]
        await page.evaluate(f"{CHOOSE_FILE}({json.dumps(lines)})")
        await page.until(f"{NOTE} === '500 appended'")
        progress = await page.evaluate("document.querySelector('[data-file-progress]').value")
        assert 0.4 < progress < 0.45
        await page.click("Cancel")
        await page.until(f"{NOTE}.startsWith('Cancelled; 500')")
        assert await end_of(messages) == 500
        await page.evaluate(f"{CHOOSE_FILE}({json.dumps(lines)})")
        await page.until(f"{NOTE} === 'All 1\u202f200 were appended.'")
        assert await end_of(messages) == 1700
        await page.evaluate(f"{CHOOSE_FILE}({json.dumps([lines[0], '', '{no'])})")
        await page.until(f"{NOTE}.startsWith('Record 2 of the file: ')")
        assert await end_of(messages) == 1700


TIME_PASSES_AT_ONCE = """
const later = window.setTimeout;
window.setTimeout = (work, delay, ...more) => later(work, delay >= 600000 ? 0 : delay, ...more);
"""


async def test_a_tail_stops_when_the_page_was_hidden_for_ten_minutes(tmp_path: Path, browser: Browser) -> None:
    async with page_of_records(browser, tmp_path, TIME_PASSES_AT_ONCE) as (page, _):
        await page.click("Live")
        await page.until("document.querySelector('[data-tail-note]').textContent.startsWith('Waiting')")
        await page.evaluate("""
            Object.defineProperty(document, "hidden", {value: true});
            document.dispatchEvent(new Event("visibilitychange"));
        """)
        await page.until("document.querySelector('[data-tail-note]').textContent.includes('hidden for ten minutes')")
