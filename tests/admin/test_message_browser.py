"""The page of records in Chromium: a row opens as a tree, new records come, and it holds together at every width."""

from __future__ import annotations

from pathlib import Path

from broker_admin.views.messages import NewMessage
from tests.admin.chromium import needs_chromium, open_browser
from tests.running_broker import connected, running, view_of

pytestmark = needs_chromium

HOSTILE = b'<img src=x onerror="document.title=1">'


async def test_the_page_of_records(tmp_path: Path) -> None:
    async with (
        running(tmp_path / "broker", admin_listener="127.0.0.1:0") as broker,
        connected(broker) as kafka,
        open_browser(tmp_path / "profile") as browser,
    ):
        await kafka.create_topic("orders")
        view = view_of(broker)
        await view.messages.append("orders", [NewMessage(HOSTILE, b'{"a": {"b": 1}}')])
        address = f"{(broker.admin_url or '').rstrip('/')}/topics/orders/messages"
        page = await browser.open_page(address)
        await page.until("!!document.querySelector('tr.record')")
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
