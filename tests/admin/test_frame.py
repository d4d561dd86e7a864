"""What every page has around it and is made with: navigation, search, themes, tables, dialogs, refreshed regions.

The pages here are of the test, made with the macros that the app's own pages use, over a real broker's API.
"""

from __future__ import annotations

import html
import json
import re
import threading
from collections.abc import AsyncIterator
from typing import Any

import attrs
import httpx
import jinja2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from broker_admin.app import create_app
from broker_admin.listing import ListQuery, ordered_by, take_page
from broker_admin.navigation import NAVIGATION, navigation_of
from broker_admin.operations import query_of
from broker_admin.pages import TEMPLATES, UI_DIRECTORY, frame
from broker_admin.routes.search import Searched
from broker_admin.tables import Column, ListTable
from tests.admin.chromium import Browser, Page, needs_chromium
from tests.admin.fake_broker import FakeBroker
from tests.admin.fake_transactions import snapshot
from tests.admin.live_admin import LiveAdmin, pointers, served
from tests.admin.page_reading import assert_nothing_is_inline
from tests.admin.test_api_conformance import make_group

PAGE = """
{% extends "base.html" %}
{% from "macros/table.html" import data_table with context %}
{% from "macros/dialog.html" import dialog, opener with context %}
{% from "macros/states.html" import empty, error, loading, stopped, stale, polling with context %}
{% block main %}
  {% call(name) data_table(table, "names", "Names", "No names yet.", api="/api/v1/names") %}
  <th scope="row"><a href="/names/{{ name | quoted }}">{{ name }}</a></th><td class="number">{{ name | length }}</td>
  {% endcall %}
  <details id="more"><summary>More</summary><p>{{ count }} times</p></details>
  <p id="count" data-region>{{ count }}</p>
  {{ opener("threads", "Change threads") }}
  {% call dialog("threads", "Set threads", "PATCH", "/api/v1/config", does="It changes two pools.",
           commands=["trio-broker configs set num.io.threads={num.io.threads} [--network {num.network.threads}]"]) %}
  <label>I/O <input name="num.io.threads" data-json="number" value="6"></label>
  <label>Network <input name="num.network.threads" data-json="number"></label>
  {% endcall %}
  {{ opener("delete", "Delete", kind="danger") }}
  {{ dialog("delete", "Delete it", "DELETE", "/api/v1/nothing", typed_name="it's <b>", can_try=true) }}
  {% call empty("Nothing here", command="trio-broker topics create orders") %}<p>Make one.</p>{% endcall %}
  {{ loading() }}{{ error("Not found", "there is no such thing", again="/names") }}
  {{ stopped("loading logs") }}{{ stale("12 s") }}{{ polling(2, 32) }}
{% endblock %}
"""

COLUMNS = {"name": lambda name: name, "length": len}

CONNECTIONS_OF_A_BROWSER = 6
"""So many Chromium opens to one host."""


@attrs.frozen(kw_only=True)
class NamesQuery(ListQuery):
    order: str = ordered_by("name", COLUMNS)


@attrs.define
class NamesPage:
    """A page that lists ``names`` and counts how often it was asked for."""

    names: list[str]
    count: int = 0

    async def __call__(self, request: Request) -> Response:
        self.count += 1
        query = query_of(request, NamesQuery)
        table = ListTable(
            path="/names",
            columns=[Column("Name", "name"), Column("Length", "length", is_number=True, hidden_below="narrow")],
            query=query,
            page=take_page(self.names, query, id_of=str, columns=COLUMNS),
            parameters=request.query_params,
            key_of=str,
        )
        context = frame(request)
        page = TEMPLATES.from_string(PAGE).render(
            **context, here="names", script="fresh.js", table=table, count=self.count
        )
        return HTMLResponse(page)


@pytest.fixture
def shown() -> NamesPage:
    return NamesPage(["alpha", "beta", "gamma", "<b>hostile</b>"])


@pytest.fixture
def app(live: LiveAdmin, shown: NamesPage) -> Starlette:
    async def get_names(request: Request) -> Response:
        return await shown(request)

    made = create_app(live.view)
    made.router.routes.append(Route("/names", get_names))
    return made


@pytest.fixture
async def page(app: Starlette, browser: Browser) -> AsyncIterator[Page]:
    """The page of names in a browser."""
    async with served(app) as url:
        opened = await browser.open_page(f"{url}/names")
        await opened.until("document.querySelector('[data-link-text]').textContent === 'live'")
        yield opened


async def press(page: Page, key: str, **modifiers: bool) -> None:
    event = json.dumps({"key": key, "bubbles": True, "cancelable": True, **modifiers})
    await page.evaluate(f"document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {event}))")


# --- the navigation ---


def test_the_navigation_has_the_pages_that_are_served_in_its_own_order() -> None:
    routes = [Route("/groups", lambda: None), Route("/", lambda: None), Route("/api/v1/groups", lambda: None)]
    assert [entry.title for entry in navigation_of(routes)] == ["Overview", "Groups"]


def test_no_two_pages_have_one_key() -> None:
    assert len({entry.key for entry in NAVIGATION}) == len({entry.path for entry in NAVIGATION}) == len(NAVIGATION)


@pytest.mark.parametrize(
    "address",
    ["/brokers/1/tuning", "/topics", "/groups", "/changes", "/config", "/brokers/1/clients", "/brokers/1/storage"],
)
async def test_no_page_compiles_its_template_on_the_event_loop(
    live: LiveAdmin, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """The first reader of a page would hold up all clients for as long as that takes."""
    threads: list[threading.Thread] = []

    def get_template(*arguments: Any) -> jinja2.Template:
        threads.append(threading.current_thread())
        return found(*arguments)

    found = TEMPLATES.get_template
    monkeypatch.setattr(TEMPLATES, "get_template", get_template)
    assert (await live.http.get(address)).status_code == 200
    assert threads
    assert threading.current_thread() not in threads


async def test_the_navigation_marks_the_page_that_is_shown(client: httpx.AsyncClient) -> None:
    links = re.findall(r'<a href="(/\w*)" data-key="\w"[^>]*aria-current="page"', (await client.get("/groups")).text)
    assert links == ["/groups"]


async def test_a_broker_that_serves_no_clients_says_why_without_a_script(
    client: httpx.AsyncClient, fake: FakeBroker
) -> None:
    fake.ready = False
    page = (await client.get("/")).text
    assert "Clients are not served: loading logs." in page
    assert not re.search(r"data-banner=\S+ hidden", page)


# --- searching for anything ---


async def test_topics_groups_keys_and_pages_are_found_by_a_part_of_their_name(live: LiveAdmin) -> None:
    async def found(query: str) -> list[tuple[str, str, str]]:
        items = (await live.get("/api/v1/search", q=query))["items"]
        return [(hit["kind"], hit["title"], hit["address"]) for hit in items]

    await live.kafka.create_topic("orders")
    await make_group(live)
    assert ("page", "Groups", "/groups") in await found("GROU")
    assert await found("rders") == [("topic", "orders", "/topics/orders")]
    assert await found("billi") == [("group", "billing", "/groups/billing")]
    assert await found("num.io.thr") == [("config", "num.io.threads", "/config?key=num.io.threads")]
    assert await found("nothing like that") == []


async def test_every_link_of_every_page_leads_somewhere_and_every_page_has_one_title_and_nothing_inline(
    live: LiveAdmin,
) -> None:
    await live.kafka.create_topic("orders", 2)
    await make_group(live)
    await live.kafka.produce("orders", b"1")
    await live.http.patch("/api/v1/config", json={"num.io.threads": 6})
    await live.http.patch("/api/v1/topics/orders/config", json={"retention.ms": "1 d"})
    waiting, seen, pages = ["/"], {"/"}, set[str]()
    while waiting:
        address = waiting.pop()
        answer = await live.http.get(address, headers={"accept": "text/html"})
        assert answer.status_code == 200, (address, answer.text[-300:])
        if address.partition("?")[0] in pages or not answer.headers["content-type"].startswith("text/html"):
            continue  # the links of a page's other orders and ranges are those of the page
        pages.add(address.partition("?")[0])
        assert answer.text.count("<h1") == 1, address
        assert_nothing_is_inline(answer.text)
        links = {html.unescape(link).partition("#")[0] for link in re.findall(r'<a [^>]*href="(/[^"]*)"', answer.text)}
        links = {link for link in links if "/messages/" not in link}  # the newest record links to the next, yet to come
        waiting += links - seen
        seen |= links
    assert {
        "/topics/orders/consumers",
        "/groups/billing",
        "/changes/1",
        "/brokers/1/tasks",
        "/brokers/1/loggers",
    } <= pages


async def test_a_search_finds_the_likeliest_twenty(live: LiveAdmin) -> None:
    searched = Searched(
        navigation=NAVIGATION,
        client_page="/brokers/1/clients/client",
        topics=["orders", "old-orders", "orders-eu", *(f"x-orders-{number:02}" for number in range(30))],
        groups=(),
        transactions=(snapshot("billing/night", 0),),
        clients={"orders-reader": 3},
        config_entries=live.view.cluster.config.entries(),
    )
    titles = [hit.title for hit in searched.best_hits("orders").items]
    assert len(titles) == 20
    assert titles[:4] == ["orders", "orders-eu", "orders-reader", "old-orders"]
    [key] = searched.best_hits("num.io.threads").items
    assert (key.kind, key.address) == ("config", "/config?key=num.io.threads")
    [transaction] = searched.best_hits("night").items
    assert (transaction.kind, transaction.address) == ("transaction", "/transactions/billing%2Fnight")
    [client] = searched.best_hits("reader").items
    assert (client.kind, client.address) == ("client", "/brokers/1/clients/client?client_id=orders-reader")


async def test_a_search_for_nothing_is_refused(client: httpx.AsyncClient) -> None:
    for query in ("", "q=", "q=" + "x" * 1001):
        assert pointers(await client.get(f"/api/v1/search?{query}"), 400) == ["?q"]


@needs_chromium
async def test_slash_opens_the_search_and_enter_follows_the_first_hit(page: Page) -> None:
    await press(page, "/")
    await page.until("document.querySelector('#palette').open")
    await page.type("#palette input", "overv")
    await page.until("document.querySelectorAll('#palette li').length === 1")
    assert await page.text("#palette li .title") == "Overview"
    await press(page, "Escape")
    assert not await page.evaluate("document.querySelector('#palette').open")
    await press(page, "k", ctrlKey=True)
    await page.until("document.querySelectorAll('#palette li').length === 1")
    await press(page, "Enter")
    await page.until("location.pathname === '/' && document.readyState === 'complete'")


@needs_chromium
async def test_keys_go_to_pages_move_in_tables_and_list_themselves(page: Page) -> None:
    await press(page, "?")
    assert "search for anything" in await page.text("#keys")
    await page.evaluate("document.querySelector('#keys').close()")
    await page.until("document.activeElement === document.body")
    await press(page, "j")
    await press(page, "j")
    assert await page.evaluate("document.activeElement.dataset.key") == "alpha"
    await press(page, "k")
    assert await page.evaluate("document.activeElement.dataset.key") == "<b>hostile</b>"
    await press(page, "g")
    await press(page, "g")
    await page.until("location.pathname === '/groups'")


@needs_chromium
async def test_a_narrow_screen_shows_which_page_of_the_navigation_it_is(page: Page) -> None:
    await page.set_view(width=420)
    await page.click("API", "/api")
    left, right = await page.evaluate(
        "(() => { const {left, right} = document.querySelector('.navigation [aria-current]').getBoundingClientRect();"
        " return [left, right]; })()"
    )
    assert 0 <= left < right <= 420


# --- themes ---


@needs_chromium
async def test_a_chosen_theme_lasts_and_wins_over_the_systems(page: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = await page.evaluate(ground)
    await page.evaluate("document.querySelector('[data-theme-choice=dark]').click()")
    dark = await page.evaluate(ground)
    assert dark != light
    await page.go_to((await page.evaluate("location.href")) + "?again")
    assert await page.evaluate(ground) == dark
    await page.evaluate("document.querySelector('[data-theme-choice=system]').click()")
    assert await page.evaluate(ground) == light
    await page.set_view(dark=True)
    assert await page.evaluate(ground) == dark


def test_a_theme_changes_colours_alone() -> None:
    """So tests measure pages in one theme: what ``light-dark()`` chooses between are colours."""
    styles = "".join(path.read_text(encoding="utf-8") for path in (UI_DIRECTORY / "static").glob("*.css"))
    assert "prefers-color-scheme" not in styles
    rules = re.findall(r"\[data-theme[^{]*{([^}]*)}", styles)
    assert [rule.strip() for rule in rules] == ["color-scheme: light;", "color-scheme: dark;"]


# --- tables ---


async def test_a_table_orders_and_continues_by_links_and_shows_names_as_text(app: Starlette, shown: NamesPage) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        page = (await client.get("/names?limit=2&order=-length&internal=true")).text
        assert '<a href="/names?limit=2&amp;internal=true&amp;order=length">Length</a>' in page
        assert '<a href="/names?limit=2&amp;internal=true&amp;order=name">Name</a>' in page
        assert page.count('aria-sort="descending"') == 1
        assert "&lt;b&gt;hostile&lt;/b&gt;" in page
        assert "<b>hostile" not in page
        assert '<input type="hidden" name="order" value="-length">' in page
        [further] = re.findall(r'href="([^"]*)" rel="next"', page)
        second = (await client.get(further.replace("&amp;", "&"))).text
        assert re.findall(r'data-key="(\w+)">', second) == ["gamma", "beta"]
        assert 'rel="first"' in second
        assert "Nothing matches; there are 4." in (await client.get("/names?search=nowhere")).text
        shown.names = []
        assert "No names yet." in (await client.get("/names")).text
        assert (await client.get("/names?order=size")).status_code == 400


@needs_chromium
async def test_a_table_is_searched_as_typed_and_the_address_follows(page: Page) -> None:
    await page.type("form[data-search] input", "amm")
    await page.until("document.querySelectorAll('tbody[data-rows] tr').length === 1")
    assert await page.evaluate("location.search") == "?search=amm"
    await page.set_view(width=420)
    assert await page.evaluate("getComputedStyle(document.querySelector('tbody td.number')).display") == "none"


# --- refreshing ---


@needs_chromium
async def test_a_refresh_keeps_focus_and_opened_details_and_moves_no_row_under_the_pointer(
    page: Page, shown: NamesPage
) -> None:
    await page.evaluate("document.querySelector('#more').open = true")
    await page.evaluate("document.querySelector('tr[data-key=beta] a').focus()")
    shown.names = ["zeta", *shown.names]
    await page.until("document.querySelectorAll('tbody[data-rows] tr').length === 5")
    assert await page.evaluate("document.activeElement.textContent") == "beta"
    assert await page.evaluate("document.querySelector('#more').open")

    keys = "[...document.querySelectorAll('tbody[data-rows] tr')].map(row => row.dataset.key)"
    before = await page.evaluate(keys)
    box = await page.evaluate("document.querySelector('tr[data-key=beta]').getBoundingClientRect().toJSON()")
    await page.command("Input.dispatchMouseEvent", type="mouseMoved", x=box["x"] + 5, y=box["y"] + 5)
    shown.names = ["aaa", "beta", "gamma", "zeta"]
    await page.until("document.querySelector('tr[data-key=alpha]').hasAttribute('data-gone')")
    assert await page.evaluate(keys) == before
    await page.command("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    await page.until("document.querySelector('tr[data-key=aaa]') !== null")
    assert await page.evaluate(keys) == ["aaa", "beta", "gamma", "zeta"]


# --- actions ---


@needs_chromium
async def test_an_action_shows_its_call_and_commands_and_makes_its_change(page: Page, live: LiveAdmin) -> None:
    await page.evaluate("document.querySelector('[data-opens=threads]').click()")
    await page.evaluate("document.querySelector('#threads .commands').open = true")
    assert "-d '{\"num.io.threads\":6}'" in await page.text("#threads [data-call]")
    assert await page.text("#threads [data-command]") == "trio-broker configs set num.io.threads=6"
    await page.type("[name='num.network.threads']", "5")
    assert await page.text("#threads [data-command]") == "trio-broker configs set num.io.threads=6 --network 5"
    await page.evaluate("document.querySelector('#threads [data-does]').click()")
    await page.until("document.querySelector('[data-toasts]').textContent.includes('Set threads: done.')")
    assert not await page.evaluate("document.querySelector('#threads').open")
    values = {entry.name: entry.value for entry in live.view.cluster.config.entries()}
    assert (values["num.io.threads"], values["num.network.threads"]) == ("6", "5")


@needs_chromium
async def test_a_refusal_is_shown_beside_the_field_that_it_points_at(page: Page) -> None:
    await page.evaluate("document.querySelector('[data-opens=threads]').click()")
    await page.evaluate("document.querySelector('[name=\"num.io.threads\"]').value = 'many'")
    await page.evaluate("document.querySelector('#threads [data-does]').click()")
    await page.until("document.querySelector('#threads [data-outcome]').dataset.kind === 'bad'")
    assert "Nothing was changed" in await page.text("#threads [data-outcome]")
    assert "num.io.threads" in await page.text("[name='num.io.threads'] + .reason")
    assert await page.evaluate("document.querySelector('#threads').open")


@needs_chromium
async def test_what_cannot_be_undone_needs_its_name_typed(page: Page) -> None:
    await page.evaluate("document.querySelector('[data-opens=delete]').click()")
    disabled = "document.querySelector('#delete [data-does]').disabled"
    assert await page.evaluate(disabled)
    await page.type("[data-typed]", "it's <B>")
    assert await page.evaluate(disabled)
    await page.type("[data-typed]", "it's <b>")
    assert not await page.evaluate(disabled)
    await page.evaluate("document.querySelector('#delete [data-does]').click()")
    await page.until("document.querySelector('#delete [data-outcome]').textContent.startsWith('Refused: ')")


async def test_without_a_script_nothing_is_offered_that_does_nothing(app: Starlette) -> None:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        page = (await client.get("/names")).text
    outside = re.sub(r"<dialog.*?</dialog>", "", page, flags=re.DOTALL)
    for button in re.findall(r"<button[^>]*>", outside):
        assert "hidden" in button or "needs-script" in button or 'type="submit"' in button or "data-theme" in button
    assert_nothing_is_inline(page)


# --- tabs ---


SHOWN_OR_HIDDEN = """Object.defineProperty(document, "hidden", {value: %s, configurable: true});
document.dispatchEvent(new Event("visibilitychange"))"""


@needs_chromium
async def test_a_tab_in_the_background_gives_its_stream_back_and_takes_one_again(page: Page, live: LiveAdmin) -> None:
    """With the page itself there is one tab more than connections, so that the last could not be loaded."""
    url = await page.evaluate("location.origin")
    tabs = []
    for _ in range(CONNECTIONS_OF_A_BROWSER):
        tabs.append(tab := await page.browser.open_page(f"{url}/changes"))
        await tab.until("document.querySelector('[data-link]').dataset.link === 'live'")
        await tab.evaluate(SHOWN_OR_HIDDEN % "true")
        await tab.until("document.querySelector('[data-link]').dataset.link === 'paused'")
    await live.kafka.create_topic("orders")
    await tabs[0].evaluate(SHOWN_OR_HIDDEN % "false")
    await tabs[0].until("document.querySelector('[data-link]').dataset.link === 'live'")
    await tabs[0].until("document.querySelector('#changes tbody').innerText.includes('created topic orders')")


@needs_chromium
async def test_every_page_says_whether_the_broker_answers(page: Page, live: LiveAdmin) -> None:
    await live.kafka.create_topic("orders")
    url = await page.evaluate("location.origin")
    for path in ("/topics/orders/messages", "/brokers/1/connection-diagnosis", "/nowhere", "/config", "/changes"):
        await page.go_to(f"{url}{path}")
        await page.until("document.querySelector('[data-link]').dataset.link === 'live'")
