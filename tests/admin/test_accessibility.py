"""Every page and every dialog is looked at by axe-core (WCAG 2.1 A and AA), in the light theme on a wide screen and in
the dark one on a narrow screen, by default in turns and with no more than the first of many details, rows and items of
a page, which are all of a kind; and at four widths none is wider than its window.

axe-core is a package of npm: ``npm install`` in ``tests/compat/node``.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from starlette.routing import Route

from broker_admin.app import create_app
from broker_admin.logins import Logins
from broker_admin.tokens import read_or_make_tokens
from tests.admin.chromium import Browser, Page, needs_chromium
from tests.admin.live_admin import LiveAdmin, served
from tests.admin.live_transactions import begin_hanging, open_transaction
from tests.admin.test_api_conformance import NAMES, make_group
from tests.oracles import node_package

pytestmark = needs_chromium

NO_PAGES = ("/api/v1/", "/static/", "/metrics", "/healthz", "/readyz")

WIDTHS = (420, 640, 768, 1280)
"""A telephone, a small desktop at 200 %, a tablet, a small desktop, in CSS pixels."""

Look = tuple[int, bool]
"""Width and darkness of a look of axe-core."""

LOOKS: tuple[Look, ...] = ((1280, False), (420, True))

PARTS_OF_ONE_LOOK = 8
PARTS_OF_THE_API = 2
"""Of the page of the API, whose parts one macro makes: with eight, axe-core takes as long for it as for ten others."""

TAKE_OUT_THE_REST = """
(count) => {
    const dialog = document.querySelector('dialog[open]');
    const is_around = (part) => dialog && (part.contains(dialog) || dialog.contains(part));
    const lists = [...document.querySelectorAll('tbody, ul')].map((list) => [...list.children]);
    const further = [[...document.querySelectorAll('details')], ...lists].flatMap((parts) => parts.slice(count));
    const behind = dialog ? [...document.querySelectorAll('body *')] : [];
    window.takenOut = [];
    for (const part of [...further, ...behind]) {
        if (part.isConnected && !is_around(part)) {
            const place = document.createComment('');
            part.replaceWith(place);
            window.takenOut.push([part, place]);
        }
    }
}
"""
"""The further parts of the page, and all that is behind an open dialog. Out of the document, not hidden: axe-core would
ask for the style of each hidden element."""

PUT_BACK = "window.takenOut?.reverse().forEach(([part, place]) => place.replaceWith(part))"

QUERIES = {"/brokers/1/clients/client": "client_id=test"}
"""What the pages need that have no name in their path."""

LOOK = """
(selector) => axe.run(selector, {
    runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"],
    resultTypes: ["violations"],
    selectors: false,
}).then(({violations}) => violations.flatMap(({id, nodes}) => nodes.map(({html}) => `${id}: ${html.slice(0, 200)}`)))
"""

WIDER = "[...document.querySelectorAll('html, dialog[open]')].map((each) => each.scrollWidth - each.clientWidth)"

DIALOGS = "[...document.querySelectorAll('main dialog[id]:not([open])')].map((dialog) => dialog.id)"

EMPTY_PAGES = (
    "/",
    "/topics",
    "/groups",
    "/brokers/1/clients",
    "/changes",
    "/no-such-page",
    "/topics/none",
    "/groups/none",
)
"""Looked at before anything is there, too."""


async def addresses_of_pages(live: LiveAdmin) -> list[str]:
    """The address of each page that the app serves, of a topic and a group that are there."""
    found = []
    for route in create_app(live.view).routes:
        if isinstance(route, Route) and not route.path.startswith(NO_PAGES) and "GET" in (route.methods or {"GET"}):
            path = re.sub(r"\{(\w+)(:\w+)?\}", lambda name: NAMES.get(name[1], "1"), route.path)
            found.append(f"{path}?{QUERIES[path]}" if path in QUERIES else path)
    return sorted(set(found))


@pytest.fixture
def axe() -> str:
    return (node_package("axe-core") / "axe.min.js").read_text(encoding="utf-8")


async def looked_at(page: Page, selector: str, looks: Sequence[Look], parts: int = PARTS_OF_ONE_LOOK) -> list[str]:
    """What is wrong in the part that ``selector`` finds, by the view that shows it."""
    found = []
    for width in WIDTHS:
        await page.set_view(width=width)
        found += [f"{width} px: {more} px too wide" for more in await page.evaluate(WIDER) if more > 0]
    if len(looks) < len(LOOKS):
        await page.evaluate(f"({TAKE_OUT_THE_REST})({parts})")
    for width, dark in looks:
        await page.set_view(width=width, dark=dark)
        wrong = await page.evaluate(f"({LOOK})({json.dumps(selector)})")
        found += [f"{width} px, {'dark' if dark else 'light'}: {each}" for each in wrong]
    await page.evaluate(PUT_BACK)
    return found


@pytest.mark.parametrize(
    "looks",
    [
        pytest.param([LOOKS[:1], LOOKS[1:]], id="one look each"),
        pytest.param([LOOKS], id="all looks", marks=pytest.mark.soak),
    ],
)
async def test_axe_finds_nothing_on_any_page_or_dialog_and_none_is_wider_than_its_window(
    live: LiveAdmin, live_url: str, browser: Browser, tmp_path: Path, axe: str, looks: list[tuple[Look, ...]]
) -> None:
    turns = itertools.cycle(looks)
    # The first change, which is the one whose page is looked at, is on trial: only then it has dialogs.
    await live.http.patch("/api/v1/config?try_seconds=600", json={"num.io.threads": 4})
    found: dict[str, list[str]] = {}
    guarded = create_app(live.view, logins=Logins(read_or_make_tokens(tmp_path / "tokens"), has_users=False))
    async with served(guarded) as guarded_url:
        page = await browser.open_page("about:blank", script=axe)

        async def look(address: str) -> list[str]:
            await page.go_to(f"{address}{'&' if '?' in address else '?'}still")
            await page.evaluate("document.querySelectorAll('details').forEach((each) => each.open = true)")
            parts = PARTS_OF_THE_API if address.endswith("/api") else PARTS_OF_ONE_LOOK
            return await looked_at(page, "html", next(turns), parts)

        found["/login"] = await look(f"{guarded_url}/login")
        for address in EMPTY_PAGES:
            found[f"{address}, empty"] = await look(f"{live_url}{address}")
        await live.kafka.create_topic("orders", 2)
        await live.kafka.produce("orders", b"one", b"two")
        await live.http.patch("/api/v1/topics/orders/config", json={"retention.ms": 1000})
        await make_group(live)
        await open_transaction(live, NAMES["transactional_id"])
        await begin_hanging(live, "orders")
        seen_dialogs = set()
        for address in await addresses_of_pages(live):
            answer = await live.http.get(address, headers={"accept": "text/html"})
            if not answer.headers.get("content-type", "").startswith("text/html"):
                continue
            found[address] = await look(f"{live_url}{address}")
            for dialog in await page.evaluate(DIALOGS):
                if (kind := dialog.rstrip("0123456789")) in seen_dialogs:
                    continue
                seen_dialogs.add(kind)
                selector = f"dialog#{dialog}"
                await page.evaluate(f"document.querySelector({json.dumps(selector)}).showModal()")
                found[f"{address} {selector}"] = await looked_at(page, selector, next(turns))
                await page.evaluate(f"document.querySelector({json.dumps(selector)}).close()")
    wrong = {place: seen for place, seen in found.items() if seen}
    assert wrong == {}, json.dumps(wrong, indent=1)
    assert {"reset", "delete-topic", "produce", "change-settings", "set-level", "keep-trial"} <= seen_dialogs
