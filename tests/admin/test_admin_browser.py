"""Claims about what the pages do in a browser: when the broker is gone, when streams are taken, at every width."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from broker_admin import app_state
from broker_admin.server import AdminAddress, serve_admin
from broker_admin.tokens import Role, read_or_make_tokens
from tests.admin.chromium import Browser, needs_chromium
from tests.admin.fake_broker import START_MS, FakeBroker

pytestmark = needs_chromium

CLOCK_THAT_CAN_BE_PUT_FORWARD = """
    const pageClock = performance.now.bind(performance);
    window.skewMs = 0;
    performance.now = () => pageClock() + window.skewMs;
"""

BANNER = "[data-banner]"
LINK = "[data-link-text]"
FETCHES_THAT_ARE_NOT_ANSWERED = "window.fetch = () => new Promise(() => {});"

WIDTHS = (420, 640, 700, 768, 1000, 1020, 1280)


@pytest.fixture
def fake() -> FakeBroker:
    fake = FakeBroker()
    fake.tick(90)
    return fake


@asynccontextmanager
async def served(fake: FakeBroker, port: int = 0, token_file: Path | None = None) -> AsyncIterator[AdminAddress]:
    """The admin server over ``fake`` while the block lasts, and then gone at once."""
    async with trio.open_nursery() as nursery:
        yield await nursery.start(partial(serve_admin, fake.view, "127.0.0.1", port, token_file=token_file))
        nursery.cancel_scope.cancel()


def opacity(selector: str) -> str:
    return f"Number(getComputedStyle(document.querySelector('{selector}')).opacity)"


async def test_readings_of_a_broker_that_is_gone_are_greyed_and_dated_and_come_back_after_its_restart(
    browser: Browser, fake: FakeBroker
) -> None:
    async with served(fake) as address:
        page = await browser.open_page(address.url, script=CLOCK_THAT_CAN_BE_PUT_FORWARD)
        await page.until(f"document.querySelector('{LINK}').textContent === 'live'")
        assert await page.evaluate(f"document.querySelector('{BANNER}').hidden")
        assert await page.evaluate(opacity(".plot")) == 1

    await page.until(f"document.querySelector('{LINK}').textContent === 'reconnecting'")
    await page.evaluate("window.skewMs += 60_000")
    await page.until(f"!document.querySelector('{BANNER}').hidden")
    assert await page.text(f"{BANNER} p") == "The broker does not answer; last reading 1 min 0 s ago."
    for reading in (".verdict", ".plot", ".reading", "tbody", "[data-uptime]"):
        assert await page.evaluate(opacity(reading)) < 0.6
    assert (await page.text("[data-uptime]")).startswith("1 min 3")  # and not the minute more that has passed

    restarted = FakeBroker(now_ms=START_MS + 200_000, started_at_ms=START_MS + 197_000)
    restarted.durability = "page-cache"
    async with served(restarted, address.port):
        await page.until(f"document.querySelector('{LINK}').textContent === 'live'")
        await page.until(f"document.querySelector('{BANNER} p').textContent.startsWith('The broker was restarted at ')")
        assert await page.evaluate(opacity(".plot")) == 1
        assert await page.text("[data-node=durability]") == "page-cache"
        assert (await page.text("[data-uptime]")).endswith(" s")
        assert "min" not in await page.text("[data-uptime]")
        await page.evaluate(f"document.querySelector('{BANNER} button').click()")
        assert await page.evaluate(f"document.querySelector('{BANNER}').hidden")


async def test_a_change_that_is_not_answered_says_so_until_the_broker_is_back(
    browser: Browser, fake: FakeBroker
) -> None:
    async with served(fake) as address:
        page = await browser.open_page(f"{address.url}brokers/1/tuning")
        await page.until(f"document.querySelector('{LINK}').textContent === 'live'")
    await page.until(f"document.querySelector('{LINK}').textContent === 'reconnecting'")
    await page.evaluate("document.querySelector('[data-form] input[type=number]').value = 4")
    await page.evaluate("document.querySelector('[data-form] input[type=number]').dispatchEvent(new Event('input'))")
    await page.evaluate("document.querySelector('[data-form] .apply').click()")
    await page.until(
        "document.querySelector('[data-form] [data-outcome]').textContent.startsWith('The broker did not answer.')"
    )
    async with served(FakeBroker(now_ms=START_MS + 200_000), address.port):
        await page.until("document.querySelector('[data-form] [data-outcome]').textContent === ''")
        assert await page.evaluate("document.querySelector('[data-form] input[type=number]').value") == "4"


async def test_a_page_of_a_broker_that_serves_no_clients_says_why(browser: Browser, fake: FakeBroker) -> None:
    fake.ready = False
    async with served(fake) as address:
        page = await browser.open_page(address.url)
        await page.until(f"!document.querySelector('{BANNER}').hidden")
        assert await page.text(f"{BANNER} p") == "Clients are not served: loading logs."


async def test_the_reason_that_a_page_came_with_stands_until_readiness_is_read(
    browser: Browser, fake: FakeBroker
) -> None:
    fake.ready = False
    async with served(fake) as address:
        page = await browser.open_page(address.url, script=FETCHES_THAT_ARE_NOT_ANSWERED)
        uptime = await page.text("[data-uptime]")
        await page.until(f"document.querySelector('[data-uptime]').textContent !== '{uptime}'")
        assert await page.text(f"{BANNER} p") == "Clients are not served: loading logs."


async def test_a_page_that_gets_no_stream_says_that_it_polls_and_why(
    browser: Browser, fake: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_state, "MAX_EVENT_STREAMS", 0)
    async with served(fake) as address:
        page = await browser.open_page(address.url)
        polling = "polling every 2 s: all 32 streams are taken"
        await page.until(f"document.querySelector('{LINK}').textContent === '{polling}'")
        assert await page.evaluate("document.querySelector('[data-link]').dataset.link") == "polling"


async def test_the_page_holds_together_at_every_width(browser: Browser, fake: FakeBroker) -> None:
    async with served(fake) as address:
        page = await browser.open_page(f"{address.url}?still")
        for width in WIDTHS:
            await page.set_view(width=width)
            assert await page.evaluate("document.documentElement.scrollWidth") <= width
            assert await page.evaluate("document.querySelector('.top').offsetHeight") == 48
            # The navigation stands beside the content where there is room, else it is a bar above it.
            left = "document.querySelector('main').getBoundingClientRect().left"
            beside = f"document.querySelector('.navigation').getBoundingClientRect().right <= {left}"
            assert await page.evaluate(beside) == (width >= 1020)
            assert await page.evaluate("document.querySelector('.navigation').offsetHeight") == (
                852 if width >= 1020 else 40
            )
            columns = await page.evaluate(
                "getComputedStyle(document.querySelector('.row')).gridTemplateColumns.split(' ').length"
            )
            assert columns == (1 if width <= 520 else 2 if width <= 1180 else 4)
        assert "PLAINTEXT://127.0.0.1:9092" in await page.text(".facts dl")


async def test_a_viewer_logs_in_reads_a_page_changes_nothing_and_has_no_cookie_for_scripts(
    browser: Browser, fake: FakeBroker, tmp_path: Path
) -> None:
    token = read_or_make_tokens(tmp_path / "tokens").tokens[Role.VIEWER]
    async with served(fake, token_file=tmp_path / "tokens") as address:
        page = await browser.open_page(f"{address.url}login?next=/groups")
        await page.evaluate(f"document.querySelector('#token').value = '{token}'")
        await page.evaluate("document.querySelector('form').requestSubmit()")
        await page.until("location.pathname === '/groups' && document.readyState === 'complete'")
        assert await page.evaluate("document.cookie") == ""
        change = (
            "{method: 'PATCH', headers: {'content-type': 'application/json', 'x-requested-with': 'page'}, body: '{}'}"
        )
        assert await page.evaluate(f"fetch('/api/v1/config', {change}).then((answer) => answer.status)") == 403
