"""Every page is looked at by axe-core, in both themes (WCAG 2.1 A and AA), and at three widths.

axe-core is a package of npm: ``npm install`` in ``tests/compat/node``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from starlette.routing import Route

from broker_admin.app import create_app
from tests.admin.chromium import needs_chromium, open_browser
from tests.admin.live_admin import LiveAdmin, served
from tests.admin.test_api_conformance import NAMES, make_group
from tests.oracles import node_package

pytestmark = needs_chromium

WIDTHS = (420, 768, 1280)
"""A telephone, a tablet, a small desktop, in CSS pixels."""

NO_PAGES = ("/api/v1/", "/static/", "/rows/", "/metrics", "/healthz", "/readyz")

LOOK = """
axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}).then(({violations}) =>
    violations.flatMap(({id, nodes}) => nodes.map(({html}) => `${id}: ${html.slice(0, 200)}`)))
"""


async def addresses_of_pages(live: LiveAdmin) -> list[str]:
    """The address of each page that the app serves, of a topic and a group that are there."""
    found = []
    for route in create_app(live.view).routes:
        if isinstance(route, Route) and not route.path.startswith(NO_PAGES) and "GET" in (route.methods or {"GET"}):
            path = re.sub(r"\{(\w+)(:\w+)?\}", lambda name: NAMES.get(name[1], "1"), route.path)
            found.append(f"{path}?group_id={NAMES['group_id']}" if path == "/groups/detail" else path)
    return sorted(set(found))


@pytest.fixture
def axe() -> str:
    return (node_package("axe-core") / "axe.min.js").read_text(encoding="utf-8")


async def test_axe_finds_nothing_on_any_page_and_none_is_wider_than_its_window(
    live: LiveAdmin, tmp_path: Path, axe: str
) -> None:
    await live.kafka.create_topic("orders", 2)
    await live.kafka.produce("orders", b"one", b"two")
    await make_group(live)
    app = create_app(live.view)
    found: dict[str, list[str]] = {}
    async with served(app) as url, open_browser(tmp_path / "profile") as browser:
        for address in await addresses_of_pages(live):
            answer = await live.http.get(address, headers={"accept": "text/html"})
            if not answer.headers.get("content-type", "").startswith("text/html"):
                continue
            page = await browser.open_page(f"{url}{address}")
            await page.evaluate(axe + "; true")
            for dark in (False, True):
                await page.set_view(dark=dark)
                if seen := await page.evaluate(LOOK):
                    found[f"{address} {'dark' if dark else 'light'}"] = seen
            for width in WIDTHS:
                await page.set_view(width=width)
                if (needed := await page.evaluate("document.documentElement.scrollWidth")) > width:
                    found[f"{address} {width} px"] = [f"the page is {needed} px wide"]
            await page.close()
    assert found == {}, json.dumps(found, indent=1)
