"""The page of records in Chromium: a row opens as a tree, new records come, and it holds together at every width."""

from __future__ import annotations

import json
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from broker_admin.messages import search
from broker_admin.routes import message_pages, message_search
from broker_admin.views.cluster.messages import MessagesView, NewMessage
from tests.admin.chromium import Browser, Page, needs_chromium
from tests.running_broker import connected, running, view_of
from trio_broker.cli.record_json import parse_record

pytestmark = needs_chromium

HOSTILE = b'<img src=x onerror="document.title=1">'


async def test_the_page_of_records(tmp_path: Path, browser: Browser) -> None:
    async with running(tmp_path, admin_listener="127.0.0.1:0") as broker, connected(broker) as kafka:
        await kafka.create_topic("orders")
        view = view_of(broker)
        await view.cluster.messages.append("orders", [NewMessage(HOSTILE, b'{"a": {"b": 1}}')])
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
            await view.cluster.messages.append("orders", [NewMessage(b"live", HOSTILE)])
        assert await page.evaluate("document.querySelectorAll('.records img').length") == 0
        # A row that came and one that is found later read the same, but for its mark.
        await view.cluster.messages.append("orders", [NewMessage(b"last", b'{"id":1}')])
        await page.until("document.querySelector('tr.record .key').textContent === 'last'")
        assert await page.text("tr.record .value") == '{"id": 1}'
        fresh = await page.evaluate("document.querySelector('tr.record').innerHTML")
        await page.go_to(address)
        await page.until("document.querySelector('tr.record time[title]') !== null")
        assert await page.evaluate("document.querySelector('tr.record').innerHTML") == fresh
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
        yield page, view_of(broker).cluster.messages


async def end_of(messages: MessagesView) -> int:
    [partition] = await messages.readable_partitions("orders") or ()
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
        command = shlex.split(await page.evaluate("document.querySelector('#produce [data-command]').textContent"))
        assert parse_record(command[2].encode()).headers == (("trace", b"7"),)
        assert command[4:8] == ["trio-broker", "produce", "orders", "--json"]
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
        command = shlex.split(await page.evaluate("document.querySelector('#produce [data-command]').textContent"))
        assert parse_record(command[2].encode()).value is None
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


COUNT = "(document.querySelector('[data-count]')?.textContent ?? '')"

HOLD_SECOND_SEARCH = """
const ask = window.fetch;
let searches = 0;
window.fetch = (address, options) => {
    if (!String(address).includes("/search?") || ++searches === 2) return ask(address, options);
    return ask(address, options).then(answer => {
        const held = new ReadableStream({
            async start(controller) {
                const reader = answer.body.getReader();
                const piece = (await reader.read()).value;
                controller.enqueue(piece.slice(0, piece.indexOf(10) + 1));
                options.signal.addEventListener("abort", () => reader.cancel());
            },
        });
        return new Response(held, {status: answer.status, headers: answer.headers});
    });
};
"""
"""The first stream stops after its first line, as that of a broker with much else to do: a piece may hold several."""


async def test_a_search_goes_on_while_it_is_looked_at_and_can_be_cancelled(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_pages, "PAGE_SECONDS", 0.0)
    monkeypatch.setattr(message_search, "TURN_SECONDS", 0.0)
    monkeypatch.setattr(search, "MIN_TURN_RECORDS", 100)
    async with page_of_records(browser, tmp_path, HOLD_SECOND_SEARCH) as (page, messages):
        for start in range(0, 2000, 500):
            numbered = [NewMessage(b"k%d" % number, b"order %d" % number) for number in range(start, start + 500)]
            await messages.append("orders", numbered)
        address = await page.evaluate("location.href")
        await page.evaluate(f"location.assign({json.dumps(address + '?where=order+7&from=oldest&limit=112')})")
        await page.until(f"{COUNT}.endsWith('searching.')")
        assert " of 2\u202f000 records (" in await page.evaluate(COUNT)
        assert await page.evaluate("document.querySelectorAll('tr.record').length") >= 11
        assert 0 < await page.evaluate("document.querySelector('[data-progress]').value") < 1
        await page.click("Cancel")
        await page.until(f"{COUNT}.endsWith('cancelled.')")
        await page.click("Search further")
        await page.until(f"{COUNT}.endsWith('end of log.')")
        # 7, 70 to 79, and 700 to 799.
        keys = "[...document.querySelectorAll('tr.record .key')].map(each => each.textContent)"
        assert await page.evaluate(keys) == [f"k{n}" for n in [7, *range(70, 80), *range(700, 800)]]
        assert (await page.evaluate(COUNT)).startswith("111 found in 2\u202f000 records (")
        assert not await page.evaluate("document.querySelector('[data-search-button]').checkVisibility()")
        assert not await page.evaluate("document.querySelector('.pager [rel=next]').checkVisibility()")

        await page.go_to(f"{address}?where=order+7&from=oldest&limit=20")
        await page.click("Cancel")
        await page.click("Search further")
        await page.until(f"{COUNT}.endsWith('more available.')")
        assert (await page.evaluate(keys))[-1] == "k708"
        await page.click("search further →")
        await page.until(f"{keys}[0] === 'k709'")


async def test_a_search_that_is_refused_says_why_and_can_be_tried_again(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_pages, "PAGE_SECONDS", 0.0)
    monkeypatch.setattr(search, "MIN_TURN_RECORDS", 1)
    monkeypatch.setattr("broker_admin.app_state.MAX_STREAMED_SEARCHES", 0)
    async with page_of_records(browser, tmp_path) as (page, messages):
        await messages.append("orders", [NewMessage(b"k%d" % number, b"v") for number in range(10)])
        await page.go_to(f"{await page.evaluate('location.href')}?where=v&limit=5")
        await page.until(f"{COUNT}.includes('0 searches, or 32 event streams, are open already')")
        assert await page.text("[data-search-button]") == "Search further"


async def test_a_time_is_typed_and_shown_in_the_zone_of_the_reader(tmp_path: Path, browser: Browser) -> None:
    async with page_of_records(browser, tmp_path) as (page, messages):
        for at_ms in (1_764_360_000_000, 1_764_363_600_123):  # 20:00 and 21:00 UTC, in 2025
            await messages.append("orders", [NewMessage(b"k", b"v", timestamp_ms=at_ms)])
        await page.command("Emulation.setTimezoneOverride", timezoneId="Asia/Tokyo")
        await page.go_to(f"{await page.evaluate('location.href')}?from=newest")
        assert not await page.evaluate("document.querySelector('[name=time]').checkVisibility()")
        await page.evaluate("document.querySelector('[name=from]').value = 'time'")
        assert await page.evaluate("document.querySelector('[name=time]').checkVisibility()")
        await page.until("document.querySelector('[data-for=time]').innerText.startsWith('Time, Asia/Tokyo')")
        await page.type("[name=time]", "2025-11-29T05:30")
        await page.evaluate("document.querySelector('[data-messages-form]').requestSubmit()")
        await page.until("location.search.includes('time=2025-11-28T20%3A30%3A00.000Z')")
        await page.until("document.querySelectorAll('tr.record time[title]').length === 1")
        shown = await page.text("tr.record time")
        assert ("06:00:00.123" in shown, "2025" in shown) == (True, True)
        assert await page.evaluate("document.querySelector('[name=time]').value") == "2025-11-29T05:30"


SHIFTS = """
window.shifted = 0;
new PerformanceObserver(list => {
    for (const entry of list.getEntries()) if (!entry.hadRecentInput) shifted += entry.value;
}).observe({type: "layout-shift", buffered: true});
"""

MAX_SHIFT = 0.1
"""What browsers' makers call good: the sum of what moved while a page was loaded, as shares of the view."""


@pytest.mark.parametrize("width", [420, 1280])
async def test_nothing_moves_while_a_page_is_loaded(tmp_path: Path, browser: Browser, width: int) -> None:
    """Fields that do not go with the choices are hidden, and times have their width, before the script runs."""
    async with running(tmp_path, admin_listener="127.0.0.1:0") as broker, connected(broker) as kafka:
        for topic in ("orders", *(f"topic-{number}" for number in range(12))):
            await kafka.create_topic(topic)
        records = [NewMessage(b"key %d" % n, b'{"id": %d}' % n) for n in range(60)]
        await view_of(broker).cluster.messages.append("orders", records)
        address = (broker.admin_url or "").rstrip("/")
        page = await browser.open_page(f"{address}/healthz", script=SHIFTS, width=width)
        await page.command("Emulation.setTimezoneOverride", timezoneId="America/Argentina/Buenos_Aires")
        for path in ("/topics/orders/messages", "/topics/orders/messages?from=oldest&where=key", "/changes"):
            await page.go_to(address + path)
            await page.until("document.querySelector('td time[title]') !== null")
            await page.until("document.querySelector('[data-link]').dataset.link === 'live'")
            await page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            assert await page.evaluate("shifted") <= MAX_SHIFT, path


async def test_a_key_is_as_wide_as_its_text_and_columns_that_say_nothing_are_not_shown(
    tmp_path: Path, browser: Browser
) -> None:
    async with page_of_records(browser, tmp_path) as (page, messages):
        await messages.append("orders", [NewMessage(b"customer-0000000000458", b"x" * 200)])
        await page.go_to(await page.evaluate("location.href"))
        assert await page.evaluate("document.querySelector('.key .foreign').getClientRects().length") == 1
        assert await page.evaluate("document.querySelector('.key .foreign').offsetHeight") < 25
        shown = "[...document.querySelectorAll('.records thead th')].filter(each => each.checkVisibility()).length"
        assert await page.evaluate(shown) == 6
        await messages.append("orders", [NewMessage(b"k", b"v", (("trace", b"7"),))])
        await page.go_to(await page.evaluate("location.href"))
        assert await page.evaluate(shown) == 7
