"""The page of the API: everything that is described, and every GET tried from it."""

from __future__ import annotations

import re

import httpx

from broker_admin.app import create_app
from broker_admin.openapi import openapi_document
from tests.admin.chromium import Browser, needs_chromium
from tests.admin.fake_broker import FakeBroker
from tests.admin.live_admin import LiveAdmin
from tests.admin.page_reading import assert_nothing_is_inline


async def test_every_operation_and_every_schema_is_on_the_page(client: httpx.AsyncClient) -> None:
    document = openapi_document(create_app(FakeBroker().view).routes)
    page = (await client.get("/api")).text
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert f'id="{operation["operationId"]}"' in page
        assert f'data-path="{path}"' in page
    ids = set(re.findall(r'id="([^"]*)"', page))
    assert {f"schema-{name}" for name in document["components"]["schemas"]} <= ids
    assert set(re.findall(r'href="#([^"]*)"', page)) <= ids | {"main"}


async def test_a_get_is_tried_by_a_form_and_without_a_script_where_its_path_needs_nothing(
    client: httpx.AsyncClient,
) -> None:
    page = (await client.get("/api")).text
    tried = re.findall(r'<form data-try method="get" action="([^"]*)"', page)
    assert "/api/v1/brokers" in tried
    assert_nothing_is_inline(page)


@needs_chromium
async def test_the_answer_of_a_tried_get_is_shown_with_its_status(
    live: LiveAdmin, live_url: str, browser: Browser
) -> None:
    await live.kafka.create_topic("orders", 2)
    page = await browser.open_page(f"{live_url}/api#segments.get_manifest")
    await page.until("document.getElementById('segments.get_manifest').open")
    form = "document.querySelector('form[data-path=\"/api/v1/brokers/{broker_id}/topics/{topic}/manifest\"]')"
    await page.evaluate(f"{form}.querySelector('[name=topic]').value = 'orders'")
    await page.evaluate(f"{form}.querySelector('[name=partition]').value = '1'")
    await page.evaluate(f"{form}.querySelector('button').click()")
    await page.until(f"{form}.querySelector('[data-outcome]').textContent.startsWith('200')")
    assert '"directory_name": "orders-1"' in await page.evaluate(f"{form}.querySelector('[data-tried]').textContent")
    await page.evaluate(f"{form}.querySelector('[name=partition]').value = 'x'")
    await page.evaluate(f"{form}.querySelector('button').click()")
    await page.until(f"{form}.querySelector('[data-outcome]').textContent.startsWith('400')")
    assert '"pointer": "?partition"' in await page.evaluate(f"{form}.querySelector('[data-tried]').textContent")
    for width in (420, 768, 1280):
        await page.set_view(width=width)
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
